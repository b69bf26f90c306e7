// What comes into the instance state machine, and how it is timed.
//
// Threads     Plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "model/instance.h"

namespace xms::instances {

struct Options {
  std::chrono::milliseconds lease_lost_heartbeat_timeout{3000};
  std::chrono::milliseconds detect_disconnected_interval{15000};
};

struct Heartbeat {
  model::InstanceId id;
  std::string incarnation_id;
  std::optional<model::LoadSample> load;
};

enum class PutOutcome : std::uint8_t { kCreated, kReplaced, kRefreshed };

}  // namespace xms::instances
