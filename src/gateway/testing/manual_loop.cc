#include "gateway/testing/manual_loop.h"

#include <algorithm>
#include <utility>

namespace xms::gateway::testing {

class ManualLoop::Handle final : public http::EventLoop::Timer {
 public:
  explicit Handle(std::shared_ptr<Entry> entry) : entry_(std::move(entry)) {}
  ~Handle() override { entry_->work = nullptr; }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

 private:
  std::shared_ptr<Entry> entry_;
};

std::unique_ptr<http::EventLoop::Timer> ManualLoop::PostAfter(std::chrono::milliseconds delay,
                                                              std::function<void()> work) {
  auto entry = std::make_shared<Entry>(Entry{now_ + delay, std::move(work)});
  entries_.push_back(entry);
  return std::make_unique<Handle>(std::move(entry));
}

void ManualLoop::RunPosted() {
  while (!posted_.empty()) {
    auto work = std::move(posted_.front());
    posted_.pop_front();
    work();
  }
}

void ManualLoop::Advance(std::chrono::milliseconds by) {
  const auto until = now_ + by;
  for (;;) {
    std::erase_if(entries_, [](const auto& entry) { return entry->work == nullptr; });
    const auto next =
        std::min_element(entries_.begin(), entries_.end(),
                         [](const auto& a, const auto& b) { return a->due < b->due; });
    if (next == entries_.end() || (*next)->due > until) break;
    now_ = (*next)->due;
    std::exchange((*next)->work, nullptr)();
    RunPosted();
  }
  now_ = until;
  RunPosted();
}

std::size_t ManualLoop::timers() const {
  return static_cast<std::size_t>(std::count_if(
      entries_.begin(), entries_.end(), [](const auto& entry) { return entry->work != nullptr; }));
}

}  // namespace xms::gateway::testing
