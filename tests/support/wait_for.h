// WaitFor: the only way in which a test waits: for a condition, with its reason in the failure.
//
//   ASSERT_TRUE(WaitFor("the stream synchronizes", [&] { return Status().synchronized; }));
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace xms::testing {

template <typename Condition>
::testing::AssertionResult WaitFor(const std::string& what, Condition&& condition,
                                   std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return ::testing::AssertionFailure() << "waited " << limit.count() << " ms in vain: " << what;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return ::testing::AssertionSuccess();
}

}  // namespace xms::testing
