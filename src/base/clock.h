// Clock: time as an argument, so that tests decide what time it is.
//
// Place       Handed to whatever needs time; state machines get time points with their inputs.
// Threads     SystemClock: any thread. testing::ManualClock: any thread.
// Units       Steady time for every interval and deadline; wall time (milliseconds since the Unix
//             epoch) only for what people or other machines read.
#pragma once

#include <chrono>
#include <cstdint>

namespace xms::base {

using SteadyTime = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual SteadyTime Now() const = 0;
  virtual std::int64_t WallMs() const = 0;
};

class SystemClock final : public Clock {
 public:
  SteadyTime Now() const override { return std::chrono::steady_clock::now(); }
  std::int64_t WallMs() const override {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

// Milliseconds between two points, rounded down; negative when `from` is later.
inline std::int64_t MillisBetween(SteadyTime from, SteadyTime to) {
  return std::chrono::floor<std::chrono::milliseconds>(to - from).count();
}

}  // namespace xms::base
