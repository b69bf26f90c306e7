// LoopImpl: the one implementation of EventLoop, for those files of this module that need Asio.
//
// Threads     As EventLoop. context(), scratch(): the loop's own thread, or any while it does not
//             run.
// Ownership   Held by shared_ptr in the pool, so that a Timer can outlive it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "http/event_loop.h"

namespace xms::http::internal {

class LoopImpl final : public EventLoop, public std::enable_shared_from_this<LoopImpl> {
 public:
  LoopImpl();
  ~LoopImpl() override;

  void Post(std::function<void()> work) override;
  std::unique_ptr<Timer> PostAfter(std::chrono::milliseconds delay,
                                   std::function<void()> work) override;
  bool OnThisThread() const override;

  // Until RequestStop; called on the thread that becomes the loop's.
  void Run();
  void RequestStop();
  // After the thread was joined: drops what was posted and every timer, and from now on what is
  // posted.
  void DropWork();
  // True once DropWork has begun: nothing posted will run, and no thread but the caller's touches
  // the loop.
  bool stopped() const;

  boost::asio::io_context& context() { return context_; }
  // For one read, by whoever runs on the loop; its contents do not outlive the caller's turn. Keeps
  // a thousand idle connections from owning a thousand buffers.
  char* scratch() { return scratch_.get(); }
  static constexpr std::size_t kScratchBytes = std::size_t{64} * 1024;

 private:
  struct TimerTask;
  class TimerHandle;

  void RunPosted();
  void Arm(const std::shared_ptr<TimerTask>& task, std::chrono::steady_clock::time_point deadline);
  void Disarm(const std::shared_ptr<TimerTask>& task);

  boost::asio::io_context context_{1};
  std::unique_ptr<char[]> scratch_ = std::make_unique<char[]>(kScratchBytes);
  std::unordered_set<std::shared_ptr<TimerTask>> timers_;  // armed; the loop's thread only
  std::vector<std::function<void()>> running_;             // the loop's thread only

  mutable base::Mutex mu_;
  std::vector<std::function<void()>> posted_ XMS_GUARDED_BY(mu_);
  bool stopped_ XMS_GUARDED_BY(mu_) = false;
};

// Every EventLoop that server and client see comes from a pool.
inline LoopImpl& Impl(EventLoop& loop) { return static_cast<LoopImpl&>(loop); }

}  // namespace xms::http::internal
