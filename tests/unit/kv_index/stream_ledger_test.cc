// What a stream's ledger makes of its events: unknown, opaque, parked, doubled, in conflict, too many.
#include "kv_index/stream_ledger.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kv_index/kv_index.h"
#include "tests/unit/kv_index/index_fixture.h"
#include "tests/unit/kv_index/twin_tokens.h"

namespace xms::kv_index {
namespace {

using Content = StreamLedger::Content;
using Orphans = StreamLedger::Orphans;
using Statement = StreamLedger::Statement;

class KVIndexLedger : public testing::Test {
 protected:
  ApplyResult StoreOne(std::uint64_t wire, std::optional<std::uint64_t> parent,
                       std::vector<std::uint32_t> tokens, Tier tier = Tier::kDevice,
                       Orphans orphans = Orphans::kRefuse) {
    const std::vector<WireHash> hashes = {{wire}};
    return ledger_->Store(tier, hashes,
                          parent.has_value() ? std::optional(WireHash{*parent}) : std::nullopt,
                          tokens, orphans);
  }
  ApplyResult StoreKnown(std::uint64_t wire, Tier tier) {
    return ledger_->StoreKnown(tier, Wires(wire, 1));
  }
  std::uint32_t Remove(std::uint64_t wire, Tier tier = Tier::kDevice) {
    return ledger_->Remove(tier, Wires(wire, 1));
  }
  Hits Match(std::vector<std::uint32_t> tokens) {
    return kv_index::Match(index_, *ledger_, tokens);
  }

  KvIndex index_{Options{}};
  std::unique_ptr<StreamLedger> ledger_ = OpenSynchronized(index_, Info("a:1", 0, 1));
};

TEST_F(KVIndexLedger, AnUnknownParentIsNamedAndNothingChanges) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  const ApplyResult result = StoreOne(2, 99, {11});
  EXPECT_EQ(result.code, ApplyCode::kUnknownParent);
  EXPECT_EQ(result.culprit.value, 99u);
  EXPECT_EQ(ledger_->mappings(), 1u);
  EXPECT_EQ(Remove(2), 1u);
}

TEST_F(KVIndexLedger, OrphansOfASnapshotAreRememberedAndTheirDescendantsToo) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  ASSERT_TRUE(StoreOne(2, 99, {11}, Tier::kDevice, Orphans::kRemember).ok());
  ASSERT_TRUE(StoreOne(3, 2, {12}).ok());  // not an unknown parent
  EXPECT_EQ(ledger_->mappings(), 4u) << "and the parent that it named";
  EXPECT_EQ(ledger_->opaque_mappings(), 3u);
  EXPECT_EQ(Match({11}), (Hits{0, 0}));
  EXPECT_EQ(Match({10}), (Hits{1, 0})) << "other prefixes stay";
  EXPECT_EQ(Remove(3), 0u);
}

TEST_F(KVIndexLedger, AParentThatOnlyAnOrphanNamedIsNotUnknown) {
  ASSERT_TRUE(StoreOne(5, 77, {11}, Tier::kDevice, Orphans::kRemember).ok());
  const std::uint64_t digest = ledger_->digest();
  ASSERT_TRUE(StoreOne(6, 77, {12}).ok());
  EXPECT_EQ(ledger_->digest(), digest + StreamLedger::DigestTerm({6}, Tier::kDevice));
  EXPECT_EQ(ledger_->Lookup({77}), (Statement{.mapped = true, .key = {}}));
  EXPECT_EQ(ledger_->opaque_mappings(), 3u);
  // It may come later in the same snapshot, and is what it says then.
  ASSERT_TRUE(StoreOne(77, {}, {10}, Tier::kDevice, Orphans::kRemember).ok());
  ASSERT_TRUE(StoreOne(5, 77, {11}).ok());
  EXPECT_EQ(Match({10, 11}), (Hits{2, 0}));
}

// C2
TEST_F(KVIndexLedger, ForgettingResidencyKeepsWhatHashesStandFor) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  ASSERT_TRUE(StoreOne(2, 1, {11}).ok());
  ASSERT_TRUE(ledger_->StoreOpaque(Tier::kDevice, Wires(3, 3)).ok());
  ledger_->ForgetResidency();
  EXPECT_EQ(ledger_->mappings(), 5u);
  EXPECT_EQ(ledger_->opaque_mappings(), 3u);
  EXPECT_EQ(ledger_->digest(), 0u);
  EXPECT_EQ(Match({10, 11}), (Hits{0, 0}));
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  EXPECT_EQ(StoreKnown(2, Tier::kHost).unknown_hashes, 0u);
  EXPECT_EQ(Match({10, 11}), (Hits{1, 1}));
}

TEST_F(KVIndexLedger, AChildOfAForgottenMappingIsOpaqueUntilEverythingIsCleared) {
  ASSERT_TRUE(ledger_->StoreOpaque(std::nullopt, Wires(1, 3000)).ok());
  ASSERT_EQ(ledger_->mappings(), 1024u);
  ASSERT_TRUE(StoreOne(5000, 1, {11}).ok());
  EXPECT_EQ(ledger_->opaque_mappings(), 1025u);
  EXPECT_EQ(Match({11}), (Hits{0, 0}));
  EXPECT_EQ(StoreOne(5001, 3001, {11}).code, ApplyCode::kUnknownParent);
  EXPECT_EQ(ledger_->Lookup({1}), Statement{}) << "its name alone is left";
  EXPECT_EQ(StoreKnown(1, Tier::kHost).unknown_hashes, 1u);
  ledger_->ClearAll();
  EXPECT_EQ(StoreOne(5000, 1, {11}).code, ApplyCode::kUnknownParent) << "another life";
}

// B5
TEST_F(KVIndexLedger, AnOrphanStaysOpaqueWhenItsParentReturnsAndIsIndexedWhenItIsStoredAgain) {
  ASSERT_TRUE(StoreOne(2, 1, {11}, Tier::kHost, Orphans::kRemember).ok());
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  EXPECT_EQ(Match({10, 11}), (Hits{1, 0}));
  ASSERT_TRUE(StoreOne(2, 1, {11}, Tier::kDevice).ok());
  EXPECT_EQ(ledger_->opaque_mappings(), 0u);
  EXPECT_EQ(Match({10, 11}), (Hits{2, 0}));
  Remove(2, Tier::kDevice);
  EXPECT_EQ(Match({10, 11}), (Hits{1, 1})) << "what it held while opaque counts now";
}

// B5
TEST_F(KVIndexLedger, OpaqueHashesHaveNoCreditButAreKnown) {
  ASSERT_TRUE(ledger_->StoreOpaque(Tier::kDevice, Wires(1, 2)).ok());
  ASSERT_TRUE(ledger_->StoreOpaque(std::nullopt, Wires(3, 1)).ok());
  EXPECT_EQ(ledger_->opaque_mappings(), 3u);
  EXPECT_EQ(StoreKnown(1, Tier::kHost).unknown_hashes, 0u);
  EXPECT_EQ(StoreKnown(3, Tier::kHost).unknown_hashes, 0u);
  EXPECT_EQ(Remove(2), 0u);
  ASSERT_TRUE(StoreOne(5, 3, {10}).ok());
  EXPECT_EQ(ledger_->opaque_mappings(), 4u) << "a descendant of an opaque hash is opaque";
  ledger_->Advance({1});
  EXPECT_EQ(StatusOf(index_, *ledger_).device_blocks, 0u);
  EXPECT_EQ(index_.Memory().view_entries, 0u);
}

TEST_F(KVIndexLedger, AStoreOfOtherContentTurnsAnIndexedHashOpaque) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  ASSERT_TRUE(StoreOne(2, 1, {11}, Tier::kHost).ok());
  ASSERT_TRUE(ledger_->StoreOpaque(Tier::kDevice, Wires(2, 1), Content::kOther).ok());
  EXPECT_EQ(Match({10, 11}), (Hits{1, 0}));
  EXPECT_EQ(ledger_->Lookup({2}),
            (Statement{.mapped = true, .device = true, .host = true, .key = {}}));
  EXPECT_EQ(ledger_->opaque_mappings(), 1u);
  EXPECT_EQ(ledger_->digest(), StreamLedger::DigestTerm({1}, Tier::kDevice) +
                                   StreamLedger::DigestTerm({2}, Tier::kDevice) +
                                   StreamLedger::DigestTerm({2}, Tier::kHost));
  ASSERT_TRUE(StoreOne(3, 2, {12}).ok());
  EXPECT_EQ(ledger_->opaque_mappings(), 2u) << "and so is what descends from it";
  ledger_->Advance({1});
  EXPECT_EQ(StatusOf(index_, *ledger_).device_blocks, 1u);
  EXPECT_EQ(StatusOf(index_, *ledger_).host_blocks, 0u);
  EXPECT_EQ(index_.Memory().view_entries, 1u);
  ASSERT_TRUE(StoreOne(2, {}, {77}).ok()) << "what it was is no statement any more";
}

TEST_F(KVIndexLedger, AHashThatWasTextBeforeItWentHasNoCreditWhenItReturnsAsSomethingElse) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  Remove(1);
  ASSERT_TRUE(ledger_->StoreOpaque(Tier::kDevice, Wires(1, 1), Content::kOther).ok());
  EXPECT_EQ(Match({10}), (Hits{0, 0}));
  EXPECT_EQ(ledger_->opaque_mappings(), 1u);
  EXPECT_EQ(Remove(1), 0u);
  EXPECT_EQ(StoreKnown(1, Tier::kHost).unknown_hashes, 0u);
  EXPECT_EQ(Match({10}), (Hits{0, 0}));
  ASSERT_TRUE(ledger_->StoreOpaque(std::nullopt, Wires(1, 1), Content::kOther).ok());
  ASSERT_TRUE(StoreOne(2, {}, {20}).ok());
  ASSERT_TRUE(ledger_->StoreOpaque(std::nullopt, Wires(2, 1), Content::kOther).ok());
  EXPECT_EQ(Match({20}), (Hits{0, 0})) << "a medium that is neither tier makes no difference";
}

TEST_F(KVIndexLedger, AnIndexedHashStaysIndexedWhenAnOpaqueStoreSaysNothingOfItsContent) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  ASSERT_TRUE(ledger_->StoreOpaque(Tier::kHost, Wires(1, 1)).ok());
  ASSERT_TRUE(ledger_->StoreOpaque(std::nullopt, Wires(1, 1)).ok());
  EXPECT_EQ(ledger_->opaque_mappings(), 0u);
  Remove(1, Tier::kDevice);
  EXPECT_EQ(Match({10}), (Hits{0, 1}));
  ASSERT_TRUE(StoreOne(2, 99, {11}, Tier::kDevice, Orphans::kRemember).ok());
  ASSERT_TRUE(StoreOne(1, 98, {10}, Tier::kDevice, Orphans::kRemember).ok());
  EXPECT_EQ(Match({10}), (Hits{1, 0}));
}

TEST_F(KVIndexLedger, TheSameHashWithOtherContentIsAConflict) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  ASSERT_TRUE(StoreOne(2, 1, {11}).ok());
  ASSERT_TRUE(StoreOne(3, {}, {12}).ok());
  const ApplyResult tokens = StoreOne(2, 1, {13});
  EXPECT_EQ(tokens.code, ApplyCode::kConflict);
  EXPECT_EQ(tokens.culprit.value, 2u);
  EXPECT_EQ(StoreOne(2, 3, {11}).code, ApplyCode::kConflict);
  EXPECT_EQ(StoreOne(2, {}, {11}).code, ApplyCode::kConflict);
  EXPECT_EQ(StoreOne(2, 1, {11}).code, ApplyCode::kApplied);
  // Another parent's hash with the same content is the same prefix.
  ASSERT_TRUE(StoreOne(4, {}, {10}).ok());
  EXPECT_EQ(StoreOne(2, 4, {11}).code, ApplyCode::kApplied);
}

TEST_F(KVIndexLedger, AConflictIsSeenAfterTheBlockIsGoneToo) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  Remove(1);
  EXPECT_EQ(StoreOne(1, {}, {11}).code, ApplyCode::kConflict);
  EXPECT_EQ(StoreOne(1, {}, {10}).code, ApplyCode::kApplied);
}

TEST_F(KVIndexLedger, TokenlessStoresOfUnknownHashesAreCountedAndIgnored) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  const ApplyResult result = ledger_->StoreKnown(Tier::kHost, Wires(1, 4));
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.unknown_hashes, 3u);
  EXPECT_EQ(ledger_->mappings(), 1u);
}

TEST_F(KVIndexLedger, ADemotionMayComeAsRemovalAndThenATokenlessStore) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  ASSERT_TRUE(StoreOne(2, 1, {11}).ok());
  EXPECT_EQ(Remove(2, Tier::kDevice), 0u);
  EXPECT_EQ(Match({10, 11}), (Hits{1, 0}));
  EXPECT_EQ(StoreKnown(2, Tier::kHost).unknown_hashes, 0u);
  EXPECT_EQ(Match({10, 11}), (Hits{1, 1}));
}

TEST_F(KVIndexLedger, ARemovedParentIsStillAParent) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  Remove(1);
  ASSERT_TRUE(StoreOne(2, 1, {11}).ok());
  EXPECT_EQ(Match({10, 11}), (Hits{0, 0}));
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  EXPECT_EQ(Match({10, 11}), (Hits{2, 0}));
}

TEST_F(KVIndexLedger, RemovingWhatIsNotInThatTierIsNotUnknown) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  EXPECT_EQ(Remove(1, Tier::kHost), 0u);
  EXPECT_EQ(Match({10}), (Hits{1, 0}));
  EXPECT_EQ(Remove(1, Tier::kDevice), 0u);
  EXPECT_EQ(Remove(1, Tier::kDevice), 0u);
  EXPECT_EQ(Remove(7), 1u);
}

TEST_F(KVIndexLedger, EveryWireHashIsOrdinary) {
  ASSERT_TRUE(StoreOne(0, {}, {10}).ok());
  ASSERT_TRUE(StoreOne(UINT64_MAX, 0, {11}).ok());
  EXPECT_EQ(Match({10, 11}), (Hits{2, 0}));
  EXPECT_EQ(Remove(0), 0u);
  EXPECT_EQ(Match({10, 11}), (Hits{0, 0}));
  EXPECT_EQ(ledger_->mappings(), 2u);
}

// C2
TEST_F(KVIndexLedger, MappingsWithoutResidencyAreKeptFirstInFirstOut) {
  const auto tokens = Prompt(1, 1500, 1);
  for (std::uint32_t i = 0; i < 1500; ++i) ASSERT_TRUE(StoreOne(i, {}, {tokens[i]}).ok());
  for (std::uint32_t i = 0; i < 1024; ++i) Remove(i);
  EXPECT_EQ(ledger_->mappings(), 1500u);
  // Number 3 comes back and goes again: now it is the youngest.
  ASSERT_TRUE(StoreKnown(3, Tier::kHost).ok());
  Remove(3, Tier::kHost);
  for (std::uint32_t i = 1024; i < 1034; ++i) Remove(i);
  EXPECT_EQ(ledger_->mappings(), 1490u);
  for (const std::uint32_t i : {0u, 1u, 2u, 4u, 10u}) EXPECT_EQ(Remove(i), 1u) << i;
  for (const std::uint32_t i : {3u, 11u, 12u, 1033u}) EXPECT_EQ(Remove(i), 0u) << i;
}

// C2
TEST_F(KVIndexLedger, AnEighthOfTheResidentOnesMayOutliveTheirResidency) {
  constexpr std::uint32_t kBlocks = 18'000;
  const auto tokens = Prompt(1, kBlocks, 1);
  for (std::uint32_t i = 0; i < kBlocks; ++i) ASSERT_TRUE(StoreOne(i, {}, {tokens[i]}).ok());
  for (std::uint32_t i = 0; i < 2'000; ++i) Remove(i);
  EXPECT_EQ(ledger_->mappings(), kBlocks) << "2,000 of 16,000";
  Remove(2'000);
  EXPECT_EQ(ledger_->mappings(), kBlocks - 2u) << "1,999 is an eighth of 15,999";
  EXPECT_EQ(Remove(1), 1u);
  EXPECT_EQ(Remove(2), 0u);
  // With the residents the room for others goes, and with it the memory.
  for (std::uint32_t i = 2'001; i < kBlocks; ++i) Remove(i);
  EXPECT_EQ(ledger_->mappings(), 1024u);
}

TEST_F(KVIndexLedger, ClearingATierLeavesTheOtherAndKeepsMappings) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  ASSERT_TRUE(StoreOne(2, 1, {11}).ok());
  ASSERT_TRUE(StoreOne(3, 2, {12}, Tier::kHost).ok());
  ASSERT_TRUE(StoreKnown(1, Tier::kHost).ok());
  ASSERT_TRUE(ledger_->StoreOpaque(Tier::kDevice, Wires(4, 1)).ok());
  ledger_->ClearTier(Tier::kDevice);
  EXPECT_EQ(Match({10, 11, 12}), (Hits{0, 1}));
  EXPECT_EQ(ledger_->mappings(), 4u);
  EXPECT_EQ(StoreKnown(2, Tier::kDevice).unknown_hashes, 0u);
  EXPECT_EQ(Match({10, 11, 12}), (Hits{1, 2}));
}

TEST_F(KVIndexLedger, ClearingATierKeepsNoMoreThanTheRuleAllows) {
  const auto tokens = Prompt(1, 5000, 1);
  for (std::uint32_t i = 0; i < 5000; ++i) ASSERT_TRUE(StoreOne(i, {}, {tokens[i]}).ok());
  ledger_->ClearTier(Tier::kDevice);
  EXPECT_EQ(ledger_->mappings(), 1024u);
  EXPECT_EQ(index_.Memory().view_entries, 0u);
}

// Which mappings a clear drops is the ledger's choice only among those that it has parked itself.
TEST_F(KVIndexLedger, ClearingATierDropsWhatWasParkedBeforeFirst) {
  const auto tokens = Prompt(1, 5000, 1);
  for (std::uint32_t i = 0; i < 5000; ++i) {
    ASSERT_TRUE(StoreOne(i, {}, {tokens[i]}, i < 1000 ? Tier::kHost : Tier::kDevice).ok());
  }
  for (std::uint32_t i = 1000; i < 1500; ++i) Remove(i);
  for (std::uint32_t i = 1500; i < 4500; ++i) {
    ASSERT_TRUE(StoreKnown(i, Tier::kHost).ok());
  }
  // 500 are parked, 500 leave, 4,000 stay: all but 1,024 would be kept.
  ledger_->ClearTier(Tier::kDevice);
  EXPECT_EQ(ledger_->mappings(), 5000u);
  for (std::uint32_t i = 0; i < 4500; ++i) {
    if (i < 1000 || i >= 1500) {
      ASSERT_TRUE(ledger_->Lookup({i}).host) << i;
    }
  }
  for (std::uint32_t i = 4500; i < 5000; ++i) ASSERT_TRUE(StoreKnown(i, Tier::kDevice).ok()) << i;
  for (std::uint32_t i = 3900; i < 4500; ++i) {
    Remove(i, Tier::kHost);
    ASSERT_TRUE(StoreKnown(i, Tier::kDevice).ok());
  }
  // 500 are parked, 1,100 leave.
  ledger_->ClearTier(Tier::kDevice);
  EXPECT_EQ(ledger_->mappings(), 3400u + 1024u);
  for (std::uint32_t i = 1000; i < 1500; ++i) ASSERT_EQ(ledger_->Lookup({i}), Statement{}) << i;
  std::uint32_t kept = 0;
  for (std::uint32_t i = 3900; i < 5000; ++i) {
    const Statement statement = ledger_->Lookup({i});
    kept += statement.mapped;
    if (!statement.mapped) {
      ASSERT_TRUE(StoreOne(9000, i, {1}).ok()) << "its name is left, " << i;
    }
  }
  EXPECT_EQ(kept, 1024u);
}

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// One by one, in the table's own order, it took forty times as long as storing them.
TEST_F(KVIndexLedger, ClearingALargeTierTakesNoLongerThanFillingIt) {
  constexpr std::uint32_t kPrompts = 200;
  const double begin = ThreadSeconds();
  for (std::uint32_t name = 1; name <= kPrompts; ++name) {
    ASSERT_TRUE(StoreBlocks(*ledger_, name, 0, 500).ok());
  }
  const double filled = ThreadSeconds();
  ledger_->ClearTier(Tier::kDevice);
  const double cleared = ThreadSeconds();
  EXPECT_LT(cleared - filled, 4 * (filled - begin));
  EXPECT_EQ(ledger_->mappings(), 1024u);
  EXPECT_EQ(index_.Memory().view_entries, 0u);
}

TEST_F(KVIndexLedger, ClearingEverythingForgetsEverything) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  ASSERT_TRUE(ledger_->StoreOpaque(Tier::kHost, Wires(2, 1)).ok());
  ledger_->ClearAll();
  EXPECT_EQ(ledger_->mappings(), 0u);
  EXPECT_EQ(ledger_->opaque_mappings(), 0u);
  EXPECT_EQ(ledger_->digest(), 0u);
  EXPECT_EQ(Match({10}), (Hits{0, 0}));
  EXPECT_EQ(Remove(1), 1u);
  EXPECT_EQ(StoreOne(3, 1, {11}).code, ApplyCode::kUnknownParent);
  EXPECT_EQ(StoreOne(1, {}, {77}).code, ApplyCode::kApplied) << "no conflict with another life";
}

TEST_F(KVIndexLedger, SaysOfEachHashWhatIsKnownOfIt) {
  const model::BlockHasher hasher(ledger_->info().hash_seed, 1);
  const std::uint32_t ten = 10;
  const std::uint32_t eleven = 11;
  const auto parent = hasher.Child(model::kRootKey, std::span(&ten, 1));
  const auto child = hasher.Child(parent, std::span(&eleven, 1));
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  ASSERT_TRUE(StoreOne(2, 1, {11}, Tier::kHost).ok());
  ASSERT_TRUE(ledger_->StoreOpaque(Tier::kHost, Wires(3, 1)).ok());
  EXPECT_EQ(ledger_->Lookup({1}),
            (Statement{.mapped = true, .indexed = true, .device = true, .key = parent}));
  EXPECT_EQ(ledger_->Lookup({2}),
            (Statement{.mapped = true, .indexed = true, .host = true, .key = child}));
  EXPECT_EQ(ledger_->Lookup({3}), (Statement{.mapped = true, .host = true, .key = {}}));
  EXPECT_EQ(ledger_->Lookup({4}), Statement{});
  Remove(1);
  EXPECT_EQ(ledger_->Lookup({1}), (Statement{.mapped = true, .indexed = true, .key = parent}));
}

// --- Limits.

class KVIndexLimit : public testing::Test {
 protected:
  static constexpr std::uint64_t kLimit = 100;
  KvIndex index_{Options{.max_blocks_per_stream = kLimit}};
  std::unique_ptr<StreamLedger> ledger_ = OpenSynchronized(index_, Info("a:1", 0, 1));
};

// C7
TEST_F(KVIndexLimit, OneResidentMappingMoreIsOverTheLimit) {
  EXPECT_EQ(ledger_->limit(), kLimit);
  ASSERT_TRUE(StoreBlocks(*ledger_, 1, 0, kLimit).ok());
  ASSERT_TRUE(StoreBlocks(*ledger_, 1, 0, kLimit).ok());
  const ApplyResult result = StoreBlocks(*ledger_, 2, 0, 1);
  EXPECT_EQ(result.code, ApplyCode::kOverLimit);
  EXPECT_EQ(result.culprit.value, 2000u);
  EXPECT_EQ(ledger_->StoreOpaque(Tier::kHost, Wires(9, 1)).code, ApplyCode::kOverLimit);
}

// C7
TEST_F(KVIndexLimit, OpaqueMappingsCountTowardsIt) {
  ASSERT_TRUE(ledger_->StoreOpaque(Tier::kDevice, Wires(5000, 60)).ok());
  ASSERT_TRUE(StoreBlocks(*ledger_, 1, 0, 40).ok());
  EXPECT_EQ(StoreBlocks(*ledger_, 1, 40, 41).code, ApplyCode::kOverLimit);
}

TEST_F(KVIndexLimit, MappingsWithoutResidencyGiveWayOldestFirst) {
  ASSERT_TRUE(StoreBlocks(*ledger_, 1, 0, kLimit).ok());
  RemoveBlocks(*ledger_, 1, 90, 100);
  ASSERT_TRUE(StoreBlocks(*ledger_, 2, 0, 4).ok());
  EXPECT_EQ(ledger_->mappings(), kLimit);
  EXPECT_EQ(RemoveBlocks(*ledger_, 1, 90, 94), 4u) << "dropped";
  EXPECT_EQ(RemoveBlocks(*ledger_, 1, 94, 100), 0u) << "kept";
  ASSERT_TRUE(StoreBlocks(*ledger_, 2, 4, 10).ok());
  EXPECT_EQ(StoreBlocks(*ledger_, 2, 10, 11).code, ApplyCode::kOverLimit);
}

TEST_F(KVIndexLimit, AnOpaqueHashWithoutResidencyIsNoReasonToPassIt) {
  ASSERT_TRUE(StoreBlocks(*ledger_, 1, 0, kLimit).ok());
  EXPECT_TRUE(ledger_->StoreOpaque(std::nullopt, Wires(5000, 3)).ok());
  EXPECT_EQ(ledger_->mappings(), kLimit);
  EXPECT_EQ(ledger_->opaque_mappings(), 0u);
  RemoveBlocks(*ledger_, 1, 99, 100);
  EXPECT_TRUE(ledger_->StoreOpaque(std::nullopt, Wires(5000, 1)).ok());
  EXPECT_EQ(ledger_->opaque_mappings(), 1u);
  EXPECT_EQ(ledger_->mappings(), kLimit);
}

// --- Two hashes of one content, and two contents with one short name.

using KVIndexDoubles = KVIndexLedger;

TEST_F(KVIndexDoubles, ABlockIsThereWhileEitherOfTwoHashesHoldsIt) {
  ASSERT_TRUE(StoreOne(1, {}, {10}).ok());
  ASSERT_TRUE(StoreOne(2, {}, {10}).ok());
  EXPECT_EQ(ledger_->mappings(), 2u);
  Remove(1);
  EXPECT_EQ(Match({10}), (Hits{1, 0}));
  Remove(2);
  EXPECT_EQ(Match({10}), (Hits{0, 0}));
  EXPECT_EQ(index_.Memory().view_entries, 0u);
}

TEST_F(KVIndexDoubles, TiersOfTwoHashesAddUpAndEndOneByOne) {
  ASSERT_TRUE(StoreOne(1, {}, {10}, Tier::kDevice).ok());
  ASSERT_TRUE(StoreOne(2, {}, {10}, Tier::kHost).ok());
  ASSERT_TRUE(StoreKnown(1, Tier::kHost).ok());
  ASSERT_TRUE(StoreOne(3, {}, {10}, Tier::kDevice).ok());
  Remove(1, Tier::kDevice);
  EXPECT_EQ(Match({10}), (Hits{1, 0})) << "the third holds it";
  Remove(3, Tier::kDevice);
  EXPECT_EQ(Match({10}), (Hits{0, 1}));
  Remove(2, Tier::kHost);
  EXPECT_EQ(Match({10}), (Hits{0, 1})) << "the first still holds it on Host";
  Remove(1, Tier::kHost);
  EXPECT_EQ(Match({10}), (Hits{0, 0}));
  ASSERT_TRUE(StoreKnown(2, Tier::kDevice).ok());
  EXPECT_EQ(Match({10}), (Hits{1, 0}));
}

TEST_F(KVIndexDoubles, AnOpaqueHashThatTurnsOutToBeADoubleCountsWithAllItsTiers) {
  ASSERT_TRUE(StoreOne(1, {}, {10}, Tier::kDevice).ok());
  ASSERT_TRUE(ledger_->StoreOpaque(Tier::kHost, Wires(2, 1)).ok());
  ASSERT_TRUE(StoreOne(2, {}, {10}, Tier::kDevice).ok());
  Remove(1, Tier::kDevice);
  Remove(2, Tier::kDevice);
  EXPECT_EQ(Match({10}), (Hits{0, 1}));
}

TEST_F(KVIndexDoubles, ContentsThatShareTheShortNameAreKeptApart) {
  for (const auto& [a, b] : TwinTokens(3)) {
    ledger_->ClearAll();
    ASSERT_TRUE(StoreOne(1, {}, {a}).ok());
    ASSERT_TRUE(StoreOne(2, {}, {b}).ok());
    EXPECT_EQ(StoreOne(1, {}, {b}).code, ApplyCode::kConflict);
    EXPECT_EQ(StoreOne(2, {}, {a}).code, ApplyCode::kConflict);
    ASSERT_TRUE(StoreOne(3, 1, {1}).ok());
    ASSERT_TRUE(StoreOne(4, 2, {1}).ok());
    EXPECT_EQ(Match({a, 1}), (Hits{2, 0}));
    EXPECT_EQ(Match({b, 1}), (Hits{2, 0}));
    Remove(1);
    EXPECT_EQ(Match({a, 1}), (Hits{0, 0}));
    EXPECT_EQ(Match({b, 1}), (Hits{2, 0}));
    ASSERT_TRUE(StoreKnown(1, Tier::kHost).ok());
    EXPECT_EQ(Match({a, 1}), (Hits{1, 1}));
    Remove(2);
    EXPECT_EQ(Match({a, 1}), (Hits{1, 1}));
    EXPECT_EQ(Match({b, 1}), (Hits{0, 0}));
  }
}

TEST_F(KVIndexDoubles, DoublesOfContentsThatShareTheShortNameAreKeptApartToo) {
  const auto [a, b] = TwinTokens(1).front();
  ASSERT_TRUE(StoreOne(1, {}, {a}).ok());
  ASSERT_TRUE(StoreOne(2, {}, {b}).ok());  // exact
  ASSERT_TRUE(StoreOne(3, {}, {a}).ok());
  ASSERT_TRUE(StoreOne(4, {}, {b}).ok());
  Remove(2);
  EXPECT_EQ(Match({b}), (Hits{1, 0}));
  Remove(1);
  EXPECT_EQ(Match({a}), (Hits{1, 0}));
  Remove(3);
  EXPECT_EQ(Match({a}), (Hits{0, 0}));
  EXPECT_EQ(Match({b}), (Hits{1, 0}));
  ASSERT_TRUE(StoreKnown(3, Tier::kDevice).ok());
  Remove(4);
  EXPECT_EQ(Match({a}), (Hits{1, 0}));
  EXPECT_EQ(Match({b}), (Hits{0, 0}));
}

// --- Digest.

using KVIndexDigest = KVIndexLedger;

TEST_F(KVIndexDigest, DependsOnWhatIsResidentAndOnNothingElse) {
  auto other = OpenSynchronized(index_, Info("b:1", 0, 1));
  ASSERT_TRUE(StoreBlocks(*ledger_, 1, 0, 20).ok());
  ASSERT_TRUE(ledger_->StoreKnown(Tier::kHost, Wires(1003, 4)).ok());
  ASSERT_TRUE(ledger_->StoreOpaque(Tier::kDevice, Wires(7, 1)).ok());
  const std::uint64_t digest = ledger_->digest();

  ASSERT_TRUE(other->StoreOpaque(Tier::kDevice, Wires(7, 1)).ok());
  for (std::uint32_t b = 0; b < 25; ++b) {
    ASSERT_TRUE(StoreBlocks(*other, 1, b, b + 1, Tier::kHost).ok());
    ASSERT_TRUE(StoreBlocks(*other, 1, b, b + 1, Tier::kDevice).ok());
  }
  RemoveBlocks(*other, 1, 0, 25, Tier::kHost);
  RemoveBlocks(*other, 1, 20, 25, Tier::kDevice);
  ASSERT_TRUE(other->StoreKnown(Tier::kHost, Wires(1003, 4)).ok());
  EXPECT_EQ(other->digest(), digest);
  EXPECT_GT(other->mappings(), ledger_->mappings());

  RemoveBlocks(*other, 1, 3, 4, Tier::kHost);
  EXPECT_NE(other->digest(), digest);
}

TEST_F(KVIndexDigest, IsTheSumOfItsTerms) {
  ASSERT_TRUE(StoreOne(5, {}, {10}, Tier::kDevice).ok());
  ASSERT_TRUE(StoreKnown(5, Tier::kHost).ok());
  ASSERT_TRUE(ledger_->StoreOpaque(Tier::kHost, Wires(9, 1)).ok());
  EXPECT_EQ(ledger_->digest(), StreamLedger::DigestTerm({5}, Tier::kDevice) +
                                   StreamLedger::DigestTerm({5}, Tier::kHost) +
                                   StreamLedger::DigestTerm({9}, Tier::kHost));
  EXPECT_NE(StreamLedger::DigestTerm({5}, Tier::kDevice),
            StreamLedger::DigestTerm({5}, Tier::kHost));
}

TEST_F(KVIndexDigest, IsKeptWhenAnOpaqueHashBecomesIndexed) {
  ASSERT_TRUE(ledger_->StoreOpaque(Tier::kDevice, Wires(5, 1)).ok());
  const std::uint64_t digest = ledger_->digest();
  ASSERT_TRUE(StoreOne(5, {}, {10}, Tier::kDevice).ok());
  EXPECT_EQ(ledger_->digest(), digest);
}

}  // namespace
}  // namespace xms::kv_index
