// One thread is enough for most of the epochs' promises: a reader is a guard that is open.
#include "base/epoch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace xms::base {
namespace {

TEST(BaseEpoch, FreesAtOnceWhenNobodyReads) {
  bool freed = false;
  EpochRetire([&] { freed = true; });
  EXPECT_TRUE(freed);
  EXPECT_EQ(EpochCollect(), 0u);
}

TEST(BaseEpoch, KeepsWhatAReaderMaySee) {
  bool freed = false;
  {
    EpochGuard guard;
    EpochRetire([&] { freed = true; });
    EXPECT_FALSE(freed);
    EXPECT_EQ(EpochCollect(), 1u);
    EXPECT_FALSE(freed);
  }
  EXPECT_EQ(EpochCollect(), 0u);
  EXPECT_TRUE(freed);
}

TEST(BaseEpoch, AGuardWithinAGuardDoesNotEndTheOuterOne) {
  bool freed = false;
  {
    EpochGuard outer;
    {
      EpochGuard inner;
    }
    EpochRetire([&] { freed = true; });
    EXPECT_FALSE(freed);
  }
  EXPECT_EQ(EpochCollect(), 0u);
  EXPECT_TRUE(freed);
}

TEST(BaseEpoch, AReaderThatCameAfterTheUnlinkKeepsNothing) {
  bool freed = false;
  {
    std::optional<EpochGuard> early(std::in_place);
    EpochRetire([&] { freed = true; });
    std::thread([&] {
      EpochGuard late;
      EpochCollect();
      EXPECT_FALSE(freed) << "the early reader is still there";
    }).join();
    early.reset();
    // This guard announces an epoch after the unlink.
    EpochGuard late;
    EpochCollect();
    EXPECT_TRUE(freed);
  }
}

TEST(BaseEpoch, AReaderOnAnotherThreadCounts) {
  bool freed = false;
  std::thread([&] {
    EpochGuard guard;
    std::thread([&] { EpochRetire([&] { freed = true; }); }).join();
    EXPECT_FALSE(freed);
  }).join();
  EpochCollect();
  EXPECT_TRUE(freed);
}

TEST(BaseEpoch, StampedMemoryIsReusableOnlyAfterItsReadersLeft) {
  std::uint64_t stamp = 0;
  {
    EpochGuard guard;
    stamp = EpochStamp();
    EXPECT_LE(EpochAdvance(), stamp);
    EXPECT_LE(EpochAdvance(), stamp);
  }
  EXPECT_GT(EpochAdvance(), stamp);
}

TEST(BaseEpoch, AReaderThatCameAfterTheStampDoesNotHoldItUp) {
  const std::uint64_t stamp = EpochStamp();
  EpochAdvance();
  EpochGuard guard;
  EXPECT_GT(EpochAdvance(), stamp);
}

struct Counted {
  explicit Counted(int* alive_in) : alive(alive_in) { ++*alive; }
  ~Counted() { --*alive; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  int* alive;
};

TEST(BaseEpoch, ACellShowsTheNewValueAndKeepsTheOldOneForItsReaders) {
  int alive = 0;
  {
    SnapshotCell<Counted> cell(std::make_unique<const Counted>(&alive));
    {
      EpochGuard guard;
      const Counted* old = cell.Get();
      cell.Set(std::make_unique<const Counted>(&alive));
      EXPECT_NE(cell.Get(), old);
      EXPECT_EQ(alive, 2);
      EXPECT_EQ(old->alive, &alive);
    }
    EpochCollect();
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace xms::base
