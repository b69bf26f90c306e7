// The view by itself: exactness, room, and what a reader may see when writers step in between any two of its
// steps. The interleavings are played out on one thread: a reader holds no lock, so a test can let whole writer
// operations happen at every point that the reader passes, one point after the other.
#include "kv_index/internal/prefix_view.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/epoch.h"

namespace xms::kv_index::internal {
namespace {

using model::ContentKey;

// Calls what the test has put there; per thread, so that a hook of one thread does not see another's.
struct TestHooks : NoHooks {
  static void At(Point point) {
    if (on_point) {
      // Not for what the hook itself does.
      const auto hook = std::exchange(on_point, nullptr);
      hook(point);
      if (!on_point) on_point = hook;
    }
  }
  static thread_local std::function<void(Point)> on_point;
};
thread_local std::function<void(TestHooks::Point)> TestHooks::on_point;

using TestView = BasicPrefixView<TestHooks>;

bool IsReaderPoint(NoHooks::Point point) { return point <= NoHooks::kReaderHasDevice; }

// Keys of one segment, so that few of them are enough to fill and to replace its table.
std::vector<ContentKey> KeysOfOneSegment(std::size_t count, std::uint64_t seed = 1) {
  const TestView view(0);
  std::mt19937_64 random(seed);
  std::vector<ContentKey> keys;
  while (keys.size() < count) {
    const ContentKey key{random(), random()};
    if (view.RefOf(key) >> 20 == 77) keys.push_back(key);
  }
  return keys;
}

// Keys that share a home in every table of the segment, so that they spill into the buckets behind; groups of
// them share all 32 bits by which a cell tells them apart.
std::vector<ContentKey> KeysOfOneHome(std::size_t count) {
  const TestView view(0);
  std::mt19937_64 random(3);
  std::vector<ContentKey> keys;
  const ContentKey first = KeysOfOneSegment(1)[0];
  for (std::uint64_t i = 0; keys.size() < count; ++i) {
    keys.push_back({first.low, i % 8 + 4096 * (i / 8)});
  }
  return keys;
}

Residency FindIn(const TestView& view, const ContentKey& key) {
  base::EpochGuard guard;
  return view.Find(key);
}

struct Lengths {
  std::uint32_t total = 0;
  std::uint32_t host_only = 0;
};

std::map<std::uint32_t, Lengths> RunOver(const TestView& view, std::span<const ContentKey> keys,
                                         const std::vector<std::uint32_t>& slots) {
  base::EpochGuard guard;
  SlotSet set;
  for (const std::uint32_t slot : slots) set.Add(slot);
  SlotHits hits;
  PrefixRun run(set, 1, hits);
  view.Run(
      [&keys](std::size_t most) {
        const auto piece = keys.first(std::min(most, keys.size()));
        keys = keys.subspan(piece.size());
        return piece;
      },
      run);
  run.Finish();
  std::map<std::uint32_t, Lengths> lengths;
  for (const std::uint32_t slot : slots) {
    lengths[slot] = {hits.device_tokens[slot] + hits.host_only_tokens[slot],
                     hits.host_only_tokens[slot]};
  }
  return lengths;
}

TEST(KVIndexView, FindsExactlyWhatWasAdded) {
  TestView view(0);
  const auto keys = KeysOfOneSegment(4);
  view.Add(keys[0], 3, kOnDevice);
  view.Add(keys[1], 3, kOnHost);
  view.Add(keys[1], 127, kOnBoth);
  view.Add(keys[2], 64, kOnDevice);
  view.Add(keys[2], 63, kOnHost);
  view.Add(keys[2], 64, kOnHost);
  EXPECT_EQ(FindIn(view, keys[0]).Of(3), kOnDevice);
  EXPECT_EQ(FindIn(view, keys[0]).Of(4), kNoTier);
  EXPECT_EQ(FindIn(view, keys[1]).Of(3), kOnHost);
  EXPECT_EQ(FindIn(view, keys[1]).Of(127), kOnBoth);
  EXPECT_EQ(FindIn(view, keys[2]).Of(64), kOnBoth);
  EXPECT_EQ(FindIn(view, keys[2]).Of(63), kOnHost);
  EXPECT_FALSE(FindIn(view, keys[3]).Any());
  EXPECT_EQ(view.entries(), 3u);
}

TEST(KVIndexView, AnEntryGoesWithItsLastBitAndNotBefore) {
  TestView view(0);
  const auto keys = KeysOfOneSegment(1);
  view.Add(keys[0], 1, kOnBoth);
  view.Add(keys[0], 2, kOnDevice);
  view.ClearKey(keys[0], 1, kOnDevice);
  view.ClearKey(keys[0], 2, kOnBoth);
  EXPECT_EQ(view.entries(), 1u);
  EXPECT_EQ(FindIn(view, keys[0]).Of(1), kOnHost);
  const auto nothing = [](const ContentKey&) { return kNoTier; };
  EXPECT_EQ(view.ClearOnly(view.RefOf(keys[0]), 2, nothing), std::nullopt);
  EXPECT_EQ(view.ClearOnly(view.RefOf(keys[0]), 1, nothing), keys[0]);
  EXPECT_EQ(view.entries(), 1u);
  EXPECT_EQ(view.ClearOnly(view.RefOf(keys[0]), 1, [](const ContentKey&) { return kOnHost; }),
            keys[0]);
  EXPECT_EQ(view.entries(), 0u);
}

TEST(KVIndexView, KeysWithOneHomeSpillAndAreAllFound) {
  TestView view(0);
  const auto keys = KeysOfOneHome(120);
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const auto added = view.Add(keys[i], i % 3, kOnDevice);
    EXPECT_EQ(added.before, kNoTier);
    EXPECT_EQ(added.twin, i >= 3) << "they share their KeyRef";
    for (std::uint32_t k = 0; k <= i; ++k) {
      ASSERT_EQ(FindIn(view, keys[k]).Of(k % 3), kOnDevice) << i << " " << k;
    }
  }
  EXPECT_FALSE(FindIn(view, {keys[0].low, 1'000'000}).Any());
  std::vector<TestView::OwnEntry> own(200);
  EXPECT_EQ(view.Own(view.RefOf(keys[0]), 1, own), 40u);
  view.ClearEvery(view.RefOf(keys[0]), 1);
  EXPECT_EQ(view.Own(view.RefOf(keys[0]), 1, own), 0u);
  EXPECT_EQ(view.entries(), 80u);
  for (std::uint32_t i = 0; i < keys.size(); i += 2) view.ClearKey(keys[i], i % 3, kOnBoth);
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(FindIn(view, keys[i]).Of(i % 3), i % 2 == 0 || i % 3 == 1 ? kNoTier : kOnDevice) << i;
  }
}

// Against a map, with keys enough for many replacements of the table in both directions.
TEST(KVIndexView, DoesWhatAMapDoes) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    TestView view(0);
    auto keys = KeysOfOneSegment(1500, seed);
    const auto crowd = KeysOfOneHome(30);
    keys.insert(keys.end(), crowd.begin(), crowd.end());
    std::map<std::size_t, Residency> model;
    for (int step = 0; step < 30'000; ++step) {
      const bool filling = step / 6000 % 2 == 0;
      const std::size_t k = random() % keys.size();
      const auto slot = static_cast<std::uint32_t>(random() % 4 * 42);
      const auto tiers = static_cast<Tiers>(1 + random() % 3);
      Residency& held = model[k];
      const Tiers before = held.Of(slot);
      if (random() % 10 < (filling ? 7u : 2u)) {
        ASSERT_EQ(view.Add(keys[k], slot, tiers).before, before) << "step " << step;
        if ((tiers & kOnDevice) != 0) held.device.Add(slot);
        if ((tiers & kOnHost) != 0) held.host.Add(slot);
      } else {
        view.ClearKey(keys[k], slot, tiers);
        if ((tiers & kOnDevice) != 0) held.device.Remove(slot);
        if ((tiers & kOnHost) != 0) held.host.Remove(slot);
      }
      const std::size_t other = random() % keys.size();
      ASSERT_EQ(FindIn(view, keys[other]), model[other]) << "step " << step;
      ASSERT_EQ(FindIn(view, keys[k]), held) << "step " << step;
    }
    std::uint64_t entries = 0;
    for (const auto& [k, held] : model) {
      ASSERT_EQ(FindIn(view, keys[k]), held);
      entries += held.Any() ? 1 : 0;
    }
    EXPECT_EQ(view.entries(), entries);
  }
}

TEST(KVIndexView, MemoryFollowsTheEntriesInBothDirections) {
  TestView view(0);
  const std::size_t idle = view.bytes();
  const auto keys = KeysOfOneSegment(4000);
  for (const ContentKey& key : keys) view.Add(key, 5, kOnDevice);
  const std::size_t single = view.bytes() - idle;
  EXPECT_LT(single / keys.size(), 60u);
  for (const ContentKey& key : keys) view.Add(key, 6, kOnDevice);
  EXPECT_GT(view.bytes() - idle, single);
  for (const ContentKey& key : keys) view.ClearKey(key, 6, kOnDevice);
  for (const ContentKey& key : keys) view.ClearKey(key, 5, kOnDevice);
  base::EpochCollect();
  EXPECT_LT(view.bytes() - idle, 4096u);
}

// --- A reader and what happens meanwhile.

using Action = std::function<void(TestView&)>;

struct Scenario {
  std::string name;
  std::vector<Action> before;     // makes the first state
  std::vector<Action> meanwhile;  // whole writer operations, in this order
  std::span<const ContentKey> prompt;
  std::vector<std::uint32_t> slots;
};

// Plays every placement of the operations among the reader's steps: operation j happens at point at[j], in order.
// What is allowed: every credited block was held by the slot in one of the states of the call, Device credit
// needs Device at some moment (V1, C8); what was held in all states is credited (V2).
class Interleavings {
 public:
  explicit Interleavings(Scenario scenario) : scenario_(std::move(scenario)) {}

  void PlayAll() {
    // States that a reader can meet: after each of the operations.
    for (std::size_t done = 0; done <= scenario_.meanwhile.size(); ++done) {
      TestView view(0);
      for (const Action& action : scenario_.before) action(view);
      for (std::size_t j = 0; j < done; ++j) scenario_.meanwhile[j](view);
      std::vector<Residency> state;
      for (const ContentKey& key : scenario_.prompt) state.push_back(FindIn(view, key));
      states_.push_back(std::move(state));
    }
    std::vector<std::size_t> at(scenario_.meanwhile.size(), 0);
    Place(at, 0, 0);
    EXPECT_GT(played_, 20u) << scenario_.name;
  }
  std::size_t played() const { return played_; }

 private:
  // Places operations j and later at or behind a point. False when the reader has no such point.
  bool Place(std::vector<std::size_t>& at, std::size_t j, std::size_t from) {
    if (j == at.size()) {
      Play(at);
      return reached_last_;
    }
    for (std::size_t point = from;; ++point) {
      at[j] = point;
      if (!Place(at, j + 1, point)) return point > from;
      if (testing::Test::HasFailure()) return false;
    }
  }

  void Play(const std::vector<std::size_t>& at) {
    ++played_;
    TestView view(0);
    for (const Action& action : scenario_.before) action(view);
    std::size_t point = 0;
    std::size_t next = 0;
    TestHooks::on_point = [&](NoHooks::Point kind) {
      if (!IsReaderPoint(kind)) return;
      while (next < at.size() && at[next] == point) scenario_.meanwhile[next++](view);
      ++point;
    };
    const auto lengths = RunOver(view, scenario_.prompt, scenario_.slots);
    TestHooks::on_point = nullptr;
    reached_last_ = next == at.size();
    std::string placement = scenario_.name + ", operations at points";
    for (const std::size_t where : at) placement += " " + std::to_string(where);
    SCOPED_TRACE(placement);
    for (const std::uint32_t slot : scenario_.slots) Judge(slot, lengths.at(slot));
    for (std::size_t i = 0; reached_last_ && i < scenario_.prompt.size(); ++i) {
      EXPECT_EQ(FindIn(view, scenario_.prompt[i]), states_.back()[i]) << "afterwards, block " << i;
    }
  }

  void Judge(std::uint32_t slot, const Lengths& lengths) {
    std::uint32_t always = 0;  // blocks from the start that it held all the time
    bool running = true;
    std::uint32_t possible_device = 0;
    std::uint32_t certain_device = 0;
    for (std::size_t i = 0; i < scenario_.prompt.size(); ++i) {
      bool ever = false;
      bool throughout = true;
      bool ever_device = false;
      bool always_device = true;
      for (const auto& state : states_) {
        const Tiers held = state[i].Of(slot);
        ever |= held != kNoTier;
        throughout &= held != kNoTier;
        ever_device |= (held & kOnDevice) != 0;
        always_device &= (held & kOnDevice) != 0;
      }
      if (i < lengths.total) {
        EXPECT_TRUE(ever) << "slot " << slot << " is credited with block " << i
                          << ", which it never held";
        possible_device += ever_device ? 1 : 0;
        certain_device += always_device ? 1 : 0;
      }
      running = running && throughout;
      if (running) ++always;
    }
    EXPECT_GE(lengths.total, always) << "slot " << slot << " held these all the time";
    const std::uint32_t device = lengths.total - lengths.host_only;
    EXPECT_LE(device, possible_device) << "slot " << slot;
    EXPECT_GE(device, certain_device) << "slot " << slot;
  }

  Scenario scenario_;
  std::vector<std::vector<Residency>> states_;  // [operations done][block]
  std::size_t played_ = 0;
  bool reached_last_ = true;
};

Action AddAll(std::span<const ContentKey> keys, std::uint32_t slot, Tiers tiers) {
  return [=](TestView& view) {
    for (const ContentKey& key : keys) view.Add(key, slot, tiers);
  };
}
Action ClearAll(std::span<const ContentKey> keys, std::uint32_t slot, Tiers tiers) {
  return [=](TestView& view) {
    for (const ContentKey& key : keys) view.ClearKey(key, slot, tiers);
  };
}

class KVIndexViewInterleaving : public testing::Test {
 protected:
  std::span<const ContentKey> Prompt(std::size_t blocks) const {
    return std::span(keys_).first(blocks);
  }
  std::span<const ContentKey> Others(std::size_t count) const {
    return std::span(keys_).subspan(100, count);
  }
  std::span<const ContentKey> Block(std::size_t i) const { return std::span(keys_).subspan(i, 1); }

  const std::vector<ContentKey> keys_ = KeysOfOneSegment(1500);
  const std::vector<ContentKey> crowd_ = KeysOfOneHome(25);
};

// The race to kill: an entry is emptied and reclaimed, and its place is wanted for other keys while a reader that
// found it has not looked yet.
TEST_F(KVIndexViewInterleaving, AReclaimedEntryIsNotReusedUnderAReader) {
  // Slot 3 runs along and takes what slot 1 leaves behind in the last block.
  Interleavings({"reclaim and reuse, one holder",
                 {AddAll(Prompt(2), 3, kOnDevice), AddAll(Prompt(3), 1, kOnDevice)},
                 {ClearAll(Block(2), 1, kOnDevice), AddAll(Others(30), 3, kOnDevice),
                  ClearAll(Others(30), 3, kOnDevice)},
                 Prompt(3),
                 {1, 3}})
      .PlayAll();
  Interleavings({"reclaim and reuse, several holders",
                 {AddAll(Prompt(2), 3, kOnDevice), AddAll(Prompt(3), 1, kOnDevice),
                  AddAll(Block(2), 2, kOnHost)},
                 {ClearAll(Block(2), 1, kOnDevice), ClearAll(Block(2), 2, kOnHost),
                  AddAll(Others(4), 3, kOnDevice), AddAll(Others(4), 4, kOnDevice)},
                 Prompt(3),
                 {1, 2, 3}})
      .PlayAll();
}

TEST_F(KVIndexViewInterleaving, ASlotThatTakesOverAnEntryGetsNoCreditForTheRest) {
  Interleavings({"set, reclaim, set by another",
                 {AddAll(Prompt(4), 1, kOnDevice)},
                 {ClearAll(Block(2), 1, kOnDevice), AddAll(Block(2), 2, kOnDevice),
                  AddAll(Block(2), 1, kOnHost)},
                 Prompt(4),
                 {1, 2}})
      .PlayAll();
}

TEST_F(KVIndexViewInterleaving, GrowthHidesNothingAndKeepsNothingTooLong) {
  Interleavings({"grow, then remove",
                 {AddAll(Prompt(4), 1, kOnDevice), AddAll(Prompt(4), 2, kOnHost)},
                 {AddAll(Others(200), 9, kOnDevice), ClearAll(Block(3), 1, kOnDevice),
                  AddAll(Block(3), 3, kOnDevice)},
                 Prompt(4),
                 {1, 2, 3}})
      .PlayAll();
}

TEST_F(KVIndexViewInterleaving, BitsSetWhileTheTableGrowsAreNotLost) {
  Interleavings({"grow and set",
                 {AddAll(Prompt(3), 1, kOnDevice)},
                 {AddAll(Block(0), 2, kOnDevice), AddAll(Others(200), 9, kOnDevice),
                  AddAll(Prompt(3), 2, kOnDevice)},
                 Prompt(3),
                 {1, 2}})
      .PlayAll();
}

TEST_F(KVIndexViewInterleaving, ShrinkingHidesNothing) {
  Interleavings({"shrink",
                 {AddAll(Prompt(3), 1, kOnDevice), AddAll(Others(300), 9, kOnDevice),
                  AddAll(Prompt(3), 2, kOnDevice)},
                 {ClearAll(Others(300), 9, kOnDevice), ClearAll(Block(1), 2, kOnDevice)},
                 Prompt(3),
                 {1, 2}})
      .PlayAll();
}

TEST_F(KVIndexViewInterleaving, AnEntryThatBecomesSharedIsTheSameBlock) {
  Interleavings({"promotion",
                 {AddAll(Prompt(3), 1, kOnDevice)},
                 {AddAll(Prompt(3), 2, kOnHost), ClearAll(Prompt(3), 1, kOnDevice),
                  AddAll(Others(20), 1, kOnDevice)},
                 Prompt(3),
                 {1, 2}})
      .PlayAll();
}

TEST_F(KVIndexViewInterleaving, ABlockThatMovesBetweenTiersIsNeverMissing) {
  for (const bool shared : {false, true}) {
    std::vector<Action> before = {AddAll(Prompt(2), 1, kOnDevice)};
    if (shared) before.push_back(AddAll(Prompt(2), 2, kOnHost));
    Interleavings({"to Host and back",
                   before,
                   {AddAll(Block(1), 1, kOnHost), ClearAll(Block(1), 1, kOnDevice),
                    AddAll(Block(1), 1, kOnDevice), ClearAll(Block(1), 1, kOnHost)},
                   Prompt(2),
                   {1, 2}})
        .PlayAll();
  }
}

TEST_F(KVIndexViewInterleaving, SpilledEntriesAreFoundWhileOthersComeAndGo) {
  const std::span<const ContentKey> crowd(crowd_);
  // The prompt's keys lie behind others of the same home, which leave and return.
  Interleavings(
      {"spill",
       {AddAll(crowd.first(14), 9, kOnDevice), AddAll(crowd.subspan(14, 3), 1, kOnDevice)},
       {ClearAll(crowd.first(14), 9, kOnDevice), AddAll(crowd.subspan(17, 8), 9, kOnDevice),
        ClearAll(crowd.subspan(15, 1), 1, kOnDevice)},
       crowd.subspan(14, 3),
       {1, 9}})
      .PlayAll();
}

// Random operations at random points, for what nobody thought of.
TEST_F(KVIndexViewInterleaving, RandomOperationsAtRandomPoints) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    std::mt19937_64 random(seed);
    const auto any = [&]() -> Action {
      const auto slot = static_cast<std::uint32_t>(1 + random() % 3);
      const auto tiers = static_cast<Tiers>(1 + random() % 3);
      const std::span<const ContentKey> crowd(crowd_);
      switch (random() % 6) {
        case 0:
          return AddAll(Block(random() % 5), slot, tiers);
        case 1:
          return ClearAll(Block(random() % 5), slot, tiers);
        case 2:
          return AddAll(Prompt(5), slot, tiers);
        case 3:
          return ClearAll(Prompt(5), slot, tiers);
        case 4:
          return AddAll(Others(random() % 100), slot, tiers);
        default:
          return ClearAll(Others(100), slot, kOnBoth);
      }
    };
    Scenario scenario{"random, seed " + std::to_string(seed), {}, {}, Prompt(5), {1, 2, 3}};
    for (int i = 0; i < 6; ++i) scenario.before.push_back(any());
    for (int i = 0; i < 2; ++i) scenario.meanwhile.push_back(any());
    Interleavings(std::move(scenario)).PlayAll();
    if (HasFailure()) return;
  }
}

// --- Writers among themselves: one is stopped inside, the other arrives.

class KVIndexViewWriters : public testing::Test {
 protected:
  // Runs `first` on a thread of its own up to `stop_at`, starts `second`, and lets `first` go on when `second`
  // has found the segment locked.
  void Overlap(TestView& view, NoHooks::Point stop_at, const Action& first, const Action& second) {
    std::atomic<bool> stopped{false};
    std::atomic<bool> arrived{false};
    std::thread one([&] {
      TestHooks::on_point = [&](NoHooks::Point point) {
        if (point != stop_at || stopped.exchange(true)) return;
        stopped.notify_one();
        arrived.wait(false);
      };
      first(view);
      TestHooks::on_point = nullptr;
      EXPECT_TRUE(stopped.load()) << "the point was never reached";
      stopped.store(true);
      stopped.notify_one();
    });
    std::thread two([&] {
      stopped.wait(false);
      TestHooks::on_point = [&](NoHooks::Point point) {
        if (point != NoHooks::kLockIsWanted) return;
        arrived.store(true);
        arrived.notify_one();
      };
      second(view);
      TestHooks::on_point = nullptr;
      EXPECT_TRUE(arrived.load()) << "the second writer did not have to wait";
      arrived.store(true);
      arrived.notify_one();
    });
    one.join();
    two.join();
  }

  const std::vector<ContentKey> keys_ = KeysOfOneSegment(400);
};

TEST_F(KVIndexViewWriters, AMarkDoesNotLandInAnEntryThatIsBeingReclaimed) {
  TestView view(0);
  const std::span<const ContentKey> block(keys_.data(), 1);
  view.Add(keys_[0], 1, kOnDevice);
  Overlap(view, NoHooks::kWriterEmptied, ClearAll(block, 1, kOnDevice),
          AddAll(block, 2, kOnDevice));
  EXPECT_EQ(FindIn(view, keys_[0]).Of(1), kNoTier);
  EXPECT_EQ(FindIn(view, keys_[0]).Of(2), kOnDevice);
  EXPECT_EQ(view.entries(), 1u);
}

TEST_F(KVIndexViewWriters, AnEntryIsNotReclaimedWhileAnotherWriterMarksIt) {
  TestView view(0);
  const std::span<const ContentKey> block(keys_.data(), 1);
  view.Add(keys_[0], 1, kOnDevice);
  Overlap(view, NoHooks::kWriterFound, AddAll(block, 2, kOnDevice), ClearAll(block, 1, kOnDevice));
  EXPECT_EQ(FindIn(view, keys_[0]).Of(1), kNoTier);
  EXPECT_EQ(FindIn(view, keys_[0]).Of(2), kOnDevice);
}

TEST_F(KVIndexViewWriters, AMarkThatArrivesWhileTheTableGrowsLandsInTheNewOne) {
  TestView view(0);
  const std::span<const ContentKey> keys(keys_);
  view.Add(keys_[0], 1, kOnDevice);
  Overlap(view, NoHooks::kWriterBuilt, AddAll(keys.first(300), 3, kOnDevice),
          AddAll(keys.subspan(300), 2, kOnDevice));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(FindIn(view, keys[i]).Of(i < 300 ? 3 : 2), kOnDevice) << i;
  }
  EXPECT_EQ(FindIn(view, keys_[0]).Of(1), kOnDevice);
}

}  // namespace
}  // namespace xms::kv_index::internal
