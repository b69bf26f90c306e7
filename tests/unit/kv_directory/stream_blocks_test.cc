// StreamMachine: what stores, removals and clears do to synchrony (B5, C2, D4, D5).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kv_directory/recovery/stream_machine.h"
#include "tests/unit/kv_directory/machine_rig.h"
#include "tests/unit/kv_directory/raw_batch.h"

namespace xms::kv_directory {
namespace {

using model::Tier;
using testing::BigEndian64;
using testing::Encode;
using testing::Expectation;
using ::testing::HasSubstr;
using testing::MakePrompt;
using testing::Tokens;
using Millis = std::chrono::milliseconds;
using Seconds = std::chrono::seconds;
using testing::raw::Batch;
using testing::raw::BlockTokens;
using testing::raw::Map;
using testing::raw::OneHash;
using testing::raw::Str;

class KVDirectoryMachineBlocks : public ::testing::Test {
 protected:
  const Tokens prompt_ = MakePrompt(1, 8);
};

// --- parents, orphans, opaque blocks (B5, D4)

// D4
TEST_F(KVDirectoryMachineBlocks, UnknownParentInALiveBatchTriggersRecovery) {
  MachineRig rig;
  rig.Synchronize();
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Store(Tier::kDevice, prompt_, 3)));
  EXPECT_FALSE(rig.Status().synchronized);
  EXPECT_THAT(rig.Status().error, HasSubstr("which nothing has named before, in batch 1"));
}

// D4
TEST_F(KVDirectoryMachineBlocks, OrphansOfASnapshotStayCalmWhenTheEngineExtendsThem) {
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

// B5
TEST_F(KVDirectoryMachineBlocks, ChildrenOfIgnoredBlocksAreIgnoredWithoutRecovery) {
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
TEST_F(KVDirectoryMachineBlocks, StoreWithContextTakesTheCreditOfItsHashAndAnotherMediumDoesNot) {
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

TEST_F(KVDirectoryMachineBlocks, HashRestatedWithOtherTokensIsDamage) {
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
TEST_F(KVDirectoryMachineBlocks, UnknownReplicaAsksForOneSnapshotPerInterval) {
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

// D5
TEST_F(KVDirectoryMachineBlocks, FullLiveBatchRestoresSynchronyByItself) {
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

TEST_F(KVDirectoryMachineBlocks, FullLiveBatchAfterAGapKeepsTheStreamSynchronized) {
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

// D5
TEST_F(KVDirectoryMachineBlocks, FullLiveBatchDoesNotRestoreAfterADisconnectOrARestart) {
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

// D5
TEST_F(KVDirectoryMachineBlocks, ClearOfOneTierLeavesTheOther) {
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

// A clear of something that the index does not tell apart: what is left, a snapshot says (A12).
TEST_F(KVDirectoryMachineBlocks, ClearOfAnUnknownMediumGroupOrPlaceUnsynchronizes) {
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"medium", Str("ssd")},
      {"group_idx", std::string(1, '\0')},
      {"group_idx", "\x01"},
      {"locality", Str("LOCAL")},
      {"locality", Str("REMOTE")}};
  for (const auto& field : fields) {
    MachineRig rig;
    rig.PublishStore(prompt_);
    rig.Synchronize();
    rig.Deliver(
        {"xllm-kv", BigEndian64(2), Batch({Map({{"type", Str("AllBlocksCleared")}, field})})});
    EXPECT_FALSE(rig.Status().synchronized) << field.first;
    EXPECT_EQ(rig.Hits(prompt_), Expectation()) << field.first;
  }
}

// What the buffer holds before a full batch is undone by it, known parents or not.
TEST_F(KVDirectoryMachineBlocks, BufferedChildOfAForgottenParentDoesNotMatterBeforeAClear) {
  MachineRig rig;
  rig.Start();
  rig.Connect();
  rig.Ask();
  const auto answer = rig.Answer();
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Store(Tier::kDevice, prompt_, 3)));
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Clear().Store(Tier::kHost, prompt_)));
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Replicate(Tier::kDevice, prompt_, 0, 1)));
  rig.Reply(answer);
  EXPECT_TRUE(rig.Status().synchronized) << rig.Status().error;
  EXPECT_EQ(rig.Status().sequence.value, 3u);
  EXPECT_EQ(rig.Hits(prompt_), Expectation({4, 28}));
}

}  // namespace
}  // namespace xms::kv_directory
