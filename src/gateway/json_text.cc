#include "gateway/json_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "gateway/internal/json_reader.h"

namespace xms::gateway {
namespace {

constexpr std::uint64_t kOnes = 0x0101010101010101;
constexpr std::uint64_t kHighs = 0x8080808080808080;

// A high bit in each byte of `word` that is zero. May also mark bytes above a true one, which is
// enough to know whether there is any.
constexpr std::uint64_t ZeroBytes(std::uint64_t word) { return (word - kOnes) & ~word & kHighs; }

// True when one of the eight bytes must be escaped: below 0x20, a quote or a backslash.
constexpr bool NeedsEscape(std::uint64_t word) {
  const std::uint64_t control = (word - kOnes * 0x20) & ~word & kHighs;
  return (control | ZeroBytes(word ^ (kOnes * '"')) | ZeroBytes(word ^ (kOnes * '\\'))) != 0;
}

constexpr bool MustEscape(unsigned char byte) { return byte < 0x20 || byte == '"' || byte == '\\'; }

// Length of the run from `begin` that can be copied as it is.
std::size_t PlainRun(const char* begin, std::size_t size) {
  std::size_t i = 0;
  while (i + 8 <= size) {
    std::uint64_t word;
    std::memcpy(&word, begin + i, 8);
    if (NeedsEscape(word)) break;
    i += 8;
  }
  while (i < size && !MustEscape(static_cast<unsigned char>(begin[i]))) ++i;
  return i;
}

void AppendEscape(std::string& out, unsigned char byte) {
  switch (byte) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  constexpr char kHex[] = "0123456789abcdef";
  const std::array<char, 6> text{'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]};
  out.append(text.data(), text.size());
}

template <typename Number>
void AppendChars(std::string& out, Number value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, end);
}

}  // namespace

void AppendQuotedUtf8(std::string& out, std::string_view text) {
  out.push_back('"');
  const char* at = text.data();
  std::size_t left = text.size();
  while (left > 0) {
    const std::size_t run = PlainRun(at, left);
    out.append(at, run);
    at += run;
    left -= run;
    if (left == 0) break;
    AppendEscape(out, static_cast<unsigned char>(*at));
    ++at;
    --left;
  }
  out.push_back('"');
}

void AppendQuoted(std::string& out, std::string_view text) {
  if (internal::IsUtf8(text)) {
    AppendQuotedUtf8(out, text);
    return;
  }
  std::string ascii(text);
  for (char& c : ascii) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  AppendQuotedUtf8(out, ascii);
}

void AppendNumber(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  AppendChars(out, value);
}

void AppendUnsigned(std::string& out, std::uint64_t value) { AppendChars(out, value); }
void AppendSigned(std::string& out, std::int64_t value) { AppendChars(out, value); }

}  // namespace xms::gateway
