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
using ::testing::Not;
using testing::Tokens;
using Millis = std::chrono::milliseconds;
using Seconds = std::chrono::seconds;

// MessagePack by hand, for what the encoder cannot say. Short strings and small numbers only.
std::string Str(const std::string& text) { return static_cast<char>(0xa0 | text.size()) + text; }
std::string Map(std::vector<std::pair<std::string, std::string>> fields) {
  std::string bytes(1, static_cast<char>(0x80 | fields.size()));
  for (const auto& [key, value] : fields) bytes += Str(key) + value;
  return bytes;
}
std::string Batch(const std::vector<std::string>& events) {
  std::string bytes = std::string("\x93\xcb") + std::string(8, '\0');
  bytes += static_cast<char>(0x90 | events.size());
  for (const std::string& event : events) bytes += event;
  return bytes + '\0';
}
std::string OneHash(model::WireHash hash) { return "\x91\xcf" + BigEndian64(hash.value); }
std::string BlockTokens(const Tokens& prompt, std::size_t block) {
  std::string bytes = "\x94";
  for (std::size_t i = 4 * block; i < 4 * block + 4; ++i) {
    bytes += '\xce' + BigEndian64(prompt[i]).substr(4);
  }
  return bytes;
}

class KVDirectoryMachine : public ::testing::Test {
 protected:
  const Tokens prompt_ = MakePrompt(1, 8);
};

// --- first synchronization (D2)

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

// Only a live sequence that goes back proves a restart on a connection that stands (D2): a snapshot
// that is too old stays too old however often it is repeated.
TEST_F(KVDirectoryMachine, SnapshotOlderThanWhatCameBeforeItsRequestIsNeverBelieved) {
  MachineRig rig;
  rig.Synchronize();
  for (int i = 0; i < 5; ++i) rig.Deliver(rig.PublishStore(MakePrompt(10 + i, 1)));
  const auto stale = rig.Answer();
  rig.next_sequence += 1;  // something is lost
  rig.Deliver(rig.PublishStore(MakePrompt(15, 1)));
  for (int attempt = 0; attempt < 4; ++attempt) {
    ASSERT_TRUE(rig.RunUntilExchange(Seconds(6)));
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

// --- parents, orphans, opaque blocks (B5, D4)

TEST_F(KVDirectoryMachine, UnknownParentInALiveBatchTriggersRecovery) {
  MachineRig rig;
  rig.Synchronize();
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Store(Tier::kDevice, prompt_, 3)));
  EXPECT_FALSE(rig.Status().synchronized);
  EXPECT_THAT(rig.Status().error, HasSubstr("which nothing has named before, in batch 1"));
}

TEST_F(KVDirectoryMachine, OrphansOfASnapshotStayCalmWhenTheEngineExtendsThem) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.PublishStore(MakePrompt(2, 2));
  rig.Publish(rig.truth.NewBatch().Remove(Tier::kDevice, prompt_, 2, 1));  // blocks 3… are orphans
  rig.Synchronize();
  EXPECT_EQ(rig.Hits(prompt_), Expectation({8, 0}));
  EXPECT_EQ(rig.Hits(MakePrompt(2, 2)), Expectation({8, 0})) << "other prefixes stay";
  Tokens longer = prompt_;
  for (const std::uint32_t token : MakePrompt(3, 1)) longer.push_back(token);
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Store(Tier::kDevice, longer, 8)));
  EXPECT_TRUE(rig.Status().synchronized) << rig.Status().error;
  // The tail alone is not a root (C03).
  EXPECT_EQ(rig.Hits(MakePrompt(3, 1)), Expectation());
  // The missing block comes back: its descendants wait for the next snapshot, which gives credit.
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Store(Tier::kDevice, longer, 2, 1)));
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.Hits(longer), Expectation({12, 0}));
  ASSERT_TRUE(rig.RunUntilExchange(Seconds(31)));
  rig.StartExchangeAndAnswer();
  EXPECT_EQ(rig.Hits(longer), Expectation({36, 0}));
}

TEST_F(KVDirectoryMachine, ChildrenOfIgnoredBlocksAreIgnoredWithoutRecovery) {
  MachineRig rig;
  rig.Synchronize();
  const auto hashes = testing::HashesOf(prompt_);
  const auto store = [&](std::size_t block, bool lora) {
    std::vector<std::pair<std::string, std::string>> fields = {
        {"type", Str("BlockStored")},
        {"block_hashes", OneHash(hashes[block])},
        {"token_ids", BlockTokens(prompt_, block)},
        {"block_size", "\x04"},
    };
    if (block > 0) {
      fields.emplace_back("parent_block_hash", '\xcf' + BigEndian64(hashes[block - 1].value));
    }
    if (lora) fields.emplace_back("lora_name", Str("adapter"));
    return Map(fields);
  };
  rig.Deliver({"xllm-kv", BigEndian64(1), Batch({store(0, true)})});
  rig.Deliver({"xllm-kv", BigEndian64(2), Batch({store(1, false), store(2, false)})});
  EXPECT_TRUE(rig.Status().synchronized) << rig.Status().error;
  EXPECT_EQ(rig.Status().sequence.value, 2u);
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
  EXPECT_EQ(rig.exchanges, 1);
}

// B5: a hash that a store with context names stands for something else from then on.
TEST_F(KVDirectoryMachine, StoreWithContextTakesTheCreditOfItsHashAndAnotherMediumDoesNot) {
  for (const bool context : {false, true}) {
    MachineRig rig;
    rig.PublishStore(prompt_);
    rig.Synchronize();
    const model::WireHash first = testing::HashesOf(prompt_)[0];
    rig.Deliver({"xllm-kv", BigEndian64(2),
                 Batch({Map({{"type", Str("BlockStored")},
                             {"block_hashes", OneHash(first)},
                             {"token_ids", BlockTokens(prompt_, 0)},
                             {"block_size", "\x04"},
                             {context ? "lora_name" : "medium", Str("ssd")}})})});
    EXPECT_TRUE(rig.Status().synchronized) << rig.Status().error;
    EXPECT_EQ(rig.Hits(prompt_), context ? Expectation() : Expectation({32, 0}));
  }
}

TEST_F(KVDirectoryMachine, HashRestatedWithOtherTokensIsDamage) {
  MachineRig rig;
  rig.Synchronize();
  rig.Deliver(rig.PublishStore(prompt_));
  testing::KvBatchBuilder batch = rig.truth.NewBatch().Store(Tier::kDevice, prompt_, 0, 1);
  std::string payload = Encode(batch);
  const std::string tokens = BlockTokens(prompt_, 0).substr(1);
  const std::size_t at = payload.find(tokens);
  ASSERT_NE(at, std::string::npos);
  payload[at + 4] ^= 1;
  rig.Deliver({"xllm-kv", BigEndian64(2), payload});
  EXPECT_FALSE(rig.Status().synchronized);
  EXPECT_THAT(rig.Status().error, HasSubstr("stored again with other tokens"));
}

// C2
TEST_F(KVDirectoryMachine, UnknownReplicaAsksForOneSnapshotPerInterval) {
  MachineRig rig;
  rig.Synchronize();
  rig.Run(Millis(600));
  ASSERT_TRUE(rig.exchange_open) << "the second snapshot";
  rig.StartExchangeAndAnswer();
  ASSERT_EQ(rig.exchanges, 2);
  // A store that we never heard of, replicated: the engine holds it on Host.
  rig.PublishStore(prompt_, Tier::kHost);
  --rig.next_sequence;
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Replicate(Tier::kHost, prompt_)));
  EXPECT_TRUE(rig.Status().synchronized) << "ignored and counted";
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
  rig.Run(Millis(5));
  ASSERT_EQ(rig.exchanges, 3) << "asked for at once";
  rig.StartExchangeAndAnswer();
  EXPECT_EQ(rig.Hits(prompt_), Expectation({0, 32}));
  const Tokens other = MakePrompt(2, 2);
  rig.PublishStore(other, Tier::kHost);
  --rig.next_sequence;
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Replicate(Tier::kHost, other)));
  rig.Run(Seconds(26));
  EXPECT_EQ(rig.exchanges, 3) << "not again within resync_interval_ms";
  rig.Run(Seconds(5));
  EXPECT_EQ(rig.exchanges, 4);
}

// --- clears (D5)

TEST_F(KVDirectoryMachine, FullLiveBatchRestoresSynchronyByItself) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.Synchronize();
  rig.PublishStore(MakePrompt(2, 1));
  rig.Deliver(rig.PublishStore(MakePrompt(3, 1)));
  ASSERT_FALSE(rig.Status().synchronized);
  const Tokens other = MakePrompt(4, 3);
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Clear().Store(Tier::kDevice, other)));
  EXPECT_TRUE(rig.Status().synchronized);
  EXPECT_EQ(rig.Status().sequence.value, 4u);
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
  EXPECT_EQ(rig.Hits(other), Expectation({12, 0}));
  EXPECT_FALSE(rig.exchange_open) << "no snapshot is needed any more";
}

TEST_F(KVDirectoryMachine, FullLiveBatchAfterAGapKeepsTheStreamSynchronized) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.Synchronize();
  const std::uint64_t before = rig.Status().generation;
  rig.PublishStore(MakePrompt(2, 1));
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Clear()));
  EXPECT_TRUE(rig.Status().synchronized) << "a lone clear says everything: nothing is there";
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
  EXPECT_NE(rig.Status().generation, before);
}

TEST_F(KVDirectoryMachine, FullLiveBatchDoesNotRestoreAfterADisconnectOrARestart) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.Synchronize();
  rig.Disconnect();
  ASSERT_TRUE(rig.RunUntilSubscribing(Millis(101)));
  rig.Connect();
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Clear().Store(Tier::kDevice, prompt_)));
  EXPECT_FALSE(rig.Status().synchronized);
  rig.StartExchangeAndAnswer();
  ASSERT_TRUE(rig.Status().synchronized);

  rig.next_sequence = 1;
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Clear().Store(Tier::kDevice, prompt_)));
  EXPECT_FALSE(rig.Status().synchronized);
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Clear().Store(Tier::kDevice, prompt_)));
  EXPECT_FALSE(rig.Status().synchronized);
}

TEST_F(KVDirectoryMachine, ClearOfOneTierLeavesTheOther) {
  MachineRig rig;
  rig.Synchronize();
  rig.Deliver(rig.PublishStore(prompt_));
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Replicate(Tier::kHost, prompt_, 0, 6)));
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Clear(Tier::kDevice)));
  EXPECT_EQ(rig.Hits(prompt_), Expectation({0, 24}));
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Clear()));
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
  EXPECT_TRUE(rig.Status().synchronized);
}

TEST_F(KVDirectoryMachine, ClearOfAnUnknownMediumUnsynchronizes) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.Synchronize();
  rig.Deliver({"xllm-kv", BigEndian64(2),
               Batch({Map({{"type", Str("AllBlocksCleared")}, {"medium", Str("ssd")}})})});
  EXPECT_FALSE(rig.Status().synchronized);
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
}

// --- snapshots: damage, time, size (D3, D8, D9, D10)

TEST_F(KVDirectoryMachine, DamagedSnapshotsChangeNothingAndAreAskedForAgain) {
  MachineRig source;
  source.PublishStore(prompt_);
  const std::vector<Frames> good = source.Answer();
  const std::string payload = good[0][2];
  const Frames end = good[1];
  struct Case {
    std::vector<Frames> messages;
    std::string error;
  };
  const std::vector<Case> cases = {
      {{end}, "the snapshot ended before it began"},
      {{{"", BigEndian64(1), ""}}, "snapshot reply without content at watermark 1"},
      {{{"", BigEndian64(1), payload.substr(0, payload.size() - 1)}, end}, "snapshot: truncated"},
      {{good[0], {"", BigEndian64(2), payload}, end}, "disagree about their watermark: 1 and 2"},
      {{{"x", BigEndian64(1), payload}, end}, "begins with 1 bytes where an empty frame"},
      {{{"", BigEndian64(1).substr(4), payload}, end}, "snapshot watermark of 4 bytes"},
      {{{"", BigEndian64(1)}, end}, "snapshot reply of 2 frames"},
      {{{"", "other", BigEndian64(1), payload}, end}, "names another topic"},
      {{{"", BigEndian64(1),
         Batch({Map({{"type", Str("AllBlocksCleared")}, {"medium", Str("ssd")}})})},
        end},
       "neither Device nor Host was cleared, in the snapshot"},
  };
  for (const Case& c : cases) {
    MachineRig rig;
    rig.PublishStore(prompt_);
    rig.Start();
    rig.Connect();
    rig.Ask();
    rig.Reply(c.messages);
    EXPECT_FALSE(rig.Status().synchronized) << c.error;
    EXPECT_THAT(rig.Status().error, HasSubstr(c.error));
    EXPECT_FALSE(rig.exchange_open) << "late frames have no socket to come from";
    EXPECT_EQ(rig.ledger->mappings(), 0u);
    ASSERT_TRUE(rig.RunUntilExchange(Millis(101))) << c.error;
    rig.StartExchangeAndAnswer();
    EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
  }
}

TEST_F(KVDirectoryMachine, SnapshotMayNameTheTopicAndComeInParts) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.Start();
  rig.Connect();
  rig.Ask();
  for (Frames message : rig.Answer(3)) {
    message.insert(message.begin() + 1, message[2].empty() ? "" : "xllm-kv");
    rig.Reply(message);
  }
  EXPECT_TRUE(rig.Status().synchronized) << rig.Status().error;
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

TEST_F(KVDirectoryMachine, WholeExchangeHasToEndWithinTheTimeout) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.Start();
  rig.Connect();
  rig.machine->OnExchangeConnected();
  rig.Run(Seconds(10));
  EXPECT_TRUE(rig.exchange_open) << "waiting for its turn costs no time";
  rig.Ask();
  rig.Reply(rig.Answer()[0]);
  rig.Run(Millis(1999));
  EXPECT_TRUE(rig.exchange_open);
  rig.Run(Millis(1));
  EXPECT_FALSE(rig.exchange_open);
  EXPECT_FALSE(rig.Status().synchronized);
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
  EXPECT_EQ(rig.Status().error,
            "no whole snapshot came from tcp://engine:38000 within replay_timeout_ms 2000");
  rig.Reply(rig.Answer());
  EXPECT_FALSE(rig.Status().synchronized) << "too late";
}

TEST_F(KVDirectoryMachine, RetriesBackOffFromFiftyMillisecondsToFiveSeconds) {
  MachineRig rig;
  rig.Start();
  rig.Connect();
  Millis longest{100};
  for (int attempt = 0; attempt < 12; ++attempt) {
    rig.Ask();
    rig.Reply(Frames{"", BigEndian64(UINT64_MAX), ""});
    ASSERT_FALSE(rig.exchange_open);
    const auto failed = rig.now;
    ASSERT_TRUE(rig.RunUntilExchange(Seconds(6)));
    const auto waited = std::chrono::duration_cast<Millis>(rig.now - failed);
    EXPECT_GE(waited.count(), longest.count() / 2) << "attempt " << attempt;
    EXPECT_LE(waited.count(), longest.count() + 1) << "attempt " << attempt;
    longest = std::min(Millis(5000), 2 * longest);
  }
}

TEST_F(KVDirectoryMachine, OnlyThirtySecondsOfSynchronyForgiveEarlierFaults) {
  MachineRig rig;
  const auto fault = [&] {
    ++rig.next_sequence;
    rig.Deliver(rig.PublishStore(prompt_));
    ASSERT_FALSE(rig.Status().synchronized);
  };
  const auto wait = [&] {
    const auto from = rig.now;
    EXPECT_TRUE(rig.RunUntilExchange(Seconds(6)));
    rig.StartExchangeAndAnswer();
    EXPECT_TRUE(rig.Status().synchronized) << rig.Status().error;
    return base::MillisBetween(from, rig.now);
  };
  rig.Synchronize();
  for (int i = 0; i < 7; ++i) {
    fault();
    EXPECT_GE(wait(), 50 << std::min(i, 5)) << "fault, success, fault is paced too";
  }
  // Keep answering the reconciliations while time passes.
  for (int i = 0; i < 31; ++i) {
    rig.Run(Seconds(1));
    if (rig.exchange_open) rig.StartExchangeAndAnswer();
  }
  fault();
  EXPECT_LE(wait(), 1);
}

TEST_F(KVDirectoryMachine, ReasonNamedFirstStaysThroughTheRetries) {
  MachineRig::Options options;
  options.limits.max_blocks_per_stream = 10;
  MachineRig rig(options);
  rig.Synchronize();
  rig.Deliver(rig.PublishStore(MakePrompt(2, 11)));
  const std::string reason =
      "more than max_blocks_per_stream 10 blocks published; raise it above what the engine can "
      "hold, in batch 1";
  EXPECT_EQ(rig.Status().error, reason);
  EXPECT_EQ(rig.ledger->mappings(), 0u) << "C7: memory is given back";
  ASSERT_TRUE(rig.RunUntilExchange(Millis(101)));
  rig.Ask();
  rig.Run(Seconds(2));
  EXPECT_EQ(rig.Status().error, reason +
                                    "; now: no whole snapshot came from tcp://engine:38000 within "
                                    "replay_timeout_ms 2000");
  ASSERT_TRUE(rig.RunUntilExchange(Millis(301)));
  rig.StartExchangeAndAnswer();
  EXPECT_THAT(rig.Status().error, HasSubstr(reason));
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Clear().Store(Tier::kDevice, prompt_)));
  EXPECT_EQ(rig.Status().error, "");
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

TEST_F(KVDirectoryMachine, SizesOverTheLimitAreNamedExactly) {
  MachineRig::Options options;
  options.limits.max_message_bytes = 1024;
  MachineRig rig(options);
  rig.PublishStore(prompt_);
  rig.Synchronize();
  Frames big = rig.Publish(rig.truth.NewBatch());
  big[2] = std::string(1024, 'x');
  rig.Deliver(big);
  EXPECT_EQ(rig.Status().error,
            "batch of 1039 bytes is over max_message_bytes 1024; raise it to at least 1100");
  ASSERT_TRUE(rig.RunUntilExchange(Millis(101)));
  rig.Ask();
  // Each part fits, their sum does not (A20).
  std::vector<Frames> parts = rig.Answer();
  parts.insert(parts.begin(), parts[0]);
  parts.insert(parts.begin(), parts[0]);
  ASSERT_LT(parts[0][2].size(), 1016u);
  ASSERT_GT(3 * parts[0][2].size(), 1024u);
  rig.Reply(parts);
  EXPECT_FALSE(rig.Status().synchronized);
  EXPECT_THAT(rig.Status().error, HasSubstr("; now: snapshot of "));
  EXPECT_THAT(rig.Status().error, HasSubstr(" is over max_message_bytes 1024"));
}

// D8: the numbers that an operator needs, and one that can be set.
TEST_F(KVDirectoryMachine, LimitsAreNamedWithTheExactSizeAndAValueToRaiseThemTo) {
  EXPECT_EQ(TooLarge("batch", 9541386, Limits{}),
            "batch of 9541386 bytes (9.1 MiB) is over max_message_bytes 8388608; raise it to at "
            "least 9600000");
  EXPECT_EQ(TooLarge("snapshot", 1073741823, {.max_message_bytes = 1'000'000'000}),
            "snapshot of 1073741823 bytes (1024.0 MiB) is over max_message_bytes 1000000000; raise "
            "it to at least 1073741824");
  EXPECT_EQ(
      TooLarge("batch", 1200000000, {.max_message_bytes = kLargestMessageLimit}),
      "batch of 1200000000 bytes (1144.4 MiB) is over max_message_bytes 1073741824; more than "
      "1073741824 cannot be set, the engine must publish less at once");
  EXPECT_THAT(
      TooLargeToMeasure("snapshot", "tcp://e:1", {.max_message_bytes = 600'000'000}),
      HasSubstr("over 1200000000 bytes, size unknown (or on bytes that are not ZeroMQ); more "
                "than 1073741824 cannot be set"));
}

TEST_F(KVDirectoryMachine, SnapshotOfCountlessTinyPartsIsRefused) {
  MachineRig rig;
  rig.Start();
  rig.Connect();
  rig.Ask();
  const Frames part{"", BigEndian64(1), std::string("\x92\x00\x90", 3)};
  int accepted = 0;
  for (; accepted < 10'000 && rig.exchange_open; ++accepted) rig.Reply(part);
  EXPECT_EQ(accepted, 4097);
  EXPECT_EQ(rig.Status().error, "snapshot of more than 4096 parts; publish fewer, larger ones");
  ASSERT_TRUE(rig.RunUntilExchange(Millis(101)));
  rig.StartExchangeAndAnswer();
  EXPECT_TRUE(rig.Status().synchronized);
}

TEST_F(KVDirectoryMachine, BufferHasABudgetAndSaysSo) {
  MachineRig::Options options;
  options.limits.max_buffered_bytes = 4096;
  MachineRig rig(options);
  rig.Start();
  rig.Connect();
  rig.Ask();
  for (int i = 0; i < 40 && rig.exchange_open; ++i) rig.Deliver(rig.PublishStore(MakePrompt(i, 4)));
  EXPECT_FALSE(rig.exchange_open);
  EXPECT_THAT(rig.Status().error, HasSubstr("max_buffered_bytes 4096; raise it"));
  ASSERT_TRUE(rig.RunUntilExchange(Millis(101)));
  rig.StartExchangeAndAnswer();
  EXPECT_TRUE(rig.Status().synchronized);
}

// kv-event-wire 4.3
TEST_F(KVDirectoryMachine, WatermarkBeforeAnythingWasPublishedMeansNextIsZero) {
  MachineRig::Options options;
  options.first_sequence = 0;
  MachineRig rig(options);
  rig.Synchronize();
  EXPECT_FALSE(rig.Status().sequence_valid);
  EXPECT_EQ(rig.Status().sequence.value, 0u);
  rig.Deliver(rig.PublishStore(prompt_));
  EXPECT_TRUE(rig.Status().sequence_valid);
  EXPECT_EQ(rig.Status().sequence.value, 0u);
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

TEST_F(KVDirectoryMachine, AfterAnEmptySnapshotAtZeroBothZeroAndOneMayFollow) {
  for (const std::uint64_t first : {0, 1}) {
    for (const bool buffered : {false, true}) {
      MachineRig::Options options;
      options.first_sequence = first;
      MachineRig rig(options);
      rig.Start();
      rig.Connect();
      rig.Ask();
      const std::vector<Frames> answer = rig.truth.SnapshotAnswer(0);
      if (!buffered) rig.Reply(answer);
      rig.Deliver(rig.PublishStore(prompt_));
      if (buffered) rig.Reply(answer);
      EXPECT_TRUE(rig.Status().synchronized) << first << rig.Status().error;
      EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0})) << first << buffered;
      rig.Deliver(rig.Publish(rig.truth.NewBatch().Remove(Tier::kDevice, prompt_)));
      EXPECT_TRUE(rig.Status().synchronized) << rig.Status().error;
      EXPECT_EQ(rig.Hits(prompt_), Expectation());
    }
  }
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
