// UnreachableMemory: which instances could not be reached a moment ago, so that the next requests
// need not find out again, each at the price of a connection timeout.
//
// Place       One per Core. RequestRouter asks before it chooses, ProxyCall tells what happened.
// Threads     Any. No lock while nothing is remembered, which is the usual state.
// Rules       An instance that could not be reached pauses for kFirstPause, twice as long after
//             each further failure, kLongestPause at most. After its pause one request (whoever
//             claims it) finds out; until that is known, which takes no longer than a connection
//             attempt, or kLongestPause has passed, it pauses for the others. It is forgotten as
//             soon as a request is on its way to it, and when it is removed or another process has
//             its name. A pause is advice: when nobody else can take a request, the router asks
//             instances that pause.
// Bounds      kMaxInstances; what has not been asked for kForgotten after its pause is dropped.
// Proof       GatewayUnreachableMemory*, GatewayProxy*.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "instances/instance_view.h"
#include "model/instance.h"

namespace xms::gateway {

// The process that had a name then has it now, as far as anybody can tell.
inline bool IsStill(const model::ProcessIdentity& now, const model::ProcessIdentity& then) {
  return now == then || now.SameProcess(then);
}

class UnreachableMemory {
 public:
  static constexpr std::chrono::seconds kFirstPause{1};
  static constexpr std::chrono::seconds kLongestPause{5};
  static constexpr std::chrono::seconds kForgotten{60};
  static constexpr std::size_t kMaxInstances = 1024;

  // Who of those in the view pauses now, in `out`.
  void Paused(const instances::InstanceView& view, base::SteadyTime now,
              std::vector<std::string>& out);
  // True: a request may go there, and if its pause has just ended, this is the one that finds out.
  bool Claim(std::string_view instance, base::SteadyTime now);

  // `instance`: as it was when the request was routed to it.
  void OnUnreachable(const model::InstanceRecord& instance, base::SteadyTime now);
  void OnReached(std::string_view instance);
  void OnInstancesChanged(const instances::InstanceView& view);

 private:
  struct Entry {
    model::ProcessIdentity identity;
    base::SteadyTime until;
    std::chrono::seconds pause = kFirstPause;
    bool claimed = false;  // a request is finding out
  };

  void CountEntries() XMS_REQUIRES(mu_) { count_.store(entries_.size()); }
  void ForgetOthers(const instances::InstanceView& view) XMS_REQUIRES(mu_);

  base::Mutex mu_;
  std::map<std::string, Entry, std::less<>> entries_ XMS_GUARDED_BY(mu_);
  std::atomic<std::size_t> count_{0};  // of entries_
};

}  // namespace xms::gateway
