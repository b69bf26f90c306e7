// The ledger's containers against slow and obvious ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kv_index/internal/dropped_names.h"
#include "kv_index/internal/flat_map.h"
#include "kv_index/internal/ledger_table.h"
#include "kv_index/internal/parked_list.h"

namespace xms::kv_index::internal {
namespace {

using model::WireHash;

// Every hash lands where few bits differ, so that buckets overflow into each other.
TEST(KVIndexLedgerTable, DoesWhatAMapDoes) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    LedgerTable table(seed % 2 == 0 ? 0 : random());
    std::map<std::uint64_t, std::uint32_t> model;
    // Hashes that collide: the positions are decided by the upper half of a product.
    const std::uint64_t spread = seed % 3 == 0 ? 1 : (seed % 3 == 1 ? 0x100000001 : random() | 1);
    std::uint64_t keys = 40 + random() % 3000;
    for (int step = 0; step < 30'000; ++step) {
      if (step % 5000 == 4999) keys = 10 + random() % 3000;
      const WireHash wire{random() % keys * spread};
      Mapping* found = table.Find(wire);
      const auto known = model.find(wire.value);
      ASSERT_EQ(found != nullptr, known != model.end()) << "step " << step;
      if (found == nullptr) {
        const auto reference = static_cast<std::uint32_t>(random() & 0xfffffff);
        table.FindOrInsert(wire, Mapping::Make(Mapping::kIndexed, kOnHost, reference));
        model[wire.value] = reference;
      } else {
        ASSERT_EQ(found->reference(), known->second) << "step " << step;
        found = table.FindOrInsert(wire, Mapping{});  // it may grow all the same
        ASSERT_EQ(found->reference(), known->second) << "step " << step;
        ASSERT_EQ(found->kind(), Mapping::kIndexed);
        ASSERT_EQ(found->tiers(), kOnHost);
        if (random() % 2 == 0) {
          table.Erase(found);
          model.erase(known);
        }
      }
      ASSERT_EQ(table.size(), model.size());
    }
    std::map<std::uint64_t, std::uint32_t> listed;
    table.ForEach(
        [&](WireHash wire, const Mapping& mapping) { listed[wire.value] = mapping.reference(); });
    ASSERT_EQ(listed, model);
    while (!model.empty()) {
      table.Erase(table.Find({model.begin()->first}));
      model.erase(model.begin());
    }
    EXPECT_EQ(table.size(), 0u);
    EXPECT_LE(table.bytes(), 8 * 64u) << "an empty table is small";
  }
}

TEST(KVIndexLedgerTable, TakesLessThanNineteenBytesAMappingWhenLarge) {
  for (const std::uint64_t count : {60'000, 65'536, 70'000, 262'144}) {
    LedgerTable table(0);
    for (std::uint64_t i = 0; i < count; ++i) {
      table.FindOrInsert({i * 0x9E3779B97F4A7C15u}, Mapping::Make(Mapping::kIndexed, kOnDevice, 1));
    }
    EXPECT_LT(static_cast<double>(table.bytes()) / static_cast<double>(count), 19.0) << count;
  }
}

TEST(KVIndexLedgerTable, SweepsAwayWhatWasSetToNone) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    LedgerTable table(random());
    std::map<std::uint64_t, std::uint32_t> model;
    for (std::uint32_t i = 0; i < 5000; ++i) {
      const std::uint64_t wire = random();
      model[wire] = i;
      table.FindOrInsert({wire}, Mapping::Make(Mapping::kOpaque, kOnHost, i));
    }
    const std::uint64_t keep = random() % 10;
    table.ForEach([&](WireHash wire, Mapping& mapping) {
      if (random() % 10 < keep) return;
      mapping = Mapping{};
      model.erase(wire.value);
    });
    table.Sweep();
    ASSERT_EQ(table.size(), model.size());
    EXPECT_LE(table.bytes(), 18 * model.size() + 8 * 64);
    for (const auto& [wire, reference] : model) {
      ASSERT_NE(table.Find({wire}), nullptr);
      ASSERT_EQ(table.Find({wire})->reference(), reference);
    }
    std::size_t listed = 0;
    table.ForEach([&](WireHash, const Mapping&) { ++listed; });
    EXPECT_EQ(listed, model.size());
  }
}

TEST(KVIndexDroppedNames, RemembersTheLastOnesWithinItsBound) {
  constexpr std::uint64_t kMost = 1024;
  DroppedNames names(7, kMost);
  EXPECT_EQ(names.bytes(), 0u);
  EXPECT_FALSE(names.Has({0}));
  for (std::uint64_t wire = 0; wire < 10 * kMost; ++wire) {
    names.Add({wire});
    ASSERT_TRUE(names.Has({wire}));
    ASSERT_TRUE(names.Has({wire - std::min(wire, kMost - 1)})) << wire;
    if (wire >= kMost) {
      ASSERT_FALSE(names.Has({wire - kMost})) << wire;
    }
    ASSERT_FALSE(names.Has({wire + 1})) << wire;
    ASSERT_LE(names.bytes(), 4 * kMost);
  }
  names.Clear();
  EXPECT_FALSE(names.Has({10 * kMost - 1}));
  EXPECT_EQ(names.bytes(), 0u);
}

TEST(KVIndexParkedList, IsAQueueThatCanBeLeftFromTheMiddle) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    ParkedList list;
    struct Parked {
      std::uint64_t wire;
      std::uint32_t number;
    };
    std::deque<Parked> model;
    std::uint64_t next = 0;
    for (int step = 0; step < 20'000; ++step) {
      const bool filling = step / 4000 % 2 == 0;
      const auto choice = random() % 10;
      if (choice < (filling ? 6u : 2u) || model.empty()) {
        model.push_back({next, list.Append({next}, {next, ~next})});
        ++next;
      } else if (choice < 8) {
        ASSERT_EQ(list.wire(list.oldest()).value, model.front().wire) << "step " << step;
        list.Remove(list.oldest());
        model.pop_front();
      } else {
        const auto at = static_cast<std::ptrdiff_t>(random() % model.size());
        list.Remove(model[static_cast<std::size_t>(at)].number);
        model.erase(model.begin() + at);
      }
      if (list.IsSparse()) {
        std::size_t told = 0;
        list.Repack([&](WireHash wire, std::uint32_t number) {
          ASSERT_EQ(wire.value, model[told].wire);
          model[told++].number = number;
        });
        ASSERT_EQ(told, model.size());
      }
      ASSERT_EQ(list.size(), model.size());
      if (!model.empty()) {
        const Parked& any = model[random() % model.size()];
        ASSERT_EQ(list.wire(any.number).value, any.wire);
        ASSERT_EQ(list.key(any.number), (model::ContentKey{any.wire, ~any.wire}));
      }
    }
  }
}

struct BadHash {
  std::uint64_t operator()(std::uint64_t key) const { return (key % 7) << 32; }
};

TEST(KVIndexFlatMap, DoesWhatAMapDoes) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    FlatMap<std::uint64_t, std::uint64_t, BadHash> map;
    std::map<std::uint64_t, std::uint64_t> model;
    for (int step = 0; step < 5000; ++step) {
      const std::uint64_t key = random() % 60;
      std::uint64_t* found = map.Find(key);
      ASSERT_EQ(found != nullptr, model.contains(key)) << "step " << step;
      if (found != nullptr) {
        ASSERT_EQ(*found, model[key]);
        if (random() % 2 == 0) {
          map.Erase(key);
          model.erase(key);
        }
      } else if (step / 1000 % 2 == 0 || random() % 4 == 0) {
        map.Insert(key, step);
        model[key] = static_cast<std::uint64_t>(step);
      } else {
        map.Erase(key);  // not there: nothing happens
      }
      ASSERT_EQ(map.size(), model.size());
    }
    for (const auto& [key, value] : std::map(model)) {
      ASSERT_EQ(*map.Find(key), value);
      map.Erase(key);
    }
    EXPECT_TRUE(map.empty());
    EXPECT_LE(map.bytes(), 8 * 24u) << "the smallest size is kept";
    map.Clear();
    EXPECT_EQ(map.bytes(), 0u);
  }
}

}  // namespace
}  // namespace xms::kv_index::internal
