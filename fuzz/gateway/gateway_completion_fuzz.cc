// A client's body: what is accepted means the same to another parser before and after, and the
// prompt's ids are the same whether read ahead or out of the document.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/completion_request.h"

namespace {

using nlohmann::json;
using xms::gateway::CompletionApi;
using xms::gateway::CompletionParser;
using xms::gateway::CompletionRequest;

void Require(bool condition) {
  if (!condition) std::abort();
}

// An id list as the parser must have seen it.
json PromptOf(const json& document) {
  json prompt = document["prompt"];
  if (prompt.size() == 1 && prompt[0].is_array()) prompt = prompt[0];
  return prompt;
}

void Check(CompletionApi api, std::string_view body) {
  static CompletionParser parser;
  CompletionRequest request;
  if (parser.Parse(api, body, request).has_value()) return;
  json before;
  try {
    before = json::parse(body);  // throws, and so crashes, when only ours accepts it
  } catch (const json::out_of_range&) {
    return;  // a number beyond a double, which is passed on here and refused there
  }
  Require(json::parse(request.body) == before);
  if (request.tokenized) {
    Require(PromptOf(before).get<std::vector<std::uint32_t>>() ==
            std::vector<std::uint32_t>(request.tokens.begin(), request.tokens.end()));
  }
  // Written once more nothing changes; and behind a long field the prompt is not read ahead.
  const std::string written = request.body;
  const std::vector<std::uint32_t> tokens(request.tokens.begin(), request.tokens.end());
  Require(!parser.Parse(api, written, request).has_value() && request.body == written);
  static const std::string far = R"("\u0066ar":")" + std::string(9000, 'x') + "\"";
  const std::string behind = "{" + far + "," + written.substr(1);
  Require(!parser.Parse(api, behind, request).has_value());
  Require(tokens == std::vector<std::uint32_t>(request.tokens.begin(), request.tokens.end()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  Check(CompletionApi::kCompletions, body);
  Check(CompletionApi::kChatCompletions, body);
  return 0;
}
