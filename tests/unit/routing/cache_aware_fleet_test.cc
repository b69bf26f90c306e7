// What the formula does to a whole load, where that surprises people.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "routing/policy.h"
#include "tests/unit/routing/fleet.h"

namespace xms::routing {
namespace {

constexpr std::uint32_t kBlock = 128;
constexpr std::uint32_t kSystemBlocks = 8;
constexpr std::uint32_t kTurnBlocks = 4;

struct Outcome {
  std::array<int, 2> requests{};
  std::map<std::string, int> reasons;
  double hit_share = 0;  // cached tokens of all input tokens
};

// Agent sessions that wait for each answer: nothing is ever waiting when a request is routed. Every session begins with
// one system prompt; each turn extends its own history. Caches are unbounded.
Outcome RunPacedSessions(Policy& policy) {
  Outcome outcome;
  std::array<bool, 2> has_system{};
  std::array<std::map<int, std::uint32_t>, 2>
      history_blocks;  // session → blocks held, without the system prompt
  double hits = 0;
  double tokens = 0;
  Choice choice;
  for (int turn = 1; turn <= 14; ++turn) {
    for (int session = 0; session < 32; ++session) {
      const std::uint32_t blocks = kSystemBlocks + static_cast<std::uint32_t>(turn) * kTurnBlocks;
      Fleet fleet;
      for (std::size_t i = 0; i < 2; ++i) {
        const std::uint32_t held = has_system[i] ? kSystemBlocks + history_blocks[i][session] : 0;
        fleet.Add("engine" + std::to_string(i), 0, {{held * kBlock, 0}});
      }
      policy.Choose(fleet.Input(blocks * kBlock), choice);
      const auto chosen = static_cast<std::size_t>(choice.primary);
      ++outcome.requests[chosen];
      ++outcome.reasons[std::string(choice.reason)];
      hits += fleet[chosen].ranks[0].device_hit_tokens;
      tokens += blocks * kBlock;
      has_system[chosen] = true;
      history_blocks[chosen][session] = static_cast<std::uint32_t>(turn) * kTurnBlocks;
    }
  }
  outcome.hit_share = hits / tokens;
  return outcome;
}

// Known and explained, not repaired: with no queues the shared system prompt decides, and the engine that got the first
// request gets all of them. Every decision says that the prefix decided at equal load.
TEST(CacheAwareRoutingFleet, PacedSessionsWithoutQueuesAllFollowTheFirstPrefix) {
  for (const double lambda : {0.1, 0.5, 1.0}) {
    const auto policy = MakeCacheAware({lambda, 0.5});
    const Outcome outcome = RunPacedSessions(*policy);
    EXPECT_EQ(outcome.requests, (std::array{448, 0})) << "lambda " << lambda;
    EXPECT_EQ(outcome.reasons, (std::map<std::string, int>{{"tie: rotation", 1},
                                                           {"longest prefix at equal load", 447}}));
    EXPECT_GT(outcome.hit_share, 0.85);
  }
}

// At lambda 0 prefixes count nothing, and empty queues tie: an even split, at the price of the hits.
TEST(CacheAwareRoutingFleet, PacedSessionsAtLambdaZeroSplitEvenly) {
  const auto policy = MakeCacheAware({0, 0.5});
  const Outcome outcome = RunPacedSessions(*policy);
  EXPECT_EQ(outcome.requests, (std::array{224, 224}));
  EXPECT_EQ(outcome.reasons, (std::map<std::string, int>{{"tie: rotation", 448}}));
}

// A queue does move the load: at equal weights a warm engine loses once its queue, as a share of the longest, outweighs
// the share of the prompt that it holds.
TEST(CacheAwareRoutingFleet, AQueueSendsAwayFromTheWarmEngine) {
  const auto policy = MakeCacheAware({0.5, 0.5});
  Choice choice;
  // 0.5 * 0.3 + 0.5 * waiting / 10 against 0.5 for the cold one: equal at 7.
  for (const int waiting : {0, 3, 6, 8, 10}) {
    Fleet fleet;
    fleet.Add("warm", waiting, {{700, 0}});
    fleet.Add("cold", 0.0);
    fleet.Add("busy", 10.0);
    policy->Choose(fleet.Input(1000), choice);
    EXPECT_EQ(fleet.Name(choice.primary), waiting < 7 ? "warm" : "cold") << waiting << " waiting";
  }
}

}  // namespace
}  // namespace xms::routing
