// SegmentTable: the entries of one segment of a prefix view, in one allocation that is swapped whole.
//
// Place       PrefixView alone.
// Shape       Buckets of one cache line: seven cells of {tag, entry}, and a word that says how many
//             entries belong here but lie in a later bucket. Entries are of two kinds: a block with
//             one holder takes 24 bytes, one with several takes a cache line with both bit sets.
//             Nothing outside a segment refers to an entry by position, so entries move freely when
//             a table is replaced.
// Threads     Atomic fields: readers without locks, under an epoch; everything else: the holder of
//             the segment's lock. Fields of the first line never change after construction.
// Invariants  T1  The key of an entry does not change while a reader may reach it: a freed entry is
//                 given out again only when every reader of its epoch has left.
//             T2  An entry lies in its home bucket or in one that follows within the spill distance;
//                 a cell never moves within its table.
//             T3  At most four fifths of the cells are in use, so a search ends.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "base/assert.h"
#include "base/epoch.h"
#include "kv_index/internal/tiers.h"
#include "model/content_key.h"

namespace xms::kv_index::internal {

// A bit for each of 128 stream slots.
struct SlotSet {
  std::uint64_t word[2] = {0, 0};
  bool Any() const { return (word[0] | word[1]) != 0; }
  bool Has(std::uint32_t slot) const { return (word[slot >> 6] >> (slot & 63) & 1) != 0; }
  void Add(std::uint32_t slot) { word[slot >> 6] |= std::uint64_t{1} << (slot & 63); }
  void Remove(std::uint32_t slot) { word[slot >> 6] &= ~(std::uint64_t{1} << (slot & 63)); }
  bool operator==(const SlotSet&) const = default;
};

struct Residency {
  SlotSet device;
  SlotSet host;
  bool Any() const { return device.Any() || host.Any(); }
  Tiers Of(std::uint32_t slot) const {
    return static_cast<Tiers>((device.Has(slot) ? kOnDevice : 0) | (host.Has(slot) ? kOnHost : 0));
  }
  bool operator==(const Residency&) const = default;
};

struct SingleEntry {
  std::atomic<std::uint64_t> low;
  std::atomic<std::uint64_t> high;
  std::atomic<std::uint64_t> holder;  // tiers | slot << 8; 0: nobody
};

struct alignas(64) SharedEntry {
  std::atomic<std::uint64_t> low;
  std::atomic<std::uint64_t> high;
  std::atomic<std::uint64_t> device[2];
  std::atomic<std::uint64_t> host[2];
};

struct alignas(64) Bucket {
  static constexpr std::uint32_t kCells = 7;
  // tag << 32 | entry; 0: free. An entry is its number + 1, and the top bit for a shared one.
  std::atomic<std::uint64_t> cell[kCells];
  // Entries whose home this is and that lie elsewhere, and the furthest distance of any of them since
  // there was none: count | distance << 32.
  std::atomic<std::uint64_t> spill;
};

inline constexpr std::uint32_t kNoEntry = UINT32_MAX;
inline constexpr std::uint32_t kSharedBit = std::uint32_t{1} << 31;

// An entry given back while some reader may still look at it.
struct FreedEntry {
  std::uint64_t stamp;
  std::uint32_t number;
};

// Gives out numbers of entries and takes them back. Only under the segment's lock.
template <typename Entry>
class EntryPool {
 public:
  static std::uint32_t RingSize(std::uint32_t capacity) {
    std::uint32_t size = 4;
    while (size < 64 && size * 8 <= capacity) size *= 2;
    return size;
  }

  void Init(Entry* entries, std::uint32_t capacity, FreedEntry* ring) {
    entries_ = entries;
    capacity_ = capacity;
    ring_ = ring;
    ring_size_ = RingSize(capacity);
  }

  // kNoEntry: the table has to be replaced by a larger one. The entry's fields hold anything.
  std::uint32_t Take(std::atomic<std::uint64_t>& bound) {
    std::uint32_t number = kNoEntry;
    if (free_ != 0) {
      number = TakeFree();
    } else if (waiting_ != 0 && ring_[first_].stamp < bound.load(std::memory_order_acquire)) {
      number = ring_[first_].number;
      DropFirst();
    } else if (used_ < capacity_) {
      number = used_++;
      new (entries_ + number) Entry;
    } else if (waiting_ != 0) {
      Drain(bound);
      if (free_ != 0) number = TakeFree();
    }
    if (number != kNoEntry) ++live_;
    return number;
  }

  // The entry has been unlinked by a sequentially consistent store.
  void Give(std::uint32_t number, std::atomic<std::uint64_t>& bound) {
    --live_;
    const std::uint64_t stamp = base::EpochStamp();
    if (waiting_ == ring_size_) Drain(bound);
    // A reader that has not left for so long costs this entry until the table is replaced.
    if (waiting_ == ring_size_) return;
    ring_[(first_ + waiting_++) % ring_size_] = {stamp, number};
  }

  std::uint32_t live() const { return live_; }
  std::uint32_t capacity() const { return capacity_; }

 private:
  std::uint32_t TakeFree() {
    const std::uint32_t number = free_ - 1;
    free_ = static_cast<std::uint32_t>(entries_[number].low.load(std::memory_order_relaxed));
    return number;
  }

  void DropFirst() {
    first_ = (first_ + 1) % ring_size_;
    --waiting_;
  }

  void Drain(std::atomic<std::uint64_t>& bound) {
    const std::uint64_t passed = base::EpochAdvance();
    bound.store(passed, std::memory_order_release);
    while (waiting_ != 0 && ring_[first_].stamp < passed) {
      const std::uint32_t number = ring_[first_].number;
      entries_[number].low.store(free_, std::memory_order_relaxed);
      free_ = number + 1;
      DropFirst();
    }
  }

  Entry* entries_ = nullptr;
  FreedEntry* ring_ = nullptr;
  std::uint32_t capacity_ = 0;
  std::uint32_t used_ = 0;  // entries beyond have never been given out
  std::uint32_t live_ = 0;
  std::uint32_t free_ = 0;  // number + 1 of the first free entry, linked through `low`
  std::uint32_t ring_size_ = 4;
  std::uint32_t first_ = 0;
  std::uint32_t waiting_ = 0;
};

class alignas(64) SegmentTable {
 public:
  struct Size {
    std::uint32_t singles = 0;
    std::uint32_t shareds = 0;
    std::uint32_t buckets = 1;

    // Room for these entries and for a good many more, of either kind.
    static constexpr Size For(std::uint32_t singles, std::uint32_t shareds) {
      const std::uint32_t entries = singles + shareds;
      // Large tables pay for every unused byte, small ones rather for being replaced often.
      const std::uint32_t slack = std::max(16u, entries < 2048 ? entries / 2 : entries / 4);
      return {singles + slack, shareds + std::max({4u, slack / 4, shareds / 4}),
              BucketsFor(entries + slack)};
    }
    constexpr bool Fits(std::uint32_t more_singles, std::uint32_t more_shareds) const {
      return more_singles < singles && more_shareds < shareds &&
             more_singles + more_shareds < MaxEntries(buckets);
    }
    static constexpr std::uint32_t BucketsFor(std::uint32_t entries) {
      return static_cast<std::uint32_t>((std::uint64_t{entries} * 5 + 27) / 28 + 1);
    }
    static constexpr std::uint32_t MaxEntries(std::uint32_t buckets) {
      return static_cast<std::uint32_t>(std::uint64_t{buckets} * Bucket::kCells * 4 / 5);
    }
  };

  struct Deleter {
    void operator()(SegmentTable* table) const {
      const std::size_t bytes = table->bytes_;
      table->~SegmentTable();
      ::operator delete(table, bytes, std::align_val_t{64});
    }
  };
  using Owner = std::unique_ptr<SegmentTable, Deleter>;

  static Owner New(const Size& size) {
    using Single = EntryPool<SingleEntry>;
    using Shared = EntryPool<SharedEntry>;
    const std::size_t buckets_at = sizeof(SegmentTable);
    const std::size_t shareds_at = buckets_at + size.buckets * sizeof(Bucket);
    const std::size_t singles_at = shareds_at + size.shareds * sizeof(SharedEntry);
    const std::size_t rings_at = singles_at + size.singles * sizeof(SingleEntry);
    const std::size_t single_ring = Single::RingSize(size.singles);
    const std::size_t shared_ring = Shared::RingSize(size.shareds);
    const std::size_t bytes = rings_at + (single_ring + shared_ring) * sizeof(FreedEntry);
    auto* memory = static_cast<std::byte*>(::operator new(bytes, std::align_val_t{64}));
    auto* table = new (memory) SegmentTable;
    table->bytes_ = bytes;
    table->size_ = size;
    table->buckets_ = new (memory + buckets_at) Bucket[size.buckets]();
    table->shareds_ = reinterpret_cast<SharedEntry*>(memory + shareds_at);
    table->singles_ = reinterpret_cast<SingleEntry*>(memory + singles_at);
    auto* ring = new (memory + rings_at) FreedEntry[single_ring + shared_ring];
    table->single_pool.Init(table->singles_, size.singles, ring);
    table->shared_pool.Init(table->shareds_, size.shareds, ring + single_ring);
    return Owner(table);
  }

  const Size& size() const { return size_; }
  std::size_t bytes() const { return bytes_; }
  std::uint32_t entries() const { return single_pool.live() + shared_pool.live(); }

  // `local`: the lower 20 bits of a key's reference.
  std::uint32_t Home(std::uint32_t local) const {
    return static_cast<std::uint32_t>((std::uint64_t{local} * size_.buckets) >> 20);
  }
  std::uint32_t Next(std::uint32_t bucket) const {
    return bucket + 1 == size_.buckets ? 0 : bucket + 1;
  }
  Bucket& bucket(std::uint32_t number) { return buckets_[number]; }
  const Bucket& bucket(std::uint32_t number) const { return buckets_[number]; }
  SingleEntry& single(std::uint32_t number) { return singles_[number]; }
  SharedEntry& shared(std::uint32_t number) { return shareds_[number]; }
  const SingleEntry& single(std::uint32_t number) const { return singles_[number]; }
  const SharedEntry& shared(std::uint32_t number) const { return shareds_[number]; }

  static std::uint32_t NumberOf(std::uint64_t cell) {
    return (static_cast<std::uint32_t>(cell) & ~kSharedBit) - 1;
  }
  static bool IsShared(std::uint64_t cell) {
    return (static_cast<std::uint32_t>(cell) & kSharedBit) != 0;
  }
  static std::uint64_t SingleCell(std::uint32_t tag, std::uint32_t number) {
    return std::uint64_t{tag} << 32 | (number + 1);
  }
  static std::uint64_t SharedCell(std::uint32_t tag, std::uint32_t number) {
    return std::uint64_t{tag} << 32 | kSharedBit | (number + 1);
  }

  // Under the lock: what a cell's entry says.
  model::ContentKey KeyOf(std::uint64_t cell) const {
    if (IsShared(cell)) {
      const SharedEntry& entry = shareds_[NumberOf(cell)];
      return {entry.low.load(std::memory_order_relaxed),
              entry.high.load(std::memory_order_relaxed)};
    }
    const SingleEntry& entry = singles_[NumberOf(cell)];
    return {entry.low.load(std::memory_order_relaxed), entry.high.load(std::memory_order_relaxed)};
  }
  Residency ResidencyOf(std::uint64_t cell) const {
    Residency result;
    if (IsShared(cell)) {
      const SharedEntry& entry = shareds_[NumberOf(cell)];
      for (int i = 0; i < 2; ++i) {
        result.device.word[i] = entry.device[i].load(std::memory_order_relaxed);
        result.host.word[i] = entry.host[i].load(std::memory_order_relaxed);
      }
      return result;
    }
    const std::uint64_t holder = singles_[NumberOf(cell)].holder.load(std::memory_order_relaxed);
    const auto slot = static_cast<std::uint32_t>(holder >> 8);
    if ((holder & kOnDevice) != 0) result.device.Add(slot);
    if ((holder & kOnHost) != 0) result.host.Add(slot);
    return result;
  }

  // Under the lock: puts a cell into the first free place from its home on. The cell's entry is
  // complete; the release makes it so for a reader that finds it.
  void Link(std::uint32_t local, std::uint64_t cell) {
    const std::uint32_t home = Home(local);
    std::uint32_t at = home;
    for (std::uint32_t distance = 0; distance < size_.buckets; ++distance, at = Next(at)) {
      for (std::atomic<std::uint64_t>& place : buckets_[at].cell) {
        if (place.load(std::memory_order_relaxed) != 0) continue;
        place.store(cell, std::memory_order_release);
        if (distance == 0) return;
        std::atomic<std::uint64_t>& spill = buckets_[home].spill;
        const std::uint64_t before = spill.load(std::memory_order_relaxed);
        const std::uint64_t furthest = std::max<std::uint64_t>(before >> 32, distance);
        spill.store(furthest << 32 | ((before & UINT32_MAX) + 1), std::memory_order_release);
        return;
      }
    }
    XMS_ASSERT(false && "a table is never full");
  }

  // Under the lock: takes a cell out. Sequentially consistent, because the entry is reused (epoch.h).
  void Unlink(std::uint32_t local, std::uint32_t at, std::atomic<std::uint64_t>& place) {
    place.store(0);
    const std::uint32_t home = Home(local);
    if (at == home) return;
    std::atomic<std::uint64_t>& spill = buckets_[home].spill;
    const std::uint64_t before = spill.load(std::memory_order_relaxed);
    const std::uint64_t left = (before & UINT32_MAX) - 1;
    spill.store(left == 0 ? 0 : (before & ~std::uint64_t{UINT32_MAX}) | left,
                std::memory_order_release);
  }

 private:
  SegmentTable() = default;
  ~SegmentTable() = default;

  Size size_;
  Bucket* buckets_ = nullptr;
  SharedEntry* shareds_ = nullptr;
  SingleEntry* singles_ = nullptr;
  std::size_t bytes_ = 0;

 public:
  // Apart from what readers read.
  alignas(64) EntryPool<SingleEntry> single_pool;
  EntryPool<SharedEntry> shared_pool;
};

}  // namespace xms::kv_index::internal
