// ApplyBatch: the events of a decoded batch, onto a ledger, in their order.
//
// Place       StreamMachine, for live batches and snapshots alike.
// Threads     The ledger's.
// Source      Requirements B5, C2 to C4, D4, D5.
// Failure     Stops at the first event that cannot stand; the ledger is then unspecified but valid,
//             and the caller unsynchronizes and clears it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kv_events/kv_batch.h"
#include "kv_index/stream_ledger.h"

namespace xms::kv_directory {

inline constexpr std::size_t kIgnoreReasons =
    static_cast<std::size_t>(kv_events::IgnoreReason::kEmptyStore) + 1;

struct ApplyOutcome {
  enum class Code : std::uint8_t {
    kApplied,
    kUnknownParent,
    kConflict,
    kOverLimit,
    kUnknownClear,  // a clear of a medium that is neither tier (D5)
  };
  Code code = Code::kApplied;
  std::string error;                 // not applied: a sentence for operators
  std::uint32_t unknown_stores = 0;  // hashes of tokenless stores that nothing named before (A10)
  std::uint32_t unknown_removals = 0;
  std::array<std::uint32_t, kIgnoreReasons> ignored{};  // events, by reason
  bool ok() const { return code == Code::kApplied; }
};

// An ignored store whose hashes stand for something else than plain blocks of this geometry, and not
// merely for blocks that lie elsewhere: an indexed hash that it names loses its credit (B5).
bool SaysOtherContent(const kv_events::KvEvent& event);

ApplyOutcome ApplyBatch(const kv_events::KvBatch& batch, kv_index::StreamLedger& ledger,
                        kv_index::StreamLedger::Orphans orphans);

}  // namespace xms::kv_directory
