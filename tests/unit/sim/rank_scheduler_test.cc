#include "sim/rank_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "sim/tokens.h"
#include "tests/unit/sim/event_replay.h"

namespace xms::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Tokens = std::vector<std::uint32_t>;

constexpr std::uint32_t kBlock = 16;

Tokens Prompt(std::uint32_t seed, std::uint32_t count) {
  Tokens tokens;
  for (std::uint32_t i = 0; i < count; ++i) tokens.push_back(100'000 * seed + i);
  return tokens;
}

class Recorder final : public RankSink {
 public:
  void OnToken(const TokenOutput& output) override {
    std::vector<TokenOutput>& of_request = outputs[output.id];
    EXPECT_EQ(output.index, of_request.size());
    EXPECT_TRUE(of_request.empty() || !of_request.back().last);
    of_request.push_back(output);
    order.push_back(output.id);
  }
  void OnEvents(kv_events::KvBatch batch) override {
    EXPECT_FALSE(batch.events.empty());
    replay.Apply(batch);
    ++batches;
  }
  bool Ended(RequestId id) { return !outputs[id].empty() && outputs[id].back().last; }

  std::map<RequestId, std::vector<TokenOutput>> outputs;
  std::vector<RequestId> order;
  EventReplay replay{kBlock};
  int batches = 0;
};

class SimRankScheduler : public ::testing::Test {
 protected:
  void Make(std::uint32_t device_blocks, std::uint32_t host_blocks = 0,
            std::uint32_t max_tokens_per_batch = 10240, std::uint32_t max_seqs = 64) {
    rank_ = std::make_unique<RankScheduler>(
        SchedulerOptions{.blocks = {.block_size = kBlock,
                                    .device_blocks = device_blocks,
                                    .host_blocks = host_blocks,
                                    .hash_seed = 5},
                         .max_tokens_per_batch = max_tokens_per_batch,
                         .max_seqs_per_batch = max_seqs},
        sink_);
  }
  void TearDown() override { EXPECT_EQ(sink_.replay.complaint(), ""); }

  // Plays until nothing is left to do; returns when that was.
  SimTime RunAll() {
    SimTime last{0};
    while (const auto next = rank_->NextEvent()) {
      last = *next;
      rank_->Advance(last);
    }
    return last;
  }

  Recorder sink_;
  std::unique_ptr<RankScheduler> rank_;
};

TEST_F(SimRankScheduler, FirstTokenAfterThePrefillThenOneAStep) {
  Make(64);
  rank_->Submit(seconds(1), {1, Prompt(1, 100), 3});
  StepWork prefill;
  prefill.AddPrefill(100, 0);
  const SimTime first = seconds(1) + StepTime(prefill);
  EXPECT_EQ(rank_->NextEvent(), first);
  rank_->Advance(first - SimTime(1));
  EXPECT_TRUE(sink_.outputs[1].empty());
  EXPECT_EQ(sink_.batches, 0);
  rank_->Advance(first);
  ASSERT_EQ(sink_.outputs[1].size(), 1U);
  EXPECT_EQ(sink_.batches, 1);
  EXPECT_EQ(rank_->blocks().device_resident(), 6U);
  StepWork decode;
  decode.AddDecode(101);
  EXPECT_EQ(rank_->NextEvent(), first + StepTime(decode));
  RunAll();
  EXPECT_TRUE(sink_.Ended(1));
  EXPECT_EQ(sink_.outputs[1].size(), 3U);
  EXPECT_EQ(rank_->running(), 0U);
  EXPECT_EQ(rank_->blocks().in_use(), 0U);
}

TEST_F(SimRankScheduler, ALateAdvancePlaysEverythingAtItsOwnTime) {
  Make(64);
  rank_->Submit(seconds(0), {1, Prompt(1, 100), 20});
  rank_->Advance(seconds(60));
  EXPECT_TRUE(sink_.Ended(1));
  // A second request at that moment begins then, not earlier and not later.
  rank_->Submit(seconds(60), {2, Prompt(2, 100), 1});
  StepWork prefill;
  prefill.AddPrefill(100, 0);
  EXPECT_EQ(rank_->NextEvent(), seconds(60) + StepTime(prefill));
}

TEST_F(SimRankScheduler, ReportsWhatItFoundCachedAndComputesLess) {
  Make(64);
  rank_->Submit(seconds(0), {1, Prompt(1, 320), 1});
  const SimTime cold = RunAll();
  EXPECT_EQ(sink_.outputs[1][0].cached_tokens, 0U);
  const SimTime start = seconds(10);
  Tokens longer = Prompt(1, 320);
  longer.push_back(7);
  rank_->Submit(start, {2, longer, 1});
  const SimTime warm = RunAll() - start;
  EXPECT_EQ(sink_.outputs[2][0].cached_tokens, 320U);
  EXPECT_LT(warm, cold / 2);
}

TEST_F(SimRankScheduler, AnswersEnterTheCacheToo) {
  Make(64);
  const Tokens prompt = Prompt(1, kBlock);
  rank_->Submit(seconds(0), {1, prompt, 2 * kBlock + 1});
  RunAll();
  Tokens conversation = prompt;
  for (const TokenOutput& output : sink_.outputs[1]) conversation.push_back(output.token);
  // The last token was never computed, the ones before it fill two blocks.
  EXPECT_EQ(rank_->blocks().LongestPrefix(conversation).device_blocks, 3U);
  EXPECT_EQ(conversation[kBlock], GeneratedToken(PromptDigest(prompt), 0));
}

TEST_F(SimRankScheduler, DecodesTogetherWithThePromptsOfOthers) {
  Make(640, 0, 64);
  rank_->Submit(seconds(0), {1, Prompt(1, 32), 10});
  rank_->Advance(*rank_->NextEvent());
  // 200 tokens take four steps next to one decode; the running one goes on meanwhile.
  rank_->Submit(*rank_->NextEvent() - SimTime(1), {2, Prompt(2, 200), 1});
  while (sink_.outputs[2].empty()) rank_->Advance(*rank_->NextEvent());
  EXPECT_EQ(sink_.outputs[1].size(), 6U);
  RunAll();
  EXPECT_TRUE(sink_.Ended(1));
}

TEST_F(SimRankScheduler, AdmitsInOrderOfArrivalUpToItsLimit) {
  Make(640, 0, 10240, 2);
  for (RequestId id = 1; id <= 4; ++id) {
    rank_->Submit(seconds(0), {id, Prompt(static_cast<std::uint32_t>(id), 32), 2});
  }
  EXPECT_EQ(rank_->running(), 1U);  // the others came while its step was under way
  EXPECT_EQ(rank_->waiting(), 3U);
  EXPECT_EQ(rank_->blocks_wanted(), 6U);
  rank_->Advance(*rank_->NextEvent());
  EXPECT_EQ(rank_->running(), 2U);
  EXPECT_EQ(rank_->waiting(), 2U);
  RunAll();
  std::vector<RequestId> firsts;
  for (const RequestId id : sink_.order) {
    if (std::ranges::find(firsts, id) == firsts.end()) firsts.push_back(id);
  }
  EXPECT_EQ(firsts, (std::vector<RequestId>{1, 2, 3, 4}));
  EXPECT_EQ(rank_->blocks_wanted(), 0U);
}

TEST_F(SimRankScheduler, CancelFreesAtOnceWhereverTheRequestIs) {
  Make(8);
  rank_->Submit(seconds(0), {1, Prompt(1, 100), 20});
  rank_->Submit(seconds(0), {2, Prompt(2, 100), 20});
  rank_->Submit(seconds(0), {3, Prompt(3, 100), 1});
  EXPECT_EQ(rank_->waiting(), 2U);
  rank_->Cancel(milliseconds(1), 2);  // waiting
  EXPECT_EQ(rank_->waiting(), 1U);
  rank_->Cancel(milliseconds(1), 1);  // in the middle of its prefill
  EXPECT_EQ(rank_->blocks().in_use(), 0U);
  rank_->Cancel(milliseconds(1), 99);  // never heard of
  RunAll();
  EXPECT_TRUE(sink_.outputs[1].empty());
  EXPECT_TRUE(sink_.outputs[2].empty());
  EXPECT_TRUE(sink_.Ended(3));
}

TEST_F(SimRankScheduler, WithoutRoomTheYoungestStartsAgainAndNobodyIsLost) {
  Make(8);
  rank_->Submit(seconds(0), {1, Prompt(1, 60), 60});
  rank_->Submit(seconds(0), {2, Prompt(2, 60), 60});
  RunAll();
  EXPECT_TRUE(sink_.Ended(1));
  EXPECT_TRUE(sink_.Ended(2));
  EXPECT_EQ(sink_.outputs[2].size(), 60U);
  // Together they need 16 blocks of 8, so the second cannot have run through.
  const auto end_of_first = std::ranges::find(sink_.order.rbegin(), sink_.order.rend(), 1U);
  const auto second_after = std::count(sink_.order.rbegin(), end_of_first, 2U);
  EXPECT_GT(second_after, 20);
  EXPECT_EQ(rank_->blocks().in_use(), 0U);
}

TEST_F(SimRankScheduler, CopiesToHostAndLoadsBackForLessThanComputing) {
  Make(32, 128);
  rank_->Submit(seconds(0), {1, Prompt(1, 30 * kBlock), 1});
  const SimTime cold = *rank_->NextEvent();
  RunAll();
  EXPECT_EQ(rank_->blocks().host_resident(), 30U);
  rank_->Submit(seconds(10), {2, Prompt(2, 30 * kBlock), 1});
  RunAll();
  Tokens again = Prompt(1, 30 * kBlock);
  again.push_back(1);
  EXPECT_EQ(rank_->blocks().LongestPrefix(again).host_blocks, 28U);  // two still fit on Device
  rank_->Submit(seconds(20), {3, again, 1});
  const SimTime warm = *rank_->NextEvent() - seconds(20);
  RunAll();
  EXPECT_EQ(sink_.outputs[3][0].cached_tokens, 30 * kBlock);
  EXPECT_LT(warm, cold / 2);
  StepWork last_token;
  last_token.AddPrefill(1, 30 * kBlock);
  last_token.host_loaded_tokens = 28 * kBlock;
  EXPECT_EQ(warm, StepTime(last_token));
}

// Blocks on their way to Host are free in a moment: nobody must compute again for want of them.
TEST_F(SimRankScheduler, ASequenceWaitsForACopyInsteadOfStartingAgain) {
  Make(8, 16);
  rank_->Submit(seconds(0), {1, Prompt(1, 4 * kBlock - 1), 10});
  rank_->Submit(seconds(0), {2, Prompt(2, 4 * kBlock), 1});
  rank_->Advance(*rank_->NextEvent());
  // The second ends here, all its blocks are being copied, and the first needs its fifth.
  const SimTime end_of_step = *rank_->NextEvent();
  rank_->Advance(end_of_step);
  ASSERT_TRUE(sink_.Ended(2));
  EXPECT_EQ(rank_->blocks().available(), 0U);
  EXPECT_EQ(rank_->running(), 1U);
  EXPECT_EQ(rank_->waiting(), 0U);
  EXPECT_EQ(rank_->NextEvent(), end_of_step + HostCopyTime(4 * kBlock));
  RunAll();
  EXPECT_TRUE(sink_.Ended(1));
}

TEST_F(SimRankScheduler, FlushDeliversWhatTheStepUnderWayHasEvicted) {
  Make(8);
  rank_->Submit(seconds(0), {1, Prompt(1, 8 * kBlock - 1), 1});
  RunAll();
  rank_->Submit(seconds(10), {2, Prompt(2, 4 * kBlock), 1});
  const int before = sink_.batches;
  rank_->FlushEvents();
  EXPECT_EQ(sink_.batches, before + 1);
  EXPECT_EQ(sink_.replay.Residents(), rank_->blocks().ResidentHashes());
  rank_->FlushEvents();
  EXPECT_EQ(sink_.batches, before + 1);
}

// Whatever happens, requests end, nothing leaks, and the events tell what is resident.
TEST_F(SimRankScheduler, SurvivesRandomLoad) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 rng(seed);
    sink_ = Recorder();
    const std::uint32_t device_blocks = 8 + rng() % 40;
    Make(device_blocks, seed % 2 ? rng() % 60 : 0, 64 + rng() % 200, 1 + rng() % 16);
    const std::uint32_t room = device_blocks * kBlock;
    SimTime now{0};
    std::map<RequestId, std::uint32_t> wanted;
    for (RequestId id = 1; id <= 60; ++id) {
      now += milliseconds(rng() % 200);
      const auto length = 1 + static_cast<std::uint32_t>(rng() % (room / 2));
      const auto answer = 1 + static_cast<std::uint32_t>(rng() % (room / 2));
      Tokens prompt = Prompt(static_cast<std::uint32_t>(rng() % 4), length);
      rank_->Submit(now, {id, prompt, answer});
      wanted[id] = answer;
      if (rng() % 4 == 0) {
        now += milliseconds(rng() % 100);
        const RequestId victim = 1 + rng() % id;
        rank_->Advance(now);
        if (!sink_.Ended(victim)) {
          rank_->Cancel(now, victim);
          wanted.erase(victim);
        }
      }
    }
    RunAll();
    for (const auto& [id, answer] : wanted) {
      ASSERT_TRUE(sink_.Ended(id)) << "request " << id;
      ASSERT_EQ(sink_.outputs[id].size(), answer) << "request " << id;
    }
    ASSERT_EQ(rank_->running() + rank_->waiting(), 0U);
    ASSERT_EQ(rank_->blocks().in_use(), 0U);
    ASSERT_EQ(rank_->blocks().copies_waiting(), 0U);
    ASSERT_EQ(rank_->blocks_wanted(), 0U);
    ASSERT_EQ(sink_.replay.complaint(), "");
    ASSERT_EQ(sink_.replay.Residents(), rank_->blocks().ResidentHashes());
  }
}

}  // namespace
}  // namespace xms::sim
