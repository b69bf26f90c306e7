// LedgerTable: wire hash → mapping, for one stream, flat.
//
// Place       StreamLedger alone.
// Shape       Open addressing over buckets of one cache line: five wire hashes with 32 bits each.
//             12.8 bytes a place; at most seven eighths of the places are in use.
// Threads     One at a time.
// Invariants  If a hash lies d buckets behind its home, these d buckets are full. So a search ends at
//             the first bucket that is not, and Erase fills the gap it makes from behind.
// Cost        One cache line an operation, mostly. Growth rehashes everything.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/assert.h"
#include "kv_index/internal/tiers.h"
#include "model/ids.h"

namespace xms::kv_index::internal {

// What a stream said of a hash. 32 bits: reference << 4 | kind << 2 | tiers.
//   resident, kIndexed or kExact   reference: the KeyRef of its entry in the view
//   resident, kOpaque              reference: unused
//   not resident                   reference: its place in the ParkedList
struct Mapping {
  enum Kind : std::uint32_t {
    kNone = 0,  // no mapping
    kIndexed = 1,
    kOpaque = 2,  // known, without credit
    kExact = 3,   // indexed, and the key has to be looked up in the ledger (see StreamLedger)
  };

  std::uint32_t bits = 0;

  static Mapping Make(Kind kind, Tiers tiers, std::uint32_t reference) {
    return {reference << 4 | kind << 2 | tiers};
  }
  Kind kind() const { return static_cast<Kind>(bits >> 2 & 3); }
  Tiers tiers() const { return static_cast<Tiers>(bits & 3); }
  std::uint32_t reference() const { return bits >> 4; }
  bool indexed() const { return kind() == kIndexed || kind() == kExact; }
};

class LedgerTable {
 public:
  explicit LedgerTable(std::uint64_t salt) : salt_(salt) {}

  std::size_t size() const { return size_; }
  std::size_t bytes() const { return std::size_t{bucket_count_} * sizeof(Bucket); }

  // Null when there is none. The pointer is good until the next Insert or Erase.
  Mapping* Find(model::WireHash wire) {
    if (size_ == 0) return nullptr;
    for (std::uint32_t at = Home(wire);; at = Next(at)) {
      Bucket& bucket = buckets_[at];
      std::uint32_t hits = 0;
      std::uint32_t used = 0;
      for (std::uint32_t i = 0; i < kPlaces; ++i) {
        const std::uint32_t taken = bucket.mapping[i].bits != 0 ? 1u : 0u;
        hits |= (static_cast<std::uint32_t>(bucket.wire[i] == wire.value) & taken) << i;
        used += taken;
      }
      if (hits != 0) return &bucket.mapping[std::countr_zero(hits)];
      if (used != kPlaces) return nullptr;
    }
  }

  // `wire` has no mapping yet.
  Mapping* Insert(model::WireHash wire, Mapping mapping) {
    if ((size_ + 1) * 8 > std::size_t{bucket_count_} * kPlaces * 7) Rehash(GrownCount());
    ++size_;
    return Place(wire.value, mapping);
  }

  void Erase(model::WireHash wire) {
    Mapping* found = Find(wire);
    XMS_ASSERT(found != nullptr);
    auto at = static_cast<std::uint32_t>(
        (reinterpret_cast<std::byte*>(found) - reinterpret_cast<std::byte*>(buckets_.get())) /
        sizeof(Bucket));
    auto place = static_cast<std::uint32_t>(found - buckets_[at].mapping);
    --size_;
    for (;;) {
      const bool was_full = IsFull(buckets_[at]);
      buckets_[at].mapping[place] = Mapping{};
      if (!was_full) break;
      if (!PullInto(at, place)) break;
    }
    if (bucket_count_ > kSmallest && size_ * 6 < std::size_t{bucket_count_} * kPlaces) {
      Rehash(CountFor(size_));
    }
  }

  void Clear() {
    buckets_.reset();
    bucket_count_ = 0;
    size_ = 0;
  }

  // visit(wire, mapping&) for every mapping, in no particular order; it must not insert or erase.
  template <typename Visit>
  void ForEach(Visit&& visit) {
    for (std::uint32_t at = 0; at < bucket_count_; ++at) {
      for (std::uint32_t i = 0; i < kPlaces; ++i) {
        Mapping& mapping = buckets_[at].mapping[i];
        if (mapping.bits != 0) visit(model::WireHash{buckets_[at].wire[i]}, mapping);
      }
    }
  }

  void Prefetch(model::WireHash wire) const {
    if (bucket_count_ != 0) __builtin_prefetch(&buckets_[Home(wire)]);
  }

 private:
  static constexpr std::uint32_t kPlaces = 5;
  static constexpr std::uint32_t kSmallest = 8;

  struct alignas(64) Bucket {
    std::uint64_t wire[kPlaces] = {};
    Mapping mapping[kPlaces];
  };
  static_assert(sizeof(Bucket) == 64);

  std::uint32_t Home(model::WireHash wire) const {
    const std::uint64_t mixed = (wire.value ^ salt_) * 0x9E3779B97F4A7C15u;
    return static_cast<std::uint32_t>(((mixed >> 32) * bucket_count_) >> 32);
  }
  std::uint32_t Next(std::uint32_t at) const { return at + 1 == bucket_count_ ? 0 : at + 1; }
  std::uint32_t Distance(std::uint32_t from, std::uint32_t to) const {
    return to >= from ? to - from : to + bucket_count_ - from;
  }
  static bool IsFull(const Bucket& bucket) {
    bool full = true;
    for (const Mapping& mapping : bucket.mapping) full &= mapping.bits != 0;
    return full;
  }

  Mapping* Place(std::uint64_t wire, Mapping mapping) {
    for (std::uint32_t at = Home({wire});; at = Next(at)) {
      Bucket& bucket = buckets_[at];
      for (std::uint32_t i = 0; i < kPlaces; ++i) {
        if (bucket.mapping[i].bits != 0) continue;
        bucket.wire[i] = wire;
        bucket.mapping[i] = mapping;
        return &bucket.mapping[i];
      }
    }
  }

  // Moves a mapping that had to pass the gap at (at, place) into it; then the gap is where that one
  // was. False when there is none.
  bool PullInto(std::uint32_t& at, std::uint32_t& place) {
    for (std::uint32_t behind = Next(at); behind != at; behind = Next(behind)) {
      Bucket& bucket = buckets_[behind];
      for (std::uint32_t i = 0; i < kPlaces; ++i) {
        if (bucket.mapping[i].bits == 0) continue;
        if (Distance(Home({bucket.wire[i]}), behind) < Distance(at, behind)) continue;
        buckets_[at].wire[place] = bucket.wire[i];
        buckets_[at].mapping[place] = bucket.mapping[i];
        at = behind;
        place = i;
        return true;
      }
      if (!IsFull(bucket)) return false;
    }
    return false;
  }

  static std::uint32_t CountFor(std::size_t mappings) {
    const std::size_t buckets = mappings * 4 / (3 * kPlaces) + 1;  // three quarters full
    return buckets < kSmallest ? kSmallest : static_cast<std::uint32_t>(buckets);
  }
  // Large ledgers pay for every unused place, small ones rather for rehashing.
  std::uint32_t GrownCount() const {
    if (bucket_count_ == 0) return kSmallest;
    return bucket_count_ < 4096 ? bucket_count_ * 2 : bucket_count_ + bucket_count_ / 4;
  }
  void Rehash(std::uint32_t bucket_count) {
    const std::unique_ptr<Bucket[]> old =
        std::exchange(buckets_, std::make_unique<Bucket[]>(bucket_count));
    const std::uint32_t old_count = std::exchange(bucket_count_, bucket_count);
    for (std::uint32_t at = 0; at < old_count; ++at) {
      for (std::uint32_t i = 0; i < kPlaces; ++i) {
        if (old[at].mapping[i].bits != 0) Place(old[at].wire[i], old[at].mapping[i]);
      }
    }
  }

  const std::uint64_t salt_;
  std::unique_ptr<Bucket[]> buckets_;
  std::uint32_t bucket_count_ = 0;
  std::size_t size_ = 0;
};

}  // namespace xms::kv_index::internal
