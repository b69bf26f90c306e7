#include "gateway/heartbeat.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "gateway/internal/json_dom.h"

namespace xms::gateway {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;
using simdjson::dom::object;

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

// The member under either spelling; absent and null are the same. False when it is there twice.
bool Find(const object& from, std::string_view snake, std::string_view camel, element& value,
          bool& present) {
  int count = 0;
  present = false;
  for (const auto field : from) {
    if (field.key != snake && field.key != camel) continue;
    ++count;
    if (field.value.type() == element_type::NULL_VALUE) continue;
    value = field.value;
    present = true;
  }
  return count <= 1;
}

bool ReadString(const object& from, std::string_view snake, std::string_view camel,
                std::string& out) {
  element value;
  bool present = false;
  if (!Find(from, snake, camel, value, present)) return false;
  if (!present) return true;
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return false;
  out = text;
  return true;
}

// A double, or its text as proto3 JSON allows it.
bool ToDouble(element value, double& out) {
  if (value.get(out) == simdjson::SUCCESS) return true;
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return false;
  if (text == "NaN") {
    out = std::numeric_limits<double>::quiet_NaN();
  } else if (text == "Infinity" || text == "-Infinity") {
    out = std::numeric_limits<double>::infinity() * (text[0] == '-' ? -1 : 1);
  } else {
    const char* const end = text.data() + text.size();
    const auto [stopped, code] = std::from_chars(text.data(), end, out);
    return code == std::errc() && stopped == end && !text.empty();
  }
  return true;
}

// `whole`: the field is an integer. NaN and negative values stay: they make the load invalid, not
// the JSON.
bool ReadNumber(const object& from, std::string_view snake, std::string_view camel, bool whole,
                double& out) {
  element value;
  bool present = false;
  if (!Find(from, snake, camel, value, present)) return false;
  if (!present) return true;
  if (!ToDouble(value, out)) return false;
  return !whole || !std::isfinite(out) || out == std::trunc(out);
}

}  // namespace

HeartbeatFault ParseHeartbeat(std::string_view body, instances::Heartbeat& out) {
  static thread_local internal::Dom dom;
  dom.Trim();
  element root;
  std::string why;
  if (!dom.Parse(body, root, why)) {
    const std::string quoted = QuoteBareNonFinite(body);
    if (quoted.size() == body.size() || !dom.Parse(quoted, root, why)) {
      return HeartbeatFault::kInvalidJson;
    }
  }
  object beat;
  if (root.get(beat) != simdjson::SUCCESS) return HeartbeatFault::kInvalidJson;
  if (!ReadString(beat, "name", "name", out.id.name) ||
      !ReadString(beat, "incarnation_id", "incarnationId", out.incarnation_id)) {
    return HeartbeatFault::kInvalidJson;
  }
  element load;
  bool has_load = false;
  if (!Find(beat, "load_metrics", "loadMetrics", load, has_load))
    return HeartbeatFault::kInvalidJson;
  if (has_load) {
    object metrics;
    model::LoadSample sample;
    if (load.get(metrics) != simdjson::SUCCESS ||
        !ReadNumber(metrics, "waiting_requests_num", "waitingRequestsNum", true,
                    sample.waiting_requests_num) ||
        !ReadNumber(metrics, "gpu_cache_usage_perc", "gpuCacheUsagePerc", false,
                    sample.gpu_cache_usage_perc)) {
      return HeartbeatFault::kInvalidJson;
    }
    out.load = sample;
  }
  return out.id.name.empty() ? HeartbeatFault::kMissingName : HeartbeatFault::kNone;
}

}  // namespace xms::gateway
