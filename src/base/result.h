// Result<T>: a value, or the Error that took its place. Result<> for operations without a value.
//
// Place       Everywhere something can fail for outside reasons. std::expected needs C++23, which
//             GCC 12 and Clang offer in that mode only, hence this small one.
// Threads     A plain value.
// Failure     value() on an error and error() on a value are defects of the caller: they abort.
#pragma once

#include <cstdlib>
#include <utility>
#include <variant>

#include "base/error.h"

namespace xms::base {

template <typename T = std::monostate>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose: `return value;` and `return Error{…};` are the two ways to end a function.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}   // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return Checked(); }
  const T& value() const& { return const_cast<Result*>(this)->Checked(); }
  T&& value() && { return std::move(Checked()); }
  T& operator*() & { return Checked(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(Checked()); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    if (ok()) std::abort();
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    if (ok()) std::abort();
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  T& Checked() {
    if (!ok()) std::abort();
    return *std::get_if<0>(&state_);
  }

  std::variant<T, Error> state_;
};

using Status = Result<>;

// The value of a Status that went well.
inline Status Ok() { return Status(std::monostate{}); }

}  // namespace xms::base
