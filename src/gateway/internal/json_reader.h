// simdjson for gateway's parsers: one pass over a document, its errors in words, values written
// anew.
//
// Place       Only the .cc files of gateway that parse; simdjson's header is large.
// Threads     A JsonReader is confined to its thread.
// Rules       Values are read once, in the order of the document. A document is known to be valid
//             only when each of its values has been read (CopyValue does that for those that mean
//             nothing here) and AtEnd has agreed.
//             Numbers are text: whatever their size, they are passed on as they are spelled.
// Bounds      Nesting up to kMaxDepth. What a large document made it allocate is given back by
//             Trim().
// Failure     simdjson's error codes; WhyNotJson has the words.
// Proof       GatewayJsonReader*, against another parser; fuzz/gateway.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xms::gateway::internal {

using JsonArray = simdjson::ondemand::array;
using JsonDocument = simdjson::ondemand::document;
using JsonObject = simdjson::ondemand::object;
using JsonValue = simdjson::ondemand::value;
using JsonType = simdjson::ondemand::json_type;
using JsonError = simdjson::error_code;

inline constexpr std::size_t kMaxDepth = 128;

bool IsUtf8(std::string_view text);

class JsonReader {
 public:
  // The document points into the reader, up to the next Open or Trim.
  JsonError Open(std::string_view json, JsonDocument& document);
  // Call when the document is no longer needed: keeps buffers for usual sizes only.
  void Trim();

 private:
  simdjson::ondemand::parser parser_;
  std::string padded_;
};

// What is wrong with a document, in words that quote nothing of it.
std::string WhyNotJson(JsonError error);
// "a string", "a number", …
std::string_view TypeName(JsonType type);

// Nothing may follow what was read.
JsonError AtEnd(JsonDocument& document);

// Reads the value; with `out`, writes it there as compact JSON: the same keys in the same order,
// repeated ones too, and numbers as they were spelled. `depth`: containers around it.
JsonError CopyValue(JsonValue value, std::size_t depth, std::string* out);

// One turn of a loop over an object: the key without escapes, and its value, not yet read.
JsonError ReadMember(simdjson::simdjson_result<simdjson::ondemand::field> entry,
                     std::string_view& key, JsonValue& value);

// The number's text; an error if it is not a number as JSON spells them.
JsonError ReadNumber(JsonValue value, std::string_view& text);
// An error for anything but null.
JsonError ReadNull(JsonValue value);

// One token id and its text. `why` is "" when it is one, else "is negative", …
JsonError ReadTokenId(JsonValue value, std::uint32_t& token, std::string_view& text,
                      std::string_view& why);
// An array of token ids, with `out` also as text. Ends at the first element that is none:
// `bad_index` and `why` say which; `why` is "" when all are.
JsonError ReadTokenIds(JsonArray array, std::vector<std::uint32_t>& tokens, std::string* out,
                       std::size_t& bad_index, std::string_view& why);

}  // namespace xms::gateway::internal
