// SegmentTable: the entries of one segment of a prefix view, in one allocation that is swapped whole.
//
// Place       PrefixView alone.
// Shape       Buckets of one cache line: seven cells of {tag, entry}, and a control word with one byte for
//             each of them, so that one comparison of words says where a key may be, and one byte that
//             says how far behind entries lie that belong here. Entries are of two kinds: a block with
//             one holder takes 24 bytes, one with several takes a cache line with both bit sets.
//             Nothing outside a segment refers to an entry by position, so entries move freely when
//             a table is replaced.
// Threads     Atomic fields: readers without locks, under an epoch; everything else: the holder of
//             the segment's lock. Fields of the first line never change after construction.
// Invariants  T1  The key of an entry does not change while a reader may reach it: a freed entry is
//                 given out again only when every reader of its epoch has left.
//             T2  An entry lies in its home bucket or at most the home's spill distance behind it;
//                 a cell never moves within its table.
//             T3  At most four fifths of the cells are in use, so a search ends.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "base/assert.h"
#include "base/epoch.h"
#include "kv_index/internal/tiers.h"
#include "model/content_key.h"

namespace xms::kv_index::internal {

struct Residency;

// A bit for each of 128 stream slots.
struct SlotSet {
  std::uint64_t word[2] = {0, 0};
  bool Any() const { return (word[0] | word[1]) != 0; }
  bool Has(std::uint32_t slot) const { return (word[slot >> 6] >> (slot & 63) & 1) != 0; }
  void Add(std::uint32_t slot) { word[slot >> 6] |= std::uint64_t{1} << (slot & 63); }
  void Remove(std::uint32_t slot) { word[slot >> 6] &= ~(std::uint64_t{1} << (slot & 63)); }
  // The slot when there is exactly one, else UINT32_MAX.
  std::uint32_t Only() const {
    if ((word[0] == 0) == (word[1] == 0)) return UINT32_MAX;
    const std::uint64_t some = word[0] | word[1];
    if ((some & (some - 1)) != 0) return UINT32_MAX;
    return static_cast<std::uint32_t>(std::countr_zero(some)) + (word[0] == 0 ? 64 : 0);
  }
  SlotSet Without(const SlotSet& other) const {
    return {{word[0] & ~other.word[0], word[1] & ~other.word[1]}};
  }
  SlotSet Without(const Residency& block) const;
  bool operator==(const SlotSet&) const = default;
};

struct Residency {
  SlotSet device;
  SlotSet host;
  bool Any() const { return device.Any() || host.Any(); }
  SlotSet Holders() const {
    return {{device.word[0] | host.word[0], device.word[1] | host.word[1]}};
  }
  Tiers Of(std::uint32_t slot) const {
    return static_cast<Tiers>((device.Has(slot) ? kOnDevice : 0) | (host.Has(slot) ? kOnHost : 0));
  }
  void Add(const Residency& other) {
    for (int i = 0; i < 2; ++i) {
      device.word[i] |= other.device.word[i];
      host.word[i] |= other.host.word[i];
    }
  }
  bool operator==(const Residency&) const = default;
};

inline SlotSet SlotSet::Without(const Residency& block) const {
  return {{word[0] & ~(block.device.word[0] | block.host.word[0]),
           word[1] & ~(block.device.word[1] | block.host.word[1])}};
}

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
  static constexpr std::uint64_t kLow = 0x0001'0101'0101'0101;   // bit 0 of each cell's byte
  static constexpr std::uint64_t kHigh = 0x0080'8080'8080'8080;  // bit 7 of each cell's byte
  static constexpr std::uint32_t kAnywhere = 255;

  // Byte i: 128 | the lower seven bits of cell i's KeyRef; 0: free. Byte 7: the spill distance, or
  // kAnywhere.
  std::atomic<std::uint64_t> control;
  // tag << 32 | entry; 0: free.
  std::atomic<std::uint64_t> cell[kCells];

  static std::uint64_t ByteOf(std::uint32_t local) { return 0x80 | (local & 0x7F); }
  // Bit 7 of the byte of each cell that may have this byte. Above a cell that has it, the borrow may
  // name another that has not; all cells that have it are named.
  static std::uint64_t Candidates(std::uint64_t control, std::uint32_t local) {
    const std::uint64_t differs = control ^ (kLow * ByteOf(local));
    return (differs - kLow) & ~differs & kHigh;
  }
  static std::uint64_t Free(std::uint64_t control) { return ~control & kHigh; }
  static std::uint32_t IndexOf(std::uint64_t bits) {
    return static_cast<std::uint32_t>(std::countr_zero(bits)) / 8;
  }
  static std::uint32_t Spill(std::uint64_t control) {
    return static_cast<std::uint32_t>(control >> 56);
  }
};

inline constexpr std::uint32_t kNoEntry = UINT32_MAX;

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
      const std::uint32_t slack = std::max(16u, entries < 2048 ? entries / 2 : entries / 5);
      return {singles + slack, shareds + std::max({4u, slack / 8, shareds / 5}),
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
    const std::size_t shareds_at = sizeof(SegmentTable) + size.buckets * sizeof(Bucket);
    const std::size_t singles_at = shareds_at + size.shareds * sizeof(SharedEntry);
    const std::size_t rings_at = singles_at + size.singles * sizeof(SingleEntry);
    const std::size_t single_ring = Single::RingSize(size.singles);
    const std::size_t shared_ring = Shared::RingSize(size.shareds);
    const std::size_t bytes = rings_at + (single_ring + shared_ring) * sizeof(FreedEntry);
    XMS_ASSERT(rings_at / 4 <= UINT32_MAX);  // what a cell's entry can name
    auto* memory = static_cast<std::byte*>(::operator new(bytes, std::align_val_t{64}));
    auto* table = new (memory) SegmentTable;
    table->bytes_ = bytes;
    table->size_ = size;
    table->shareds_at_ = shareds_at;
    table->singles_at_ = singles_at;
    new (memory + sizeof(SegmentTable)) Bucket[size.buckets]();
    auto* ring = new (memory + rings_at) FreedEntry[single_ring + shared_ring];
    table->single_pool.Init(reinterpret_cast<SingleEntry*>(memory + singles_at), size.singles,
                            ring);
    table->shared_pool.Init(reinterpret_cast<SharedEntry*>(memory + shareds_at), size.shareds,
                            ring + single_ring);
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
  Bucket& bucket(std::uint32_t number) {
    return reinterpret_cast<Bucket*>(Bytes() + sizeof(SegmentTable))[number];
  }
  const Bucket& bucket(std::uint32_t number) const {
    return reinterpret_cast<const Bucket*>(Bytes() + sizeof(SegmentTable))[number];
  }

  // A cell's lower half: twice the entry's place in units of eight bytes, plus one for a shared one.
  static bool IsShared(std::uint64_t cell) { return (cell & 1) != 0; }
  static std::uint32_t TagOf(std::uint64_t cell) { return static_cast<std::uint32_t>(cell >> 32); }
  SingleEntry& single(std::uint64_t cell) {
    return *reinterpret_cast<SingleEntry*>(Bytes() + OffsetOf(cell));
  }
  SharedEntry& shared(std::uint64_t cell) {
    return *reinterpret_cast<SharedEntry*>(Bytes() + OffsetOf(cell));
  }
  const SingleEntry& single(std::uint64_t cell) const {
    return *reinterpret_cast<const SingleEntry*>(Bytes() + OffsetOf(cell));
  }
  const SharedEntry& shared(std::uint64_t cell) const {
    return *reinterpret_cast<const SharedEntry*>(Bytes() + OffsetOf(cell));
  }

  bool Holds(std::uint64_t cell, std::uint32_t slot) const {
    if (!IsShared(cell)) {
      const std::uint64_t holder = single(cell).holder.load(std::memory_order_relaxed);
      return (holder & kOnBoth) != 0 && holder >> 8 == slot;
    }
    const SharedEntry& entry = shared(cell);
    const std::uint32_t half = slot >> 6;
    return ((entry.device[half].load(std::memory_order_relaxed) |
             entry.host[half].load(std::memory_order_relaxed)) >>
                (slot & 63) &
            1) != 0;
  }

  // A new entry's cell, or 0 when the table has no room. The entry's fields hold anything.
  std::uint64_t TakeSingle(std::uint32_t tag, std::atomic<std::uint64_t>& bound) {
    const std::uint32_t number = single_pool.Take(bound);
    if (number == kNoEntry) return 0;
    return CellOf(tag, singles_at_ + number * sizeof(SingleEntry), 0);
  }
  std::uint64_t TakeShared(std::uint32_t tag, std::atomic<std::uint64_t>& bound) {
    const std::uint32_t number = shared_pool.Take(bound);
    if (number == kNoEntry) return 0;
    return CellOf(tag, shareds_at_ + number * sizeof(SharedEntry), 1);
  }
  // The cell has been replaced or unlinked by a sequentially consistent store.
  void Give(std::uint64_t cell, std::atomic<std::uint64_t>& bound) {
    const std::size_t offset = OffsetOf(cell);
    if (IsShared(cell)) {
      shared_pool.Give(static_cast<std::uint32_t>((offset - shareds_at_) / sizeof(SharedEntry)),
                       bound);
    } else {
      single_pool.Give(static_cast<std::uint32_t>((offset - singles_at_) / sizeof(SingleEntry)),
                       bound);
    }
  }

  // What a cell names, under the lock or by a reader (its key), both of which know that it is linked.
  model::ContentKey KeyOf(std::uint64_t cell) const {
    if (IsShared(cell)) {
      const SharedEntry& entry = shared(cell);
      return {entry.low.load(std::memory_order_relaxed),
              entry.high.load(std::memory_order_relaxed)};
    }
    const SingleEntry& entry = single(cell);
    return {entry.low.load(std::memory_order_relaxed), entry.high.load(std::memory_order_relaxed)};
  }
  Residency ResidencyOf(std::uint64_t cell) const {
    Residency result;
    if (IsShared(cell)) {
      const SharedEntry& entry = shared(cell);
      for (int i = 0; i < 2; ++i) {
        result.device.word[i] = entry.device[i].load(std::memory_order_relaxed);
        result.host.word[i] = entry.host[i].load(std::memory_order_relaxed);
      }
      return result;
    }
    const std::uint64_t holder = single(cell).holder.load(std::memory_order_relaxed);
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
    std::uint32_t distance = 0;
    std::uint64_t control = bucket(at).control.load(std::memory_order_relaxed);
    while (Bucket::Free(control) == 0) {
      ++distance;
      XMS_ASSERT(distance < size_.buckets);  // T3
      at = Next(at);
      control = bucket(at).control.load(std::memory_order_relaxed);
    }
    const std::uint32_t index = Bucket::IndexOf(Bucket::Free(control));
    bucket(at).cell[index].store(cell, std::memory_order_release);
    bucket(at).control.store(control | Bucket::ByteOf(local) << (8 * index),
                             std::memory_order_release);
    if (distance > SpillOf(home)) SetSpill(home, distance);
  }

  // Under the lock: takes a cell out. Sequentially consistent, because the entry is reused (epoch.h).
  void Unlink(std::uint32_t local, std::uint32_t at, std::uint32_t index) {
    Bucket& from = bucket(at);
    from.cell[index].store(0);
    const std::uint64_t control = from.control.load(std::memory_order_relaxed);
    from.control.store(control & ~(std::uint64_t{0xFF} << (8 * index)), std::memory_order_release);
    const std::uint32_t home = Home(local);
    if (at != home) SetSpill(home, FurthestOf(home));
  }

  // How many buckets behind its home an entry may lie.
  std::uint32_t SpillOf(std::uint32_t home) const {
    const std::uint32_t spill = Bucket::Spill(bucket(home).control.load(std::memory_order_relaxed));
    return spill == Bucket::kAnywhere ? size_.buckets - 1 : spill;
  }

 private:
  SegmentTable() = default;
  ~SegmentTable() = default;

  std::byte* Bytes() { return reinterpret_cast<std::byte*>(this); }
  const std::byte* Bytes() const { return reinterpret_cast<const std::byte*>(this); }
  static std::size_t OffsetOf(std::uint64_t cell) {
    return (static_cast<std::size_t>(static_cast<std::uint32_t>(cell)) >> 1) * 8;
  }
  static std::uint64_t CellOf(std::uint32_t tag, std::size_t offset, std::uint64_t shared) {
    return std::uint64_t{tag} << 32 | offset / 8 << 1 | shared;
  }

  void SetSpill(std::uint32_t home, std::uint32_t distance) {
    const std::uint64_t spill = std::min(distance, Bucket::kAnywhere);
    std::atomic<std::uint64_t>& control = bucket(home).control;
    control.store(
        (control.load(std::memory_order_relaxed) & ~(std::uint64_t{0xFF} << 56)) | spill << 56,
        std::memory_order_release);
  }
  // The distance of the home's furthest entry.
  std::uint32_t FurthestOf(std::uint32_t home) const {
    std::uint32_t furthest = 0;
    std::uint32_t at = home;
    const std::uint32_t most = SpillOf(home);
    for (std::uint32_t distance = 1; distance <= most; ++distance) {
      at = Next(at);
      for (const std::atomic<std::uint64_t>& place : bucket(at).cell) {
        const std::uint64_t cell = place.load(std::memory_order_relaxed);
        if (cell != 0 && Home(TagOf(cell) & ((1u << 20) - 1)) == home) furthest = distance;
      }
    }
    return furthest;
  }

  Size size_;
  std::size_t shareds_at_ = 0;
  std::size_t singles_at_ = 0;
  std::size_t bytes_ = 0;

 public:
  // Apart from what readers read.
  alignas(64) EntryPool<SingleEntry> single_pool;
  EntryPool<SharedEntry> shared_pool;
};

}  // namespace xms::kv_index::internal
