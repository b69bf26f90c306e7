// ServerHarness: an HttpServer on a free loopback port whose requests a test answers itself or
// leaves to fixed routes.
//
// Threads     The handler runs on the loops; NextHeld and everything else: the test's thread.
// Routes      /echo   answered at once: method, target and body, one a line
//             /size   answered at once: number of body bytes
//             /drop   never answered: the exchange is destroyed
//             other   held for NextHeld
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "http/server.h"
#include "tests/support/wait_for.h"

namespace xms::http::testing {

class ServerHarness {
 public:
  explicit ServerHarness(ServerOptions options = {}, std::size_t loops = 2)
      : pool_(loops),
        server_(pool_, std::move(options),
                [this](std::shared_ptr<Exchange> exchange) { Handle(std::move(exchange)); }) {
    const base::Status status = server_.Start();
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  ~ServerHarness() {
    // Held exchanges point to the pool.
    base::MutexLock lock(mu_);
    held_.clear();
  }

  std::uint16_t port() const { return server_.port(); }
  HttpServer& server() { return server_; }
  EventLoopPool& pool() { return pool_; }
  int requests() const { return requests_.load(); }

  // The next request that no route answered.
  std::shared_ptr<Exchange> NextHeld() {
    std::shared_ptr<Exchange> exchange;
    EXPECT_TRUE(xms::testing::WaitFor("a request is held", [&] {
      base::MutexLock lock(mu_);
      if (held_.empty()) return false;
      exchange = std::move(held_.front());
      held_.pop_front();
      return true;
    }));
    return exchange;
  }
  bool HoldsNone() {
    base::MutexLock lock(mu_);
    return held_.empty();
  }

 private:
  void Handle(std::shared_ptr<Exchange> exchange) {
    ++requests_;
    const Request& request = exchange->request();
    if (request.path() == "/drop") return;
    if (request.path() == "/echo") {
      Response response;
      response.body = request.method + "\n" + request.target + "\n" + request.body;
      exchange->Send(std::move(response));
      return;
    }
    if (request.path() == "/size") {
      Response response;
      response.body = std::to_string(request.body.size());
      exchange->Send(std::move(response));
      return;
    }
    base::MutexLock lock(mu_);
    held_.push_back(std::move(exchange));
  }

  EventLoopPool pool_;
  std::atomic<int> requests_{0};
  base::Mutex mu_;
  std::deque<std::shared_ptr<Exchange>> held_ XMS_GUARDED_BY(mu_);
  HttpServer server_;  // stops before what the handler uses goes away
};

// Runs `work` on the loop and waits for its end.
inline void RunOn(EventLoop& loop, const std::function<void()>& work) {
  std::promise<void> done;
  loop.Post([&] {
    work();
    done.set_value();
  });
  ASSERT_EQ(done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready)
      << "the loop does not come round";
}

// What a Write's `done` said: -1 not yet, 0 gone, 1 written.
class WriteResult {
 public:
  std::function<void(bool)> Callback() {
    return [state = state_](bool ok) { state->store(ok ? 1 : 0); };
  }
  int value() const { return state_->load(); }

 private:
  std::shared_ptr<std::atomic<int>> state_ = std::make_shared<std::atomic<int>>(-1);
};

inline std::string Get(const std::string& target, const std::string& more_headers = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: test\r\n" + more_headers + "\r\n";
}

}  // namespace xms::http::testing
