// Error: why something failed for a reason outside this program, in a form that can be acted on.
//
// Place       Every module. Carried by Result<T> (result.h); never thrown.
// Contents    A short closed list of codes for decisions, and one sentence for people. Context is
//             added on the way up with With(), so that the sentence ends up naming stream, field
//             and value without every layer knowing them.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace xms::base {

enum class ErrorCode {
  kInvalidArgument,    // the caller's or the user's input is wrong; trying again does not help
  kNotFound,           // the thing named does not exist
  kConflict,           // it exists, but in another state or life than the caller believes
  kUnavailable,        // a peer cannot be reached or refuses; trying again may help
  kTimeout,            // a deadline passed
  kResourceExhausted,  // a configured limit was reached
  kCorrupt,            // bytes from a peer do not mean anything
  kCancelled,          // the caller itself gave up
  kInternal,           // our own defect
};

// The code's name as it appears in logs, e.g. "invalid_argument". Static storage.
constexpr std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kNotFound: return "not_found";
    case ErrorCode::kConflict: return "conflict";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kTimeout: return "timeout";
    case ErrorCode::kResourceExhausted: return "resource_exhausted";
    case ErrorCode::kCorrupt: return "corrupt";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kInternal: return "internal";
  }
  return "unknown";
}

struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  // Prefixes context: Error{…, "bad map header at byte 41"}.With("stream engine-3/0") reads
  // "stream engine-3/0: bad map header at byte 41".
  Error With(std::string_view context) && {
    std::string text;
    text.reserve(context.size() + 2 + message.size());
    text.append(context).append(": ").append(message);
    message = std::move(text);
    return std::move(*this);
  }
};

}  // namespace xms::base
