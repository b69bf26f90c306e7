#include "gateway/decision_log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "routing/policy.h"

namespace xms::gateway {
namespace {

using Json = nlohmann::json;

class GatewayDecisionLog : public ::testing::Test {
 protected:
  // A table of this many DEFAULT instances, and a choice of one of them.
  void Decide(std::size_t instances, int primary, std::vector<std::string> tried = {}) {
    auto view = std::make_shared<instances::InstanceView>();
    for (std::size_t i = 0; i < instances; ++i) {
      auto instance = std::make_shared<instances::Instance>();
      instance->record.id.name = "engine-" + std::to_string(i) + ":8000";
      instance->schedulable = true;
      instance->has_load = i % 2 == 0;
      instance->load.sample.waiting_requests_num = static_cast<double>(i);
      view->instances.push_back(instance);
    }
    table_.Build(view, nullptr, false, {}, {.tried = tried, .paused = {}});
    choice_.primary = primary;
    choice_.reason = "because";
    choice_.cost = 0.25;
    choice_.scored.assign(instances, {});
    for (std::size_t i = 0; i < instances; ++i) {
      choice_.scored[i].considered = i % 3 != 2;
      choice_.scored[i].cost = 0.5 * static_cast<double>(i);
      choice_.scored[i].left_out = i % 3 == 2 ? "no load report" : "";
    }
    decision_.request_id = "id";
    decision_.policy = "CAR";
    decision_.time_ms = 1234;
    decision_.input_tokens = 77;
    decision_.choice = &choice_;
    decision_.table = &table_;
  }
  Json Shown(std::size_t limit = 1000, const std::string& id = "") {
    return Json::parse(log_.Json(limit, id))["decisions"];
  }

  DecisionLog log_{4};
  CandidateTable table_;
  routing::Choice choice_;
  Decision decision_;
};

TEST_F(GatewayDecisionLog, ShowsADecisionAsTheSurfaceSays) {
  Decide(3, 0);
  const auto ticket = log_.Add(decision_);
  log_.Complete(ticket, {.cached_tokens = 64, .ttft_ms = 1.5, .status = 200});
  EXPECT_EQ(
      log_.Json(20, ""),
      R"({"decisions":[{"request_id":"id","time_ms":1234,"policy":"CAR","instance":"engine-0:8000",)"
      R"("decode_instance":"","input_tokens":77,"reason":"because","cost":0.25,"candidates":[)"
      R"({"name":"engine-0:8000","ranks":[],"hit_ratio":0,"waiting":0,"cost":0,"no_credit_reason":"not_tokenized"},)"
      R"({"name":"engine-1:8000","ranks":[],"hit_ratio":0,"waiting":null,"cost":0.5,"no_credit_reason":"not_tokenized"},)"
      R"({"name":"engine-2:8000","ranks":[],"hit_ratio":0,"waiting":2,"cost":null,"no_credit_reason":"no load report"}],)"
      R"("cached_tokens":64,"ttft_ms":1.5,"status":200}]})");
}

TEST_F(GatewayDecisionLog, WhatIsNotKnownYetIsNull) {
  Decide(1, 0);
  log_.Add(decision_);
  const Json decision = Shown().at(0);
  for (const char* field : {"cached_tokens", "ttft_ms", "status"}) {
    EXPECT_TRUE(decision[field].is_null()) << field;
  }
}

TEST_F(GatewayDecisionLog, KeepsTheNewestAndShowsThemFirst) {
  Decide(1, 0);
  for (int i = 0; i < 10; ++i) {
    const std::string id = "r" + std::to_string(i);
    decision_.request_id = id;
    log_.Add(decision_);
  }
  const Json shown = Shown();
  ASSERT_EQ(shown.size(), 4u);
  EXPECT_EQ(shown[0]["request_id"], "r9");
  EXPECT_EQ(shown[3]["request_id"], "r6");
  EXPECT_EQ(Shown(2).size(), 2u);
  EXPECT_EQ(Shown(1000, "r7").size(), 1u);
  EXPECT_EQ(Shown(1000, "r1").size(), 0u);
}

TEST_F(GatewayDecisionLog, ACompletionThatComesTooLateChangesNothing) {
  Decide(1, 0);
  const auto old = log_.Add(decision_);
  for (int i = 0; i < 4; ++i) log_.Add(decision_);
  log_.Complete(old, {.status = 200});
  log_.Replace(old, decision_);
  for (const Json& decision : Shown()) EXPECT_TRUE(decision["status"].is_null());
}

TEST_F(GatewayDecisionLog, AnotherAttemptReplacesTheDecision) {
  Decide(2, 0);
  const auto ticket = log_.Add(decision_);
  Decide(2, 1, {"engine-0:8000"});
  log_.Replace(ticket, decision_);
  ASSERT_EQ(Shown().size(), 1u);
  EXPECT_EQ(Shown()[0]["instance"], "engine-1:8000");
  EXPECT_EQ(Shown()[0]["candidates"][0]["no_credit_reason"], "unreachable");
}

TEST_F(GatewayDecisionLog, NobodyChosenHasNoInstanceAndNoCost) {
  Decide(1, -1);
  log_.Add(decision_);
  EXPECT_EQ(Shown()[0]["instance"], "");
  EXPECT_TRUE(Shown()[0]["cost"].is_null());
}

TEST_F(GatewayDecisionLog, CandidatesAreBoundedAndTheChosenOneIsAmongThem) {
  constexpr int kChosen = 250;
  Decide(300, kChosen);
  log_.Add(decision_);
  const Json candidates = Shown()[0]["candidates"];
  ASSERT_EQ(candidates.size(), DecisionLog::kMaxCandidates);
  EXPECT_EQ(candidates.back()["name"], "engine-" + std::to_string(kChosen) + ":8000");
}

TEST_F(GatewayDecisionLog, ALogOfNothingKeepsNothing) {
  Decide(1, 0);
  DecisionLog none(0);
  const auto ticket = none.Add(decision_);
  none.Complete(ticket, {.status = 200});
  EXPECT_EQ(none.Json(20, ""), R"({"decisions":[]})");
}

// Readers and writers at once: every record that is shown is one that was written, whole.
TEST_F(GatewayDecisionLog, RecordsStayWholeUnderConcurrentUse) {
  Decide(3, 0);
  DecisionLog log(8);
  std::atomic<bool> stop = false;
  std::vector<std::jthread> writers;
  for (int thread = 0; thread < 3; ++thread) {
    writers.emplace_back([&, thread] {
      Decision decision = decision_;
      for (int i = 0; i < 2000; ++i) {
        const std::string id = std::to_string(thread) + "-" + std::to_string(i);
        decision.request_id = id;
        decision.input_tokens = static_cast<std::uint32_t>(i);
        const auto ticket = log.Add(decision);
        log.Complete(ticket, {.ttft_ms = i, .status = 200 + thread});
      }
    });
  }
  std::jthread reader([&] {
    while (!stop) {
      const Json shown = Json::parse(log.Json(1000, ""));
      for (const Json& decision : shown["decisions"]) {
        const std::string id = decision["request_id"];
        const std::size_t dash = id.find('-');
        EXPECT_EQ(decision["input_tokens"].dump(), id.substr(dash + 1));
        if (decision["status"].is_null()) continue;
        EXPECT_EQ(decision["status"].get<int>() - 200, std::stoi(id.substr(0, dash)));
        EXPECT_EQ(decision["ttft_ms"].dump(), id.substr(dash + 1));
      }
    }
  });
  writers.clear();
  stop = true;
}

}  // namespace
}  // namespace xms::gateway
