// StreamLedger::Impl: one stream's mappings, and the one place that changes its bits.
//
// Place       stream_ledger.cc; kv_index.cc makes them.
// Threads     One at a time.
// Invariants  M1  A mapping with tiers and a content key has exactly these bits in its key's entry,
//                 together with those of other hashes of this stream that stand for the same key
//                 (`doubles_`).
//             M2  A KeyRef is 28 bits, so two of the stream's own entries may share it. Among the
//                 keys that do, at most one is not marked exact; mappings of exact keys (Kind kExact)
//                 keep their key in `exact_`. So every mapping leads to its key: by the ledger, or
//                 as the only own entry left.
//             M3  A mapping without tiers is in `parked_`, with its key if it has one; what had to
//                 leave `parked_` is in `dropped_`, as long as that remembers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kv_index/internal/dropped_names.h"
#include "kv_index/internal/flat_map.h"
#include "kv_index/internal/index_state.h"
#include "kv_index/internal/ledger_table.h"
#include "kv_index/internal/parked_list.h"
#include "kv_index/internal/tiers.h"
#include "kv_index/stream_ledger.h"
#include "model/content_key.h"
#include "model/ids.h"

namespace xms::kv_index {

struct StreamLedger::Impl {
 public:
  Impl(internal::IndexState& index, internal::IndexState::Opened opened);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  ApplyResult Store(model::Tier tier, std::span<const model::WireHash> hashes,
                    std::optional<model::WireHash> parent, std::span<const std::uint32_t> tokens,
                    Orphans orphans);
  ApplyResult StoreKnown(model::Tier tier, std::span<const model::WireHash> hashes);
  ApplyResult StoreOpaque(std::optional<model::Tier> tier, std::span<const model::WireHash> hashes,
                          Content content);
  std::uint32_t Remove(model::Tier tier, std::span<const model::WireHash> hashes);
  void ClearTier(model::Tier tier);
  void ClearAll();
  void ForgetResidency();

  void Unsynchronize(std::string reason);
  void Synchronize(model::StreamSeq sequence);
  void Advance(model::StreamSeq sequence);
  void ForgetSequence();
  void NoteProof(base::SteadyTime snapshot_at, base::SteadyTime live_at);

  const StreamInfo& info() const { return *place_.info; }
  bool synchronized() const { return (generation_ & 1) != 0; }
  std::uint64_t mappings() const { return table_.size(); }
  std::uint64_t opaque_mappings() const { return opaque_; }
  bool Indexed(model::WireHash hash);
  Statement Lookup(model::WireHash hash);
  std::uint64_t limit() const { return index_.options.max_blocks_per_stream; }
  std::uint64_t digest() const { return digest_; }

 private:
  using Mapping = internal::Mapping;
  using Tiers = internal::Tiers;
  using WireHash = model::WireHash;
  using ContentKey = model::ContentKey;

  struct HashOfWire {
    std::uint64_t operator()(const WireHash& wire) const;
  };
  struct HashOfKey {
    std::uint64_t operator()(const ContentKey& key) const;
  };
  // A key that is not simply one mapping's: how many mappings hold it per tier, and whether it is
  // exact (M2). Lives as long as the stream holds the key.
  struct Double {
    std::uint32_t device = 0;
    std::uint32_t host = 0;
    bool exact = false;
  };

  // Runs a change that no match may see half of: the stream is not synchronized meanwhile (C8).
  template <typename Change>
  void Hidden(Change&& change);
  // Brings closer what operations with these entries of the view will need.
  void Approach(std::span<const internal::KeyRef> refs) const;
  // Applies one hash of a store; false when it is a conflict or over the limit.
  bool StoreOne(WireHash wire, const ContentKey& key, Tiers tier, ApplyResult& result);
  // A known hash gains a tier that it does not have.
  void Gain(WireHash wire, Mapping& mapping, Tiers tier);
  // Bits of an indexed mapping appear and go. `mapping` is not parked.
  void Enter(WireHash wire, Mapping& mapping, const ContentKey& key, Tiers tiers);
  ContentKey Leave(WireHash wire, Mapping& mapping, Tiers tiers);
  // One mapping less holds these tiers of a key: which bits go with it.
  Tiers Release(const ContentKey& key, Tiers tiers);
  // A mapping of either kind loses tiers; without any it is parked.
  void Lose(WireHash wire, Mapping& mapping, Tiers tiers);
  void Unpark(Mapping& mapping);
  // An indexed mapping becomes an opaque one with the same tiers.
  void TurnOpaque(WireHash wire, Mapping& mapping);
  static std::size_t MostParked(std::uint64_t resident);
  // Keeps the parked ones within their limit. Moves mappings.
  void TrimParked();
  void RepackParked();
  void DropOldestParked();
  // Room for one more mapping, at the parked ones' expense. False: none. Moves mappings.
  bool MakeRoom();
  ContentKey KeyOf(WireHash wire, const Mapping& mapping);
  void Count(WireHash wire, Tiers tiers, bool indexed, bool more);
  void PublishGeneration(std::uint64_t generation);
  // What readers see of what has been applied, as of one sequence.
  void PublishCounts(internal::SlotStatus& status, model::StreamSeq sequence) const
      XMS_REQUIRES(status.mu);
  void NoteMemory();

  internal::IndexState& index_;
  const internal::IndexState::SlotEntry place_;
  internal::View& view_;
  std::uint64_t generation_;  // as published

  internal::LedgerTable table_;
  internal::ParkedList parked_;
  internal::DroppedNames dropped_;
  internal::FlatMap<ContentKey, Double, HashOfKey> doubles_;
  internal::FlatMap<WireHash, ContentKey, HashOfWire> exact_;
  bool keep_parked_ = false;    // between ForgetResidency and Synchronize
  std::uint64_t resident_ = 0;  // mappings with a tier
  std::uint64_t opaque_ = 0;
  std::uint64_t device_blocks_ = 0;  // indexed mappings on Device
  std::uint64_t host_blocks_ = 0;
  std::uint64_t digest_ = 0;
};

}  // namespace xms::kv_index
