#include "sim/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace xms::sim {
namespace {

FleetOptions Parsed(std::initializer_list<std::string_view> arguments) {
  const auto parsed = ParseCommandLine(std::vector(arguments));
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message);
  return parsed.ok() && *parsed ? **parsed : FleetOptions{};
}
std::string Refused(std::initializer_list<std::string_view> arguments) {
  const auto parsed = ParseCommandLine(std::vector(arguments));
  EXPECT_FALSE(parsed.ok());
  const std::string message = parsed.ok() ? "" : parsed.error().message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

TEST(SimOptions, DefaultsAreOneEngineWithoutAService) {
  const FleetOptions options = Parsed({});
  ASSERT_EQ(options.engines.size(), 1U);
  EXPECT_EQ(options.engines[0].block_size, 128U);
  EXPECT_EQ(options.port, 0);
  EXPECT_EQ(options.event_host, "127.0.0.1");
  EXPECT_FALSE(options.service_rpc.has_value());
}

TEST(SimOptions, TakesTheEnginesOwnFlags) {
  const FleetOptions options = Parsed(
      {"--port=8000", "--dp_size", "2", "-block_size=64", "--enable_prefix_cache=true",
       "--enable_service_routing=true", "--instance_role=DEFAULT", "--heart_beat_interval=0.25",
       "--max_seqs_per_batch=8", "--max_tokens_per_batch=512", "--max_concurrent_requests=9",
       R"(--kv_events_config={"publisher":"zmq","endpoint":"tcp://*:18000","replay_endpoint":"tcp://*:38000","topic":"kv"})"});
  EXPECT_EQ(options.port, 8000);
  EXPECT_EQ(options.engines[0].dp_size, 2U);
  EXPECT_EQ(options.engines[0].block_size, 64U);
  EXPECT_EQ(options.heartbeat_interval, std::chrono::milliseconds(250));
  EXPECT_EQ(options.max_seqs_per_batch, 8U);
  EXPECT_EQ(options.max_tokens_per_batch, 512U);
  EXPECT_EQ(options.max_concurrent_requests, 9U);
  EXPECT_EQ(options.event_port_offset, 10000U);
  EXPECT_EQ(options.replay_port_offset, 30000U);
  EXPECT_EQ(options.event_host, "*");
  EXPECT_EQ(options.topic, "kv");
}

TEST(SimOptions, EnginesMayDifferAndTheRestIsCommon) {
  const FleetOptions options =
      Parsed({"--engine=port=9000,dp_size=2", "--engines=3",
              "--engine=port=9010,num_blocks=48,host_blocks=512,first_sequence=0",
              "--engine=port=9020,block_size=32", "--block_size=16"});
  ASSERT_EQ(options.engines.size(), 3U);
  EXPECT_EQ(options.engines[0].dp_size, 2U);
  EXPECT_EQ(options.engines[0].block_size, 16U);
  EXPECT_EQ(options.engines[1].host_blocks, 512U);
  EXPECT_EQ(options.engines[1].num_blocks, 48U);
  EXPECT_EQ(options.engines[1].first_sequence, 0U);
  EXPECT_EQ(options.engines[2].port, 9020);
  EXPECT_EQ(options.engines[2].block_size, 32U);
  EXPECT_EQ(Parsed({"--engine=dp_size=2", "--engine=dp_size=3"}).engines.size(), 2U);
  EXPECT_EQ(Parsed({"--engine=dp_size=2", "--engines=4"}).engines[3].dp_size, 1U);
}

TEST(SimOptions, ServiceAddressIsHostAndPort) {
  const FleetOptions options = Parsed({"--service_rpc=10.0.0.1:8889", "--internal_api_token=s"});
  EXPECT_EQ(options.service_rpc->host, "10.0.0.1");
  EXPECT_EQ(options.service_rpc->port, 8889);
  EXPECT_EQ(options.internal_api_token, "s");
}

// Loads that are old in simulated time would make every policy look worse than it is.
TEST(SimOptions, HeartbeatsFollowTheSimulatedClockWithinBounds) {
  using std::chrono::milliseconds;
  EXPECT_EQ(Parsed({}).HeartbeatPeriod(), milliseconds(500));
  EXPECT_EQ(Parsed({"--time_scale=10"}).HeartbeatPeriod(), milliseconds(50));
  EXPECT_EQ(Parsed({"--time_scale=1000"}).HeartbeatPeriod(), milliseconds(10));
  EXPECT_EQ(Parsed({"--time_scale=0.1"}).HeartbeatPeriod(), milliseconds(500));
}

TEST(SimOptions, RefusesNamingFlagValueAndWhatIsAllowed) {
  EXPECT_EQ(Refused({"--dp_size=0"}), "--dp_size=0: expected an integer from 1 to 64");
  EXPECT_EQ(Refused({"--dp_size=0x10"}), "--dp_size=0x10: expected an integer from 1 to 64");
  EXPECT_EQ(Refused({"--time_scale=nan"}),
            "--time_scale=nan: expected a number from 0.001 to 10000");
  EXPECT_EQ(Refused({"--first_sequence=2"}), "--first_sequence=2: expected an integer from 0 to 1");
  EXPECT_EQ(Refused({"--port=65536"}), "--port=65536: expected an integer from 0 to 65535");
  EXPECT_EQ(Refused({"--nonsense=1"}), "--nonsense: not a flag; --help lists them");
  EXPECT_EQ(Refused({"serve"}), "serve: left over; flags look like --name=value");
  EXPECT_EQ(Refused({"--dp_size"}), "--dp_size: expected a value");
  EXPECT_EQ(Refused({"--service_rpc=nowhere"}), "--service_rpc=nowhere: expected host:port");
  EXPECT_THAT(Refused({"--instance_role=PREFILL"}), ::testing::HasSubstr("expected DEFAULT"));
  EXPECT_THAT(Refused({"--etcd_addr=127.0.0.1:2379"}), ::testing::HasSubstr("--service_rpc"));
  EXPECT_THAT(Refused({"--enable_prefix_cache=false"}), ::testing::HasSubstr("expected true"));
  EXPECT_THAT(Refused({"--host=localhost"}), ::testing::HasSubstr("numeric IPv4"));
  EXPECT_THAT(Refused({"--host=0.0.0.0"}), ::testing::HasSubstr("numeric IPv4"));
  EXPECT_THAT(Refused({"--engine=dp_size=9999"}),
              ::testing::StartsWith("--engine=dp_size=9999: dp_size: expected an integer"));
  EXPECT_THAT(Refused({"--engine=color=red"}), ::testing::HasSubstr("not \"color\""));
  EXPECT_THAT(Refused({"--max_seqs_per_batch=100", "--max_tokens_per_batch=50"}),
              ::testing::StartsWith("--max_seqs_per_batch=100: expected at most"));
}

TEST(SimOptions, RefusesWhatContradictsItself) {
  EXPECT_THAT(Refused({"--engines=1", "--engine=dp_size=1", "--engine=dp_size=2"}),
              ::testing::StartsWith("--engines=1: expected at least"));
  EXPECT_EQ(Refused({"--engine=port=9000", "--engine=dp_size=2"}),
            "--engine: expected a port for every engine or for none");
  EXPECT_THAT(Refused({"--port=9000", "--engine=port=9000"}), ::testing::StartsWith("--port=9000"));
  EXPECT_THAT(Refused({"--event_port_offset=7", "--replay_port_offset=7"}),
              ::testing::StartsWith("--replay_port_offset=7"));
}

TEST(SimOptions, RefusesAWrongEventsConfigByMember) {
  const auto refused = [](std::string_view config, std::string_view port = "--port=8000") {
    const std::string flag = "--kv_events_config=" + std::string(config);
    return Refused({port, flag});
  };
  EXPECT_EQ(refused("{"), "--kv_events_config: expected a JSON object");
  EXPECT_EQ(refused(R"({"publisher":"null"})"), "--kv_events_config: publisher: expected \"zmq\"");
  EXPECT_THAT(refused(R"({"endpoint":"ipc://x"})"), ::testing::HasSubstr("endpoint: expected tcp"));
  EXPECT_THAT(refused(R"({"speed":1})"), ::testing::HasSubstr("speed: expected publisher"));
  EXPECT_THAT(refused(R"({"endpoint":"tcp://*:18000"})"), ::testing::HasSubstr("both"));
  EXPECT_THAT(refused(R"({"endpoint":"tcp://*:7000","replay_endpoint":"tcp://*:38000"})"),
              ::testing::HasSubstr("a port above 8000"));
  EXPECT_THAT(
      refused(R"({"endpoint":"tcp://*:18000","replay_endpoint":"tcp://*:38000"})", "--port=0"),
      ::testing::HasSubstr("--port beside endpoints"));
  EXPECT_THAT(
      Refused(
          {"--port=8000", "--event_port_offset=5",
           R"(--kv_events_config={"endpoint":"tcp://*:18000","replay_endpoint":"tcp://*:38000"})"}),
      ::testing::HasSubstr("agreement"));
  EXPECT_THAT(Refused({"--topic=a", R"(--kv_events_config={"topic":"b"})"}),
              ::testing::HasSubstr("the same as --topic"));
}

TEST(SimOptions, HelpEndsEverythingElseAndNamesEveryFlag) {
  const std::string_view arguments[] = {"--engines=2", "--help"};
  const auto parsed = ParseCommandLine(arguments);
  ASSERT_TRUE(parsed.ok());
  EXPECT_FALSE(parsed->has_value());
  for (const std::string_view flag :
       {"--engines=1", "--port=0", "--kv_events_config=", "--service_rpc=", "--time_scale=1"}) {
    EXPECT_THAT(HelpText(), ::testing::HasSubstr(flag));
  }
}

}  // namespace
}  // namespace xms::sim
