// Faults of the network between a directory and an engine's process: under each of them nothing stale
// from the moment it could be seen, and all of the truth when it has passed.
#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/kv_directory/load_fixture.h"
#include "tests/integration/kv_directory/proxied_fixture.h"
#include "tests/support/process_usage.h"

namespace xms::kv_directory {
namespace {

using std::chrono::milliseconds;
using testing::FaultProxy;
using testing::WaitFor;
using Cut = FaultProxy::Cut;

TEST_F(KVDirectoryFaults, AnEndedOrResetConnectionIsADoubtAtOnce) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  double breaks = 0;
  for (const Cut how : {Cut::kReset, Cut::kClose}) {
    publisher_.Do("hold");
    events_.CutAll(how);
    Change();
    ASSERT_TRUE(WaitFor("the break is seen",
                        [&] { return Total("xms_kv_stream_disconnects_total") == breaks + 1; }));
    ++breaks;
    EXPECT_EQ(HitsOf("a", prompt_), Expectation());
    publisher_.Do("release");
    ASSERT_TRUE(WaitTrue());
    ASSERT_TRUE(WaitFollowing());
  }
  EXPECT_EQ(Recoveries(), 3);
}

TEST_F(KVDirectoryFaults, ABatchCutInMidFrameIsNeverApplied) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  events_.CutAfter(40, Cut::kClose);
  publisher_.Do("store device 3 200");
  Change();
  ASSERT_TRUE(
      WaitFor("the cut is seen", [&] { return Total("xms_kv_stream_disconnects_total") == 1; }));
  // No handshake fits into 40 bytes.
  ASSERT_TRUE(
      WaitNeverStale("more than one attempt to connect", [&] { return events_.accepted() >= 4; }));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  EXPECT_EQ(HitsOf("a", testing::MakePrompt(3, 200)), Expectation());
  events_.CutNoMore();
  ASSERT_TRUE(WaitTrue());
  EXPECT_EQ(HitsOf("a", testing::MakePrompt(3, 200)), Expectation({800, 0}));
  ASSERT_TRUE(WaitFollowing());
}

// The events hang, the snapshots do not: found by the next of these.
TEST_F(KVDirectoryFaults, AHalfOpenEventConnectionIsFoundByTheNextSnapshot) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  events_.Stall(true);
  Change();
  ASSERT_TRUE(WaitFor("the lost tail is found", [&] { return Reconciled("lost_tail") >= 1; }));
  ASSERT_TRUE(WaitTrue());
  publisher_.Do("remove device 1 8 2 1");
  ASSERT_TRUE(WaitFor("the next one too", [&] { return Reconciled("lost_tail") >= 2; }));
  ASSERT_TRUE(WaitTrue());
  events_.Stall(false);
  // What comes late was in a snapshot already.
  publisher_.Do("store device 2 4");
  ASSERT_TRUE(WaitTrue());
  EXPECT_EQ(Total("xms_kv_stream_restarts_total"), 0);
  EXPECT_EQ(Total("xms_kv_stream_gaps_total"), 0);
  ASSERT_TRUE(WaitFollowing());
}

// Nothing comes from anywhere and nothing says so: heartbeats of the connection tell, within ten seconds.
TEST_F(KVDirectoryFaults, AnEngineBehindHalfOpenConnectionsIsNotBelievedForLong) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  events_.Stall(true);
  snapshots_.Stall(true);
  Change();
  ASSERT_TRUE(WaitUnsynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  EXPECT_EQ(Total("xms_kv_stream_disconnects_total"), 1);
  EXPECT_GE(Reconciled("unreachable") + Reconciled("timeout"), 1);
  events_.Stall(false);
  snapshots_.Stall(false);
  ASSERT_TRUE(WaitTrue());
  ASSERT_TRUE(WaitFollowing());
}

TEST_F(KVDirectoryFaults, AFrozenEngineIsNotBelievedForLong) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  publisher_.Freeze();
  ASSERT_TRUE(WaitUnsynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  publisher_.Thaw();
  ASSERT_TRUE(WaitTrue());
  ASSERT_TRUE(WaitFollowing());
}

// Ten bytes are missing, so that what follows is read at the wrong place.
TEST_F(KVDirectoryFaults, BytesLostInMidStreamNeverBecomeBlocks) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  events_.SwallowBytes(10);
  Change();
  ASSERT_TRUE(WaitFor("the doubt", [&] {
    publisher_.Do("heartbeat");
    return HitsOf("a", prompt_) == Expectation() || HitsOf("a", prompt_) == Expectation({16, 0});
  }));
  ASSERT_TRUE(WaitTrue());
  ASSERT_TRUE(WaitFor("live batches arrive again", [&] {
    publisher_.Do("heartbeat");
    const auto status = StatusOf("a");
    return status->synchronized && Total("xms_kv_stream_disconnects_total") >= 1;
  })) << ErrorOf("a");
  ASSERT_TRUE(WaitFollowing());
}

TEST_F(KVDirectoryFaults, EverythingSwallowedIsALostTailThenTheTruth) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  events_.Swallow(true);
  Change();
  ASSERT_TRUE(WaitFor("the lost tail is found", [&] { return Reconciled("lost_tail") >= 1; }));
  ASSERT_TRUE(WaitTrue());
  events_.Swallow(false);
  ASSERT_TRUE(WaitFollowing());
}

TEST_F(KVDirectoryFaults, AMessageLostOnTheWayIsAGap) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  publisher_.Do("hold");
  events_.LoseMessages(1);
  Change();
  ASSERT_TRUE(WaitFor("the gap is seen", [&] { return Total("xms_kv_stream_gaps_total") == 1; }));
  EXPECT_EQ(events_.messages_lost(), 1u);
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  publisher_.Do("release");
  ASSERT_TRUE(WaitTrue());
  ASSERT_TRUE(WaitFollowing());
}

// A number that comes again is what a restarted publisher's looks like (D2), and costs one recovery.
TEST_F(KVDirectoryFaults, AMessageThatComesTwiceIsADoubtAndIsAppliedOnce) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  events_.RepeatMessages(1);
  Change();
  ASSERT_TRUE(WaitNeverStaleAfter([&] { return Total("xms_kv_stream_restarts_total") == 1; }));
  ASSERT_TRUE(WaitTrue());
  ASSERT_TRUE(WaitFollowing());
}

TEST_F(KVDirectoryFaults, MessagesInTheWrongOrderAreAGapAndThenTheTruth) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  events_.SwapMessages();
  Change();
  ASSERT_TRUE(WaitNeverStaleAfter([&] { return Total("xms_kv_stream_gaps_total") >= 1; }));
  ASSERT_TRUE(WaitTrue());
  ASSERT_TRUE(WaitFollowing());
}

// Snapshots run ahead of batches all the time: each is applied, and what comes late is no news.
TEST_F(KVDirectoryFaults, LateBatchesBehindEarlySnapshotsNeverBringBackWhatWent) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  events_.Delay(milliseconds(400));
  for (int round = 0; round < 5; ++round) {
    Change();
    ASSERT_TRUE(
        WaitFor("the removal shows", [&] { return HitsOf("a", prompt_) == Expectation({16, 0}); }));
    ASSERT_TRUE(WaitTrue());
    publisher_.Do("store device 1 8");
    ASSERT_TRUE(WaitFor("the blocks are back",
                        [&] { return HitsOf("a", prompt_) == Expectation({32, 0}); }));
  }
  EXPECT_EQ(Recoveries(), 1) << "nothing was doubted";
  EXPECT_EQ(Total("xms_kv_stream_restarts_total"), 0);
  events_.Delay(milliseconds(0));
  ASSERT_TRUE(WaitFollowing());
}

TEST_F(KVDirectoryFaults, SnapshotsThatComeTooLateAreNotBelieved) {
  publisher_.Do("store device 1 8");
  snapshots_.Delay(milliseconds(700));  // replay_timeout is 500
  StartUnsynchronized();
  ASSERT_TRUE(WaitError("a", "within replay_timeout_ms 500"));
  Change();
  ASSERT_TRUE(WaitNeverStale("three attempts", [&] { return publisher_.Do("requests") >= 3; }));
  EXPECT_FALSE(StatusOf("a")->synchronized);
  snapshots_.Delay(milliseconds(0));
  ASSERT_TRUE(WaitTrue());
  ASSERT_TRUE(WaitFollowing());
}

// D7: a reconciliation that comes to nothing is counted, and the stream stays as it is.
TEST_F(KVDirectoryFaults, SlowSnapshotsCostNoCreditThatIsProvenOtherwise) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  snapshots_.Delay(milliseconds(700));
  ASSERT_TRUE(WaitNeverStale("two that came too late", [&] { return Reconciled("timeout") >= 2; }));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
  Change();
  ASSERT_TRUE(
      WaitFor("live batches go on", [&] { return HitsOf("a", prompt_) == Expectation({16, 0}); }));
  ASSERT_TRUE(WaitTrue());
  EXPECT_EQ(Recoveries(), 1);
}

TEST_F(KVDirectoryFaults, AThrottledSnapshotTimesOutWholeAndIsNeverHalfBelieved) {
  publisher_.Do("store device 3 1000");  // some 30 kB
  publisher_.Do("store device 1 8");
  snapshots_.Throttle(10'000);
  StartUnsynchronized();
  ASSERT_TRUE(WaitError("a", "within replay_timeout_ms 500"));
  EXPECT_EQ(HitsOf("a", testing::MakePrompt(3, 1000)), Expectation());
  EXPECT_GT(snapshots_.bytes_down(), 1000u) << "some of it did arrive";
  snapshots_.Throttle(0);
  ASSERT_TRUE(WaitTrue());
  EXPECT_EQ(HitsOf("a", testing::MakePrompt(3, 1000)), Expectation({4000, 0}));
}

TEST_F(KVDirectoryFaults, ThrottledEventsAreLateAndNeverStaleForLong) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  events_.Throttle(2000);
  publisher_.Do("store device 3 200");  // some seconds of it
  Change();
  ASSERT_TRUE(WaitFor("a snapshot shows the removal",
                      [&] { return HitsOf("a", prompt_) == Expectation({16, 0}); }));
  ASSERT_TRUE(WaitTrue());
  events_.Throttle(0);
  ASSERT_TRUE(WaitFollowing());
}

TEST_F(KVDirectoryFaults, ASnapshotCutInMidFrameIsAskedForAgain) {
  publisher_.Do("store device 3 1000");
  publisher_.Do("store device 1 8");
  snapshots_.CutAfter(5000, Cut::kReset);
  StartUnsynchronized();
  ASSERT_TRUE(WaitError("a", "broke before the snapshot was whole"));
  Change();
  ASSERT_TRUE(WaitNeverStale("three attempts", [&] { return publisher_.Do("requests") >= 3; }));
  EXPECT_FALSE(StatusOf("a")->synchronized);
  snapshots_.CutNoMore();
  ASSERT_TRUE(WaitTrue());
  ASSERT_TRUE(WaitFollowing());
}

// Attempts that nobody waits for any more are served after the one that counts.
TEST_F(KVDirectoryFaults, ConnectionsThatAreServedLateAndInTheWrongOrderDoNoHarm) {
  publisher_.Do("store device 1 8");
  snapshots_.HoldNew(true);
  StartUnsynchronized();
  ASSERT_TRUE(WaitNeverStale("four exchanges wait", [&] { return snapshots_.held() >= 4; }));
  Change();
  snapshots_.HoldNew(false);
  ASSERT_TRUE(WaitTrue());
  events_.HoldNew(true);
  events_.CutAll(Cut::kReset);
  Change();
  ASSERT_TRUE(WaitNeverStale("two subscriptions wait", [&] { return events_.held() >= 2; }));
  EXPECT_FALSE(StatusOf("a")->synchronized);
  events_.HoldNew(false);
  ASSERT_TRUE(WaitTrue());
  ASSERT_TRUE(WaitFollowing());
}

TEST_F(KVDirectoryFaults, AKilledProcessLeavesNothingToItsSuccessor) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  publisher_.Kill();
  ASSERT_TRUE(WaitUnsynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  publisher_.Start();
  publisher_.Do("store device 2 4");
  ASSERT_TRUE(WaitTrue());
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  ASSERT_TRUE(WaitFollowing());
}

// No thread waits for a peer that does not answer.
TEST_F(KVDirectoryFaults, StoppingDoesNotWaitForPeersThatHang) {
  ASSERT_NO_FATAL_FAILURE(StartSynchronized());
  const std::size_t threads = testing::Threads();
  events_.Stall(true);
  snapshots_.Stall(true);
  events_.HoldNew(true);
  ASSERT_TRUE(WaitFor("a reconciliation hangs",
                      [&] { return Reconciled("unreachable") + Reconciled("timeout") >= 1; }));
  auto stopped = std::async(std::launch::async, [&] { directory_->Stop(); });
  // libzmq's heartbeats would end the connections after eight seconds.
  EXPECT_EQ(stopped.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  stopped.get();
  EXPECT_TRUE(WaitFor("all threads of the directory are gone",
                      [&] { return testing::Threads() <= threads - 5; }))
      << testing::Threads() << " threads, " << threads << " while it ran";
}

class KVDirectoryReconnects : public KVDirectoryFaults {
 protected:
  static constexpr std::size_t kStreams = 40;

  // One proxy before each rank's events.
  DirectoryConfig BehindProxies(const LoadProcess& load) {
    std::vector<StreamSpec> specs = load.Specs();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      proxies_.push_back(std::make_unique<FaultProxy>(load.event_port(i)));
      specs[i].endpoint = proxies_.back()->endpoint();
    }
    DirectoryConfig config = ConfigOf(std::move(specs));
    config.limits.replay_timeout = std::chrono::seconds(5);
    return config;
  }
  ::testing::AssertionResult WaitSettledAfter(double disconnects) {
    auto result = WaitFor(
        "all streams have noticed and recovered",
        [&] {
          return Total("xms_kv_stream_disconnects_total") >= disconnects && directory_->Settled();
        },
        std::chrono::seconds(60));
    return result;
  }

  std::vector<std::unique_ptr<FaultProxy>> proxies_;
};

TEST_F(KVDirectoryReconnects, TwoHundredLeakNeitherDescriptorsNorThreadsNorMemory) {
  LoadProcess load(
      {.streams = kStreams, .chains = 32, .chain = 16, .block_size = 4, .batches_a_second = 20});
  StartWith(BehindProxies(load));
  ASSERT_TRUE(WaitSettledAfter(0));
  double breaks = 0;
  const auto reconnect_all = [&](Cut how) {
    for (const auto& proxy : proxies_) proxy->CutAll(how);
    breaks += kStreams;
    return WaitSettledAfter(breaks);
  };
  ASSERT_TRUE(reconnect_all(Cut::kReset));
  const std::size_t files = testing::OpenFiles();
  const std::size_t threads = testing::Threads();
  const std::size_t bytes = testing::AllocatedBytes();
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(reconnect_all(round % 2 == 0 ? Cut::kReset : Cut::kClose)) << "round " << round;
  }
  EXPECT_EQ(Total("xms_kv_stream_disconnects_total"), 6 * kStreams);
  EXPECT_EQ(testing::Threads(), threads);
  // Sockets of ended links are closed by libzmq in its own time.
  EXPECT_TRUE(WaitFor("closed sockets are gone", [&] { return testing::OpenFiles() <= files; }))
      << testing::OpenFiles() << " open files, " << files << " before";
  constexpr std::size_t kAllowed = 16 << 20;
  EXPECT_LT(testing::AllocatedBytes(), bytes + kAllowed) << bytes << " before";
  // And everything is still the truth: the oldest chain that is held is known, the one before is not.
  load.SetRate(0);
  for (std::size_t i = 0; i < kStreams; ++i) {
    const LoadProcess::Held held = load.HeldBy(i);
    const std::string name = LoadProcess::NameOf(i);
    ASSERT_TRUE(WaitFor(name + " has caught up", [&] {
      const auto status = StatusOf(name);
      return status && status->synchronized && status->sequence.value == held.last_sequence;
    })) << ErrorOf(name);
    EXPECT_EQ(HitsOf(name, load.Prompt(i, held.first)), Expectation({64, 0}));
    EXPECT_EQ(HitsOf(name, load.Prompt(i, held.first + held.count - 1)), Expectation({64, 0}));
    if (held.first > 0) {
      EXPECT_EQ(HitsOf(name, load.Prompt(i, held.first - 1)), Expectation());
    }
    EXPECT_EQ(StatusOf(name)->device_blocks, held.count * 16);
  }
}

}  // namespace
}  // namespace xms::kv_directory
