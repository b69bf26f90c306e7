// LiveCalls: the client requests in flight, so that a service that stops can end them with a word.
//
// Place       One per Core. ProxyCall enters at its beginning and leaves when it is accounted for.
// Threads     Enter, Leave: the loop's own thread. EndAll: any.
// Locks       One list a loop, each with its own lock: only EndAll, once a service's life, ever
//             meets a loop there. Loops beyond kLists share lists with others.
// Failure     None.
// Proof       GatewayLiveCalls*, under tsan.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <unordered_map>

#include "base/mutex.h"
#include "http/event_loop.h"

namespace xms::gateway {

class LiveCalls {
 public:
  using Key = const void*;
  static constexpr std::size_t kLists = 64;

  // `end` is kept until Leave and runs without a lock held, at most once.
  void Enter(const http::EventLoop& loop, Key call, std::function<void()> end);
  void Leave(const http::EventLoop& loop, Key call);
  void EndAll();

 private:
  struct alignas(64) List {
    std::atomic<const http::EventLoop*> owner{nullptr};  // set once
    base::Mutex mu;
    std::unordered_map<Key, std::function<void()>> calls XMS_GUARDED_BY(mu);
  };
  List& Of(const http::EventLoop& loop);

  std::array<List, kLists> lists_;
};

}  // namespace xms::gateway
