#include "http/event_loop.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "base/str_cat.h"
#include "base/thread_name.h"
#include "http/internal/loop.h"

namespace xms::http {
namespace internal {
namespace {

thread_local const LoopImpl* current_loop = nullptr;

using AsioTimer =
    boost::asio::basic_waitable_timer<std::chrono::steady_clock,
                                      boost::asio::wait_traits<std::chrono::steady_clock>,
                                      boost::asio::io_context::executor_type>;

}  // namespace

struct LoopImpl::TimerTask {
  std::atomic<bool> cancelled{false};
  // Both: the loop's thread only.
  std::function<void()> work;
  std::optional<AsioTimer> timer;
};

class LoopImpl::TimerHandle final : public EventLoop::Timer {
 public:
  TimerHandle(std::weak_ptr<LoopImpl> loop, std::shared_ptr<TimerTask> task)
      : loop_(std::move(loop)), task_(std::move(task)) {}
  ~TimerHandle() override {
    task_->cancelled.store(true);
    const auto loop = loop_.lock();
    if (!loop) return;
    if (loop->OnThisThread()) {
      loop->Disarm(task_);
    } else {
      loop->Post([loop = loop.get(), task = task_] { loop->Disarm(task); });
    }
  }
  TimerHandle(const TimerHandle&) = delete;
  TimerHandle& operator=(const TimerHandle&) = delete;

 private:
  std::weak_ptr<LoopImpl> loop_;
  std::shared_ptr<TimerTask> task_;
};

LoopImpl::LoopImpl() = default;

LoopImpl::~LoopImpl() { DropWork(); }

void LoopImpl::Post(std::function<void()> work) {
  bool wake = false;
  {
    base::MutexLock lock(mu_);
    if (stopped_) return;  // `work` dies after the lock is released
    wake = posted_.empty();
    posted_.push_back(std::move(work));
  }
  if (wake) boost::asio::post(context_, [this] { RunPosted(); });
}

void LoopImpl::RunPosted() {
  {
    base::MutexLock lock(mu_);
    running_.swap(posted_);
  }
  // What this work posts waits for the next turn, so that sockets get theirs.
  for (auto& work : running_) {
    if (context_.stopped()) break;
    std::exchange(work, nullptr)();
  }
  running_.clear();
}

std::unique_ptr<EventLoop::Timer> LoopImpl::PostAfter(std::chrono::milliseconds delay,
                                                      std::function<void()> work) {
  auto task = std::make_shared<TimerTask>();
  auto handle = std::make_unique<TimerHandle>(weak_from_this(), task);
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);  // far from overflow
  const auto deadline =
      std::chrono::steady_clock::now() + std::clamp(delay, std::chrono::milliseconds(0), kLongest);
  if (OnThisThread()) {
    task->work = std::move(work);
    Arm(task, deadline);
  } else {
    // The work travels beside the task, so that it dies if this is dropped while a handle lives.
    Post([this, task, deadline, work = std::move(work)]() mutable {
      task->work = std::move(work);
      Arm(task, deadline);
    });
  }
  return handle;
}

void LoopImpl::Arm(const std::shared_ptr<TimerTask>& task,
                   std::chrono::steady_clock::time_point deadline) {
  if (task->cancelled.load()) {
    task->work = nullptr;
    return;
  }
  task->timer.emplace(context_, deadline);
  timers_.insert(task);
  task->timer->async_wait([this, task](const boost::system::error_code& error) {
    timers_.erase(task);
    if (error || task->cancelled.load()) return;
    task->timer.reset();
    std::exchange(task->work, nullptr)();
  });
}

void LoopImpl::Disarm(const std::shared_ptr<TimerTask>& task) {
  timers_.erase(task);
  task->timer.reset();
  // Moved out first: what the work owns may come back here while it dies.
  const auto work = std::exchange(task->work, nullptr);
}

bool LoopImpl::OnThisThread() const { return current_loop == this; }

void LoopImpl::Run() {
  current_loop = this;
  const auto guard = boost::asio::make_work_guard(context_);
  context_.run();
  current_loop = nullptr;
}

void LoopImpl::RequestStop() { context_.stop(); }

bool LoopImpl::stopped() const {
  base::MutexLock lock(mu_);
  return stopped_;
}

void LoopImpl::DropWork() {
  std::vector<std::function<void()>> posted;
  {
    base::MutexLock lock(mu_);
    stopped_ = true;
    posted.swap(posted_);
  }
  const auto running = std::exchange(running_, {});
  const auto timers = std::exchange(timers_, {});
  for (const auto& task : timers) {
    task->timer.reset();
    const auto work = std::exchange(task->work, nullptr);
  }
}

}  // namespace internal

struct EventLoopPool::Impl {
  std::vector<std::shared_ptr<internal::LoopImpl>> loops;
  std::vector<std::jthread> threads;
  std::atomic<std::size_t> next{0};
};

EventLoopPool::EventLoopPool(std::size_t threads) : impl_(std::make_unique<Impl>()) {
  const std::size_t count = std::max<std::size_t>(threads, 1);
  for (std::size_t i = 0; i < count; ++i)
    impl_->loops.push_back(std::make_shared<internal::LoopImpl>());
  for (std::size_t i = 0; i < count; ++i) {
    impl_->threads.emplace_back([loop = impl_->loops[i].get(), i] {
      base::NameThisThread(base::StrCat("xms-http-", i));
      loop->Run();
    });
  }
}

EventLoopPool::~EventLoopPool() { Stop(); }

std::size_t EventLoopPool::size() const { return impl_->loops.size(); }

EventLoop& EventLoopPool::loop(std::size_t index) { return *impl_->loops.at(index); }

EventLoop& EventLoopPool::Next() { return loop(impl_->next.fetch_add(1) % size()); }

void EventLoopPool::Stop() {
  for (const auto& loop : impl_->loops) loop->RequestStop();
  impl_->threads.clear();  // joins
  for (const auto& loop : impl_->loops) loop->DropWork();
}

}  // namespace xms::http
