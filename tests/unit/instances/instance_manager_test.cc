#include "instances/instance_manager.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/testing/manual_clock.h"
#include "instances/testing/scripted_probe.h"
#include "tests/unit/instances/records.h"

namespace xms::instances {
namespace {

using std::chrono::milliseconds;

constexpr char kA[] = "10.0.0.5:8000";

class InstancesManager : public ::testing::Test {
 protected:
  InstancesManager() {
    manager_->SetListener([this] {
      ++announced_;
      version_when_announced_ = manager_->view()->version;
    });
  }
  State StateOf(const std::string& name) { return manager_->view()->Find(name)->state; }

  base::testing::ManualClock clock_;
  testing::ScriptedProbe probe_;
  std::optional<InstanceManager> manager_{std::in_place, Options{}, clock_, probe_};
  int announced_ = 0;
  std::uint64_t version_when_announced_ = 0;
};

TEST_F(InstancesManager, StartsWithAnEmptyView) {
  EXPECT_TRUE(manager_->view()->instances.empty());
  EXPECT_EQ(manager_->view()->version, 0u);
}

TEST_F(InstancesManager, AnnouncesAfterTheViewShowsIt) {
  EXPECT_EQ(manager_->Put(Record(kA, "x")), PutOutcome::kCreated);
  EXPECT_EQ(announced_, 1);
  EXPECT_EQ(version_when_announced_, 1u);
  EXPECT_TRUE(manager_->view()->Find(kA)->schedulable);
}

TEST_F(InstancesManager, AKeepAliveIsNotAnnouncedAndALoadIsNot) {
  manager_->Put(Record(kA, "x"));
  EXPECT_EQ(manager_->Put(Record(kA, "x")), PutOutcome::kRefreshed);
  EXPECT_EQ(manager_->view()->version, 1u);
  ASSERT_TRUE(manager_->OnHeartbeat({{kA}, "x", model::LoadSample{1, 0.5}}).ok());
  EXPECT_EQ(manager_->view()->version, 2u);
  EXPECT_EQ(announced_, 1);
}

// A fresh load is seen by the very next request: nothing waits for a period.
TEST_F(InstancesManager, AHeartbeatsLoadIsVisibleAtOnce) {
  manager_->Put(Record(kA, "x"));
  clock_.Advance(milliseconds(500));
  ASSERT_TRUE(manager_->OnHeartbeat({{kA}, "x", model::LoadSample{7, 0.5}}).ok());
  const auto view = manager_->view();
  EXPECT_EQ(view->Find(kA)->load.sample.waiting_requests_num, 7);
  EXPECT_EQ(view->Find(kA)->load.at, clock_.Now());
}

TEST_F(InstancesManager, AViewThatSomebodyHoldsDoesNotChange) {
  manager_->Put(Record(kA, "x"));
  const auto before = manager_->view();
  EXPECT_TRUE(manager_->Remove({kA}));
  EXPECT_NE(before->Find(kA), nullptr);
  EXPECT_EQ(manager_->view()->Find(kA), nullptr);
  EXPECT_FALSE(manager_->Remove({kA}));
}

TEST_F(InstancesManager, ALostLeaseIsProbedAndTimesOut) {
  manager_->Put(Record(kA, "x"));
  manager_->LeaseLost({kA}, "x");
  EXPECT_EQ(StateOf(kA), State::kActive) << "until the probe has answered";
  ASSERT_TRUE(probe_.Answer(kA, true));
  EXPECT_EQ(StateOf(kA), State::kLeaseLost);
  EXPECT_EQ(announced_, 2);
  clock_.Advance(milliseconds(3000));
  manager_->Tick();
  EXPECT_EQ(StateOf(kA), State::kSuspect);
  EXPECT_EQ(announced_, 3);
  clock_.Advance(milliseconds(15000));
  manager_->Tick();
  EXPECT_EQ(manager_->view()->Find(kA), nullptr);
  EXPECT_EQ(announced_, 4);
}

TEST_F(InstancesManager, TimesComeFromOptions) {
  manager_.emplace(Options{.lease_lost_heartbeat_timeout = milliseconds(100),
                           .detect_disconnected_interval = milliseconds(200)},
                   clock_, probe_);
  manager_->Put(Record(kA, "x"));
  manager_->LeaseLost({kA}, "");
  ASSERT_TRUE(probe_.Answer(kA, true));
  clock_.Advance(milliseconds(100));
  manager_->Tick();
  EXPECT_EQ(StateOf(kA), State::kSuspect);
  clock_.Advance(milliseconds(200));
  manager_->Tick();
  EXPECT_EQ(manager_->view()->Find(kA), nullptr);
}

TEST_F(InstancesManager, AProbeMayAnswerAtOnce) {
  class Prompt final : public HealthProbe {
   public:
    void Probe(const model::InstanceId&, std::function<void(bool)> done) override { done(false); }
  } prompt;
  InstanceManager manager(Options{}, clock_, prompt);
  manager.Put(Record(kA, "x"));
  manager.LeaseLost({kA}, "x");
  EXPECT_EQ(manager.view()->Find(kA)->state, State::kSuspect);
}

TEST_F(InstancesManager, AProbeMayAnswerWhenTheManagerIsGone) {
  manager_->Put(Record(kA, "x"));
  manager_->LeaseLost({kA}, "x");
  ASSERT_EQ(probe_.waiting(), 1u);
  manager_.reset();
  EXPECT_TRUE(probe_.Answer(kA, true));
  EXPECT_EQ(announced_, 1);
}

TEST_F(InstancesManager, RefusesAHeartbeatOfAnotherLife) {
  EXPECT_EQ(manager_->OnHeartbeat({{kA}, "x", {}}).error().code, base::ErrorCode::kConflict);
  manager_->Put(Record(kA, "x"));
  EXPECT_TRUE(manager_->OnHeartbeat({{kA}, "x", {}}).ok());
  EXPECT_EQ(manager_->OnHeartbeat({{kA}, "y", {}}).error().code, base::ErrorCode::kConflict);
}

}  // namespace
}  // namespace xms::instances
