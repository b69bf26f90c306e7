// The query's body, against a slow reading of the same rules with another parser: both take it for the
// same token ids, or both refuse it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/kv_query.h"

namespace {

using nlohmann::json;

// {"token_ids":[…]} and nothing about it twice; whatever else stands beside it does not matter.
class Reference final : public nlohmann::json_sax<json> {
 public:
  // Kept: the two may differ, and whatever ours says is right. Nesting is limited by ours, and the other
  // parser refuses numbers that no double can hold.
  bool undecided() const { return deepest_ > 100 || out_of_range_; }
  bool accepted() const { return !broken_ && root_is_object_ && lists_ == 1 && ids_ok_; }
  const std::vector<std::uint32_t>& tokens() const { return tokens_; }

  bool null() override { return Other(); }
  bool boolean(bool) override { return Other(); }
  bool number_integer(number_integer_t value) override {
    return value == 0 ? Number(0) : Other();  // "-0"
  }
  bool number_unsigned(number_unsigned_t value) override { return Number(value); }
  bool number_float(number_float_t, const string_t&) override { return Other(); }
  bool string(string_t&) override { return Other(); }
  bool binary(binary_t&) override { return Other(); }
  bool start_object(std::size_t) override {
    if (depth_ == 0) root_is_object_ = true;
    Other();
    return Open();
  }
  bool key(string_t& name) override {
    if (depth_ == 1 && root_is_object_) {
      at_list_ = name == "token_ids";
      lists_ += at_list_ ? 1 : 0;
    }
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override {
    if (depth_ == 1 && at_list_) {
      at_list_ = false;
      inside_ = true;
    } else {
      Other();
    }
    return Open();
  }
  bool end_array() override {
    if (depth_ == 2) inside_ = false;
    return Close();
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    constexpr int kNumberOverflow = 406;
    out_of_range_ = error.id == kNumberOverflow;
    broken_ = true;
    return false;
  }

 private:
  bool Open() {
    deepest_ = std::max(deepest_, ++depth_);
    return true;
  }
  bool Close() {
    --depth_;
    return true;
  }
  // Something that is no token id: wrong where one, or the list, belongs.
  bool Other() {
    if ((inside_ && depth_ == 2) || (at_list_ && depth_ == 1)) ids_ok_ = false;
    if (depth_ == 1) at_list_ = false;
    return true;
  }
  bool Number(std::uint64_t value) {
    if (!inside_ || depth_ != 2 || value > UINT32_MAX) return Other();
    tokens_.push_back(static_cast<std::uint32_t>(value));
    return true;
  }

  int depth_ = 0;
  int deepest_ = 0;
  bool root_is_object_ = false;
  bool at_list_ = false;  // the next value is the list
  bool inside_ = false;
  int lists_ = 0;
  bool ids_ok_ = true;
  bool broken_ = false;
  bool out_of_range_ = false;
  std::vector<std::uint32_t> tokens_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  std::vector<std::uint32_t> tokens;
  const auto error = xms::gateway::ParseKvQuery(body, tokens);
  Reference reference;
  json::sax_parse(body, &reference);
  if (reference.undecided()) return 0;
  // The other parser takes a zero byte for the end of the text.
  const bool accepted = reference.accepted() && body.find('\0') == std::string_view::npos;
  if (error.has_value() == accepted) {
    std::fprintf(stderr, "%s: %s\n", error ? "refused by ours alone" : "accepted by ours alone",
                 error ? error->message.c_str() : "");
    std::abort();
  }
  if (!error && tokens != reference.tokens()) std::abort();
  return 0;
}
