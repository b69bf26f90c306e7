#include "gateway/internal/json_dom.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>

#include "base/str_cat.h"
#include "gateway/json_text.h"

namespace xms::gateway::internal {
namespace {

using simdjson::dom::element_type;

// Kept per thread after a document; a larger one allocates for itself.
constexpr std::size_t kKeptBytes = 1024 * 1024;

std::string Words(simdjson::error_code code) {
  switch (code) {
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
      return "a number is malformed or does not fit into 64 bits";
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

void AppendObject(std::string& out, simdjson::dom::object object) {
  out.push_back('{');
  bool first = true;
  for (const auto field : object) {
    if (!first) out.push_back(',');
    first = false;
    AppendQuotedUtf8(out, field.key);
    out.push_back(':');
    AppendElement(out, field.value);
  }
  out.push_back('}');
}

void AppendArray(std::string& out, simdjson::dom::array array) {
  out.push_back('[');
  bool first = true;
  for (const auto element : array) {
    if (!first) out.push_back(',');
    first = false;
    AppendElement(out, element);
  }
  out.push_back(']');
}

// "" when `element` is a token id, which is then in `token`.
std::string_view NotATokenId(simdjson::dom::element element, std::uint32_t& token) {
  // Integers up to 2^63 − 1 are INT64, larger ones UINT64.
  if (element.type() == element_type::INT64) {
    const std::int64_t value = element.get_int64().value_unsafe();
    if (value < 0) return "is negative";
    if (value > std::numeric_limits<std::uint32_t>::max()) return "is above 4294967295";
    token = static_cast<std::uint32_t>(value);
    return {};
  }
  if (element.type() == element_type::UINT64) return "is above 4294967295";
  if (element.type() == element_type::DOUBLE) return "is written as a fraction";
  return "is not a number";
}

}  // namespace

bool IsUtf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

bool Dom::Parse(std::string_view json, simdjson::dom::element& root, std::string& why) {
  // The parser takes the depth from its allocation and the capacity from the document.
  if (allocated_ == 0 && parser_.allocate(0, kMaxDepth) != simdjson::SUCCESS) {
    why = Words(simdjson::MEMALLOC);
    return false;
  }
  allocated_ = std::max<std::size_t>({allocated_, json.size(), 1});
  // simdjson copies from the pointer even when there is nothing to copy, which a null one forbids.
  const char* const bytes = json.empty() ? "" : json.data();
  const simdjson::error_code code = parser_.parse(bytes, json.size()).get(root);
  if (code != simdjson::SUCCESS) why = Words(code);
  return code == simdjson::SUCCESS;
}

void Dom::Trim() {
  if (allocated_ <= kKeptBytes) return;
  parser_ = simdjson::dom::parser();
  allocated_ = 0;
}

std::string_view TypeName(simdjson::dom::element element) {
  switch (element.type()) {
    case element_type::ARRAY:
      return "an array";
    case element_type::OBJECT:
      return "an object";
    case element_type::INT64:
    case element_type::UINT64:
    case element_type::DOUBLE:
      return "a number";
    case element_type::STRING:
      return "a string";
    case element_type::BOOL:
      return "a boolean";
    case element_type::NULL_VALUE:
      return "null";
  }
  return "something else";
}

void AppendElement(std::string& out, simdjson::dom::element element) {
  switch (element.type()) {
    case element_type::ARRAY:
      AppendArray(out, element.get_array().value_unsafe());
      return;
    case element_type::OBJECT:
      AppendObject(out, element.get_object().value_unsafe());
      return;
    case element_type::INT64:
      AppendSigned(out, element.get_int64().value_unsafe());
      return;
    case element_type::UINT64:
      AppendUnsigned(out, element.get_uint64().value_unsafe());
      return;
    case element_type::DOUBLE:
      AppendDouble(out, element.get_double().value_unsafe());
      return;
    case element_type::STRING:
      AppendQuotedUtf8(out, element.get_string().value_unsafe());
      return;
    case element_type::BOOL:
      out += BoolText(element.get_bool().value_unsafe());
      return;
    case element_type::NULL_VALUE:
      out += "null";
      return;
  }
}

bool AppendTokenIds(std::string& out, simdjson::dom::array array,
                    std::vector<std::uint32_t>& tokens, std::size_t& bad_index,
                    std::string_view& why) {
  // Digits are collected in pieces: appending each number by itself would cost more than writing
  // it.
  constexpr std::size_t kPiece = 4096;
  constexpr std::size_t kDigits = 10;  // of the largest
  char piece[kPiece + kDigits + 1];
  char* at = piece;
  tokens.clear();
  out.push_back('[');
  for (const auto element : array) {
    std::uint32_t token = 0;
    why = NotATokenId(element, token);
    if (!why.empty()) {
      bad_index = tokens.size();
      return false;
    }
    tokens.push_back(token);
    at = std::to_chars(at, at + kDigits, token).ptr;
    *at++ = ',';
    if (at >= piece + kPiece) {
      out.append(piece, at);
      at = piece;
    }
  }
  out.append(piece, at);
  if (!tokens.empty()) out.pop_back();  // the last comma
  out.push_back(']');
  return true;
}

bool ReadTokenIds(simdjson::dom::array array, std::vector<std::uint32_t>& tokens,
                  std::size_t& bad_index, std::string_view& why) {
  tokens.clear();
  for (const auto element : array) {
    std::uint32_t token = 0;
    why = NotATokenId(element, token);
    if (!why.empty()) {
      bad_index = tokens.size();
      return false;
    }
    tokens.push_back(token);
  }
  return true;
}

}  // namespace xms::gateway::internal
