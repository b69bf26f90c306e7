// The index seen from outside: what a match says after what a stream's events said.
#include "kv_index/kv_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kv_index/stream_ledger.h"
#include "model/content_key.h"
#include "tests/unit/kv_index/index_fixture.h"

namespace xms::kv_index {
namespace {

class KVIndex : public testing::Test {
 protected:
  KvIndex index_{Options{}};
};

TEST_F(KVIndex, AnEmptyIndexMatchesNothing) {
  MatchResult result;
  index_.Match(Prompt(1, 4, 4), result);
  EXPECT_EQ(result.slot_count, 0u);
  EXPECT_TRUE(index_.Streams().empty());
  EXPECT_EQ(index_.Memory().view_entries, 0u);
}

// C5
TEST_F(KVIndex, CountsCompleteBlocksFromTheStartInEitherTier) {
  auto ledger = OpenSynchronized(index_, Info("a:1"));
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, 6).ok());
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, 6), (Hits{24, 0}));
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, 9), (Hits{24, 0}));
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, 3), (Hits{12, 0}));
  EXPECT_EQ(MatchPrompt(index_, *ledger, 2, 6), (Hits{0, 0}));

  auto tokens = Prompt(1, 6, 4);
  tokens.resize(tokens.size() - 1);  // the last block is not complete
  EXPECT_EQ(Match(index_, *ledger, tokens), (Hits{20, 0}));
  tokens.resize(3);
  EXPECT_EQ(Match(index_, *ledger, tokens), (Hits{0, 0}));
  EXPECT_EQ(Match(index_, *ledger, {}), (Hits{0, 0}));
}

// C3
TEST_F(KVIndex, TiersAreIndependentAndABlockOnBothCountsAsDevice) {
  auto ledger = OpenSynchronized(index_, Info("a:1"));
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, 4, Tier::kDevice).ok());
  ASSERT_TRUE(ledger->StoreKnown(Tier::kHost, Wires(1001, 3)).ok());
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, 4), (Hits{16, 0}));
  RemoveBlocks(*ledger, 1, 1, 3, Tier::kDevice);
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, 4), (Hits{8, 8}));
  RemoveBlocks(*ledger, 1, 2, 3, Tier::kHost);
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, 4), (Hits{4, 4}));
  RemoveBlocks(*ledger, 1, 0, 1, Tier::kHost);  // it is not there: nothing changes
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, 4), (Hits{4, 4}));
}

// C4
TEST_F(KVIndex, StoringWhatIsThereChangesNothing) {
  auto ledger = OpenSynchronized(index_, Info("a:1"));
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, 3).ok());
  const std::uint64_t digest = ledger->digest();
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, 3).ok());
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 1, 2).ok());
  EXPECT_EQ(ledger->digest(), digest);
  EXPECT_EQ(ledger->mappings(), 3u);
  RemoveBlocks(*ledger, 1, 2, 3);
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, 3), (Hits{8, 0}));
}

// C6
TEST_F(KVIndex, NothingIsAssembledAcrossRanksOrInstances) {
  auto first = OpenSynchronized(index_, Info("a:1", 0));
  auto second = OpenSynchronized(index_, Info("a:1", 1));
  auto third = OpenSynchronized(index_, Info("b:1", 0));
  ASSERT_TRUE(StoreBlocks(*first, 1, 0, 4).ok());
  ASSERT_TRUE(StoreBlocks(*second, 1, 0, 6).ok());
  RemoveBlocks(*second, 1, 0, 2);
  ASSERT_TRUE(StoreBlocks(*third, 1, 0, 1).ok());
  EXPECT_EQ(MatchPrompt(index_, *first, 1, 6), (Hits{16, 0}));
  EXPECT_EQ(MatchPrompt(index_, *second, 1, 6), (Hits{0, 0}));
  EXPECT_EQ(MatchPrompt(index_, *third, 1, 6), (Hits{4, 0}));
}

TEST_F(KVIndex, TheSameTokensAfterAnotherPrefixAreAnotherBlock) {
  auto ledger = OpenSynchronized(index_, Info("a:1", 0, 2));
  const std::vector<std::uint32_t> one = {1, 2, 7, 8};
  const std::vector<std::uint32_t> other = {3, 4, 7, 8};
  ASSERT_TRUE(
      ledger->Store(Tier::kDevice, Wires(1, 2), {}, one, StreamLedger::Orphans::kRefuse).ok());
  ASSERT_TRUE(ledger
                  ->Store(Tier::kDevice, Wires(3, 1), {}, std::vector<std::uint32_t>{3, 4},
                          StreamLedger::Orphans::kRefuse)
                  .ok());
  EXPECT_EQ(Match(index_, *ledger, one), (Hits{4, 0}));
  EXPECT_EQ(Match(index_, *ledger, other), (Hits{2, 0}));
}

TEST_F(KVIndex, StreamsOfEveryGeometryAreMatchedInOneCall) {
  auto small = OpenSynchronized(index_, Info("a:1", 0, 4));
  auto large = OpenSynchronized(index_, Info("b:1", 0, 8));
  auto seeded = OpenSynchronized(index_, Info("c:1", 0, 4, 7));
  const auto tokens = Prompt(1, 6, 4);
  for (StreamLedger* ledger : {small.get(), large.get(), seeded.get()}) {
    const std::size_t blocks = tokens.size() / ledger->info().block_size;
    ASSERT_TRUE(
        ledger->Store(Tier::kDevice, Wires(1, blocks), {}, tokens, StreamLedger::Orphans::kRefuse)
            .ok());
  }
  RemoveBlocks(*seeded, 0, 5, 6);
  EXPECT_EQ(Match(index_, *small, tokens), (Hits{24, 0}));
  EXPECT_EQ(Match(index_, *large, tokens), (Hits{24, 0}));
  EXPECT_EQ(Match(index_, *seeded, tokens), (Hits{16, 0}));
}

TEST_F(KVIndex, AMatchByKeysIsTheMatchByTokensOfThatGeometry) {
  auto ledger = OpenSynchronized(index_, Info("a:1", 0, 4));
  auto other = OpenSynchronized(index_, Info("b:1", 0, 2));
  const auto tokens = Prompt(1, 100, 4);
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, 100).ok());
  RemoveBlocks(*ledger, 1, 77, 78);
  ASSERT_TRUE(StoreBlocks(*other, 1, 0, 4).ok());
  std::vector<model::ContentKey> keys;
  model::BlockHasher(1024, 4).Chain(tokens, keys);
  MatchResult result;
  index_.MatchKeys(1024, 4, keys, result);
  EXPECT_EQ(result.slots[StatusOf(index_, *ledger).slot].device_hit_tokens, 77u * 4);
  EXPECT_EQ(result.slots[StatusOf(index_, *other).slot].device_hit_tokens, 0u);
  EXPECT_TRUE(result.slots[StatusOf(index_, *other).slot].synchronized);
}

// What is not written again must not be left over.
TEST_F(KVIndex, AResultThatIsUsedAgainSaysNothingOfTheMatchBefore) {
  auto ledger = OpenSynchronized(index_, Info("a:1", 0, 1));
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, 3, Tier::kHost).ok());
  ASSERT_TRUE(StoreBlocks(*ledger, 2, 0, 2).ok());
  const std::uint32_t slot = StatusOf(index_, *ledger).slot;
  MatchResult result;
  const auto hits = [&](std::uint32_t name) {
    index_.Match(Prompt(name, 3, 1), result);
    return Hits{result.slots[slot].device_hit_tokens, result.slots[slot].host_only_hit_tokens};
  };
  EXPECT_EQ(hits(1), (Hits{0, 3}));
  EXPECT_EQ(hits(2), (Hits{2, 0}));
  EXPECT_EQ(hits(1), (Hits{0, 3}));
  EXPECT_EQ(hits(3), (Hits{0, 0}));
}

TEST_F(KVIndex, ALongPromptOfManyStreamsIsExactForEachOfThem) {
  constexpr std::uint32_t kBlocks = 300;
  std::vector<std::unique_ptr<StreamLedger>> ledgers;
  for (std::uint32_t i = 0; i < kMaxSlots; ++i) {
    ledgers.push_back(OpenSynchronized(index_, Info("e" + std::to_string(i), 0, 1)));
    // Stream i holds a prefix of its own length, every third block of it on Host only.
    const std::uint32_t length = i * kBlocks / 127;
    if (length == 0) continue;
    ASSERT_TRUE(StoreBlocks(*ledgers[i], 1, 0, length).ok());
    for (std::uint32_t b = 0; b < length; b += 3) {
      ledgers[i]->StoreKnown(Tier::kHost, Wires(1000 + b, 1));
      RemoveBlocks(*ledgers[i], 1, b, b + 1);
    }
  }
  MatchResult result;
  index_.Match(Prompt(1, kBlocks, 1), result);
  ASSERT_EQ(result.slot_count, kMaxSlots);
  for (std::uint32_t i = 0; i < kMaxSlots; ++i) {
    const std::uint32_t length = i * kBlocks / 127;
    const std::uint32_t host_only = (length + 2) / 3;
    EXPECT_EQ(result.slots[i].device_hit_tokens, length - host_only) << i;
    EXPECT_EQ(result.slots[i].host_only_hit_tokens, host_only) << i;
  }
}

TEST_F(KVIndex, AllSlotsTakenIsSaidAndAFreedOneIsUsedAgain) {
  std::vector<std::unique_ptr<StreamLedger>> ledgers;
  for (std::size_t i = 0; i < kMaxSlots; ++i) {
    ledgers.push_back(OpenSynchronized(index_, Info("e" + std::to_string(i))));
  }
  const auto refused = index_.OpenStream(Info("late"), "new");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, base::ErrorCode::kResourceExhausted);

  ASSERT_TRUE(StoreBlocks(*ledgers[40], 1, 0, 5).ok());
  const StreamStatus before = StatusOf(index_, *ledgers[40]);
  ledgers[40].reset();
  auto replacement = Open(index_, Info("late"));
  const StreamStatus after = StatusOf(index_, *replacement);
  EXPECT_EQ(after.slot, before.slot);
  EXPECT_NE(KvIndex::LifeOf(after.generation), KvIndex::LifeOf(before.generation));
  EXPECT_EQ(MatchPrompt(index_, *replacement, 1, 5), (Hits{0, 0}));
  replacement->Synchronize({1});
  EXPECT_EQ(MatchPrompt(index_, *replacement, 1, 5), (Hits{0, 0}))
      << "bits of the slot's last stream";
}

// --- "Not exact" situations that published indexes get wrong.

class KVIndexHoles : public KVIndex {
 protected:
  static constexpr std::uint32_t kBlocks = 100;
};

TEST_F(KVIndexHoles, HeadOfOneChainAndTailOfAnotherDoNotMakeAChain) {
  auto first = OpenSynchronized(index_, Info("a:1"));
  auto second = OpenSynchronized(index_, Info("b:1"));
  auto third = OpenSynchronized(index_, Info("c:1"));
  ASSERT_TRUE(StoreBlocks(*first, 1, 0, kBlocks).ok());
  ASSERT_TRUE(StoreBlocks(*second, 1, 0, kBlocks).ok());
  // A third one branched off in the middle once.
  ASSERT_TRUE(StoreBlocks(*third, 1, 0, 50).ok());
  third->ClearAll();
  RemoveBlocks(*first, 1, 0, 50);
  RemoveBlocks(*second, 1, 50, kBlocks);
  EXPECT_EQ(MatchPrompt(index_, *first, 1, kBlocks), (Hits{0, 0}));
  EXPECT_EQ(MatchPrompt(index_, *second, 1, kBlocks), (Hits{200, 0}));
  EXPECT_EQ(MatchPrompt(index_, *third, 1, kBlocks), (Hits{0, 0}));
}

// C5
TEST_F(KVIndexHoles, AMissingBlockInTheMiddleEndsTheRunUntilItIsStoredAgain) {
  auto ledger = OpenSynchronized(index_, Info("a:1"));
  auto whole = OpenSynchronized(index_, Info("b:1"));
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, kBlocks).ok());
  ASSERT_TRUE(StoreBlocks(*whole, 1, 0, kBlocks).ok());
  RemoveBlocks(*ledger, 1, 10, 11);
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, kBlocks), (Hits{40, 0}));
  EXPECT_EQ(MatchPrompt(index_, *whole, 1, kBlocks), (Hits{400, 0}));
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 10, 11).ok());
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, kBlocks), (Hits{400, 0}));
}

// C4
TEST_F(KVIndexHoles, StoredTwiceAndRemovedOnceIsGone) {
  auto ledger = OpenSynchronized(index_, Info("a:1"));
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, kBlocks).ok());
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, kBlocks).ok());
  for (std::uint32_t b = kBlocks; b-- > 0;) RemoveBlocks(*ledger, 1, b, b + 1);
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, kBlocks), (Hits{0, 0}));
  EXPECT_EQ(index_.Memory().view_entries, 0u);
}

TEST_F(KVIndexHoles, TheFirstBlockMissingMeansNothingIsReusable) {
  auto ledger = OpenSynchronized(index_, Info("a:1"));
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, kBlocks).ok());
  RemoveBlocks(*ledger, 1, 0, 1);
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, kBlocks), (Hits{0, 0}));
}

// --- Synchronization and lives.

using KVIndexState = KVIndex;

TEST_F(KVIndexState, AStreamHasNoHitsUntilItIsSynchronizedAndNoneAfterItIsNot) {
  auto ledger = Open(index_, Info("a:1"));
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, 3).ok());
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, 3), (Hits{0, 0}));
  StreamStatus status = StatusOf(index_, *ledger);
  EXPECT_FALSE(status.synchronized);
  EXPECT_EQ(status.error, "new");
  EXPECT_FALSE(status.sequence_valid);
  EXPECT_EQ(status.device_blocks, 0u);

  ledger->Synchronize({42});
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, 3), (Hits{12, 0}));
  status = StatusOf(index_, *ledger);
  EXPECT_TRUE(status.synchronized);
  EXPECT_EQ(status.error, "");
  EXPECT_EQ(status.sequence.value, 42u);
  EXPECT_TRUE(status.sequence_valid);
  EXPECT_EQ(status.device_blocks, 3u);

  ledger->Unsynchronize("gap");
  EXPECT_EQ(MatchPrompt(index_, *ledger, 1, 3), (Hits{0, 0}));
  status = StatusOf(index_, *ledger);
  EXPECT_FALSE(status.synchronized);
  EXPECT_EQ(status.error, "gap");
  EXPECT_EQ(status.sequence.value, 42u) << "the last indexed sequence stays";
  EXPECT_TRUE(status.sequence_valid);
  EXPECT_EQ(status.device_blocks, 0u);

  ledger->Unsynchronize("still");
  EXPECT_EQ(StatusOf(index_, *ledger).error, "still");
  ledger->ForgetSequence();
  status = StatusOf(index_, *ledger);
  EXPECT_FALSE(status.sequence_valid);
  EXPECT_EQ(status.sequence.value, 0u);
}

TEST_F(KVIndexState, EveryChangeOfStateIsANewGenerationOfTheSameLife) {
  auto ledger = Open(index_, Info("a:1"));
  std::vector<std::uint64_t> seen;
  const auto note = [&] { seen.push_back(StatusOf(index_, *ledger).generation); };
  note();
  ledger->Synchronize({1});
  note();
  ledger->Synchronize({2});  // a reconciliation
  note();
  ledger->Unsynchronize("gap");
  note();
  ledger->Synchronize({3});
  note();
  ledger->ClearTier(Tier::kHost);
  note();
  ledger->ClearAll();
  note();
  for (std::size_t i = 1; i < seen.size(); ++i) {
    EXPECT_GT(seen[i], seen[i - 1]) << i;
    EXPECT_EQ(KvIndex::LifeOf(seen[i]), KvIndex::LifeOf(seen[0]));
  }
  ledger->Advance({4});
  note();
  EXPECT_EQ(seen[seen.size() - 2], seen.back()) << "plain progress is no change of state";
  EXPECT_EQ(StatusOf(index_, *ledger).sequence.value, 4u);
}

TEST_F(KVIndexState, AMatchAndTheListAgreeOnTheGeneration) {
  auto ledger = OpenSynchronized(index_, Info("a:1"));
  MatchResult result;
  index_.Match(Prompt(1, 2, 4), result);
  const StreamStatus status = StatusOf(index_, *ledger);
  EXPECT_EQ(result.slots[status.slot].generation, status.generation);
  EXPECT_TRUE(result.slots[status.slot].synchronized);
}

TEST_F(KVIndexState, StreamsAreListedByNameThenRank) {
  auto c = Open(index_, Info("b:1", 1));
  auto b = Open(index_, Info("b:1", 0));
  auto d = Open(index_, Info("b:2", 0));
  auto a = Open(index_, Info("a:9", 3));
  std::vector<std::string> names;
  for (const StreamStatus& status : index_.Streams()) {
    names.push_back(status.info->key.instance.name + "/" +
                    std::to_string(status.info->key.rank.value));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a:9/3", "b:1/0", "b:1/1", "b:2/0"}));
  b.reset();
  EXPECT_EQ(index_.Streams().size(), 3u);
}

TEST_F(KVIndexState, TheSlotTableFindsAnInstancesRanks) {
  auto b1 = Open(index_, Info("b:1", 1));
  auto b0 = Open(index_, Info("b:1", 0));
  auto a = Open(index_, Info("a:1", 0));
  const auto table = index_.Slots();
  const auto ranks = table->Of({"b:1"});
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0].info->key.rank.value, 0);
  EXPECT_EQ(ranks[1].info->key.rank.value, 1);
  EXPECT_EQ(ranks[1].slot, StatusOf(index_, *b1).slot);
  EXPECT_EQ(ranks[1].life, KvIndex::LifeOf(StatusOf(index_, *b1).generation));
  EXPECT_TRUE(table->Of({"a:2"}).empty());
  EXPECT_TRUE(table->Of({"b:"}).empty());
  a.reset();
  EXPECT_EQ(table->Of({"a:1"}).size(), 1u) << "a table does not change";
  EXPECT_TRUE(index_.Slots()->Of({"a:1"}).empty());
}

TEST_F(KVIndexState, CountsAreThoseOfTheSequenceThatIsShown) {
  auto ledger = OpenSynchronized(index_, Info("a:1"));
  ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, 5).ok());
  ASSERT_TRUE(ledger->StoreKnown(Tier::kHost, Wires(1000, 2)).ok());
  EXPECT_EQ(StatusOf(index_, *ledger).device_blocks, 0u) << "the batch is not complete";
  ledger->Advance({1});
  EXPECT_EQ(StatusOf(index_, *ledger).device_blocks, 5u);
  EXPECT_EQ(StatusOf(index_, *ledger).host_blocks, 2u);
  ledger->ClearTier(Tier::kDevice);
  ledger->Advance({2});
  EXPECT_EQ(StatusOf(index_, *ledger).device_blocks, 0u);
  EXPECT_EQ(StatusOf(index_, *ledger).host_blocks, 2u);
}

// --- Memory follows the resident set.

using KVIndexMemory = KVIndex;

TEST_F(KVIndexMemory, IsGivenBackWhenBlocksGoAndWhenStreamsEnd) {
  auto ledger = OpenSynchronized(index_, Info("a:1", 0, 1));
  const std::size_t idle = index_.Memory().view_bytes + index_.Memory().ledger_bytes;
  constexpr std::uint32_t kBlocks = 50'000;
  for (std::uint32_t name = 1; name <= kBlocks / 500; ++name) {
    ASSERT_TRUE(StoreBlocks(*ledger, name, 0, 500).ok());
  }
  ledger->Advance({1});
  const auto full = index_.Memory();
  EXPECT_EQ(full.view_entries, kBlocks);
  for (std::uint32_t name = 1; name <= kBlocks / 500; ++name) RemoveBlocks(*ledger, name, 10, 500);
  ledger->Advance({2});
  const auto sparse = index_.Memory();
  EXPECT_EQ(sparse.view_entries, kBlocks / 50);
  EXPECT_LT(sparse.view_bytes, full.view_bytes / 4);
  // The names of the dropped ones are bounded by the limit: at most a byte for each mapping of it.
  EXPECT_LT(sparse.ledger_bytes, full.ledger_bytes / 4 + Options{}.max_blocks_per_stream);
  ledger->ClearAll();
  const auto cleared = index_.Memory();
  EXPECT_EQ(cleared.view_entries, 0u);
  // What an empty table of the smallest size takes in each of 256 segments.
  EXPECT_LT(cleared.view_bytes + cleared.ledger_bytes, idle + 512 * 1024);
  ledger.reset();
  EXPECT_EQ(index_.Memory().view_bytes, 0u);
  EXPECT_EQ(index_.Memory().ledger_bytes, 0u);
}

TEST_F(KVIndexMemory, IsFlatWhileBlocksAreReplaced) {
  auto ledger = OpenSynchronized(index_, Info("a:1", 0, 1));
  std::size_t most = 0;
  std::size_t after_warm_up = 0;
  for (std::uint32_t name = 1; name <= 400; ++name) {
    ASSERT_TRUE(StoreBlocks(*ledger, name, 0, 500).ok());
    if (name > 20) {
      EXPECT_EQ(RemoveBlocks(*ledger, name - 20, 0, 500), 0u);
    }
    ledger->Advance({name});
    const auto use = index_.Memory();
    most = std::max(most, use.view_bytes + use.ledger_bytes);
    if (name == 60) after_warm_up = most;
  }
  EXPECT_LE(most, after_warm_up + after_warm_up / 5);
}

TEST_F(KVIndexMemory, BlocksThatManyShareAreHeldOnce) {
  std::vector<std::unique_ptr<StreamLedger>> ledgers;
  for (std::uint32_t i = 0; i < 64; ++i) {
    ledgers.push_back(OpenSynchronized(index_, Info("e" + std::to_string(i), 0, 1)));
    for (std::uint32_t name = 1; name <= 20; ++name) {
      ASSERT_TRUE(StoreBlocks(*ledgers[i], name, 0, 500).ok());
    }
  }
  EXPECT_EQ(index_.Memory().view_entries, 10'000u);
  for (auto& ledger : ledgers) ledger->ClearAll();
  EXPECT_EQ(index_.Memory().view_entries, 0u);
}

TEST(KVIndexSalt, DoesNotChangeAnAnswer) {
  for (const std::uint64_t salt : {std::uint64_t{0}, std::uint64_t{0x1234567890abcdef}}) {
    KvIndex index({262144, salt});
    auto ledger = OpenSynchronized(index, Info("a:1"));
    ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, 50).ok());
    RemoveBlocks(*ledger, 1, 30, 31);
    EXPECT_EQ(MatchPrompt(index, *ledger, 1, 50), (Hits{120, 0})) << salt;
  }
}

}  // namespace
}  // namespace xms::kv_index
