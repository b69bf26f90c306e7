// A Registrar against a service that is played by a script.
#include "sim/registrar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/str_cat.h"
#include "http/server.h"
#include "tests/support/wait_for.h"

namespace xms::sim {
namespace {

using std::chrono::milliseconds;
using testing::WaitFor;
using Json = nlohmann::json;

constexpr std::string_view kPath = "/v1/internal/instances/127.0.0.1:9000";

class SimRegistrar : public ::testing::Test {
 protected:
  SimRegistrar()
      : server_(pool_, {.error_body = [](int, const std::string&) { return std::string("{}"); }},
                [this](const std::shared_ptr<http::Exchange>& exchange) { Serve(*exchange); }) {
    EXPECT_TRUE(server_.Start().ok());
    options_.service = {"127.0.0.1", server_.port()};
    options_.heartbeat_interval = milliseconds(10);
    options_.first_retry = milliseconds(5);
    options_.longest_retry = milliseconds(20);
    record_.id.name = "127.0.0.1:9000";
    record_.identity = {.incarnation_id = "first", .register_ts_ms = 1};
    record_.dp_size = 2;
    record_.data_plane = model::DataPlane::kHttp;
  }
  ~SimRegistrar() override {
    OnLoop([this] { registrar_.reset(); });
    server_.Stop();
  }

  void Serve(http::Exchange& exchange) {
    const http::Request& request = exchange.request();
    int status = 200;
    {
      base::MutexLock lock(mu_);
      requests_.push_back(request);
      if (request.method == "PUT") status = put_status_;
      if (request.method == "POST") status = post_status_;
    }
    exchange.Send(http::JsonResponse(status, "{}"));
  }
  void Begin() {
    OnLoop([this] {
      registrar_ = std::make_unique<Registrar>(pool_.loop(0), options_, record_, [] {
        return model::LoadSample{.waiting_requests_num = 3, .gpu_cache_usage_perc = 0.25};
      });
    });
  }
  template <typename Work>
  void OnLoop(Work work) {
    std::promise<void> done;
    pool_.loop(0).Post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }
  std::vector<http::Request> Requests(const std::string& method) {
    base::MutexLock lock(mu_);
    std::vector<http::Request> found;
    for (const http::Request& request : requests_) {
      if (request.method == method) found.push_back(request);
    }
    return found;
  }
  ::testing::AssertionResult Seen(const std::string& method, std::size_t count) {
    return WaitFor(base::StrCat(count, " times ", method),
                   [&] { return Requests(method).size() >= count; });
  }
  void Answer(int put, int post) {
    base::MutexLock lock(mu_);
    put_status_ = put;
    post_status_ = post;
  }

  http::EventLoopPool pool_{1};
  base::Mutex mu_;
  std::vector<http::Request> requests_ XMS_GUARDED_BY(mu_);
  int put_status_ XMS_GUARDED_BY(mu_) = 201;
  int post_status_ XMS_GUARDED_BY(mu_) = 200;
  http::HttpServer server_;
  RegistrarOptions options_;
  model::InstanceRecord record_;
  std::unique_ptr<Registrar> registrar_;
};

TEST_F(SimRegistrar, RegistersOnTheHttpPlaneAndReportsLoad) {
  options_.token = "secret";
  Begin();
  ASSERT_TRUE(Seen("POST", 1));
  const http::Request put = Requests("PUT").at(0);
  EXPECT_EQ(put.path(), kPath);
  std::string ttl;
  EXPECT_TRUE(put.QueryParameter("ttl_ms", ttl));
  EXPECT_EQ(ttl, "15000");
  EXPECT_EQ(*put.headers.Find("x-internal-token"), "secret");
  const auto record = model::ParseInstanceJson("127.0.0.1:9000", put.body);
  ASSERT_TRUE(record.ok()) << record.error().message;
  EXPECT_EQ(*record, record_);
  const http::Request heartbeat = Requests("POST").at(0);
  EXPECT_EQ(heartbeat.path(), "/v1/internal/heartbeat");
  EXPECT_EQ(*heartbeat.headers.Find("x-internal-token"), "secret");
  EXPECT_EQ(
      Json::parse(heartbeat.body),
      (Json{{"name", "127.0.0.1:9000"},
            {"incarnation_id", "first"},
            {"load_metrics", {{"waiting_requests_num", 3}, {"gpu_cache_usage_perc", 0.25}}}}));
}

TEST_F(SimRegistrar, RenewsWellBeforeTheTtlEnds) {
  options_.ttl = milliseconds(60);
  const auto begin = std::chrono::steady_clock::now();
  Begin();
  ASSERT_TRUE(Seen("PUT", 4));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(60));  // three thirds
}

TEST_F(SimRegistrar, TriesAgainUntilTheServiceIsThere) {
  server_.Stop();
  Begin();
  http::HttpServer late(
      pool_, {.port = options_.service.port},
      [this](const std::shared_ptr<http::Exchange>& exchange) { Serve(*exchange); });
  ASSERT_TRUE(WaitFor("the port to open again", [&] { return late.Start().ok(); }));
  ASSERT_TRUE(Seen("POST", 1));
  OnLoop([this] { registrar_.reset(); });
  late.Stop();
}

TEST_F(SimRegistrar, TriesAgainWhenRefusedAndSendsNoHeartbeatMeanwhile) {
  Answer(403, 200);
  Begin();
  ASSERT_TRUE(Seen("PUT", 3));
  EXPECT_TRUE(Requests("POST").empty());
  Answer(201, 200);
  ASSERT_TRUE(Seen("POST", 1));
}

TEST_F(SimRegistrar, RegistersAgainWhenAHeartbeatIsNotKnown) {
  Begin();
  ASSERT_TRUE(Seen("POST", 1));
  const std::size_t registrations = Requests("PUT").size();
  for (const int unknown : {409, 404}) {
    Answer(201, unknown);
    ASSERT_TRUE(Seen("PUT", Requests("PUT").size() + 1)) << unknown;
  }
  EXPECT_GE(Requests("PUT").size(), registrations + 2);
}

TEST_F(SimRegistrar, AnotherFailureOfAHeartbeatIsNoReasonToRegister) {
  Answer(201, 500);
  Begin();
  ASSERT_TRUE(Seen("POST", 5));
  EXPECT_EQ(Requests("PUT").size(), 1U);
}

TEST_F(SimRegistrar, ARestartRegistersTheNewIdentity) {
  Begin();
  ASSERT_TRUE(Seen("POST", 1));
  OnLoop([this] { registrar_->Restart({.incarnation_id = "second", .register_ts_ms = 2}); });
  ASSERT_TRUE(Seen("PUT", 2));
  EXPECT_EQ(Json::parse(Requests("PUT").back().body)["incarnation_id"], "second");
  ASSERT_TRUE(WaitFor("a heartbeat of the second life", [&] {
    return Json::parse(Requests("POST").back().body)["incarnation_id"] == "second";
  }));
}

TEST_F(SimRegistrar, StopDeregistersAndThenIsSilent) {
  Begin();
  ASSERT_TRUE(Seen("POST", 1));
  std::promise<void> stopped;
  OnLoop([&] { registrar_->Stop([&] { stopped.set_value(); }); });
  stopped.get_future().wait();
  ASSERT_EQ(Requests("DELETE").size(), 1U);
  EXPECT_EQ(Requests("DELETE")[0].path(), kPath);
  const std::size_t sent = Requests("PUT").size() + Requests("POST").size();
  OnLoop([this] { registrar_.reset(); });
  EXPECT_LE(Requests("PUT").size() + Requests("POST").size(),
            sent + 1);  // one may have been under way
}

TEST_F(SimRegistrar, StopDoesNotWaitForAServiceThatWasNeverThere) {
  server_.Stop();
  Begin();
  std::promise<void> stopped;
  OnLoop([&] { registrar_->Stop([&] { stopped.set_value(); }); });
  EXPECT_EQ(stopped.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

}  // namespace
}  // namespace xms::sim
