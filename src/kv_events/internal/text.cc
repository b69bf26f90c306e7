#include "kv_events/internal/text.h"

#include <cstddef>
#include <cstdint>

namespace xms::kv_events::internal {

bool IsUtf8(std::string_view text) {
  std::size_t at = 0;
  const auto byte = [&](std::size_t index) { return static_cast<std::uint8_t>(text[index]); };
  while (at < text.size()) {
    const std::uint8_t lead = byte(at);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    // The second byte's range is what excludes overlong forms, surrogates and the far end.
    std::size_t length = 0;
    std::uint8_t low = 0x80;
    std::uint8_t high = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf) {
      length = 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
      length = 3;
      if (lead == 0xe0) low = 0xa0;
      if (lead == 0xed) high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
      length = 4;
      if (lead == 0xf0) low = 0x90;
      if (lead == 0xf4) high = 0x8f;
    } else {
      return false;
    }
    if (text.size() - at < length) return false;
    if (byte(at + 1) < low || byte(at + 1) > high) return false;
    for (std::size_t i = 2; i < length; ++i) {
      if ((byte(at + i) & 0xc0) != 0x80) return false;
    }
    at += length;
  }
  return true;
}

bool EqualsIgnoringCase(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    const bool upper = letter >= 'A' && letter <= 'Z';
    if ((upper ? static_cast<char>(letter - 'A' + 'a') : letter) != lower[i]) return false;
  }
  return true;
}

}  // namespace xms::kv_events::internal
