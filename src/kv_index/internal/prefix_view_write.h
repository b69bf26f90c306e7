// The writers' half of BasicPrefixView; the argument is in prefix_view.h. Included by it alone.
#pragma once

#include <bit>
#include <optional>

#include "kv_index/internal/prefix_view.h"

namespace xms::kv_index::internal {

template <typename Hooks>
template <typename Visit>
void BasicPrefixView<Hooks>::ForEach(SegmentTable& table, KeyRef ref, Visit&& visit) {
  const std::uint32_t local = ref & kLocalMask;
  std::uint32_t at = table.Home(local);
  const std::uint32_t furthest = table.SpillOf(at);
  for (std::uint32_t distance = 0; distance <= furthest; ++distance, at = table.Next(at)) {
    const Bucket& bucket = table.bucket(at);
    const std::uint64_t control = bucket.control.load(std::memory_order_relaxed);
    for (std::uint64_t left = Bucket::Candidates(control, local); left != 0; left &= left - 1) {
      const std::uint32_t index = Bucket::IndexOf(left);
      const std::uint64_t cell = bucket.cell[index].load(std::memory_order_relaxed);
      if ((SegmentTable::TagOf(cell) & kLocalMask) != local || cell == 0) continue;
      if (visit(Place{at, index}, cell)) return;
    }
  }
}

template <typename Hooks>
typename BasicPrefixView<Hooks>::Added BasicPrefixView<Hooks>::Add(const model::ContentKey& key,
                                                                   std::uint32_t slot,
                                                                   Tiers tiers) {
  const std::uint32_t segment = RefOf(key) >> 20;
  for (;;) {
    Added added;
    SegmentTable* table = nullptr;
    {
      Hold hold(locks_[segment]);
      table = tables_[segment].load(std::memory_order_relaxed);
      if (TryAdd(*table, key, slot, tiers, added) == Room::kEnough) return added;
    }
    Resize(segment, table);
  }
}

template <typename Hooks>
typename BasicPrefixView<Hooks>::Room BasicPrefixView<Hooks>::TryAdd(SegmentTable& table,
                                                                     const model::ContentKey& key,
                                                                     std::uint32_t slot,
                                                                     Tiers tiers, Added& added) {
  const KeyRef ref = RefOf(key);
  const std::uint32_t tag = TagOf(key, ref);
  Place found;
  ForEach(table, ref, [&](const Place& place, std::uint64_t cell) {
    const Tiers held = table.ResidencyOf(cell).Of(slot);
    if (SegmentTable::TagOf(cell) == tag && table.KeyOf(cell) == key) {
      found = place;
      added.before = held;
    } else if (held != kNoTier) {
      added.twin = true;
    }
    return false;
  });
  Hooks::At(Hooks::kWriterFound);
  if (found.index != Bucket::kCells) return Mark(table, found, slot, tiers);

  if (table.entries() >= SegmentTable::Size::MaxEntries(table.size().buckets)) {
    return Room::kTooLittle;
  }
  const std::uint64_t cell = table.TakeSingle(tag, bound_);
  if (cell == 0) return Room::kTooLittle;
  WriteSingle(table.single(cell), key, tiers | std::uint64_t{slot} << 8);
  table.Link(ref & kLocalMask, cell);  // C
  return Room::kEnough;
}

template <typename Hooks>
typename BasicPrefixView<Hooks>::Room BasicPrefixView<Hooks>::Mark(SegmentTable& table,
                                                                   const Place& place,
                                                                   std::uint32_t slot,
                                                                   Tiers tiers) {
  std::atomic<std::uint64_t>& linked = table.bucket(place.bucket).cell[place.index];
  const std::uint64_t cell = linked.load(std::memory_order_relaxed);
  if (SegmentTable::IsShared(cell)) {
    SharedEntry& entry = table.shared(cell);
    const std::uint64_t bit = std::uint64_t{1} << (slot & 63);
    const auto set = [bit](std::atomic<std::uint64_t>& word) {
      word.store(word.load(std::memory_order_relaxed) | bit, std::memory_order_release);  // A
    };
    if ((tiers & kOnDevice) != 0) set(entry.device[slot >> 6]);
    if ((tiers & kOnHost) != 0) set(entry.host[slot >> 6]);
    return Room::kEnough;
  }
  SingleEntry& single = table.single(cell);
  const std::uint64_t holder = single.holder.load(std::memory_order_relaxed);
  if (static_cast<std::uint32_t>(holder >> 8) == slot) {
    single.holder.store(holder | tiers, std::memory_order_release);  // A
    return Room::kEnough;
  }
  const std::uint64_t shared = table.TakeShared(SegmentTable::TagOf(cell), bound_);
  if (shared == 0) return Room::kTooLittle;
  Residency residency = table.ResidencyOf(cell);
  if ((tiers & kOnDevice) != 0) residency.device.Add(slot);
  if ((tiers & kOnHost) != 0) residency.host.Add(slot);
  WriteShared(table.shared(shared), table.KeyOf(cell), residency);
  linked.store(shared);  // C
  table.Give(cell, bound_);
  return Room::kEnough;
}

template <typename Hooks>
void BasicPrefixView<Hooks>::Unmark(SegmentTable& table, KeyRef ref, const Place& place,
                                    std::uint32_t slot, Tiers tiers) {
  const std::uint64_t cell =
      table.bucket(place.bucket).cell[place.index].load(std::memory_order_relaxed);
  if (SegmentTable::IsShared(cell)) {
    SharedEntry& entry = table.shared(cell);
    const std::uint64_t bit = std::uint64_t{1} << (slot & 63);
    const auto clear = [bit](std::atomic<std::uint64_t>& word) {
      word.store(word.load(std::memory_order_relaxed) & ~bit, std::memory_order_release);  // A
    };
    if ((tiers & kOnDevice) != 0) clear(entry.device[slot >> 6]);
    if ((tiers & kOnHost) != 0) clear(entry.host[slot >> 6]);
    if (table.ResidencyOf(cell).Any()) return;
  } else {
    std::atomic<std::uint64_t>& holder = table.single(cell).holder;
    const std::uint64_t left = holder.load(std::memory_order_relaxed) & ~std::uint64_t{tiers};
    const bool gone = (left & kOnBoth) == 0;
    holder.store(gone ? 0 : left, std::memory_order_release);  // A
    if (!gone) return;
  }
  Hooks::At(Hooks::kWriterEmptied);
  table.Unlink(ref & kLocalMask, place.bucket, place.index);  // C
  table.Give(cell, bound_);
}

template <typename Hooks>
void BasicPrefixView<Hooks>::WriteSingle(SingleEntry& entry, const model::ContentKey& key,
                                         std::uint64_t holder) {
  entry.low.store(key.low, std::memory_order_relaxed);
  entry.high.store(key.high, std::memory_order_relaxed);
  entry.holder.store(holder, std::memory_order_relaxed);
}

template <typename Hooks>
void BasicPrefixView<Hooks>::WriteShared(SharedEntry& entry, const model::ContentKey& key,
                                         const Residency& residency) {
  entry.low.store(key.low, std::memory_order_relaxed);
  entry.high.store(key.high, std::memory_order_relaxed);
  for (int i = 0; i < 2; ++i) {
    entry.device[i].store(residency.device.word[i], std::memory_order_relaxed);
    entry.host[i].store(residency.host.word[i], std::memory_order_relaxed);
  }
}

template <typename Hooks>
std::uint32_t BasicPrefixView<Hooks>::Own(KeyRef ref, std::uint32_t slot,
                                          std::span<OwnEntry> out) const {
  std::uint32_t count = 0;
  Hold hold(locks_[ref >> 20]);
  SegmentTable& table = *tables_[ref >> 20].load(std::memory_order_relaxed);
  ForEach(table, ref, [&](const Place&, std::uint64_t cell) {
    const Tiers held = table.ResidencyOf(cell).Of(slot);
    if (held == kNoTier) return false;
    if (count < out.size()) out[count] = {table.KeyOf(cell), held};
    ++count;
    return false;
  });
  return count;
}

template <typename Hooks>
template <typename Choose>
void BasicPrefixView<Hooks>::ClearWhere(KeyRef ref, std::uint32_t slot, Choose&& choose) {
  const std::uint32_t segment = ref >> 20;
  SegmentTable* table = nullptr;
  {
    Hold hold(locks_[segment]);
    table = tables_[segment].load(std::memory_order_relaxed);
    ForEach(*table, ref, [&](const Place& place, std::uint64_t cell) {
      const Tiers held = table->ResidencyOf(cell).Of(slot);
      if (held == kNoTier) return false;
      const Tiers tiers = choose(*table, cell, held);
      if (tiers != kNoTier) Unmark(*table, ref, place, slot, tiers);
      return false;
    });
    if (!IsSparse(*table)) return;
  }
  Resize(segment, table);
}

template <typename Hooks>
template <typename Choose>
std::optional<model::ContentKey> BasicPrefixView<Hooks>::ClearOnly(KeyRef ref, std::uint32_t slot,
                                                                   Choose&& choose) {
  const std::uint32_t segment = ref >> 20;
  SegmentTable* table = nullptr;
  model::ContentKey key;
  {
    Hold hold(locks_[segment]);
    table = tables_[segment].load(std::memory_order_relaxed);
    Place only;
    int count = 0;
    ForEach(*table, ref, [&](const Place& place, std::uint64_t cell) {
      if (!table->Holds(cell, slot)) return false;
      only = place;
      key = table->KeyOf(cell);
      return ++count == 2;
    });
    if (count != 1) return std::nullopt;
    const Tiers tiers = choose(key);
    if (tiers != kNoTier) Unmark(*table, ref, only, slot, tiers);
    if (!IsSparse(*table)) return key;
  }
  Resize(segment, table);
  return key;
}

template <typename Hooks>
void BasicPrefixView<Hooks>::ClearKey(const model::ContentKey& key, std::uint32_t slot,
                                      Tiers tiers) {
  ClearWhere(RefOf(key), slot, [&](const SegmentTable& table, std::uint64_t cell, Tiers) {
    return table.KeyOf(cell) == key ? tiers : kNoTier;
  });
}

template <typename Hooks>
void BasicPrefixView<Hooks>::ClearEvery(KeyRef ref, std::uint32_t slot) {
  ClearWhere(ref, slot, [](const SegmentTable&, std::uint64_t, Tiers held) { return held; });
}

// A third full: what is left fits a table of half the size with room to spare.
template <typename Hooks>
bool BasicPrefixView<Hooks>::IsSparse(const SegmentTable& table) {
  constexpr std::uint32_t kSmallest = SegmentTable::Size::For(0, 0).buckets;
  return table.size().buckets > kSmallest &&
         table.entries() * 3 < SegmentTable::Size::MaxEntries(table.size().buckets);
}

template <typename Hooks>
void BasicPrefixView<Hooks>::Resize(std::uint32_t segment, const SegmentTable* seen) {
  SegmentTable::Owner fresh;
  SegmentTable* old = nullptr;
  while (old == nullptr) {
    SegmentTable::Size want;
    {
      Hold hold(locks_[segment]);
      SegmentTable* table = tables_[segment].load(std::memory_order_relaxed);
      if (table != seen) return;  // somebody else did it
      // Some of the shared ones will turn out to have one holder left.
      const std::uint32_t singles = table->single_pool.live();
      const std::uint32_t shareds = table->shared_pool.live();
      if (fresh != nullptr && fresh->size().Fits(singles, shareds)) {
        MoveInto(*table, *fresh);
        Hooks::At(Hooks::kWriterBuilt);
        bytes_->fetch_add(fresh->bytes(), std::memory_order_relaxed);
        tables_[segment].store(fresh.release());  // E
        old = table;
      }
      want = SegmentTable::Size::For(singles, shareds);
    }
    // Memory is asked for without the lock; entries that came meanwhile may ask for more.
    if (old == nullptr) fresh = SegmentTable::New(want);
  }
  if (old == nothing_.get()) return;
  base::EpochRetire([old, bytes = bytes_] {
    bytes->fetch_sub(old->bytes(), std::memory_order_relaxed);
    SegmentTable::Deleter()(old);
  });
}

// `to` is not published yet, hence relaxed; E releases it.
template <typename Hooks>
void BasicPrefixView<Hooks>::MoveInto(const SegmentTable& from, SegmentTable& to) {
  for (std::uint32_t b = 0; b < from.size().buckets; ++b) {
    for (const std::atomic<std::uint64_t>& place : from.bucket(b).cell) {
      const std::uint64_t cell = place.load(std::memory_order_relaxed);
      if (cell == 0) continue;
      const std::uint32_t tag = SegmentTable::TagOf(cell);
      const Residency residency = from.ResidencyOf(cell);
      const std::uint32_t only = residency.Holders().Only();
      // A shared entry that one holder is left of becomes a single one, if there is room for that.
      std::uint64_t copy = only != UINT32_MAX ? to.TakeSingle(tag, bound_) : 0;
      if (copy != 0) {
        WriteSingle(to.single(copy), from.KeyOf(cell),
                    residency.Of(only) | std::uint64_t{only} << 8);
      } else {
        copy = to.TakeShared(tag, bound_);
        XMS_ASSERT(copy != 0);
        WriteShared(to.shared(copy), from.KeyOf(cell), residency);
      }
      to.Link(tag & kLocalMask, copy);
    }
  }
}

template <typename Hooks>
std::uint64_t BasicPrefixView<Hooks>::entries() const {
  std::uint64_t count = 0;
  for (std::uint32_t segment = 0; segment < kSegments; ++segment) {
    Hold hold(locks_[segment]);
    count += tables_[segment].load(std::memory_order_relaxed)->entries();
  }
  return count;
}

}  // namespace xms::kv_index::internal
