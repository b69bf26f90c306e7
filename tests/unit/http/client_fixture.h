// HttpClientTest: a client on a loop of its own; what one call says is kept in a log that the test
// reads.
//
// Threads     Callbacks run on the loop; everything of the fixture: the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "http/client.h"
#include "tests/support/wait_for.h"
#include "tests/unit/http/server_harness.h"

namespace xms::http::testing {

// What one call has said so far.
struct Log {
  base::Mutex mu;
  int status XMS_GUARDED_BY(mu) = 0;
  Headers headers XMS_GUARDED_BY(mu);
  std::string body XMS_GUARDED_BY(mu);
  int chunks XMS_GUARDED_BY(mu) = 0;
  int sent XMS_GUARDED_BY(mu) = 0;                  // times that the request went out
  std::function<void()> resume XMS_GUARDED_BY(mu);  // when chunks are held
  int ends XMS_GUARDED_BY(mu) = 0;
  std::optional<base::Error> error XMS_GUARDED_BY(mu);
  CallStage stage XMS_GUARDED_BY(mu) = CallStage::kConnecting;
};

class HttpClientTest : public ::testing::Test {
 protected:
  explicit HttpClientTest(ClientOptions options = {})
      : client_(std::make_unique<HttpClient>(loop(), options)) {}
  ~HttpClientTest() override { DestroyClient(); }

  EventLoop& loop() { return pool_.loop(0); }

  void DestroyClient() {
    RunOn(loop(), [&] { client_.reset(); });
  }

  // Starts a call on the loop. Chunks are taken at once unless `hold`.
  std::shared_ptr<HttpClient::Call> Start(std::uint16_t port, Request request,
                                          CallOptions options = {}, bool hold = false,
                                          const std::string& host = "127.0.0.1") {
    log_ = std::make_shared<Log>();
    CallHandlers handlers;
    handlers.on_sent = [log = log_] {
      base::MutexLock lock(log->mu);
      ++log->sent;
    };
    handlers.on_headers = [log = log_](int status, Headers headers) {
      base::MutexLock lock(log->mu);
      log->status = status;
      log->headers = std::move(headers);
    };
    handlers.on_body = [log = log_, hold](const std::string& chunk,
                                          const std::function<void()>& resume) {
      {
        base::MutexLock lock(log->mu);
        log->body += chunk;
        ++log->chunks;
        if (hold) log->resume = resume;
      }
      if (!hold) resume();
    };
    handlers.on_end = [log = log_] {
      base::MutexLock lock(log->mu);
      ++log->ends;
    };
    handlers.on_error = [log = log_](base::Error error, CallStage stage) {
      base::MutexLock lock(log->mu);
      log->error = std::move(error);
      log->stage = stage;
    };
    std::shared_ptr<HttpClient::Call> call;
    RunOn(loop(), [&] {
      call = client_->Start({host, port}, std::move(request), options, std::move(handlers));
      base::MutexLock lock(log_->mu);
      EXPECT_FALSE(log_->error) << "errors come later, not from inside Start";
    });
    return call;
  }
  std::shared_ptr<HttpClient::Call> Start(std::uint16_t port) { return Start(port, Request{}); }

  ::testing::AssertionResult Ended() {
    return xms::testing::WaitFor("the call ends", [&] {
      base::MutexLock lock(log_->mu);
      return log_->ends > 0 || log_->error.has_value();
    });
  }
  int status() {
    base::MutexLock lock(log_->mu);
    return log_->status;
  }
  std::string body() {
    base::MutexLock lock(log_->mu);
    return log_->body;
  }
  int ends() {
    base::MutexLock lock(log_->mu);
    return log_->ends;
  }
  int sent() {
    base::MutexLock lock(log_->mu);
    return log_->sent;
  }
  int chunks() {
    base::MutexLock lock(log_->mu);
    return log_->chunks;
  }
  std::string header(std::string_view name) {
    base::MutexLock lock(log_->mu);
    const std::string* value = log_->headers.Find(name);
    return value == nullptr ? "" : *value;
  }
  // "" when it went well.
  std::string error() {
    base::MutexLock lock(log_->mu);
    return log_->error
               ? std::string(base::ErrorCodeName(log_->error->code)) + ": " + log_->error->message
               : "";
  }
  CallStage stage() {
    base::MutexLock lock(log_->mu);
    return log_->stage;
  }
  void Resume() {
    RunOn(loop(), [&] {
      std::function<void()> resume;
      {
        base::MutexLock lock(log_->mu);
        resume = std::exchange(log_->resume, nullptr);
      }
      ASSERT_TRUE(resume);
      resume();
      resume();  // the second time means nothing
    });
  }

  EventLoopPool pool_{1};
  std::unique_ptr<HttpClient> client_;
  std::shared_ptr<Log> log_;
};

}  // namespace xms::http::testing
