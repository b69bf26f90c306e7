#include "gateway/live_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gateway/testing/manual_loop.h"

namespace xms::gateway {
namespace {

TEST(GatewayLiveCalls, EndAllEndsWhatHasEnteredAndNotLeftOnce) {
  LiveCalls calls;
  testing::ManualLoop one;
  testing::ManualLoop other;
  int ended[3] = {};
  for (int i = 0; i < 3; ++i) calls.Enter(i == 2 ? other : one, &ended[i], [&, i] { ++ended[i]; });
  calls.Leave(one, &ended[0]);
  calls.EndAll();
  calls.EndAll();
  EXPECT_EQ(ended[0], 0);
  EXPECT_EQ(ended[1], 1);
  EXPECT_EQ(ended[2], 1);
  calls.Leave(one, &ended[1]);  // as each does once it has ended
}

// More loops than lists share them, and none is lost.
TEST(GatewayLiveCalls, AnyNumberOfLoopsIsServed) {
  LiveCalls calls;
  std::vector<std::unique_ptr<testing::ManualLoop>> loops;
  std::size_t ended = 0;
  for (std::size_t i = 0; i < 2 * LiveCalls::kLists; ++i) {
    loops.push_back(std::make_unique<testing::ManualLoop>());
    calls.Enter(*loops.back(), loops.back().get(), [&] { ++ended; });
  }
  for (std::size_t i = 0; i < loops.size(); i += 2) calls.Leave(*loops[i], loops[i].get());
  calls.EndAll();
  EXPECT_EQ(ended, LiveCalls::kLists);
}

TEST(GatewayLiveCalls, LoopsAndTheEndMeetWithoutHarm) {
  constexpr int kLoops = 4;
  constexpr int kRounds = 2000;
  LiveCalls calls;
  testing::ManualLoop loops[kLoops];
  std::atomic<int> ended{0};
  std::atomic<int> ready{0};
  std::vector<std::jthread> threads;
  for (auto& loop : loops) {
    threads.emplace_back([&] {
      int keys[8];
      for (int round = 0; round < kRounds; ++round) {
        const int* key = &keys[round % 8];
        calls.Enter(loop, key, [&] { ++ended; });
        if (round == kRounds / 2) ++ready;
        calls.Leave(loop, key);
      }
      calls.Enter(loop, keys, [&] { ++ended; });
      ++ready;
    });
  }
  while (ready.load() < 1) std::this_thread::yield();
  calls.EndAll();
  threads.clear();  // joins
  const int early = ended.load();
  calls.EndAll();
  const int late = ended.load() - early;
  // Each loop's last call ends exactly once, in whichever round it was there.
  EXPECT_GE(ended.load(), kLoops);
  EXPECT_LE(late, kLoops);
  calls.EndAll();
  EXPECT_EQ(ended.load(), early + late);
}

}  // namespace
}  // namespace xms::gateway
