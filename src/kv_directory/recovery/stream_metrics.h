// StreamMetrics: what one stream counts, by cause.
//
// Place       Owned by the stream's thread object; counted by StreamMachine and SnapshotReader, shown
//             by Directory at each exposition under the labels `instance` and `rank`, so that the
//             series of a stream end with it.
// Threads     Counting: the stream's thread. ShowStreamMetrics and values: any thread, meanwhile.
//             Relaxed: each count is true by itself, no two of them are of one moment.
// Proof       KVDirectoryMetrics*.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "kv_directory/recovery/apply.h"
#include "kv_events/decoder.h"
#include "model/ids.h"
#include "observability/metrics.h"

namespace xms::kv_directory {

// How a snapshot exchange ended, as a metric's label says it.
enum class ExchangeOutcome : std::uint8_t {
  kCompleted,    // recovery: synchronized; reconciliation: snapshot and ledger agree
  kFullBatch,    // recovery: a live batch that began with a full clear came first
  kLostTail,     // reconciliation: the snapshot was ahead, and was applied
  kDifferent,    // reconciliation: same sequence, other content; the snapshot was applied
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

// Counting changes nothing of what it is a member of, as with observability::Counter.
class StreamCounter {
 public:
  void Increment(std::uint64_t by = 1) const { value_.fetch_add(by, std::memory_order_relaxed); }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  mutable std::atomic<std::uint64_t> value_{0};
};

// How long a stream has not been credited, the time that is still running included.
class UnsynchronizedTime {
 public:
  void Begin(base::SteadyTime now);  // nothing when it has begun
  void End(base::SteadyTime now);
  base::Duration Total(base::SteadyTime now) const;

 private:
  mutable base::Mutex mu_;
  base::Duration past_ XMS_GUARDED_BY(mu_){};
  std::optional<base::SteadyTime> since_ XMS_GUARDED_BY(mu_);
};

struct StreamMetrics {
  StreamMetrics() = default;
  // `seconds`: all streams' together, from RecoverySeconds.
  explicit StreamMetrics(observability::Histogram seconds) : recovery_seconds(seconds) {}

  StreamCounter batches;
  StreamCounter bytes;
  StreamCounter foreign_topics;
  StreamCounter gaps;
  StreamCounter restarts;
  StreamCounter disconnects;
  StreamCounter unknown_parents;
  StreamCounter conflicts;
  StreamCounter unknown_clears;
  StreamCounter unknown_stores;
  StreamCounter unknown_removals;
  StreamCounter frame_errors;
  StreamCounter block_limits;
  StreamCounter message_limits;
  StreamCounter buffer_limits;
  StreamCounter silent_subscriptions;
  std::array<StreamCounter, kDecodeCodes> parse_errors;
  std::array<StreamCounter, kIgnoreReasons> ignored;
  std::array<StreamCounter, kExchangeOutcomes> recoveries;
  std::array<StreamCounter, kExchangeOutcomes> reconciliations;
  UnsynchronizedTime unsynchronized;
  observability::Histogram recovery_seconds;
};

// The one histogram: buckets per stream would be too many series.
observability::Histogram RecoverySeconds(observability::MetricRegistry& registry);

// What has happened; a cause that has not has no series.
void ShowStreamMetrics(const model::StreamKey& key, const StreamMetrics& metrics,
                       base::SteadyTime now, observability::Samples& samples);

// A stream's labels, and one more for the cause.
observability::Labels StreamLabels(const model::StreamKey& key);
observability::Labels StreamLabels(const model::StreamKey& key, std::string_view label,
                                   std::string_view cause);

}  // namespace xms::kv_directory
