#include "sim/block_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "kv_events/decoder.h"
#include "kv_events/encoder.h"
#include "tests/unit/sim/event_replay.h"

namespace xms::sim {
namespace {

using kv_events::EventKind;
using kv_events::EventScope;
using kv_events::KvBatch;
using Tokens = std::vector<std::uint32_t>;

constexpr std::uint32_t kBlock = 4;

// `blocks` complete blocks and `extra` tokens, different for each `seed` from the first token on.
Tokens Prompt(std::uint32_t seed, std::uint32_t blocks, std::uint32_t extra = 0) {
  Tokens tokens;
  for (std::uint32_t i = 0; i < blocks * kBlock + extra; ++i) tokens.push_back(1000 * seed + i);
  return tokens;
}

class SimBlockManager : public ::testing::Test {
 protected:
  static BlockManager Make(std::uint32_t device, std::uint32_t host = 0, std::uint64_t seed = 1) {
    return BlockManager(
        {.block_size = kBlock, .device_blocks = device, .host_blocks = host, .hash_seed = seed});
  }
  // A request from admission to its end.
  static PrefixHit Serve(BlockManager& blocks, HoldId id, const Tokens& tokens) {
    const auto hit = blocks.Admit(id, tokens);
    EXPECT_TRUE(hit.has_value());
    blocks.Commit(id, tokens);
    blocks.Release(id);
    return hit.value_or(PrefixHit{});
  }
  static void CopyAll(BlockManager& blocks) {
    while (blocks.StartCopies(3) > 0) blocks.FinishCopies();
  }
};

TEST_F(SimBlockManager, FindsTheLongestRunOfCompleteBlocks) {
  BlockManager blocks = Make(16);
  EXPECT_EQ(blocks.LongestPrefix(Prompt(1, 3)), PrefixHit{});
  Serve(blocks, 1, Prompt(1, 3, 2));
  EXPECT_EQ(blocks.LongestPrefix(Prompt(1, 3, 2)).device_blocks, 3U);
  EXPECT_EQ(blocks.LongestPrefix(Prompt(1, 5)).device_blocks, 3U);
  EXPECT_EQ(blocks.LongestPrefix(Prompt(1, 1, 3)).device_blocks, 1U);
  Tokens other = Prompt(1, 3);
  other[kBlock] += 1;  // the second block differs, and with it everything behind
  EXPECT_EQ(blocks.LongestPrefix(other).device_blocks, 1U);
  // The same block elsewhere is another block.
  const Tokens whole = Prompt(1, 2);
  EXPECT_EQ(blocks.LongestPrefix(Tokens(whole.begin() + kBlock, whole.end())), PrefixHit{});
}

TEST_F(SimBlockManager, LeavesAtLeastOneTokenToCompute) {
  BlockManager blocks = Make(16);
  Serve(blocks, 1, Prompt(1, 3));
  EXPECT_EQ(blocks.Admit(2, Prompt(1, 3))->device_blocks, 2U);
  EXPECT_EQ(blocks.Admit(3, Prompt(1, 3, 1))->device_blocks, 3U);
}

TEST_F(SimBlockManager, CachesABlockOnceItIsComputedAndNotBefore) {
  BlockManager blocks = Make(16);
  const Tokens tokens = Prompt(1, 3);
  ASSERT_TRUE(blocks.Admit(1, tokens));
  EXPECT_EQ(blocks.device_resident(), 0U);
  blocks.Commit(1, std::span(tokens).first(2 * kBlock - 1));
  EXPECT_EQ(blocks.device_resident(), 1U);
  blocks.Commit(1, tokens);
  EXPECT_EQ(blocks.device_resident(), 3U);
}

TEST_F(SimBlockManager, TwoSequencesComputingTheSameStoreItOnce) {
  BlockManager blocks = Make(16);
  const Tokens tokens = Prompt(1, 3);
  ASSERT_TRUE(blocks.Admit(1, tokens));
  ASSERT_TRUE(blocks.Admit(2, tokens));
  blocks.Commit(1, tokens);
  blocks.Commit(2, tokens);
  const KvBatch events = blocks.TakeEvents();
  ASSERT_EQ(events.events.size(), 1U);
  EXPECT_EQ(events.events[0].hash_count, 3U);
  EXPECT_EQ(blocks.in_use(), 6U);
  blocks.Release(1);
  EXPECT_EQ(blocks.in_use(), 3U);
  blocks.Release(2);
  EXPECT_EQ(blocks.in_use(), 0U);
  EXPECT_EQ(blocks.device_resident(), 3U);
}

TEST_F(SimBlockManager, EvictsTheLeastRecentlyUsedChainFromItsEnd) {
  BlockManager blocks = Make(8);
  Serve(blocks, 1, Prompt(1, 3));
  Serve(blocks, 2, Prompt(2, 3));
  Serve(blocks, 3, Prompt(1, 2, 1));  // uses the first two blocks of chain 1 again
  // Two blocks are free; five are wanted: the third block of chain 1, then chain 2 from its end.
  ASSERT_TRUE(blocks.Admit(4, Prompt(4, 5)));
  EXPECT_EQ(blocks.LongestPrefix(Prompt(1, 3)).device_blocks, 2U);
  EXPECT_EQ(blocks.LongestPrefix(Prompt(2, 3)).device_blocks, 1U);
}

TEST_F(SimBlockManager, NeverEvictsWhatIsInUseAndChangesNothingWithoutRoom) {
  BlockManager blocks = Make(6);
  Serve(blocks, 1, Prompt(1, 2));
  const Tokens held = Prompt(1, 2, 1);
  ASSERT_TRUE(blocks.Admit(2, held));  // holds both blocks and a third
  blocks.TakeEvents();
  const auto before = blocks.ResidentHashes();
  EXPECT_FALSE(blocks.Admit(3, Prompt(1, 6)));  // would share two, but four more are not there
  EXPECT_FALSE(blocks.Admit(4, Prompt(5, 4)));
  EXPECT_FALSE(blocks.Grow(2, 7 * kBlock));
  EXPECT_EQ(blocks.ResidentHashes(), before);
  EXPECT_FALSE(blocks.has_events());
  EXPECT_EQ(blocks.available(), 3U);
  EXPECT_TRUE(blocks.Grow(2, 6 * kBlock));
  blocks.Release(2);
  EXPECT_EQ(blocks.available(), 6U);
}

// The user of a child holds its own copy of the parent, which nothing keeps from being evicted.
TEST_F(SimBlockManager, AParentCanLeaveBeforeItsChildAndReturnsWithTheNext) {
  BlockManager blocks = Make(6);
  Tokens tokens = Prompt(1, 1);
  ASSERT_TRUE(blocks.Admit(1, tokens));
  ASSERT_TRUE(blocks.Admit(2, tokens));
  blocks.Commit(1, tokens);
  blocks.Commit(2, tokens);
  blocks.Release(1);
  tokens = Prompt(1, 2);
  ASSERT_TRUE(blocks.Grow(2, tokens.size()));
  blocks.Commit(2, tokens);
  ASSERT_TRUE(blocks.Admit(3, Prompt(3, 4)));  // the last free block and the parent's
  EXPECT_EQ(blocks.device_resident(), 1U);
  blocks.Release(3);

  EventReplay snapshot(kBlock);
  const KvBatch orphan = blocks.Snapshot();
  snapshot.Apply(orphan, true);
  ASSERT_EQ(orphan.events.size(), 1U);
  EXPECT_TRUE(orphan.events[0].has_parent);
  EXPECT_FALSE(snapshot.Resident(orphan.events[0].parent.value));

  tokens = Prompt(1, 3);
  ASSERT_TRUE(blocks.Grow(2, tokens.size()));
  blocks.Commit(2, tokens);
  EventReplay replay(kBlock);
  replay.Apply(blocks.TakeEvents());
  EXPECT_EQ(replay.complaint(), "");
  EXPECT_EQ(blocks.LongestPrefix(tokens).device_blocks, 3U);
}

TEST_F(SimBlockManager, MovesToHostWhenTheLastUserLeavesAndBackOnAHit) {
  BlockManager blocks = Make(4, 8);
  const Tokens tokens = Prompt(1, 3, 1);
  Serve(blocks, 1, tokens);
  blocks.TakeEvents();
  // Still being copied: on Device, not evictable, not on Host.
  EXPECT_EQ(blocks.StartCopies(100), 3U);
  EXPECT_EQ(blocks.in_use(), 3U);
  EXPECT_EQ(blocks.host_resident(), 0U);
  EXPECT_FALSE(blocks.has_events());
  blocks.FinishCopies();
  KvBatch events = blocks.TakeEvents();
  ASSERT_EQ(events.events.size(), 1U);
  EXPECT_EQ(events.events[0].kind, EventKind::kReplica);
  EXPECT_EQ(events.events[0].hash_count, 3U);
  EXPECT_EQ(blocks.in_use(), 0U);

  Serve(blocks, 2, Prompt(2, 3, 1));
  CopyAll(blocks);
  EXPECT_EQ(blocks.LongestPrefix(tokens), (PrefixHit{.device_blocks = 0, .host_blocks = 3}));
  blocks.TakeEvents();

  const auto hit = blocks.Admit(3, tokens);
  EXPECT_EQ(*hit, (PrefixHit{.device_blocks = 0, .host_blocks = 3}));
  events = blocks.TakeEvents();
  ASSERT_EQ(events.events.size(), 1U);
  EXPECT_EQ(events.events[0].kind, EventKind::kRemove);
  blocks.Commit(3, tokens);
  events = blocks.TakeEvents();
  ASSERT_EQ(events.events.size(), 1U);
  EXPECT_EQ(events.events[0].kind, EventKind::kStore);
  EXPECT_EQ(events.events[0].scope, EventScope::kDevice);
  EXPECT_EQ(events.events[0].token_count, 3 * kBlock);
  EXPECT_EQ(blocks.LongestPrefix(tokens).device_blocks, 3U);
  EXPECT_EQ(blocks.host_resident(), 6U);
}

TEST_F(SimBlockManager, ALoadThatIsGivenUpLeavesHostAsItWas) {
  BlockManager blocks = Make(4, 8);
  const Tokens tokens = Prompt(1, 3, 1);
  Serve(blocks, 1, tokens);
  CopyAll(blocks);
  Serve(blocks, 2, Prompt(2, 3, 1));
  CopyAll(blocks);
  ASSERT_TRUE(blocks.Admit(3, tokens));
  blocks.Release(3);
  EXPECT_EQ(blocks.in_use(), 0U);
  EXPECT_EQ(blocks.LongestPrefix(tokens), (PrefixHit{.device_blocks = 0, .host_blocks = 3}));
}

TEST_F(SimBlockManager, EvictsFromHostWhenHostIsFull) {
  BlockManager blocks = Make(8, 4);
  Serve(blocks, 1, Prompt(1, 3));
  CopyAll(blocks);
  Serve(blocks, 2, Prompt(2, 3));
  CopyAll(blocks);
  EXPECT_EQ(blocks.host_resident(), 4U);
  // Of the older chain one block is left on Host, its first.
  ASSERT_TRUE(blocks.Admit(3, Prompt(3, 7, 1)));
  EXPECT_EQ(blocks.LongestPrefix(Prompt(1, 3)), (PrefixHit{.device_blocks = 0, .host_blocks = 1}));
  EXPECT_EQ(blocks.LongestPrefix(Prompt(2, 3)), (PrefixHit{.device_blocks = 0, .host_blocks = 3}));
}

TEST_F(SimBlockManager, SnapshotNamesHostOnlyBlocksWithTokensAndCopiesAsReplicas) {
  BlockManager blocks = Make(4, 8);
  Serve(blocks, 1, Prompt(1, 2));
  CopyAll(blocks);
  Serve(blocks, 2, Prompt(1, 1, 1));  // keeps the first block recent
  Serve(blocks, 3, Prompt(3, 3));
  const KvBatch snapshot = blocks.Snapshot();
  EventReplay replay(kBlock);
  replay.Apply(snapshot, true);
  EXPECT_EQ(replay.complaint(), "");
  EXPECT_EQ(replay.Residents(), blocks.ResidentHashes());
  const auto kinds = [&](EventKind kind, EventScope scope) {
    return std::ranges::count_if(snapshot.events, [&](const kv_events::KvEvent& event) {
      return event.kind == kind && event.scope == scope;
    });
  };
  EXPECT_GE(kinds(EventKind::kStore, EventScope::kDevice), 1);
  EXPECT_EQ(kinds(EventKind::kStore, EventScope::kHost), 1);
  EXPECT_EQ(kinds(EventKind::kReplica, EventScope::kHost), 1);
}

TEST_F(SimBlockManager, OtherSeedsNameTheSameContentDifferently) {
  BlockManager one = Make(4, 0, 1);
  BlockManager two = Make(4, 0, 2);
  Serve(one, 1, Prompt(1, 3));
  Serve(two, 1, Prompt(1, 3));
  const auto a = one.ResidentHashes().device;
  const auto b = two.ResidentHashes().device;
  std::vector<model::WireHash> both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  EXPECT_EQ(a.size(), 3U);
  EXPECT_THAT(both, ::testing::IsEmpty());
}

TEST_F(SimBlockManager, EventsSurviveTheWire) {
  BlockManager blocks = Make(4, 8, 77);
  Serve(blocks, 1, Prompt(1, 3, 1));
  CopyAll(blocks);
  Serve(blocks, 2, Prompt(2, 3, 1));
  for (const KvBatch& batch : {blocks.TakeEvents(), blocks.Snapshot()}) {
    std::vector<std::byte> bytes;
    kv_events::EncodeBatch(batch, kBlock, bytes);
    KvBatch decoded;
    const kv_events::DecoderOptions options{.block_size = kBlock};
    const auto outcome = kv_events::DecodeBatch(bytes, options, decoded);
    ASSERT_TRUE(outcome.ok()) << kv_events::Describe(outcome, options, bytes.size());
    EXPECT_EQ(decoded.hashes, batch.hashes);
    EXPECT_EQ(decoded.tokens, batch.tokens);
    EXPECT_EQ(decoded.events.size(), batch.events.size());
  }
}

// ---- Random operations against a model without hashes, lists or counters ----

// Blocks are named by their whole content. Everything is found by looking at everything.
class NaiveBlocks {
 public:
  explicit NaiveBlocks(const BlockManagerOptions& options) : options_(options) {}

  struct Block {
    bool device = false;
    bool host = false;
    bool copying = false;
    std::uint64_t used = 0;
  };
  enum class Kind { kPrivate, kShared, kLoading };
  struct Slot {
    Kind kind = Kind::kPrivate;
    Tokens content;
  };

  Tokens ContentUpTo(const Tokens& tokens, std::size_t block) const {
    return Tokens(tokens.begin(),
                  tokens.begin() + static_cast<std::ptrdiff_t>((block + 1) * kBlock));
  }
  std::size_t Users(const Tokens& content, Kind kind) const {
    std::size_t users = 0;
    for (const auto& [id, slots] : holds_) {
      users += static_cast<std::size_t>(std::ranges::count_if(
          slots, [&](const Slot& slot) { return slot.kind == kind && slot.content == content; }));
    }
    return users;
  }
  bool EvictableFromDevice(const Tokens& content) const {
    const Block& block = blocks_.at(content);
    return block.device && !block.copying && Users(content, Kind::kShared) == 0;
  }
  std::size_t Free() const {
    std::size_t used = 0;
    for (const auto& [content, block] : blocks_) used += block.device ? 1 : 0;
    for (const auto& [id, slots] : holds_) {
      used += static_cast<std::size_t>(std::ranges::count_if(
          slots, [](const Slot& slot) { return slot.kind != Kind::kShared; }));
    }
    return options_.device_blocks - used;
  }
  std::size_t Available() const {
    std::size_t available = Free();
    for (const auto& [content, block] : blocks_) available += EvictableFromDevice(content) ? 1 : 0;
    return available;
  }
  void EnsureFree(std::size_t count) {
    while (Free() < count) {
      const Tokens* oldest = nullptr;
      for (const auto& [content, block] : blocks_) {
        if (EvictableFromDevice(content) && (!oldest || block.used < blocks_.at(*oldest).used)) {
          oldest = &content;
        }
      }
      blocks_.at(*oldest).device = false;
      Forget();
    }
  }
  void Forget() {
    std::erase_if(blocks_,
                  [](const auto& item) { return !item.second.device && !item.second.host; });
  }

  std::optional<PrefixHit> Admit(HoldId id, const Tokens& tokens) {
    std::vector<Slot> slots;
    PrefixHit hit;
    for (std::size_t i = 0; i < (tokens.size() - 1) / kBlock; ++i) {
      const auto found = blocks_.find(ContentUpTo(tokens, i));
      if (found == blocks_.end()) break;
      ++(found->second.device ? hit.device_blocks : hit.host_blocks);
      slots.push_back({found->second.device ? Kind::kShared : Kind::kLoading, found->first});
    }
    // What it shares is pinned while room is made for the rest.
    std::vector<Slot>& held = holds_[id];
    std::ranges::copy_if(slots, std::back_inserter(held),
                         [](const Slot& slot) { return slot.kind == Kind::kShared; });
    const std::size_t wanted = (tokens.size() + kBlock - 1) / kBlock;
    const std::size_t fresh = wanted - held.size();
    if (fresh > Available()) {
      holds_.erase(id);
      return std::nullopt;
    }
    EnsureFree(fresh);
    for (auto slot = slots.rbegin(); slot != slots.rend(); ++slot) {
      blocks_.at(slot->content).used = ++clock_;
    }
    held = slots;
    held.resize(wanted);
    return hit;
  }
  bool Grow(HoldId id, std::size_t tokens) {
    const std::size_t wanted = (tokens + kBlock - 1) / kBlock;
    std::vector<Slot>& slots = holds_.at(id);
    if (wanted <= slots.size()) return true;
    if (wanted - slots.size() > Available()) return false;
    EnsureFree(wanted - slots.size());
    slots.resize(wanted);
    return true;
  }
  void Commit(HoldId id, const Tokens& tokens) {
    std::vector<Slot>& slots = holds_.at(id);
    std::vector<Tokens> mine_too;
    if (tokens.size() / kBlock <= committed_[id]) return;
    committed_[id] = tokens.size() / kBlock;
    for (std::size_t i = 0; i < tokens.size() / kBlock; ++i) {
      if (slots[i].kind == Kind::kShared) continue;
      const Tokens content = ContentUpTo(tokens, i);
      Block& block = blocks_[content];
      slots[i] = Slot{};
      if (block.device) {
        mine_too.push_back(content);
        continue;
      }
      block.device = true;
      block.used = ++clock_;
      slots[i] = {Kind::kShared, content};
    }
    for (auto content = mine_too.rbegin(); content != mine_too.rend(); ++content) {
      blocks_.at(*content).used = ++clock_;
    }
  }
  void Release(HoldId id) {
    const std::vector<Slot> slots = holds_.at(id);
    holds_.erase(id);
    committed_.erase(id);
    for (auto slot = slots.rbegin(); slot != slots.rend(); ++slot) {
      if (slot->kind != Kind::kPrivate) blocks_.at(slot->content).used = ++clock_;
    }
    if (options_.host_blocks == 0) return;
    for (const Slot& slot : slots) {
      if (slot.kind != Kind::kShared) continue;
      Block& block = blocks_.at(slot.content);
      if (block.host || block.copying || Users(slot.content, Kind::kShared) > 0) continue;
      std::size_t taken = 0;
      for (const auto& [content, other] : blocks_) taken += other.host || other.copying ? 1 : 0;
      if (taken == options_.host_blocks) {
        const Tokens* oldest = nullptr;
        for (const auto& [content, other] : blocks_) {
          if (other.host && Users(content, Kind::kLoading) == 0 &&
              (!oldest || other.used < blocks_.at(*oldest).used)) {
            oldest = &content;
          }
        }
        if (oldest == nullptr) continue;
        blocks_.at(*oldest).host = false;
        Forget();
      }
      block.copying = true;
      queue_.push_back(slot.content);
    }
  }
  void Copy(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      blocks_.at(queue_[i]).copying = false;
      blocks_.at(queue_[i]).host = true;
    }
    queue_.erase(queue_.begin(), queue_.begin() + count);
  }

  std::set<Tokens> Resident(bool device) const {
    std::set<Tokens> resident;
    for (const auto& [content, block] : blocks_) {
      if (device ? block.device : block.host) resident.insert(content);
    }
    return resident;
  }

 private:
  BlockManagerOptions options_;
  std::map<Tokens, Block> blocks_;
  std::map<HoldId, std::vector<Slot>> holds_;
  std::map<HoldId, std::size_t> committed_;
  std::vector<Tokens> queue_;
  std::uint64_t clock_ = 0;
};

struct ModelCase {
  std::uint32_t seed;
  std::uint32_t device_blocks;
  std::uint32_t host_blocks;
};

class SimBlockManagerModel : public ::testing::TestWithParam<ModelCase> {};

TEST_P(SimBlockManagerModel, AgreesWithTheNaiveOneAndSoDoItsEventsAndSnapshots) {
  const ModelCase& param = GetParam();
  SCOPED_TRACE(base::StrCat("seed ", param.seed, ", device blocks ", param.device_blocks,
                            ", host blocks ", param.host_blocks));
  const BlockManagerOptions options{.block_size = kBlock,
                                    .device_blocks = param.device_blocks,
                                    .host_blocks = param.host_blocks,
                                    .hash_seed = param.seed};
  BlockManager blocks(options);
  NaiveBlocks naive(options);
  EventReplay replay(kBlock);
  std::mt19937 rng(param.seed);
  const auto draw = [&](std::uint32_t below) { return static_cast<std::uint32_t>(rng() % below); };
  std::map<HoldId, Tokens> held;  // all tokens that the hold has room for
  HoldId next_id = 1;

  for (int step = 0; step < 4000; ++step) {
    const std::uint32_t what = draw(10);
    if (what < 4) {
      // Two tokens only, constant within a block: prompts often share a prefix.
      Tokens tokens;
      for (std::uint32_t i = 0, count = 1 + draw(5); i < count; ++i)
        tokens.resize(tokens.size() + kBlock, draw(2));
      tokens.resize(tokens.size() - draw(kBlock));
      const auto hit = blocks.Admit(next_id, tokens);
      ASSERT_EQ(hit, naive.Admit(next_id, tokens)) << "step " << step;
      if (hit) held.emplace(next_id, tokens);
      ++next_id;
    } else if (what < 9 && !held.empty()) {
      auto hold = held.begin();
      std::advance(hold, draw(static_cast<std::uint32_t>(held.size())));
      auto& [id, tokens] = *hold;
      if (what == 4) {
        Tokens longer = tokens;
        longer.resize(longer.size() + 1 + draw(2 * kBlock), draw(2));
        const bool grown = blocks.Grow(id, longer.size());
        ASSERT_EQ(grown, naive.Grow(id, longer.size())) << "step " << step;
        if (grown) tokens = longer;
      } else if (what < 7) {
        const Tokens computed(
            tokens.begin(),
            tokens.end() - (draw(2) ? draw(static_cast<std::uint32_t>(tokens.size())) : 0));
        blocks.Commit(id, computed);
        naive.Commit(id, computed);
      } else {
        blocks.Release(id);
        naive.Release(id);
        held.erase(hold);
      }
    } else if (what == 9) {
      const std::uint32_t copies = blocks.StartCopies(1 + draw(4));
      blocks.FinishCopies();
      naive.Copy(copies);
    }
    ASSERT_EQ(blocks.available(), naive.Available()) << "step " << step;

    replay.Apply(blocks.TakeEvents());
    ASSERT_EQ(replay.complaint(), "") << "step " << step;
    const BlockManager::Residents residents = blocks.ResidentHashes();
    ASSERT_EQ(replay.Residents(), residents) << "step " << step;
    std::set<Tokens> device;
    std::set<Tokens> host;
    for (const model::WireHash hash : residents.device) device.insert(replay.Content(hash.value));
    for (const model::WireHash hash : residents.host) host.insert(replay.Content(hash.value));
    ASSERT_EQ(device, naive.Resident(true)) << "step " << step;
    ASSERT_EQ(host, naive.Resident(false)) << "step " << step;

    if (step % 7 != 0) continue;
    EventReplay snapshot(kBlock);
    const KvBatch batch = blocks.Snapshot();
    snapshot.Apply(batch, true);
    ASSERT_EQ(snapshot.complaint(), "") << "step " << step;
    ASSERT_EQ(snapshot.Residents(), residents) << "step " << step;
    // Parents first, unless they have left; every block with the content that live events gave it.
    std::set<std::uint64_t> seen;
    for (const kv_events::KvEvent& event : batch.events) {
      if (event.kind != EventKind::kStore) continue;
      if (event.has_parent && replay.Resident(event.parent.value)) {
        ASSERT_TRUE(seen.contains(event.parent.value)) << "step " << step;
      }
      for (const model::WireHash hash : batch.HashesOf(event)) {
        seen.insert(hash.value);
        ASSERT_EQ(snapshot.blocks().at(hash.value), replay.blocks().at(hash.value));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, SimBlockManagerModel,
                         ::testing::Values(ModelCase{1, 12, 0}, ModelCase{2, 12, 6},
                                           ModelCase{3, 6, 3}, ModelCase{4, 20, 40},
                                           ModelCase{5, 40, 10}, ModelCase{6, 9, 1}));

}  // namespace
}  // namespace xms::sim
