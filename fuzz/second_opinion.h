// A second opinion on a JSON document: what simdjson says of text that is read with nlohmann/json.
//
// Threads     One: the fuzz target's.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace xms::fuzz {

enum class Opinion : std::uint8_t {
  kJson,
  kNotJson,
  kNone,  // the two differ by design: numbers beyond 64 bits, deep nesting, a byte order mark
};

class SecondOpinion {
 public:
  // `root` stays good until the next call.
  Opinion Of(std::string_view text) {
    if (text.substr(0, 3) == "\xef\xbb\xbf") return Opinion::kNone;
    text_ = simdjson::padded_string(text);
    const simdjson::error_code code = parser_.parse(text_).get(root_);
    switch (code) {
      case simdjson::SUCCESS:
        return Opinion::kJson;
      case simdjson::NUMBER_ERROR:
      case simdjson::DEPTH_ERROR:
      case simdjson::CAPACITY:
        return Opinion::kNone;
      default:
        return Opinion::kNotJson;
    }
  }
  simdjson::dom::element root() const { return root_; }
  // The root's member of that name, if it is an unsigned integer.
  std::optional<std::uint64_t> Unsigned(simdjson::dom::element object, std::string_view key) const {
    std::uint64_t value = 0;
    if (object[key].get(value) != simdjson::SUCCESS) return std::nullopt;
    return value;
  }

 private:
  simdjson::dom::parser parser_;
  simdjson::padded_string text_;
  simdjson::dom::element root_;
};

}  // namespace xms::fuzz
