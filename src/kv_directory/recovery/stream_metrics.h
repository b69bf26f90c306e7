// StreamMetrics: what all streams together count. Labels name causes, never streams: their number
// is bounded by this list, and the query answer says what is wrong with a single one.
//
// Threads     Handles are lock-free; any thread. The struct is immutable once made.
// Ownership   Handles belong to the registry. Default-made: counts nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kv_directory/recovery/apply.h"
#include "kv_events/decoder.h"
#include "observability/metrics.h"

namespace xms::kv_directory {

// How a snapshot exchange ended, as a metric's label says it.
enum class ExchangeOutcome : std::uint8_t {
  kCompleted,  // recovery: synchronized; reconciliation: snapshot and ledger agree
  kFullBatch,  // recovery: a live batch that began with a full clear came first
  kLostTail,   // reconciliation: the snapshot was ahead, and was applied
  kDifferent,  // reconciliation: same sequence, other content; the snapshot was applied
  kUndecided,  // reconciliation: could not be compared, for a replica of a block known from before
  kUnreachable,  // nobody took the connection
  kTimeout,
  kDamaged,
  kLimit,
  kGap,        // recovery: the buffered batches do not follow on the snapshot
  kBehind,     // the snapshot is older than what was seen before it was asked for
  kAbandoned,  // the stream had another fault meanwhile
};
inline constexpr std::size_t kExchangeOutcomes =
    static_cast<std::size_t>(ExchangeOutcome::kAbandoned) + 1;
std::string_view ExchangeOutcomeName(ExchangeOutcome outcome);

inline constexpr std::size_t kDecodeCodes =
    static_cast<std::size_t>(kv_events::DecodeCode::kBlockSizeMismatch) + 1;

struct StreamMetrics {
  StreamMetrics() = default;
  explicit StreamMetrics(observability::MetricRegistry& registry);

  observability::Counter batches;
  observability::Counter bytes;
  observability::Counter foreign_topics;
  observability::Counter gaps;
  observability::Counter restarts;
  observability::Counter disconnects;
  observability::Counter unknown_parents;
  observability::Counter conflicts;
  observability::Counter unknown_clears;
  observability::Counter unknown_stores;
  observability::Counter unknown_removals;
  observability::Counter frame_errors;
  observability::Counter block_limits;
  observability::Counter message_limits;
  observability::Counter buffer_limits;
  observability::Counter silent_subscriptions;
  std::array<observability::Counter, kDecodeCodes> parse_errors;
  std::array<observability::Counter, kIgnoreReasons> ignored;
  std::array<observability::Counter, kExchangeOutcomes> recoveries;
  std::array<observability::Counter, kExchangeOutcomes> reconciliations;
  observability::Histogram recovery_seconds;
};

}  // namespace xms::kv_directory
