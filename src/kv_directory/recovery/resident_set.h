// ResidentSet: what a snapshot and the batches after it say is resident, beside the ledger.
//
// Place       StreamMachine's reconciliation (D7): its digest is compared with the ledger's.
// Threads     Externally synchronised; lives for one comparison.
// Meaning     Per wire hash: tiers (opaque hashes included, as in StreamLedger::digest), and what it
//             stands for: a content key, something else, or unsaid. The key of a block whose parent
//             is not in the snapshot follows from the key that the ledger has for the parent.
//             What is replicated without having been named here is what the ledger knows it to be, from
//             a time before the snapshot; what the ledger does not know either is ignored, as there.
// Failure     `contradictory`: the snapshot gives one hash two contents.
// Cost        One probe per hash in a table of twice as many slots, and one block hash per block with
//             tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv_events/kv_batch.h"
#include "kv_index/stream_ledger.h"
#include "model/content_key.h"
#include "model/ids.h"

namespace xms::kv_directory {

class ResidentSet {
 public:
  // `hashes`: at least as many as the batches to come name.
  ResidentSet(const kv_index::StreamLedger& ledger, std::size_t hashes);

  void ApplySnapshot(const kv_events::KvBatch& batch) { Apply(batch, /*live=*/false); }
  void ApplyLive(const kv_events::KvBatch& batch) { Apply(batch, /*live=*/true); }

  bool contradictory() const { return contradictory_; }
  // The same hashes are resident in the same tiers, with the same contents as far as they are said.
  // An orphan in the ledger whose parent has come back is a difference (B5).
  bool EqualsLedger() const;

 private:
  enum class Content : std::uint8_t {
    kUnsaid,
    kOther,    // not plain blocks: without credit
    kAssumed,  // `key`, if the ledger indexes it at all
    kKey,
  };
  struct Slot {
    std::uint64_t hash = 0;
    model::ContentKey key;
    std::uint8_t tiers = 0;  // a bit each
    bool known = false;
    Content content = Content::kUnsaid;
  };

  void Apply(const kv_events::KvBatch& batch, bool live);
  void Store(const kv_events::KvBatch& batch, const kv_events::KvEvent& event, bool live);
  // Finds or makes.
  Slot& Name(model::WireHash hash);
  Slot& Find(model::WireHash hash);
  bool SameContent(const Slot& slot) const;
  std::uint64_t digest() const;
  void ClearTiers(std::uint8_t tiers);

  const kv_index::StreamLedger& ledger_;
  const model::BlockHasher hasher_;
  std::vector<Slot> slots_;  // open addressing, never full
  bool contradictory_ = false;
  bool different_ = false;  // a live batch restated a hash that the snapshot had otherwise
};

}  // namespace xms::kv_directory
