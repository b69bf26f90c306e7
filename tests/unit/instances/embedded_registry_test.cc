#include "instances/registry/embedded_registry.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/testing/manual_clock.h"
#include "instances/testing/scripted_probe.h"
#include "tests/unit/instances/records.h"

namespace xms::instances {
namespace {

using std::chrono::milliseconds;

constexpr char kA[] = "10.0.0.5:8000";
constexpr char kB[] = "10.0.0.6:8000";
constexpr milliseconds kTtl{15000};

class InstancesEmbeddedRegistry : public ::testing::Test {
 protected:
  void TickAfter(milliseconds time) {
    clock_.Advance(time);
    registry_.Tick();
    manager_.Tick();
  }
  const Instance* Find(const std::string& name) {
    view_ = manager_.view();
    return view_->Find(name);
  }

  base::testing::ManualClock clock_;
  testing::ScriptedProbe probe_;
  InstanceManager manager_{Options{}, clock_, probe_};
  EmbeddedRegistry registry_{clock_, manager_};
  std::shared_ptr<const InstanceView> view_;
};

TEST_F(InstancesEmbeddedRegistry, SaysWhatItIs) {
  EXPECT_EQ(registry_.Describe(), "embedded registry");
}

TEST_F(InstancesEmbeddedRegistry, PutSaysCreatedRefreshedReplaced) {
  EXPECT_EQ(registry_.Put(Record(kA, "x"), kTtl), PutOutcome::kCreated);
  EXPECT_EQ(registry_.Put(Record(kA, "x"), kTtl), PutOutcome::kRefreshed);
  EXPECT_EQ(registry_.Put(Record(kA, "y"), kTtl), PutOutcome::kReplaced);
}

TEST_F(InstancesEmbeddedRegistry, TheEndOfTheTtlIsALeaseLoss) {
  registry_.Put(Record(kA, "x"), kTtl);
  TickAfter(milliseconds(14999));
  EXPECT_EQ(probe_.waiting(), 0u);
  TickAfter(milliseconds(1));
  ASSERT_EQ(probe_.waiting(), 1u) << "the engine is asked before anything is concluded";
  EXPECT_EQ(Find(kA)->state, State::kActive);
  ASSERT_TRUE(probe_.Answer(kA, true));
  EXPECT_EQ(Find(kA)->state, State::kLeaseLost);
  TickAfter(milliseconds(3000));
  EXPECT_EQ(Find(kA)->state, State::kSuspect);
  TickAfter(milliseconds(15000));
  EXPECT_EQ(Find(kA), nullptr);
  EXPECT_EQ(probe_.waiting(), 0u) << "one lease ends once";
}

TEST_F(InstancesEmbeddedRegistry, RepeatingThePutKeepsItAlive) {
  registry_.Put(Record(kA, "x"), kTtl);
  for (int i = 0; i < 5; ++i) {
    TickAfter(milliseconds(14000));
    registry_.Put(Record(kA, "x"), kTtl);
  }
  EXPECT_EQ(probe_.waiting(), 0u);
  EXPECT_EQ(Find(kA)->state, State::kActive);
}

TEST_F(InstancesEmbeddedRegistry, EachInstanceHasItsOwnTtlAndTheLastOneGivenCounts) {
  registry_.Put(Record(kA, "x"), milliseconds(1000));
  registry_.Put(Record(kB, "x"), milliseconds(60000));
  registry_.Put(Record(kB, "x"), milliseconds(2000));
  TickAfter(milliseconds(1000));
  ASSERT_EQ(probe_.waiting(), 1u);
  EXPECT_TRUE(probe_.Answer(kA, false));
  TickAfter(milliseconds(1000));
  EXPECT_TRUE(probe_.Answer(kB, false));
  EXPECT_EQ(Find(kA)->state, State::kSuspect);
  EXPECT_EQ(Find(kB)->state, State::kSuspect);
}

TEST_F(InstancesEmbeddedRegistry, RegisteringAgainAfterTheTtlBringsItBack) {
  registry_.Put(Record(kA, "x"), kTtl);
  TickAfter(kTtl);
  ASSERT_TRUE(probe_.Answer(kA, false));
  EXPECT_EQ(Find(kA)->state, State::kSuspect);
  EXPECT_EQ(registry_.Put(Record(kA, "x"), kTtl), PutOutcome::kRefreshed);
  EXPECT_EQ(Find(kA)->state, State::kActive);
  TickAfter(milliseconds(14000));
  EXPECT_EQ(Find(kA)->state, State::kActive);
}

TEST_F(InstancesEmbeddedRegistry, RemoveIsImmediateAndEndsTheLease) {
  registry_.Put(Record(kA, "x"), kTtl);
  EXPECT_TRUE(registry_.Remove({kA}));
  EXPECT_EQ(Find(kA), nullptr);
  EXPECT_FALSE(registry_.Remove({kA}));
  TickAfter(milliseconds(60000));
  EXPECT_EQ(probe_.waiting(), 0u);
}

// The lease belongs to the life that took the name over: the old life's end must not end it.
TEST_F(InstancesEmbeddedRegistry, AReplacementHasALeaseOfItsOwn) {
  registry_.Put(Record(kA, "x"), kTtl);
  TickAfter(milliseconds(10000));
  registry_.Put(Record(kA, "y"), kTtl);
  TickAfter(milliseconds(10000));
  EXPECT_EQ(probe_.waiting(), 0u);
  TickAfter(milliseconds(5000));
  EXPECT_EQ(probe_.waiting(), 1u);
}

}  // namespace
}  // namespace xms::instances
