#include "gateway/internal/token_text.h"

#include <bit>
#include <cstring>
#include <limits>

namespace xms::gateway::internal {
namespace {

// How far a key may stand from the beginning: parameters before the prompt fit, a long text does
// not.
constexpr std::size_t kMaxLookahead = 8 * 1024;

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Walks over the members of the top object without understanding their values. Right for valid
// JSON; for anything else it only has to end.
class Walker {
 public:
  explicit Walker(std::string_view json) : json_(json.substr(0, kMaxLookahead)) {}

  bool Take(char c) {
    SkipSpace();
    if (at_ >= json_.size() || json_[at_] != c) return false;
    ++at_;
    return true;
  }
  // The characters between the quotes, escapes as they stand.
  bool TakeString(std::string_view& inside) {
    if (!Take('"')) return false;
    const std::size_t begin = at_;
    for (; at_ < json_.size(); ++at_) {
      if (json_[at_] == '\\') {
        ++at_;
      } else if (json_[at_] == '"') {
        inside = json_.substr(begin, at_++ - begin);
        return true;
      }
    }
    return false;
  }
  bool SkipValue() {
    SkipSpace();
    std::size_t depth = 0;
    while (at_ < json_.size()) {
      const char c = json_[at_];
      if (c == '"') {
        std::string_view ignored;
        if (!TakeString(ignored)) return false;
        if (depth == 0) return true;
        continue;
      }
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') {
        if (depth == 0) return true;  // the end of the top object
        if (--depth == 0) {
          ++at_;
          return true;
        }
      }
      if (c == ',' && depth == 0) return true;
      ++at_;
    }
    return false;
  }
  void SkipSpace() {
    while (at_ < json_.size() && IsSpace(json_[at_])) ++at_;
  }
  std::size_t at() const { return at_; }
  bool At(char c) const { return at_ < json_.size() && json_[at_] == c; }

 private:
  std::string_view json_;
  std::size_t at_ = 0;
};

// The decimal number that the lowest `digits` bytes of `word` spell (1 to 8, little-endian, each
// already less '0'): pairs, fours, eights.
std::uint32_t Decimal(std::uint64_t word, unsigned digits) {
  word <<= 8 * (8 - digits);  // zeros in front
  word = word * 10 + (word >> 8);
  constexpr std::uint64_t kMask = 0x000000ff000000ff;
  constexpr std::uint64_t kHigh = 0x000f424000000064;  // 100, 1000000
  constexpr std::uint64_t kLow = 0x0000271000000001;   // 1, 10000
  return static_cast<std::uint32_t>(((word & kMask) * kHigh + ((word >> 16) & kMask) * kLow) >> 32);
}

// Digits at the beginning of the eight bytes at `at`; `word` gets their values. 8: perhaps more.
unsigned CountDigits(const char* at, std::uint64_t& word) {
  std::memcpy(&word, at, 8);
  word ^= 0x3030303030303030;
  // The high bit of each byte above 9. A carry can only spoil bytes after the first such one.
  const std::uint64_t others = ((word + 0x7676767676767676) | word) & 0x8080808080808080;
  return others == 0 ? 8 : static_cast<unsigned>(std::countr_zero(others)) / 8;
}

struct Number {
  std::uint32_t value = 0;
  unsigned digits = 0;  // 0: not a token id in plain spelling
};

// Ten digits, or near the end of the text.
Number ReadSlowly(const char* at, const char* end) {
  std::uint64_t value = 0;
  unsigned digits = 0;
  for (; at + digits < end && IsDigit(at[digits]); ++digits) {
    if (digits == 10) return {};
    value = value * 10 + static_cast<unsigned>(at[digits] - '0');
  }
  if (value > std::numeric_limits<std::uint32_t>::max()) return {};
  return {static_cast<std::uint32_t>(value), digits};
}

Number ReadNumber(const char* at, const char* end) {
  Number number;
  std::uint64_t word = 0;
  if (std::endian::native == std::endian::little && end - at > 8) {
    number.digits = CountDigits(at, word);
    if (number.digits == 0) return {};
  }
  if (number.digits == 0 || number.digits == 8) {
    number = ReadSlowly(at, end);
  } else {
    number.value = Decimal(word, number.digits);
  }
  if (number.digits > 1 && *at == '0') return {};
  return number;
}

}  // namespace

std::size_t FindTopArray(std::string_view json, std::string_view key) {
  Walker walker(json);
  if (!walker.Take('{')) return kNotFound;
  for (;;) {
    std::string_view name;
    if (!walker.TakeString(name) || !walker.Take(':')) return kNotFound;
    if (name == key) {
      walker.SkipSpace();
      return walker.At('[') ? walker.at() : kNotFound;
    }
    if (!walker.SkipValue() || !walker.Take(',')) return kNotFound;
  }
}

std::size_t ReadTokenArray(std::string_view json, std::size_t begin,
                           std::vector<std::uint32_t>& tokens, std::string& text) {
  tokens.clear();
  // Room for the text as it stands, and for the last copy, which is of fixed length.
  constexpr std::size_t kCopy = 16;
  if (text.size() < json.size() - begin + kCopy) text.resize(json.size() - begin + kCopy);
  char* write = text.data();
  const char* const base = json.data();
  const char* const end = base + json.size();
  const char* at = base + begin + 1;
  *write++ = '[';
  for (;;) {
    while (at < end && IsSpace(*at)) ++at;
    const Number number = at < end ? ReadNumber(at, end) : Number();
    if (number.digits == 0) return kNotFound;
    tokens.push_back(number.value);
    if (end - at >= static_cast<std::ptrdiff_t>(kCopy)) {
      std::memcpy(write, at, kCopy);
    } else {
      std::memcpy(write, at, number.digits);
    }
    at += number.digits;
    write += number.digits;
    while (at < end && IsSpace(*at)) ++at;
    if (at == end || (*at != ',' && *at != ']')) return kNotFound;
    *write++ = *at;
    if (*at++ == ']') break;
  }
  text.resize(static_cast<std::size_t>(write - text.data()));
  return static_cast<std::size_t>(at - base);
}

}  // namespace xms::gateway::internal
