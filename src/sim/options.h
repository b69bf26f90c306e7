// FleetOptions: the command line of xllm_engine_sim.
//
// Place       main.cc parses, Fleet obeys. nlohmann/json stays inside options.cc.
// Threads     Pure; any thread.
// Failure     One sentence naming flag, value and what is allowed: "--dp_size=0: expected an integer
//             from 1 to 64".
// Proof       SimOptions*.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/client.h"

namespace xms::sim {

// Where engines may differ from each other.
struct EngineSpec {
  std::uint16_t port = 0;  // 0: planned
  std::uint32_t dp_size = 1;
  std::uint32_t block_size = 128;
  std::uint32_t num_blocks = 3072;  // Device blocks a rank
  std::uint32_t host_blocks = 0;    // Host blocks a rank; 0: no Host tier
  std::uint64_t first_sequence = 1;
};

struct FleetOptions {
  std::string host = "127.0.0.1";
  std::string event_host;  // empty: as host
  std::uint16_t port = 0;  // of the first engine; 0: chosen
  std::vector<EngineSpec> engines;
  std::uint32_t event_port_offset = 0;  // 0: planned, likewise below
  std::uint32_t replay_port_offset = 0;
  std::string topic = "xllm-kv";
  std::string model_id = "sim";
  double time_scale = 1;
  std::uint32_t max_tokens_per_batch = 10240;
  std::uint32_t max_seqs_per_batch = 1024;
  std::uint32_t max_concurrent_requests = 200;
  std::uint32_t stream_interval = 1;
  std::uint64_t seed = 0;  // 0: random
  std::optional<http::Address> service_rpc;
  std::string internal_api_token;
  std::chrono::milliseconds registration_ttl{15000};
  std::chrono::milliseconds heartbeat_interval{500};  // simulated

  // On the clock outside: as often as an engine of that speed would report, but not more than 100
  // times a second and never less often than the flag says.
  std::chrono::milliseconds HeartbeatPeriod() const;
};

// Empty when --help was asked for.
base::Result<std::optional<FleetOptions>> ParseCommandLine(
    std::span<const std::string_view> arguments);
std::string HelpText();

}  // namespace xms::sim
