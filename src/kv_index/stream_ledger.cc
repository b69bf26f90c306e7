#include "kv_index/stream_ledger.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/epoch.h"
#include "kv_index/internal/stream_ledger_impl.h"

namespace xms::kv_index {
namespace {

using internal::kNoTier;
using internal::kOnBoth;
using internal::kOnDevice;
using internal::kOnHost;
using internal::TierBit;

// Blocks that are hashed and prefetched before the first of them is applied.
constexpr std::size_t kAhead = 16;

std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

std::uint64_t DigestOf(model::WireHash wire, internal::Tiers tier) {
  // Mixed first: hashes in steps of a constant would meet those of another tier.
  return Mix(Mix(wire.value) + tier);
}

}  // namespace

std::uint64_t StreamLedger::Impl::HashOfWire::operator()(const WireHash& wire) const {
  return Mix(wire.value);
}

std::uint64_t StreamLedger::Impl::HashOfKey::operator()(const ContentKey& key) const {
  return Mix(key.low ^ (key.high << 1));
}

StreamLedger::Impl::Impl(internal::IndexState& index, internal::IndexState::Opened opened)
    : index_(index),
      place_(std::move(opened.entry)),
      view_(*opened.view),
      generation_(place_.life << 32),
      table_(index.options.salt),
      dropped_(index.options.salt, std::clamp<std::uint64_t>(limit() / 16, 1024, 65536)) {}

StreamLedger::Impl::~Impl() {
  Unsynchronize("closed");
  index_.Withdraw(place_.slot);
  ClearAll();
  index_.Free(place_.slot, &view_);
}

ApplyResult StreamLedger::Impl::Store(model::Tier tier, std::span<const WireHash> hashes,
                                      std::optional<WireHash> parent,
                                      std::span<const std::uint32_t> tokens, Orphans orphans) {
  const std::size_t size = view_.hasher.block_size();
  XMS_ASSERT(tokens.size() == hashes.size() * size);
  ContentKey key = model::kRootKey;
  if (parent.has_value()) {
    const Mapping* known = table_.Find(*parent);
    if (known == nullptr && orphans == Orphans::kRemember) {
      StoreOpaque(std::nullopt, {&*parent, 1}, Content::kUnsaid);  // it has been named now
      known = table_.Find(*parent);
    } else if (known == nullptr && !dropped_.Has(*parent)) {
      return {ApplyCode::kUnknownParent, *parent, 0};
    }
    if (known == nullptr || !known->indexed()) {
      return StoreOpaque(tier, hashes, Content::kUnsaid);
    }
    key = KeyOf(*parent, *known);
  }
  ApplyResult result;
  std::array<ContentKey, kAhead> keys;
  for (std::size_t done = 0; done < hashes.size(); done += kAhead) {
    const std::size_t count = std::min(kAhead, hashes.size() - done);
    for (std::size_t i = 0; i < count; ++i) table_.Prefetch(hashes[done + i]);
    view_.hasher.Chain(key, tokens.subspan(done * size, count * size),
                       std::span(keys).first(count));
    key = keys[count - 1];
    std::array<internal::KeyRef, kAhead> refs;
    for (std::size_t i = 0; i < count; ++i) refs[i] = view_.blocks.RefOf(keys[i]);
    Approach(std::span(refs).first(count));
    for (std::size_t i = 0; i < count; ++i) {
      if (!StoreOne(hashes[done + i], keys[i], TierBit(tier), result)) return result;
    }
  }
  return result;
}

bool StreamLedger::Impl::StoreOne(WireHash wire, const ContentKey& key, Tiers tier,
                                  ApplyResult& result) {
  if (table_.size() >= limit() && table_.Find(wire) == nullptr && !MakeRoom()) {
    result = {ApplyCode::kOverLimit, wire, 0};
    return false;
  }
  const std::size_t before = table_.size();
  Mapping* mapping = table_.FindOrInsert(wire, Mapping::Make(Mapping::kIndexed, kNoTier, 0));
  if (table_.size() != before) {
    Enter(wire, *mapping, key, tier);
    return true;
  }
  if (mapping->kind() == Mapping::kOpaque) {
    // What it was known to hold becomes credit, together with the new tier.
    const Tiers held = mapping->tiers();
    if (held == kNoTier) {
      Unpark(*mapping);
    } else {
      Count(wire, held, /*indexed=*/false, /*more=*/false);
      --resident_;
    }
    --opaque_;
    *mapping = Mapping::Make(Mapping::kIndexed, kNoTier, 0);
    Enter(wire, *mapping, key, held | tier);
    return true;
  }
  if (KeyOf(wire, *mapping) != key) {
    result = {ApplyCode::kConflict, wire, 0};
    return false;
  }
  if ((mapping->tiers() & tier) == 0) {
    if (mapping->tiers() == kNoTier) Unpark(*mapping);
    Enter(wire, *mapping, key, tier);
  }
  return true;
}

ApplyResult StreamLedger::Impl::StoreKnown(model::Tier tier, std::span<const WireHash> hashes) {
  ApplyResult result;
  for (const WireHash wire : hashes) {
    Mapping* mapping = table_.Find(wire);
    if (mapping == nullptr) {
      ++result.unknown_hashes;
    } else {
      Gain(wire, *mapping, TierBit(tier));
    }
  }
  return result;
}

ApplyResult StreamLedger::Impl::StoreOpaque(std::optional<model::Tier> tier,
                                            std::span<const WireHash> hashes, Content content) {
  const Tiers bit = tier.has_value() ? TierBit(*tier) : kNoTier;
  for (const WireHash wire : hashes) {
    Mapping* mapping = table_.Find(wire);
    if (mapping != nullptr) {
      if (content == Content::kOther && mapping->indexed()) TurnOpaque(wire, *mapping);
      Gain(wire, *mapping, bit);
      continue;
    }
    if (!MakeRoom()) {
      // A mapping without residency is kept only where there is room for it (C2).
      if (bit == kNoTier) {
        dropped_.Add(wire);
        continue;
      }
      return {ApplyCode::kOverLimit, wire, 0};
    }
    ++opaque_;
    if (bit == kNoTier) {
      table_.FindOrInsert(
          wire, Mapping::Make(Mapping::kOpaque, kNoTier, parked_.Append(wire, model::kRootKey)));
      TrimParked();
    } else {
      table_.FindOrInsert(wire, Mapping::Make(Mapping::kOpaque, bit, 0));
      ++resident_;
      Count(wire, bit, /*indexed=*/false, /*more=*/true);
    }
  }
  return {};
}

std::uint32_t StreamLedger::Impl::Remove(model::Tier tier, std::span<const WireHash> hashes) {
  const Tiers bit = TierBit(tier);
  std::uint32_t unknown = 0;
  for (std::size_t done = 0; done < hashes.size(); done += kAhead) {
    const auto some = hashes.subspan(done, std::min(kAhead, hashes.size() - done));
    for (const WireHash wire : some) table_.Prefetch(wire);
    std::array<internal::KeyRef, kAhead> refs;
    std::size_t count = 0;
    for (const WireHash wire : some) {
      const Mapping* mapping = table_.Find(wire);
      if (mapping != nullptr && mapping->indexed() && (mapping->tiers() & bit) != 0) {
        refs[count++] = mapping->reference();
      }
    }
    Approach(std::span(refs).first(count));
    for (const WireHash wire : some) {
      Mapping* mapping = table_.Find(wire);
      if (mapping == nullptr) {
        ++unknown;
      } else if ((mapping->tiers() & bit) != 0) {
        Lose(wire, *mapping, bit);
        TrimParked();
      }
    }
  }
  return unknown;
}

void StreamLedger::Impl::Approach(std::span<const internal::KeyRef> refs) const {
  base::EpochGuard guard;
  for (const internal::KeyRef ref : refs) view_.blocks.PrefetchBucket(ref);
  for (const internal::KeyRef ref : refs) view_.blocks.PrefetchEntries(ref);
}

template <typename Change>
void StreamLedger::Impl::Hidden(Change&& change) {
  const bool was_synchronized = synchronized();
  if (was_synchronized) Unsynchronize("clearing");
  change();
  if (!was_synchronized) return;
  internal::SlotStatus& status = index_.status[place_.slot];
  base::MutexLock lock(status.mu);
  status.error.clear();
  PublishGeneration(generation_ + 1);
}

void StreamLedger::Impl::ClearTier(model::Tier tier) {
  const Tiers bit = TierBit(tier);
  std::uint64_t leaving = 0;
  table_.ForEach([&](WireHash, const Mapping& mapping) { leaving += mapping.tiers() == bit; });
  // The oldest give way first: those that were parked before, then any.
  const std::size_t most = MostParked(resident_ - leaving);
  const std::size_t parked = parked_.size() + leaving;
  const std::size_t too_many = parked > most ? parked - most : 0;
  const auto drop = [this](WireHash wire, Mapping& mapping) {
    if (!mapping.indexed()) --opaque_;
    mapping = Mapping{};
    dropped_.Add(wire);
  };
  Hidden([&] {
    std::size_t left = too_many;
    for (; left != 0 && parked_.size() != 0; --left) {
      const WireHash wire = parked_.wire(parked_.oldest());
      parked_.Remove(parked_.oldest());
      drop(wire, *table_.Find(wire));
    }
    table_.ForEach([&](WireHash wire, Mapping& mapping) {
      if ((mapping.tiers() & bit) == 0) return;
      Lose(wire, mapping, bit);
      if (left == 0 || mapping.tiers() != kNoTier) return;
      parked_.Remove(mapping.reference());
      drop(wire, mapping);
      --left;
    });
    if (too_many != 0) table_.Sweep();
    RepackParked();
  });
  NoteMemory();
}

void StreamLedger::Impl::ClearAll() {
  Hidden([this] {
    std::array<internal::KeyRef, kAhead> refs;
    std::size_t count = 0;
    const auto flush = [&] {
      Approach(std::span(refs).first(count));
      for (std::size_t i = 0; i < count; ++i) view_.blocks.ClearEvery(refs[i], place_.slot);
      count = 0;
    };
    table_.ForEach([&](WireHash, const Mapping& mapping) {
      if (!mapping.indexed() || mapping.tiers() == kNoTier) return;
      refs[count++] = mapping.reference();
      if (count == kAhead) flush();
    });
    flush();
    table_.Clear();
    parked_.Clear();
    dropped_.Clear();
    doubles_.Clear();
    exact_.Clear();
    keep_parked_ = false;
    resident_ = 0;
    opaque_ = 0;
    device_blocks_ = 0;
    host_blocks_ = 0;
    digest_ = 0;
  });
  NoteMemory();
}

void StreamLedger::Impl::ForgetResidency() {
  keep_parked_ = true;
  Hidden([this] {
    table_.ForEach([this](WireHash wire, Mapping& mapping) {
      if (mapping.tiers() != kNoTier) Lose(wire, mapping, mapping.tiers());
    });
  });
  NoteMemory();
}

void StreamLedger::Impl::Gain(WireHash wire, Mapping& mapping, Tiers tier) {
  if (tier == kNoTier || (mapping.tiers() & tier) != 0) return;
  if (mapping.indexed()) {
    const ContentKey key = KeyOf(wire, mapping);
    if (mapping.tiers() == kNoTier) Unpark(mapping);
    Enter(wire, mapping, key, tier);
    return;
  }
  if (mapping.tiers() == kNoTier) {
    Unpark(mapping);
    ++resident_;
  }
  mapping = Mapping::Make(Mapping::kOpaque, mapping.tiers() | tier, 0);
  Count(wire, tier, /*indexed=*/false, /*more=*/true);
}

void StreamLedger::Impl::Enter(WireHash wire, Mapping& mapping, const ContentKey& key,
                               Tiers tiers) {
  const auto added = view_.blocks.Add(key, place_.slot, tiers);
  const auto count = [tiers](Double& entry) {
    entry.device += (tiers & kOnDevice) != 0 ? 1 : 0;
    entry.host += (tiers & kOnHost) != 0 ? 1 : 0;
  };
  Double* entry = doubles_.Find(key);
  Mapping::Kind kind = mapping.kind();
  if (mapping.tiers() == kNoTier) {
    ++resident_;
    if (added.before != kNoTier) {
      // Another hash of ours stands for the same content. So far its tiers are the key's bits.
      if (entry == nullptr) {
        entry = doubles_.Insert(key, {(added.before & kOnDevice) != 0 ? 1u : 0u,
                                      (added.before & kOnHost) != 0 ? 1u : 0u, false});
      }
    } else if (added.twin) {
      entry = doubles_.Insert(key, {0, 0, true});
    }
    kind = entry != nullptr && entry->exact ? Mapping::kExact : Mapping::kIndexed;
    if (kind == Mapping::kExact) exact_.Insert(wire, key);
  }
  if (entry != nullptr) count(*entry);
  mapping = Mapping::Make(kind, mapping.tiers() | tiers, view_.blocks.RefOf(key));
  Count(wire, tiers, /*indexed=*/true, /*more=*/true);
}

internal::Tiers StreamLedger::Impl::Release(const ContentKey& key, Tiers tiers) {
  Double* entry = doubles_.Find(key);
  if (entry == nullptr) return tiers;
  Tiers last = tiers;
  if ((tiers & kOnDevice) != 0 && --entry->device != 0) last &= ~kOnDevice;
  if ((tiers & kOnHost) != 0 && --entry->host != 0) last &= ~kOnHost;
  if (entry->device == 0 && entry->host == 0) doubles_.Erase(key);
  return last;
}

model::ContentKey StreamLedger::Impl::Leave(WireHash wire, Mapping& mapping, Tiers tiers) {
  const auto only = view_.blocks.ClearOnly(
      mapping.reference(), place_.slot, [&](const ContentKey& key) { return Release(key, tiers); });
  const ContentKey key = only.has_value() ? *only : KeyOf(wire, mapping);
  if (!only.has_value()) {
    const Tiers last = Release(key, tiers);
    if (last != kNoTier) view_.blocks.ClearKey(key, place_.slot, last);
  }
  Count(wire, tiers, /*indexed=*/true, /*more=*/false);
  const Tiers left = mapping.tiers() & ~tiers;
  if (left == kNoTier && mapping.kind() == Mapping::kExact) exact_.Erase(wire);
  mapping = Mapping::Make(mapping.kind(), left, mapping.reference());
  return key;
}

void StreamLedger::Impl::Lose(WireHash wire, Mapping& mapping, Tiers tiers) {
  ContentKey key = model::kRootKey;
  Mapping::Kind kind = Mapping::kOpaque;
  if (mapping.indexed()) {
    key = Leave(wire, mapping, tiers);
    kind = Mapping::kIndexed;
  } else {
    Count(wire, tiers, /*indexed=*/false, /*more=*/false);
    mapping = Mapping::Make(kind, mapping.tiers() & ~tiers, 0);
  }
  if (mapping.tiers() != kNoTier) return;
  --resident_;
  mapping = Mapping::Make(kind, kNoTier, parked_.Append(wire, key));
}

void StreamLedger::Impl::Unpark(Mapping& mapping) {
  parked_.Remove(mapping.reference());
  mapping = Mapping::Make(mapping.kind(), kNoTier, 0);
}

void StreamLedger::Impl::TurnOpaque(WireHash wire, Mapping& mapping) {
  const Tiers held = mapping.tiers();
  ++opaque_;
  if (held == kNoTier) {
    // It keeps its place in the queue; the key there means nothing any more.
    mapping = Mapping::Make(Mapping::kOpaque, kNoTier, mapping.reference());
    return;
  }
  Leave(wire, mapping, held);
  mapping = Mapping::Make(Mapping::kOpaque, held, 0);
  Count(wire, held, /*indexed=*/false, /*more=*/true);
}

std::size_t StreamLedger::Impl::MostParked(std::uint64_t resident) {
  return std::max<std::size_t>(1024, resident / 8);
}

void StreamLedger::Impl::TrimParked() {
  if (keep_parked_) return;
  const std::size_t most = MostParked(resident_);
  while (parked_.size() > most) DropOldestParked();
  RepackParked();
}

void StreamLedger::Impl::RepackParked() {
  if (!parked_.IsSparse()) return;
  parked_.Repack([this](WireHash wire, std::uint32_t number) {
    Mapping* mapping = table_.Find(wire);
    *mapping = Mapping::Make(mapping->kind(), kNoTier, number);
  });
}

void StreamLedger::Impl::DropOldestParked() {
  const std::uint32_t number = parked_.oldest();
  const WireHash wire = parked_.wire(number);
  Mapping* mapping = table_.Find(wire);
  if (!mapping->indexed()) --opaque_;
  table_.Erase(mapping);
  parked_.Remove(number);
  dropped_.Add(wire);
  if (parked_.size() != 0) table_.Prefetch(parked_.SoonOldest());
}

bool StreamLedger::Impl::MakeRoom() {
  if (table_.size() < limit()) return true;
  if (parked_.size() == 0) return false;
  DropOldestParked();
  return true;
}

model::ContentKey StreamLedger::Impl::KeyOf(WireHash wire, const Mapping& mapping) {
  if (mapping.tiers() == kNoTier) return parked_.key(mapping.reference());
  if (mapping.kind() == Mapping::kExact) return *exact_.Find(wire);
  std::vector<internal::PrefixView::OwnEntry> more;
  std::array<internal::PrefixView::OwnEntry, 4> few;
  std::span<internal::PrefixView::OwnEntry> own(few);
  std::uint32_t count = view_.blocks.Own(mapping.reference(), place_.slot, own);
  if (count > own.size()) {
    more.resize(count);
    own = more;
    count = view_.blocks.Own(mapping.reference(), place_.slot, own);
  }
  for (const auto& candidate : own.first(count)) {
    if (count == 1) return candidate.key;
    const Double* entry = doubles_.Find(candidate.key);
    if (entry == nullptr || !entry->exact) return candidate.key;  // M2
  }
  XMS_ASSERT(false && "a resident mapping has an entry");
  return {};
}

bool StreamLedger::Impl::Indexed(WireHash hash) {
  const Mapping* mapping = table_.Find(hash);
  return mapping != nullptr && mapping->indexed();
}

StreamLedger::Statement StreamLedger::Impl::Lookup(WireHash hash) {
  const Mapping* mapping = table_.Find(hash);
  if (mapping == nullptr) return {};
  return {.mapped = true,
          .indexed = mapping->indexed(),
          .device = (mapping->tiers() & kOnDevice) != 0,
          .host = (mapping->tiers() & kOnHost) != 0,
          .key = mapping->indexed() ? KeyOf(hash, *mapping) : model::kRootKey};
}

void StreamLedger::Impl::Count(WireHash wire, Tiers tiers, bool indexed, bool more) {
  const std::uint64_t one = more ? 1 : ~std::uint64_t{0};
  for (const Tiers tier : {kOnDevice, kOnHost}) {
    if ((tiers & tier) == 0) continue;
    digest_ += one * DigestOf(wire, tier);
    if (indexed) (tier == kOnDevice ? device_blocks_ : host_blocks_) += one;
  }
}

void StreamLedger::Impl::PublishGeneration(std::uint64_t generation) {
  generation_ = generation;
  index_.generation[place_.slot].store(generation, std::memory_order_release);  // G1
  index_.Restamp();
}

void StreamLedger::Impl::PublishCounts(internal::SlotStatus& status,
                                       model::StreamSeq sequence) const {
  status.sequence = sequence;
  status.sequence_valid = true;
  status.device_blocks = device_blocks_;
  status.host_blocks = host_blocks_;
  status.digest = digest_;
  status.opaque_mappings = opaque_;
}

void StreamLedger::Impl::Unsynchronize(std::string reason) {
  internal::SlotStatus& status = index_.status[place_.slot];
  base::MutexLock lock(status.mu);
  if (synchronized()) PublishGeneration(generation_ + 1);
  status.error = std::move(reason);
}

void StreamLedger::Impl::Synchronize(model::StreamSeq sequence) {
  keep_parked_ = false;
  TrimParked();
  {
    internal::SlotStatus& status = index_.status[place_.slot];
    base::MutexLock lock(status.mu);
    PublishCounts(status, sequence);
    status.error.clear();
    PublishGeneration(generation_ + (synchronized() ? 2 : 1));
  }
  NoteMemory();
}

void StreamLedger::Impl::Advance(model::StreamSeq sequence) {
  {
    internal::SlotStatus& status = index_.status[place_.slot];
    base::MutexLock lock(status.mu);
    PublishCounts(status, sequence);
  }
  NoteMemory();
}

void StreamLedger::Impl::ForgetSequence() {
  internal::SlotStatus& status = index_.status[place_.slot];
  base::MutexLock lock(status.mu);
  status.sequence = {};
  status.sequence_valid = false;
}

void StreamLedger::Impl::NoteProof(base::SteadyTime snapshot_at, base::SteadyTime live_at) {
  internal::SlotStatus& status = index_.status[place_.slot];
  status.snapshot_at.store(snapshot_at, std::memory_order_relaxed);
  status.live_at.store(live_at, std::memory_order_relaxed);
}

// Also the place where tables that were replaced in this batch are given back, once their readers
// have left.
void StreamLedger::Impl::NoteMemory() {
  index_.status[place_.slot].ledger_bytes.store(sizeof(*this) + table_.bytes() + parked_.bytes() +
                                                    dropped_.bytes() + doubles_.bytes() +
                                                    exact_.bytes(),
                                                std::memory_order_relaxed);
  base::EpochCollect();
}

StreamLedger::StreamLedger(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StreamLedger::~StreamLedger() = default;

const StreamInfo& StreamLedger::info() const { return impl_->info(); }

ApplyResult StreamLedger::Store(model::Tier tier, std::span<const model::WireHash> hashes,
                                std::optional<model::WireHash> parent,
                                std::span<const std::uint32_t> tokens, Orphans orphans) {
  return impl_->Store(tier, hashes, parent, tokens, orphans);
}
ApplyResult StreamLedger::StoreKnown(model::Tier tier, std::span<const model::WireHash> hashes) {
  return impl_->StoreKnown(tier, hashes);
}
ApplyResult StreamLedger::StoreOpaque(std::optional<model::Tier> tier,
                                      std::span<const model::WireHash> hashes, Content content) {
  return impl_->StoreOpaque(tier, hashes, content);
}
std::uint32_t StreamLedger::Remove(model::Tier tier, std::span<const model::WireHash> hashes) {
  return impl_->Remove(tier, hashes);
}
void StreamLedger::ClearTier(model::Tier tier) { impl_->ClearTier(tier); }
void StreamLedger::ClearAll() { impl_->ClearAll(); }
void StreamLedger::ForgetResidency() { impl_->ForgetResidency(); }

void StreamLedger::Unsynchronize(std::string reason) { impl_->Unsynchronize(std::move(reason)); }
void StreamLedger::Synchronize(model::StreamSeq sequence) { impl_->Synchronize(sequence); }
void StreamLedger::Advance(model::StreamSeq sequence) { impl_->Advance(sequence); }
void StreamLedger::ForgetSequence() { impl_->ForgetSequence(); }
void StreamLedger::NoteProof(base::SteadyTime snapshot_at, base::SteadyTime live_at) {
  impl_->NoteProof(snapshot_at, live_at);
}

bool StreamLedger::synchronized() const { return impl_->synchronized(); }
std::uint64_t StreamLedger::mappings() const { return impl_->mappings(); }
std::uint64_t StreamLedger::opaque_mappings() const { return impl_->opaque_mappings(); }
bool StreamLedger::Indexed(model::WireHash hash) const { return impl_->Indexed(hash); }
StreamLedger::Statement StreamLedger::Lookup(model::WireHash hash) const {
  return impl_->Lookup(hash);
}
std::uint64_t StreamLedger::limit() const { return impl_->limit(); }
std::uint64_t StreamLedger::digest() const { return impl_->digest(); }
std::uint64_t StreamLedger::DigestTerm(model::WireHash hash, model::Tier tier) {
  return DigestOf(hash, TierBit(tier));
}

}  // namespace xms::kv_index
