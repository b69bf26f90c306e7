#include "gateway/heartbeat.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <system_error>

#include "gateway/internal/json_reader.h"

namespace xms::gateway {
namespace {

using internal::JsonObject;
using internal::JsonType;
using internal::JsonValue;

// Python's json module writes NaN, Infinity and -Infinity bare; JSON has no such words. Quoted they
// are proto3 JSON.
std::string QuoteBareNonFinite(std::string_view body) {
  constexpr std::array<std::string_view, 3> kWords = {"NaN", "Infinity", "-Infinity"};
  std::string out;
  bool in_string = false;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      out.push_back(c);
      if (c == '\\' && i + 1 < body.size()) {
        out.push_back(body[++i]);
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    std::string_view found;
    for (const std::string_view word : kWords) {
      if (body.substr(i).starts_with(word)) found = word;
    }
    if (found.empty()) {
      out.push_back(c);
      in_string = c == '"';
    } else {
      out.append("\"").append(found).append("\"");
      i += found.size() - 1;
    }
  }
  return out;
}

// One member under both of its spellings, and how to read it.
struct Member {
  std::string_view snake;
  std::string_view camel;
  std::function<bool(JsonValue, JsonType)> read;
};

// Reads the members that are named, each at most once, null being absence, and checks the others.
// False when the object is not valid or a value is not what it should be.
bool ReadMembers(JsonObject object, std::size_t depth, std::span<const Member> members) {
  std::uint32_t seen = 0;
  for (auto entry : object) {
    std::string_view key;
    JsonValue value;
    if (internal::ReadMember(entry, key, value) != simdjson::SUCCESS) return false;
    const auto member = std::find_if(members.begin(), members.end(), [key](const Member& one) {
      return key == one.snake || key == one.camel;
    });
    JsonType type{};
    if (value.type().get(type) != simdjson::SUCCESS) return false;
    if (member != members.end()) {
      const std::uint32_t bit = 1U << (member - members.begin());
      if ((seen & bit) != 0) return false;
      seen |= bit;
      if (type != JsonType::null) {
        if (!member->read(value, type)) return false;
        continue;
      }
    }
    if (internal::CopyValue(value, depth, nullptr) != simdjson::SUCCESS) return false;
  }
  return true;
}

bool ToString(JsonValue value, std::string& out) {
  std::string_view text;
  if (value.get_string().get(text) != simdjson::SUCCESS) return false;
  out = text;
  return true;
}

// A number, or its text as proto3 JSON allows it. One that no double holds is not finite.
bool ToDouble(JsonValue value, JsonType type, double& out) {
  std::string_view text;
  const bool read = type == JsonType::number
                        ? internal::ReadNumber(value, text) == simdjson::SUCCESS
                        : value.get_string().get(text) == simdjson::SUCCESS;
  if (!read) return false;
  if (text == "NaN") {
    out = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  if (text == "Infinity" || text == "-Infinity") {
    out = std::numeric_limits<double>::infinity() * (text[0] == '-' ? -1 : 1);
    return true;
  }
  const char* const end = text.data() + text.size();
  const auto [stopped, code] = std::from_chars(text.data(), end, out);
  if (code == std::errc::result_out_of_range) out = std::numeric_limits<double>::infinity();
  return code != std::errc::invalid_argument && stopped == end;
}

// NaN and negative values stay: they make the load invalid, not the JSON.
bool ToWhole(JsonValue value, JsonType type, double& out) {
  return ToDouble(value, type, out) && (!std::isfinite(out) || out == std::trunc(out));
}

bool ReadLoad(JsonValue value, model::LoadSample& out) {
  JsonObject object;
  if (value.get_object().get(object) != simdjson::SUCCESS) return false;
  const Member members[] = {
      {"waiting_requests_num", "waitingRequestsNum",
       [&](JsonValue given, JsonType type) {
         return ToWhole(given, type, out.waiting_requests_num);
       }},
      {"gpu_cache_usage_perc", "gpuCacheUsagePerc",
       [&](JsonValue given, JsonType type) {
         return ToDouble(given, type, out.gpu_cache_usage_perc);
       }},
  };
  return ReadMembers(object, 2, members);
}

bool ReadBeat(std::string_view body, instances::Heartbeat& out) {
  static thread_local internal::JsonReader reader;
  reader.Trim();
  internal::JsonDocument document;
  JsonObject object;
  if (reader.Open(body, document) != simdjson::SUCCESS ||
      document.get_object().get(object) != simdjson::SUCCESS) {
    return false;
  }
  out = {};
  const Member members[] = {
      {"name", "name", [&](JsonValue given, JsonType) { return ToString(given, out.id.name); }},
      {"incarnation_id", "incarnationId",
       [&](JsonValue given, JsonType) { return ToString(given, out.incarnation_id); }},
      {"load_metrics", "loadMetrics",
       [&](JsonValue given, JsonType) { return ReadLoad(given, out.load.emplace()); }},
  };
  return ReadMembers(object, 1, members) && internal::AtEnd(document) == simdjson::SUCCESS;
}

}  // namespace

HeartbeatFault ParseHeartbeat(std::string_view body, instances::Heartbeat& out) {
  if (!ReadBeat(body, out)) {
    const std::string quoted = QuoteBareNonFinite(body);
    if (quoted.size() == body.size() || !ReadBeat(quoted, out)) return HeartbeatFault::kInvalidJson;
  }
  return out.id.name.empty() ? HeartbeatFault::kMissingName : HeartbeatFault::kNone;
}

}  // namespace xms::gateway
