// Reconciliation (D7), driven without sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kv_directory/recovery/stream_machine.h"
#include "kv_events/encoder.h"
#include "tests/unit/kv_directory/machine_rig.h"

namespace xms::kv_directory {
namespace {

using model::Tier;
using testing::BigEndian64;
using testing::Expectation;
using testing::Frames;
using ::testing::HasSubstr;
using testing::MakePrompt;
using testing::Tokens;
using Millis = std::chrono::milliseconds;
using Seconds = std::chrono::seconds;

class KVDirectoryReconciliation : public ::testing::Test {
 protected:
  // Synchronized, and past the second snapshot.
  void Settle(MachineRig& rig) {
    rig.Synchronize();
    ASSERT_TRUE(rig.RunUntilExchange(Millis(501)));
    rig.StartExchangeAndAnswer();
    ASSERT_TRUE(rig.Status().synchronized);
  }
  const Tokens prompt_ = MakePrompt(1, 8);
};

TEST_F(KVDirectoryReconciliation, SecondSnapshotFollowsSoonThenOnePerInterval) {
  MachineRig rig;
  rig.Synchronize();
  const auto synchronized = rig.now;
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(1)));
  EXPECT_GE(base::MillisBetween(synchronized, rig.now), 200);
  EXPECT_LE(base::MillisBetween(synchronized, rig.now), 501);
  rig.StartExchangeAndAnswer();
  for (int i = 0; i < 3; ++i) {
    const auto last = rig.now;
    ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
    EXPECT_GE(base::MillisBetween(last, rig.now), 27000);
    EXPECT_LE(base::MillisBetween(last, rig.now), 30001);
    rig.StartExchangeAndAnswer();
  }
}

// D7
TEST_F(KVDirectoryReconciliation, EqualSnapshotChangesNothing) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.Publish(rig.truth.NewBatch().Replicate(Tier::kHost, prompt_, 0, 3));
  Settle(rig);
  const std::uint64_t generation = rig.Status().generation;
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.StartExchangeAndAnswer();
  EXPECT_EQ(rig.Status().generation, generation);
  EXPECT_EQ(rig.changes.size(), 1u) << "and is no news";
}

// D7
TEST_F(KVDirectoryReconciliation, LostTailIsFoundAndAppliedUnderANewGeneration) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  Settle(rig);
  const std::uint64_t generation = rig.Status().generation;
  rig.Publish(rig.truth.NewBatch().Remove(Tier::kDevice, prompt_, 4));  // lost
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0})) << "nobody can know yet";
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.StartExchangeAndAnswer();
  rig.Run(Millis(100));
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.Status().sequence.value, 2u);
  EXPECT_NE(rig.Status().generation, generation);
  EXPECT_EQ(rig.Hits(prompt_), Expectation({16, 0}));
  rig.Deliver(rig.PublishStore(prompt_));
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0})) << "3 follows on 2";
}

TEST_F(KVDirectoryReconciliation, SnapshotThatOvertookItsLiveBatchesIsNoLostTail) {
  MachineRig rig;
  Settle(rig);
  const std::uint64_t generation = rig.Status().generation;
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  const Frames first = rig.PublishStore(prompt_);
  const Frames second = rig.PublishStore(MakePrompt(2, 1));
  rig.StartExchangeAndAnswer();
  rig.Run(Millis(50));
  rig.Deliver(first);
  rig.Deliver(second);
  rig.Run(Seconds(1));
  EXPECT_EQ(rig.Status().generation, generation);
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

// D7
// C02: an idle engine was emptied and has not said so.
TEST_F(KVDirectoryReconciliation, OtherContentAtTheSameSequenceIsReplaced) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  Settle(rig);
  rig.truth.Forget();
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.StartExchangeAndAnswer();
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.Status().sequence.value, 1u);
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
}

// D7, C2. A busy engine demotes at any moment: a block that has left Device, and comes back on Host by
// its hash alone, is in no snapshot between the two. It must neither hide a difference nor be lost to
// one.
TEST_F(KVDirectoryReconciliation, BlocksOnTheirWayBetweenTiersHideNoDifference) {
  MachineRig rig;
  const Tokens demoted[] = {MakePrompt(2, 2), MakePrompt(3, 2)};
  rig.PublishStore(prompt_);
  for (const Tokens& prompt : demoted) rig.PublishStore(prompt);
  Settle(rig);
  rig.truth.Apply(rig.truth.NewBatch().Remove(Tier::kDevice, prompt_).batch());  // in silence
  for (const Tokens& prompt : demoted) {
    rig.Deliver(rig.Publish(rig.truth.NewBatch().Remove(Tier::kDevice, prompt)));
  }
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.Ask();
  const auto answer = rig.Answer();
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Replicate(Tier::kHost, demoted[0])));
  rig.Reply(answer);
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
  EXPECT_EQ(rig.Hits(demoted[0]), Expectation({0, 8}));
  // Known from before the snapshot that was applied.
  const std::uint64_t generation = rig.Status().generation;
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Replicate(Tier::kHost, demoted[1])));
  EXPECT_EQ(rig.Hits(demoted[1]), Expectation({0, 8}));
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.StartExchangeAndAnswer();
  EXPECT_EQ(rig.Status().generation, generation) << "nothing differs any more";
}

// The same hashes in the same tiers, standing for other tokens.
TEST_F(KVDirectoryReconciliation, OtherTokensUnderTheSameHashesAreADifference) {
  MachineRig rig;
  const Tokens other = MakePrompt(9, 8);
  Settle(rig);
  const auto batch = rig.truth.NewBatch().Store(Tier::kDevice, prompt_);
  rig.Publish(batch);
  // What came live: the published hashes with other tokens, damage that decodes.
  kv_events::KvBatch wrong = batch.batch();
  ASSERT_EQ(wrong.tokens.size(), other.size());
  wrong.tokens.assign(other.begin(), other.end());
  std::vector<std::byte> bytes;
  kv_events::EncodeBatch(wrong, 4, bytes);
  rig.Deliver({"xllm-kv", BigEndian64(1),
               std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
  ASSERT_EQ(rig.Hits(other), Expectation({32, 0}));
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.StartExchangeAndAnswer();
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.Hits(other), Expectation());
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
  const std::uint64_t generation = rig.Status().generation;
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.StartExchangeAndAnswer();
  EXPECT_EQ(rig.Status().generation, generation) << "now they agree";
}

TEST_F(KVDirectoryReconciliation, OrphanThatTheLedgerStillIndexesIsNoDifference) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  Settle(rig);
  // The first block goes; the snapshot has the others as orphans, the ledger knows them.
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Remove(Tier::kDevice, MakePrompt(1, 1))));
  ASSERT_EQ(rig.Hits(prompt_), Expectation());
  const std::uint64_t generation = rig.Status().generation;
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.StartExchangeAndAnswer();
  EXPECT_EQ(rig.Status().generation, generation);
  rig.Deliver(rig.PublishStore(MakePrompt(1, 1)));
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

TEST_F(KVDirectoryReconciliation, BatchesSinceTheRequestAreComparedAndKept) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  Settle(rig);
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.Ask();
  const auto equal = rig.Answer();
  rig.Deliver(rig.PublishStore(MakePrompt(2, 2)));
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Remove(Tier::kDevice, prompt_, 6)));
  const std::uint64_t generation = rig.Status().generation;
  rig.Reply(equal);
  EXPECT_EQ(rig.Status().generation, generation);

  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.Ask();
  testing::KvTruth other = rig.truth;
  other.Apply(other.NewBatch().Remove(Tier::kDevice, MakePrompt(2, 2), 1).batch());
  const auto different = other.SnapshotAnswer(rig.next_sequence - 1);
  rig.Deliver(rig.PublishStore(MakePrompt(3, 2)));
  rig.Reply(different);
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.Status().sequence.value, 4u);
  EXPECT_EQ(rig.Hits(MakePrompt(2, 2)), Expectation({4, 0})) << "what the snapshot says";
  EXPECT_EQ(rig.Hits(MakePrompt(3, 2)), Expectation({8, 0})) << "and what came after it";
}

TEST_F(KVDirectoryReconciliation, DemotedBlockThatTheSnapshotDoesNotKnowIsNoDifference) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  Settle(rig);
  // Between the removal and the replica the block is nowhere, and in no snapshot.
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Remove(Tier::kDevice, prompt_)));
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.Ask();
  const auto answer = rig.Answer();
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Replicate(Tier::kHost, prompt_)));
  ASSERT_EQ(rig.Hits(prompt_), Expectation({0, 32}));
  const std::uint64_t generation = rig.Status().generation;
  rig.Reply(answer);
  EXPECT_EQ(rig.Status().generation, generation);
  EXPECT_EQ(rig.Hits(prompt_), Expectation({0, 32}));
}

// Removed blocks must not come back with an answer from before their removal.
TEST_F(KVDirectoryReconciliation, SnapshotFromBeforeWhatWasAppliedIsADoubtAndIsNeverApplied) {
  for (const bool covered : {false, true}) {  // the removal came live, or with a snapshot
    MachineRig rig;
    rig.PublishStore(prompt_);
    const auto stale = rig.Answer();
    if (!covered) Settle(rig);
    const Frames removal = rig.Publish(rig.truth.NewBatch().Remove(Tier::kDevice, prompt_));
    if (covered) {
      Settle(rig);
    } else {
      rig.Deliver(removal);
    }
    for (int attempt = 0; attempt < 4; ++attempt) {
      ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
      rig.Ask();
      rig.Reply(stale);
      EXPECT_FALSE(rig.Status().synchronized) << attempt << covered;
      EXPECT_EQ(rig.Hits(prompt_), Expectation()) << attempt << covered;
      if (attempt == 0) {
        // The connection is renewed, and nothing is forgotten by that.
        ASSERT_TRUE(rig.RunUntilSubscribing(Seconds(1)));
        rig.Connect();
      }
    }
    EXPECT_THAT(rig.Status().error,
                HasSubstr("the snapshot ends at 1, but batch 2 was known before"));
    ASSERT_TRUE(rig.RunUntilExchange(Seconds(6)));
    rig.StartExchangeAndAnswer();
    EXPECT_TRUE(rig.Status().synchronized);
    EXPECT_EQ(rig.Hits(prompt_), Expectation());
  }
}

TEST_F(KVDirectoryReconciliation, TimeoutAndDamageLeaveTheStreamAsItIs) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  Settle(rig);
  const std::uint64_t generation = rig.Status().generation;
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.Ask();
  rig.Run(Seconds(3));
  EXPECT_FALSE(rig.exchange_open);
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.Ask();
  rig.Reply(Frames{"", BigEndian64(1), "\xc1"});
  EXPECT_FALSE(rig.exchange_open);
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.machine->OnExchangeLost(LossCause::kUnreachable, rig.now);
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.Status().generation, generation);
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

// D7: "the age of the proof"
TEST_F(KVDirectoryReconciliation, OnlyAnAnsweredReconciliationRenewsTheProof) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  Settle(rig);
  EXPECT_EQ(rig.machine->proven_at(), rig.now);
  const auto proven = rig.now;
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.Ask();
  rig.Run(Seconds(3));  // no answer
  rig.Deliver(rig.PublishStore(MakePrompt(2, 1)));
  EXPECT_EQ(rig.machine->proven_at(), proven) << "a live batch proves nothing";
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.Ask();
  rig.Reply(Frames{"", BigEndian64(1), "\xc1"});
  EXPECT_EQ(rig.machine->proven_at(), proven);
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.StartExchangeAndAnswer();
  EXPECT_EQ(rig.machine->proven_at(), rig.now) << "equal";
  rig.truth.Forget();
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.StartExchangeAndAnswer();
  EXPECT_EQ(rig.machine->proven_at(), rig.now) << "different";
}

TEST_F(KVDirectoryReconciliation, OverflowOfTheLogAbandonsTheComparisonOnly) {
  MachineRig::Options options;
  options.limits.max_buffered_bytes = 4096;
  MachineRig rig(options);
  Settle(rig);
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.Ask();
  for (int i = 0; i < 40; ++i) rig.Deliver(rig.PublishStore(MakePrompt(100 + i, 4)));
  EXPECT_FALSE(rig.exchange_open);
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.Hits(MakePrompt(139, 4)), Expectation({16, 0}));
}

TEST_F(KVDirectoryReconciliation, GapDuringAReconciliationIsAGap) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  Settle(rig);
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.Ask();
  const auto answer = rig.Answer();
  ++rig.next_sequence;
  rig.Deliver(rig.PublishStore(MakePrompt(2, 1)));
  EXPECT_FALSE(rig.Status().synchronized);
  rig.Reply(answer);
  EXPECT_FALSE(rig.Status().synchronized);
}

// D7
TEST_F(KVDirectoryReconciliation, WatermarkThatMovesTwiceInSilenceCondemnsTheSubscription) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.Synchronize();
  const auto reconcile = [&] {
    ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
    rig.StartExchangeAndAnswer();
    rig.Run(Millis(100));
  };
  rig.Deliver({"xllm-kv2", BigEndian64(1), ""});
  rig.Deliver({"xllm-kv2", BigEndian64(2), ""});
  rig.PublishStore(MakePrompt(2, 1));
  reconcile();
  EXPECT_TRUE(rig.Status().synchronized) << "one lost tail is repaired, and nothing more";
  EXPECT_EQ(rig.Hits(MakePrompt(2, 1)), Expectation({4, 0}));
  rig.PublishStore(MakePrompt(3, 1));
  reconcile();
  EXPECT_FALSE(rig.Status().synchronized);
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
  EXPECT_EQ(rig.Status().error,
            "connected to tcp://engine:18000, watermark moved 1 → 3, topic xllm-kv never seen, "
            "xllm-kv2 seen 2 times; check topic and event port");
  rig.Run(Seconds(120));
  EXPECT_FALSE(rig.exchange_open) << "until a live batch arrives";
  rig.Deliver(rig.PublishStore(MakePrompt(4, 1)));
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(6)));
  rig.StartExchangeAndAnswer();
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.Hits(MakePrompt(4, 1)), Expectation({4, 0}));
}

TEST_F(KVDirectoryReconciliation, QuietBetweenTwoMovesAcquitsTheSubscription) {
  MachineRig rig;
  rig.Synchronize();
  for (int i = 0; i < 3; ++i) {
    rig.PublishStore(MakePrompt(10 + i, 1));  // lost
    for (int twice = 0; twice < 2; ++twice) {
      ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
      rig.StartExchangeAndAnswer();
      rig.Run(Millis(100));
    }
    EXPECT_TRUE(rig.Status().synchronized) << i;
  }
}

TEST_F(KVDirectoryReconciliation, LostTailsOfAStreamThatWasHeardAreOnlyRepaired) {
  MachineRig rig;
  rig.Synchronize();
  rig.Deliver(rig.PublishStore(prompt_));
  for (int i = 0; i < 4; ++i) {
    rig.PublishStore(MakePrompt(10 + i, 1));  // lost
    ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
    rig.StartExchangeAndAnswer();
    rig.Run(Millis(100));
    EXPECT_TRUE(rig.Status().synchronized) << i;
    EXPECT_EQ(rig.Hits(MakePrompt(10 + i, 1)), Expectation({4, 0})) << i;
  }
}

}  // namespace
}  // namespace xms::kv_directory
