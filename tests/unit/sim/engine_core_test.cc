#include "sim/engine_core.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/unit/sim/event_replay.h"

namespace xms::sim {
namespace {

using std::chrono::seconds;
using Tokens = std::vector<std::uint32_t>;

constexpr std::uint32_t kBlock = 16;

Tokens Prompt(std::uint32_t seed, std::uint32_t count) {
  Tokens tokens;
  for (std::uint32_t i = 0; i < count; ++i) tokens.push_back(100'000 * seed + i);
  return tokens;
}

class SimEngineCore : public ::testing::Test, public EngineSink {
 protected:
  void OnToken(const TokenOutput& output) override {
    tokens_[output.id].push_back(output.token);
    cached_[output.id] = output.cached_tokens;
  }
  void OnEvents(std::uint32_t rank, kv_events::KvBatch batch) override {
    replays_.try_emplace(rank, kBlock).first->second.Apply(batch);
  }

  std::unique_ptr<EngineCore> Make(std::uint32_t dp_size, std::uint32_t device_blocks = 64,
                                   std::uint32_t limit = 200) {
    return std::make_unique<EngineCore>(
        EngineCoreOptions{.dp_size = dp_size,
                          .scheduler = {.blocks = {.block_size = kBlock,
                                                   .device_blocks = device_blocks,
                                                   .hash_seed = 9}},
                          .max_concurrent_requests = limit},
        *this);
  }
  static void RunAll(EngineCore& core) {
    while (const auto next = core.NextEvent()) core.Advance(*next);
  }

  std::map<RequestId, Tokens> tokens_;
  std::map<RequestId, std::uint32_t> cached_;
  std::map<std::uint32_t, EventReplay> replays_;
};

TEST_F(SimEngineCore, IdleRanksTakeTurns) {
  const auto core = Make(2);
  ASSERT_TRUE(core->Submit(seconds(0), {1, Prompt(1, 64), 1}).ok());
  RunAll(*core);
  ASSERT_TRUE(core->Submit(seconds(10), {2, Prompt(2, 64), 1}).ok());
  RunAll(*core);
  EXPECT_EQ(core->rank(0).blocks().device_resident(), 4U);
  EXPECT_EQ(core->rank(1).blocks().device_resident(), 4U);
  // The ranks name the same content differently, as two engines would.
  EXPECT_EQ(replays_.at(0).complaint() + replays_.at(1).complaint(), "");
}

TEST_F(SimEngineCore, ABusyRankIsPassedOver) {
  const auto core = Make(2);
  ASSERT_TRUE(core->Submit(seconds(0), {1, Prompt(1, 500), 10}).ok());
  for (RequestId id = 2; id <= 4; ++id) {
    ASSERT_TRUE(
        core->Submit(seconds(0), {id, Prompt(static_cast<std::uint32_t>(id), 32), 10}).ok());
  }
  EXPECT_EQ(core->rank(0).running() + core->rank(0).waiting(), 1U);
  EXPECT_EQ(core->rank(1).running() + core->rank(1).waiting(), 3U);
  EXPECT_EQ(core->running(), 2U);
  EXPECT_EQ(core->waiting(), 2U);
  RunAll(*core);
  EXPECT_EQ(core->totals().completed, 4U);
}

TEST_F(SimEngineCore, CacheUsageIsTheMeanShareOfBlocksInUse) {
  const auto core = Make(2, 64);
  EXPECT_EQ(core->cache_usage(), 0);
  ASSERT_TRUE(core->Submit(seconds(0), {1, Prompt(1, 32 * kBlock), 5}).ok());
  EXPECT_DOUBLE_EQ(core->cache_usage(), 0.25);  // half of one rank
  RunAll(*core);
  EXPECT_EQ(core->cache_usage(), 0);
  EXPECT_EQ(core->rank(0).blocks().device_resident(), 32U);
}

TEST_F(SimEngineCore, RefusesAPromptThatCannotFitAndShortensAnAnswer) {
  const auto core = Make(1, 4);
  const auto refused = core->Submit(seconds(0), {1, Prompt(1, 64), 1});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, base::ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().message,
            "the prompt has 64 tokens; prompt and answer together must fit 64");
  ASSERT_TRUE(core->Submit(seconds(0), {2, Prompt(1, 60), 1'000'000}).ok());
  RunAll(*core);
  EXPECT_EQ(tokens_[2].size(), 4U);
  EXPECT_EQ(core->totals().rejected, 1U);
  EXPECT_EQ(core->totals().generated_tokens, 4U);
}

TEST_F(SimEngineCore, RefusesMoreThanItsLimitAndAcceptsAgainAfterwards) {
  const auto core = Make(1, 64, 2);
  ASSERT_TRUE(core->Submit(seconds(0), {1, Prompt(1, 16), 5}).ok());
  ASSERT_TRUE(core->Submit(seconds(0), {2, Prompt(2, 16), 5}).ok());
  const auto refused = core->Submit(seconds(0), {3, Prompt(3, 16), 5});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, base::ErrorCode::kResourceExhausted);
  core->Cancel(seconds(0), 1);
  EXPECT_TRUE(core->Submit(seconds(0), {3, Prompt(3, 16), 5}).ok());
  RunAll(*core);
  EXPECT_EQ(core->totals().completed, 2U);
  EXPECT_EQ(core->totals().cancelled, 1U);
  EXPECT_EQ(core->totals().submitted, 3U);
}

TEST_F(SimEngineCore, EveryEngineAnswersAPromptAlike) {
  const auto one = Make(1);
  const auto two = Make(2, 128);
  ASSERT_TRUE(one->Submit(seconds(0), {1, Prompt(1, 50), 20}).ok());
  ASSERT_TRUE(two->Submit(seconds(5), {2, Prompt(1, 50), 20}).ok());
  RunAll(*one);
  replays_.clear();
  RunAll(*two);
  EXPECT_EQ(tokens_[1], tokens_[2]);
}

TEST_F(SimEngineCore, ASnapshotStandsBehindAllEventsDeliveredBefore) {
  const auto core = Make(1, 8);
  ASSERT_TRUE(core->Submit(seconds(0), {1, Prompt(1, 7 * kBlock), 1}).ok());
  RunAll(*core);
  // Its step is under way: blocks are evicted already, but no batch has told so.
  ASSERT_TRUE(core->Submit(seconds(10), {2, Prompt(2, 3 * kBlock), 1}).ok());
  EventReplay snapshot(kBlock);
  snapshot.Apply(core->Snapshot(0), true);
  EXPECT_EQ(snapshot.Residents(), replays_.at(0).Residents());
  EXPECT_EQ(snapshot.Residents(), core->rank(0).blocks().ResidentHashes());
}

TEST_F(SimEngineCore, CancellingAnEndedRequestCountsNothing) {
  const auto core = Make(1);
  ASSERT_TRUE(core->Submit(seconds(0), {1, Prompt(1, 16), 1}).ok());
  core->Cancel(seconds(100), 1);  // its only token was due before
  EXPECT_EQ(tokens_[1].size(), 1U);
  EXPECT_EQ(core->totals().cancelled, 0U);
  EXPECT_EQ(core->totals().completed, 1U);
}

}  // namespace
}  // namespace xms::sim
