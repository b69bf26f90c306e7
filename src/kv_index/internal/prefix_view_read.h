// The readers' half of BasicPrefixView; the argument is in prefix_view.h. Included by it alone.
#pragma once

#include "kv_index/internal/prefix_view.h"

namespace xms::kv_index::internal {

template <typename Hooks>
void BasicPrefixView<Hooks>::FindEntry(Probe& probe) {
  // Without branches: where in its bucket a key lies cannot be predicted.
  std::uint32_t hits = 0;
  for (std::uint32_t i = 0; i < Bucket::kCells; ++i) {
    const std::uint64_t cell = probe.home->cell[i].load();  // D
    hits |= static_cast<std::uint32_t>(static_cast<std::uint32_t>(cell >> 32) == probe.tag) << i;
  }
  probe.spilled = probe.home->spill.load() != 0;
  probe.cell = 0;
  if (hits == 0) return;
  const std::uint64_t cell = probe.home->cell[std::countr_zero(hits)].load();  // D
  // Something else by now, or a free cell where the tag is 0, or not the only one: look thoroughly.
  if (static_cast<std::uint32_t>(cell >> 32) != probe.tag ||
      static_cast<std::uint32_t>(cell) == 0 || (hits & (hits - 1)) != 0) {
    probe.spilled = true;
    return;
  }
  probe.cell = cell;
  Hooks::At(Hooks::kReaderHasCell);
}

template <typename Hooks>
void BasicPrefixView<Hooks>::PrefetchEntry(const Probe& probe) {
  if (probe.cell == 0) return;
  const std::uint32_t number = SegmentTable::NumberOf(probe.cell);
  if (SegmentTable::IsShared(probe.cell)) {
    __builtin_prefetch(&probe.table->shared(number));
  } else {
    const SingleEntry& entry = probe.table->single(number);
    __builtin_prefetch(&entry.low);
    __builtin_prefetch(&entry.holder);  // it may lie in the next line
  }
}

template <typename Hooks>
Residency BasicPrefixView<Hooks>::LoadEntry(const SegmentTable& table, std::uint64_t cell) {
  Residency result;
  if (SegmentTable::IsShared(cell)) {
    const SharedEntry& entry = table.shared(SegmentTable::NumberOf(cell));
    result.device.word[0] = entry.device[0].load(std::memory_order_acquire);  // B
    result.device.word[1] = entry.device[1].load(std::memory_order_acquire);
    Hooks::At(Hooks::kReaderHasDevice);
    result.host.word[0] = entry.host[0].load(std::memory_order_acquire);
    result.host.word[1] = entry.host[1].load(std::memory_order_acquire);
    return result;
  }
  const SingleEntry& entry = table.single(SegmentTable::NumberOf(cell));
  const std::uint64_t holder = entry.holder.load(std::memory_order_acquire);  // B
  const auto slot = static_cast<std::uint32_t>(holder >> 8);
  if ((holder & kOnDevice) != 0) result.device.Add(slot);
  if ((holder & kOnHost) != 0) result.host.Add(slot);
  return result;
}

template <typename Hooks>
Residency BasicPrefixView<Hooks>::Load(const model::ContentKey& key, const Probe& probe) {
  if (probe.cell != 0 && probe.table->KeyOf(probe.cell) == key) {
    Hooks::At(Hooks::kReaderHasKey);
    return LoadEntry(*probe.table, probe.cell);
  }
  if (probe.cell == 0 && !probe.spilled) return {};
  return LoadByScan(key, probe);
}

template <typename Hooks>
Residency BasicPrefixView<Hooks>::LoadByScan(const model::ContentKey& key, const Probe& probe) {
  const SegmentTable& table = *probe.table;
  const Bucket* bucket = probe.home;
  auto at = static_cast<std::uint32_t>(bucket - &table.bucket(0));
  std::uint32_t furthest = 0;
  for (std::uint32_t distance = 0; distance <= furthest; ++distance) {
    for (const std::atomic<std::uint64_t>& place : bucket->cell) {
      const std::uint64_t cell = place.load();  // D
      if (static_cast<std::uint32_t>(cell >> 32) != probe.tag ||
          static_cast<std::uint32_t>(cell) == 0) {
        continue;
      }
      Hooks::At(Hooks::kReaderHasCell);
      if (table.KeyOf(cell) == key) {
        Hooks::At(Hooks::kReaderHasKey);
        return LoadEntry(table, cell);
      }
    }
    // Only now: a key that is in none of the home's cells and was linked before was counted before.
    if (distance == 0) furthest = static_cast<std::uint32_t>(probe.home->spill.load() >> 32);
    at = table.Next(at);
    bucket = &table.bucket(at);
  }
  return {};
}

template <typename Hooks>
bool BasicPrefixView<Hooks>::Step(const model::ContentKey& key, const Probe& probe,
                                  PrefixRun& run) {
  Residency block = Load(key, probe);
  if (run.Missing(block).Any() && block.Any()) {
    // A slot that moved from Host to Device between our loads of the two was missed by both.
    const Residency again = Load(key, probe);
    for (int i = 0; i < 2; ++i) {
      block.device.word[i] |= again.device.word[i];
      block.host.word[i] |= again.host.word[i];
    }
  }
  return run.Follow(block);
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
  aim(0);
  find(0);
  for (int side = 0; !keys[side].empty(); side ^= 1) {
    aim(side ^ 1);
    for (std::size_t i = 0; i < keys[side].size(); ++i) {
      if (!Step(keys[side][i], probes[side][i], run)) return;
    }
    find(side ^ 1);
  }
}

}  // namespace xms::kv_index::internal
