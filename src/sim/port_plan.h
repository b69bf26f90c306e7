// PortPlan: which port each rank of a fleet has, with one pair of offsets for all, as a service
// derives them.
//
// Place       Fleet. Planning is pure; probing opens sockets for a moment.
// Rule        Rank r of an engine with HTTP port p: events at p + event_offset + r, snapshots at p
//             + replay_offset + r. No port occurs twice, none is above 65535.
// Ephemeral   Ports from which the kernel takes those of outgoing connections; any of them may be
//             taken at any moment, so a base that the fleet chooses itself keeps all its ports
//             outside.
// Proof       SimPortPlan*.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace xms::sim {

struct PortRange {
  std::uint16_t first = 32768;
  std::uint16_t last = 60999;
  bool Contains(std::uint32_t port) const { return port >= first && port <= last; }
};
// As the kernel says, else its default.
PortRange EphemeralPorts();

struct PortPlan {
  std::vector<std::uint16_t> http;  // by engine
  std::uint32_t event_offset = 0;
  std::uint32_t replay_offset = 0;
  std::vector<std::uint16_t> all;  // ascending
};

struct PortRequest {
  std::vector<std::uint32_t> dp_sizes;  // by engine
  // Engines' own ports; empty: from `base` on, each engine behind the ranks of the one before.
  std::vector<std::uint16_t> http;
  std::uint16_t base = 0;
  std::uint32_t event_offset = 0;   // 0: the least that fits
  std::uint32_t replay_offset = 0;  // likewise
};
// kInvalidArgument naming the two that meet, or the one above 65535.
base::Result<PortPlan> PlanPorts(const PortRequest& request);

// Bases that keep every port of the request away from the ephemeral ones: first those with all
// ports below, then the others, each in an order that the seed decides. `request.base` is ignored.
std::vector<std::uint16_t> CandidateBases(const PortRequest& request, const PortRange& ephemeral,
                                          std::uint64_t seed);

// The first of `ports` that cannot be bound on `host` while all before it are; 0 when all can.
std::uint16_t FirstTakenPort(const std::string& host, const std::vector<std::uint16_t>& ports);

}  // namespace xms::sim
