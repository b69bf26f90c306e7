// MessagePack by hand, for what the encoder cannot say. Short strings and small numbers only.
//
// Threads     Free functions; any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/ids.h"
#include "tests/support/kv_truth.h"

namespace xms::testing::raw {

inline std::string Str(const std::string& text) {
  return static_cast<char>(0xa0 | text.size()) + text;
}
inline std::string Map(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string bytes(1, static_cast<char>(0x80 | fields.size()));
  for (const auto& [key, value] : fields) bytes += Str(key) + value;
  return bytes;
}
// A payload of rank 0.
inline std::string Batch(const std::vector<std::string>& events) {
  std::string bytes = std::string("\x93\xcb") + std::string(8, '\0');
  bytes += static_cast<char>(0x90 | events.size());
  for (const std::string& event : events) bytes += event;
  return bytes + '\0';
}
inline std::string OneHash(model::WireHash hash) { return "\x91\xcf" + BigEndian64(hash.value); }
// The tokens of one block of four.
inline std::string BlockTokens(const Tokens& prompt, std::size_t block) {
  std::string bytes = "\x94";
  for (std::size_t i = 4 * block; i < 4 * block + 4; ++i) {
    bytes += '\xce' + BigEndian64(prompt[i]).substr(4);
  }
  return bytes;
}

}  // namespace xms::testing::raw
