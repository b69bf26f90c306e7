// simdjson for gateway's parsers: one parser per thread, its limits, its errors in words, and the
// way back to text.
//
// Place       Only the .cc files of gateway that parse; the header is large.
// Threads     A Dom is confined to its thread.
// Bounds      Nesting up to kMaxDepth. What a large document made it allocate is given back by
//             Trim().
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace xms::gateway::internal {

inline constexpr std::size_t kMaxDepth = 128;

bool IsUtf8(std::string_view text);

class Dom {
 public:
  // False: `why` says what is wrong with the document, in words that quote nothing of it.
  bool Parse(std::string_view json, simdjson::dom::element& root, std::string& why);
  // Call when the document is no longer needed: keeps buffers for usual sizes only.
  void Trim();

 private:
  simdjson::dom::parser parser_;
  std::size_t allocated_ = 0;
};

// "a string", "a number", …
std::string_view TypeName(simdjson::dom::element element);

// The element as compact JSON: same keys in the same order, repeated ones too; integers stay
// integers, fractions stay fractions.
void AppendElement(std::string& out, simdjson::dom::element element);

// An array of token ids as text and as numbers, in one pass. False at the first element that is
// none: `bad_index` and `why` ("is negative", …) say which; `out` is then unfinished.
bool AppendTokenIds(std::string& out, simdjson::dom::array array,
                    std::vector<std::uint32_t>& tokens, std::size_t& bad_index,
                    std::string_view& why);

// The same without text.
bool ReadTokenIds(simdjson::dom::array array, std::vector<std::uint32_t>& tokens,
                  std::size_t& bad_index, std::string_view& why);

}  // namespace xms::gateway::internal
