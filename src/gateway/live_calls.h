// LiveCalls: the client requests in flight, so that they can be told what concerns all of them.
//
// Place       One per Core. ProxyCall enters at its beginning and leaves when it is accounted for.
// Threads     Enter, Leave: the loop's own thread. Tell: any.
// Locks       One list a loop, each with its own lock: only Tell, when instances change and at the
//             end, ever meets a loop there, for as long as it takes to note who is in it. Loops beyond kLists share lists with others.
// Failure     None.
// Proof       GatewayLiveCalls*, under tsan.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "base/mutex.h"
#include "http/event_loop.h"

namespace xms::gateway {

class LiveCalls {
 public:
  using Key = const void*;
  enum class News : std::uint8_t {
    kServiceStops,
    kInstancesChanged,  // who exists, in which state
  };
  using Hear = std::function<void(News)>;
  static constexpr std::size_t kLists = 64;

  // `hear` is kept until Leave, and may run once more while Leave does. It runs on the thread that
  // tells, without a lock held, and must be cheap.
  void Enter(const http::EventLoop& loop, Key call, Hear hear);
  void Leave(const http::EventLoop& loop, Key call);
  // Everybody who has entered before and not left.
  void Tell(News news);

 private:
  struct alignas(64) List {
    std::atomic<const http::EventLoop*> owner{nullptr};  // set once
    base::Mutex mu;
    std::unordered_map<Key, std::shared_ptr<const Hear>> calls XMS_GUARDED_BY(mu);
  };
  List& Of(const http::EventLoop& loop);

  std::array<List, kLists> lists_;
};

}  // namespace xms::gateway
