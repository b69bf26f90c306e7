// EventLoop: one thread that runs posted work, timers and all socket work of what is bound to it.
// EventLoopPool: n of them.
//
// Place       Made by app; http server and client, gateway and planes run on its threads.
// Threads     Post, PostAfter: any thread. Work runs on the loop's own thread, one at a time, so
//             what is bound to one loop needs no lock. Stop: one thread, not a loop's own.
// Ownership   The pool owns loops and threads. Stop() ends and joins them; work not yet run is
//             dropped then, and so is what is posted later.
// Rules       Work never blocks: it would hold up every connection of the loop. It does not throw.
// Proof       HttpEventLoop*.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

namespace xms::http {

class EventLoop {
 public:
  virtual ~EventLoop() = default;
  virtual void Post(std::function<void()> work) = 0;
  // The returned handle cancels the timer when it is destroyed (on any thread) or Cancel()led.
  // Destroyed on the loop's own thread: the work will not run afterwards.
  class Timer {
   public:
    virtual ~Timer() = default;
  };
  [[nodiscard]] virtual std::unique_ptr<Timer> PostAfter(std::chrono::milliseconds delay,
                                                         std::function<void()> work) = 0;
  virtual bool OnThisThread() const = 0;
};

class EventLoopPool {
 public:
  explicit EventLoopPool(std::size_t threads);
  ~EventLoopPool();  // Stop()
  EventLoopPool(const EventLoopPool&) = delete;
  EventLoopPool& operator=(const EventLoopPool&) = delete;

  std::size_t size() const;
  EventLoop& loop(std::size_t index);
  // Round robin.
  EventLoop& Next();
  void Stop();

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace xms::http
