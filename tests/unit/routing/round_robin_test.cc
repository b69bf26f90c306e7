#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "routing/policy.h"
#include "tests/unit/routing/fleet.h"

namespace xms::routing {
namespace {

using model::Role;

class RoundRobin : public ::testing::Test {
 protected:
  std::string Route() {
    policy_->Choose(fleet_.Input(1000), choice_);
    return fleet_.Name(choice_.primary);
  }
  std::string Decode() const { return fleet_.Name(choice_.decode); }
  std::string Order(int requests) {
    std::string order;
    for (int i = 0; i < requests; ++i) {
      order += Route();
      order += Decode();
    }
    return order;
  }

  Fleet fleet_;
  std::unique_ptr<Policy> policy_ = MakeRoundRobin();
  Choice choice_;
};

TEST_F(RoundRobin, SaysWhatItIs) {
  EXPECT_EQ(policy_->name(), "RR");
  EXPECT_FALSE(policy_->wants_hits());
}

// G9
TEST_F(RoundRobin, GoesAroundWhateverLoadsAndHitsSay) {
  fleet_.Add("a", 9, {{0, 0}});
  fleet_.Add("b", std::nan(""), {{1000, 0}});
  fleet_.Add("c", 0.0).has_load = false;
  EXPECT_EQ(Order(7), "abcabca");
  EXPECT_EQ(choice_.reason, "rotation");
  EXPECT_EQ(choice_.cost, Scored::kNoCost);
  EXPECT_EQ(choice_.scored[0].cost, Scored::kNoCost);
}

TEST_F(RoundRobin, PassesOverTheUnschedulableWithoutFavouringTheNext) {
  for (const char* name : {"a", "b", "c", "d"}) fleet_.Add(name);
  fleet_[1].schedulable = false;
  EXPECT_EQ(Order(6), "acdacd");
  EXPECT_EQ(choice_.scored[1].left_out, "not schedulable");
}

TEST_F(RoundRobin, BothSidesGoAroundIndependently) {
  fleet_.Add("p", Role::kPrefill);
  fleet_.Add("q", Role::kPrefill);
  for (const char* name : {"1", "2", "3"}) fleet_.Add(name, Role::kDecode);
  EXPECT_EQ(Order(6), "p1q2p3q1p2q3");
}

// Upstream counts such a choice as success with an empty name; the request then fails in the engine.
TEST_F(RoundRobin, PrefillIsNotChosenWhenEveryDecodeIsUnschedulable) {
  fleet_.Add("p", Role::kPrefill);
  fleet_.Add("d", Role::kDecode).schedulable = false;
  EXPECT_EQ(Route(), "");
  EXPECT_EQ(choice_.decode, -1);
  EXPECT_EQ(choice_.reason, "no decode instance, and no DEFAULT that can serve alone");
  fleet_.Add("a");
  EXPECT_EQ(Order(2), "aa") << "the DEFAULT serves";
  EXPECT_EQ(choice_.scored[0].left_out, "no decode instance");
}

TEST_F(RoundRobin, ADefaultServesAloneAndUsesUpNoDecodeTurn) {
  fleet_.Add("a");
  fleet_.Add("p", Role::kPrefill);
  fleet_.Add("1", Role::kDecode);
  fleet_.Add("2", Role::kDecode);
  EXPECT_EQ(Order(4), "ap1ap2");
  EXPECT_EQ(Route(), "a");
  EXPECT_EQ(choice_.scored[2].left_out, "not needed: a DEFAULT serves alone");
}

TEST_F(RoundRobin, MixActsByItsCurrentRole) {
  fleet_.Add("m", Role::kPrefill).is_mix = true;
  fleet_.Add("n", Role::kDecode).is_mix = true;
  EXPECT_EQ(Order(2), "mnmn");
  fleet_[1].role = Role::kPrefill;
  EXPECT_EQ(Route(), "") << "nobody decodes now";
}

TEST_F(RoundRobin, NobodyLeftIsExplained) {
  EXPECT_EQ(Route(), "");
  EXPECT_EQ(choice_.reason, "no instance is registered");
  fleet_.Add("a").schedulable = false;
  EXPECT_EQ(Route(), "");
  EXPECT_EQ(choice_.reason, "no instance is schedulable");
  fleet_.Add("d", Role::kDecode);
  EXPECT_EQ(Route(), "");
  EXPECT_EQ(choice_.reason, "only decode instances are schedulable");
}

// Threads share the cursor: together they still go around evenly.
TEST_F(RoundRobin, ConcurrentRequestsAreSpreadEvenly) {
  for (const char* name : {"a", "b", "c", "d"}) fleet_.Add(name);
  std::vector<std::map<int, int>> counts(4);
  {
    std::vector<std::jthread> threads;
    for (auto& count : counts) {
      threads.emplace_back([&] {
        Choice choice;
        for (int i = 0; i < 1000; ++i) {
          policy_->Choose(fleet_.Input(1000), choice);
          ++count[choice.primary];
        }
      });
    }
  }
  std::map<int, int> total;
  for (const auto& count : counts) {
    for (const auto& [index, n] : count) total[index] += n;
  }
  EXPECT_EQ(total, (std::map<int, int>{{0, 1000}, {1, 1000}, {2, 1000}, {3, 1000}}));
}

}  // namespace
}  // namespace xms::routing
