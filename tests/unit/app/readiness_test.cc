#include "app/readiness.h"

#include <gtest/gtest.h>

#include "base/testing/manual_clock.h"

namespace xms::app {
namespace {

using std::chrono::milliseconds;

class AppReadiness : public testing::Test {
 protected:
  bool Update(bool group, bool settled) { return gate_.Update(clock_.Now(), group, settled); }

  base::testing::ManualClock clock_;
  ReadinessGate gate_{{.warmup = milliseconds(2000), .linger = milliseconds(3000)}, clock_.Now()};
};

// F1
TEST_F(AppReadiness, StaysClosedWithoutAGroupHoweverLong) {
  EXPECT_FALSE(Update(false, true));
  clock_.Advance(milliseconds(60000));
  EXPECT_FALSE(Update(false, true));
  EXPECT_EQ(gate_.Reasons(), std::vector<std::string>{"no_instance_group_can_serve"});
}

TEST_F(AppReadiness, OpensAtOnceWhenStreamsAreSettled) {
  EXPECT_TRUE(Update(true, true));
  EXPECT_TRUE(gate_.Reasons().empty());
}

TEST_F(AppReadiness, WaitsForStreamsOnlyAsLongAsTheWarmup) {
  EXPECT_FALSE(Update(true, false));
  EXPECT_EQ(gate_.Reasons(), std::vector<std::string>{"waiting_for_kv_streams"});
  clock_.Advance(milliseconds(1999));
  EXPECT_FALSE(Update(true, false));
  clock_.Advance(milliseconds(1));
  EXPECT_TRUE(Update(true, false));
}

TEST_F(AppReadiness, NeverWaitsForStreamsASecondTime) {
  ASSERT_TRUE(Update(true, true));
  Update(false, true);
  clock_.Advance(milliseconds(3000));
  ASSERT_FALSE(Update(false, true));
  EXPECT_TRUE(Update(true, false));
}

TEST_F(AppReadiness, AShortLossOfTheGroupDoesNotCloseThePort) {
  ASSERT_TRUE(Update(true, true));
  EXPECT_TRUE(Update(false, true));
  // Who asks is told at once, though: a load balancer should send nothing here.
  EXPECT_EQ(gate_.Reasons(), std::vector<std::string>{"no_instance_group_can_serve"});
  clock_.Advance(milliseconds(2999));
  EXPECT_TRUE(Update(false, true));
  EXPECT_TRUE(Update(true, true));
  // The clock of the next loss starts anew.
  clock_.Advance(milliseconds(10000));
  EXPECT_TRUE(Update(false, true));
}

TEST_F(AppReadiness, ALongLossClosesThePort) {
  ASSERT_TRUE(Update(true, true));
  EXPECT_TRUE(Update(false, true));
  clock_.Advance(milliseconds(3000));
  EXPECT_FALSE(Update(false, true));
  EXPECT_EQ(gate_.Reasons(), std::vector<std::string>{"no_instance_group_can_serve"});
}

TEST_F(AppReadiness, AServiceThatStopsIsNotReady) {
  ASSERT_TRUE(Update(true, true));
  gate_.Stopping();
  EXPECT_EQ(gate_.Reasons(), std::vector<std::string>{"stopping"});
}

}  // namespace
}  // namespace xms::app
