// InstanceRecord: what an engine says of itself when it registers. LoadSample: what it reports later.
//
// Place       instances (owner of the state), kv_directory's source by way of app, gateway, sim.
// Source      Instance JSON: the records that xLLM engines write to etcd, plus our own optional key
//             `data_plane`. Unknown keys are ignored; a wrong type of a known key refuses the record.
// Threads     Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/ids.h"

namespace xms::model {

enum class Role : std::uint8_t { kDefault = 0, kPrefill = 1, kDecode = 2, kMix = 3 };
// "DEFAULT", "PREFILL", "DECODE", "MIX".
std::string_view RoleName(Role role);

// How requests travel to the instance, and nothing else.
enum class DataPlane : std::uint8_t { kHttp, kRpc };
std::string_view DataPlaneName(DataPlane plane);  // "http", "rpc"

struct InstanceRecord {
  InstanceId id;             // from the key or path, never from the JSON
  std::string rpc_address;   // control address of P/D engines; may be empty
  Role type = Role::kDefault;
  ProcessIdentity identity;
  std::int32_t dp_size = 1;  // 1 … 1024
  std::string backend_type = "xllm";
  DataPlane data_plane = DataPlane::kRpc;
  auto operator<=>(const InstanceRecord&) const = default;
};

// `name` wins over a name in the JSON. Strictness as the embedded registry promises: `rpc_address` and
// `type` may be absent; dp_size absent or 0 counts as 1, other values outside 1 … 1024 are refused;
// data_plane absent (then by backend_type), "http" or "rpc". Error: kInvalidArgument naming the field,
// the value and what is allowed.
base::Result<InstanceRecord> ParseInstanceJson(std::string_view name, std::string_view json);

// The same record as JSON, compact, keys sorted; what the simulator registers.
std::string InstanceJson(const InstanceRecord& record);

// Load as reported by heartbeat. Kept as it came: validity is a question, not a repair.
struct LoadSample {
  double waiting_requests_num = 0;     // requests
  double gpu_cache_usage_perc = 0;     // fraction 0 … 1, despite its name
  // False: NaN, negative, or a usage outside 0 … 1; CAR leaves such an instance out.
  bool valid() const;
  bool operator==(const LoadSample&) const = default;
};

}  // namespace xms::model
