#include "kv_directory/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace xms::kv_directory {
namespace {

std::string ErrorOf(const std::string& json) {
  const auto config = ParseDirectoryConfig(json);
  return config.ok() ? "(accepted)" : config.error().message;
}

std::string Streams(const std::string& entries) { return R"({"streams":[)" + entries + "]}"; }

// One valid stream entry; `extra` is appended to its fields.
std::string Entry(const std::string& name, int port, const std::string& extra = "") {
  return R"({"instance_name":")" + name + R"(","endpoint":"tcp://10.0.0.1:)" +
         std::to_string(port) + R"(","replay_endpoint":"tcp://10.0.0.1:)" +
         std::to_string(port + 1) + "\"" + extra + "}";
}

// A1, A3, A4: the documented discovery example, and every default.
TEST(KVDirectoryConfig, DiscoveryExampleGetsDocumentedDefaults) {
  const auto config = ParseDirectoryConfig(R"({
    "discovery": {"enabled": true, "block_size": 128, "topic": "xllm-kv", "event_port_offset": 10000,
                  "replay_port_offset": 30000, "refresh_interval_ms": 1000}})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  ASSERT_TRUE(config->discovery.has_value());
  EXPECT_EQ(config->discovery->topic, "xllm-kv");
  EXPECT_EQ(config->limits.max_streams, 128u);
  EXPECT_EQ(config->limits.max_blocks_per_stream, 262144u);
  EXPECT_EQ(config->limits.max_message_bytes, 8388608u);
  EXPECT_EQ(config->limits.max_buffered_bytes, 16777216u);
  EXPECT_EQ(config->limits.replay_timeout.count(), 2000);
  EXPECT_EQ(config->limits.resync_interval.count(), 30000);
  EXPECT_EQ(config->limits.max_snapshots_at_once, 8u);

  const auto bare = ParseDirectoryConfig(R"({"discovery":{}})");
  ASSERT_TRUE(bare.ok()) << bare.error().message;
  EXPECT_EQ(bare->discovery->block_size, 128u);
  EXPECT_EQ(bare->discovery->topic, "");
  EXPECT_EQ(bare->discovery->event_port_offset, 10000u);
  EXPECT_EQ(bare->discovery->replay_port_offset, 30000u);
  EXPECT_EQ(bare->discovery->refresh_interval.count(), 1000);
}

// A5
TEST(KVDirectoryConfig, StaticStreamGetsDocumentedDefaults) {
  const auto config = ParseDirectoryConfig(Streams(Entry("a:1", 18000)));
  ASSERT_TRUE(config.ok()) << config.error().message;
  ASSERT_EQ(config->streams.size(), 1u);
  const StreamSpec& stream = config->streams[0];
  EXPECT_EQ(stream.key.instance.name, "a:1");
  EXPECT_EQ(stream.key.rank.value, 0);
  EXPECT_EQ(stream.block_size, 128u);
  EXPECT_EQ(stream.hash_seed, 1024u);
  EXPECT_EQ(stream.topic, "");
  EXPECT_EQ(stream.endpoint, "tcp://10.0.0.1:18000");
  EXPECT_FALSE(stream.identity.known());
}

// A3, A4
TEST(KVDirectoryConfig, ExtremesOfEveryRangeAreAccepted) {
  for (
      const char* json :
      {R"({"max_streams":1,"max_blocks_per_stream":1,"max_message_bytes":1024,"max_buffered_bytes":1024,
            "replay_timeout_ms":10,"resync_interval_ms":50,
            "discovery":{"block_size":1,"event_port_offset":1,"replay_port_offset":65535,"refresh_interval_ms":50}})",
       R"({"max_streams":128,"max_blocks_per_stream":16777216,"max_message_bytes":1073741824,
            "max_buffered_bytes":4294967296,"replay_timeout_ms":600000,"resync_interval_ms":86400000,"max_snapshots_at_once":128,
            "discovery":{"block_size":65536,"event_port_offset":65535,"replay_port_offset":1,
                         "refresh_interval_ms":60000}})",
       R"({"streams":[{"instance_name":"i","endpoint":"tcp://h:1","replay_endpoint":"tcp://h:65535",
                        "dp_rank":1023,"hash_seed":18446744073709551615}]})",
       R"({"streams":[{"instance_name":"i","endpoint":"tcp://[::1]:1","replay_endpoint":"tcp://[fe80::1%eth0]:1",
                        "dp_rank":0,"hash_seed":0}]})"}) {
    EXPECT_EQ(ErrorOf(json), "(accepted)") << json;
  }
}

// A1: neither of the two is like no file at all; a disabled discovery too.
TEST(KVDirectoryConfig, NothingToSubscribeToMeansOff) {
  for (const char* json :
       {"{}", R"({"streams":[]})", R"({"discovery":{"enabled":false}})",
        R"({"discovery":{"enabled":false},"streams":[]})", R"({"max_streams":4})"}) {
    const auto config = ParseDirectoryConfig(json);
    ASSERT_TRUE(config.ok()) << json << ": " << config.error().message;
    EXPECT_FALSE(config->enabled()) << json;
  }
  EXPECT_TRUE(ParseDirectoryConfig(R"({"discovery":{},"streams":[]})")->enabled());
}

// A2 to A5: one line, with path, value and what is allowed.
TEST(KVDirectoryConfig, EveryFaultNamesPathValueAndRange) {
  struct Case {
    std::string json;
    std::string error;
  };
  const std::vector<Case> cases = {
      {R"({"discovery":{"block_size":0}})",
       "discovery.block_size: 0 is out of range, allowed 1 to 65536"},
      {R"({"discovery":{"block_size":65537}})",
       "discovery.block_size: 65537 is out of range, allowed 1 to 65536"},
      {R"({"discovery":{"block_size":-1}})",
       "discovery.block_size: -1 is out of range, allowed 1 to 65536"},
      {R"({"discovery":{"block_size":128.0}})",
       "discovery.block_size: 128.0 is written with a fraction or an exponent, allowed 1 to 65536"},
      {R"({"max_streams":1e2})",
       "max_streams: 1e2 is written with a fraction or an exponent, allowed 1 to 128"},
      {R"({"max_streams":1e3})", "max_streams: 1e3 is out of range, allowed 1 to 128"},
      {R"({"max_streams":-1e30})", "max_streams: -1e30 is out of range, allowed 1 to 128"},
      {R"({"max_streams":99999999999999999999999})",
       "max_streams: 99999999999999999999999 is out of range, allowed 1 to 128"},
      {R"({"max_snapshots_at_once":0})",
       "max_snapshots_at_once: 0 is out of range, allowed 1 to 128"},
      {R"({"max_snapshots_at_once":129})",
       "max_snapshots_at_once: 129 is out of range, allowed 1 to 128"},
      {R"({"discovery":{"block_size":1.5}})",
       "discovery.block_size: 1.5 is not an integer, allowed 1 to 65536"},
      {R"({"discovery":{"block_size":"128"}})",
       R"(discovery.block_size: "128" is a string, an integer from 1 to 65536 is needed)"},
      {R"({"discovery":{"block_size":null}})",
       "discovery.block_size: null is given, an integer from 1 to 65536 is needed"},
      {R"({"discovery":{"block_size":[]}})",
       "discovery.block_size: an array is given, an integer from 1 to 65536 is needed"},
      {R"({"discovery":{"block_size":true}})",
       "discovery.block_size: true is a boolean, an integer from 1 to 65536 is needed"},
      {R"({"discovery":{"enabled":1}})",
       "discovery.enabled: 1 is a number, true or false is needed"},
      {R"({"discovery":{"topic":7}})", "discovery.topic: 7 is a number, a string is needed"},
      {R"({"discovery":{"topic":")" + std::string(256, 'x') + R"("}})",
       "discovery.topic: 256 bytes are too long, allowed 0 to 255"},
      {R"({"discovery":{"event_port_offset":0}})",
       "discovery.event_port_offset: 0 is out of range, allowed 1 to 65535"},
      {R"({"discovery":{"replay_port_offset":65536}})",
       "discovery.replay_port_offset: 65536 is out of range, allowed 1 to 65535"},
      {R"({"discovery":{"event_port_offset":7,"replay_port_offset":7}})",
       "discovery.replay_port_offset: 7 is event_port_offset too, they must differ"},
      {R"({"discovery":{"replay_port_offset":10000}})",
       "discovery.replay_port_offset: 10000 is event_port_offset too, they must differ"},
      {R"({"discovery":{"refresh_interval_ms":49}})",
       "discovery.refresh_interval_ms: 49 is out of range, allowed 50 to 60000"},
      {R"({"discovery":{"refresh_interval_ms":60001}})",
       "discovery.refresh_interval_ms: 60001 is out of range, allowed 50 to 60000"},
      {R"({"max_streams":0})", "max_streams: 0 is out of range, allowed 1 to 128"},
      {R"({"max_streams":129})", "max_streams: 129 is out of range, allowed 1 to 128"},
      {R"({"max_blocks_per_stream":16777217})",
       "max_blocks_per_stream: 16777217 is out of range, allowed 1 to 16777216"},
      {R"({"max_message_bytes":1023})",
       "max_message_bytes: 1023 is out of range, allowed 1024 to 1073741824"},
      {R"({"max_buffered_bytes":4294967297})",
       "max_buffered_bytes: 4294967297 is out of range, allowed 1024 to 4294967296"},
      {R"({"replay_timeout_ms":9})", "replay_timeout_ms: 9 is out of range, allowed 10 to 600000"},
      {R"({"resync_interval_ms":86400001})",
       "resync_interval_ms: 86400001 is out of range, allowed 50 to 86400000"},
      {R"({"max_blocks":1})",
       "max_blocks: unknown key, known are discovery, streams, max_streams, max_blocks_per_stream, "
       "max_message_bytes, max_buffered_bytes, replay_timeout_ms, resync_interval_ms, "
       "max_snapshots_at_once"},
      {R"({"discovery":{"blocksize":1}})",
       "discovery.blocksize: unknown key, known are enabled, block_size, topic, event_port_offset, "
       "replay_port_offset, refresh_interval_ms"},
      {R"({"max_streams":1,"max_streams":1})", "max_streams: given twice"},
      {R"({"a\nb\u007f":1,"a\nb\u007f":1})", R"(a\nb\u007f: given twice)"},
      {R"({"max\u0000_streams\t":1})",
       R"(max\u0000_streams\t: unknown key, known are discovery, streams, max_streams, )"
       "max_blocks_per_stream, max_message_bytes, max_buffered_bytes, replay_timeout_ms, "
       "resync_interval_ms, max_snapshots_at_once"},
      {R"({"discovery":{"topic":"a","topic":"b"}})", "discovery.topic: given twice"},
      {Streams(Entry("a", 1) + "," + Entry("b", 3, R"(,"dp_rank":0,"dp_rank":0)")),
       "streams[1].dp_rank: given twice"},
      {R"({"discovery":[]})", "discovery: an array is given, an object is needed"},
      {R"({"discovery":null})", "discovery: null is given, an object is needed"},
      {R"({"streams":{}})", "streams: an object is given, an array is needed"},
      {R"({"streams":[1]})", "streams[0]: 1 is a number, an object is needed"},
      {"[]", "the file: an array is given, an object is needed"},
      {R"({"discovery":{"enabled":false},"streams":[{}]})",
       "streams: 1 entries beside a discovery object; give one of the two"},
      {R"({"max_streams":1,"streams":[)" + Entry("a", 1) + "," + Entry("b", 3) + "]}",
       "streams: 2 entries are more than max_streams 1"},
      {Streams("{}"), "streams[0].instance_name: missing, and has no default"},
      {Streams(R"({"instance_name":""})"),
       R"(streams[0].instance_name: "" is empty, a name is needed)"},
      {Streams(R"({"instance_name":"a","replay_endpoint":"tcp://h:1"})"),
       "streams[0].endpoint: missing, and has no default"},
      {Streams(R"({"instance_name":"a","endpoint":"tcp://h:1"})"),
       "streams[0].replay_endpoint: missing, and has no default"},
      {Streams(Entry("a", 1, R"(,"dp_rank":1024)")),
       "streams[0].dp_rank: 1024 is out of range, allowed 0 to 1023"},
      {Streams(Entry("a", 1, R"(,"dp_rank":-1)")),
       "streams[0].dp_rank: -1 is out of range, allowed 0 to 1023"},
      {Streams(Entry("a", 1, R"(,"hash_seed":-1)")),
       "streams[0].hash_seed: -1 is out of range, allowed 0 to 18446744073709551615"},
      {Streams(Entry("a", 1, R"(,"hash_seed":18446744073709551616)")),
       "streams[0].hash_seed: 18446744073709551616 is out of range, allowed 0 to "
       "18446744073709551615"},
      {Streams(Entry("a", 1) + "," + Entry("b", 2, R"(,"dp_rank":99999999999999999999)")),
       "streams[1].dp_rank: 99999999999999999999 is out of range, allowed 0 to 1023"},
      {Streams(Entry("a", 1, R"(,"rank":1)")),
       "streams[0].rank: unknown key, known are instance_name, dp_rank, block_size, endpoint, "
       "replay_endpoint, "
       "topic, hash_seed"},
      {Streams(Entry("a", 1) + "," + Entry("a", 3)),
       R"(streams[1]: instance_name "a" with dp_rank 0 is streams[0] already)"},
      {Streams(Entry("a", 1) + "," + Entry("b", 2)),
       R"(streams[1].endpoint: "tcp://10.0.0.1:2" is streams[0].replay_endpoint already)"},
      {Streams(R"({"instance_name":"a","endpoint":"tcp://h:1","replay_endpoint":"tcp://H:01"})"),
       R"(streams[0].replay_endpoint: "tcp://H:01" is streams[0].endpoint already)"},
      {Streams(
           R"({"instance_name":"a","endpoint":"tcp://[::1]:1","replay_endpoint":"tcp://[0:0::1]:1"})"),
       R"(streams[0].replay_endpoint: "tcp://[0:0::1]:1" is streams[0].endpoint already)"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ErrorOf(c.json), c.error) << c.json;
    EXPECT_EQ(ErrorOf(c.json).find('\n'), std::string::npos) << c.json;
  }
}

// A5: what can be bound cannot be connected to, however it is spelled.
TEST(KVDirectoryConfig, OnlyConnectableTcpEndpointsAreAccepted) {
  for (const char* endpoint : {"tcp://*:18000",
                               "tcp://0.0.0.0:18000",
                               "tcp://0:18000",
                               "tcp://0.0:18000",
                               "tcp://[::]:18000",
                               "tcp://[0:0:0::]:1",
                               "tcp://[::ffff:0.0.0.0]:1",
                               "tcp://host",
                               "tcp://host:",
                               "tcp://host:0",
                               "tcp://host:65536",
                               "tcp://host:*",
                               "tcp://host:18000x",
                               "tcp://:18000",
                               "tcp://[::1:18000",
                               "tcp://[host]:18000",
                               "tcp://a b:1",
                               "tcp://eth0;host:1",
                               "ipc:///tmp/x",
                               "inproc://x",
                               "host:18000",
                               "TCP://host:1",
                               "tcp://[::1%]:1",
                               "",
                               "udp://h:1"}) {
    for (const bool replay : {false, true}) {
      const std::string field = replay ? "replay_endpoint" : "endpoint";
      const std::string other = replay ? "endpoint" : "replay_endpoint";
      const std::string error =
          ErrorOf(Streams(R"({"instance_name":"a",")" + other + R"(":"tcp://h:9",")" + field +
                          R"(":")" + endpoint + R"("})"));
      EXPECT_EQ(error.find("streams[0]." + field + ": \"" + endpoint + "\" "), 0u)
          << endpoint << ": " << error;
    }
  }
}

TEST(KVDirectoryConfig, BrokenJsonIsOneLineWithItsPlace) {
  for (const char* json : {"", "{", "{\n\"max_streams\": 1,\n}", "nonsense", "{} {}",
                           "{\"a\": 1\x7f}", "{\"topic\": \"\xff\"}"}) {
    const std::string error = ErrorOf(json);
    EXPECT_EQ(error.find("not JSON: "), 0u) << error;
    EXPECT_NE(error.find("line "), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(KVDirectoryConfig, NothingHidesBehindAZeroByte) {
  using namespace std::string_literals;
  EXPECT_EQ(ErrorOf("{}\0{\"max_streams\":0}"s), "not JSON: a zero byte at byte 3");
  EXPECT_EQ(ErrorOf("{}\0"s), "not JSON: a zero byte at byte 3");
}

TEST(KVDirectoryConfig, LoadNamesTheFile) {
  const std::string path =
      ::testing::TempDir() + "kv_directory_config_" + std::to_string(getpid()) + ".json";
  std::ofstream(path) << R"({"max_streams": 0})";
  auto config = LoadDirectoryConfig(path);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().message, path + ": max_streams: 0 is out of range, allowed 1 to 128");
  EXPECT_EQ(config.error().code, base::ErrorCode::kInvalidArgument);

  std::ofstream(path) << R"({"max_streams": 5})";
  config = LoadDirectoryConfig(path);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->limits.max_streams, 5u);
  std::remove(path.c_str());

  EXPECT_EQ(LoadDirectoryConfig(path).error().message, path + ": cannot be found");
  EXPECT_EQ(LoadDirectoryConfig(::testing::TempDir()).error().message,
            ::testing::TempDir() + ": is not a file");
}

}  // namespace
}  // namespace xms::kv_directory
