#include "kv_directory/recovery/resident_set.h"

#include <algorithm>
#include <bit>

namespace xms::kv_directory {
namespace {

using kv_events::EventKind;
using kv_events::EventScope;

constexpr std::uint8_t kDeviceBit = 1;
constexpr std::uint8_t kHostBit = 2;

std::uint8_t BitsOf(EventScope scope) {
  switch (scope) {
    case EventScope::kDevice:
      return kDeviceBit;
    case EventScope::kHost:
      return kHostBit;
    case EventScope::kAll:
      return kDeviceBit | kHostBit;
    case EventScope::kUnknown:
      return 0;
  }
  return 0;
}

}  // namespace

ResidentSet::ResidentSet(std::size_t hashes) : slots_(std::bit_ceil(2 * hashes + 2)) {}

ResidentSet::Slot& ResidentSet::Find(model::WireHash hash) {
  // Wire hashes are the engine's choice; spread them before they pick a slot.
  std::size_t at = static_cast<std::size_t>((hash.value * 0x9e3779b97f4a7c15u) >> 20);
  for (;; ++at) {
    Slot& slot = slots_[at & (slots_.size() - 1)];
    if (!slot.known || slot.hash == hash.value) return slot;
  }
}

bool ResidentSet::ParentIsIndexed(const kv_events::KvEvent& event) {
  return !event.has_parent || Find(event.parent).indexed;
}

void ResidentSet::ClearTiers(std::uint8_t tiers) {
  for (Slot& slot : slots_) slot.tiers = static_cast<std::uint8_t>(slot.tiers & ~tiers);
}

void ResidentSet::Apply(const kv_events::KvBatch& batch, bool live) {
  for (const kv_events::KvEvent& event : batch.events) {
    const std::uint8_t bits = BitsOf(event.scope);
    switch (event.kind) {
      case EventKind::kStore:
      case EventKind::kIgnored: {
        if (event.kind == EventKind::kIgnored && !event.ignored_store) break;
        const bool indexed = event.kind == EventKind::kStore && ParentIsIndexed(event);
        for (const model::WireHash hash : batch.HashesOf(event)) {
          Slot& slot = Find(hash);
          slot.hash = hash.value;
          slot.known = true;
          slot.indexed |= indexed;
          slot.tiers |= bits;
        }
        break;
      }
      case EventKind::kReplica:
        for (const model::WireHash hash : batch.HashesOf(event)) {
          Slot& slot = Find(hash);
          if (slot.known) {
            slot.tiers |= bits;
          } else {
            undecided_ |= live;
          }
        }
        break;
      case EventKind::kRemove:
        for (const model::WireHash hash : batch.HashesOf(event)) {
          Slot& slot = Find(hash);
          slot.tiers = static_cast<std::uint8_t>(slot.tiers & ~bits);
        }
        break;
      case EventKind::kClear:
        if (event.scope == EventScope::kAll) {
          slots_.assign(slots_.size(), Slot{});
        } else {
          ClearTiers(bits);
        }
        break;
    }
  }
}

std::uint64_t ResidentSet::digest() const {
  std::uint64_t sum = 0;
  for (const Slot& slot : slots_) {
    if (slot.tiers & kDeviceBit) {
      sum += kv_index::StreamLedger::DigestTerm({slot.hash}, model::Tier::kDevice);
    }
    if (slot.tiers & kHostBit) {
      sum += kv_index::StreamLedger::DigestTerm({slot.hash}, model::Tier::kHost);
    }
  }
  return sum;
}

bool ResidentSet::NamesMoreThan(const kv_index::StreamLedger& ledger) const {
  if (ledger.opaque_mappings() == 0) return false;
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.indexed && slot.tiers != 0 && !ledger.Indexed({slot.hash});
  });
}

}  // namespace xms::kv_directory
