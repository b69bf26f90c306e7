#include "gateway/internal/json_reader.h"

#include <charconv>
#include <limits>
#include <system_error>
#include <utility>

#include "base/str_cat.h"
#include "gateway/json_text.h"

namespace xms::gateway::internal {
namespace {

// Kept per thread after a document; a larger one allocates for itself.
constexpr std::size_t kKeptBytes = 1024 * 1024;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The value's text without the white space behind it.
std::string_view Token(JsonValue value) {
  std::string_view text = value.raw_json_token();
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

std::size_t DigitsFrom(std::string_view text, std::size_t at) {
  std::size_t count = 0;
  while (at + count < text.size() && IsDigit(text[at + count])) ++count;
  return count;
}

// JSON's grammar: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
bool IsNumber(std::string_view text) {
  std::size_t at = text.starts_with('-') ? 1 : 0;
  const std::size_t whole = DigitsFrom(text, at);
  if (whole == 0 || (whole > 1 && text[at] == '0')) return false;
  at += whole;
  if (at < text.size() && text[at] == '.') {
    const std::size_t digits = DigitsFrom(text, ++at);
    if (digits == 0) return false;
    at += digits;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const std::size_t digits = DigitsFrom(text, at);
    if (digits == 0) return false;
    at += digits;
  }
  return at == text.size();
}

JsonError CopyObject(JsonObject object, std::size_t depth, std::string* out) {
  if (out != nullptr) out->push_back('{');
  bool first = true;
  for (auto entry : object) {
    std::string_view key;
    JsonValue value;
    if (const JsonError error = ReadMember(entry, key, value)) return error;
    if (out != nullptr) {
      if (!first) out->push_back(',');
      AppendQuotedUtf8(*out, key);
      out->push_back(':');
    }
    first = false;
    if (const JsonError error = CopyValue(value, depth, out)) return error;
  }
  if (out != nullptr) out->push_back('}');
  return simdjson::SUCCESS;
}

JsonError CopyArray(JsonArray array, std::size_t depth, std::string* out) {
  if (out != nullptr) out->push_back('[');
  bool first = true;
  for (auto element : array) {
    JsonValue value;
    if (const JsonError error = element.get(value)) return error;
    if (out != nullptr && !first) out->push_back(',');
    first = false;
    if (const JsonError error = CopyValue(value, depth, out)) return error;
  }
  if (out != nullptr) out->push_back(']');
  return simdjson::SUCCESS;
}

}  // namespace

bool IsUtf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

JsonError JsonReader::Open(std::string_view json, JsonDocument& document) {
  // simdjson reads in wide steps, beyond the end too.
  padded_.assign(json).append(simdjson::SIMDJSON_PADDING, ' ');
  return parser_.iterate(simdjson::padded_string_view(padded_.data(), json.size(), padded_.size()))
      .get(document);
}

void JsonReader::Trim() {
  if (padded_.capacity() <= kKeptBytes) return;
  parser_ = simdjson::ondemand::parser();
  std::string().swap(padded_);
}

std::string WhyNotJson(JsonError error) {
  switch (error) {
    case simdjson::CAPACITY:
    case simdjson::MEMALLOC:
      return "it is too large";
    case simdjson::DEPTH_ERROR:
      return base::StrCat("it is nested deeper than ", kMaxDepth, " levels");
    case simdjson::STRING_ERROR:
      return "a string holds an escape that stands for no character";
    case simdjson::T_ATOM_ERROR:
    case simdjson::F_ATOM_ERROR:
    case simdjson::N_ATOM_ERROR:
      return "a word is neither true, false nor null";
    case simdjson::NUMBER_ERROR:
      return "a number is malformed";
    case simdjson::UTF8_ERROR:
      return "it is not valid UTF-8";
    case simdjson::EMPTY:
      return "it is empty";
    case simdjson::UNESCAPED_CHARS:
      return "a string holds a control character";
    case simdjson::UNCLOSED_STRING:
      return "a string is not closed";
    default:
      return "a comma, colon, quote, bracket or brace is missing or superfluous";
  }
}

std::string_view TypeName(JsonType type) {
  switch (type) {
    case JsonType::array:
      return "an array";
    case JsonType::object:
      return "an object";
    case JsonType::number:
      return "a number";
    case JsonType::string:
      return "a string";
    case JsonType::boolean:
      return "a boolean";
    case JsonType::null:
      return "null";
  }
  return "something else";
}

JsonError AtEnd(JsonDocument& document) {
  return document.current_location().error() == simdjson::OUT_OF_BOUNDS ? simdjson::SUCCESS
                                                                        : simdjson::TAPE_ERROR;
}

JsonError CopyValue(JsonValue value, std::size_t depth, std::string* out) {
  JsonType type{};
  if (const JsonError error = value.type().get(type)) return error;
  std::string_view text;
  switch (type) {
    case JsonType::array: {
      if (depth >= kMaxDepth) return simdjson::DEPTH_ERROR;
      JsonArray array;
      if (const JsonError error = value.get_array().get(array)) return error;
      return CopyArray(array, depth + 1, out);
    }
    case JsonType::object: {
      if (depth >= kMaxDepth) return simdjson::DEPTH_ERROR;
      JsonObject object;
      if (const JsonError error = value.get_object().get(object)) return error;
      return CopyObject(object, depth + 1, out);
    }
    case JsonType::string:
      if (const JsonError error = value.get_string().get(text)) return error;
      if (out != nullptr) AppendQuotedUtf8(*out, text);
      return simdjson::SUCCESS;
    case JsonType::number:
      if (const JsonError error = ReadNumber(value, text)) return error;
      break;
    case JsonType::boolean:
      text = Token(value);
      if (text != "true" && text != "false") return simdjson::T_ATOM_ERROR;
      break;
    case JsonType::null:
      text = "null";
      if (const JsonError error = ReadNull(value)) return error;
      break;
  }
  if (out != nullptr) out->append(text);
  return simdjson::SUCCESS;
}

JsonError ReadMember(simdjson::simdjson_result<simdjson::ondemand::field> entry,
                     std::string_view& key, JsonValue& value) {
  simdjson::ondemand::field field;
  if (const JsonError error = std::move(entry).get(field)) return error;
  if (const JsonError error = field.unescaped_key().get(key)) return error;
  value = field.value();
  return simdjson::SUCCESS;
}

JsonError ReadNumber(JsonValue value, std::string_view& text) {
  text = Token(value);
  return IsNumber(text) ? simdjson::SUCCESS : simdjson::NUMBER_ERROR;
}

JsonError ReadNull(JsonValue value) {
  return Token(value) == "null" ? simdjson::SUCCESS : simdjson::N_ATOM_ERROR;
}

JsonError ReadTokenId(JsonValue value, std::uint32_t& token, std::string_view& text,
                      std::string_view& why) {
  why = {};
  JsonType type{};
  if (const JsonError error = value.type().get(type)) return error;
  if (type != JsonType::number) {
    why = "is not a number";
    return simdjson::SUCCESS;
  }
  if (const JsonError error = ReadNumber(value, text)) return error;
  if (text.find_first_of(".eE") != std::string_view::npos) {
    why = "is written as a fraction";
  } else if (text == "-0") {
    text = "0";
    token = 0;
  } else if (text.starts_with('-')) {
    why = "is negative";
  } else if (std::from_chars(text.data(), text.data() + text.size(), token).ec != std::errc()) {
    why = "is above 4294967295";
  }
  return simdjson::SUCCESS;
}

JsonError ReadTokenIds(JsonArray array, std::vector<std::uint32_t>& tokens, std::string* out,
                       std::size_t& bad_index, std::string_view& why) {
  tokens.clear();
  why = {};
  if (out != nullptr) out->push_back('[');
  for (auto element : array) {
    JsonValue value;
    if (const JsonError error = element.get(value)) return error;
    std::uint32_t token = 0;
    std::string_view text;
    if (const JsonError error = ReadTokenId(value, token, text, why)) return error;
    if (!why.empty()) {
      bad_index = tokens.size();
      return simdjson::SUCCESS;
    }
    if (out != nullptr) {
      if (!tokens.empty()) out->push_back(',');
      out->append(text);
    }
    tokens.push_back(token);
  }
  if (out != nullptr) out->push_back(']');
  return simdjson::SUCCESS;
}

}  // namespace xms::gateway::internal
