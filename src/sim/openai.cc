#include "sim/openai.h"

#include <simdjson.h>

#include <limits>
#include <utility>

#include "base/str_cat.h"
#include "sim/tokens.h"

namespace xms::sim {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

void AppendJsonString(std::string& out, std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  out.push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out.append("\\u00");
      out.push_back(kHex[static_cast<unsigned char>(c) >> 4]);
      out.push_back(kHex[static_cast<unsigned char>(c) & 15]);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

std::string Quoted(std::string_view text) {
  std::string out;
  AppendJsonString(out, text);
  return out;
}

ApiError Wrong(std::string param, std::string message) {
  return {.message = std::move(message), .param = std::move(param)};
}

// Absent and null are alike.
std::optional<element> Member(const object& from, std::string_view name) {
  element value;
  if (from.at_key(name).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

std::optional<ApiError> ReadBool(const object& from, std::string_view name, bool& out) {
  const auto value = Member(from, name);
  if (value && value->get(out) != simdjson::SUCCESS) {
    return Wrong(std::string(name), base::StrCat(name, " must be true or false"));
  }
  return std::nullopt;
}

std::optional<ApiError> ReadCount(const object& from, std::string_view name, std::uint32_t& out) {
  const auto value = Member(from, name);
  if (!value) return std::nullopt;
  std::uint64_t count = 0;
  if (value->get(count) != simdjson::SUCCESS || count == 0 ||
      count > std::numeric_limits<std::int32_t>::max()) {
    return Wrong(std::string(name), base::StrCat(name, " must be a positive integer"));
  }
  out = static_cast<std::uint32_t>(count);
  return std::nullopt;
}

std::optional<ApiError> ReadTokens(const simdjson::dom::array& ids,
                                   std::vector<std::uint32_t>& tokens) {
  tokens.reserve(ids.size());
  for (const element id : ids) {
    std::uint64_t token = 0;
    if (id.get(token) != simdjson::SUCCESS || token > std::numeric_limits<std::uint32_t>::max()) {
      return Wrong("prompt",
                   base::StrCat("prompt: token ids are integers from 0 to 4294967295, but entry ",
                                tokens.size(), " is not"));
    }
    tokens.push_back(static_cast<std::uint32_t>(token));
  }
  return std::nullopt;
}

std::optional<ApiError> ReadPrompt(const object& body, std::vector<std::uint32_t>& tokens) {
  const auto given = Member(body, "prompt");
  if (!given) return Wrong("prompt", "prompt is missing");
  element prompt = *given;
  simdjson::dom::array list;
  if (prompt.get(list) == simdjson::SUCCESS && list.size() > 0 &&
      (list.at(0).is_string() || list.at(0).is_array())) {
    if (list.size() != 1) return Wrong("prompt", "prompt: only one prompt a request is supported");
    prompt = list.at(0).value_unsafe();
  }
  std::string_view text;
  if (prompt.get(text) == simdjson::SUCCESS) {
    TokenizeText(text, tokens);
  } else if (prompt.get(list) == simdjson::SUCCESS) {
    if (auto error = ReadTokens(list, tokens)) return error;
  } else {
    return Wrong("prompt", "prompt must be text or a list of token ids");
  }
  if (tokens.empty()) return Wrong("prompt", "prompt is empty");
  return std::nullopt;
}

std::optional<ApiError> ReadContent(const object& message, std::string& content) {
  const auto value = Member(message, "content");
  if (!value) return std::nullopt;
  std::string_view text;
  if (value->get(text) == simdjson::SUCCESS) {
    content = text;
    return std::nullopt;
  }
  simdjson::dom::array parts;
  if (value->get(parts) != simdjson::SUCCESS) {
    return Wrong("messages", "messages: content must be text or a list of parts");
  }
  for (const element part : parts) {
    std::string_view type;
    if (part["type"].get(type) != simdjson::SUCCESS || type != "text" ||
        part["text"].get(text) != simdjson::SUCCESS) {
      return Wrong("messages", "messages: only parts of type text are supported");
    }
    if (!content.empty()) content.push_back('\n');
    content.append(text);
  }
  return std::nullopt;
}

std::optional<ApiError> ReadMessages(const object& body, std::vector<std::uint32_t>& tokens) {
  simdjson::dom::array messages;
  if (body.at_key("messages").get(messages) != simdjson::SUCCESS || messages.size() == 0) {
    return Wrong("messages", "messages must be a list with at least one message");
  }
  for (const element item : messages) {
    object message;
    std::string_view role;
    if (item.get(message) != simdjson::SUCCESS ||
        message.at_key("role").get(role) != simdjson::SUCCESS) {
      return Wrong("messages", "messages: each must be an object with a role");
    }
    std::string content;
    if (auto error = ReadContent(message, content)) return error;
    TokenizeMessage(role, content, tokens);
  }
  TokenizeAssistantTurn(tokens);
  return std::nullopt;
}

std::optional<ApiError> ReadRequest(const object& body, ApiRequest& request) {
  if (const auto model = Member(body, "model")) {
    std::string_view name;
    if (model->get(name) != simdjson::SUCCESS) return Wrong("model", "model must be text");
    request.model = name;
  }
  const bool chat = request.kind == ApiKind::kChat;
  if (auto error = chat ? ReadMessages(body, request.prompt) : ReadPrompt(body, request.prompt)) {
    return error;
  }
  request.max_tokens = chat ? kDefaultChatTokens : kDefaultCompletionTokens;
  if (auto error = ReadCount(body, "max_tokens", request.max_tokens)) return error;
  if (auto error = ReadCount(body, "max_completion_tokens", request.max_tokens)) return error;
  std::uint32_t choices = 1;
  if (auto error = ReadCount(body, "n", choices)) return error;
  if (choices != 1) return Wrong("n", "n: only one choice is supported");
  if (auto error = ReadBool(body, "stream", request.stream)) return error;
  if (const auto given = Member(body, "stream_options")) {
    object stream_options;
    if (given->get(stream_options) != simdjson::SUCCESS) {
      return Wrong("stream_options", "stream_options must be an object");
    }
    return ReadBool(stream_options, "include_usage", request.include_usage);
  }
  return std::nullopt;
}

std::string UsageJson(const Usage& usage) {
  return base::StrCat(R"({"prompt_tokens":)", usage.prompt_tokens, R"(,"completion_tokens":)",
                      usage.completion_tokens, R"(,"total_tokens":)",
                      usage.prompt_tokens + usage.completion_tokens,
                      R"(,"prompt_tokens_details":{"cached_tokens":)", usage.cached_tokens, "}}");
}

std::string HeadJson(const AnswerHead& head, std::string_view object_name) {
  return base::StrCat(R"({"id":)", Quoted(head.id), R"(,"object":")", object_name,
                      R"(","created":)", head.created, R"(,"model":)", Quoted(head.model));
}

std::string Event(const AnswerHead& head, std::string_view choices, std::string_view usage) {
  std::string event = "data: ";
  event.append(
      HeadJson(head, head.kind == ApiKind::kChat ? "chat.completion.chunk" : "text_completion"));
  base::StrAppend(event, R"(,"choices":[)", choices, "]");
  if (!usage.empty()) base::StrAppend(event, R"(,"usage":)", usage);
  event.append("}\n\n");
  return event;
}

std::string_view NoUsageYet(bool usage_follows) { return usage_follows ? "null" : ""; }

}  // namespace

std::string ApiErrorJson(const ApiError& error) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? std::string("null") : Quoted(text);
  };
  return base::StrCat(R"({"error":{"message":)", Quoted(error.message), R"(,"type":)",
                      Quoted(error.type), R"(,"param":)", or_null(error.param), R"(,"code":)",
                      or_null(error.code), "}}");
}

std::variant<ApiRequest, ApiError> ParseApiRequest(ApiKind kind, std::string_view body) {
  simdjson::dom::parser parser;
  element root;
  if (const auto error = parser.parse(body.data(), body.size()).get(root);
      error != simdjson::SUCCESS) {
    return Wrong("", base::StrCat("the body is not JSON: ", simdjson::error_message(error)));
  }
  object fields;
  if (root.get(fields) != simdjson::SUCCESS) return Wrong("", "the body must be a JSON object");
  ApiRequest request;
  request.kind = kind;
  if (auto error = ReadRequest(fields, request)) return *std::move(error);
  return request;
}

std::string WholeAnswer(const AnswerHead& head, std::string_view text, const Usage& usage) {
  const bool chat = head.kind == ApiKind::kChat;
  const std::string content =
      chat ? base::StrCat(R"("message":{"role":"assistant","content":)", Quoted(text), "}")
           : base::StrCat(R"("text":)", Quoted(text));
  return base::StrCat(
      HeadJson(head, chat ? "chat.completion" : "text_completion"), R"(,"choices":[{"index":0,)",
      content, R"(,"logprobs":null,"finish_reason":"length"}],"usage":)", UsageJson(usage), "}");
}

std::string RoleEvent(const AnswerHead& head, bool usage_follows) {
  return Event(head,
               R"({"index":0,"delta":{"role":"assistant","content":""},)"
               R"("logprobs":null,"finish_reason":null})",
               NoUsageYet(usage_follows));
}

std::string TextEvent(const AnswerHead& head, std::string_view text, bool usage_follows) {
  const std::string content = head.kind == ApiKind::kChat
                                  ? base::StrCat(R"("delta":{"content":)", Quoted(text), "}")
                                  : base::StrCat(R"("text":)", Quoted(text));
  return Event(head,
               base::StrCat(R"({"index":0,)", content, R"(,"logprobs":null,"finish_reason":null})"),
               NoUsageYet(usage_follows));
}

std::string EndEvent(const AnswerHead& head, bool usage_follows) {
  const std::string_view content = head.kind == ApiKind::kChat ? R"("delta":{})" : R"("text":"")";
  return Event(
      head,
      base::StrCat(R"({"index":0,)", content, R"(,"logprobs":null,"finish_reason":"length"})"),
      NoUsageYet(usage_follows));
}

std::string UsageEvent(const AnswerHead& head, const Usage& usage) {
  return Event(head, "", UsageJson(usage));
}

std::string ModelsJson(std::string_view model, std::int64_t created) {
  return base::StrCat(R"({"object":"list","data":[{"id":)", Quoted(model), R"(,"created":)",
                      created, R"(,"object":"model","owned_by":"xllm"}]})");
}

}  // namespace xms::sim
