// The readers' half of BasicPrefixView; the argument is in prefix_view.h. Included by it alone.
#pragma once

#include <algorithm>

#include "kv_index/internal/prefix_view.h"

namespace xms::kv_index::internal {

template <typename Hooks>
[[gnu::always_inline]] inline void BasicPrefixView<Hooks>::FindEntry(Probe& probe) {
  const std::uint64_t control = probe.home->control.load();
  probe.cell = 0;
  probe.elsewhere = Bucket::Spill(control) != 0;
  for (std::uint64_t left = Bucket::Candidates(control, probe.tag); left != 0; left &= left - 1) {
    const std::uint64_t cell = probe.home->cell[Bucket::IndexOf(left)].load();  // D
    if (SegmentTable::TagOf(cell) != probe.tag || cell == 0) continue;
    Hooks::At(Hooks::kReaderHasCell);
    if (probe.cell == 0) {
      probe.cell = cell;
    } else {
      probe.elsewhere = true;  // two keys that agree in 32 bits
    }
  }
}

template <typename Hooks>
[[gnu::always_inline]] inline void BasicPrefixView<Hooks>::PrefetchEntry(const Probe& probe) {
  if (probe.cell == 0) return;
  const SingleEntry& entry = probe.table->single(probe.cell);
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
  if (!probe.elsewhere) return {};
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

template <typename Hooks>
template <typename NextKeys>
void BasicPrefixView<Hooks>::Run(NextKeys&& next_keys, PrefixRun& run) const {
  std::span<const model::ContentKey> keys[2];
  Probe probes[2][kPiece];
  std::size_t piece = 4;
  const auto aim = [&](int side) {
    keys[side] = next_keys(piece);
    piece = std::min(2 * piece, kPiece);
    for (std::size_t i = 0; i < keys[side].size(); ++i) {
      Aim(keys[side][i], probes[side][i]);
      __builtin_prefetch(probes[side][i].home);
    }
  };
  const auto find = [&](int side) {
    for (std::size_t i = 0; i < keys[side].size(); ++i) {
      FindEntry(probes[side][i]);
      PrefetchEntry(probes[side][i]);
    }
  };
  // Here and not in `run`, so that they stay in registers.
  SlotSet alive = run.slots();
  std::uint32_t blocks = 0;
  aim(0);
  find(0);
  for (int side = 0; !keys[side].empty(); side ^= 1) {
    aim(side ^ 1);
    for (std::size_t i = 0; i < keys[side].size(); ++i, ++blocks) {
      Residency block = Load(keys[side][i], probes[side][i]);
      if (alive.Without(block).Any()) [[unlikely]] {
        // A slot that moved from Host to Device between our loads of the two was missed by both.
        if (block.Any()) block.Add(Load(keys[side][i], probes[side][i]));
        const SlotSet ended = alive.Without(block);
        run.End(ended, blocks);
        alive = alive.Without(ended);
        if (!alive.Any()) return;
      }
      const SlotSet host_only = alive.Without(block.device);
      if (host_only.Any()) run.AddHostOnly(host_only);
    }
    find(side ^ 1);
  }
  run.End(alive, blocks);
}

}  // namespace xms::kv_index::internal
