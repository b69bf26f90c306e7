#include "gateway/completion_request.h"

#include <array>
#include <bitset>
#include <cstddef>
#include <vector>

#include "base/str_cat.h"
#include "gateway/internal/json_dom.h"
#include "gateway/internal/token_text.h"
#include "gateway/json_text.h"

namespace xms::gateway {
namespace {

using base::StrCat;
using simdjson::dom::element;
using simdjson::dom::element_type;

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

GatewayError WrongType(std::string_view field, element value, std::string_view allowed) {
  return {ErrorKind::kInvalidValue,
          StrCat("`", field, "` is ", internal::TypeName(value), "; allowed: ", allowed),
          std::string(field)};
}

Problem BadToken(std::string_view where, std::size_t index, std::string_view why) {
  return GatewayError{ErrorKind::kInvalidValue,
                      StrCat("`", where, "[", index, "]` ", why, "; ", kTokenRange), "prompt"};
}

}  // namespace

struct CompletionParser::Impl {
  internal::Dom dom;
  std::vector<std::uint32_t> tokens;
  // The prompt's array was read ahead: `tokens` has its ids, `array_text` its text, and the document
  // an empty array in its place.
  bool read_ahead = false;
  std::string array_text;
  std::string shortened;

  // The document to parse: `body`, or a short one without the prompt's long array.
  std::string_view ReadAhead(CompletionApi api, std::string_view body);
  void Trim();

  Problem Read(CompletionApi api, simdjson::dom::object object, CompletionRequest& out);
  Problem ReadField(Field field, element value, CompletionRequest& out);
  Problem ReadPrompt(element value, CompletionRequest& out);
  Problem ReadPromptList(element value, CompletionRequest& out);
  Problem ReadTokenLists(simdjson::dom::array lists, CompletionRequest& out);
};

CompletionParser::CompletionParser() : impl_(std::make_unique<Impl>()) {}
CompletionParser::~CompletionParser() = default;

Problem CompletionParser::Parse(CompletionApi api, std::string_view body, CompletionRequest& out) {
  out.body.clear();
  out.tokenized = false;
  out.tokens = {};
  impl_->Trim();  // of the request before: nothing of it is in use any more

  element root;
  std::string why;
  if (!impl_->dom.Parse(impl_->ReadAhead(api, body), root, why)) {
    return GatewayError{ErrorKind::kInvalidJson,
                        StrCat("the request body is not valid JSON: ", why), ""};
  }
  if (root.type() != element_type::OBJECT) {
    return GatewayError{
        ErrorKind::kInvalidJson,
        StrCat("the request body is ", internal::TypeName(root), "; allowed: a JSON object"), ""};
  }
  out.body.reserve(body.size() + 16);
  return impl_->Read(api, root.get_object().value_unsafe(), out);
}

void CompletionParser::Impl::Trim() {
  if (tokens.capacity() > kKeptTokens) std::vector<std::uint32_t>().swap(tokens);
  if (array_text.capacity() > kKeptText) std::string().swap(array_text);
  if (shortened.capacity() > kKeptText) std::string().swap(shortened);
  dom.Trim();
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

Problem CompletionParser::Impl::Read(CompletionApi api, simdjson::dom::object object,
                                     CompletionRequest& out) {
  std::bitset<kFields> seen;   // named
  std::bitset<kFields> given;  // named, and not null
  out.body.push_back('{');
  for (const auto entry : object) {
    if (out.body.size() > 1) out.body.push_back(',');
    AppendQuotedUtf8(out.body, entry.key);
    out.body.push_back(':');
    const Field field = FieldOf(api, entry.key);
    if (field == kOther) {
      internal::AppendElement(out.body, entry.value);
      continue;
    }
    if (seen.test(field)) {
      return GatewayError{
          ErrorKind::kDuplicateField,
          StrCat("`", kFieldNames[field], "` is given more than once; give it once"),
          std::string(kFieldNames[field])};
    }
    seen.set(field);
    if (entry.value.type() == element_type::NULL_VALUE) {
      out.body += "null";
      continue;
    }
    given.set(field);
    if (Problem problem = ReadField(field, entry.value, out)) return problem;
  }
  out.body.push_back('}');
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

Problem CompletionParser::Impl::ReadField(Field field, element value, CompletionRequest& out) {
  const element_type type = value.type();
  switch (field) {
    case kModel:
      if (type != element_type::STRING) return WrongType("model", value, "a string");
      break;
    case kStream:
      if (type != element_type::BOOL) return WrongType("stream", value, "true, false or null");
      break;
    case kStreamOptions:
      if (type != element_type::OBJECT) {
        return WrongType("stream_options", value, "an object or null");
      }
      break;
    case kMessages:
      if (type != element_type::ARRAY) {
        return WrongType("messages", value, "an array of at least one message");
      }
      if (value.get_array().value_unsafe().size() == 0) {
        return GatewayError{ErrorKind::kInvalidValue,
                            "`messages` is empty; give at least one message", "messages"};
      }
      break;
    case kPrompt:
      return ReadPrompt(value, out);
    case kPromptEmbeds:
    case kFields:
    case kOther:
      break;
  }
  internal::AppendElement(out.body, value);
  return std::nullopt;
}

Problem CompletionParser::Impl::ReadPrompt(element value, CompletionRequest& out) {
  if (value.type() == element_type::STRING) {
    internal::AppendElement(out.body, value);
    return std::nullopt;
  }
  if (value.type() != element_type::ARRAY) {
    return WrongType("prompt", value, "a string, an array of token ids, or an array of these");
  }
  return ReadPromptList(value, out);
}

// [1, 2, 3], ["a", "b"] or [[1, 2], [3]]: the first element says which.
Problem CompletionParser::Impl::ReadPromptList(element value, CompletionRequest& out) {
  const simdjson::dom::array list = value.get_array().value_unsafe();
  if (read_ahead && list.size() == 0) {
    // A second `prompt` could only come later, and be refused for it.
    out.body += array_text;
    out.tokenized = true;
    out.tokens = tokens;
    return std::nullopt;
  }
  const auto first = list.begin();
  const element_type kind =
      first == list.end() ? element_type::INT64 : (*first).type();  // [] holds no token ids
  if (kind == element_type::ARRAY) return ReadTokenLists(list, out);
  if (kind == element_type::STRING) {
    std::size_t index = 0;
    for (const auto text : list) {
      if (text.type() != element_type::STRING) {
        return GatewayError{ErrorKind::kInvalidValue,
                            StrCat("`prompt[", index, "]` is ", internal::TypeName(text),
                                   " among strings; all must be strings"),
                            "prompt"};
      }
      ++index;
    }
    internal::AppendElement(out.body, value);
    return std::nullopt;
  }
  std::size_t bad_index = 0;
  std::string_view why;
  if (!internal::AppendTokenIds(out.body, list, tokens, bad_index, why)) {
    return BadToken("prompt", bad_index, why);
  }
  out.tokenized = true;
  out.tokens = tokens;
  return std::nullopt;
}

Problem CompletionParser::Impl::ReadTokenLists(simdjson::dom::array lists, CompletionRequest& out) {
  std::size_t index = 0;
  out.body.push_back('[');
  for (const auto list : lists) {
    if (list.type() != element_type::ARRAY) {
      return GatewayError{ErrorKind::kInvalidValue,
                          StrCat("`prompt[", index, "]` is ", internal::TypeName(list),
                                 " among arrays; all must be arrays of token ids"),
                          "prompt"};
    }
    if (index > 0) out.body.push_back(',');
    std::size_t bad_index = 0;
    std::string_view why;
    if (!internal::AppendTokenIds(out.body, list.get_array().value_unsafe(), tokens, bad_index,
                                  why)) {
      return BadToken(StrCat("prompt[", index, "]"), bad_index, why);
    }
    ++index;
  }
  out.body.push_back(']');
  // Several prompts are several prefixes; only a single one can be credited.
  out.tokenized = index == 1;
  if (out.tokenized) out.tokens = tokens;
  return std::nullopt;
}

}  // namespace xms::gateway
