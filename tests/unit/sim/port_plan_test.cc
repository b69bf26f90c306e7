#include "sim/port_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace xms::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr PortRange kEphemeral{32768, 60999};

TEST(SimPortPlan, SpacesEnginesByTheirRanks) {
  const auto plan = PlanPorts({.dp_sizes = {1, 2, 1}, .base = 20000});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->http, ElementsAre(20000, 20001, 20003));
  EXPECT_EQ(plan->event_offset, 4U);
  EXPECT_EQ(plan->replay_offset, 8U);
  EXPECT_THAT(plan->all, ElementsAre(20000, 20001, 20003,           // HTTP
                                     20004, 20005, 20006, 20007,    // events
                                     20008, 20009, 20010, 20011));  // snapshots
}

TEST(SimPortPlan, KeepsGivenPortsAndOffsets) {
  const auto plan = PlanPorts(
      {.dp_sizes = {1, 2}, .http = {21000, 21010}, .event_offset = 1000, .replay_offset = 2000});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->all, ElementsAre(21000, 21010, 22000, 22010, 22011, 23000, 23010, 23011));
  // What is left open is filled in so that it fits.
  for (const std::uint32_t given : {12U, 23U, 5000U}) {
    EXPECT_TRUE(
        PlanPorts({.dp_sizes = {1, 2}, .http = {21000, 21010}, .replay_offset = given}).ok())
        << given;
  }
}

TEST(SimPortPlan, RefusesPortsThatMeetOrLieTooHigh) {
  const auto meet = PlanPorts(
      {.dp_sizes = {2, 2}, .http = {21000, 21001}, .event_offset = 100, .replay_offset = 200});
  ASSERT_FALSE(meet.ok());
  EXPECT_THAT(meet.error().message, HasSubstr("port 21101 is wanted twice: events of engine 0"));
  const auto http = PlanPorts({.dp_sizes = {1, 1}, .http = {21000, 21100}, .event_offset = 100});
  ASSERT_FALSE(http.ok());
  EXPECT_THAT(http.error().message, HasSubstr("port 21100 is wanted twice"));
  const auto high = PlanPorts({.dp_sizes = {1}, .base = 40000, .replay_offset = 30000});
  ASSERT_FALSE(high.ok());
  EXPECT_THAT(high.error().message, HasSubstr("port 70000 (snapshots of engine 0 rank 0)"));
}

TEST(SimPortPlan, CandidatesStayBelowTheEphemeralPortsWhileTheyCan) {
  const PortRequest request{.dp_sizes = {1, 2, 1}, .event_offset = 1000, .replay_offset = 2000};
  const auto bases = CandidateBases(request, kEphemeral, 7);
  ASSERT_GT(bases.size(), 1000U);
  EXPECT_EQ(bases, CandidateBases(request, kEphemeral, 7));
  EXPECT_NE(bases, CandidateBases(request, kEphemeral, 8));
  bool below_is_over = false;
  for (const std::uint16_t base : bases) {
    PortRequest there = request;
    there.base = base;
    const auto plan = PlanPorts(there);
    ASSERT_TRUE(plan.ok());
    for (const std::uint16_t port : plan->all) ASSERT_FALSE(kEphemeral.Contains(port)) << base;
    const bool below = plan->all.back() < kEphemeral.first;
    ASSERT_FALSE(below && below_is_over) << base;
    below_is_over = !below;
  }
}

// The engine's defaults put the snapshot port into the ephemeral range, wherever the HTTP port is.
TEST(SimPortPlan, DefaultOffsetsOfTheEngineLeaveNoPlaceBelow) {
  const PortRequest request{.dp_sizes = {1}, .event_offset = 10000, .replay_offset = 30000};
  for (const std::uint16_t base : CandidateBases(request, kEphemeral, 1)) {
    EXPECT_GE(base + 30000, 61000);
  }
}

TEST(SimPortPlan, ReadsTheKernelsRange) {
  const PortRange range = EphemeralPorts();
  EXPECT_LT(range.first, range.last);
}

}  // namespace
}  // namespace xms::sim
