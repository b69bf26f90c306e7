#include "gateway/heartbeat.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace xms::gateway {
namespace {

class GatewayHeartbeat : public ::testing::Test {
 protected:
  HeartbeatFault Parse(const std::string& body) {
    beat_ = {};
    return ParseHeartbeat(body, beat_);
  }
  bool Takes(const std::string& load) {
    return Parse(R"({"name":"a:1","load_metrics":)" + load + "}") == HeartbeatFault::kNone;
  }

  instances::Heartbeat beat_;
};

TEST_F(GatewayHeartbeat, ReadsWhatSidecarsSend) {
  ASSERT_EQ(Parse(R"({"name":"10.0.0.5:8000","incarnation_id":"abc",)"
                  R"("load_metrics":{"waiting_requests_num":3,"gpu_cache_usage_perc":0.25},)"
                  R"("latency_metrics":{"recent_max_ttft":120,"recent_max_tbt":30}})"),
            HeartbeatFault::kNone);
  EXPECT_EQ(beat_.id.name, "10.0.0.5:8000");
  EXPECT_EQ(beat_.incarnation_id, "abc");
  ASSERT_TRUE(beat_.load.has_value());
  EXPECT_EQ(beat_.load->waiting_requests_num, 3);
  EXPECT_EQ(beat_.load->gpu_cache_usage_perc, 0.25);
}

TEST_F(GatewayHeartbeat, CamelCaseAndIntegersAsTextAreTheSame) {
  ASSERT_EQ(
      Parse(R"({"name":"a:1","incarnationId":"abc",)"
            R"("loadMetrics":{"waitingRequestsNum":"18","gpuCacheUsagePerc":"0.5"},"x":[1]})"),
      HeartbeatFault::kNone);
  EXPECT_EQ(beat_.incarnation_id, "abc");
  ASSERT_TRUE(beat_.load.has_value());
  EXPECT_EQ(beat_.load->waiting_requests_num, 18);
  EXPECT_EQ(beat_.load->gpu_cache_usage_perc, 0.5);
}

TEST_F(GatewayHeartbeat, WithoutLoadItIsASignOfLife) {
  ASSERT_EQ(Parse(R"({"name":"a:1"})"), HeartbeatFault::kNone);
  EXPECT_FALSE(beat_.load.has_value());
  ASSERT_EQ(Parse(R"({"name":"a:1","load_metrics":null,"incarnation_id":null})"),
            HeartbeatFault::kNone);
  EXPECT_FALSE(beat_.load.has_value());
}

TEST_F(GatewayHeartbeat, AbsentFiguresAreZero) {
  ASSERT_TRUE(Takes("{}"));
  ASSERT_TRUE(beat_.load.has_value());
  EXPECT_EQ(*beat_.load, model::LoadSample{});
}

TEST_F(GatewayHeartbeat, SenselessLoadsArriveAsInvalidOnes) {
  for (const char* load :
       {R"({"waiting_requests_num":-1})", R"({"waiting_requests_num":"-1"})",
        R"({"gpu_cache_usage_perc":1.5})", R"({"gpu_cache_usage_perc":-0.1})",
        R"({"gpu_cache_usage_perc":"NaN"})", R"({"gpu_cache_usage_perc":NaN})",
        R"({"gpu_cache_usage_perc": Infinity })", R"({"waiting_requests_num":-Infinity})",
        R"({"waiting_requests_num":"Infinity"})"}) {
    ASSERT_TRUE(Takes(load)) << load;
    ASSERT_TRUE(beat_.load.has_value()) << load;
    EXPECT_FALSE(beat_.load->valid()) << load;
  }
}

TEST_F(GatewayHeartbeat, NumbersThatNothingHereCanHoldAreIgnoredOrMakeTheLoadInvalid) {
  ASSERT_EQ(Parse(R"({"name":"a:1","x":18446744073709551616,"y":[1e999,{"z":-1e999}],)"
                  R"("load_metrics":{"waiting_requests_num":2,"w":99999999999999999999}})"),
            HeartbeatFault::kNone);
  EXPECT_EQ(beat_.load->waiting_requests_num, 2);
  EXPECT_TRUE(beat_.load->valid());
  ASSERT_TRUE(Takes(R"({"waiting_requests_num":1e999})"));
  EXPECT_FALSE(beat_.load->valid());
}

// Words inside strings are text, also beside bare ones.
TEST_F(GatewayHeartbeat, BareNanIsFoundOutsideStringsOnly) {
  ASSERT_EQ(Parse(R"({"name":"NaN\"NaN:1","load_metrics":{"gpu_cache_usage_perc":NaN}})"),
            HeartbeatFault::kNone);
  EXPECT_EQ(beat_.id.name, "NaN\"NaN:1");
  EXPECT_TRUE(std::isnan(beat_.load->gpu_cache_usage_perc));
}

TEST_F(GatewayHeartbeat, TheNameIsNeeded) {
  for (const char* body :
       {"{}", R"({"name":""})", R"({"name":null})", R"({"incarnation_id":"x"})"}) {
    EXPECT_EQ(Parse(body), HeartbeatFault::kMissingName) << body;
  }
}

TEST_F(GatewayHeartbeat, WhatIsNotAHeartbeatIsRefused) {
  for (const char* body :
       {"", "{", "[]", "7", "null", R"({"name":5})", R"({"name":["a"]})",
        R"({"name":"a","incarnation_id":5})", R"({"name":"a","load_metrics":5})",
        R"({"name":"a","load_metrics":[]})",
        R"({"name":"a","load_metrics":{"waiting_requests_num":true}})",
        R"({"name":"a","load_metrics":{"waiting_requests_num":1.5}})",
        R"({"name":"a","load_metrics":{"waiting_requests_num":""}})",
        R"({"name":"a","load_metrics":{"waiting_requests_num":"3x"}})",
        R"({"name":"a","load_metrics":{"gpu_cache_usage_perc":{}}})", R"({"name":"a","name":"b"})",
        R"({"name":"a","load_metrics":{},"loadMetrics":{}})", R"({"name":NaNa})"}) {
    EXPECT_EQ(Parse(body), HeartbeatFault::kInvalidJson) << body;
  }
}

}  // namespace
}  // namespace xms::gateway
