#include "model/instance.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "base/str_cat.h"

namespace xms::model {
namespace {

using base::Error;
using base::ErrorCode;
using base::StrCat;
using Json = nlohmann::json;

constexpr std::uint64_t kMaxDpSize = 1024;
// No engine comes near it; keeps one record from filling memory that every reader copies.
constexpr std::size_t kMaxStringBytes = 512;
constexpr std::size_t kMaxHostBytes = 255;  // of a host name in DNS, with brackets to spare

// The value as the sender wrote it, short enough for one line. Arrays and objects are only named:
// dump() recurses as deep as the sender pleases.
std::string Shown(const Json& value) {
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  constexpr std::size_t kLongest = 64;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text.replace(kLongest, std::string::npos, "...");
  return text;
}

Error Refused(std::string_view field, const Json& value, std::string_view allowed) {
  return {ErrorCode::kInvalidArgument,
          StrCat(field, ": ", Shown(value), " is not allowed; allowed: ", allowed)};
}

// A field that is absent leaves `out` as it was.
base::Status ReadString(const Json& object, const char* field, std::string& out) {
  const auto found = object.find(field);
  if (found == object.end()) return base::Ok();
  const auto* text = found->get_ptr<const std::string*>();
  if (text == nullptr || text->size() > kMaxStringBytes) {
    return Refused(field, *found, StrCat("a string of at most ", kMaxStringBytes, " bytes"));
  }
  out = *text;
  return base::Ok();
}

base::Status ReadInteger(const Json& object, const char* field, std::uint64_t highest,
                         std::uint64_t& out) {
  const auto found = object.find(field);
  if (found == object.end()) return base::Ok();
  // The parser keeps numbers without sign, fraction and exponent unsigned, and only those.
  const auto* number = found->get_ptr<const Json::number_unsigned_t*>();
  if (number == nullptr || *number > highest) {
    return Refused(field, *found, StrCat("an integer from 0 to ", highest));
  }
  out = *number;
  return base::Ok();
}

base::Status CheckName(std::string_view name) {
  const auto refused = [&] {
    return Refused("name", Json(std::string(name)), "host:port with a port from 1 to 65535");
  };
  const std::size_t colon = name.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon > kMaxHostBytes) return refused();
  // Addresses to listen on, which nobody can dial.
  const std::string_view host = name.substr(0, colon);
  for (const std::string_view anywhere : {"*", "0.0.0.0", "[::]", "-"}) {
    if (host == anywhere) return refused();
  }
  for (const char c : host) {
    if (c <= ' ' || c == '/' || c == '"' || c == '\\' || c == 0x7f) return refused();
  }
  const std::string_view digits = name.substr(colon + 1);
  if (digits.empty() || digits.size() > 5) return refused();
  unsigned port = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return refused();
    port = port * 10 + static_cast<unsigned>(c - '0');
  }
  if (port == 0 || port > 65535) return refused();
  return base::Ok();
}

// Fields that are not kept here but by engines' peers: still, a wrong type makes a record unusable.
using ItemCheck = bool (*)(const Json& item);
base::Status CheckArray(const Json& object, const char* field, ItemCheck fits,
                        std::string_view items) {
  const auto found = object.find(field);
  if (found == object.end()) return base::Ok();
  if (!found->is_array()) return Refused(field, *found, StrCat("an array of ", items));
  for (const Json& item : *found) {
    if (!fits(item)) return Refused(field, item, StrCat("in the array: ", items));
  }
  return base::Ok();
}

bool IsNumberBelow(const Json& item, std::uint64_t bound) {
  const auto* number = item.get_ptr<const Json::number_unsigned_t*>();
  return number != nullptr && *number < bound;
}

// [length, …, milliseconds]; of another arity it is skipped by whoever uses it.
bool IsProfilingPoint(const Json& item) {
  if (!item.is_array()) return false;
  for (const Json& value : item) {
    if (!value.is_number()) return false;
  }
  return true;
}

base::Status CheckArrays(const Json& object) {
  const auto checks = {
      CheckArray(
          object, "cluster_ids",
          [](const Json& item) {
            return item.get_ptr<const Json::number_unsigned_t*>() != nullptr;
          },
          "integers from 0"),
      CheckArray(
          object, "addrs", [](const Json& item) { return item.is_string(); }, "strings"),
      CheckArray(
          object, "ports", [](const Json& item) { return IsNumberBelow(item, 65536); },
          "integers from 0 to 65535"),
      CheckArray(object, "ttft_profiling_data", IsProfilingPoint, "arrays of numbers"),
      CheckArray(object, "tpot_profiling_data", IsProfilingPoint, "arrays of numbers"),
  };
  for (const base::Status& check : checks) {
    if (!check.ok()) return check.error();
  }
  return base::Ok();
}

base::Result<DataPlane> ReadDataPlane(const Json& object, std::string_view backend_type) {
  const auto found = object.find("data_plane");
  if (found == object.end()) return backend_type == "vllm" ? DataPlane::kHttp : DataPlane::kRpc;
  if (*found == "http") return DataPlane::kHttp;
  if (*found == "rpc") return DataPlane::kRpc;
  return Refused("data_plane", *found, "\"http\", \"rpc\", or absent");
}

}  // namespace

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kDefault:
      return "DEFAULT";
    case Role::kPrefill:
      return "PREFILL";
    case Role::kDecode:
      return "DECODE";
    case Role::kMix:
      return "MIX";
  }
  return "unknown";
}

std::string_view DataPlaneName(DataPlane plane) {
  return plane == DataPlane::kHttp ? "http" : "rpc";
}

base::Result<InstanceRecord> ParseInstanceJson(std::string_view name, std::string_view json) {
  if (auto named = CheckName(name); !named.ok()) return std::move(named).error();

  Json object;
  std::set<std::string> keys;
  std::string twice;
  // Parsers differ in which of two equal keys wins.
  const auto note_key = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 &&
        !keys.insert(parsed.get_ref<const std::string&>()).second && twice.empty()) {
      twice = parsed.get_ref<const std::string&>();
    }
    return true;
  };
  // The parser would take a zero byte for the end of the text and not look at what follows.
  if (const std::size_t zero = json.find('\0'); zero != std::string_view::npos) {
    return Error{ErrorCode::kInvalidArgument, StrCat("instance: not JSON at byte ", zero + 1)};
  }
  try {
    object = Json::parse(json, note_key);
  } catch (const Json::exception& exception) {
    const auto* at = dynamic_cast<const Json::parse_error*>(&exception);
    return Error{ErrorCode::kInvalidArgument,
                 StrCat("instance: not JSON",
                        at != nullptr ? StrCat(" at byte ", at->byte) : std::string())};
  }
  if (!object.is_object()) return Refused("instance", object, "a JSON object");
  if (!twice.empty()) return Refused("instance", Json(twice), "each key once");
  if (auto arrays = CheckArrays(object); !arrays.ok()) return std::move(arrays).error();

  InstanceRecord record;
  record.id.name = name;
  std::string name_in_json;  // the one in the path or key wins, but it must be a name
  std::uint64_t type = 0;
  std::uint64_t dp_size = 0;
  std::uint64_t kv_split_size = 0;  // peers' business, like the arrays
  const auto fields = {
      ReadString(object, "name", name_in_json),
      ReadString(object, "rpc_address", record.rpc_address),
      ReadInteger(object, "type", 3, type),
      ReadString(object, "incarnation_id", record.identity.incarnation_id),
      ReadInteger(object, "register_ts_ms", std::numeric_limits<std::uint64_t>::max(),
                  record.identity.register_ts_ms),
      ReadInteger(object, "dp_size", kMaxDpSize, dp_size),
      ReadInteger(object, "kv_split_size", std::numeric_limits<std::int32_t>::max(), kv_split_size),
      ReadString(object, "backend_type", record.backend_type),
  };
  for (const base::Status& field : fields) {
    if (!field.ok()) return field.error();
  }
  record.type = static_cast<Role>(type);
  record.dp_size = dp_size == 0 ? 1 : static_cast<std::int32_t>(dp_size);

  base::Result<DataPlane> plane = ReadDataPlane(object, record.backend_type);
  if (!plane.ok()) return std::move(plane).error();
  record.data_plane = *plane;
  return record;
}

std::string InstanceJson(const InstanceRecord& record) {
  const Json object = {
      {"backend_type", record.backend_type},
      {"data_plane", DataPlaneName(record.data_plane)},
      {"dp_size", record.dp_size},
      {"incarnation_id", record.identity.incarnation_id},
      {"name", record.id.name},
      {"register_ts_ms", record.identity.register_ts_ms},
      {"rpc_address", record.rpc_address},
      {"type", static_cast<int>(record.type)},
  };
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool LoadSample::valid() const {
  return std::isfinite(waiting_requests_num) && waiting_requests_num >= 0 &&
         gpu_cache_usage_perc >= 0 && gpu_cache_usage_perc <= 1;  // NaN fails both comparisons
}

}  // namespace xms::model
