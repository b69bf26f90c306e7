// IndexState: what a KvIndex and its ledgers share: views, slots, and what is known of each stream.
//
// Place       kv_index.cc (opening, matching, listing) and stream_ledger.cc (publishing).
// Threads     generation, slot_count, views, slots: any thread without waiting. Everything else: under
//             the mutex beside it. Lock order: mu, then one SlotStatus::mu.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/epoch.h"
#include "base/mutex.h"
#include "base/result.h"
#include "kv_index/internal/prefix_view.h"
#include "kv_index/kv_index.h"
#include "model/content_key.h"
#include "model/ids.h"

namespace xms::kv_index::internal {

// All streams of one geometry.
struct View {
  View(std::uint64_t hash_seed, std::uint32_t block_size, std::uint64_t salt)
      : hasher(hash_seed, block_size), blocks(salt) {}

  SlotSet Slots() const {
    return {{slots[0].load(std::memory_order_relaxed), slots[1].load(std::memory_order_relaxed)}};
  }

  const model::BlockHasher hasher;
  PrefixView blocks;
  // The slots of its streams. Changed under IndexState::mu, before the slot's generation is published
  // for its new stream and after it was withdrawn for its old one; so a reader that has loaded a
  // generation (G2) finds the slot in its own view and in no other, or sees the generation change.
  std::atomic<std::uint64_t> slots[2] = {0, 0};
};

// The part of a StreamStatus that no match needs.
struct SlotStatus {
  base::Mutex mu;
  model::StreamSeq sequence XMS_GUARDED_BY(mu);
  bool sequence_valid XMS_GUARDED_BY(mu) = false;
  std::uint64_t device_blocks XMS_GUARDED_BY(mu) = 0;
  std::uint64_t host_blocks XMS_GUARDED_BY(mu) = 0;
  std::uint64_t digest XMS_GUARDED_BY(mu) = 0;
  std::uint64_t opaque_mappings XMS_GUARDED_BY(mu) = 0;
  std::string error XMS_GUARDED_BY(mu);
  // For people: relaxed, and each by itself.
  std::atomic<std::size_t> ledger_bytes{0};
  std::atomic<base::SteadyTime> snapshot_at{};
  std::atomic<base::SteadyTime> live_at{};
};

class IndexState {
 public:
  using SlotTable = KvIndex::SlotTable;
  using SlotEntry = KvIndex::SlotEntry;

  explicit IndexState(const Options& options);

  struct Opened {
    SlotEntry entry;
    View* view = nullptr;
  };
  base::Result<Opened> Open(StreamInfo info, std::string reason) XMS_EXCLUDES(mu_);
  // The stream leaves the table; its slot is not free yet.
  void Withdraw(std::uint32_t slot) XMS_EXCLUDES(mu_);
  // Its bits are cleared: the slot is free, and the view goes with its last stream.
  void Free(std::uint32_t slot, View* view) XMS_EXCLUDES(mu_);

  std::vector<StreamStatus> Streams() const XMS_EXCLUDES(mu_);
  KvIndex::MemoryUse Memory() const XMS_EXCLUDES(mu_);

  const Options options;
  // Odd: synchronized. 0: free. See kv_index.h, "Visibility".
  alignas(64) std::array<std::atomic<std::uint64_t>, kMaxSlots> generation;
  // Exchanged for a new value after each change of a generation; no two in this process are equal.
  alignas(64) std::atomic<std::uint64_t> stamp{0};
  void Restamp();
  std::atomic<std::size_t> slot_count{0};  // slots beyond are free
  base::SnapshotCell<std::vector<View*>> views;
  base::SnapshotCell<std::shared_ptr<const SlotTable>> slots;
  alignas(64) mutable std::array<SlotStatus, kMaxSlots> status;

 private:
  View* ViewFor(const StreamInfo& info) XMS_REQUIRES(mu_);
  void PublishViews() XMS_REQUIRES(mu_);
  void PublishSlots() XMS_REQUIRES(mu_);

  mutable base::Mutex mu_;
  std::vector<std::unique_ptr<View>> owned_views_ XMS_GUARDED_BY(mu_);
  std::vector<SlotEntry> entries_ XMS_GUARDED_BY(mu_);  // sorted by key, then slot
  SlotSet taken_ XMS_GUARDED_BY(mu_);                   // open, or closing and not yet free
  std::uint64_t next_life_ XMS_GUARDED_BY(mu_) = 1;
};

}  // namespace xms::kv_index::internal
