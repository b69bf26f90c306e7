// StateLog: which changes of a stream's state become lines of the log.
//
// Place       One per stream thread. Retries are paced by themselves, but a publisher can also fault and
//             restore a stream with two batches (D5), as often as he likes.
// Threads     The stream's.
// Invariants  At most kBurst lines at once and one in kInterval after that. What was held back is
//             counted, and the latest of it is written when its time comes: the last line tells how the
//             stream is.
// Proof       KVDirectoryStateLog*.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"

namespace xms::kv_directory {

class StateLog {
 public:
  static constexpr int kBurst = 10;
  static constexpr std::chrono::seconds kInterval{5};

  struct Line {
    bool synchronized = false;
    std::string text;
  };

  // The line to write now, if any.
  std::optional<Line> Change(bool synchronized, const std::string& text, base::SteadyTime now);
  // What was held back and is due.
  std::optional<Line> Due(base::SteadyTime now);
  // When Due has something to say.
  base::SteadyTime next() const;

 private:
  void Refill(base::SteadyTime now);

  int left_ = kBurst;
  base::SteadyTime refilled_at_{};  // while some are missing
  Line held_;
  std::uint64_t held_count_ = 0;
};

}  // namespace xms::kv_directory
