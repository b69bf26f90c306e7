// The readers' half of BasicPrefixView; the argument is in prefix_view.h. Included by it alone.
#pragma once

#include <algorithm>

#include "kv_index/internal/prefix_view.h"

namespace xms::kv_index::internal {

template <typename Hooks>
[[gnu::always_inline]] inline void BasicPrefixView<Hooks>::FindEntry(Probe& probe) {
  const std::uint64_t candidates = Bucket::Candidates(probe.home->control.load(), probe.tag);
  probe.cell = 0;
  if (candidates == 0) return;
  const std::uint64_t cell = probe.home->cell[Bucket::IndexOf(candidates)].load();  // D
  if (SegmentTable::TagOf(cell) != probe.tag) return;
  Hooks::At(Hooks::kReaderHasCell);
  probe.cell = cell;
  const SingleEntry& entry = probe.table->single(cell);  // of either kind
  __builtin_prefetch(&entry.low);
  __builtin_prefetch(&entry.holder);  // where it crosses a line; a shared one does not
}

template <typename Hooks>
[[gnu::always_inline]] inline Residency BasicPrefixView<Hooks>::LoadEntry(const SegmentTable& table,
                                                                          std::uint64_t cell) {
  Residency result;
  if (SegmentTable::IsShared(cell)) {
    const SharedEntry& entry = table.shared(cell);
    result.device.word[0] = entry.device[0].load(std::memory_order_acquire);  // B
    result.device.word[1] = entry.device[1].load(std::memory_order_acquire);
    Hooks::At(Hooks::kReaderHasDevice);
    result.host.word[0] = entry.host[0].load(std::memory_order_acquire);
    result.host.word[1] = entry.host[1].load(std::memory_order_acquire);
    return result;
  }
  const std::uint64_t holder = table.single(cell).holder.load(std::memory_order_acquire);  // B
  const auto slot = static_cast<std::uint32_t>(holder >> 8);
  if ((holder & kOnDevice) != 0) result.device.Add(slot);
  if ((holder & kOnHost) != 0) result.host.Add(slot);
  return result;
}

template <typename Hooks>
[[gnu::always_inline]] inline Residency BasicPrefixView<Hooks>::Load(const model::ContentKey& key,
                                                                     const Probe& probe) {
  // Both kinds of entries begin with the key.
  if (probe.cell != 0 && probe.table->KeyOf(probe.cell) == key) [[likely]] {
    Hooks::At(Hooks::kReaderHasKey);
    return LoadEntry(*probe.table, probe.cell);
  }
  return LoadByScan(key, probe);
}

template <typename Hooks>
[[gnu::noinline]] Residency BasicPrefixView<Hooks>::LoadByScan(const model::ContentKey& key,
                                                               const Probe& probe) {
  const SegmentTable& table = *probe.table;
  auto at = static_cast<std::uint32_t>(probe.home - &table.bucket(0));
  const std::uint32_t furthest = table.SpillOf(at);
  for (std::uint32_t distance = 0; distance <= furthest; ++distance, at = table.Next(at)) {
    const Bucket& bucket = table.bucket(at);
    const std::uint64_t control = bucket.control.load();
    for (std::uint64_t left = Bucket::Candidates(control, probe.tag); left != 0; left &= left - 1) {
      const std::uint64_t cell = bucket.cell[Bucket::IndexOf(left)].load();  // D
      if (SegmentTable::TagOf(cell) != probe.tag || cell == 0) continue;
      Hooks::At(Hooks::kReaderHasCell);
      if (table.KeyOf(cell) != key) continue;
      Hooks::At(Hooks::kReaderHasKey);
      return LoadEntry(table, cell);
    }
  }
  return {};
}

// The usual block of a run: on Device for every slot of `alive`. Says no when it is not sure.
template <typename Hooks>
[[gnu::always_inline]] inline bool BasicPrefixView<Hooks>::AllOnDevice(const model::ContentKey& key,
                                                                       const Probe& probe,
                                                                       const Alive& alive) {
  if (probe.cell == 0 || probe.table->KeyOf(probe.cell) != key) return false;
  Hooks::At(Hooks::kReaderHasKey);
  if (!SegmentTable::IsShared(probe.cell)) {
    const std::uint64_t holder =
        probe.table->single(probe.cell).holder.load(std::memory_order_acquire);  // B
    return holder >> 8 == alive.alone && (holder & kOnDevice) != 0;
  }
  const SharedEntry& entry = probe.table->shared(probe.cell);
  return ((alive.slots.word[0] & ~entry.device[0].load(std::memory_order_acquire)) |  // B
          (alive.slots.word[1] & ~entry.device[1].load(std::memory_order_acquire))) == 0;
}

template <typename Hooks>
template <typename NextKeys>
void BasicPrefixView<Hooks>::Run(NextKeys&& next_keys, PrefixRun& run) const {
  struct Piece {
    const model::ContentKey* keys;
    std::size_t size;
    Probe probes[kPiece];
  };
  Piece pieces[2];
  std::size_t most = kFirstPiece;
  const auto aim = [&](Piece& piece) {
    const std::span<const model::ContentKey> keys = next_keys(most);
    most = std::min(2 * most, kPiece);
    piece.keys = keys.data();
    piece.size = keys.size();
    for (std::size_t i = 0; i < piece.size; ++i) {
      Aim(piece.keys[i], piece.probes[i]);
      __builtin_prefetch(piece.probes[i].home);
    }
  };
  const auto find = [](Piece& piece) {
    for (std::size_t i = 0; i < piece.size; ++i) FindEntry(piece.probes[i]);
  };
  // Here and not in `run`, so that they stay in registers.
  Alive alive(run.slots());
  std::uint32_t blocks = 0;
  aim(pieces[0]);
  find(pieces[0]);
  for (int side = 0; pieces[side].size != 0; side ^= 1) {
    aim(pieces[side ^ 1]);
    const Piece& piece = pieces[side];
    for (std::size_t i = 0; i < piece.size; ++i, ++blocks) {
      const model::ContentKey& key = piece.keys[i];
      const Probe& probe = piece.probes[i];
      if (AllOnDevice(key, probe, alive)) [[likely]]
        continue;
      Residency block = Load(key, probe);
      if (alive.slots.Without(block).Any()) {
        // A slot that moved from Host to Device between our loads of the two was missed by both.
        if (block.Any()) block.Add(Load(key, probe));
        const SlotSet ended = alive.slots.Without(block);
        run.End(ended, blocks);
        alive = Alive(alive.slots.Without(ended));
        if (!alive.slots.Any()) return;
      }
      const SlotSet host_only = alive.slots.Without(block.device);
      if (host_only.Any()) run.AddHostOnly(host_only);
    }
    find(pieces[side ^ 1]);
  }
  run.End(alive.slots, blocks);
}

}  // namespace xms::kv_index::internal
