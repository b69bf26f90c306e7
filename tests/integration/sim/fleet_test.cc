// A whole fleet in this process: places, description, orderly end.
#include "sim/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "http/server.h"
#include "tests/integration/sim/http_caller.h"
#include "tests/support/wait_for.h"

namespace xms::sim {
namespace {

using ::testing::HasSubstr;
using testing::WaitFor;
using Json = nlohmann::json;

FleetOptions Options(std::vector<EngineSpec> engines) {
  FleetOptions options;
  options.event_host = options.host;
  options.engines = std::move(engines);
  options.time_scale = 100;
  return options;
}

std::vector<std::uint16_t> PortsOf(const Fleet& fleet) {
  std::vector<std::uint16_t> ports;
  for (const auto& engine : fleet.engines()) {
    ports.push_back(engine->port());
    for (std::uint32_t rank = 0; rank < engine->options().core.dp_size; ++rank) {
      ports.push_back(engine->event_port(rank));
      ports.push_back(engine->replay_port(rank));
    }
  }
  return ports;
}

TEST(SimFleet, FindsAPlaceOutsideTheEphemeralPortsAndDescribesIt) {
  const base::SystemClock clock;
  Fleet fleet(Options({{}, {.dp_size = 2}, {.host_blocks = 64}}), clock);
  const auto started = fleet.Start();
  ASSERT_TRUE(started.ok()) << started.error().message;
  const PortRange ephemeral = EphemeralPorts();
  const auto ports = PortsOf(fleet);
  EXPECT_EQ(ports.size(), 11U);
  EXPECT_EQ(std::set<std::uint16_t>(ports.begin(), ports.end()).size(), ports.size());
  for (const std::uint16_t port : ports) EXPECT_FALSE(ephemeral.Contains(port)) << port;

  const std::string line = fleet.DescriptionJson();
  EXPECT_THAT(line, ::testing::StartsWith(R"({"engines")"));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const Json engines = Json::parse(line)["engines"];
  ASSERT_EQ(engines.size(), 3U);
  HttpCaller caller;
  for (std::size_t i = 0; i < engines.size(); ++i) {
    const std::uint16_t port = engines[i]["port"];
    EXPECT_EQ(engines[i]["name"], fleet.engines()[i]->name());
    EXPECT_EQ(port + engines[i]["event_port_offset"].get<int>(), fleet.engines()[i]->event_port(0));
    EXPECT_EQ(port + engines[i]["replay_port_offset"].get<int>(),
              fleet.engines()[i]->replay_port(0));
    EXPECT_EQ(caller.Json(port, "GET", "/sim/state")["name"], engines[i]["name"]);
  }
  EXPECT_EQ(engines[1]["dp_size"], 2);
  EXPECT_EQ(engines[2]["host_blocks"], 64);
}

TEST(SimFleet, TwoFleetsFindTwoPlaces) {
  const base::SystemClock clock;
  Fleet one(Options({{}, {}}), clock);
  Fleet two(Options({{}, {}}), clock);
  ASSERT_TRUE(one.Start().ok());
  ASSERT_TRUE(two.Start().ok());
  auto ports = PortsOf(one);
  const auto more = PortsOf(two);
  ports.insert(ports.end(), more.begin(), more.end());
  EXPECT_EQ(std::set<std::uint16_t>(ports.begin(), ports.end()).size(), 12U);
}

TEST(SimFleet, OneSeedNamesBlocksAlikeAndEnginesDifferently) {
  const base::SystemClock clock;
  const auto blocks = [&](std::uint64_t seed) {
    FleetOptions options = Options({{.block_size = 4}, {.block_size = 4}});
    options.seed = seed;
    Fleet fleet(std::move(options), clock);
    EXPECT_TRUE(fleet.Start().ok());
    HttpCaller caller;
    std::vector<std::string> found;
    for (const auto& engine : fleet.engines()) {
      caller.Json(engine->port(), "POST", "/v1/completions",
                  R"({"prompt":[1,2,3,4],"max_tokens":1})");
      found.push_back(
          caller.Json(engine->port(), "GET", "/sim/state?blocks=1")["ranks"][0]["device"].dump());
    }
    EXPECT_NE(found[0], found[1]);
    return found;
  };
  EXPECT_EQ(blocks(5), blocks(5));
  EXPECT_NE(blocks(5), blocks(6));
}

TEST(SimFleet, NamesATakenPortAndTheFlagAndLeavesNothingOpen) {
  const base::SystemClock clock;
  Fleet first(Options({{}}), clock);
  ASSERT_TRUE(first.Start().ok());
  FleetOptions options = Options({{}, {}});
  options.port = static_cast<std::uint16_t>(first.engines()[0]->port() - 1);
  Fleet second(options, clock);
  const auto started = second.Start();
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().message, HasSubstr("is taken; choose other ports with --port"));
  EXPECT_TRUE(second.engines().empty());
}

TEST(SimFleet, RegistersEveryEngineAndTakesAllOffTheListWhenItStops) {
  http::EventLoopPool pool(1);
  base::Mutex mu;
  std::set<std::string> listed;
  http::HttpServer service(pool, {}, [&](const std::shared_ptr<http::Exchange>& exchange) {
    const std::string target(exchange->request().path());
    if (exchange->request().method != "POST") {  // not a heartbeat
      base::MutexLock lock(mu);
      if (exchange->request().method == "PUT") listed.insert(target);
      if (exchange->request().method == "DELETE") listed.erase(target);
    }
    exchange->Send(http::JsonResponse(200, "{}"));
  });
  ASSERT_TRUE(service.Start().ok());
  const base::SystemClock clock;
  FleetOptions options = Options({{}, {.dp_size = 2}, {}});
  options.service_rpc = http::Address{"127.0.0.1", service.port()};
  Fleet fleet(std::move(options), clock);
  ASSERT_TRUE(fleet.Start().ok());
  const auto count = [&] {
    base::MutexLock lock(mu);
    return listed.size();
  };
  ASSERT_TRUE(WaitFor("three registrations", [&] { return count() == 3; }));
  ASSERT_TRUE(WaitFor("the first engine to know it", [&] {
    HttpCaller caller;
    return caller.Json(fleet.engines()[0]->port(), "GET", "/sim/state")["heartbeats"] > 0;
  }));
  const auto ports = PortsOf(fleet);
  fleet.Stop();
  EXPECT_EQ(count(), 0U);
  EXPECT_EQ(FirstTakenPort("127.0.0.1", ports), 0);
  service.Stop();
}

}  // namespace
}  // namespace xms::sim
