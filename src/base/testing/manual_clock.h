// ManualClock: a clock that moves when a test says so.
//
// Threads     Any; both times are atomics.
#pragma once

#include <atomic>
#include <chrono>

#include "base/clock.h"

namespace xms::base::testing {

class ManualClock final : public Clock {
 public:
  // Starts well after zero, so that "earlier than now" can be written down.
  SteadyTime Now() const override { return SteadyTime(Duration(ticks_.load())); }
  std::int64_t WallMs() const override { return wall_ms_.load(); }

  void Advance(std::chrono::milliseconds by) {
    ticks_ += std::chrono::duration_cast<Duration>(by).count();
    wall_ms_ += by.count();
  }

 private:
  std::atomic<Duration::rep> ticks_{
      std::chrono::duration_cast<Duration>(std::chrono::hours(1)).count()};
  std::atomic<std::int64_t> wall_ms_{1'760'000'000'000};
};

}  // namespace xms::base::testing
