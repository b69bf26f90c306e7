#include "gateway/unreachable_memory.h"

#include <algorithm>

namespace xms::gateway {

void UnreachableMemory::Paused(const instances::InstanceView& view, base::SteadyTime now,
                               std::vector<std::string>& out) {
  out.clear();
  if (count_.load() == 0) return;
  base::MutexLock lock(mu_);
  std::erase_if(entries_,
                [now](const auto& known) { return now >= known.second.until + kForgotten; });
  ForgetOthers(view);  // a failure may be told after the change that made it history
  for (const auto& [instance, entry] : entries_) {
    if (now < entry.until) out.push_back(instance);
  }
}

void UnreachableMemory::OnInstancesChanged(const instances::InstanceView& view) {
  if (count_.load() == 0) return;
  base::MutexLock lock(mu_);
  ForgetOthers(view);
}

void UnreachableMemory::ForgetOthers(const instances::InstanceView& view) {
  std::erase_if(entries_, [&view](const auto& known) {
    const instances::Instance* const now = view.Find(known.first);
    return now == nullptr || !IsStill(now->record.identity, known.second.identity);
  });
  CountEntries();
}

bool UnreachableMemory::Claim(std::string_view instance, base::SteadyTime now) {
  if (count_.load() == 0) return true;
  base::MutexLock lock(mu_);
  const auto known = entries_.find(instance);
  if (known == entries_.end()) return true;
  Entry& entry = known->second;
  if (now < entry.until) return false;
  entry.claimed = true;
  entry.until = now + kLongestPause;
  return true;
}

void UnreachableMemory::OnUnreachable(const model::InstanceRecord& instance, base::SteadyTime now) {
  base::MutexLock lock(mu_);
  const auto known = entries_.find(instance.id.name);
  if (known == entries_.end()) {
    if (entries_.size() >= kMaxInstances) return;
    entries_.emplace(instance.id.name,
                     Entry{.identity = instance.identity, .until = now + kFirstPause});
    CountEntries();
    return;
  }
  Entry& entry = known->second;
  if (!IsStill(instance.identity, entry.identity)) {
    entry = {.identity = instance.identity, .until = now + kFirstPause};
    return;
  }
  // Requests that had set out before the pause add nothing to what is known.
  if (now < entry.until && !entry.claimed) return;
  entry.pause = std::min(2 * entry.pause, kLongestPause);
  entry.until = now + entry.pause;
  entry.claimed = false;
}

void UnreachableMemory::OnReached(std::string_view instance) {
  if (count_.load() == 0) return;
  base::MutexLock lock(mu_);
  if (const auto known = entries_.find(instance); known != entries_.end()) entries_.erase(known);
  CountEntries();
}

}  // namespace xms::gateway
