// Readers and writers at full speed; ThreadSanitizer and AddressSanitizer are the judges, together
// with marks that an object loses when it is freed.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/epoch.h"

namespace xms::base {
namespace {

constexpr std::uint64_t kAlive = 0x600d600d600d600d;

struct Value {
  explicit Value(std::uint64_t number_in) : number(number_in), twice(2 * number_in) {}
  ~Value() { mark = 0; }
  std::uint64_t mark = kAlive;
  std::uint64_t number;
  std::uint64_t twice;
};

TEST(BaseEpochStress, ReadersOfACellNeverMeetAFreedValue) {
  SnapshotCell<Value> cell(std::make_unique<const Value>(1));
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reads{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      std::uint64_t last = 0;
      while (!stop.load()) {
        EpochGuard guard;
        const Value* value = cell.Get();
        ASSERT_EQ(value->mark, kAlive);
        ASSERT_EQ(value->twice, 2 * value->number);
        ASSERT_GE(value->number, last) << "a reader saw time go back";
        last = value->number;
        reads.fetch_add(1);
      }
    });
  }
  std::uint64_t number = 1;
  while (number < 20000 || reads.load() < 20000) {
    cell.Set(std::make_unique<const Value>(++number));
    if (number % 64 == 0) std::this_thread::yield();
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(EpochCollect(), 0u);
}

// Nodes of a fixed pool are unlinked, stamped and reused in place. A reader that holds a node must
// find its content unchanged for as long as its guard lasts.
TEST(BaseEpochStress, MemoryReusedInPlaceDoesNotChangeUnderAReader) {
  struct Node {
    std::atomic<std::uint64_t> number{0};
    std::atomic<std::uint64_t> twice{0};
  };
  constexpr std::size_t kNodes = 64;
  std::array<Node, kNodes> nodes;
  std::atomic<std::uint32_t> current{0};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reads{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop.load()) {
        EpochGuard guard;
        const Node& node = nodes[current.load()];
        const std::uint64_t number = node.number.load(std::memory_order_relaxed);
        for (int spin = 0; spin < 8; ++spin) {
          ASSERT_EQ(node.twice.load(std::memory_order_relaxed), 2 * number);
          ASSERT_EQ(node.number.load(std::memory_order_relaxed), number);
        }
        reads.fetch_add(1);
      }
    });
  }
  struct Unlinked {
    std::uint32_t node;
    std::uint64_t stamp;
  };
  std::vector<Unlinked> waiting;
  std::vector<std::uint32_t> unused;
  for (std::uint32_t i = 1; i < kNodes; ++i) unused.push_back(i);
  std::uint64_t number = 0;
  while (number < 20000 || reads.load() < 20000) {
    while (unused.empty()) {
      const std::uint64_t bound = EpochAdvance();
      std::vector<Unlinked> kept;
      for (const Unlinked& entry : waiting) {
        if (entry.stamp < bound) {
          unused.push_back(entry.node);
        } else {
          kept.push_back(entry);
        }
      }
      waiting = std::move(kept);
      if (unused.empty()) std::this_thread::yield();
    }
    const std::uint32_t next = unused.back();
    unused.pop_back();
    ++number;
    nodes[next].number.store(number, std::memory_order_relaxed);
    nodes[next].twice.store(2 * number, std::memory_order_relaxed);
    const std::uint32_t old = current.exchange(next);
    waiting.push_back({old, EpochStamp()});
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
}

TEST(BaseEpochStress, ThreadsThatComeAndGoReuseTheirPlaces) {
  SnapshotCell<Value> cell(std::make_unique<const Value>(1));
  for (std::uint64_t round = 0; round < 200; ++round) {
    std::vector<std::thread> readers;
    for (int i = 0; i < 4; ++i) {
      readers.emplace_back([&] {
        EpochGuard guard;
        ASSERT_EQ(cell.Get()->mark, kAlive);
      });
    }
    cell.Set(std::make_unique<const Value>(round + 2));
    for (std::thread& reader : readers) reader.join();
  }
  EXPECT_EQ(EpochCollect(), 0u);
}

}  // namespace
}  // namespace xms::base
