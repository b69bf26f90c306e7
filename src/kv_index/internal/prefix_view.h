// PrefixView: content key → which stream slots hold the block, on Device and on Host.
//
// Place       One per (hash_seed, block_size) in a KvIndex; written by ledgers, read by matches.
// Shape       256 segments by key, each a SegmentTable behind an atomic pointer and a lock of its
//             own. A ledger names an entry by 28 bits of its key (KeyRef) and its own bit in it, so
//             that entries are free to move; when two of its entries share those bits it has to say
//             which (Own, ClearKey).
// Threads     Find, Run: any thread, inside an EpochGuard, never waiting. Everything else: any
//             thread, but a slot's bits are changed by one thread at a time.
// Invariants  V1  A reader that finds slot s in the residency of key k: s held k at some moment
//                 between the reader's first load and its last.
//             V2  A slot that holds k all the time is found by every reader.
//             V3  An entry without residents is unlinked by the operation that took its last bit.
// Argument    The lettered operations are the only ones that readers and writers share.
//             A  a writer stores an entry's bits (release), under the segment's lock
//             B  a reader loads them (acquire)
//             C  a writer stores a cell (release when it links, seq_cst when it replaces or unlinks)
//             D  a reader loads it (seq_cst)
//             E  a writer stores a segment's table pointer (seq_cst), under the lock
//             F  a reader loads it (seq_cst)
//             V1: D reads a cell of key k or skips it; the key is compared whole. An entry's key is
//             written before C links it, and not again before every reader that may have read C's
//             value has left (segment_table.h T1, epoch.h), so B reads bits of k and of nothing else:
//             bits that were set when B read them, or, in an entry that C had meanwhile replaced or
//             in a table that E had replaced, at the moment of C or E, which is later than F. Had
//             that removal happened before the call, so would E, C and A have, and F, D and B would
//             have seen them. The race of a writer that marks an entry which another has reclaimed
//             does not exist: finding and marking, emptying and unlinking are each one hold of the
//             lock.
//             V2: a table that E publishes holds all that the old one held; C replaces a cell in
//             place; a control byte and a spill distance are changed after the cell that they tell of
//             is linked or unlinked, so those of a cell that stays do not change (a distance may
//             shrink to no less than it needs). A block that moves between tiers sets the new bit
//             before it clears the old one; a reader that found neither looks once more (Run).
// Cost        Find: one cache line of cells, one or two of the entry. Run prefetches both.
// Proof       KVIndexView* (every interleaving of one reader with writers at the marked points),
//             KVIndexStress* under tsan.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/epoch.h"
#include "kv_index/internal/prefix_run.h"
#include "kv_index/internal/segment_lock.h"
#include "kv_index/internal/segment_table.h"
#include "kv_index/internal/tiers.h"
#include "model/content_key.h"

namespace xms::kv_index::internal {

// Points at which a test may look on or interfere; nothing at all in the product.
struct NoHooks {
  enum Point {
    kReaderHasTable,
    kReaderHasCell,
    kReaderHasKey,
    kReaderHasDevice,
    kWriterFound,    // under the lock
    kWriterEmptied,  // under the lock: the last bit is gone, the entry still linked
    kWriterBuilt,    // under the lock: a new table is complete, not yet published
    kLockIsWanted,
  };
  static void At(Point) {}
};

// 28 bits of a key: eight choose the segment, twenty the bucket.
using KeyRef = std::uint32_t;
inline constexpr int kKeyRefBits = 28;

template <typename Hooks = NoHooks>
class BasicPrefixView {
 public:
  explicit BasicPrefixView(std::uint64_t salt)
      : salt_(salt), nothing_(SegmentTable::New(SegmentTable::Size{})) {
    for (auto& table : tables_) table.store(nothing_.get());
  }
  // No reader, no writer.
  ~BasicPrefixView() {
    for (auto& table : tables_) {
      if (table.load() != nothing_.get()) SegmentTable::Deleter()(table.load());
    }
  }
  BasicPrefixView(const BasicPrefixView&) = delete;
  BasicPrefixView& operator=(const BasicPrefixView&) = delete;

  KeyRef RefOf(const model::ContentKey& key) const {
    return static_cast<KeyRef>(((key.low ^ salt_) * 0x9E3779B97F4A7C15u) >> (64 - kKeyRefBits));
  }

  // --- Readers, inside an EpochGuard.

  Residency Find(const model::ContentKey& key) const {
    Probe probe;
    Aim(key, probe);
    FindEntry(probe);
    return Load(key, probe);
  }

  // Follows a prompt's blocks for as long as some slot of `run` holds all of them. next_keys(n) returns
  // the next n keys as a span, fewer at the end, none after it; a span stays as it is until the call
  // after the next. Keys are asked for one piece ahead of the walk, in pieces that grow to kPiece.
  static constexpr std::size_t kPiece = 32;
  static constexpr std::size_t kFirstPiece = 4;
  template <typename NextKeys>
  void Run(NextKeys&& next_keys, PrefixRun& run) const;

  // --- Writers.

  struct Added {
    Tiers before = kNoTier;  // what the slot held of this key
    bool twin = false;       // the slot holds another key with the same KeyRef
  };
  Added Add(const model::ContentKey& key, std::uint32_t slot, Tiers tiers);

  struct OwnEntry {
    model::ContentKey key;
    Tiers tiers = kNoTier;
  };
  // The slot's entries with this KeyRef: writes up to out.size() of them, returns how many there are.
  std::uint32_t Own(KeyRef ref, std::uint32_t slot, std::span<OwnEntry> out) const;

  // If the slot has exactly one entry with this KeyRef: clears choose(key) in it and returns the key.
  // choose is called under the lock and looks at nothing but the caller's own.
  template <typename Choose>
  std::optional<model::ContentKey> ClearOnly(KeyRef ref, std::uint32_t slot, Choose&& choose);
  void ClearKey(const model::ContentKey& key, std::uint32_t slot, Tiers tiers);
  // Clears the slot's bits in all its entries with this KeyRef.
  void ClearEvery(KeyRef ref, std::uint32_t slot);

  // Inside an EpochGuard: bring closer what an operation with this KeyRef will need; the second once
  // the first has had time.
  void PrefetchBucket(KeyRef ref) const {
    const SegmentTable* table = tables_[ref >> 20].load();  // F
    __builtin_prefetch(&table->bucket(table->Home(ref & kLocalMask)));
  }
  void PrefetchEntries(KeyRef ref) const {
    const SegmentTable* table = tables_[ref >> 20].load();  // F
    const Bucket& home = table->bucket(table->Home(ref & kLocalMask));
    const std::uint64_t control = home.control.load(std::memory_order_relaxed);
    for (std::uint64_t left = Bucket::Candidates(control, ref); left != 0; left &= left - 1) {
      __builtin_prefetch(
          &table->single(home.cell[Bucket::IndexOf(left)].load(std::memory_order_relaxed)));
    }
  }

  // Distinct keys held. Takes each segment's lock in turn.
  std::uint64_t entries() const;
  std::size_t bytes() const {
    return sizeof(*this) + nothing_->bytes() + bytes_->load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t kSegments = 256;
  static constexpr std::uint32_t kLocalMask = (1u << 20) - 1;
  using Hold = SegmentLockHold<Hooks>;

  // One key on its way through a run.
  struct Probe {
    const SegmentTable* table;
    const Bucket* home;
    std::uint64_t cell;  // the first in its home that may be the key's; 0: not seen, look for it
    std::uint32_t tag;
  };

  // The slots that hold every block of a run so far.
  struct Alive {
    explicit Alive(const SlotSet& set) : slots(set), alone(set.Only()) {}
    SlotSet slots;
    std::uint32_t alone;  // the slot, when there is only one
  };

  // Twenty bits that choose the bucket, and twelve that no position depends on.
  std::uint32_t TagOf(const model::ContentKey& key, KeyRef ref) const {
    return static_cast<std::uint32_t>(key.high << 20) | (ref & kLocalMask);
  }

  void Aim(const model::ContentKey& key, Probe& probe) const {
    const KeyRef ref = RefOf(key);
    probe.table = tables_[ref >> 20].load();  // F
    probe.home = &probe.table->bucket(probe.table->Home(ref & kLocalMask));
    probe.tag = TagOf(key, ref);
    Hooks::At(Hooks::kReaderHasTable);
  }
  static void FindEntry(Probe& probe);
  static bool AllOnDevice(const model::ContentKey& key, const Probe& probe, const Alive& alive);
  static Residency Load(const model::ContentKey& key, const Probe& probe);
  static Residency LoadByScan(const model::ContentKey& key, const Probe& probe);
  static Residency LoadEntry(const SegmentTable& table, std::uint64_t cell);

  // Where a cell lies.
  struct Place {
    std::uint32_t bucket = 0;
    std::uint32_t index = Bucket::kCells;  // kCells: nowhere
  };
  // Calls visit(place, cell) for each linked cell of this KeyRef; stops when it returns true.
  template <typename Visit>
  static void ForEach(SegmentTable& table, KeyRef ref, Visit&& visit);

  enum class Room : std::uint8_t { kEnough, kTooLittle };
  Room TryAdd(SegmentTable& table, const model::ContentKey& key, std::uint32_t slot, Tiers tiers,
              Added& added);
  Room Mark(SegmentTable& table, const Place& place, std::uint32_t slot, Tiers tiers);
  void Unmark(SegmentTable& table, KeyRef ref, const Place& place, std::uint32_t slot, Tiers tiers);
  // Clears choose(table, cell, tiers held) in each of the slot's entries with this KeyRef.
  template <typename Choose>
  void ClearWhere(KeyRef ref, std::uint32_t slot, Choose&& choose);
  static void WriteSingle(SingleEntry& entry, const model::ContentKey& key, std::uint64_t holder);
  static void WriteShared(SharedEntry& entry, const model::ContentKey& key,
                          const Residency& residency);
  static bool IsSparse(const SegmentTable& table);
  // Replaces a segment's table by one of the size that its entries want, if it is still `seen`.
  void Resize(std::uint32_t segment, const SegmentTable* seen);
  void MoveInto(const SegmentTable& from, SegmentTable& to);

  const std::uint64_t salt_;
  const SegmentTable::Owner nothing_;  // what an empty segment shows; never written
  // Read by every match, written when a table is replaced; apart from the locks.
  alignas(64) std::array<std::atomic<SegmentTable*>, kSegments> tables_;
  alignas(64) mutable std::array<SegmentLock<Hooks>, kSegments> locks_;
  alignas(64) std::atomic<std::uint64_t> bound_{0};  // entries stamped before it can be reused
  // Shared with tables that still wait for a reader when the view is gone.
  std::shared_ptr<std::atomic<std::size_t>> bytes_ = std::make_shared<std::atomic<std::size_t>>(0);
};

using PrefixView = BasicPrefixView<NoHooks>;

}  // namespace xms::kv_index::internal

#include "kv_index/internal/prefix_view_read.h"   // IWYU pragma: export
#include "kv_index/internal/prefix_view_write.h"  // IWYU pragma: export
