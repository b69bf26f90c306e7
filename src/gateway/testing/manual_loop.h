// ManualLoop: an event loop that runs when a test says so.
//
// Threads     The test's thread only.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "http/event_loop.h"

namespace xms::gateway::testing {

class ManualLoop final : public http::EventLoop {
 public:
  void Post(std::function<void()> work) override { posted_.push_back(std::move(work)); }
  [[nodiscard]] std::unique_ptr<Timer> PostAfter(std::chrono::milliseconds delay,
                                                 std::function<void()> work) override;
  bool OnThisThread() const override { return true; }

  // Runs what was posted, and what that posts, until nothing is left.
  void RunPosted();
  // Time passes; timers that are due run, earliest first, and what they post.
  void Advance(std::chrono::milliseconds by);
  // Timers that still wait.
  std::size_t timers() const;

 private:
  struct Entry {
    std::chrono::milliseconds due{};
    std::function<void()> work;  // empty: cancelled or run
  };
  class Handle;

  std::chrono::milliseconds now_{0};
  std::deque<std::function<void()>> posted_;
  std::vector<std::shared_ptr<Entry>> entries_;
};

}  // namespace xms::gateway::testing
