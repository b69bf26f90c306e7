#include "plane_http/http_plane.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tests/support/wait_for.h"
#include "tests/unit/http/raw_client.h"

namespace xms::plane_http {
namespace {

using namespace std::chrono_literals;
using gateway::EngineStage;
using http::testing::RawServer;
using xms::testing::WaitFor;

struct Log {
  base::Mutex mu;
  int status XMS_GUARDED_BY(mu) = 0;
  http::Headers headers XMS_GUARDED_BY(mu);
  std::string body XMS_GUARDED_BY(mu);
  int ends XMS_GUARDED_BY(mu) = 0;
  bool on_loop XMS_GUARDED_BY(mu) = true;
  std::optional<base::Error> error XMS_GUARDED_BY(mu);
  EngineStage stage XMS_GUARDED_BY(mu) = EngineStage::kNotSent;
};

class PlaneHttp : public ::testing::Test {
 protected:
  static void RunOn(http::EventLoop& loop, const std::function<void()>& work) {
    std::promise<void> done;
    loop.Post([&] {
      work();
      done.set_value();
    });
    ASSERT_EQ(done.get_future().wait_for(20s), std::future_status::ready);
  }

  ~PlaneHttp() override { pool_.Stop(); }  // before the plane, as its header asks

  std::shared_ptr<gateway::EngineCall> Submit(gateway::EngineRequest request,
                                              std::size_t loop_index = 0) {
    http::EventLoop& loop = pool_.loop(loop_index);
    log_ = std::make_shared<Log>();
    gateway::EngineHandlers handlers;
    handlers.on_headers = [log = log_, &loop](int status, http::Headers headers) {
      base::MutexLock lock(log->mu);
      log->status = status;
      log->headers = std::move(headers);
      log->on_loop = log->on_loop && loop.OnThisThread();
    };
    handlers.on_body = [log = log_, &loop](const std::string& chunk,
                                           const std::function<void()>& resume) {
      {
        base::MutexLock lock(log->mu);
        log->body += chunk;
        log->on_loop = log->on_loop && loop.OnThisThread();
      }
      resume();
    };
    handlers.on_end = [log = log_, &loop] {
      base::MutexLock lock(log->mu);
      ++log->ends;
      log->on_loop = log->on_loop && loop.OnThisThread();
    };
    handlers.on_error = [log = log_, &loop](base::Error error, EngineStage stage) {
      base::MutexLock lock(log->mu);
      log->error = std::move(error);
      log->stage = stage;
      log->on_loop = log->on_loop && loop.OnThisThread();
    };
    std::shared_ptr<gateway::EngineCall> call;
    RunOn(loop, [&] {
      call = plane_.Submit(loop, std::move(request), std::move(handlers));
      base::MutexLock lock(log_->mu);
      EXPECT_FALSE(log_->error) << "errors come later, not from inside Submit";
    });
    return call;
  }
  static gateway::EngineRequest To(const RawServer& engine) {
    gateway::EngineRequest request;
    request.instance = "127.0.0.1:" + std::to_string(engine.port());
    return request;
  }

  ::testing::AssertionResult Ended() {
    return WaitFor("the call ends", [&] {
      base::MutexLock lock(log_->mu);
      return log_->ends > 0 || log_->error.has_value();
    });
  }
  // "" when it went well, else code and stage.
  std::string Failure() {
    base::MutexLock lock(log_->mu);
    if (!log_->error) return "";
    const char* stages[] = {"not sent", "sent", "answering"};
    return std::string(base::ErrorCodeName(log_->error->code)) + ", " +
           stages[static_cast<int>(log_->stage)];
  }

  http::EventLoopPool pool_{2};
  HttpPlane plane_{pool_, Options{.connect_timeout = 2000ms, .idle_timeout = 300ms}};
  std::shared_ptr<Log> log_;
};

TEST_F(PlaneHttp, ForwardsTheRequestToTheInstance) {
  RawServer engine;
  gateway::EngineRequest request = To(engine);
  request.request.method = "POST";
  request.request.target = "/v1/completions?x=1";
  request.request.headers.Add("Host", "front-door:8888");
  request.request.headers.Add("Authorization", "Bearer t");
  request.request.headers.Add("x-request-id", "r1");
  request.request.body = "{\"stream\":true}";
  const std::string instance = request.instance;
  Submit(std::move(request));
  auto peer = engine.Accept();
  EXPECT_EQ(
      peer.ReadRequest(),
      "POST /v1/completions?x=1 HTTP/1.1\r\nAuthorization: Bearer t\r\nx-request-id: r1\r\nHost: " +
          instance + "\r\nContent-Length: 15\r\n\r\n{\"stream\":true}");
}

TEST_F(PlaneHttp, RelaysStatusHeadersAndBytesAsTheyCome) {
  RawServer engine;
  Submit(To(engine));
  auto peer = engine.Accept();
  peer.ReadRequest();
  peer.Send(
      "HTTP/1.1 429 Too Many\r\nContent-Type: text/event-stream\r\nRetry-After: 1\r\n"
      "Connection: X-Mine\r\nX-Mine: 1\r\nTransfer-Encoding: chunked\r\n\r\n");
  const auto body = [&] {
    base::MutexLock lock(log_->mu);
    return log_->body;
  };
  // Bytes that are no UTF-8 and events cut in the middle are none of the plane's business.
  peer.Send("4\r\nda\xff\n\r\n");
  ASSERT_TRUE(WaitFor("the first bytes", [&] { return body() == "da\xff\n"; }));
  peer.Send("3\r\nta:\r\n0\r\n\r\n");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(Failure(), "");
  EXPECT_EQ(body(), "da\xff\nta:");
  base::MutexLock lock(log_->mu);
  EXPECT_EQ(log_->status, 429);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"Content-Type", "text/event-stream"},
      {"Retry-After", "1"},
      {"Connection", "X-Mine"},
      {"X-Mine", "1"},
      {"Transfer-Encoding", "chunked"}};
  EXPECT_EQ(log_->headers.entries(), expected);
  EXPECT_TRUE(log_->on_loop);
  EXPECT_EQ(log_->ends, 1);
}

TEST_F(PlaneHttp, RequestsThatAKeptConnectionLostAreCounted) {
  RawServer engine;
  Submit(To(engine));
  auto first = engine.Accept();
  first.ReadRequest();
  first.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(plane_.repeated_requests(), 0u);
  Submit(To(engine));
  ASSERT_NE(first.ReadRequest(), "");
  first.Close();
  auto second = engine.Accept();
  second.ReadRequest();
  second.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(Failure(), "");
  EXPECT_EQ(plane_.repeated_requests(), 1u);
}

TEST_F(PlaneHttp, KeepsConnectionsPerLoop) {
  RawServer engine;
  Submit(To(engine), 0);
  auto first = engine.Accept();
  for (int i = 0; i < 3; ++i) {
    first.ReadRequest();
    first.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    ASSERT_TRUE(Ended());
    Submit(To(engine), 0);
  }
  first.ReadRequest();
  first.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  EXPECT_TRUE(engine.NobodyWaits());
  Submit(To(engine), 1);
  auto second = engine.Accept();
  second.ReadRequest();
  second.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  base::MutexLock lock(log_->mu);
  EXPECT_TRUE(log_->on_loop);
}

TEST_F(PlaneHttp, SaysHowFarAFailedCallHadGot) {
  {
    gateway::EngineRequest request;
    {
      RawServer gone;
      request = To(gone);
    }
    Submit(std::move(request));
    ASSERT_TRUE(Ended());
    EXPECT_EQ(Failure(), "unavailable, not sent");
  }
  {
    RawServer engine;
    Submit(To(engine));
    auto peer = engine.Accept();
    peer.ReadRequest();
    peer.Close();
    ASSERT_TRUE(Ended());
    EXPECT_EQ(Failure(), "unavailable, sent");
  }
  {
    RawServer engine;
    Submit(To(engine));
    auto peer = engine.Accept();
    peer.ReadRequest();
    peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    peer.Close();
    ASSERT_TRUE(Ended());
    EXPECT_EQ(Failure(), "unavailable, answering");
  }
  {
    RawServer engine;
    Submit(To(engine));
    auto peer = engine.Accept();
    peer.ReadRequest();
    ASSERT_TRUE(Ended());
    EXPECT_EQ(Failure(), "timeout, sent") << "longer silent than idle_timeout";
  }
}

TEST_F(PlaneHttp, AnInstanceThatIsNoAddressIsAnError) {
  for (const char* name : {"", "engine", "engine:0", "http://engine:80"}) {
    gateway::EngineRequest request;
    request.instance = name;
    Submit(std::move(request));
    ASSERT_TRUE(Ended()) << name;
    EXPECT_EQ(Failure(), "invalid_argument, not sent") << name;
  }
}

TEST_F(PlaneHttp, ALoopOfAnotherPoolIsAnError) {
  http::EventLoopPool other(1);
  std::atomic<int> errors{0};
  RunOn(other.loop(0), [&] {
    gateway::EngineHandlers handlers;
    handlers.on_error = [&](const base::Error& error, EngineStage) {
      EXPECT_EQ(error.code, base::ErrorCode::kInternal);
      ++errors;
    };
    plane_.Submit(other.loop(0), {}, std::move(handlers));
  });
  EXPECT_TRUE(WaitFor("the error", [&] { return errors == 1; }));
}

TEST_F(PlaneHttp, CancelTellsTheEngineAtOnceAndNothingIsCalledAfterwards) {
  RawServer engine;
  const auto call = Submit(To(engine));
  auto peer = engine.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
  ASSERT_TRUE(WaitFor("the stream has begun", [&] {
    base::MutexLock lock(log_->mu);
    return log_->body == "x";
  }));
  RunOn(pool_.loop(0), [&] { call->Cancel(); });
  EXPECT_TRUE(peer.WaitForEnd());
  RunOn(pool_.loop(0), [&] { call->Cancel(); });
  base::MutexLock lock(log_->mu);
  EXPECT_EQ(log_->ends, 0);
  EXPECT_FALSE(log_->error);
}

TEST_F(PlaneHttp, CancelOfARefusedCallSilencesIt) {
  gateway::EngineRequest request;
  request.instance = "nowhere";
  std::atomic<int> errors{0};
  gateway::EngineHandlers handlers;
  handlers.on_error = [&](const base::Error&, EngineStage) { ++errors; };
  RunOn(pool_.loop(0),
        [&] { plane_.Submit(pool_.loop(0), std::move(request), std::move(handlers))->Cancel(); });
  RunOn(pool_.loop(0), [] {});
  EXPECT_EQ(errors, 0);
}

}  // namespace
}  // namespace xms::plane_http
