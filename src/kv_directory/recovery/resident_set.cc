#include "kv_directory/recovery/resident_set.h"

#include <algorithm>
#include <bit>

#include "kv_directory/recovery/apply.h"

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

ResidentSet::ResidentSet(const kv_index::StreamLedger& ledger, std::size_t hashes)
    : ledger_(ledger),
      hasher_(ledger.info().hash_seed, ledger.info().block_size),
      slots_(std::bit_ceil(2 * hashes + 2)) {}

ResidentSet::Slot& ResidentSet::Find(model::WireHash hash) {
  // Wire hashes are the engine's choice; spread them before they pick a slot.
  std::size_t at = static_cast<std::size_t>((hash.value * 0x9e3779b97f4a7c15u) >> 20);
  for (;; ++at) {
    Slot& slot = slots_[at & (slots_.size() - 1)];
    if (!slot.known || slot.hash == hash.value) return slot;
  }
}

ResidentSet::Slot& ResidentSet::Name(model::WireHash hash) {
  Slot& slot = Find(hash);
  slot.hash = hash.value;
  slot.known = true;
  return slot;
}

void ResidentSet::ClearTiers(std::uint8_t tiers) {
  for (Slot& slot : slots_) slot.tiers = static_cast<std::uint8_t>(slot.tiers & ~tiers);
}

void ResidentSet::Store(const kv_events::KvBatch& batch, const kv_events::KvEvent& event,
                        bool live) {
  Content content = Content::kKey;
  model::ContentKey key = model::kRootKey;
  if (event.has_parent) {
    const Slot& parent = Find(event.parent);
    content = parent.known ? parent.content : Content::kUnsaid;
    key = parent.key;
    if (content == Content::kUnsaid) {
      const auto statement = ledger_.Lookup(event.parent);
      if (statement.indexed) content = Content::kAssumed;
      key = statement.key;
    }
  }
  const bool keyed = content == Content::kKey || content == Content::kAssumed;
  auto tokens = batch.TokensOf(event);
  for (const model::WireHash hash : batch.HashesOf(event)) {
    Slot& slot = Name(hash);
    slot.tiers |= BitsOf(event.scope);
    if (!keyed) continue;  // descendants of what has no credit say nothing about an indexed hash
    key = hasher_.Child(key, tokens.first(hasher_.block_size()));
    tokens = tokens.subspan(hasher_.block_size());
    if (slot.content == Content::kKey && content == Content::kKey && slot.key != key) {
      (live ? different_ : contradictory_) = true;
    }
    if (slot.content == Content::kKey && content == Content::kAssumed) continue;
    slot.content = content;
    slot.key = key;
  }
}

void ResidentSet::Apply(const kv_events::KvBatch& batch, bool live) {
  for (const kv_events::KvEvent& event : batch.events) {
    const std::uint8_t bits = BitsOf(event.scope);
    switch (event.kind) {
      case EventKind::kStore:
        Store(batch, event, live);
        break;
      case EventKind::kIgnored:
        if (!event.ignored_store) break;
        for (const model::WireHash hash : batch.HashesOf(event)) {
          Slot& slot = Name(hash);
          slot.tiers |= bits;
          if (SaysOtherContent(event)) slot.content = Content::kOther;
        }
        break;
      case EventKind::kReplica:
        for (const model::WireHash hash : batch.HashesOf(event)) {
          // The ledger may know it from before the snapshot (C2). If it does not, it has ignored this.
          if (Find(hash).known || ledger_.Lookup(hash).mapped) Name(hash).tiers |= bits;
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

bool ResidentSet::SameContent(const Slot& slot) const {
  const auto statement = ledger_.Lookup({slot.hash});
  switch (slot.content) {
    case Content::kUnsaid:
      return true;
    case Content::kOther:
      return !statement.indexed;
    case Content::kAssumed:
      return !statement.indexed || statement.key == slot.key;
    case Content::kKey:
      return statement.indexed && statement.key == slot.key;
  }
  return true;
}

bool ResidentSet::EqualsLedger() const {
  return !different_ && digest() == ledger_.digest() &&
         std::all_of(slots_.begin(), slots_.end(),
                     [&](const Slot& slot) { return slot.tiers == 0 || SameContent(slot); });
}

}  // namespace xms::kv_directory
