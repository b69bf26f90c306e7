#include "gateway/completion_request.h"

#include <array>
#include <bitset>
#include <cstddef>
#include <vector>

#include "base/str_cat.h"
#include "gateway/internal/json_reader.h"
#include "gateway/internal/token_text.h"
#include "gateway/json_text.h"

namespace xms::gateway {
namespace {

using base::StrCat;
using internal::JsonError;
using internal::JsonType;
using internal::JsonValue;

using Problem = std::optional<GatewayError>;

constexpr std::string_view kTokenRange = "token ids are integers from 0 to 4294967295";
// Kept per thread between requests: so many tokens, so many bytes of text.
constexpr std::size_t kKeptTokens = 256 * 1024;
constexpr std::size_t kKeptText = 1024 * 1024;

// The fields that are read, and so may occur once.
enum Field : std::uint8_t {
  kModel,
  kStream,
  kStreamOptions,
  kPrompt,
  kPromptEmbeds,
  kMessages,
  kFields,
  kOther
};
constexpr std::array<std::string_view, kFields> kFieldNames = {
    "model", "stream", "stream_options", "prompt", "prompt_embeds", "messages"};

Field FieldOf(CompletionApi api, std::string_view key) {
  for (std::size_t i = 0; i < kFieldNames.size(); ++i) {
    if (key != kFieldNames[i]) continue;
    const auto field = static_cast<Field>(i);
    const bool of_chat = field == kMessages;
    const bool of_completions = field == kPrompt || field == kPromptEmbeds;
    if (api == CompletionApi::kCompletions ? of_chat : of_completions) return kOther;
    return field;
  }
  return kOther;
}

GatewayError InvalidJson(JsonError error) {
  return {ErrorKind::kInvalidJson,
          StrCat("the request body is not valid JSON: ", internal::WhyNotJson(error)), ""};
}

GatewayError WrongType(std::string_view field, JsonType type, std::string_view allowed) {
  return {ErrorKind::kInvalidValue,
          StrCat("`", field, "` is ", internal::TypeName(type), "; allowed: ", allowed),
          std::string(field)};
}

Problem BadToken(std::string_view where, std::size_t index, std::string_view why) {
  return GatewayError{ErrorKind::kInvalidValue,
                      StrCat("`", where, "[", index, "]` ", why, "; ", kTokenRange), "prompt"};
}

}  // namespace

struct CompletionParser::Impl {
  internal::JsonReader reader;
  std::vector<std::uint32_t> tokens;
  // The prompt's array was read ahead: `tokens` has its ids, `array_text` its text, and the
  // document an empty array in its place.
  bool read_ahead = false;
  std::string array_text;
  std::string shortened;
  std::bitset<kFields> given;  // fields that are there and not null

  // The document to parse: `body`, or a short one without the prompt's long array.
  std::string_view ReadAhead(CompletionApi api, std::string_view body);
  void Trim();

  Problem Read(CompletionApi api, internal::JsonObject object, CompletionRequest& out);
  Problem CheckComplete(CompletionApi api) const;
  Problem ReadField(Field field, JsonValue value, JsonType type, CompletionRequest& out);
  Problem ReadMessages(JsonValue value, CompletionRequest& out);
  Problem ReadPromptList(internal::JsonArray list, CompletionRequest& out);
  Problem ReadPromptItem(JsonValue item, JsonType kind, std::size_t index, CompletionRequest& out);
};

CompletionParser::CompletionParser() : impl_(std::make_unique<Impl>()) {}
CompletionParser::~CompletionParser() = default;

Problem CompletionParser::Parse(CompletionApi api, std::string_view body, CompletionRequest& out) {
  out.body.clear();
  out.tokenized = false;
  out.tokens = {};
  impl_->Trim();  // of the request before: nothing of it is in use any more

  internal::JsonDocument document;
  if (const JsonError error = impl_->reader.Open(impl_->ReadAhead(api, body), document)) {
    return InvalidJson(error);
  }
  JsonType type{};
  if (const JsonError error = document.type().get(type)) return InvalidJson(error);
  if (type != JsonType::object) {
    return GatewayError{
        ErrorKind::kInvalidJson,
        StrCat("the request body is ", internal::TypeName(type), "; allowed: a JSON object"), ""};
  }
  internal::JsonObject object;
  if (const JsonError error = document.get_object().get(object)) return InvalidJson(error);
  out.body.reserve(body.size() + 16);
  if (Problem problem = impl_->Read(api, object, out)) return problem;
  if (const JsonError error = internal::AtEnd(document)) return InvalidJson(error);
  return impl_->CheckComplete(api);
}

void CompletionParser::Impl::Trim() {
  if (tokens.capacity() > kKeptTokens) std::vector<std::uint32_t>().swap(tokens);
  if (array_text.capacity() > kKeptText) std::string().swap(array_text);
  if (shortened.capacity() > kKeptText) std::string().swap(shortened);
  reader.Trim();
}

std::string_view CompletionParser::Impl::ReadAhead(CompletionApi api, std::string_view body) {
  read_ahead = false;
  if (api != CompletionApi::kCompletions) return body;
  const std::size_t begin = internal::FindTopArray(body, kFieldNames[kPrompt]);
  if (begin == internal::kNotFound) return body;
  const std::size_t end = internal::ReadTokenArray(body, begin, tokens, array_text);
  if (end == internal::kNotFound) return body;
  read_ahead = true;
  shortened.assign(body.substr(0, begin)).append("[]").append(body.substr(end));
  return shortened;
}

Problem CompletionParser::Impl::Read(CompletionApi api, internal::JsonObject object,
                                     CompletionRequest& out) {
  std::bitset<kFields> seen;
  given.reset();
  out.body.push_back('{');
  for (auto entry : object) {
    std::string_view key;
    JsonValue value;
    if (const JsonError error = internal::ReadMember(entry, key, value)) return InvalidJson(error);
    if (out.body.size() > 1) out.body.push_back(',');
    AppendQuotedUtf8(out.body, key);
    out.body.push_back(':');
    const Field field = FieldOf(api, key);
    if (field == kOther) {
      if (const JsonError error = internal::CopyValue(value, 1, &out.body)) {
        return InvalidJson(error);
      }
      continue;
    }
    if (seen.test(field)) {
      return GatewayError{
          ErrorKind::kDuplicateField,
          StrCat("`", kFieldNames[field], "` is given more than once; give it once"),
          std::string(kFieldNames[field])};
    }
    seen.set(field);
    JsonType type{};
    if (const JsonError error = value.type().get(type)) return InvalidJson(error);
    if (type == JsonType::null) {
      if (const JsonError error = internal::CopyValue(value, 1, &out.body)) {
        return InvalidJson(error);
      }
      continue;
    }
    given.set(field);
    if (Problem problem = ReadField(field, value, type, out)) return problem;
  }
  out.body.push_back('}');
  return std::nullopt;
}

Problem CompletionParser::Impl::CheckComplete(CompletionApi api) const {
  if (api == CompletionApi::kChatCompletions && !given.test(kMessages)) {
    return GatewayError{ErrorKind::kMissingField,
                        "`messages` is missing; give an array of at least one message", "messages"};
  }
  if (api == CompletionApi::kCompletions && !given.test(kPrompt) && !given.test(kPromptEmbeds)) {
    return GatewayError{
        ErrorKind::kMissingField,
        "`prompt` is missing; give a string, an array of token ids, or an array of these",
        "prompt"};
  }
  return std::nullopt;
}

Problem CompletionParser::Impl::ReadField(Field field, JsonValue value, JsonType type,
                                          CompletionRequest& out) {
  switch (field) {
    case kModel:
      if (type != JsonType::string) return WrongType("model", type, "a string");
      break;
    case kStream:
      if (type != JsonType::boolean) return WrongType("stream", type, "true, false or null");
      break;
    case kStreamOptions:
      if (type != JsonType::object) return WrongType("stream_options", type, "an object or null");
      break;
    case kMessages:
      if (type != JsonType::array) {
        return WrongType("messages", type, "an array of at least one message");
      }
      return ReadMessages(value, out);
    case kPrompt:
      if (type == JsonType::string) break;
      if (type != JsonType::array) {
        return WrongType("prompt", type, "a string, an array of token ids, or an array of these");
      }
      {
        internal::JsonArray list;
        if (const JsonError error = value.get_array().get(list)) return InvalidJson(error);
        return ReadPromptList(list, out);
      }
    case kPromptEmbeds:
    case kFields:
    case kOther:
      break;
  }
  if (const JsonError error = internal::CopyValue(value, 1, &out.body)) return InvalidJson(error);
  return std::nullopt;
}

Problem CompletionParser::Impl::ReadMessages(JsonValue value, CompletionRequest& out) {
  const std::size_t begin = out.body.size();
  if (const JsonError error = internal::CopyValue(value, 1, &out.body)) return InvalidJson(error);
  if (std::string_view(out.body).substr(begin) == "[]") {
    return GatewayError{ErrorKind::kInvalidValue, "`messages` is empty; give at least one message",
                        "messages"};
  }
  return std::nullopt;
}

// [1, 2, 3], ["a", "b"] or [[1, 2], [3]]: the first element says which.
Problem CompletionParser::Impl::ReadPromptList(internal::JsonArray list, CompletionRequest& out) {
  if (!read_ahead) tokens.clear();
  JsonType kind = JsonType::number;  // [] holds no token ids
  std::size_t count = 0;
  out.body.push_back('[');
  for (auto element : list) {
    JsonValue item;
    if (const JsonError error = element.get(item)) return InvalidJson(error);
    JsonType type{};
    if (const JsonError error = item.type().get(type)) return InvalidJson(error);
    if (count == 0 && (type == JsonType::string || type == JsonType::array)) kind = type;
    if (count > 0) out.body.push_back(',');
    if (Problem problem = ReadPromptItem(item, kind, count, out)) return problem;
    ++count;
  }
  if (read_ahead && count == 0) {
    // A second `prompt` could only come later, and be refused for it.
    out.body.pop_back();
    out.body += array_text;
  } else {
    out.body.push_back(']');
  }
  // Several prompts are several prefixes; only a single one can be credited.
  out.tokenized = kind == JsonType::number || (kind == JsonType::array && count == 1);
  if (out.tokenized) out.tokens = tokens;
  return std::nullopt;
}

Problem CompletionParser::Impl::ReadPromptItem(JsonValue item, JsonType kind, std::size_t index,
                                               CompletionRequest& out) {
  JsonType type{};
  if (const JsonError error = item.type().get(type)) return InvalidJson(error);
  std::string_view why;
  if (kind == JsonType::number) {
    std::uint32_t token = 0;
    std::string_view text;
    if (const JsonError error = internal::ReadTokenId(item, token, text, why)) {
      return InvalidJson(error);
    }
    if (!why.empty()) return BadToken("prompt", index, why);
    tokens.push_back(token);
    out.body.append(text);
    return std::nullopt;
  }
  if (type != kind) {
    return GatewayError{
        ErrorKind::kInvalidValue,
        StrCat("`prompt[", index, "]` is ", internal::TypeName(type),
               kind == JsonType::string ? " among strings; all must be strings"
                                        : " among arrays; all must be arrays of token ids"),
        "prompt"};
  }
  if (kind == JsonType::string) {
    if (const JsonError error = internal::CopyValue(item, 2, &out.body)) return InvalidJson(error);
    return std::nullopt;
  }
  internal::JsonArray list;
  std::size_t bad_index = 0;
  if (const JsonError error = item.get_array().get(list)) return InvalidJson(error);
  if (const JsonError error = internal::ReadTokenIds(list, tokens, &out.body, bad_index, why)) {
    return InvalidJson(error);
  }
  if (!why.empty()) return BadToken(StrCat("prompt[", index, "]"), bad_index, why);
  return std::nullopt;
}

}  // namespace xms::gateway
