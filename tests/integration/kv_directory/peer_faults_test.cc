// The faults under which peers that route by exact events were measured to believe what is gone or to
// lose for good what is held: here neither may happen. What the public cases cover is not repeated.
#include <memory>
#include <string>

#include "tests/integration/kv_directory/directory_fixture.h"

namespace xms::kv_directory {
namespace {

using std::chrono::milliseconds;
using testing::KvPublisher;
using testing::MakePrompt;
using testing::WaitFor;

class KVDirectoryPeerFaults : public KVDirectory {
 protected:
  void StartSynchronized(milliseconds resync = milliseconds(30'000)) {
    publisher_.Store(Tier::kDevice, prompt_);
    DirectoryConfig config = ConfigOf({SpecOf(publisher_, "a")});
    config.limits.resync_interval = resync;
    StartWith(config);
    ASSERT_TRUE(WaitSynchronized("a"));
    ASSERT_TRUE(publisher_.WaitForSubscriptions(1));
    publisher_.Heartbeat();
    ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
    ASSERT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
  }
  KvPublisher publisher_;
};

TEST_F(KVDirectoryPeerFaults, ARemovalLostInAGapWhileSnapshotsAreSilent) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  publisher_.SetAnswering(false);
  publisher_.LoseNext(1);
  publisher_.Publish(publisher_.NewBatch().Remove(Tier::kDevice, prompt_, 2));
  publisher_.Heartbeat();
  ASSERT_TRUE(WaitUnsynchronized("a"));
  const std::size_t asked = publisher_.snapshot_requests();
  ASSERT_TRUE(publisher_.WaitForSnapshotRequests(asked + 3)) << "it does not hang";
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  EXPECT_THAT(ErrorOf("a"), ::testing::HasSubstr("replay_timeout_ms"));
  publisher_.SetAnswering(true);
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({8, 0}));
}

TEST_F(KVDirectoryPeerFaults, AHarmlessMessageLostCostsOneRecoveryAndNoMore) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  publisher_.LoseNext(1);
  publisher_.Heartbeat();
  publisher_.Heartbeat();
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
}

// The process is another, holds nothing and says nothing; its connections ended.
TEST_F(KVDirectoryPeerFaults, ARestartOnNewConnectionsThatStaysQuiet) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  publisher_.Restart();
  ASSERT_TRUE(WaitFor("the credit goes", [&] { return HitsOf("a", prompt_) == Expectation(); }));
  ASSERT_TRUE(WaitSynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
}

// No connection ends and no live batch comes: only snapshots say that it is another, and what it holds.
TEST_F(KVDirectoryPeerFaults, ARestartInPlaceThatStaysQuiet) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized(milliseconds(200)));
  const std::uint64_t last = publisher_.last_sequence();
  publisher_.RestartInPlace();
  publisher_.LoseNext(1);
  publisher_.Store(Tier::kDevice, MakePrompt(2, 2));
  ASSERT_LT(publisher_.last_sequence(), last) << "the new life has said less than the old one";
  ASSERT_TRUE(WaitFor("the credit goes", [&] { return HitsOf("a", prompt_) == Expectation(); }));
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  EXPECT_EQ(HitsOf("a", MakePrompt(2, 2)), Expectation({8, 0}));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  EXPECT_EQ(StatusOf("a")->device_blocks, 2u);
  EXPECT_TRUE(publisher_.WaitForSubscriptions(1)) << "and the next batch is heard";
  publisher_.Store(Tier::kDevice, MakePrompt(3, 1));
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  EXPECT_EQ(HitsOf("a", MakePrompt(3, 1)), Expectation({4, 0}));
}

TEST_F(KVDirectoryPeerFaults, ARestartWhoseFirstNumberEqualsTheOldLast) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  const std::uint64_t last = publisher_.last_sequence();
  publisher_.HoldSnapshots();
  publisher_.RestartInPlace();
  publisher_.SetNextSequence(last);
  publisher_.Store(Tier::kDevice, MakePrompt(2, 2));
  ASSERT_TRUE(WaitUnsynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  publisher_.ReleaseSnapshots();
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  EXPECT_EQ(HitsOf("a", MakePrompt(2, 2)), Expectation({8, 0}));
}

// Neither identity nor connection nor number tells, so the next snapshot must.
TEST_F(KVDirectoryPeerFaults, ANumberThatContinuesByChanceOnAnotherEngine) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized(milliseconds(200)));
  const std::uint64_t next = publisher_.last_sequence() + 1;
  publisher_.RestartInPlace();
  publisher_.SetNextSequence(next);
  publisher_.Store(Tier::kDevice, MakePrompt(2, 2));
  ASSERT_TRUE(WaitFor("what the old one held is gone",
                      [&] { return HitsOf("a", prompt_) == Expectation(); }));
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  EXPECT_EQ(HitsOf("a", MakePrompt(2, 2)), Expectation({8, 0}));
  EXPECT_EQ(StatusOf("a")->device_blocks, 2u);
}

TEST_F(KVDirectoryPeerFaults, ARemovalThatArrivesAsGarbage) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  publisher_.HoldSnapshots();
  publisher_.LoseNext(1);
  publisher_.Publish(publisher_.NewBatch().Remove(Tier::kDevice, prompt_, 1));
  publisher_.SetNextSequence(publisher_.last_sequence());
  publisher_.SendPayload("\x93\xcb\xff\xff\x91\x80");
  ASSERT_TRUE(WaitUnsynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  publisher_.ReleaseSnapshots();
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({4, 0}));
}

TEST_F(KVDirectoryPeerFaults, AHoleInTheMiddleThatIsFilledAgain) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  publisher_.Publish(publisher_.NewBatch().Remove(Tier::kDevice, prompt_, 3, 1));
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({12, 0}));
  publisher_.Publish(publisher_.NewBatch().Store(Tier::kDevice, prompt_, 3, 1));
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
  // The same over a recovery in between: the rest of the chain hangs below a hole in the snapshot.
  publisher_.Publish(publisher_.NewBatch().Remove(Tier::kDevice, prompt_, 3, 1));
  publisher_.LoseNext(1);
  publisher_.Heartbeat();
  publisher_.Heartbeat();
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({12, 0}));
  publisher_.Publish(publisher_.NewBatch().Store(Tier::kDevice, prompt_, 3, 1));
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  EXPECT_EQ(HitsOf("a", prompt_).device_tokens, 16u) << "what hangs below it follows, see next";
}

// B5: what hung below the hole becomes credit again at the next snapshot at the latest.
TEST_F(KVDirectoryPeerFaults, OrphansWhoseParentReturnsAreCreditedWithTheNextSnapshot) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized(milliseconds(200)));
  publisher_.Publish(publisher_.NewBatch().Remove(Tier::kDevice, prompt_, 3, 1));
  publisher_.LoseNext(1);
  publisher_.Heartbeat();
  publisher_.Heartbeat();
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  publisher_.Publish(publisher_.NewBatch().Store(Tier::kDevice, prompt_, 3, 1));
  ASSERT_TRUE(WaitFor("the whole chain is credited",
                      [&] { return HitsOf("a", prompt_) == Expectation({32, 0}); }));
}

TEST_F(KVDirectoryPeerFaults, TheServiceStartsAnewWhileEnginesAreQuiet) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  directory_.reset();
  index_.reset();
  StartWith(publisher_);
  ASSERT_TRUE(WaitSynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
}

TEST_F(KVDirectoryPeerFaults, ALostTailWithNothingBehindIt) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized(milliseconds(200)));
  publisher_.LoseNext(1);
  publisher_.Remove(Tier::kDevice, prompt_);
  ASSERT_TRUE(WaitFor("the credit goes", [&] { return HitsOf("a", prompt_) == Expectation(); }));
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
}

TEST_F(KVDirectoryPeerFaults, AnotherEngineAtTheAddress) {
  KvPublisher::Options options;
  auto first = std::make_unique<KvPublisher>(options);
  options.event_port = first->event_port();
  options.replay_port = first->replay_port();
  first->Store(Tier::kDevice, prompt_);
  StartWith(*first);
  ASSERT_TRUE(WaitCaughtUp(*first, "a"));
  first.reset();
  KvPublisher second(options);
  second.Store(Tier::kDevice, MakePrompt(2, 2));  // the number that the first one used last
  ASSERT_TRUE(WaitFor("only what the second holds", [&] {
    return HitsOf("a", prompt_) == Expectation() &&
           HitsOf("a", MakePrompt(2, 2)) == Expectation({8, 0});
  }));
  EXPECT_EQ(StatusOf("a")->device_blocks, 2u);
}

// The copy arrives on Host without tokens, then the original leaves the device.
TEST_F(KVDirectoryPeerFaults, AHostCopyAnnouncedWithoutTokens) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  publisher_.Publish(publisher_.NewBatch().Replicate(Tier::kHost, prompt_));
  publisher_.Publish(publisher_.NewBatch().Remove(Tier::kDevice, prompt_));
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({0, 32}));
  // And in the other order: a mapping outlives its residency (C2).
  const Tokens other = MakePrompt(2, 4);
  publisher_.Store(Tier::kDevice, other);
  publisher_.Remove(Tier::kDevice, other);
  publisher_.Publish(publisher_.NewBatch().Replicate(Tier::kHost, other));
  ASSERT_TRUE(WaitCaughtUp(publisher_, "a"));
  EXPECT_EQ(HitsOf("a", other), Expectation({0, 16}));
}

}  // namespace
}  // namespace xms::kv_directory
