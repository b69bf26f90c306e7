// ResidentSet: what a snapshot and the batches after it say is resident, beside the ledger.
//
// Place       StreamMachine's reconciliation (D7): its digest is compared with the ledger's.
// Threads     Externally synchronised; lives for one comparison.
// Meaning     Wire hashes and tiers, opaque ones included, as in StreamLedger::digest; and which of
//             them a ledger that is built anew would index.
// Failure     `undecided`: a batch replicated a block by a hash that this set does not know. The
//             ledger may know it from a time before the snapshot, so nothing follows from a
//             difference.
// Cost        One probe per hash in a table of twice as many slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv_events/kv_batch.h"
#include "kv_index/stream_ledger.h"
#include "model/ids.h"

namespace xms::kv_directory {

class ResidentSet {
 public:
  // `hashes`: at least as many as the batches to come name.
  explicit ResidentSet(std::size_t hashes);

  void ApplySnapshot(const kv_events::KvBatch& batch) { Apply(batch, /*live=*/false); }
  void ApplyLive(const kv_events::KvBatch& batch) { Apply(batch, /*live=*/true); }

  bool undecided() const { return undecided_; }
  std::uint64_t digest() const;
  // Something is resident, indexable by what the snapshot says, and without credit in `ledger`: an
  // orphan whose parent has come back (B5).
  bool NamesMoreThan(const kv_index::StreamLedger& ledger) const;

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint8_t tiers = 0;  // a bit each
    bool known = false;
    bool indexed = false;
  };

  void Apply(const kv_events::KvBatch& batch, bool live);
  Slot& Find(model::WireHash hash);
  bool ParentIsIndexed(const kv_events::KvEvent& event);
  void ClearTiers(std::uint8_t tiers);

  std::vector<Slot> slots_;  // open addressing, never full
  bool undecided_ = false;
};

}  // namespace xms::kv_directory
