#include "observability/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

namespace xms::observability {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Observability, ShowsACounterWithHelpTypeAndLabels) {
  MetricRegistry registry;
  const Counter requests =
      registry.AddCounter("xms_requests_total", "Requests.", {{"policy", "CAR"}});
  requests.Increment();
  requests.Increment(2);
  EXPECT_EQ(registry.Exposition(),
            "# HELP xms_requests_total Requests.\n"
            "# TYPE xms_requests_total counter\n"
            "xms_requests_total{policy=\"CAR\"} 3\n");
}

TEST(Observability, GaugeGoesUpAndDownAndReadsBack) {
  MetricRegistry registry;
  const Gauge in_flight = registry.AddGauge("xms_requests_in_flight", "Requests being answered.");
  in_flight.Add(3);
  in_flight.Add(-3);
  EXPECT_EQ(in_flight.Value(), 0);
  in_flight.Set(0.25);
  EXPECT_EQ(in_flight.Value(), 0.25);
  EXPECT_THAT(registry.Exposition(), HasSubstr("\nxms_requests_in_flight 0.25\n"));
}

// A bucket includes its bound; what is above every bound is in +Inf only.
TEST(Observability, HistogramCountsIntoCumulativeBuckets) {
  MetricRegistry registry;
  const Histogram seconds =
      registry.AddHistogram("xms_ttft_seconds", "Time to first token.", {0.5, 1});
  for (const double value : {0.25, 0.5, 0.75, 4.0}) seconds.Observe(value);
  EXPECT_EQ(registry.Exposition(),
            "# HELP xms_ttft_seconds Time to first token.\n"
            "# TYPE xms_ttft_seconds histogram\n"
            "xms_ttft_seconds_count 4\n"
            "xms_ttft_seconds_sum 5.5\n"
            "xms_ttft_seconds_bucket{le=\"0.5\"} 2\n"
            "xms_ttft_seconds_bucket{le=\"1\"} 3\n"
            "xms_ttft_seconds_bucket{le=\"+Inf\"} 4\n");
}

TEST(Observability, HistogramSurvivesNaN) {
  MetricRegistry registry;
  const Histogram seconds = registry.AddHistogram("xms_ttft_seconds", "Time to first token.", {1});
  seconds.Observe(std::nan(""));
  seconds.Observe(0.5);
  EXPECT_THAT(registry.Exposition(), HasSubstr("xms_ttft_seconds_sum 0.5\n"));
  EXPECT_THAT(registry.Exposition(), HasSubstr("xms_ttft_seconds_count 1\n"));
}

TEST(Observability, SameNameAndLabelsAreTheSameMetric) {
  MetricRegistry registry;
  registry.AddCounter("xms_gaps_total", "Gaps.", {{"stream", "a/0"}}).Increment();
  registry.AddCounter("xms_gaps_total", "Gaps.", {{"stream", "a/0"}}).Increment();
  registry.AddCounter("xms_gaps_total", "Gaps.", {{"stream", "b/0"}}).Increment();
  EXPECT_THAT(registry.Exposition(), HasSubstr("xms_gaps_total{stream=\"a/0\"} 2\n"
                                               "xms_gaps_total{stream=\"b/0\"} 1\n"));
}

TEST(Observability, FamiliesComeInTheOrderOfTheirNames) {
  MetricRegistry registry;
  registry.AddGauge("xms_b", "B.");
  registry.AddCounter("xms_c_total", "C.");
  registry.AddHistogram("xms_a_seconds", "A.", {1});
  const std::string text = registry.Exposition();
  EXPECT_LT(text.find("# TYPE xms_a_seconds"), text.find("# TYPE xms_b "));
  EXPECT_LT(text.find("# TYPE xms_b "), text.find("# TYPE xms_c_total"));
}

// Instance names come from outside: whatever they contain, the text keeps its lines.
TEST(Observability, LabelValuesAreEscaped) {
  MetricRegistry registry;
  registry.AddGauge("xms_streams", "Streams.", {{"instance", "a\"b\\c\nd"}}).Set(1);
  EXPECT_THAT(registry.Exposition(), HasSubstr("{instance=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

TEST(Observability, ADefaultHandleCountsNothing) {
  Counter().Increment();
  Gauge().Set(1);
  Gauge().Add(1);
  Histogram().Observe(1);
  EXPECT_EQ(Gauge().Value(), 0);
}

TEST(Observability, ACounterNeverGoesBack) {
  MetricRegistry registry;
  const Counter counter = registry.AddCounter("xms_x_total", "X.");
  counter.Increment(2);
  counter.Increment(-1);
  EXPECT_THAT(registry.Exposition(), HasSubstr("xms_x_total 2\n"));
}

TEST(Observability, CollectorsRunBeforeEachExposition) {
  MetricRegistry registry;
  const Gauge size = registry.AddGauge("xms_kv_index_bytes", "Bytes.");
  int reads = 0;
  // A collector may even add metrics: no lock is held while it runs.
  registry.AddCollector([&] {
    size.Set(++reads);
    registry.AddGauge("xms_late", "Made by a collector.").Set(reads);
  });
  EXPECT_THAT(registry.Exposition(), HasSubstr("xms_kv_index_bytes 1\n"));
  EXPECT_THAT(registry.Exposition(), HasSubstr("xms_late 2\n"));
}

TEST(Observability, WhatASamplerDoesNotPutIsNotShown) {
  MetricRegistry registry;
  registry.AddGauge("xms_b", "B.").Set(1);
  bool there = true;
  registry.AddSampler([&](Samples& samples) {
    samples.Counter("xms_a_total", "A.", {{"of", "one"}}, 2);
    if (there) samples.Counter("xms_a_total", "A.", {{"of", "two"}}, 3);
    if (there) samples.Gauge("xms_c", "C.", {}, 4);
  });
  EXPECT_EQ(registry.Exposition(),
            "# HELP xms_a_total A.\n# TYPE xms_a_total counter\n"
            "xms_a_total{of=\"one\"} 2\nxms_a_total{of=\"two\"} 3\n"
            "# HELP xms_b B.\n# TYPE xms_b gauge\nxms_b 1\n"
            "# HELP xms_c C.\n# TYPE xms_c gauge\nxms_c 4\n");
  there = false;
  EXPECT_EQ(registry.Exposition(),
            "# HELP xms_a_total A.\n# TYPE xms_a_total counter\nxms_a_total{of=\"one\"} 2\n"
            "# HELP xms_b B.\n# TYPE xms_b gauge\nxms_b 1\n");
}

TEST(ObservabilityDeath, WhatWasAddedCannotBeSampledToo) {
  MetricRegistry registry;
  registry.AddGauge("xms_x", "X.");
  registry.AddSampler([](Samples& samples) { samples.Gauge("xms_x", "X.", {}, 1); });
  EXPECT_DEATH(registry.Exposition(), "xms_x.*added and sampled");
}

TEST(ObservabilityDeath, OneNameWithTwoTypesIsADefect) {
  MetricRegistry registry;
  registry.AddGauge("xms_x", "X.");
  EXPECT_DEATH(registry.AddCounter("xms_x", "X."), "xms_x.*another type");
  EXPECT_DEATH(registry.AddCounter("xms-y", "Y."), "xms-y.*not a Prometheus metric name");
  EXPECT_DEATH(registry.AddGauge("xms_z", "Z.", {{"a-b", "1"}}), "xms_z.*label name: a-b");
  EXPECT_DEATH(registry.AddHistogram("xms_h", "H.", {1, 1}), "xms_h.*ascend");
}

// Counting, adding and reading at once: nothing is lost, and a histogram's count is its last
// bucket.
TEST(ObservabilityStress, NothingIsLostUnderConcurrentUse) {
  MetricRegistry registry;
  constexpr int kThreads = 4;
  constexpr int kRounds = 5000;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&registry] {
        const Counter counter = registry.AddCounter("xms_x_total", "X.");
        const Gauge gauge = registry.AddGauge("xms_g", "G.");
        const Histogram histogram = registry.AddHistogram("xms_h", "H.", {1, 2});
        for (int i = 0; i < kRounds; ++i) {
          counter.Increment();
          gauge.Add(i % 2 == 0 ? 1 : -1);
          histogram.Observe(i % 3 + 0.5);
        }
      });
    }
    for (int i = 0; i < 50; ++i) EXPECT_THAT(registry.Exposition(), Not(HasSubstr("nan")));
  }
  const std::string text = registry.Exposition();
  EXPECT_THAT(text, HasSubstr("xms_x_total 20000\n"));
  EXPECT_THAT(text, HasSubstr("xms_g 0\n"));
  EXPECT_THAT(text, HasSubstr("xms_h_count 20000\n"));
  EXPECT_THAT(text, HasSubstr("xms_h_bucket{le=\"+Inf\"} 20000\n"));
}

}  // namespace
}  // namespace xms::observability
