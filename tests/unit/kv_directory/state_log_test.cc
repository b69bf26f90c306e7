// One line per change of state, and no flood.
#include "kv_directory/streams/state_log.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace xms::kv_directory {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr base::SteadyTime kStart{seconds(1000)};

TEST(KVDirectoryStateLog, EachChangeOfAnOrdinaryDayIsWrittenAtOnce) {
  StateLog log;
  base::SteadyTime now = kStart;
  for (int i = 0; i < 100; ++i) {
    const auto line = log.Change(i % 2 == 0, "change " + std::to_string(i), now);
    ASSERT_TRUE(line.has_value()) << i;
    EXPECT_EQ(line->text, "change " + std::to_string(i));
    EXPECT_EQ(line->synchronized, i % 2 == 0);
    EXPECT_EQ(log.next(), base::SteadyTime::max());
    now += StateLog::kInterval;
  }
}

TEST(KVDirectoryStateLog, AStreamThatFlapsIsSummedUpAndItsLastStateIsWritten) {
  StateLog log;
  int lines = 0;
  base::SteadyTime now = kStart;
  // Ten thousand changes within ten seconds.
  for (int i = 0; i < 10'000; ++i) {
    now += milliseconds(1);
    if (log.Due(now)) ++lines;
    if (log.Change(i % 2 == 0, "change " + std::to_string(i), now)) ++lines;
  }
  EXPECT_LE(lines, StateLog::kBurst + 2);
  EXPECT_GE(lines, StateLog::kBurst);
  ASSERT_LE(log.next(), now + StateLog::kInterval);
  EXPECT_FALSE(log.Due(log.next() - milliseconds(1)).has_value());
  const auto last = log.Due(log.next());
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->text.find("change 9999 (and "), 0u) << last->text;
  EXPECT_NE(last->text.find(" changes before it that were not logged)"), std::string::npos);
  EXPECT_FALSE(last->synchronized);
  EXPECT_EQ(log.next(), base::SteadyTime::max());
  EXPECT_FALSE(log.Due(now + seconds(60)).has_value()) << "written once";
}

TEST(KVDirectoryStateLog, QuietGivesTheBurstBack) {
  StateLog log;
  for (int i = 0; i < StateLog::kBurst; ++i) EXPECT_TRUE(log.Change(true, "x", kStart).has_value());
  EXPECT_FALSE(log.Change(true, "x", kStart).has_value());
  const base::SteadyTime later = kStart + 100 * StateLog::kInterval;
  EXPECT_TRUE(log.Due(later).has_value());
  for (int i = 1; i < StateLog::kBurst; ++i) EXPECT_TRUE(log.Change(true, "x", later).has_value());
  EXPECT_FALSE(log.Change(true, "x", later).has_value()) << "never more than one burst";
}

}  // namespace
}  // namespace xms::kv_directory
