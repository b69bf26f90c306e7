// FakeExchange: a client's request whose answer is recorded.
//
// Threads     The test's thread only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gateway/testing/manual_loop.h"
#include "http/server.h"

namespace xms::gateway::testing {

class FakeExchange final : public http::Exchange {
 public:
  FakeExchange(ManualLoop& loop, http::Request request)
      : loop_(loop), request_(std::move(request)) {}

  const http::Request& request() const override { return request_; }
  http::EventLoop& loop() override { return loop_; }
  void Send(http::Response response) override;
  void StartStream(int status, http::Headers headers) override;
  void Write(std::string chunk, std::function<void(bool)> done) override;
  void Finish() override;
  void Abort() override;
  void OnDisconnect(std::function<void()> gone) override { gone_ = std::move(gone); }

  // The client leaves: writes that wait fail, and whoever asked is told.
  void Leave();
  // A client that reads slowly: writes wait until Take.
  void HoldWrites() { holding_ = true; }
  void Take();

  // What the client has seen. `status` 0: nothing yet.
  int status = 0;
  http::Headers headers;
  std::string body;
  std::size_t writes = 0;
  bool finished = false;  // complete
  bool aborted = false;   // cut
  bool streamed = false;

 private:
  ManualLoop& loop_;
  const http::Request request_;
  std::function<void()> gone_;
  bool holding_ = false;
  bool left_ = false;
  std::function<void(bool)> held_;
};

}  // namespace xms::gateway::testing
