// Reconciliation (D7), where hashes are the same and what they stand for is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "kv_directory/recovery/apply.h"
#include "tests/unit/kv_directory/machine_rig.h"
#include "tests/unit/kv_directory/raw_batch.h"

namespace xms::kv_directory {
namespace {

using kv_events::IgnoreReason;
using model::Tier;
using testing::BigEndian64;
using testing::Expectation;
using testing::Frames;
using ::testing::HasSubstr;
using testing::MakePrompt;
using testing::Tokens;
using testing::raw::Batch;
using testing::raw::BlockTokens;
using testing::raw::Map;
using testing::raw::OneHash;
using testing::raw::Str;
using Millis = std::chrono::milliseconds;
using Seconds = std::chrono::seconds;
using Field = std::pair<std::string, std::string>;

constexpr model::WireHash kHash{0x8877665544332211u};

// kHash stands for the first block of `prompt`, a root.
std::string Store(const Tokens& prompt, const std::vector<Field>& more = {}) {
  std::vector<Field> fields = {{"type", Str("BlockStored")},
                               {"block_hashes", OneHash(kHash)},
                               {"token_ids", BlockTokens(prompt, 0)},
                               {"block_size", "\x04"},
                               {"medium", Str("gpu")}};
  fields.insert(fields.end(), more.begin(), more.end());
  return Map(fields);
}
Frames Live(std::uint64_t sequence, const std::vector<std::string>& events) {
  return {"xllm-kv", BigEndian64(sequence), Batch(events)};
}
std::vector<Frames> Answer(std::uint64_t watermark, const std::vector<std::string>& events) {
  return {{"", BigEndian64(watermark), Batch(events)}, {"", BigEndian64(UINT64_MAX), ""}};
}

class KVDirectoryReconciliationContent : public ::testing::Test {
 protected:
  // Synchronized at 1 with `held` under kHash, and past the second snapshot.
  void Settle(const Tokens& held) {
    rig_.Start();
    rig_.Connect();
    rig_.Ask();
    rig_.Reply(Answer(1, {Store(held)}));
    Reconcile(Answer(1, {Store(held)}));
    ASSERT_TRUE(rig_.Status().synchronized) << rig_.Status().error;
    ASSERT_EQ(rig_.Hits(held), Expectation({4, 0}));
    generation_ = rig_.Status().generation;
  }
  void Reconcile(const std::vector<Frames>& answer) {
    ASSERT_TRUE(rig_.RunUntilExchange(Seconds(31)));
    rig_.Ask();
    rig_.Reply(answer);
  }
  MachineRig rig_;
  std::uint64_t generation_ = 0;
  const Tokens one_ = MakePrompt(1, 1);
  const Tokens two_ = MakePrompt(2, 1);
};

// B5: not plain full attention under this hash any more, said live.
TEST_F(KVDirectoryReconciliationContent, StoreOfAnotherCacheGroupEndsTheCreditOfItsHash) {
  Settle(one_);
  rig_.Deliver(Live(2, {Store(one_, {{"kv_cache_spec_kind", Str("sliding_window")}})}));
  EXPECT_TRUE(rig_.Status().synchronized) << rig_.Status().error;
  EXPECT_EQ(rig_.Hits(one_), Expectation());
}

// And said by a snapshot alone.
TEST_F(KVDirectoryReconciliationContent, SnapshotThatSaysAnotherCacheGroupIsADifference) {
  Settle(one_);
  Reconcile(Answer(1, {Store(one_, {{"kv_cache_spec_kind", Str("sliding_window")}})}));
  EXPECT_TRUE(rig_.Status().synchronized) << rig_.Status().error;
  EXPECT_NE(rig_.Status().generation, generation_);
  EXPECT_EQ(rig_.Hits(one_), Expectation());
}

// B5: xLLM's dialect refuses another geometry, so the batch is made as the others decode it.
TEST_F(KVDirectoryReconciliationContent, IgnoredStoreEndsCreditExactlyIfItSaysOtherContent) {
  const std::vector<std::pair<IgnoreReason, bool>> reasons = {
      {IgnoreReason::kContext, true},
      {IgnoreReason::kCacheGroup, true},
      {IgnoreReason::kGeometry, true},
      {IgnoreReason::kUnknownMedium, false},
  };
  for (const auto& [reason, other] : reasons) {
    SCOPED_TRACE(static_cast<int>(reason));
    MachineRig rig;
    rig.PublishStore(one_);
    rig.Synchronize();
    kv_events::KvBatch batch;
    batch.hashes = testing::HashesOf(one_);
    batch.events.push_back({.kind = kv_events::EventKind::kIgnored,
                            .reason = reason,
                            .ignored_store = true,
                            .hash_count = 1});
    EXPECT_EQ(SaysOtherContent(batch.events[0]), other);
    EXPECT_TRUE(ApplyBatch(batch, *rig.ledger, kv_index::StreamLedger::Orphans::kRefuse).ok());
    EXPECT_EQ(rig.Hits(one_), other ? Expectation() : Expectation({4, 0}));
    batch.events[0].ignored_store = false;  // a removal
    EXPECT_FALSE(SaysOtherContent(batch.events[0]));
  }
}

// D7: the end is the same for both, the way there is not: one of the two was told something wrong.
TEST_F(KVDirectoryReconciliationContent, LiveBatchThatRestatesAHashOfTheSnapshotIsADifference) {
  Settle(one_);
  ASSERT_TRUE(rig_.RunUntilExchange(Seconds(31)));
  rig_.Ask();
  rig_.Deliver(Live(2, {Store(one_)}));
  ASSERT_TRUE(rig_.Status().synchronized) << rig_.Status().error;
  rig_.Reply(Answer(1, {Store(two_)}));
  EXPECT_FALSE(rig_.Status().synchronized) << "applied whole, the two contradict each other";
  EXPECT_THAT(rig_.Status().error,
              HasSubstr("hash 8877665544332211 was stored again with other tokens"));
  EXPECT_EQ(rig_.Hits(one_), Expectation());
  ASSERT_TRUE(rig_.RunUntilExchange(Millis(101)));
  rig_.Ask();
  rig_.Reply(Answer(2, {Store(one_)}));
  EXPECT_EQ(rig_.Hits(one_), Expectation({4, 0}));
}

// D7: damage of the answer, which proves nothing and ends nothing.
TEST_F(KVDirectoryReconciliationContent, SnapshotThatGivesOneHashTwoContentsIsDamage) {
  Settle(one_);
  const auto proven = rig_.now;
  for (const auto& answer :
       {Answer(1, {Store(one_), Store(two_)}), Answer(1, {Store(two_), Store(one_)})}) {
    Reconcile(answer);
    EXPECT_TRUE(rig_.Status().synchronized) << rig_.Status().error;
    EXPECT_EQ(rig_.Status().generation, generation_);
    EXPECT_EQ(rig_.Hits(one_), Expectation({4, 0}));
    EXPECT_EQ(rig_.machine->proven_at(), proven) << "it agrees with nothing";
  }
  const auto damaged = static_cast<std::size_t>(ExchangeOutcome::kDamaged);
  EXPECT_EQ(rig_.metrics.reconciliations[damaged].value(), 2u);
}

}  // namespace
}  // namespace xms::kv_directory
