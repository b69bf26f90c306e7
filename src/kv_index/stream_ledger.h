// StreamLedger: what one stream's events have said, and the only way to change its bits in the view.
//
// Place       Owned and driven by kv_directory, one per subscribed stream.
// Threads     One thread at a time per ledger, any number of ledgers. Readers see changes through
//             KvIndex::Match as they happen; nothing here waits for a reader.
// Ownership   Borrows its KvIndex.
// Invariants  L1  A hash has one statement: indexed (a content key) or opaque (no credit, B5), and a
//                 set of tiers. Mappings outlive residency, first-in first-out, up to
//                 max(1024, resident/8) and within the limit (C2). Of those that had to go the names
//                 stay, the last limit/16 of them, at least 1024 and at most 65536: a child of one is
//                 opaque, not unknown.
//             L2  After Unsynchronize returns, no match that begins reports a hit of this stream until
//                 Synchronize.
//             L3  Counts towards max_blocks_per_stream: every mapping kept (C7). One without residency
//                 gives way to one with; kOverLimit means that all are resident.
//             L4  Two hashes of one content are two mappings; the block is there while either holds it.
// Failure     Apply results tell the caller what to do; the ledger never unsynchronizes by itself.
//             After kConflict or kOverLimit part of the call has been applied: the caller unsynchronizes
//             and resets. kUnknownParent has changed nothing.
// Cost        A stored block: one hash of 16 + 4·block_size bytes, one ledger and one view operation.
//             12.8 bytes a mapping, divided by how full the table is (0.68 to 0.81 when large); names
//             of dropped ones four bytes each. ClearTier, ClearAll and destruction: O(mappings),
//             measured in bench/kv_index.
// Proof       KVIndexLedger*, KVIndexModel*, bench/kv_index.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "kv_index/kv_index.h"
#include "model/content_key.h"
#include "model/ids.h"

namespace xms::kv_index {

enum class ApplyCode : std::uint8_t {
  kApplied,
  kUnknownParent,  // no event or snapshot since ClearAll named the parent, as far as L1 remembers (D4)
  kConflict,       // an indexed hash restated with other tokens or another parent (A27)
  kOverLimit,      // one mapping more than max_blocks_per_stream (C7)
};

struct ApplyResult {
  ApplyCode code = ApplyCode::kApplied;
  model::WireHash culprit;           // the parent, or the hash in conflict
  std::uint32_t unknown_hashes = 0;  // tokenless stores of unknown hashes, ignored (A10)
  bool ok() const { return code == ApplyCode::kApplied; }
};

class StreamLedger {
 public:
  ~StreamLedger();
  StreamLedger(const StreamLedger&) = delete;
  StreamLedger& operator=(const StreamLedger&) = delete;

  const StreamInfo& info() const;

  // What an unknown parent means: in live batches a violation; in snapshots an orphan, whose hashes
  // become opaque (D4), and so does the parent, without residency, now that it has been named.
  enum class Orphans : std::uint8_t { kRefuse, kRemember };

  // `tokens` holds hashes.size() × block_size ids. Set semantics (C4).
  ApplyResult Store(model::Tier tier, std::span<const model::WireHash> hashes,
                    std::optional<model::WireHash> parent, std::span<const std::uint32_t> tokens,
                    Orphans orphans);
  // A store without tokens: each known hash gains the tier; unknown ones are counted (A10).
  ApplyResult StoreKnown(model::Tier tier, std::span<const model::WireHash> hashes);

  // What an opaque store says of a hash that is indexed. kUnsaid: nothing (an orphan, an unknown
  // medium, a parent that is merely named); it stays indexed and gains the tier. kOther: that it stands
  // for something else than these tokens (LoRA, multimodal, salt, cache group); it turns opaque with the
  // tiers that it has, and its credit goes.
  enum class Content : std::uint8_t { kUnsaid, kOther };

  // Hashes that a store named and that are not indexed (B5). `tier` empty: a medium that is neither tier, no
  // residency.
  ApplyResult StoreOpaque(std::optional<model::Tier> tier, std::span<const model::WireHash> hashes,
                          Content content = Content::kUnsaid);
  // Ends residency in one tier; unknown hashes are no-ops. Returns how many were unknown.
  std::uint32_t Remove(model::Tier tier, std::span<const model::WireHash> hashes);
  // Ends residency of everything in one tier; mappings stay under L1's rule. A new generation, if
  // synchronized; until it is done the stream is not (error "clearing"), so no match reports half of it.
  void ClearTier(model::Tier tier);
  // Forgets everything, mappings and names included; a new generation likewise.
  void ClearAll();
  // Ends residency of everything in both tiers; every mapping stays until the next Synchronize, and then
  // under L1's rule. For a snapshot of the same life that is about to say what is resident. A new
  // generation likewise.
  void ForgetResidency();

  // Zero hits from here: one store. Safe to repeat; the latest reason stays.
  void Unsynchronize(std::string reason);
  // What has been applied becomes visible, whole, under a new generation; also when it was synchronized
  // already. error becomes "".
  void Synchronize(model::StreamSeq sequence);
  // A live batch has been applied while synchronized. Plain monotone progress, no new generation.
  void Advance(model::StreamSeq sequence);
  // A new life begins: sequence_valid becomes false, sequence 0. Implies nothing else.
  void ForgetSequence();
  // When a snapshot last agreed or was applied, and when a live batch was last applied, for
  // StreamStatus. Two stores; the epoch means never.
  void NoteProof(base::SteadyTime snapshot_at, base::SteadyTime live_at);

  bool synchronized() const;
  std::uint64_t mappings() const;
  std::uint64_t opaque_mappings() const;
  // The hash is known and indexed, whether resident or not.
  bool Indexed(model::WireHash hash) const;
  // What is known of one hash. With digest() equal and each resident hash's statement equal, a set that
  // was computed aside (keys: model::BlockHasher of info()) is the ledger's, contents included.
  struct Statement {
    bool mapped = false;
    bool indexed = false;
    bool device = false;
    bool host = false;
    model::ContentKey key;  // root unless indexed
    bool operator==(const Statement&) const = default;
  };
  Statement Lookup(model::WireHash hash) const;
  std::uint64_t limit() const;
  // Order-independent sum over resident mappings (wire hash and tier, opaque included), for comparing
  // replicas and snapshots.
  std::uint64_t digest() const;
  // What one resident mapping adds to it.
  static std::uint64_t DigestTerm(model::WireHash hash, model::Tier tier);

 private:
  friend class KvIndex;
  struct Impl;
  explicit StreamLedger(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace xms::kv_index
