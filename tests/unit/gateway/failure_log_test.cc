#include "gateway/failure_log.h"

#include <gtest/gtest.h>

#include <string>

#include "base/testing/manual_clock.h"

namespace xms::gateway {
namespace {

TEST(GatewayFailureLog, OneLineAnEngineAndInterval) {
  base::testing::ManualClock clock;
  FailureLog log(clock);
  EXPECT_EQ(log.Report("a:1", "refused"), "engine a:1: refused");
  EXPECT_EQ(log.Report("a:1", "refused"), "");
  EXPECT_EQ(log.Report("b:1", "refused"), "engine b:1: refused");
  clock.Advance(FailureLog::kInterval);
  EXPECT_EQ(log.Report("a:1", "reset"),
            "engine a:1: reset (1 more failures since the last such line)");
  clock.Advance(FailureLog::kInterval);
  EXPECT_EQ(log.Report("a:1", "reset"), "engine a:1: reset");
}

TEST(GatewayFailureLog, RemembersABoundedNumberOfEngines) {
  base::testing::ManualClock clock;
  FailureLog log(clock);
  for (std::size_t i = 0; i <= FailureLog::kMaxEngines; ++i) {
    EXPECT_NE(log.Report("engine-" + std::to_string(i), "refused"), "");
  }
  // Forgotten with all others, so it is said once more rather than never again.
  EXPECT_NE(log.Report("engine-0", "refused"), "");
}

}  // namespace
}  // namespace xms::gateway
