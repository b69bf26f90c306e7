#include "gateway/live_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gateway/testing/manual_loop.h"

namespace xms::gateway {
namespace {

using News = LiveCalls::News;

TEST(GatewayLiveCalls, NewsReachWhoeverHasEnteredAndNotLeft) {
  LiveCalls calls;
  testing::ManualLoop one;
  testing::ManualLoop other;
  std::vector<News> heard[3];
  for (auto& mine : heard) {
    calls.Enter(&mine == &heard[2] ? other : one, &mine,
                [&mine](News news) { mine.push_back(news); });
  }
  calls.Leave(one, &heard[0]);
  calls.Tell(News::kInstancesChanged);
  calls.Leave(one, &heard[1]);
  calls.Tell(News::kServiceStops);
  EXPECT_TRUE(heard[0].empty());
  EXPECT_EQ(heard[1], std::vector{News::kInstancesChanged});
  EXPECT_EQ(heard[2], (std::vector{News::kInstancesChanged, News::kServiceStops}));
}

// More loops than lists share them, and none is lost.
TEST(GatewayLiveCalls, AnyNumberOfLoopsIsServed) {
  LiveCalls calls;
  std::vector<std::unique_ptr<testing::ManualLoop>> loops;
  std::size_t ended = 0;
  for (std::size_t i = 0; i < 2 * LiveCalls::kLists; ++i) {
    loops.push_back(std::make_unique<testing::ManualLoop>());
    calls.Enter(*loops.back(), loops.back().get(), [&](News) { ++ended; });
  }
  for (std::size_t i = 0; i < loops.size(); i += 2) calls.Leave(*loops[i], loops[i].get());
  calls.Tell(News::kServiceStops);
  EXPECT_EQ(ended, LiveCalls::kLists);
}

TEST(GatewayLiveCalls, LoopsAndNewsMeetWithoutHarm) {
  constexpr int kLoops = 4;
  constexpr int kRounds = 2000;
  LiveCalls calls;
  testing::ManualLoop loops[kLoops];
  std::atomic<int> heard{0};
  std::atomic<int> ready{0};
  std::vector<std::jthread> threads;
  for (auto& loop : loops) {
    threads.emplace_back([&] {
      int keys[8];
      for (int round = 0; round < kRounds; ++round) {
        const int* key = &keys[round % 8];
        calls.Enter(loop, key, [&](News) { ++heard; });
        if (round == kRounds / 2) ++ready;
        calls.Leave(loop, key);
      }
      calls.Enter(loop, keys, [&](News) { ++heard; });
    });
  }
  while (ready.load() < 1) std::this_thread::yield();
  calls.Tell(News::kInstancesChanged);
  threads.clear();  // joins
  EXPECT_LE(heard.load(), kLoops);
  heard = 0;
  calls.Tell(News::kServiceStops);
  EXPECT_EQ(heard.load(), kLoops) << "each loop's last call is still there";
}

}  // namespace
}  // namespace xms::gateway
