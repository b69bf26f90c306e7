// The simulator's own endpoints as plain values: faults in, state out.
//
// Place       Engine. nlohmann/json stays inside sim_api.cc.
// Threads     Pure functions; any thread.
// Faults      POST /sim/faults takes an object with any of
//               "rank": n                the faults below concern this rank only (default: all)
//               "drop_next_messages": n  the next n live messages take a sequence, are not sent
//               "cut_snapshots": n       the next n snapshot answers are cut …
//               "cut": "terminator"      … before the terminator (default); "payload": half of it
//                                        is missing; "all": nothing is sent
//               "send_bytes": "c1ff"     these bytes as payload of the next sequence
//               "restart": true          a new process in place: new incarnation, empty cache,
//                                        sequence from its beginning, event ports closed and
//                                        opened again, requests under way broken off; always the
//                                        whole engine
//             Unknown members and wrong values change nothing and are answered by 400.
// Proof       SimApi*.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"
#include "sim/engine_core.h"
#include "sim/event_publisher.h"

namespace xms::sim {

struct Faults {
  std::optional<std::uint32_t> rank;
  std::uint32_t drop_next_messages = 0;
  std::uint32_t cut_snapshots = 0;
  EventPublisher::Cut cut = EventPublisher::Cut::kTerminator;
  std::optional<std::vector<std::byte>> send_bytes;
  bool restart = false;
};
// kInvalidArgument naming the member.
base::Result<Faults> ParseFaults(std::string_view body, std::uint32_t dp_size);

struct RankState {
  std::uint32_t dp_rank = 0;
  std::optional<std::uint64_t> sequence;  // of the last message; none before the first
  std::uint32_t device_blocks = 0;        // resident
  std::uint32_t host_blocks = 0;
  std::uint32_t blocks_in_use = 0;
  std::uint64_t waiting = 0;
  std::uint64_t running = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_dropped = 0;  // by faults or for want of room
  std::uint64_t snapshots = 0;         // answered, cut ones too
  // Wire hashes, when asked for.
  std::optional<BlockManager::Residents> residents;
};

struct EngineState {
  std::string name;
  std::string incarnation_id;
  std::uint64_t restarts = 0;
  double time_scale = 1;
  double simulated_seconds = 0;
  std::uint32_t block_size = 0;
  std::uint32_t num_blocks = 0;  // Device blocks a rank
  bool registered = false;
  std::uint64_t heartbeats = 0;
  double gpu_cache_usage_perc = 0;
  EngineTotals totals;  // of all lives
  std::vector<RankState> ranks;
};
std::string EngineStateJson(const EngineState& state);

}  // namespace xms::sim
