#include "base/clock.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/testing/manual_clock.h"

namespace xms::base {
namespace {

using namespace std::chrono_literals;

TEST(BaseClock, MillisecondsBetweenRoundDownInBothDirections) {
  const SteadyTime zero{};
  EXPECT_EQ(MillisBetween(zero, zero + 1999us), 1);
  EXPECT_EQ(MillisBetween(zero + 2ms, zero), -2);
  EXPECT_EQ(MillisBetween(zero + 1us, zero), -1);
}

TEST(BaseClock, SystemClockDoesNotGoBack) {
  const SystemClock clock;
  SteadyTime last = clock.Now();
  for (int i = 0; i < 1000; ++i) {
    const SteadyTime now = clock.Now();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_GT(clock.WallMs(), 1'600'000'000'000);
}

TEST(BaseClock, ManualClockMovesOnlyWhenTold) {
  testing::ManualClock clock;
  const SteadyTime start = clock.Now();
  const std::int64_t wall = clock.WallMs();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(1500ms);
  EXPECT_EQ(MillisBetween(start, clock.Now()), 1500);
  EXPECT_EQ(clock.WallMs() - wall, 1500);
}

}  // namespace
}  // namespace xms::base
