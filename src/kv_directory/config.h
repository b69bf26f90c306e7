// DirectoryConfig: the validated content of --kv_events_config_file.
//
// Place       Parsed by app at start, before any port opens; read by discovery and streams.
// Threads     Plain values.
// Source      Requirements A1 to A5, D8; the table in docs/configuration.md.
// Failure     Parse: kInvalidArgument whose message names the JSON path of the field, the value
//             and the allowed range in one line; unknown keys, duplicate keys, wrong types and
//             fractions for integers too.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"

namespace xms::kv_directory {

inline constexpr std::uint64_t kLargestMessageLimit = 1073741824;  // max_message_bytes, 1 GiB
inline constexpr std::uint64_t kLargestBlockLimit = 16777216;      // max_blocks_per_stream

struct Limits {
  std::uint32_t max_streams = 128;                   // 1 … 128
  std::uint64_t max_blocks_per_stream = 262144;      // mappings, 1 … 16777216
  std::uint64_t max_message_bytes = 8388608;         // live message or snapshot reply, 1024 … 1 GiB
  std::uint64_t max_buffered_bytes = 16777216;       // deltas during recovery, wire + decoded
  std::chrono::milliseconds replay_timeout{2000};    // whole snapshot exchange
  std::chrono::milliseconds resync_interval{30000};  // periodic reconciliation
  std::uint32_t max_snapshots_at_once = 8;           // on their way, all streams together (D11)
};

struct DiscoveryConfig {
  std::uint32_t block_size = 128;  // tokens
  std::string topic;
  std::uint32_t event_port_offset = 10000;
  std::uint32_t replay_port_offset = 30000;
  std::chrono::milliseconds refresh_interval{1000};
};

// Everything needed to subscribe to one rank.
struct StreamSpec {
  model::StreamKey key;
  std::uint32_t block_size = 128;  // tokens
  std::string endpoint;            // tcp://host:port, connectable
  std::string replay_endpoint;
  std::string topic;
  std::uint64_t hash_seed = 1024;
  model::ProcessIdentity identity;  // not known() for static streams
  bool operator==(const StreamSpec&) const = default;
};

struct DirectoryConfig {
  Limits limits;
  std::optional<DiscoveryConfig> discovery;
  std::vector<StreamSpec> streams;
  // Neither discovery nor streams: the directory is off, as with an empty path.
  bool enabled() const { return discovery.has_value() || !streams.empty(); }
};

base::Result<DirectoryConfig> ParseDirectoryConfig(std::string_view json);
// Reads the file; errors also name it.
base::Result<DirectoryConfig> LoadDirectoryConfig(const std::string& path);

}  // namespace xms::kv_directory
