// PrefixRun: which streams still hold every block of a prompt so far, and what they held.
//
// Place       Filled by PrefixView::Run, read by KvIndex::Match. A plain value on one thread's stack.
// Cost        A block costs a few word operations for all streams together; a stream costs something
//             of its own only where its run ends. Host-only blocks are counted in bit slices: plane k
//             holds bit k of every slot's count, so adding one to any set of slots is a ripple of
//             word operations that mostly ends at once.
#pragma once

#include <bit>
#include <cstdint>

#include "kv_index/internal/segment_table.h"

namespace xms::kv_index::internal {

class SlotCounter {
 public:
  void Add(SlotSet slots) {
    for (std::uint32_t k = 0;; ++k) {
      if (k == used_) {
        planes_[used_++] = slots;
        return;
      }
      const SlotSet carry{{planes_[k].word[0] & slots.word[0], planes_[k].word[1] & slots.word[1]}};
      planes_[k].word[0] ^= slots.word[0];
      planes_[k].word[1] ^= slots.word[1];
      if (!carry.Any()) return;
      slots = carry;
    }
  }
  std::uint32_t Of(std::uint32_t slot) const {
    std::uint32_t count = 0;
    for (std::uint32_t k = 0; k < used_; ++k) {
      count |= static_cast<std::uint32_t>(planes_[k].Has(slot)) << k;
    }
    return count;
  }
  bool Any() const { return used_ != 0; }

 private:
  SlotSet planes_[32];  // a prompt has fewer than 2^32 tokens
  std::uint32_t used_ = 0;
};

class PrefixRun {
 public:
  // `slots`: the streams that take part.
  explicit PrefixRun(const SlotSet& slots) : alive_(slots) {}

  SlotSet Missing(const Residency& block) const {
    return {{alive_.word[0] & ~(block.device.word[0] | block.host.word[0]),
             alive_.word[1] & ~(block.device.word[1] | block.host.word[1])}};
  }

  // The next block. False when no stream is left.
  bool Follow(const Residency& block) {
    const SlotSet missing = Missing(block);
    if (missing.Any()) End(missing);
    const SlotSet host_only{
        {alive_.word[0] & ~block.device.word[0], alive_.word[1] & ~block.device.word[1]}};
    if (host_only.Any()) host_only_.Add(host_only);
    ++blocks_;
    return alive_.Any();
  }

  // The prompt ends here for the streams that are left.
  void Finish() { End(alive_); }

  // Blocks of the run of a slot that took part; valid after Finish.
  std::uint32_t Length(std::uint32_t slot) const { return length_[slot]; }
  std::uint32_t HostOnly(std::uint32_t slot) const { return host_only_.Of(slot); }
  bool AnyHostOnly() const { return host_only_.Any(); }

 private:
  void End(const SlotSet& slots) {
    for (std::uint32_t half = 0; half < 2; ++half) {
      for (std::uint64_t left = slots.word[half]; left != 0; left &= left - 1) {
        length_[half * 64 + static_cast<std::uint32_t>(std::countr_zero(left))] = blocks_;
      }
      alive_.word[half] &= ~slots.word[half];
    }
  }

  SlotSet alive_;
  std::uint32_t blocks_ = 0;
  SlotCounter host_only_;
  std::uint32_t length_[128];  // set where a run ends
};

}  // namespace xms::kv_index::internal
