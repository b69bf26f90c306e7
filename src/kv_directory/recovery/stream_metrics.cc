#include "kv_directory/recovery/stream_metrics.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace xms::kv_directory {
namespace {

std::string_view IgnoreReasonName(kv_events::IgnoreReason reason) {
  using kv_events::IgnoreReason;
  switch (reason) {
    case IgnoreReason::kNone:
      return "none";
    case IgnoreReason::kUnknownType:
      return "unknown_type";
    case IgnoreReason::kUnknownMedium:
      return "unknown_medium";
    case IgnoreReason::kContext:
      return "context";
    case IgnoreReason::kCacheGroup:
      return "cache_group";
    case IgnoreReason::kGeometry:
      return "geometry";
    case IgnoreReason::kEmptyStore:
      return "empty_store";
  }
  return "none";
}

}  // namespace

std::string_view ExchangeOutcomeName(ExchangeOutcome outcome) {
  switch (outcome) {
    case ExchangeOutcome::kCompleted:
      return "completed";
    case ExchangeOutcome::kFullBatch:
      return "full_batch";
    case ExchangeOutcome::kLostTail:
      return "lost_tail";
    case ExchangeOutcome::kDifferent:
      return "different";
    case ExchangeOutcome::kUnreachable:
      return "unreachable";
    case ExchangeOutcome::kTimeout:
      return "timeout";
    case ExchangeOutcome::kDamaged:
      return "damaged";
    case ExchangeOutcome::kLimit:
      return "limit";
    case ExchangeOutcome::kGap:
      return "gap";
    case ExchangeOutcome::kBehind:
      return "behind";
    case ExchangeOutcome::kAbandoned:
      return "abandoned";
  }
  return "abandoned";
}

void UnsynchronizedTime::Begin(base::SteadyTime now) {
  base::MutexLock lock(mu_);
  if (!since_) since_ = now;
}

void UnsynchronizedTime::End(base::SteadyTime now) {
  base::MutexLock lock(mu_);
  if (since_) past_ += now - *since_;
  since_.reset();
}

base::Duration UnsynchronizedTime::Total(base::SteadyTime now) const {
  base::MutexLock lock(mu_);
  // A reader's clock may have been read before the stream's.
  return past_ + (since_ ? std::max(now - *since_, base::Duration{}) : base::Duration{});
}

observability::Histogram RecoverySeconds(observability::MetricRegistry& registry) {
  return registry.AddHistogram("xms_kv_stream_recovery_seconds",
                               "From the loss of synchrony to its return, all streams.",
                               {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100});
}

observability::Labels StreamLabels(const model::StreamKey& key) {
  return {{"instance", key.instance.name}, {"rank", std::to_string(key.rank.value)}};
}

observability::Labels StreamLabels(const model::StreamKey& key, std::string_view label,
                                   std::string_view cause) {
  observability::Labels labels = StreamLabels(key);
  labels.emplace(label, cause);
  return labels;
}

void ShowStreamMetrics(const model::StreamKey& key, const StreamMetrics& metrics,
                       base::SteadyTime now, observability::Samples& samples) {
  const auto show = [&](std::string_view name, std::string_view help,
                        const StreamCounter& counter) {
    if (const std::uint64_t value = counter.value(); value > 0) {
      samples.Counter(name, help, StreamLabels(key), static_cast<double>(value));
    }
  };
  const auto by_cause = [&](std::string_view name, std::string_view help, std::string_view label,
                            std::string_view cause, const StreamCounter& counter) {
    if (const std::uint64_t value = counter.value(); value > 0) {
      samples.Counter(name, help, StreamLabels(key, label, cause), static_cast<double>(value));
    }
  };
  show("xms_kv_stream_batches_total", "Live batches received.", metrics.batches);
  show("xms_kv_stream_bytes_total", "Bytes of live batches and snapshots received.", metrics.bytes);
  show("xms_kv_stream_foreign_topics_total", "Messages of other topics, dropped.",
       metrics.foreign_topics);
  show("xms_kv_stream_gaps_total", "Live sequences that skipped at least one batch.", metrics.gaps);
  show("xms_kv_stream_restarts_total", "Sequences that went back on a connection that stayed.",
       metrics.restarts);
  show("xms_kv_stream_disconnects_total", "Event connections that broke.", metrics.disconnects);
  show("xms_kv_stream_unknown_parents_total", "Live stores under a parent that nothing had named.",
       metrics.unknown_parents);
  show("xms_kv_stream_conflicts_total", "Hashes stored again with other tokens or another parent.",
       metrics.conflicts);
  show("xms_kv_stream_unknown_clears_total", "Clears of a medium that is neither Device nor Host.",
       metrics.unknown_clears);
  show("xms_kv_stream_unknown_stores_total",
       "Hashes of stores without tokens that nothing had named.", metrics.unknown_stores);
  show("xms_kv_stream_unknown_removals_total", "Removed hashes that were not there.",
       metrics.unknown_removals);
  show("xms_kv_stream_silent_subscriptions_total",
       "Times that the watermark moved while no live batch ever came.",
       metrics.silent_subscriptions);

  const auto limit = [&](std::string_view name, const StreamCounter& counter) {
    by_cause("xms_kv_stream_limits_total", "Limits passed, by the setting to raise.", "limit", name,
             counter);
  };
  limit("max_blocks_per_stream", metrics.block_limits);
  limit("max_message_bytes", metrics.message_limits);
  limit("max_buffered_bytes", metrics.buffer_limits);

  const auto parse_error = [&](std::string_view code, const StreamCounter& counter) {
    by_cause("xms_kv_stream_parse_errors_total",
             "Live batches and snapshots that could not be read, by code.", "code", code, counter);
  };
  parse_error("frames", metrics.frame_errors);
  for (std::size_t i = 1; i < kDecodeCodes; ++i) {
    const auto code = static_cast<kv_events::DecodeCode>(i);
    parse_error(kv_events::DecodeCodeName(code), metrics.parse_errors[i]);
  }
  for (std::size_t i = 1; i < kIgnoreReasons; ++i) {
    const auto reason = static_cast<kv_events::IgnoreReason>(i);
    by_cause("xms_kv_stream_ignored_events_total",
             "Well-formed events that are not for this index, by reason.", "reason",
             IgnoreReasonName(reason), metrics.ignored[i]);
  }
  for (std::size_t i = 0; i < kExchangeOutcomes; ++i) {
    const std::string_view outcome = ExchangeOutcomeName(static_cast<ExchangeOutcome>(i));
    by_cause("xms_kv_stream_recoveries_total", "Attempts to synchronize, by outcome.", "outcome",
             outcome, metrics.recoveries[i]);
    by_cause("xms_kv_stream_reconciliations_total",
             "Snapshots compared while synchronized, by outcome.", "outcome", outcome,
             metrics.reconciliations[i]);
  }
  samples.Counter("xms_kv_stream_unsynchronized_seconds_total",
                  "Time without credit, the time that is still running included.",
                  StreamLabels(key),
                  std::chrono::duration<double>(metrics.unsynchronized.Total(now)).count());
}

}  // namespace xms::kv_directory
