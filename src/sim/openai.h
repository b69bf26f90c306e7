// The OpenAI HTTP interface of an engine as plain values: request bodies in, answer bodies out.
//
// Place       Engine. Knows no socket. simdjson stays inside openai.cc.
// Threads     Pure functions; any thread.
// Accepted    prompt: text, token ids, or a list of one of either. messages: text content, or parts
//             of type text. Unknown members are ignored; known ones of a wrong type are errors.
// Answers     One choice, which ends because of its length. `prompt_tokens_details.cached_tokens`
//             says what the engine found cached.
// Proof       SimOpenAi*.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace xms::sim {

struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;  // empty: null
  std::string code;   // empty: null
};
std::string ApiErrorJson(const ApiError& error);

enum class ApiKind : std::uint8_t { kCompletion, kChat };

struct ApiRequest {
  ApiKind kind = ApiKind::kCompletion;
  std::string model;  // as sent; empty: not given
  std::vector<std::uint32_t> prompt;
  std::uint32_t max_tokens = 0;
  bool stream = false;
  bool include_usage = false;
};

inline constexpr std::uint32_t kDefaultCompletionTokens = 16;
inline constexpr std::uint32_t kDefaultChatTokens = 64;

std::variant<ApiRequest, ApiError> ParseApiRequest(ApiKind kind, std::string_view body);

// What every part of one answer repeats.
struct AnswerHead {
  ApiKind kind = ApiKind::kCompletion;
  std::string id;
  std::int64_t created = 0;  // seconds since the Unix epoch
  std::string model;
};
struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;
  std::uint32_t cached_tokens = 0;
};

std::string WholeAnswer(const AnswerHead& head, std::string_view text, const Usage& usage);

// Server-sent events, each ending in an empty line. With `usage_follows` every event but the last
// has `"usage":null`.
std::string RoleEvent(const AnswerHead& head, bool usage_follows);
std::string TextEvent(const AnswerHead& head, std::string_view text, bool usage_follows);
std::string EndEvent(const AnswerHead& head, bool usage_follows);
std::string UsageEvent(const AnswerHead& head, const Usage& usage);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

std::string ModelsJson(std::string_view model, std::int64_t created);

}  // namespace xms::sim
