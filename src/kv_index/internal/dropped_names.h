// DroppedNames: hashes of this life whose mappings had to give way (C2), so that a child of one is not
// taken for a sign of lost events (B5).
//
// Place       StreamLedger alone.
// Shape       A ring of 32-bit fingerprints, written in order and searched from end to end: adding is
//             what every eviction does, asking is for a store whose parent is nowhere else.
// Threads     One at a time.
// Invariants  The last `most` names that were added are remembered, and no others.
// Failure     A name that was never added is found once in 2^32 / most questions: then an orphan is
//             opaque instead of unknown.
// Cost        Add: the next four bytes of the ring. Has: four bytes for each name. Memory: four bytes
//             for each name, at most twice that while it grows; nothing before the first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/ids.h"

namespace xms::kv_index::internal {

class DroppedNames {
 public:
  DroppedNames(std::uint64_t salt, std::size_t most) : salt_(salt), most_(most) {}

  std::size_t bytes() const { return ring_.capacity() * sizeof(std::uint32_t); }

  void Add(model::WireHash wire) {
    if (ring_.size() < most_) {
      ring_.push_back(PrintOf(wire));
      return;
    }
    ring_[oldest_] = PrintOf(wire);
    oldest_ = oldest_ + 1 == most_ ? 0 : oldest_ + 1;
  }

  bool Has(model::WireHash wire) const {
    return std::find(ring_.begin(), ring_.end(), PrintOf(wire)) != ring_.end();
  }

  void Clear() {
    ring_ = std::vector<std::uint32_t>();
    oldest_ = 0;
  }

 private:
  std::uint32_t PrintOf(model::WireHash wire) const {
    return static_cast<std::uint32_t>(((wire.value ^ salt_) * 0x9E3779B97F4A7C15u) >> 32);
  }

  const std::uint64_t salt_;
  const std::size_t most_;
  std::vector<std::uint32_t> ring_;
  std::size_t oldest_ = 0;  // once the ring is full
};

}  // namespace xms::kv_index::internal
