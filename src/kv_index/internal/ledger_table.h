// LedgerTable: wire hash → mapping, for one stream, flat.
//
// Place       StreamLedger alone.
// Shape       Open addressing over buckets of one cache line: five wire hashes with 32 bits each.
//             12.8 bytes a place; at most 13 in 16 places are in use, 11 in 16 after growth when large.
// Threads     One at a time.
// Invariants  If a hash lies d buckets behind its home, these d buckets are full. So a search ends at
//             the first bucket that is not, and Erase fills the gap that it makes from behind.
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
    for (Bucket* bucket = &buckets_[Home(wire)];; bucket = Next(bucket)) {
      const std::uint32_t hits = bucket->Matches(wire.value);
      if (hits != 0) return &bucket->mapping[std::countr_zero(hits)];
      if (bucket->used != kFull) return nullptr;
    }
  }

  // The mapping of `wire`; if there is none yet, `fresh` becomes one.
  Mapping* FindOrInsert(model::WireHash wire, Mapping fresh) {
    if ((size_ + 1) * 16 > std::size_t{bucket_count_} * kPlaces * 13) Rehash(GrownCount());
    for (Bucket* bucket = &buckets_[Home(wire)];; bucket = Next(bucket)) {
      const std::uint32_t hits = bucket->Matches(wire.value);
      if (hits != 0) return &bucket->mapping[std::countr_zero(hits)];
      if (bucket->used == kFull) continue;
      ++size_;
      return bucket->Put(wire.value, fresh);
    }
  }

  // `found` came from Find.
  void Erase(Mapping* found) {
    Bucket* bucket = BucketOf(found);
    auto place = static_cast<std::uint32_t>(found - bucket->mapping);
    --size_;
    for (;;) {
      const bool was_full = bucket->used == kFull;
      bucket->mapping[place] = Mapping{};
      bucket->used &= ~(1u << place);
      if (!was_full || !PullInto(bucket, place)) break;
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

  // visit(wire, mapping&) for every mapping, in no particular order; it must not insert or erase. It
  // may set a mapping to none, if Sweep follows.
  template <typename Visit>
  void ForEach(Visit&& visit) {
    for (std::uint32_t at = 0; at < bucket_count_; ++at) {
      Bucket& bucket = buckets_[at];
      for (std::uint32_t left = bucket.used; left != 0; left &= left - 1) {
        const int i = std::countr_zero(left);
        visit(model::WireHash{bucket.wire[i]}, bucket.mapping[i]);
      }
    }
  }

  // Forgets the mappings that were set to none meanwhile, in one pass. Many erased one by one in the
  // order of ForEach would leave all others in one long run.
  void Sweep() {
    for (std::uint32_t at = 0; at < bucket_count_; ++at) {
      Bucket& bucket = buckets_[at];
      for (std::uint32_t left = bucket.used; left != 0; left &= left - 1) {
        const int i = std::countr_zero(left);
        if (bucket.mapping[i].bits != 0) continue;
        bucket.used &= ~(1u << i);
        --size_;
      }
    }
    Rehash(CountFor(size_));
  }

  void Prefetch(model::WireHash wire) const {
    if (bucket_count_ != 0) __builtin_prefetch(&buckets_[Home(wire)]);
  }

 private:
  static constexpr std::uint32_t kPlaces = 5;
  static constexpr std::uint32_t kFull = (1u << kPlaces) - 1;
  static constexpr std::uint32_t kSmallest = 8;

  struct alignas(64) Bucket {
    std::uint64_t wire[kPlaces] = {};
    Mapping mapping[kPlaces];
    std::uint32_t used = 0;  // a bit for each place

    std::uint32_t Matches(std::uint64_t value) const {
      std::uint32_t hits = 0;
      for (std::uint32_t i = 0; i < kPlaces; ++i) {
        hits |= static_cast<std::uint32_t>(wire[i] == value) << i;
      }
      return hits & used;
    }
    Mapping* Put(std::uint64_t value, Mapping fresh) {
      const int i = std::countr_one(used);
      used |= 1u << i;
      wire[i] = value;
      mapping[i] = fresh;
      return &mapping[i];
    }
  };
  static_assert(sizeof(Bucket) == 64);

  std::uint32_t Home(model::WireHash wire) const {
    const std::uint64_t mixed = (wire.value ^ salt_) * 0x9E3779B97F4A7C15u;
    return static_cast<std::uint32_t>(((mixed >> 32) * bucket_count_) >> 32);
  }
  Bucket* Next(Bucket* bucket) {
    return ++bucket == &buckets_[bucket_count_] ? &buckets_[0] : bucket;
  }
  std::uint32_t Distance(std::uint32_t from, const Bucket* to) const {
    const auto at = static_cast<std::uint32_t>(to - &buckets_[0]);
    return at >= from ? at - from : at + bucket_count_ - from;
  }
  Bucket* BucketOf(const Mapping* mapping) {
    const auto offset = reinterpret_cast<const std::byte*>(mapping) -
                        reinterpret_cast<const std::byte*>(&buckets_[0]);
    return &buckets_[static_cast<std::size_t>(offset) / sizeof(Bucket)];
  }

  // Moves a mapping that had to pass the gap at (gap, place) into it; then the gap is where that one
  // was. False when there is none.
  bool PullInto(Bucket*& gap, std::uint32_t& place) {
    const auto gap_at = static_cast<std::uint32_t>(gap - &buckets_[0]);
    for (Bucket* behind = Next(gap); behind != gap; behind = Next(behind)) {
      for (std::uint32_t left = behind->used; left != 0; left &= left - 1) {
        const auto i = static_cast<std::uint32_t>(std::countr_zero(left));
        if (Distance(Home({behind->wire[i]}), behind) < Distance(gap_at, behind)) continue;
        gap->wire[place] = behind->wire[i];
        gap->mapping[place] = behind->mapping[i];
        gap->used |= 1u << place;
        gap = behind;
        place = i;
        return true;
      }
      if (behind->used != kFull) return false;
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
    return bucket_count_ < 4096 ? bucket_count_ * 2 : bucket_count_ + bucket_count_ / 5;
  }
  void Rehash(std::uint32_t bucket_count) {
    const std::unique_ptr<Bucket[]> old =
        std::exchange(buckets_, std::make_unique<Bucket[]>(bucket_count));
    const std::uint32_t old_count = std::exchange(bucket_count_, bucket_count);
    for (std::uint32_t at = 0; at < old_count; ++at) {
      for (std::uint32_t left = old[at].used; left != 0; left &= left - 1) {
        const int i = std::countr_zero(left);
        Bucket* bucket = &buckets_[Home({old[at].wire[i]})];
        while (bucket->used == kFull) bucket = Next(bucket);
        bucket->Put(old[at].wire[i], old[at].mapping[i]);
      }
    }
  }

  const std::uint64_t salt_;
  std::unique_ptr<Bucket[]> buckets_;
  std::uint32_t bucket_count_ = 0;
  std::size_t size_ = 0;
};

}  // namespace xms::kv_index::internal
