// Faults over real TCP: credit goes at once, and comes back with the truth.
#include <string>
#include <vector>

#include "tests/integration/kv_directory/directory_fixture.h"
#include "tests/support/process_usage.h"

namespace xms::kv_directory {
namespace {

using std::chrono::milliseconds;
using testing::BigEndian64;
using testing::Frames;
using testing::KvPublisher;
using testing::MakePrompt;
using testing::OpenFiles;
using testing::WaitFor;

TEST_F(KVDirectory, SkippedSequenceIsAGapAndIsRecovered) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  publisher.Heartbeat();
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  publisher.HoldSnapshots();
  publisher.LoseNext(1);
  publisher.Publish(publisher.NewBatch().Remove(Tier::kDevice, prompt_, 4));
  publisher.Store(Tier::kDevice, MakePrompt(2, 2));
  ASSERT_TRUE(WaitUnsynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  EXPECT_EQ(ErrorOf("a"), "batch 3 never came, 4 did");
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({16, 0}));
  EXPECT_EQ(HitsOf("a", MakePrompt(2, 2)), Expectation({8, 0}));
  EXPECT_EQ(StreamMetric("xms_kv_stream_gaps_total", "a"), 1);
}

// B3
TEST_F(KVDirectory, GarbageCostsThatStreamItsCreditUntilASnapshot) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  const std::vector<Frames> garbage = {
      {"xllm-kv", BigEndian64(2), "\x93\xc1"},
      {"xllm-kv", "2", ""},
      {"xllm-kv"},
      {"xllm-kv", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", ""},
  };
  for (const Frames& frames : garbage) {
    publisher.HoldSnapshots();
    publisher.SendFrames(frames);
    ASSERT_TRUE(WaitUnsynchronized("a"));
    EXPECT_EQ(HitsOf("a", prompt_), Expectation());
    publisher.SetNextSequence(publisher.last_sequence() + 2);  // the garbage took a number
    publisher.ReleaseSnapshots();
    ASSERT_TRUE(WaitSynchronized("a"));
    EXPECT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
  }
}

TEST_F(KVDirectory, OtherTopicsOnTheSameSocketAreNoBusinessOfOurs) {
  KvPublisher publisher;
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  publisher.SendFrames({"xllm-kv2", BigEndian64(900), "garbage"});
  publisher.Store(Tier::kDevice, prompt_);
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
  EXPECT_EQ(StreamMetric("xms_kv_stream_foreign_topics_total", "a"), 1);
}

TEST_F(KVDirectory, DisconnectTakesTheCreditAndReconnectBringsItBack) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  publisher.Disconnect();
  ASSERT_TRUE(WaitUnsynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  ASSERT_TRUE(WaitError("a", "no publisher answered at " + publisher.endpoint()));
  EXPECT_EQ(ErrorOf("a").find("the connection to " + publisher.endpoint() + " broke; now: "), 0u)
      << ErrorOf("a");
  publisher.Reconnect();
  ASSERT_TRUE(WaitSynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
}

// E5
// C01 (b): the new process counts from the start again, and nothing tells it apart but its socket.
TEST_F(KVDirectory, NewProcessOnTheOldAddressHasNoCreditBeforeItsOwnSnapshot) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  publisher.HoldSnapshots();
  publisher.Restart();
  // The number that the old life would have used next.
  publisher.SetNextSequence(2);
  ASSERT_TRUE(publisher.WaitForSnapshotRequests(2));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  publisher.Store(Tier::kDevice, MakePrompt(2, 2));
  EXPECT_FALSE(StatusOf("a")->synchronized);
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  EXPECT_EQ(HitsOf("a", MakePrompt(2, 2)), Expectation({8, 0}));
}

TEST_F(KVDirectory, RestartOnTheSameConnectionIsSeenByItsSequence) {
  KvPublisher publisher;
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  publisher.Store(Tier::kDevice, prompt_);
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  publisher.HoldSnapshots();
  publisher.RestartInPlace();
  publisher.Store(Tier::kDevice, MakePrompt(2, 2));
  ASSERT_TRUE(WaitError("a", "went back from sequence 1 to 1; it must have been restarted"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitSynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  EXPECT_EQ(HitsOf("a", MakePrompt(2, 2)), Expectation({8, 0}));
}

TEST_F(KVDirectory, CutAndSilentSnapshotsAreAskedForAgainAndChangeNothing) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  publisher.SetTerminating(false);
  DirectoryConfig config = ConfigOf({SpecOf(publisher, "a")});
  config.limits.replay_timeout = milliseconds(100);
  StartWith(config);
  ASSERT_TRUE(publisher.WaitForSnapshotRequests(3));
  EXPECT_EQ(ErrorOf("a"), "no whole snapshot came from " + publisher.replay_endpoint() +
                              " within replay_timeout_ms 100; raise it if the engine needs longer "
                              "to make one");
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  publisher.SetAnswering(false);
  ASSERT_TRUE(publisher.WaitForSnapshotRequests(4));
  publisher.SetTerminating(true);
  publisher.SetAnswering(true);
  ASSERT_TRUE(WaitSynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
}

// D3
TEST_F(KVDirectory, LateAnswerOfAnOldExchangeIsNotTakenForTheNewOne) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  publisher.HoldSnapshots();
  DirectoryConfig config = ConfigOf({SpecOf(publisher, "a")});
  config.limits.replay_timeout = milliseconds(50);
  StartWith(config);
  ASSERT_TRUE(publisher.WaitForSnapshotRequests(4));
  publisher.Publish(publisher.NewBatch().Clear());
  publisher.ReleaseSnapshots();  // answers to dead exchanges too
  ASSERT_TRUE(WaitSynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
}

// C7: one stream over the limit, others keep their credit.
TEST_F(KVDirectory, TooManyBlocksCostOnlyThatStreamItsCredit) {
  KvPublisher small;
  KvPublisher large;
  small.Store(Tier::kDevice, prompt_);
  large.Store(Tier::kDevice, MakePrompt(7, 30));
  DirectoryConfig config = ConfigOf({SpecOf(small, "small"), SpecOf(large, "large")});
  config.limits.max_blocks_per_stream = 20;
  StartWith(config);
  ASSERT_TRUE(WaitSynchronized("small"));
  ASSERT_TRUE(WaitError("large", "more than max_blocks_per_stream 20 blocks published"));
  EXPECT_EQ(HitsOf("small", prompt_), Expectation({32, 0}));
  large.Remove(Tier::kDevice, MakePrompt(7, 30));
  large.Store(Tier::kDevice, MakePrompt(8, 20));
  ASSERT_TRUE(WaitSynchronized("large"));
  EXPECT_EQ(HitsOf("large", MakePrompt(8, 20)), Expectation({80, 0}));
}

// D8
TEST_F(KVDirectory, MessagesOverTheLimitAreNamedWithTheSettingToRaise) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  DirectoryConfig config = ConfigOf({SpecOf(publisher, "a")});
  config.limits.max_message_bytes = 2048;
  StartWith(config);
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  publisher.HoldSnapshots();
  publisher.SendPayload(std::string(3000, 'x'));
  ASSERT_TRUE(WaitUnsynchronized("a"));
  EXPECT_EQ(ErrorOf("a"),
            "batch of 3015 bytes is over max_message_bytes 2048; raise it to at least 3100");
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitSynchronized("a"));
  publisher.HoldSnapshots();
  publisher.SendPayload(std::string(4097, 'x'));
  ASSERT_TRUE(WaitError("a", "ended on a message over 4096 bytes, size unknown"));
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitSynchronized("a")) << "the sockets have been opened anew";
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
}

TEST_F(KVDirectory, SnapshotOverTheLimitIsNamedWithTheSettingToRaise) {
  KvPublisher publisher;
  publisher.AnswerWith({{"", BigEndian64(0), std::string(3000, 'x')}}, 1);
  DirectoryConfig config = ConfigOf({SpecOf(publisher, "a")});
  config.limits.max_message_bytes = 2048;
  publisher.HoldSnapshots();
  StartWith(config);
  ASSERT_TRUE(publisher.WaitForSnapshotRequests(1));
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitError("a", "snapshot of 3008 bytes is over max_message_bytes 2048"));
  publisher.AnswerWith({{"", BigEndian64(0), std::string(5000, 'x')}});
  ASSERT_TRUE(WaitError("a", "; now: the connection to " + publisher.replay_endpoint() +
                                 " ended on a snapshot over 4096 bytes, size unknown"));
  publisher.AnswerProperly();
  ASSERT_TRUE(WaitSynchronized("a"));
}

// D7
TEST_F(KVDirectory, LostTailIsFoundByReconciliation) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  DirectoryConfig config = ConfigOf({SpecOf(publisher, "a")});
  config.limits.resync_interval = milliseconds(100);
  StartWith(config);
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  publisher.Heartbeat();
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  publisher.LoseNext(1);
  publisher.Publish(publisher.NewBatch().Remove(Tier::kDevice, prompt_, 2));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({8, 0}));
  EXPECT_EQ(StreamMetric("xms_kv_stream_reconciliations_total", "a", {"outcome", "lost_tail"}), 1);
  EXPECT_EQ(StreamMetric("xms_kv_stream_gaps_total", "a"), 0);
}

// C02: emptied, idle, and nothing said.
TEST_F(KVDirectory, SilentlyEmptiedCacheIsFoundByReconciliation) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  DirectoryConfig config = ConfigOf({SpecOf(publisher, "a")});
  config.limits.resync_interval = milliseconds(100);
  StartWith(config);
  ASSERT_TRUE(WaitSynchronized("a"));
  publisher.ForgetSilently();
  ASSERT_TRUE(WaitFor("the credit goes", [&] { return HitsOf("a", prompt_) == Expectation(); }));
  ASSERT_TRUE(WaitSynchronized("a"));
}

TEST_F(KVDirectory, WrongTopicIsFoundByTheWatermark) {
  KvPublisher publisher(KvPublisher::Options{.topic = "xllm-kv2"});
  publisher.Store(Tier::kDevice, prompt_);
  DirectoryConfig config = ConfigOf({SpecOf(publisher, "a")});
  config.limits.resync_interval = milliseconds(100);
  StartWith(config);
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(WaitFor("the subscription is condemned", [&] {
    publisher.Heartbeat();
    return ErrorOf("a").find("topic xllm-kv never seen, xllm-kv2 seen ") != std::string::npos;
  })) << ErrorOf("a");
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
}

// C15: names that do not even begin with ours are told too, for as long as ours has not been seen.
TEST_F(KVDirectory, TopicOfAnyOtherNameIsToldUntilOursIsSeen) {
  KvPublisher publisher(KvPublisher::Options{.topic = "kv@pod@model"});
  publisher.Store(Tier::kDevice, prompt_);
  DirectoryConfig config = ConfigOf({SpecOf(publisher, "a")});
  config.limits.resync_interval = milliseconds(100);
  StartWith(config);
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  ASSERT_TRUE(WaitFor("the other topic is named", [&] {
    publisher.Heartbeat();
    return ErrorOf("a").find(", topic xllm-kv never seen, kv@pod@model seen ") != std::string::npos;
  })) << ErrorOf("a");
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  // One message of the right topic acquits the subscription, and ends the listening to all others.
  publisher.SendFrames({"xllm-kv", BigEndian64(publisher.last_sequence()), "\x92\x01\x90"});
  ASSERT_TRUE(WaitSynchronized("a"));
  const double foreign = StreamMetric("xms_kv_stream_foreign_topics_total", "a");
  publisher.SendFrames({"kv@pod@model", BigEndian64(7), ""});
  publisher.SendFrames({"xllm-kv2", BigEndian64(8), ""});
  ASSERT_TRUE(WaitFor("the last one is counted", [&] {
    return StreamMetric("xms_kv_stream_foreign_topics_total", "a") > foreign;
  }));
  EXPECT_EQ(StreamMetric("xms_kv_stream_foreign_topics_total", "a"), foreign + 1);
}

TEST_F(KVDirectory, SwappedEndpointsAreNamed) {
  KvPublisher publisher;
  StreamSpec swapped = SpecOf(publisher, "a");
  std::swap(swapped.endpoint, swapped.replay_endpoint);
  StreamSpec twice = SpecOf(publisher, "b");
  twice.replay_endpoint = twice.endpoint;
  StartWith(ConfigOf({swapped, twice}));
  EXPECT_TRUE(WaitError("a", "is no event publisher; check that it is not the snapshot endpoint"));
  EXPECT_TRUE(WaitError("b", "hands out no snapshots; check that it is not the event endpoint"));
}

TEST_F(KVDirectory, MissingSnapshotEndpointIsNamed) {
  KvPublisher publisher;
  StreamSpec spec = SpecOf(publisher, "a");
  spec.replay_endpoint = "tcp://127.0.0.1:1";
  StartWith(ConfigOf({spec}));
  EXPECT_TRUE(WaitError("a", "but nobody answers at tcp://127.0.0.1:1; check the engine's replay"));
}

TEST_F(KVDirectory, ReconnectsLeakNoSockets) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  const auto restart = [&] {
    publisher.Restart();
    publisher.Store(Tier::kDevice, prompt_);
    ASSERT_TRUE(publisher.WaitForSubscriptions(1));
    ASSERT_TRUE(WaitSynchronized("a"));
  };
  restart();
  const std::size_t before = OpenFiles();
  for (int i = 0; i < 5; ++i) restart();
  EXPECT_EQ(StreamMetric("xms_kv_stream_disconnects_total", "a"), 6);
  // The monitor's and the exchange's sockets are closed by libzmq in its own time.
  ASSERT_TRUE(WaitFor("closed sockets are gone", [&] { return OpenFiles() <= before; }))
      << OpenFiles() << " open files, " << before << " before";
}

}  // namespace
}  // namespace xms::kv_directory
