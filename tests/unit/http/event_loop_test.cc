#include "http/event_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/wait_for.h"

namespace xms::http {
namespace {

using namespace std::chrono_literals;
using xms::testing::WaitFor;

// Runs `work` on the loop and waits for its end.
void RunOn(EventLoop& loop, const std::function<void()>& work) {
  std::promise<void> done;
  loop.Post([&] {
    work();
    done.set_value();
  });
  ASSERT_EQ(done.get_future().wait_for(20s), std::future_status::ready);
}

TEST(HttpEventLoop, RunsPostedWorkInOrderOnItsOwnThread) {
  EventLoopPool pool(2);
  std::vector<int> order;
  bool on_thread = true;
  bool on_other = false;
  for (int i = 0; i < 1000; ++i) {
    pool.loop(0).Post([&, i] {
      order.push_back(i);
      on_thread = on_thread && pool.loop(0).OnThisThread();
      on_other = on_other || pool.loop(1).OnThisThread();
    });
  }
  RunOn(pool.loop(0), [] {});
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(order[i], i);
  EXPECT_TRUE(on_thread);
  EXPECT_FALSE(on_other);
  EXPECT_FALSE(pool.loop(0).OnThisThread());
}

TEST(HttpEventLoop, PostedFromWithinRunsLaterNotNested) {
  EventLoopPool pool(1);
  std::vector<int> order;
  RunOn(pool.loop(0), [&] {
    pool.loop(0).Post([&] { order.push_back(2); });
    order.push_back(1);
  });
  RunOn(pool.loop(0), [] {});
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(HttpEventLoop, TakesWorkFromManyThreads) {
  EventLoopPool pool(1);
  int sum = 0;  // the loop's thread only
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 2000; ++i) pool.loop(0).Post([&] { ++sum; });
      });
    }
  }
  RunOn(pool.loop(0), [] {});
  EXPECT_EQ(sum, 8000);
}

TEST(HttpEventLoop, NextGoesRound) {
  EventLoopPool pool(3);
  std::vector<EventLoop*> seen;
  for (int i = 0; i < 6; ++i) seen.push_back(&pool.Next());
  EXPECT_EQ(std::set<EventLoop*>(seen.begin(), seen.begin() + 3).size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(seen[i], seen[i + 3]);
}

TEST(HttpEventLoop, TimersFireInOrderOfTheirDelayAndNotBefore) {
  EventLoopPool pool(1);
  std::vector<int> order;
  std::atomic<int> fired{0};
  const auto start = std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration earliest{};
  const auto late = pool.loop(0).PostAfter(60ms, [&] {
    order.push_back(2);
    ++fired;
  });
  const auto early = pool.loop(0).PostAfter(20ms, [&] {
    earliest = std::chrono::steady_clock::now() - start;
    order.push_back(1);
    ++fired;
  });
  ASSERT_TRUE(WaitFor("both timers fire", [&] { return fired == 2; }));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_GE(earliest, 20ms);
}

// The promise callers build on: destroyed on the loop, the work does not run, even when it is due
// already.
TEST(HttpEventLoop, TimerDestroyedOnItsLoopNeverFires) {
  EventLoopPool pool(1);
  bool fired = false;
  RunOn(pool.loop(0), [&] {
    auto due = pool.loop(0).PostAfter(0ms, [&] { fired = true; });
    const auto until = std::chrono::steady_clock::now() + 5ms;
    while (std::chrono::steady_clock::now() < until) {
    }
    due.reset();
  });
  std::atomic<bool> later{false};
  const auto proof = pool.loop(0).PostAfter(20ms, [&] { later = true; });
  ASSERT_TRUE(WaitFor("a later timer fires", [&] { return later.load(); }));
  RunOn(pool.loop(0), [&] { EXPECT_FALSE(fired); });
}

TEST(HttpEventLoop, TimerDestroyedOnAnotherThreadLetsGoOfItsWork) {
  EventLoopPool pool(1);
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owned;
  auto timer = pool.loop(0).PostAfter(1h, [owned = std::move(owned)] {});
  RunOn(pool.loop(0), [] {});
  ASSERT_FALSE(watch.expired());
  timer.reset();
  EXPECT_TRUE(WaitFor("the cancelled work is destroyed", [&] { return watch.expired(); }));
}

TEST(HttpEventLoop, TimerMayDestroyItselfWhenItFires) {
  EventLoopPool pool(1);
  std::unique_ptr<EventLoop::Timer> timer;
  std::promise<void> fired;
  RunOn(pool.loop(0), [&] {
    timer = pool.loop(0).PostAfter(1ms, [&] {
      timer.reset();
      fired.set_value();
    });
  });
  EXPECT_EQ(fired.get_future().wait_for(20s), std::future_status::ready);
}

TEST(HttpEventLoop, StopLetsGoOfAllWorkAndLaterWorkNeverRuns) {
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owned;
  EventLoopPool pool(1);
  const auto timer = pool.loop(0).PostAfter(1h, [owned] {});
  for (int i = 0; i < 100; ++i) pool.loop(0).Post([owned] {});
  pool.Stop();
  EXPECT_EQ(watch.use_count(), 1) << "whether run or dropped, work is gone after Stop";
  bool ran = false;
  pool.loop(0).Post([owned, &ran] { ran = true; });
  const auto late = pool.loop(0).PostAfter(0ms, [owned, &ran] { ran = true; });
  pool.Stop();
  EXPECT_FALSE(ran);
  EXPECT_EQ(watch.use_count(), 1);
}

TEST(HttpEventLoop, TimerMayOutliveThePool) {
  std::unique_ptr<EventLoop::Timer> timer;
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owned;
  {
    EventLoopPool pool(1);
    timer = pool.loop(0).PostAfter(1h, [owned = std::move(owned)] {});
    RunOn(pool.loop(0), [] {});
  }
  EXPECT_TRUE(watch.expired());
  timer.reset();
}

// Timers made and destroyed from several threads at once: for ThreadSanitizer.
TEST(HttpEventLoop, TimersFromManyThreadsAreSafe) {
  EventLoopPool pool(2);
  std::atomic<int> fired{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::vector<std::unique_ptr<EventLoop::Timer>> kept;
        for (int i = 0; i < 300; ++i) {
          kept.push_back(
              pool.loop(t % 2).PostAfter(std::chrono::milliseconds(i % 3), [&] { ++fired; }));
          if (i % 2 == 0) kept.pop_back();
        }
        EXPECT_TRUE(WaitFor("timers fire", [&] { return fired > 0; }));
      });
    }
  }
  pool.Stop();
  EXPECT_LE(fired.load(), 1200);
}

}  // namespace
}  // namespace xms::http
