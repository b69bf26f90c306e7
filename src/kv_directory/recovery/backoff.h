// Backoff: how long to wait before the next attempt. Doubles with jitter, up to a cap.
//
// Threads     Externally synchronised; belongs to one stream.
// Source      Requirement D3: from 50 ms, doubling, at most 5 s, with jitter.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>

#include "base/clock.h"

namespace xms::kv_directory {

class Backoff {
 public:
  using Random = std::mt19937_64;

  Backoff(std::chrono::milliseconds first, std::chrono::milliseconds cap)
      : first_(first), cap_(cap) {}

  // The wait before the next attempt, and one more failure remembered: within [50, 100] ms, then
  // [100, 200], …, then [cap/2, cap] for a first wait of 50 ms.
  base::Duration Next(Random& random) {
    const auto longest = std::min(cap_, first_ * (std::int64_t{2} << std::min(failures_, 20)));
    ++failures_;
    return std::chrono::milliseconds(
        std::uniform_int_distribution<std::int64_t>(longest.count() / 2, longest.count())(random));
  }
  void Reset() { failures_ = 0; }

 private:
  std::chrono::milliseconds first_;
  std::chrono::milliseconds cap_;
  int failures_ = 0;
};

}  // namespace xms::kv_directory
