// Static streams over real TCP: what an engine says is what readers see.

#include <string>
#include <vector>

#include "tests/integration/kv_directory/directory_fixture.h"

namespace xms::kv_directory {
namespace {

using std::chrono::milliseconds;
using testing::KvPublisher;
using testing::MakePrompt;
using testing::WaitFor;

// H4
TEST_F(KVDirectory, StreamBeginsWithASnapshotAndFollowsLiveBatches) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
  EXPECT_EQ(StatusOf("a")->sequence.value, 1u);
  EXPECT_EQ(StatusOf("a")->device_blocks, 8u);
  EXPECT_EQ(StatusOf("a")->error, "");

  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  const Tokens other = MakePrompt(2, 3);
  publisher.Store(Tier::kDevice, other);
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", other), Expectation({12, 0}));
  EXPECT_EQ(StreamMetric("xms_kv_stream_gaps_total", "a"), 0);
  EXPECT_TRUE(directory_->Settled());
}

TEST_F(KVDirectory, MetricsShowBlocksAndTheTimeWithoutCreditWhileItLasts) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  publisher.Store(Tier::kHost, MakePrompt(2, 3));
  publisher.HoldSnapshots();
  StartWith(publisher);
  const auto outage = [&] {
    return StreamMetric("xms_kv_stream_unsynchronized_seconds_total", "a");
  };
  ASSERT_TRUE(WaitFor("the time is shown", [&] { return outage() > 0; }));
  const double before = outage();
  ASSERT_TRUE(WaitFor("it moves while it lasts", [&] { return outage() > before; }));
  EXPECT_EQ(StreamMetric("xms_kv_stream_synchronized", "a"), 0);
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitFor("the thread has seen it", [&] {
    return StreamMetric("xms_kv_stream_synchronized", "a") == 1 &&
           Metric("xms_kv_streams_synchronized") == 1;
  }));
  const double total = outage();
  EXPECT_EQ(StreamMetric("xms_kv_stream_blocks", "a", {"tier", "device"}), 8);
  EXPECT_EQ(StreamMetric("xms_kv_stream_blocks", "a", {"tier", "host"}), 3);
  EXPECT_EQ(StreamMetric("xms_kv_stream_opaque_blocks", "a"), 0);
  EXPECT_EQ(StreamMetric("xms_kv_stream_recoveries_total", "a", {"outcome", "completed"}), 1);
  EXPECT_EQ(outage(), total) << "and stands still afterwards";
}

// H2: each replica recovers for itself, and their digests say that they agree. One has seen every
// event live, one came late and knows them from a snapshot; tiers, removals and blocks without credit
// included.
TEST_F(KVDirectory, ReplicasOfTheSameEventsHaveEqualDigests) {
  KvPublisher publisher;
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  publisher.Store(Tier::kDevice, prompt_);
  publisher.Store(Tier::kHost, MakePrompt(2, 3));
  publisher.Publish(publisher.NewBatch().Remove(Tier::kDevice, prompt_, 6));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  const auto early = StatusOf("a");
  EXPECT_NE(early->digest, 0u);

  kv_index::KvIndex late_index{kv_index::Options{.salt = 99}};
  observability::MetricRegistry late_metrics;
  Directory late(ConfigOf({SpecOf(publisher, "other name")}), late_index, clock_, nullptr,
                 late_metrics);
  late.Start();
  ASSERT_TRUE(WaitFor("the late one is synchronized", [&] { return late.Settled(); }));
  kv_index::StreamStatus status = late_index.Streams().at(0);
  EXPECT_EQ(status.sequence, early->sequence);
  EXPECT_EQ(status.digest, early->digest);

  publisher.Store(Tier::kDevice, MakePrompt(3, 1));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  ASSERT_TRUE(WaitFor("so has the late one", [&] {
    status = late_index.Streams().at(0);
    return status.synchronized && status.sequence.value == publisher.last_sequence();
  }));
  EXPECT_NE(status.digest, early->digest) << "another state";
  EXPECT_EQ(status.digest, StatusOf("a")->digest);

  publisher.HoldSnapshots();
  publisher.LoseNext(1);
  publisher.Heartbeat();
  publisher.Heartbeat();
  ASSERT_TRUE(WaitUnsynchronized("a"));
  EXPECT_EQ(StatusOf("a")->digest, 0u) << "nothing is vouched for";
}

// D11: a start asks no more engines at once than it may, and all in the end.
TEST_F(KVDirectory, NoMoreSnapshotsAreOnTheirWayThanConfigured) {
  constexpr std::size_t kStreams = 6;
  std::vector<std::unique_ptr<KvPublisher>> publishers;
  std::vector<StreamSpec> specs;
  for (std::size_t i = 0; i < kStreams; ++i) {
    publishers.push_back(std::make_unique<KvPublisher>());
    publishers[i]->HoldSnapshots();
    specs.push_back(SpecOf(*publishers[i], "s" + std::to_string(i)));
  }
  DirectoryConfig config = ConfigOf(specs);
  config.limits.max_snapshots_at_once = 2;
  config.limits.replay_timeout = std::chrono::seconds(60);
  StartWith(config);
  std::vector<bool> released(kStreams, false);
  const auto asked = [&] {
    std::vector<std::size_t> waiting;
    for (std::size_t i = 0; i < kStreams; ++i) {
      if (!released[i] && publishers[i]->snapshot_requests() > 0) waiting.push_back(i);
    }
    return waiting;
  };
  for (std::size_t left = kStreams; left > 0; --left) {
    const std::size_t expected = std::min<std::size_t>(2, left);
    ASSERT_TRUE(WaitFor("the places are taken", [&] { return asked().size() >= expected; }));
    ASSERT_EQ(asked().size(), expected) << left << " streams are left";
    const std::size_t next = asked()[0];
    released[next] = true;
    publishers[next]->ReleaseSnapshots();
    ASSERT_TRUE(WaitSynchronized("s" + std::to_string(next)));
  }
}

// C06, and C3, C5 of the requirements.
TEST_F(KVDirectory, TiersAreIndependentReplicas) {
  KvPublisher publisher;
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  const Tokens prompt = MakePrompt(3, 20);
  publisher.Store(Tier::kDevice, prompt);
  publisher.Publish(publisher.NewBatch().Replicate(Tier::kHost, prompt));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt), Expectation({80, 0})) << "a block on both counts as Device";
  publisher.Publish(publisher.NewBatch().Remove(Tier::kDevice, prompt, 7));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt), Expectation({28, 52}));
  publisher.Publish(publisher.NewBatch().Remove(Tier::kHost, prompt, 9, 1));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt), Expectation({28, 8})) << "the run ends at the first hole";
  publisher.Publish(publisher.NewBatch().Replicate(Tier::kHost, prompt, 9, 1));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt), Expectation({28, 52}));
  publisher.Publish(publisher.NewBatch().Clear(Tier::kDevice));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt), Expectation({0, 80}));
  publisher.Publish(publisher.NewBatch().Clear());
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt), Expectation());
}

// C6: nothing is assembled across ranks or instances.
TEST_F(KVDirectory, RanksAndInstancesAreIsolated) {
  std::vector<std::unique_ptr<KvPublisher>> publishers;
  std::vector<StreamSpec> specs;
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    publishers.push_back(std::make_unique<KvPublisher>(KvPublisher::Options{.dp_rank = rank}));
    specs.push_back(SpecOf(*publishers.back(), "a", rank));
  }
  publishers.push_back(std::make_unique<KvPublisher>());
  specs.push_back(SpecOf(*publishers.back(), "b"));
  publishers[0]->Publish(publishers[0]->NewBatch().Store(Tier::kDevice, prompt_, 0, 4));
  publishers[1]->Publish(publishers[1]->NewBatch().Store(Tier::kDevice, prompt_));
  publishers[1]->Publish(publishers[1]->NewBatch().Remove(Tier::kDevice, prompt_, 0, 4));
  publishers[2]->Publish(publishers[2]->NewBatch().Store(Tier::kHost, prompt_, 0, 2));
  StartWith(ConfigOf(specs));
  ASSERT_TRUE(WaitFor("all are synchronized", [&] { return directory_->Settled(); }));
  EXPECT_EQ(HitsOf("a", prompt_, 0), Expectation({16, 0}));
  EXPECT_EQ(HitsOf("a", prompt_, 1), Expectation()) << "its first four blocks are gone";
  EXPECT_EQ(HitsOf("b", prompt_), Expectation({0, 8}));

  // A fault of one rank costs the others nothing.
  publishers[1]->SendPayload("\xc1");
  ASSERT_TRUE(WaitFor("the damage is counted", [&] {
    return StreamMetric("xms_kv_stream_parse_errors_total", "a", {"code", "reserved_byte"}, 1) == 1;
  }));
  EXPECT_EQ(HitsOf("a", prompt_, 0), Expectation({16, 0}));
  EXPECT_EQ(HitsOf("b", prompt_), Expectation({0, 8}));
}

TEST_F(KVDirectory, BatchOfAnotherRankUnsynchronizesWithBothNumbers) {
  KvPublisher publisher(KvPublisher::Options{.dp_rank = 3});
  StartWith(ConfigOf({SpecOf(publisher, "a", 1)}));
  ASSERT_TRUE(WaitFor("the ranks are named", [&] {
    return ErrorOf("a", 1).find("rank 3 published on the stream of rank 1") != std::string::npos;
  })) << ErrorOf("a", 1);
}

// C09
TEST_F(KVDirectory, OtherBlockSizeUnsynchronizesWithBothNumbers) {
  KvPublisher publisher(KvPublisher::Options{.block_size = 8});
  KvPublisher good;
  good.Store(Tier::kDevice, prompt_);
  publisher.Publish(publisher.NewBatch().Store(Tier::kDevice, MakePrompt(1, 4, 8)));
  StartWith(ConfigOf({SpecOf(publisher, "a"), SpecOf(good, "b")}));
  ASSERT_TRUE(WaitError("a", "block_size 8 published, 4 configured"));
  ASSERT_TRUE(WaitSynchronized("b"));
  EXPECT_EQ(HitsOf("b", prompt_), Expectation({32, 0}));
}

// D2
TEST_F(KVDirectory, SnapshotAndDeltasMergeWithoutLossOrDoubling) {
  KvPublisher publisher;
  const Tokens chain = MakePrompt(5, 40);
  publisher.Publish(publisher.NewBatch().Store(Tier::kDevice, chain, 0, 20));
  publisher.HoldSnapshots();
  StartWith(publisher);
  ASSERT_TRUE(publisher.WaitForSnapshotRequests(1));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  for (std::size_t block = 20; block < 30; ++block) {
    publisher.Publish(publisher.NewBatch().Store(Tier::kDevice, chain, block, 1));
  }
  EXPECT_EQ(HitsOf("a", chain), Expectation()) << "zero hits until the snapshot";
  publisher.ReleaseSnapshots();
  for (std::size_t block = 30; block < 40; ++block) {
    publisher.Publish(publisher.NewBatch().Store(Tier::kDevice, chain, block, 1));
  }
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", chain), Expectation({160, 0}));
  EXPECT_EQ(StatusOf("a")->device_blocks, 40u);
  // The tail is no root (C03).
  EXPECT_EQ(HitsOf("a", Tokens(chain.begin() + 80, chain.end())), Expectation());
}

// D9
TEST_F(KVDirectory, SnapshotInSeveralPartsIsOneSnapshot) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  publisher.SplitSnapshots(5);
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
}

// D7
TEST_F(KVDirectory, QuietPublisherStaysSynchronized) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  DirectoryConfig config = ConfigOf({SpecOf(publisher, "a")});
  config.limits.resync_interval = milliseconds(50);
  StartWith(config);
  ASSERT_TRUE(WaitSynchronized("a"));
  const std::uint64_t generation = StatusOf("a")->generation;
  ASSERT_TRUE(publisher.WaitForSnapshotRequests(8)) << "seven reconciliations";
  EXPECT_EQ(StatusOf("a")->generation, generation);
  EXPECT_EQ(StreamMetric("xms_kv_stream_reconciliations_total", "a", {"outcome", "different"}), 0);
}

TEST_F(KVDirectory, NamesAndIpv6LiteralsAreConnectedTo) {
  KvPublisher named;
  StreamSpec spec = SpecOf(named, "named");
  spec.endpoint = "tcp://localhost:" + std::to_string(named.event_port());
  spec.replay_endpoint = "tcp://localhost:" + std::to_string(named.replay_port());
  std::vector<StreamSpec> specs = {spec};
  auto ipv6 = KvPublisher::TryMake({.host = "::1"});
  if (ipv6 != nullptr) {
    spec = SpecOf(*ipv6, "ipv6");
    spec.endpoint = "tcp://[::1]:" + std::to_string(ipv6->event_port());
    spec.replay_endpoint = "tcp://[0:0::1]:" + std::to_string(ipv6->replay_port());
    specs.push_back(spec);
  }
  StartWith(ConfigOf(specs));
  for (const StreamSpec& one : specs) EXPECT_TRUE(WaitSynchronized(one.key.instance.name));
}

// D1
// D11: the service restarts, its engines are asked one after the other, and all answers count.
TEST_F(KVDirectory, AllSlotsSynchronizeAndStopAtOnce) {
  std::vector<std::unique_ptr<KvPublisher>> publishers;
  std::vector<StreamSpec> specs;
  for (int i = 0; i < 128; ++i) {
    publishers.push_back(std::make_unique<KvPublisher>());
    publishers.back()->Store(Tier::kDevice, prompt_);
    specs.push_back(SpecOf(*publishers.back(), "engine" + std::to_string(1000 + i)));
  }
  StartWith(ConfigOf(specs));
  ASSERT_TRUE(WaitFor(
      "128 streams are synchronized", [&] { return directory_->Settled(); },
      std::chrono::seconds(60)));
  EXPECT_EQ(Metric("xms_kv_streams_synchronized"), 128);
  for (const StreamSpec& spec : specs) {
    EXPECT_EQ(HitsOf(spec.key.instance.name, prompt_), Expectation({32, 0}));
  }
  directory_->Stop();
  EXPECT_TRUE(index_->Streams().empty());
  EXPECT_EQ(Metric("xms_kv_streams_synchronized"), 0);
  directory_->Stop();
}

// D1
TEST_F(KVDirectory, StopDoesNotWaitForDeadOrHangingEndpoints) {
  KvPublisher hanging;
  hanging.HoldSnapshots();
  DirectoryConfig config = ConfigOf({SpecOf(hanging, "hanging")});
  config.limits.replay_timeout = std::chrono::minutes(10);
  // Nobody listens on port 1.
  for (int i = 0; i < 20; ++i) {
    StreamSpec dead = SpecOf(hanging, "dead" + std::to_string(i));
    dead.endpoint = "tcp://127.0.0.1:1";
    config.streams.push_back(dead);
  }
  StartWith(config);
  ASSERT_TRUE(hanging.WaitForSnapshotRequests(1));
  ASSERT_TRUE(WaitError("dead7", "no publisher answered at tcp://127.0.0.1:1 for "));
  EXPECT_FALSE(directory_->Settled());
  const auto before = clock_.Now();
  directory_->Stop();
  EXPECT_LT(base::MillisBetween(before, clock_.Now()), 5000);
  EXPECT_TRUE(index_->Streams().empty());
}

}  // namespace
}  // namespace xms::kv_directory
