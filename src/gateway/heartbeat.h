// The heartbeat's body: proto3 JSON, as sidecars send it.
//
// Threads     Pure functions.
// Rules       Names in snake or camel case; 64-bit integers as number or string; floats as number
//             or string, "NaN" and "Infinity" among them, and NaN bare as Python writes it; null is
//             absence; unknown fields are ignored, whatever their numbers. A load that makes no
//             sense or fits no double is passed on: its validity is InstanceManager's business.
// Proof       GatewayHeartbeat*, fuzz/gateway/gateway_internal_bodies_fuzz.cc.
#pragma once

#include <cstdint>
#include <string_view>

#include "instances/instance_manager.h"

namespace xms::gateway {

enum class HeartbeatFault : std::uint8_t { kNone, kInvalidJson, kMissingName };

HeartbeatFault ParseHeartbeat(std::string_view body, instances::Heartbeat& out);

}  // namespace xms::gateway
