#include "gateway/unreachable_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/manual_clock.h"

namespace xms::gateway {
namespace {

using std::chrono::milliseconds;

class GatewayUnreachableMemory : public ::testing::Test {
 protected:
  GatewayUnreachableMemory() {
    Register("a");
    Register("b");
  }
  static model::InstanceRecord Record(const std::string& name, const std::string& incarnation) {
    model::InstanceRecord record;
    record.id.name = name;
    record.identity.incarnation_id = incarnation;
    return record;
  }
  // By name order, after those that are there; anew under a name that is.
  void Register(const std::string& name, const std::string& incarnation = "i") {
    Remove(name);
    auto instance = std::make_shared<instances::Instance>();
    instance->record = Record(name, incarnation);
    view_.instances.push_back(std::move(instance));
    std::sort(view_.instances.begin(), view_.instances.end(),
              [](const auto& a, const auto& b) { return a->record.id < b->record.id; });
  }
  void Remove(const std::string& name) {
    std::erase_if(view_.instances,
                  [&name](const auto& instance) { return instance->record.id.name == name; });
  }
  bool Pauses(const std::string& instance) {
    std::vector<std::string> paused;
    memory_.Paused(view_, clock_.Now(), paused);
    return std::find(paused.begin(), paused.end(), instance) != paused.end();
  }
  void Fail(const std::string& instance, const std::string& incarnation = "i") {
    memory_.OnUnreachable(Record(instance, incarnation), clock_.Now());
  }
  bool Claim(const std::string& instance) { return memory_.Claim(instance, clock_.Now()); }

  base::testing::ManualClock clock_;
  instances::InstanceView view_;
  UnreachableMemory memory_;
};

TEST_F(GatewayUnreachableMemory, KnowsNothingAtFirst) {
  EXPECT_FALSE(Pauses("a"));
  EXPECT_TRUE(Claim("a"));
  EXPECT_TRUE(Claim("a")) << "nobody has to find out about an instance without failures";
}

TEST_F(GatewayUnreachableMemory, PausesDoubleUpToTheLongest) {
  for (const int seconds : {1, 2, 4, 5, 5}) {
    Fail("a");
    clock_.Advance(milliseconds(seconds * 1000 - 1));
    EXPECT_TRUE(Pauses("a")) << seconds;
    EXPECT_FALSE(Claim("a")) << seconds;
    EXPECT_FALSE(Pauses("b"));
    clock_.Advance(milliseconds(1));
    EXPECT_FALSE(Pauses("a")) << seconds;
    EXPECT_TRUE(Claim("a")) << seconds;
  }
}

TEST_F(GatewayUnreachableMemory, OneRequestFindsOutForAll) {
  Fail("a");
  clock_.Advance(UnreachableMemory::kFirstPause);
  EXPECT_TRUE(Claim("a"));
  EXPECT_FALSE(Claim("a"));
  EXPECT_TRUE(Pauses("a"));
  memory_.OnReached("a");
  EXPECT_FALSE(Pauses("a"));
  EXPECT_TRUE(Claim("a"));
  EXPECT_TRUE(Claim("a"));
}

// Its client may have left before anything was known.
TEST_F(GatewayUnreachableMemory, AClaimThatComesToNothingLapses) {
  Fail("a");
  clock_.Advance(UnreachableMemory::kFirstPause);
  EXPECT_TRUE(Claim("a"));
  clock_.Advance(UnreachableMemory::kLongestPause);
  EXPECT_FALSE(Pauses("a"));
  EXPECT_TRUE(Claim("a"));
}

// Many requests are on their way when an instance goes: they are one failure.
TEST_F(GatewayUnreachableMemory, FailuresDuringAPauseDoNotLengthenIt) {
  for (int i = 0; i < 10; ++i) Fail("a");
  clock_.Advance(UnreachableMemory::kFirstPause);
  EXPECT_FALSE(Pauses("a"));
  EXPECT_TRUE(Claim("a"));
  Fail("a");
  clock_.Advance(2 * UnreachableMemory::kFirstPause);
  EXPECT_FALSE(Pauses("a")) << "the second pause is twice the first";
}

TEST_F(GatewayUnreachableMemory, ForgetsWhatNobodyAsksFor) {
  Fail("a");
  clock_.Advance(UnreachableMemory::kFirstPause + UnreachableMemory::kForgotten);
  EXPECT_FALSE(Pauses("a"));
  Fail("a");
  clock_.Advance(UnreachableMemory::kFirstPause);
  EXPECT_FALSE(Pauses("a")) << "the pause began anew";
}

// What failed was another process.
TEST_F(GatewayUnreachableMemory, AReplacementBeginsWithoutAPause) {
  Fail("a", "old");
  Register("a", "new");
  memory_.OnInstancesChanged(view_);
  EXPECT_FALSE(Pauses("a"));
  Fail("a", "old");  // a request that had set out before
  EXPECT_FALSE(Pauses("a"));
  EXPECT_TRUE(Claim("a"));
  EXPECT_TRUE(Claim("a")) << "nobody has to find out";
  Fail("a", "new");
  EXPECT_TRUE(Pauses("a"));
}

TEST_F(GatewayUnreachableMemory, AProcessThatRegistersAgainBeginsWithoutAPause) {
  Fail("a");
  Fail("b");
  Remove("a");
  memory_.OnInstancesChanged(view_);
  Register("a");
  memory_.OnInstancesChanged(view_);
  EXPECT_FALSE(Pauses("a"));
  EXPECT_TRUE(Pauses("b")) << "a change of another's";
}

TEST_F(GatewayUnreachableMemory, ARefreshDoesNotEndAPause) {
  Fail("a");
  Register("a");
  memory_.OnInstancesChanged(view_);
  EXPECT_TRUE(Pauses("a"));
}

// Without any identity nothing can be told apart.
TEST_F(GatewayUnreachableMemory, AnInstanceWithoutIdentityPausesToo) {
  Register("a", "");
  Fail("a", "");
  memory_.OnInstancesChanged(view_);
  EXPECT_TRUE(Pauses("a"));
}

TEST_F(GatewayUnreachableMemory, RemembersABoundedNumber) {
  for (std::size_t i = 0; i <= UnreachableMemory::kMaxInstances; ++i) {
    Register(std::to_string(i));
    Fail(std::to_string(i));
  }
  EXPECT_TRUE(Pauses(std::to_string(UnreachableMemory::kMaxInstances - 1)));
  EXPECT_FALSE(Pauses(std::to_string(UnreachableMemory::kMaxInstances)));
}

}  // namespace
}  // namespace xms::gateway
