// CompletionParser: a client's request body, checked and written anew for the engine.
//
// Place       The two completion routes.
// Threads     Confined to its thread; one per event loop, reused, so that the usual request
//             allocates its body and nothing else.
// Rules       What is relayed is written from the parsed document, never copied: one meaning for us
//             and for the engine. Unknown fields stay, in their order, repeated ones too. Only what
//             is read here is judged; a repeated field among those is refused, because two readers
//             might pick different ones. Numbers are passed on as they are spelled, whatever
//             their size.
// Failure     A GatewayError that names the field, what is wrong and what is allowed, without
//             quoting it.
// Proof       GatewayCompletionRequest*, fuzz/gateway.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gateway/error_map.h"

namespace xms::gateway {

enum class CompletionApi : std::uint8_t { kCompletions, kChatCompletions };

struct CompletionRequest {
  std::string body;        // JSON for the engine
  bool tokenized = false;  // the prompt is one array of token ids
  // Valid until the parser's next call.
  std::span<const std::uint32_t> tokens;
};

class CompletionParser {
 public:
  CompletionParser();
  ~CompletionParser();
  CompletionParser(const CompletionParser&) = delete;
  CompletionParser& operator=(const CompletionParser&) = delete;

  // nullopt: `out` is filled.
  std::optional<GatewayError> Parse(CompletionApi api, std::string_view body,
                                    CompletionRequest& out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace xms::gateway
