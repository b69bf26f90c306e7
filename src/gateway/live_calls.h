// LiveCalls: the client requests in flight, so that a service that stops can end them with a word.
//
// Place       One per Core. ProxyCall enters at its beginning and leaves when it is accounted for.
// Threads     Any.
// Failure     None.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "base/mutex.h"

namespace xms::gateway {

class LiveCalls {
 public:
  using Key = const void*;

  // `end` is kept until Leave and runs without the lock held, at most once.
  void Enter(Key call, std::function<void()> end) {
    base::MutexLock lock(mu_);
    calls_[call] = std::move(end);
  }
  void Leave(Key call) {
    std::function<void()> dropped;  // outside the lock: it may own the call
    base::MutexLock lock(mu_);
    const auto found = calls_.find(call);
    if (found == calls_.end()) return;
    dropped = std::move(found->second);
    calls_.erase(found);
  }
  void EndAll() {
    std::vector<std::function<void()>> ends;
    {
      base::MutexLock lock(mu_);
      for (auto& [call, end] : calls_) ends.push_back(std::move(end));
      calls_.clear();
    }
    for (const auto& end : ends) end();
  }

 private:
  base::Mutex mu_;
  std::map<Key, std::function<void()>> calls_ XMS_GUARDED_BY(mu_);
};

}  // namespace xms::gateway
