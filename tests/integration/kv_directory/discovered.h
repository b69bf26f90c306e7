// Engines as discovery finds them, for tests of the directory.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "kv_directory/config.h"
#include "kv_directory/discovery/stream_plan.h"
#include "tests/support/kv_publisher.h"

namespace xms::kv_directory {

// Event ports come from the kernel's ephemeral range, so HTTP ports lie 2000 below it.
inline constexpr std::uint32_t kEventOffset = 2000;
inline constexpr std::uint32_t kReplayOffset = 2500;

inline SourceInstance InstanceOf(const testing::DiscoveredEngine& engine,
                                 const std::string& incarnation, std::uint64_t registered_ms = 0) {
  SourceInstance instance;
  instance.record.id.name = engine.name();
  instance.record.dp_size = static_cast<std::int32_t>(engine.ranks.size());
  instance.record.identity = {incarnation, registered_ms};
  return instance;
}

inline DirectoryConfig DiscoveryOf(
    std::chrono::milliseconds refresh = std::chrono::milliseconds(50)) {
  DirectoryConfig config;
  config.discovery = DiscoveryConfig{.block_size = 4,
                                     .topic = "xllm-kv",
                                     .event_port_offset = kEventOffset,
                                     .replay_port_offset = kReplayOffset,
                                     .refresh_interval = refresh};
  return config;
}

}  // namespace xms::kv_directory
