// StreamMachine: connections, first synchronization, gaps and restarts (D2, D6).
#include "kv_directory/recovery/stream_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/kv_directory/machine_rig.h"

namespace xms::kv_directory {
namespace {

using model::Tier;
using testing::BigEndian64;
using testing::Encode;
using testing::Expectation;
using testing::Frames;
using ::testing::HasSubstr;
using testing::MakePrompt;
using testing::Tokens;
using Millis = std::chrono::milliseconds;
using Seconds = std::chrono::seconds;

class KVDirectoryMachine : public ::testing::Test {
 protected:
  const Tokens prompt_ = MakePrompt(1, 8);
};

// --- first synchronization (D2)

// D5
TEST_F(KVDirectoryMachine, FirstSynchronizationTakesASnapshotHoweverWholeTheLiveStreamLooks) {
  MachineRig rig;
  rig.Start();
  EXPECT_EQ(rig.subscriptions, 1);
  EXPECT_EQ(rig.exchanges, 0) << "no snapshot before the subscription stands";
  rig.Connect();
  EXPECT_EQ(rig.exchanges, 1);
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Clear().Store(Tier::kDevice, prompt_)));
  EXPECT_FALSE(rig.Status().synchronized) << "D5 needs an earlier snapshot";
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
  rig.StartExchangeAndAnswer();
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.Status().sequence.value, 1u);
  EXPECT_EQ(rig.Status().error, "");
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

// D2
TEST_F(KVDirectoryMachine, BatchesDuringRecoveryAreAppliedAfterTheSnapshotWithoutWhatItCovers) {
  MachineRig rig;
  rig.Deliver({});  // before Start: ignored
  rig.PublishStore(MakePrompt(2, 2));
  rig.Start();
  rig.Connect();
  rig.Ask();
  rig.Deliver(rig.PublishStore(MakePrompt(3, 2)));  // 2: in the snapshot too
  const auto answer = rig.Answer();
  rig.Deliver(rig.PublishStore(prompt_));  // 3: after it
  rig.Reply(answer);
  ASSERT_TRUE(rig.Status().synchronized) << rig.Status().error;
  EXPECT_EQ(rig.Status().sequence.value, 3u);
  for (const Tokens& prompt : {MakePrompt(2, 2), MakePrompt(3, 2), prompt_}) {
    EXPECT_EQ(rig.Hits(prompt), rig.truth.Expected(prompt));
  }
}

TEST_F(KVDirectoryMachine, NothingOfASnapshotShowsBeforeItsTerminator) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.Start();
  rig.Connect();
  rig.Ask();
  const auto answer = rig.Answer(2);
  rig.Reply(answer[0]);
  rig.Reply(answer[1]);
  EXPECT_FALSE(rig.Status().synchronized);
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
  rig.Reply(answer[2]);
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

TEST_F(KVDirectoryMachine, LiveBatchesOfTheSnapshotThatComeLateAreDropped) {
  MachineRig rig;
  rig.PublishStore(MakePrompt(2, 1));
  const Frames late = rig.PublishStore(prompt_);
  rig.Publish(rig.truth.NewBatch().Remove(Tier::kDevice, prompt_));
  rig.Synchronize();
  rig.Deliver(late);  // sequence 2 of a snapshot up to 3
  EXPECT_TRUE(rig.Status().synchronized) << "not seen on this connection, so no restart";
  EXPECT_EQ(rig.Hits(prompt_), Expectation()) << "and not applied either";
  rig.Deliver(rig.PublishStore(prompt_));
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

// D2
TEST_F(KVDirectoryMachine, GapInsideTheBufferFailsThatRecovery) {
  MachineRig rig;
  rig.Start();
  rig.Connect();
  rig.Ask();
  const auto answer = rig.Answer();
  rig.Deliver(rig.PublishStore(prompt_));
  rig.PublishStore(MakePrompt(2, 1));
  rig.Deliver(rig.PublishStore(MakePrompt(3, 1)));
  rig.Reply(answer);
  EXPECT_FALSE(rig.Status().synchronized);
  ASSERT_TRUE(rig.RunUntilExchange(Millis(101)));
  rig.StartExchangeAndAnswer();
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.Hits(MakePrompt(2, 1)), Expectation({4, 0}));
}

TEST_F(KVDirectoryMachine, DamageInTheBufferCountsOnlyBeyondTheWatermark) {
  for (const bool covered : {true, false}) {
    MachineRig rig;
    rig.Start();
    rig.Connect();
    rig.Ask();
    const auto early = rig.Answer();
    Frames damaged = rig.PublishStore(prompt_);
    damaged[2].pop_back();
    rig.Deliver(damaged);
    EXPECT_FALSE(rig.Status().synchronized);
    rig.Reply(covered ? rig.Answer() : early);
    EXPECT_EQ(rig.Status().synchronized, covered) << rig.Status().error;
    EXPECT_THAT(rig.Status().error, HasSubstr(covered ? "" : "truncated"));
  }
}

// --- gaps, restarts, damage (D6): zero hits within the input that raised the doubt

// D6
TEST_F(KVDirectoryMachine, GapUnsynchronizesAtOnceAndIsRepairedByASnapshot) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.Synchronize();
  rig.PublishStore(MakePrompt(2, 1));
  rig.PublishStore(MakePrompt(3, 1));
  rig.Deliver(rig.PublishStore(MakePrompt(4, 1)));
  EXPECT_FALSE(rig.Status().synchronized);
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
  EXPECT_EQ(rig.Status().error, "batches 2 to 3 never came, 4 did");
  EXPECT_EQ(rig.Status().sequence.value, 1u) << "the last indexed one stays";
  EXPECT_EQ(rig.Status().device_blocks, 0u);
  EXPECT_EQ(rig.ledger->mappings(), 0u) << "memory is given back";
  ASSERT_TRUE(rig.RunUntilExchange(Millis(101)));
  rig.StartExchangeAndAnswer();
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
  EXPECT_EQ(rig.Hits(MakePrompt(2, 1)), Expectation({4, 0}));
}

// D2
TEST_F(KVDirectoryMachine, SequenceThatGoesBackIsARestart) {
  MachineRig rig;
  rig.Synchronize();
  for (int i = 0; i < 5; ++i) rig.Deliver(rig.PublishStore(MakePrompt(10 + i, 1)));
  ASSERT_EQ(rig.Hits(MakePrompt(10, 1)), Expectation({4, 0}));
  rig.truth.Forget();
  rig.next_sequence = 1;
  rig.Deliver(rig.PublishStore(MakePrompt(20, 1)));
  EXPECT_FALSE(rig.Status().synchronized);
  EXPECT_THAT(rig.Status().error, HasSubstr("went back from sequence 5 to 1"));
  EXPECT_EQ(rig.Hits(MakePrompt(10, 1)), Expectation());
  EXPECT_FALSE(rig.Status().sequence_valid) << "nothing of the new life is indexed yet";
  ASSERT_TRUE(rig.RunUntilExchange(Millis(101)));
  rig.StartExchangeAndAnswer();
  EXPECT_EQ(rig.Hits(MakePrompt(10, 1)), Expectation());
  EXPECT_EQ(rig.Hits(MakePrompt(20, 1)), Expectation({4, 0}));
  EXPECT_EQ(rig.Status().sequence.value, 1u);
}

TEST_F(KVDirectoryMachine, DuplicateOfTheLastBatchIsARestartToo) {
  MachineRig rig;
  rig.Synchronize();
  const Frames batch = rig.PublishStore(prompt_);
  rig.Deliver(batch);
  rig.Deliver(batch);
  EXPECT_FALSE(rig.Status().synchronized);
}

// On a connection that stands only a live sequence that goes back proves a restart (D2). A snapshot
// that is too old is asked for again, on a new connection, and not believed because it is repeated.
TEST_F(KVDirectoryMachine, SnapshotOlderThanWhatCameBeforeItsRequestIsNotBelieved) {
  MachineRig rig;
  rig.Synchronize();
  for (int i = 0; i < 5; ++i) rig.Deliver(rig.PublishStore(MakePrompt(10 + i, 1)));
  const auto stale = rig.Answer();
  rig.next_sequence += 1;  // something is lost
  rig.Deliver(rig.PublishStore(MakePrompt(15, 1)));
  for (int attempt = 0; attempt < 4; ++attempt) {
    if (!rig.subscription_open) {
      ASSERT_TRUE(rig.RunUntilSubscribing(Seconds(1)));
      rig.Connect();
    }
    ASSERT_TRUE(rig.RunUntilExchange(Seconds(1)));
    rig.Ask();
    rig.Reply(stale);
    EXPECT_FALSE(rig.Status().synchronized) << "attempt " << attempt;
    EXPECT_EQ(rig.Hits(MakePrompt(10, 1)), Expectation()) << "attempt " << attempt;
  }
  EXPECT_THAT(rig.Status().error,
              HasSubstr("the snapshot ends at 5, but batch 7 was known before it was asked for"));
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(6)));
  rig.StartExchangeAndAnswer();
  EXPECT_TRUE(rig.Status().synchronized) << rig.Status().error;
  EXPECT_EQ(rig.Hits(MakePrompt(15, 1)), Expectation({4, 0}));
}

TEST_F(KVDirectoryMachine, LowerWatermarkIsBelievedAfterALiveSequenceWentBackOrAReconnect) {
  for (const bool reconnect : {false, true}) {
    MachineRig rig;
    rig.Synchronize();
    for (int i = 0; i < 5; ++i) rig.Deliver(rig.PublishStore(MakePrompt(10 + i, 1)));
    rig.truth.Forget();
    rig.next_sequence = 1;
    if (reconnect) {
      rig.PublishStore(MakePrompt(20, 1));  // before we are back
      rig.Disconnect();
      ASSERT_TRUE(rig.RunUntilSubscribing(Millis(101)));
      rig.Connect();
    } else {
      rig.Deliver(rig.PublishStore(MakePrompt(20, 1)));
    }
    ASSERT_TRUE(rig.RunUntilExchange(Millis(101)));
    rig.StartExchangeAndAnswer();
    EXPECT_TRUE(rig.Status().synchronized) << reconnect << rig.Status().error;
    EXPECT_EQ(rig.Status().sequence.value, 1u) << reconnect;
    EXPECT_EQ(rig.Hits(MakePrompt(20, 1)), Expectation({4, 0})) << reconnect;
  }
}

// What a snapshot covered is old news even when it would say everything (D5).
TEST_F(KVDirectoryMachine, FullLiveBatchThatASnapshotCoveredRestoresNothing) {
  MachineRig rig;
  const Frames early = rig.Publish(rig.truth.NewBatch().Clear().Store(Tier::kDevice, prompt_));
  rig.Publish(rig.truth.NewBatch().Remove(Tier::kDevice, prompt_));
  rig.Synchronize();
  ++rig.next_sequence;
  ASSERT_TRUE(rig.RunUntilExchange(Millis(501)));
  // A conflict-free doubt that leaves last_seen alone: a message of a wrong shape.
  rig.Deliver({"xllm-kv", BigEndian64(3).substr(4), ""});
  ASSERT_FALSE(rig.Status().synchronized);
  rig.Deliver(early);
  EXPECT_FALSE(rig.Status().synchronized);
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
}

// B1, D6
TEST_F(KVDirectoryMachine, EveryMalformedLiveMessageUnsynchronizes) {
  struct Case {
    Frames frames;
    std::string error;
  };
  const std::string good = Encode(testing::KvBatchBuilder());
  const std::vector<Case> cases = {
      {{"xllm-kv", BigEndian64(1)}, "live message of 2 frames published, 3 are expected"},
      {{"xllm-kv"}, "live message of 1 frames published"},
      {{"xllm-kv", BigEndian64(1), good, ""}, "live message of 4 frames published"},
      {{"xllm-kv", BigEndian64(1).substr(4), good}, "live sequence of 4 bytes published"},
      {{"xllm-kv", BigEndian64(UINT64_MAX), good}, "live sequence 2^64-1 published"},
      {{"xllm-kv", BigEndian64(1), ""}, "empty"},
      {{"xllm-kv", BigEndian64(1), "\xc1"}, "at byte 0"},
      {{"xllm-kv", BigEndian64(1), Encode(testing::KvBatchBuilder(4, 3))}, "rank 3"},
      {{"xllm-kv", BigEndian64(1),
        Encode(testing::KvBatchBuilder(8).Store(Tier::kDevice, prompt_))},
       "block_size 8 published, 4 configured"},
  };
  for (const Case& c : cases) {
    MachineRig rig;
    rig.PublishStore(prompt_);
    rig.next_sequence = 1;  // as if batch 0 had been it
    rig.Synchronize();
    ASSERT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
    rig.Deliver(c.frames);
    EXPECT_FALSE(rig.Status().synchronized) << c.error;
    EXPECT_THAT(rig.Status().error, HasSubstr(c.error));
    EXPECT_EQ(rig.Hits(prompt_), Expectation());
  }
}

// B1
// A16
TEST_F(KVDirectoryMachine, OtherTopicsAreDroppedBeforeTheirSequenceIsLookedAt) {
  MachineRig rig;
  rig.Synchronize();
  rig.Deliver({"xllm-kv2", BigEndian64(77), "nonsense"});
  rig.Deliver({"xllm-kv2"});
  EXPECT_TRUE(rig.Status().synchronized);
  rig.Deliver(rig.PublishStore(prompt_));
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

// D6
TEST_F(KVDirectoryMachine, DisconnectTakesTheCreditBeforeItsCauseIsKnown) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.Synchronize();
  rig.machine->OnSubscriptionInterrupted(rig.now);
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
  rig.Run(Millis(100));
  EXPECT_EQ(rig.exchanges, 1) << "nothing is asked over a broken connection";
  rig.machine->OnSubscriptionLost(LossCause::kOversize, rig.now);
  EXPECT_EQ(rig.Status().error,
            "the connection to tcp://engine:18000 ended on a message over 16777216 bytes, size "
            "unknown (or on bytes that are not ZeroMQ); raise max_message_bytes 8388608 to at "
            "least 17000000");
  ASSERT_TRUE(rig.RunUntilSubscribing(Millis(101)));
  rig.Connect();
  rig.StartExchangeAndAnswer();
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

TEST_F(KVDirectoryMachine, ReconnectedStreamForgetsWhatItSawOnTheOldConnection) {
  MachineRig rig;
  rig.Synchronize();
  for (int i = 0; i < 5; ++i) rig.Deliver(rig.PublishStore(MakePrompt(10 + i, 1)));
  rig.Disconnect();
  // A new process: empty, from 1 again.
  rig.truth.Forget();
  rig.next_sequence = 1;
  ASSERT_TRUE(rig.RunUntilSubscribing(Millis(101)));
  rig.Connect();
  rig.Deliver(rig.PublishStore(prompt_));
  rig.StartExchangeAndAnswer();
  EXPECT_TRUE(rig.Status().synchronized) << rig.Status().error;
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
  EXPECT_EQ(rig.Hits(MakePrompt(10, 1)), Expectation());
}

// On a connection that stands, a restarted publisher's first batches look like late ones that the
// snapshot covered. A connection of our own making tells them apart.
class KVDirectoryMachineRenewal : public ::testing::Test {
 protected:
  // Synchronized at 10 by a snapshot alone; then the publisher begins anew and says nothing, and a
  // reconciliation finds its snapshot, which looks old.
  static void BeginAnewUnheard(MachineRig& rig) {
    for (int i = 0; i < 10; ++i) rig.PublishStore(MakePrompt(10 + i, 1));
    rig.Synchronize();
    rig.truth.Forget();
    rig.next_sequence = 1;
    ASSERT_TRUE(rig.RunUntilExchange(Millis(501)));
    rig.StartExchangeAndAnswer();
    ASSERT_FALSE(rig.Status().synchronized);
    ASSERT_FALSE(rig.subscription_open) << "the stream renews its connection";
  }
  static void Reconnect(MachineRig& rig) {
    ASSERT_TRUE(rig.RunUntilSubscribing(Seconds(2)));
    rig.Connect();
    ASSERT_TRUE(rig.RunUntilExchange(Seconds(2)));
  }
  void SetUp() override { BeginAnewUnheard(rig_); }

  MachineRig rig_;
};

TEST_F(KVDirectoryMachineRenewal,
       QuietPublisherIsBelievedWhenItsOldSnapshotHasStoodForFiveSeconds) {
  const Tokens prompt = MakePrompt(20, 2);
  rig_.PublishStore(prompt);  // unheard: before the connection is renewed
  Reconnect(rig_);
  const base::SteadyTime first = rig_.now;
  int attempts = 0;
  while (!rig_.Status().synchronized) {
    ASSERT_LT(++attempts, 12);
    ASSERT_TRUE(rig_.RunUntilExchange(Seconds(6)));
    rig_.StartExchangeAndAnswer();
    EXPECT_EQ(rig_.Status().synchronized, rig_.now - first >= Seconds(5)) << attempts;
    if (rig_.Status().synchronized) break;
    EXPECT_THAT(rig_.Status().error, HasSubstr("the snapshot ends at 1, but batch 10 was known"));
  }
  EXPECT_GT(attempts, 3);
  EXPECT_EQ(rig_.subscriptions, 2) << "another connection would tell nothing more";
  EXPECT_EQ(rig_.Hits(prompt), Expectation({8, 0}));
  EXPECT_EQ(rig_.Hits(MakePrompt(10, 1)), Expectation());
}

TEST_F(KVDirectoryMachineRenewal, OldSnapshotsThatMoveAreStillLaggingBehind) {
  Reconnect(rig_);
  for (int attempt = 0; attempt < 9; ++attempt) {
    ASSERT_TRUE(rig_.RunUntilExchange(Seconds(6)));
    rig_.Ask();
    rig_.Reply(rig_.truth.SnapshotAnswer(1 + attempt));
    EXPECT_FALSE(rig_.Status().synchronized) << attempt;
  }
}

TEST_F(KVDirectoryMachineRenewal, RestartedPublisherIsBelievedFromItsFirstLiveBatch) {
  Reconnect(rig_);
  const Tokens prompt = MakePrompt(20, 2);
  rig_.Deliver(rig_.PublishStore(prompt));
  EXPECT_THAT(rig_.Status().error, HasSubstr("went back from sequence 10 to 1"));
  ASSERT_TRUE(rig_.RunUntilExchange(Millis(201)));
  rig_.StartExchangeAndAnswer();
  EXPECT_TRUE(rig_.Status().synchronized) << rig_.Status().error;
  EXPECT_EQ(rig_.Hits(prompt), Expectation({8, 0}));
  EXPECT_EQ(rig_.Hits(MakePrompt(10, 1)), Expectation());
}

TEST_F(KVDirectoryMachineRenewal, SnapshotAskedForBeforeThatBatchIsNotBelieved) {
  Reconnect(rig_);
  rig_.Ask();
  const auto early = rig_.truth.SnapshotAnswer(5);
  rig_.Deliver(rig_.PublishStore(MakePrompt(20, 2)));
  rig_.Reply(early);
  EXPECT_FALSE(rig_.Status().synchronized);
}

TEST_F(KVDirectoryMachineRenewal, SnapshotAtTheOldWatermarkOrBeyondIsTakenAsUsual) {
  rig_.next_sequence = 11;
  rig_.PublishStore(MakePrompt(20, 2));
  Reconnect(rig_);
  rig_.StartExchangeAndAnswer();
  EXPECT_TRUE(rig_.Status().synchronized) << rig_.Status().error;
  EXPECT_EQ(rig_.Hits(MakePrompt(20, 2)), Expectation({8, 0}));
}

TEST_F(KVDirectoryMachineRenewal, ConnectionThatThePeerEndsOrRefusesForgetsTheOldWatermark) {
  for (const bool refused : {false, true}) {
    MachineRig rig;
    BeginAnewUnheard(rig);
    ASSERT_TRUE(rig.RunUntilSubscribing(Millis(101)));
    if (refused) {
      rig.machine->OnSubscriptionLost(LossCause::kUnreachable, rig.now);
    } else {
      rig.Connect();
      rig.Disconnect();
    }
    Reconnect(rig);
    rig.StartExchangeAndAnswer();
    EXPECT_TRUE(rig.Status().synchronized) << refused << rig.Status().error;
  }
}

// The same in little: what was synchronized asks early when a batch that was covered comes very late.
TEST_F(KVDirectoryMachine, CoveredBatchLongAfterTheSnapshotAsksForAnotherOnce) {
  MachineRig rig;
  for (int i = 0; i < 5; ++i) rig.PublishStore(MakePrompt(10 + i, 1));
  rig.Synchronize();
  ASSERT_TRUE(rig.RunUntilExchange(Millis(501)));
  rig.StartExchangeAndAnswer();
  const auto deliver = [&](std::uint64_t sequence) {
    rig.Deliver({"xllm-kv", BigEndian64(sequence), Encode(rig.truth.NewBatch())});
    rig.Run(Millis(2));
  };
  deliver(2);
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.exchanges, 3);
  rig.StartExchangeAndAnswer();
  deliver(3);
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.exchanges, 3) << "once in resync_interval_ms";
}

// --- connecting

TEST_F(KVDirectoryMachine, UnreachablePublisherIsNamedWithHowLongAndTriedAgain) {
  MachineRig rig;
  rig.Start();
  EXPECT_EQ(rig.Status().error, "connecting to tcp://engine:18000");
  const auto started = rig.now;
  while (rig.now - started < Seconds(12)) {
    if (rig.subscription_open) rig.machine->OnSubscriptionLost(LossCause::kUnreachable, rig.now);
    rig.Run(Millis(1));
  }
  rig.RunUntilSubscribing(Seconds(2));
  rig.machine->OnSubscriptionLost(LossCause::kUnreachable, rig.now);
  EXPECT_THAT(rig.Status().error,
              HasSubstr("no publisher answered at tcp://engine:18000 for 12 s"));
  EXPECT_THAT(rig.changes[0].second,
              HasSubstr("no publisher answered at tcp://engine:18000; check"))
      << "no duration before there is one";
  EXPECT_GE(rig.subscriptions, 12) << "at least once a second";
  EXPECT_LE(rig.subscriptions, 40);
  EXPECT_EQ(rig.changes.size(), 1u) << "logged once";
}

TEST_F(KVDirectoryMachine, ConnectionThatNeverStandsIsGivenUpAndOpenedAnew) {
  MachineRig rig;
  rig.Start();
  rig.Run(Seconds(7));
  EXPECT_EQ(rig.subscriptions, 2);
}

TEST_F(KVDirectoryMachine, MissingReplayEndpointIsNamed) {
  MachineRig rig;
  rig.Start();
  rig.Connect();
  rig.machine->OnExchangeLost(LossCause::kUnreachable, rig.now);
  EXPECT_EQ(rig.Status().error,
            "connected to tcp://engine:18000, but nobody answers at tcp://engine:38000; check the "
            "engine's replay port");
  rig.RunUntilExchange(Millis(101));
  rig.machine->OnExchangeLost(LossCause::kOversize, rig.now);
  EXPECT_THAT(rig.Status().error, HasSubstr("ended on a snapshot over 16777216 bytes"));
}

TEST_F(KVDirectoryMachine, FaultsWhileUnsynchronizedAreLoggedOnce) {
  MachineRig rig;
  rig.Synchronize();
  ASSERT_EQ(rig.changes.size(), 1u);
  ++rig.next_sequence;
  rig.Deliver(rig.PublishStore(prompt_));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(rig.RunUntilExchange(Seconds(6)));
    rig.machine->OnExchangeLost(LossCause::kClosed, rig.now);
  }
  ASSERT_EQ(rig.changes.size(), 2u);
  EXPECT_FALSE(rig.changes[1].first);
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(6)));
  rig.StartExchangeAndAnswer();
  ASSERT_EQ(rig.changes.size(), 3u);
  EXPECT_TRUE(rig.changes[2].first);
}

}  // namespace
}  // namespace xms::kv_directory
