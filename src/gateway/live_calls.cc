#include "gateway/live_calls.h"

#include <utility>
#include <vector>

namespace xms::gateway {

LiveCalls::List& LiveCalls::Of(const http::EventLoop& loop) {
  const std::size_t first = std::hash<const http::EventLoop*>()(&loop) / alignof(List) % kLists;
  for (std::size_t i = 0; i < kLists; ++i) {
    List& list = lists_[(first + i) % kLists];
    const http::EventLoop* owner = list.owner.load();
    if (owner == nullptr && list.owner.compare_exchange_strong(owner, &loop)) return list;
    if (owner == &loop) return list;
  }
  return lists_[first];
}

void LiveCalls::Enter(const http::EventLoop& loop, Key call, Hear hear) {
  List& list = Of(loop);
  auto shared = std::make_shared<const Hear>(std::move(hear));
  base::MutexLock lock(list.mu);
  list.calls[call] = std::move(shared);
}

void LiveCalls::Leave(const http::EventLoop& loop, Key call) {
  List& list = Of(loop);
  std::shared_ptr<const Hear> dropped;  // outside the lock: it may own the call
  base::MutexLock lock(list.mu);
  const auto found = list.calls.find(call);
  if (found == list.calls.end()) return;
  dropped = std::move(found->second);
  list.calls.erase(found);
}

void LiveCalls::Tell(News news) {
  std::vector<std::shared_ptr<const Hear>> all;
  for (List& list : lists_) {
    base::MutexLock lock(list.mu);
    all.reserve(all.size() + list.calls.size());
    for (const auto& [call, hear] : list.calls) all.push_back(hear);
  }
  for (const auto& hear : all) (*hear)(news);
}

}  // namespace xms::gateway
