// What operators see of a stream on /metrics: causes, and only those that happened.
#include "kv_directory/recovery/stream_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "observability/metrics.h"

namespace xms::kv_directory {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

const model::StreamKey kStream{{"engine:8000"}, {3}};

std::string Shown(const StreamMetrics& metrics, base::SteadyTime now = {}) {
  observability::MetricRegistry registry;
  registry.AddSampler(
      [&](observability::Samples& samples) { ShowStreamMetrics(kStream, metrics, now, samples); });
  return registry.Exposition();
}

TEST(KVDirectoryMetrics, CausesThatHaveNotHappenedHaveNoSeries) {
  const StreamMetrics metrics;
  EXPECT_EQ(Shown(metrics),
            "# HELP xms_kv_stream_unsynchronized_seconds_total Time without credit, the time that "
            "is still running included.\n"
            "# TYPE xms_kv_stream_unsynchronized_seconds_total counter\n"
            "xms_kv_stream_unsynchronized_seconds_total{instance=\"engine:8000\",rank=\"3\"} 0\n");
}

TEST(KVDirectoryMetrics, EachCauseIsShownUnderItsStreamAndItsName) {
  const StreamMetrics metrics;
  metrics.gaps.Increment();
  metrics.bytes.Increment(5000);
  metrics.frame_errors.Increment();
  metrics.parse_errors[static_cast<std::size_t>(kv_events::DecodeCode::kDpRankMismatch)]
      .Increment();
  metrics.recoveries[static_cast<std::size_t>(ExchangeOutcome::kTimeout)].Increment(2);
  metrics.reconciliations[static_cast<std::size_t>(ExchangeOutcome::kLostTail)].Increment();
  metrics.message_limits.Increment();
  const std::string text = Shown(metrics);
  for (const char* line : {
           "xms_kv_stream_gaps_total{instance=\"engine:8000\",rank=\"3\"} 1\n",
           "xms_kv_stream_bytes_total{instance=\"engine:8000\",rank=\"3\"} 5000\n",
           "xms_kv_stream_parse_errors_total{code=\"frames\",instance=\"engine:8000\",rank=\"3\"} "
           "1\n",
           "xms_kv_stream_parse_errors_total{code=\"dp_rank_mismatch\",instance=\"engine:8000\","
           "rank=\"3\"} 1\n",
           "xms_kv_stream_recoveries_total{instance=\"engine:8000\",outcome=\"timeout\",rank=\"3\"}"
           " "
           "2\n",
           "xms_kv_stream_reconciliations_total{instance=\"engine:8000\",outcome=\"lost_tail\","
           "rank=\"3\"} 1\n",
           "xms_kv_stream_limits_total{instance=\"engine:8000\",limit=\"max_message_bytes\","
           "rank=\"3\"} 1\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("xms_kv_stream_restarts_total")));
}

// A counter that is added to the struct and forgotten in the exposition would count for nobody.
TEST(KVDirectoryMetrics, NothingIsCountedThatIsNotShown) {
  const StreamMetrics metrics;
  std::vector<const StreamCounter*> all = {
      &metrics.batches,          &metrics.bytes,
      &metrics.foreign_topics,   &metrics.gaps,
      &metrics.restarts,         &metrics.disconnects,
      &metrics.unknown_parents,  &metrics.conflicts,
      &metrics.unknown_clears,   &metrics.unknown_stores,
      &metrics.unknown_removals, &metrics.frame_errors,
      &metrics.block_limits,     &metrics.message_limits,
      &metrics.buffer_limits,    &metrics.silent_subscriptions};
  // Index 0 of errors and reasons means "none" and is never counted.
  for (std::size_t i = 1; i < kDecodeCodes; ++i) all.push_back(&metrics.parse_errors[i]);
  for (std::size_t i = 1; i < kIgnoreReasons; ++i) all.push_back(&metrics.ignored[i]);
  for (const StreamCounter& counter : metrics.recoveries) all.push_back(&counter);
  for (const StreamCounter& counter : metrics.reconciliations) all.push_back(&counter);
  const auto* const begin = reinterpret_cast<const char*>(&metrics);
  const auto* const end = reinterpret_cast<const char*>(&metrics.unsynchronized);
  ASSERT_EQ((all.size() + 2) * sizeof(StreamCounter), static_cast<std::size_t>(end - begin))
      << "the list above names every counter";
  for (const StreamCounter* counter : all) counter->Increment();
  const std::string text = Shown(metrics);
  std::size_t series = 0;
  for (std::size_t at = 0; (at = text.find("} 1\n", at)) != std::string::npos; ++at) {
    ++series;
  }
  EXPECT_EQ(series, all.size()) << text;
}

TEST(KVDirectoryMetrics, TimeWithoutCreditMovesWhileItLasts) {
  const base::SteadyTime start{seconds(100)};
  UnsynchronizedTime time;
  EXPECT_EQ(time.Total(start), seconds(0)) << "not begun";
  time.Begin(start);
  EXPECT_EQ(time.Total(start + milliseconds(1500)), milliseconds(1500));
  time.Begin(start + seconds(1));
  EXPECT_EQ(time.Total(start + seconds(2)), seconds(2)) << "one outage, however often it is named";
  time.End(start + seconds(3));
  EXPECT_EQ(time.Total(start + seconds(50)), seconds(3));
  time.Begin(start + seconds(60));
  EXPECT_EQ(time.Total(start + seconds(59)), seconds(3)) << "a reader whose clock was read before";
  EXPECT_EQ(time.Total(start + seconds(61)), seconds(4));
}

}  // namespace
}  // namespace xms::kv_directory
