// Public cases about amounts, C04, C11 and C16, in short; `tools/soak` runs them long. And C15.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/kv_directory/load_fixture.h"
#include "tests/integration/kv_directory/proxied_fixture.h"
#include "tests/support/process_usage.h"

namespace xms::kv_directory {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FaultProxy;
using testing::KvPublisher;
using testing::WaitFor;

class KVDirectoryLoads : public KVDirectoryFaults {
 protected:
  ::testing::AssertionResult WaitAt(LoadProcess& load, std::size_t stream) {
    const std::uint64_t last = load.HeldBy(stream).last_sequence;
    const std::string name = LoadProcess::NameOf(stream);
    auto result = WaitFor(
        name + " is synchronized at its last batch",
        [&] {
          const auto status = StatusOf(name);
          return status && status->synchronized && status->sequence.value == last;
        },
        seconds(60));
    if (!result) {
      const auto status = StatusOf(name);
      result << " " << last << ", error: " << ErrorOf(name) << ", at "
             << (status ? status->sequence.value : 0);
    }
    return result;
  }
  // The oldest and the newest chain are credited, what went before and what is to come is not.
  void ExpectTruth(LoadProcess& load, std::size_t stream) {
    const LoadProcess::Held held = load.HeldBy(stream);
    const std::string name = LoadProcess::NameOf(stream);
    const auto chain = static_cast<std::uint32_t>(load.options().chain * load.options().block_size);
    EXPECT_EQ(HitsOf(name, load.Prompt(stream, held.first)), Expectation({chain, 0}));
    EXPECT_EQ(HitsOf(name, load.Prompt(stream, held.first + held.count - 1)),
              Expectation({chain, 0}));
    EXPECT_EQ(HitsOf(name, load.Prompt(stream, held.first + held.count)), Expectation());
    if (held.first > 0) {
      EXPECT_EQ(HitsOf(name, load.Prompt(stream, held.first - 1)), Expectation());
    }
    EXPECT_EQ(StatusOf(name)->device_blocks, held.count * load.options().chain);
  }
};

// --- C04

// Settled by design (C8): a match takes no lock that a writer holds, and waits for nobody. What is asserted
// is that answers are right all the while; `tools/soak queries` reports how long they take.
class KVDirectoryC04QueriesWhileEventsPourIn : public KVDirectoryLoads {};

TEST_F(KVDirectoryC04QueriesWhileEventsPourIn, AnswersStayExactWhileSixteenStreamsChange) {
  LoadProcess load({.streams = 16, .chains = 32, .chain = 16, .batches_a_second = 125});
  KvPublisher quiet;
  const Tokens prompt = testing::MakePrompt(1, 100);
  quiet.Store(Tier::kDevice, prompt);
  DirectoryConfig config = ConfigOf(load.Specs());
  config.streams.push_back(SpecOf(quiet, "quiet"));
  config.limits.resync_interval = milliseconds(500);
  config.limits.replay_timeout = seconds(10);
  StartWith(std::move(config));
  ASSERT_TRUE(WaitFor("all are synchronized", [&] { return directory_->Settled(); }, seconds(60)));
  std::uint64_t queries = 0;
  std::uint64_t wrong = 0;
  ASSERT_TRUE(WaitFor(
      "32,000 blocks have been stored meanwhile",
      [&] {
        for (int i = 0; i < 100; ++i, ++queries) {
          const auto status = StatusOf("quiet");
          if (HitsOf("quiet", prompt) != Expectation({400, 0})) ++wrong;
        }
        return queries >= 1000 && load.statistics().batches >= 2000;
      },
      seconds(60)));
  EXPECT_EQ(wrong, 0u) << "of " << queries;
  load.SetRate(0);
  for (std::size_t i = 0; i < load.options().streams; ++i) {
    ASSERT_TRUE(WaitAt(load, i));
    ExpectTruth(load, i);
  }
}

// --- C11

class KVDirectoryC11SlowReader : public KVDirectoryLoads {};

TEST_F(KVDirectoryC11SlowReader, TenThousandBatchesIntoAReaderThatStandsStill) {
  LoadProcess load(
      {.streams = 1, .chains = 16, .chain = 100, .block_size = 4, .high_water_mark = 10});
  FaultProxy reader(load.event_port(0));
  StreamSpec spec = load.SpecOf(0);
  spec.endpoint = reader.endpoint();
  DirectoryConfig config = ConfigOf({spec});
  config.limits.resync_interval = milliseconds(400);
  config.limits.replay_timeout = seconds(5);
  StartWith(config);
  ASSERT_TRUE(WaitFor("it is synchronized", [&] { return directory_->Settled(); }));
  load.Publish(0, 1);
  ASSERT_TRUE(WaitAt(load, 0));
  const std::size_t bytes = testing::ResidentBytes();
  const std::vector<std::uint32_t> old_prompt = load.Prompt(0, load.HeldBy(0).first);
  ASSERT_EQ(HitsOf("e0", old_prompt), Expectation({400, 0}));

  reader.Stall(true);
  load.Publish(0, 10'000);
  ASSERT_TRUE(
      WaitFor("all of it is published", [&] { return load.HeldBy(0).last_sequence == 10'001; }));
  ASSERT_TRUE(
      WaitFor("the snapshot shows the lost tail", [&] { return Reconciled("lost_tail") >= 1; }));
  // From here on the old content is known to be gone, whatever still arrives.
  reader.Stall(false);
  std::uint64_t stale = 0;
  load.Publish(0, 1);
  ASSERT_TRUE(WaitFor("the gap is seen or everything came", [&] {
    if (HitsOf("e0", old_prompt) != Expectation()) ++stale;
    const auto status = StatusOf("e0");
    return status->synchronized && status->sequence.value == 10'002;
  }));
  EXPECT_EQ(stale, 0u);
  EXPECT_GE(Total("xms_kv_stream_gaps_total") + Reconciled("lost_tail"), 1);
  ASSERT_TRUE(WaitAt(load, 0));
  ExpectTruth(load, 0);
  EXPECT_LT(load.statistics().snapshot_requests, 100u) << "recovery must not enlarge the overload";
  constexpr std::size_t kAllowed = 64 << 20;  // max_buffered_bytes and what libzmq holds
  EXPECT_LT(testing::ResidentBytes(), bytes + kAllowed) << bytes << " before";
}

// --- C15, (a) to (c). (d) is a decision's reason and a counter of the gateway: KVDirectoryPublicCases.

class KVDirectoryC15EventsNeverSwitchedOn : public KVDirectory {};

TEST_F(KVDirectoryC15EventsNeverSwitchedOn, EachSilentFaultHasItsOwnReason) {
  KvPublisher gone;
  KvPublisher no_snapshots;
  KvPublisher wrong_topic(KvPublisher::Options{.topic = "kv-events"});
  StreamSpec closed = SpecOf(gone, "closed");
  gone.Disconnect();
  StreamSpec silent = SpecOf(no_snapshots, "silent");
  silent.replay_endpoint = closed.replay_endpoint;  // nobody there
  closed.replay_endpoint = "tcp://127.0.0.1:1";
  DirectoryConfig config = ConfigOf({closed, silent, SpecOf(wrong_topic, "topic")});
  config.limits.resync_interval = milliseconds(200);
  StartWith(config);
  ASSERT_TRUE(WaitError("closed", "no publisher answered at " + closed.endpoint));
  ASSERT_TRUE(WaitError("silent", "connected to " + silent.endpoint + ", but nobody answers at " +
                                      silent.replay_endpoint));
  ASSERT_TRUE(WaitFor("the topic is named", [&] {
    wrong_topic.Heartbeat();
    return ErrorOf("topic").find("topic xllm-kv never seen, kv-events seen ") != std::string::npos;
  })) << ErrorOf("topic");
  EXPECT_THAT(ErrorOf("topic"), ::testing::HasSubstr("watermark moved"));
  EXPECT_EQ((std::set{ErrorOf("closed"), ErrorOf("silent"), ErrorOf("topic")}).size(), 3u);
}

// --- C16

class KVDirectoryC16MemoryUnderChurn : public KVDirectoryLoads {};

TEST_F(KVDirectoryC16MemoryUnderChurn, MemoryFollowsWhatIsResidentAndOneOverItsLimitIsAlone) {
  LoadProcess load({.streams = 8, .chains = 64, .chain = 16, .block_size = 4});
  DirectoryConfig config = ConfigOf(load.Specs());
  config.limits.max_blocks_per_stream = 2048;
  StartWith(config);
  ASSERT_TRUE(WaitFor("all are synchronized", [&] { return directory_->Settled(); }));
  std::uint64_t published = 0;
  const auto churn = [&](std::size_t batches) {
    published += batches;
    for (std::size_t i = 0; i < 8; ++i) load.Publish(i, batches);
    for (std::size_t i = 0; i < 8; ++i) {
      ASSERT_TRUE(WaitFor("all of it is published",
                          [&] { return load.HeldBy(i).last_sequence == published; }));
      ASSERT_TRUE(WaitAt(load, i));
    }
  };
  ASSERT_NO_FATAL_FAILURE(churn(640));  // ten times everything
  const kv_index::KvIndex::MemoryUse warm = index_->Memory();
  EXPECT_EQ(warm.view_entries, 8u * 64 * 16);
  ASSERT_NO_FATAL_FAILURE(churn(3200));
  const kv_index::KvIndex::MemoryUse later = index_->Memory();
  EXPECT_EQ(later.view_entries, warm.view_entries);
  EXPECT_LE(later.view_bytes, warm.view_bytes + warm.view_bytes / 4);
  EXPECT_LE(later.ledger_bytes, warm.ledger_bytes + warm.ledger_bytes / 4);

  load.Tell("resize 3 200");  // 3,200 blocks
  load.Publish(3, 200);
  ASSERT_TRUE(WaitError("e3", "max_blocks_per_stream 2048"));
  for (std::size_t i = 0; i < 8; ++i) {
    if (i != 3) ExpectTruth(load, i);
  }
  EXPECT_EQ(HitsOf("e3", load.Prompt(3, load.HeldBy(3).first)), Expectation());
}

// --- D11

class KVDirectoryPacing : public KVDirectoryLoads {};

// Engines take a moment to make a snapshot, and never more than the gate's number are asked at once.
TEST_F(KVDirectoryPacing, AtMostEightSnapshotsAreOnTheirWayAfterAStart) {
  LoadProcess load({.streams = 64,
                    .chains = 16,
                    .chain = 16,
                    .block_size = 4,
                    .answer_after = milliseconds(20)});
  DirectoryConfig config = ConfigOf(load.Specs());
  config.limits.replay_timeout = seconds(20);
  StartWith(config);
  ASSERT_TRUE(WaitFor("all are synchronized", [&] { return directory_->Settled(); }, seconds(60)));
  const auto statistics = load.statistics();
  EXPECT_GE(statistics.snapshot_requests, 64u);
  EXPECT_LE(statistics.most_snapshots_at_once, 8u);
  EXPECT_GE(statistics.most_snapshots_at_once, 2u) << "one after the other would be slow";
}

}  // namespace
}  // namespace xms::kv_directory
