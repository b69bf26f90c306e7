// CAR end to end: engines register, publish their events and get the requests whose prefix they
// hold, as the very process that they are.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/service_fixture.h"
#include "tests/support/kv_publisher.h"

namespace xms::gateway {
namespace {

using model::Tier;
using xms::testing::DiscoveredEngine;
using xms::testing::MakePrompt;
using xms::testing::Tokens;
using xms::testing::WaitFor;

constexpr std::uint32_t kEventOffset = 3;
constexpr std::uint32_t kReplayOffset = 6;

class GatewayCredit : public ServiceFixture {
 protected:
  void SetUp() override {
    kv_directory::DirectoryConfig config;
    config.discovery =
        kv_directory::DiscoveryConfig{.block_size = 4,
                                      .topic = "xllm-kv",
                                      .event_port_offset = kEventOffset,
                                      .replay_port_offset = kReplayOffset,
                                      .refresh_interval = std::chrono::milliseconds(50)};
    config.limits.replay_timeout = std::chrono::milliseconds(500);
    StartService(config);
  }
  void TearDown() override {
    ServiceFixture::TearDown();
    engines_.clear();
  }

  // An engine that answers every completion, and its events. Its ports lie among those that
  // outgoing connections get, so one may be taken meanwhile: then another set is tried.
  DiscoveredEngine& AddEngine(std::size_t ranks) {
    constexpr int kTries = 20;
    for (int tries = 0; tries < kTries; ++tries) {
      auto engine = std::make_unique<Engine>();
      engine->known = xms::testing::MakeEngine(ranks, kEventOffset, kReplayOffset);
      http::ServerOptions options;
      options.port = engine->known.http_port;
      engine->server = std::make_unique<http::HttpServer>(
          loops_, options, [](const std::shared_ptr<http::Exchange>& exchange) {
            exchange->Send(http::JsonResponse(200, "{}"));
          });
      const bool started = engine->server->Start().ok();
      engines_.push_back(
          std::move(engine));  // those that failed keep their ports from being tried again
      if (started) break;
    }
    return engines_.back()->known;
  }
  void Register(const DiscoveredEngine& engine, const std::string& incarnation = "x",
                double waiting = 0) {
    RegisterEngine(engine.name(), incarnation, waiting, static_cast<int>(engine.ranks.size()));
  }
  ::testing::AssertionResult WaitSynchronized(std::size_t streams) {
    return WaitFor(base::StrCat(streams, " streams synchronize"), [&] {
      std::size_t synchronized = 0;
      for (const auto& stream : index_->Streams()) synchronized += stream.synchronized ? 1 : 0;
      return synchronized == streams;
    });
  }
  // Sends the prompt and returns the decision about it.
  Json Route(const Tokens& prompt) {
    EXPECT_EQ(Ask("POST", "/v1/completions", Json({{"prompt", prompt}}).dump()).status, 200);
    return Decision();
  }
  static Json Candidate(const Json& decision, const DiscoveredEngine& engine) {
    for (const Json& candidate : decision["candidates"]) {
      if (candidate["name"] == engine.name()) return candidate;
    }
    return nullptr;
  }

  struct Engine {
    DiscoveredEngine known;
    std::unique_ptr<http::HttpServer> server;
  };
  std::vector<std::unique_ptr<Engine>> engines_;
  const Tokens prompt_ = MakePrompt(1, 8);
};

TEST_F(GatewayCredit, ARequestGoesWhereItsPrefixIs) {
  DiscoveredEngine& cold = AddEngine(1);
  DiscoveredEngine& warm = AddEngine(2);
  for (const auto& rank : warm.ranks) {
    rank->Publish(
        rank->NewBatch().Store(Tier::kDevice, prompt_, 0, 4).Store(Tier::kHost, prompt_, 4, 2));
  }
  Register(cold);
  Register(warm);
  ASSERT_TRUE(WaitSynchronized(3));
  for (int i = 0; i < 4; ++i) {
    const Json decision = Route(prompt_);
    EXPECT_EQ(decision["instance"], warm.name());
    EXPECT_EQ(decision["input_tokens"], 32);
    EXPECT_EQ(decision["policy"], "CAR");
    const Json candidate = Candidate(decision, warm);
    EXPECT_EQ(candidate["no_credit_reason"], "");
    EXPECT_EQ(candidate["hit_ratio"], (16 + 0.5 * 8) / 32);
    EXPECT_EQ(candidate["ranks"],
              Json::parse(R"([{"dp_rank":0,"device_hit_tokens":16,"host_only_hit_tokens":8},)"
                          R"({"dp_rank":1,"device_hit_tokens":16,"host_only_hit_tokens":8}])"));
    EXPECT_EQ(Candidate(decision, cold)["hit_ratio"], 0);
  }
  EXPECT_EQ(Metric("xms_prefix_tokens_asked_total"), 4 * 32);
  EXPECT_EQ(Metric("xms_prefix_tokens_available_total"), 4 * 24);
  EXPECT_EQ(Metric("xms_prefix_tokens_chosen_total"), 4 * 24);
}

// H3
TEST_F(GatewayCredit, TheWorstRankCountsAndAnUnsynchronizedOneTakesAll) {
  DiscoveredEngine& engine = AddEngine(2);
  engine.ranks[0]->Store(Tier::kDevice, prompt_);
  engine.ranks[1]->Publish(engine.ranks[1]->NewBatch().Store(Tier::kDevice, prompt_, 0, 2));
  Register(engine);
  ASSERT_TRUE(WaitSynchronized(2));
  EXPECT_EQ(Candidate(Route(prompt_), engine)["hit_ratio"], 0.25);
  engine.ranks[1]->HoldSnapshots();
  engine.ranks[1]->LoseNext(1);
  engine.ranks[1]->Heartbeat();
  engine.ranks[1]->Heartbeat();
  ASSERT_TRUE(WaitSynchronized(1));
  const Json decision = Route(prompt_);
  EXPECT_EQ(Candidate(decision, engine)["hit_ratio"], 0);
  EXPECT_EQ(Candidate(decision, engine)["no_credit_reason"], "unsynchronized");
  EXPECT_EQ(decision["instance"], engine.name());
  engine.ranks[1]->ReleaseSnapshots();
}

// Between the registration of a new process and the end of the old one's streams the credit is
// already gone: it belongs to a process, not to an address.
TEST_F(GatewayCredit, ANewProcessOnAnOldAddressHasNoCreditBeforeItsOwnSnapshot) {
  DiscoveredEngine& engine = AddEngine(1);
  engine.ranks[0]->Store(Tier::kDevice, prompt_);
  Register(engine, "old");
  ASSERT_TRUE(WaitSynchronized(1));
  EXPECT_EQ(Candidate(Route(prompt_), engine)["hit_ratio"], 1);
  engine.ranks[0]->HoldSnapshots();
  Register(engine, "new");
  const Json candidate = Candidate(Route(prompt_), engine);
  EXPECT_EQ(candidate["hit_ratio"], 0);
  EXPECT_NE(candidate["no_credit_reason"], "");
  engine.ranks[0]->ReleaseSnapshots();
  ASSERT_TRUE(WaitFor("the new process is credited",
                      [&] { return Candidate(Route(prompt_), engine)["hit_ratio"] == 1; }));
}

TEST_F(GatewayCredit, AFullQueueOutweighsAPrefix) {
  DiscoveredEngine& idle = AddEngine(1);
  DiscoveredEngine& busy = AddEngine(1);
  busy.ranks[0]->Publish(busy.ranks[0]->NewBatch().Store(Tier::kDevice, prompt_, 0, 4));
  Register(idle, "x", 0);
  Register(busy, "x", 50);
  ASSERT_TRUE(WaitSynchronized(2));
  const Json decision = Route(prompt_);
  EXPECT_EQ(decision["instance"], idle.name());
  EXPECT_EQ(Candidate(decision, busy)["cost"], 0.5 * (1 - 0.5) + 0.5 * 1);
  EXPECT_EQ(Candidate(decision, busy)["waiting"], 50);
  EXPECT_EQ(Candidate(decision, idle)["cost"], 0.5);
}

}  // namespace
}  // namespace xms::gateway
