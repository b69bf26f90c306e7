// StrCat: text from pieces, for messages. Numbers in plain decimal; floating point in the shortest
// form that reads back to the same value.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace xms::base {
namespace internal {

inline void AppendPiece(std::string& out, std::string_view piece) { out.append(piece); }
inline void AppendPiece(std::string& out, char piece) { out.push_back(piece); }
// A template, so that a literal is text: its pointer would convert to a plain bool parameter first.
template <std::same_as<bool> T>
void AppendPiece(std::string& out, T piece) { out.append(piece ? "true" : "false"); }
template <typename T>
  requires((std::integral<T> || std::floating_point<T>) && !std::same_as<T, bool> &&
           !std::same_as<T, char>)
void AppendPiece(std::string& out, T number) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  out.append(buffer, end);
}

}  // namespace internal

template <typename... Pieces>
std::string StrCat(const Pieces&... pieces) {
  std::string out;
  (internal::AppendPiece(out, pieces), ...);
  return out;
}

template <typename... Pieces>
void StrAppend(std::string& out, const Pieces&... pieces) {
  (internal::AppendPiece(out, pieces), ...);
}

}  // namespace xms::base
