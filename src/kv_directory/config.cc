#include "kv_directory/config.h"

#include <sys/stat.h>

#include <array>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "base/str_cat.h"
#include "kv_directory/discovery/endpoint.h"

namespace xms::kv_directory {
namespace {

using base::Error;
using base::ErrorCode;
using base::StrAppend;
using base::StrCat;
using nlohmann::json;

constexpr std::size_t kMaxFileBytes = 16 << 20;
constexpr std::size_t kMaxShownBytes = 80;
constexpr std::size_t kMaxLineBytes = 400;
constexpr std::size_t kMaxTopicBytes = 255;

Error Wrong(std::string_view path, std::string_view what) {
  return {ErrorCode::kInvalidArgument, StrCat(path, ": ", what)};
}

// What people read as one line, whatever a key or a token has in it.
std::string OneLine(std::string_view text) {
  std::string line(text.substr(0, kMaxLineBytes));
  for (char& c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) c = '?';
  }
  return line;
}

std::string Shortened(std::string text) {
  if (text.size() > kMaxShownBytes) text = text.substr(0, kMaxShownBytes) + "…";
  return text;
}

bool IsWhole(const json& value) {
  return value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>();
}

// A value as an error shows it: on one line, and never long. 1e2 is 100, not 100.0: nobody should
// look for a point that he has not written.
std::string Show(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_number_float()) return StrCat(value.get<double>());
  return Shortened(value.dump(-1, ' ', /*ensure_ascii=*/true));
}

// A key as it would be written in the file, without the quotes.
std::string ShowKey(std::string_view key) {
  const std::string quoted = json(key).dump(-1, ' ', /*ensure_ascii=*/true);
  return Shortened(quoted.substr(1, quoted.size() - 2));
}

std::string Join(std::string_view path, std::string_view key) {
  return path.empty() ? ShowKey(key) : StrCat(path, ".", ShowKey(key));
}

// What the parsed document no longer knows of its text: nlohmann keeps the last of two equal keys and
// says nothing, and makes a double of an integer that 64 bits do not hold.
class Spelling final : public json::json_sax_t {
 public:
  using Numbers = std::map<std::string, std::string>;

  // Path of the first key given twice; empty when there is none.
  const std::string& first_duplicate() const { return first_duplicate_; }
  // Where a setting may be: numbers with fraction or exponent, and those beyond 64 bits, as they
  // were written, by path.
  const Numbers& numbers() const { return numbers_; }

  bool null() override { return Next(); }
  bool boolean(bool) override { return Next(); }
  bool number_integer(json::number_integer_t) override { return Next(); }
  bool number_unsigned(json::number_unsigned_t) override { return Next(); }
  bool number_float(json::number_float_t, const std::string& text) override {
    constexpr std::size_t kDeepestSetting = 3;  // streams[i].field
    if (open_.size() <= kDeepestSetting) numbers_[Path()] = text;
    return Next();
  }
  bool string(std::string&) override { return Next(); }
  bool binary(json::binary_t&) override { return Next(); }
  bool start_object(std::size_t) override { return Open(true); }
  bool start_array(std::size_t) override { return Open(false); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& key) override {
    Level& level = open_.back();
    level.key = key;
    if (!level.seen.insert(key).second && first_duplicate_.empty()) first_duplicate_ = Path();
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    return false;
  }

 private:
  struct Level {
    bool is_object = false;
    std::string key;
    std::size_t index = 0;
    std::set<std::string> seen;
  };
  bool Open(bool is_object) {
    open_.push_back({.is_object = is_object});
    return true;
  }
  bool Close() {
    open_.pop_back();
    return Next();
  }
  bool Next() {
    if (!open_.empty() && !open_.back().is_object) ++open_.back().index;
    return true;
  }
  std::string Path() const {
    std::string path;
    for (const Level& level : open_) {
      path = level.is_object ? Join(path, level.key) : StrCat(path, "[", level.index, "]");
    }
    return path.empty() ? "\"\"" : path;
  }

  std::vector<Level> open_;
  std::string first_duplicate_;
  Numbers numbers_;
};

struct Document {
  json root;
  Spelling spelling;
};

base::Result<Document> ParseText(std::string_view text) {
  // The parser would take it for the end of the text and not look at what follows.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return Error{ErrorCode::kInvalidArgument, StrCat("not JSON: a zero byte at byte ", zero + 1)};
  }
  Document document;
  try {
    document.root = json::parse(text);
    json::sax_parse(text, &document.spelling);
  } catch (const json::exception& exception) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …": the part people can
    // use.
    std::string_view what = exception.what();
    if (const std::size_t bracket = what.find("] "); bracket != std::string_view::npos) {
      what.remove_prefix(bracket + 2);
    }
    return Error{ErrorCode::kInvalidArgument, StrCat("not JSON: ", OneLine(what))};
  }
  const std::string& twice = document.spelling.first_duplicate();
  if (!twice.empty()) return Wrong(twice, "given twice");
  return document;
}

// The fields of one object. The first fault stays; everything after it is skipped.
class Fields {
 public:
  Fields(const json& object, std::string path, const Spelling::Numbers& numbers,
         std::initializer_list<std::string_view> known)
      : object_(object), path_(std::move(path)), numbers_(numbers) {
    if (!object_.is_object()) {
      Fail("", StrCat(ShowTyped(object_), ", an object is needed"));
      return;
    }
    const std::set<std::string_view> names(known);
    for (const auto& [key, value] : object_.items()) {
      if (names.contains(key)) continue;
      std::string list;
      for (const std::string_view name : known) StrAppend(list, list.empty() ? "" : ", ", name);
      Fail(key, StrCat("unknown key, known are ", list));
      return;
    }
  }

  bool ok() const { return !error_.has_value(); }
  Error error() && { return std::move(*error_); }
  std::string PathOf(std::string_view key) const { return Join(path_, key); }

  const json* Find(std::string_view key) const {
    if (!ok()) return nullptr;
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }

  template <typename T>
  void Integer(std::string_view key, std::uint64_t low, std::uint64_t high, T& out) {
    const json* value = Find(key);
    if (value == nullptr) return;
    const std::string allowed = StrCat(low, " to ", high);
    if (!value->is_number()) {
      Fail(key, StrCat(ShowTyped(*value), ", an integer from ", allowed, " is needed"));
    } else if (value->is_number_float()) {
      // Also whatever does not fit into 64 bits.
      const double number = value->get<double>();
      // 2^64 − 1 becomes 2^64 as a double.
      const bool within = number >= static_cast<double>(low) &&
                          number <= static_cast<double>(high) && number < 0x1p64;
      const std::string_view what = !IsWhole(*value) ? " is not an integer"
                                    : within         ? " is written with a fraction or an exponent"
                                                     : " is out of range";
      Fail(key, StrCat(AsWritten(key, *value), what, ", allowed ", allowed));
    } else if ((!value->is_number_unsigned() && value->get<std::int64_t>() < 0) ||
               value->get<std::uint64_t>() < low || value->get<std::uint64_t>() > high) {
      Fail(key, StrCat(Show(*value), " is out of range, allowed ", allowed));
    } else {
      out = T(value->get<std::uint64_t>());
    }
  }

  void Bool(std::string_view key, bool& out) {
    const json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) {
      Fail(key, StrCat(ShowTyped(*value), ", true or false is needed"));
    } else {
      out = value->get<bool>();
    }
  }

  void Text(std::string_view key, std::size_t max_bytes, std::string& out) {
    const json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_string()) {
      Fail(key, StrCat(ShowTyped(*value), ", a string is needed"));
      return;
    }
    out = value->get<std::string>();
    if (out.size() > max_bytes) {
      Fail(key, StrCat(out.size(), " bytes are too long, allowed 0 to ", max_bytes));
    }
  }

  void RequiredText(std::string_view key, std::string& out) {
    if (ok() && Find(key) == nullptr) Fail(key, "missing, and has no default");
    Text(key, kMaxFileBytes, out);
    if (ok() && out.empty()) Fail(key, "\"\" is empty, a name is needed");
  }

  // A tcp:// address to connect to, kept as written.
  void ConnectTarget(std::string_view key, std::string& out, Endpoint& parsed) {
    RequiredText(key, out);
    if (!ok()) return;
    auto endpoint = ParseTcpUrl(out);
    if (endpoint.ok()) {
      parsed = *endpoint;
    } else {
      Fail(key, endpoint.error().message);
    }
  }

  void Fail(std::string_view key, std::string_view what) {
    if (!ok()) return;
    const std::string path = key.empty() ? path_ : PathOf(key);
    error_ = Wrong(path.empty() ? "the file" : path, what);
  }

 private:
  static std::string_view TypeOf(const json& value) {
    if (value.is_string()) return "a string";
    if (value.is_boolean()) return "a boolean";
    if (value.is_null()) return "null";
    return "a number";
  }
  static std::string ShowTyped(const json& value) {
    if (value.is_structured() || value.is_null())
      return StrCat(value.is_null() ? "null" : Show(value), " is given");
    return StrCat(Show(value), " is ", TypeOf(value));
  }

  std::string AsWritten(std::string_view key, const json& value) const {
    const auto found = numbers_.find(PathOf(key));
    return found == numbers_.end() ? Show(value) : Shortened(found->second);
  }

  const json& object_;
  std::string path_;
  const Spelling::Numbers& numbers_;
  std::optional<Error> error_;
};

struct DiscoveryObject {
  DiscoveryConfig config;
  bool enabled = true;
};

base::Result<DiscoveryObject> ParseDiscovery(const json& object, const Spelling::Numbers& numbers) {
  DiscoveryObject out;
  Fields fields(object, "discovery", numbers,
                {"enabled", "block_size", "topic", "event_port_offset", "replay_port_offset",
                 "refresh_interval_ms"});
  fields.Bool("enabled", out.enabled);
  fields.Integer("block_size", 1, 65536, out.config.block_size);
  fields.Text("topic", kMaxTopicBytes, out.config.topic);
  fields.Integer("event_port_offset", 1, 65535, out.config.event_port_offset);
  fields.Integer("replay_port_offset", 1, 65535, out.config.replay_port_offset);
  fields.Integer("refresh_interval_ms", 50, 60000, out.config.refresh_interval);
  if (fields.ok() && out.config.event_port_offset == out.config.replay_port_offset) {
    fields.Fail("replay_port_offset", StrCat(out.config.replay_port_offset,
                                             " is event_port_offset too, they must differ"));
  }
  if (!fields.ok()) return std::move(fields).error();
  return out;
}

// What has been taken by earlier streams, and by which field.
struct Taken {
  std::map<model::StreamKey, std::size_t> keys;
  std::map<std::pair<std::string, std::uint16_t>, std::string> endpoints;
};

base::Result<StreamSpec> ParseStream(const json& object, std::size_t index,
                                     const Spelling::Numbers& numbers, Taken& taken) {
  StreamSpec spec;
  Fields fields(object, StrCat("streams[", index, "]"), numbers,
                {"instance_name", "dp_rank", "block_size", "endpoint", "replay_endpoint", "topic",
                 "hash_seed"});
  fields.RequiredText("instance_name", spec.key.instance.name);
  fields.Integer("dp_rank", 0, 1023, spec.key.rank.value);
  fields.Integer("block_size", 1, 65536, spec.block_size);
  std::array<Endpoint, 2> endpoints;
  fields.ConnectTarget("endpoint", spec.endpoint, endpoints[0]);
  fields.ConnectTarget("replay_endpoint", spec.replay_endpoint, endpoints[1]);
  fields.Text("topic", kMaxTopicBytes, spec.topic);
  fields.Integer("hash_seed", 0, UINT64_MAX, spec.hash_seed);
  if (!fields.ok()) return std::move(fields).error();

  if (const auto [entry, fresh] = taken.keys.emplace(spec.key, index); !fresh) {
    fields.Fail("", StrCat("instance_name ", Show(spec.key.instance.name), " with dp_rank ",
                           spec.key.rank.value, " is streams[", entry->second, "] already"));
    return std::move(fields).error();
  }
  constexpr std::array<std::string_view, 2> kColumns = {"endpoint", "replay_endpoint"};
  for (std::size_t column = 0; column < kColumns.size(); ++column) {
    const auto [entry, fresh] = taken.endpoints.emplace(
        std::pair(endpoints[column].CanonicalHost(), endpoints[column].port),
        fields.PathOf(kColumns[column]));
    if (fresh) continue;
    fields.Fail(kColumns[column], StrCat(Show(column == 0 ? spec.endpoint : spec.replay_endpoint),
                                         " is ", entry->second, " already"));
    return std::move(fields).error();
  }
  return spec;
}

}  // namespace

base::Result<DirectoryConfig> ParseDirectoryConfig(std::string_view text) {
  auto parsed = ParseText(text);
  if (!parsed.ok()) return std::move(parsed).error();
  const Spelling::Numbers& numbers = parsed->spelling.numbers();

  DirectoryConfig config;
  Limits& limits = config.limits;
  Fields fields(
      parsed->root, "", numbers,
      {"discovery", "streams", "max_streams", "max_blocks_per_stream", "max_message_bytes",
       "max_buffered_bytes", "replay_timeout_ms", "resync_interval_ms", "max_snapshots_at_once"});
  fields.Integer("max_streams", 1, 128, limits.max_streams);
  fields.Integer("max_blocks_per_stream", 1, kLargestBlockLimit, limits.max_blocks_per_stream);
  fields.Integer("max_message_bytes", 1024, kLargestMessageLimit, limits.max_message_bytes);
  fields.Integer("max_buffered_bytes", 1024, 4294967296, limits.max_buffered_bytes);
  fields.Integer("replay_timeout_ms", 10, 600000, limits.replay_timeout);
  fields.Integer("resync_interval_ms", 50, 86400000, limits.resync_interval);
  fields.Integer("max_snapshots_at_once", 1, 128, limits.max_snapshots_at_once);

  const json* streams = fields.Find("streams");
  if (streams != nullptr && !streams->is_array()) {
    fields.Fail("streams", StrCat(Show(*streams), " is given, an array is needed"));
  }
  const json* discovery = fields.Find("discovery");
  if (discovery != nullptr && streams != nullptr && !streams->empty()) {
    fields.Fail("streams",
                StrCat(streams->size(), " entries beside a discovery object; give one of the two"));
  }
  if (streams != nullptr && streams->size() > limits.max_streams) {
    fields.Fail("streams",
                StrCat(streams->size(), " entries are more than max_streams ", limits.max_streams));
  }
  if (!fields.ok()) return std::move(fields).error();

  if (discovery != nullptr) {
    auto object = ParseDiscovery(*discovery, numbers);
    if (!object.ok()) return std::move(object).error();
    if (object->enabled) config.discovery = object->config;
  }
  if (streams != nullptr) {
    Taken taken;
    for (std::size_t index = 0; index < streams->size(); ++index) {
      auto spec = ParseStream((*streams)[index], index, numbers, taken);
      if (!spec.ok()) return std::move(spec).error();
      config.streams.push_back(*std::move(spec));
    }
  }
  return config;
}

base::Result<DirectoryConfig> LoadDirectoryConfig(const std::string& path) {
  const auto wrong = [&](std::string_view what) {
    return Error{ErrorCode::kInvalidArgument, StrCat(path, ": ", what)};
  };
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return wrong("cannot be found");
  if (!S_ISREG(status.st_mode)) return wrong("is not a file");
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.gcount() == 0 && !file.eof()) return wrong("cannot be read");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) return wrong(StrCat("is over ", kMaxFileBytes, " bytes"));
  auto config = ParseDirectoryConfig(text);
  if (!config.ok()) return std::move(config).error().With(path);
  return config;
}

}  // namespace xms::kv_directory
