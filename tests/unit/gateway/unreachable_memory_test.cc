#include "gateway/unreachable_memory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/testing/manual_clock.h"

namespace xms::gateway {
namespace {

using std::chrono::milliseconds;

class GatewayUnreachableMemory : public ::testing::Test {
 protected:
  bool Pauses(const std::string& instance) {
    std::vector<std::string> paused;
    memory_.Paused(clock_.Now(), paused);
    return std::find(paused.begin(), paused.end(), instance) != paused.end();
  }
  void Fail(const std::string& instance) { memory_.OnUnreachable(instance, clock_.Now()); }
  bool Claim(const std::string& instance) { return memory_.Claim(instance, clock_.Now()); }

  base::testing::ManualClock clock_;
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

TEST_F(GatewayUnreachableMemory, RemembersABoundedNumber) {
  for (std::size_t i = 0; i <= UnreachableMemory::kMaxInstances; ++i) Fail(std::to_string(i));
  EXPECT_TRUE(Pauses(std::to_string(UnreachableMemory::kMaxInstances - 1)));
  EXPECT_FALSE(Pauses(std::to_string(UnreachableMemory::kMaxInstances)));
}

}  // namespace
}  // namespace xms::gateway
