// PrefixRun: which streams still hold every block of a prompt so far, and what they held.
//
// Place       Filled by PrefixView::Run for KvIndex::Match. A plain value on one thread's stack.
// Cost        A block costs a few word operations for all streams together; a stream costs something
//             of its own only where its run ends. Host-only blocks are counted in bit slices: plane k
//             holds bit k of every slot's count, so adding one to any set of slots is a ripple of
//             word operations that mostly ends at once.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "kv_index/internal/segment_table.h"
#include "kv_index/kv_index.h"

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
  // `slots`: the streams that take part. Their entries of `out` get their hits, others are not touched.
  PrefixRun(const SlotSet& slots, std::uint32_t block_size, SlotHits& out)
      : slots_(slots), block_size_(block_size), out_(out) {}

  const SlotSet& slots() const { return slots_; }

  // The runs of these slots end after so many blocks, all of them on Device for all that is known yet.
  void End(const SlotSet& slots, std::uint32_t blocks) {
    Fill(out_.device_tokens, slots, blocks * block_size_);
  }
  // The next block of these slots' runs is on Host only.
  void AddHostOnly(const SlotSet& slots) { host_only_.Add(slots); }

  // After all runs have ended.
  void Finish() {
    if (out_.any_host_only) Fill(out_.host_only_tokens, slots_, 0);
    if (!host_only_.Any()) return;
    out_.any_host_only = true;
    ForEachSlot(slots_, [this](std::uint32_t slot) {
      const std::uint32_t tokens = host_only_.Of(slot) * block_size_;
      out_.device_tokens[slot] -= tokens;
      out_.host_only_tokens[slot] = tokens;
    });
  }

 private:
  template <typename Visit>
  static void ForEachSlot(const SlotSet& slots, Visit&& visit) {
    for (std::uint32_t half = 0; half < 2; ++half) {
      for (std::uint64_t left = slots.word[half]; left != 0; left &= left - 1) {
        visit(half * 64 + static_cast<std::uint32_t>(std::countr_zero(left)));
      }
    }
  }

  // Writes `value` at each of these slots, four at a time under a mask: most runs of a match end at
  // the same block.
  static void Fill(std::uint32_t* out, const SlotSet& slots, std::uint32_t value) {
    for (std::uint32_t slot = 0; slot < kMaxSlots; slot += 16) {
      std::uint32_t some = slots.word[slot >> 6] >> (slot & 63) & 0xFFFF;
      for (std::uint32_t* at = out + slot; some != 0; some >>= 4, at += 4) {
        const std::uint32_t* const mask = kLanes[some & 15];
        for (std::uint32_t lane = 0; lane < 4; ++lane) {
          at[lane] = (at[lane] & ~mask[lane]) | (value & mask[lane]);
        }
      }
    }
  }
  static constexpr std::array<std::uint32_t[4], 16> kLanes = [] {
    std::array<std::uint32_t[4], 16> lanes{};
    for (std::uint32_t bits = 0; bits < 16; ++bits) {
      for (std::uint32_t lane = 0; lane < 4; ++lane) {
        lanes[bits][lane] = (bits >> lane & 1) != 0 ? UINT32_MAX : 0;
      }
    }
    return lanes;
  }();

  const SlotSet slots_;
  const std::uint32_t block_size_;
  SlotHits& out_;
  SlotCounter host_only_;
};

}  // namespace xms::kv_index::internal
