// A long array of token ids, read faster than a general JSON parser can.
//
// Place       CompletionParser. A prompt of 12,000 ids is nearly all of its request; through the
//             document it would cost more than everything else on the request's way.
// Rules       Only the plain case is read here: the key at the top of the document, decimal
//             integers within range, commas, white space. Whatever else there is (or is not) is
//             left to the parser, which also knows how to explain it. What is found is text of the
//             same numbers, so the reader cannot be told something else than the engine.
// Threads     Pure functions.
// Proof       GatewayTokenText*, against the parser's own way; fuzz/gateway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xms::gateway::internal {

inline constexpr std::size_t kNotFound = std::string_view::npos;

// Where the value of `key` begins in the top object of `json`, if that value is an array and stands
// within the first few kilobytes. kNotFound otherwise, also for anything that is not JSON so far.
// Where a document is valid up to there, the answer is right.
std::size_t FindTopArray(std::string_view json, std::string_view key);

// Reads the array of token ids that begins at `begin`: ids into `tokens`, the array written anew
// without white space into `text`. Returns where it ends (past the bracket), kNotFound when it is
// not plainly that.
std::size_t ReadTokenArray(std::string_view json, std::size_t begin,
                           std::vector<std::uint32_t>& tokens, std::string& text);

}  // namespace xms::gateway::internal
