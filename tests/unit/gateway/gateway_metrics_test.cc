#include "gateway/gateway_metrics.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace xms::gateway {
namespace {

TEST(GatewayMetricsTest, RequestsAreCountedByRouteAndStatus) {
  observability::MetricRegistry registry;
  GatewayMetrics metrics(&registry);
  metrics.CountRequest(Route::kCompletions, 200);
  metrics.CountRequest(Route::kCompletions, 200);
  metrics.CountRequest(Route::kHealth, 405);
  const std::string text = registry.Exposition();
  EXPECT_NE(text.find(R"(xms_requests_total{route="completions",status="200"} 2)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"(xms_requests_total{route="health",status="405"} 1)"), std::string::npos)
      << text;
}

TEST(GatewayMetricsTest, InFlightFallsOnEndAndOnDestruction) {
  observability::MetricRegistry registry;
  GatewayMetrics metrics(&registry);
  {
    InFlight first(metrics.in_flight());
    InFlight second(metrics.in_flight());
    EXPECT_NE(registry.Exposition().find("xms_requests_in_flight 2"), std::string::npos);
    first.End();
    first.End();
    EXPECT_NE(registry.Exposition().find("xms_requests_in_flight 1"), std::string::npos);
  }
  EXPECT_NE(registry.Exposition().find("xms_requests_in_flight 0"), std::string::npos);
}

TEST(GatewayMetricsTest, WithoutARegistryNothingIsCountedAndNothingBreaks) {
  GatewayMetrics metrics(nullptr);
  metrics.CountRequest(Route::kModels, 200);
  metrics.decisions.Increment("x");
  metrics.ttft_seconds.Observe(1);
}

// An engine may answer any status it likes; the number of series stays bounded.
TEST(GatewayMetricsTest, TooManyValuesCountAsOther) {
  observability::MetricRegistry registry;
  GatewayMetrics metrics(&registry);
  for (int status = 200; status < 300; ++status) metrics.CountRequest(Route::kModels, status);
  const std::string text = registry.Exposition();
  EXPECT_NE(text.find(R"(xms_requests_total{route="models",status="other"} 52)"), std::string::npos)
      << text;
}

TEST(GatewayMetricsTest, ThreadsThatMeetANewValueTogetherMakeOneSeries) {
  observability::MetricRegistry registry;
  CounterFamily family(&registry, "xms_test_total", "test", "value", {});
  constexpr int kThreads = 4;
  constexpr int kValues = 20;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&family] {
      for (int value = 0; value < kValues; ++value) family.Increment(std::to_string(value));
    });
  }
  threads.clear();
  const std::string text = registry.Exposition();
  for (int value = 0; value < kValues; ++value) {
    const std::string line = "xms_test_total{value=\"" + std::to_string(value) + "\"} 4";
    EXPECT_NE(text.find(line), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace xms::gateway
