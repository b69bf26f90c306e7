// ParseDirectoryConfig: any bytes.
//
// Holds       An error is one printable line. What is accepted keeps to every range that the
//             configuration's table names, its endpoints can be parsed again, and another parser reads
//             the same values; what is called no JSON is none to the other parser either.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string_view>

#include "fuzz/second_opinion.h"
#include "kv_directory/config.h"
#include "kv_directory/discovery/endpoint.h"

namespace {

using namespace xms::kv_directory;
using xms::fuzz::Opinion;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

template <typename T>
bool Within(T value, std::uint64_t low, std::uint64_t high) {
  return static_cast<std::uint64_t>(value) >= low && static_cast<std::uint64_t>(value) <= high;
}

// Every limit is what the other parser reads, or its default.
void CheckLimits(const DirectoryConfig& config, const xms::fuzz::SecondOpinion& second) {
  const Limits defaults;
  const auto same = [&](const char* key, std::uint64_t value, std::uint64_t absent) {
    Check(value == second.Unsigned(second.root(), key).value_or(absent), key);
  };
  const auto ms = [](std::chrono::milliseconds time) {
    return static_cast<std::uint64_t>(time.count());
  };
  const Limits& limits = config.limits;
  same("max_streams", limits.max_streams, defaults.max_streams);
  same("max_blocks_per_stream", limits.max_blocks_per_stream, defaults.max_blocks_per_stream);
  same("max_message_bytes", limits.max_message_bytes, defaults.max_message_bytes);
  same("max_buffered_bytes", limits.max_buffered_bytes, defaults.max_buffered_bytes);
  same("replay_timeout_ms", ms(limits.replay_timeout), ms(defaults.replay_timeout));
  same("resync_interval_ms", ms(limits.resync_interval), ms(defaults.resync_interval));
  same("max_snapshots_at_once", limits.max_snapshots_at_once, defaults.max_snapshots_at_once);
  Check(Within(limits.max_snapshots_at_once, 1, 128), "max_snapshots_at_once");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static xms::fuzz::SecondOpinion second;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = ParseDirectoryConfig(text);
  const Opinion opinion = second.Of(text);
  if (!config.ok()) {
    const std::string& message = config.error().message;
    Check(!message.empty(), "an error says something");
    for (const char c : message) {
      Check(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "an error is one printable line");
    }
    if (message.find("not JSON: ") == 0) {
      Check(opinion != Opinion::kJson, "what is called no JSON is none to others");
    }
    return 0;
  }
  Check(opinion == Opinion::kJson || opinion == Opinion::kNone,
        "what is accepted is JSON to others");
  if (opinion == Opinion::kJson) CheckLimits(*config, second);
  Check(!config->discovery || config->streams.empty(), "discovery or streams, never both");
  Check(Within(config->limits.max_streams, 1, 128), "max_streams");
  Check(Within(config->limits.max_blocks_per_stream, 1, 16777216), "max_blocks_per_stream");
  Check(Within(config->limits.max_message_bytes, 1024, 1073741824), "max_message_bytes");
  Check(Within(config->limits.max_buffered_bytes, 1024, 4294967296), "max_buffered_bytes");
  Check(Within(config->limits.replay_timeout.count(), 10, 600000), "replay_timeout_ms");
  Check(Within(config->limits.resync_interval.count(), 50, 86400000), "resync_interval_ms");
  if (config->discovery) {
    Check(Within(config->discovery->block_size, 1, 65536), "discovery.block_size");
    Check(config->discovery->topic.size() <= 255, "discovery.topic");
    Check(config->discovery->event_port_offset != config->discovery->replay_port_offset, "offsets");
  }
  Check(config->streams.size() <= config->limits.max_streams, "no more streams than max_streams");
  std::set<xms::model::StreamKey> keys;
  for (const StreamSpec& stream : config->streams) {
    Check(keys.insert(stream.key).second, "an instance and rank is given once");
    Check(Within(stream.key.rank.value, 0, 1023), "dp_rank");
    Check(Within(stream.block_size, 1, 65536), "streams[].block_size");
    Check(ParseTcpUrl(stream.endpoint).ok() && ParseTcpUrl(stream.replay_endpoint).ok(),
          "endpoints can be connected to");
  }
  return 0;
}
