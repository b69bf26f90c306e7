#include "kv_directory/recovery/stream_metrics.h"

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
    case ExchangeOutcome::kUndecided:
      return "undecided";
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

StreamMetrics::StreamMetrics(observability::MetricRegistry& registry) {
  const auto counter = [&](std::string_view name, std::string_view help) {
    return registry.AddCounter(name, help);
  };
  batches = counter("xms_kv_stream_batches_total", "Live batches received, all streams.");
  bytes = counter("xms_kv_stream_bytes_total", "Bytes of live batches and snapshots received.");
  foreign_topics = counter("xms_kv_stream_foreign_topics_total",
                           "Messages dropped because their topic only begins with ours.");
  gaps = counter("xms_kv_stream_gaps_total", "Live sequences that skipped at least one batch.");
  restarts = counter("xms_kv_stream_restarts_total",
                     "Publishers whose sequence went back on a connection that stayed.");
  disconnects = counter("xms_kv_stream_disconnects_total", "Event connections that broke.");
  unknown_parents = counter("xms_kv_stream_unknown_parents_total",
                            "Live stores under a parent that nothing had named.");
  conflicts = counter("xms_kv_stream_conflicts_total",
                      "Hashes stored again with other tokens or another parent.");
  unknown_clears = counter("xms_kv_stream_unknown_clears_total",
                           "Clears of a medium that is neither Device nor Host.");
  unknown_stores = counter("xms_kv_stream_unknown_stores_total",
                           "Hashes of stores without tokens that nothing had named.");
  unknown_removals =
      counter("xms_kv_stream_unknown_removals_total", "Removed hashes that were not there.");
  silent_subscriptions = counter("xms_kv_stream_silent_subscriptions_total",
                                 "Streams whose watermark moved while no live batch ever came.");
  const auto limit = [&](const char* name) {
    return registry.AddCounter("xms_kv_stream_limits_total",
                               "Limits that a stream passed, by the setting to raise.",
                               {{"limit", name}});
  };
  block_limits = limit("max_blocks_per_stream");
  message_limits = limit("max_message_bytes");
  buffer_limits = limit("max_buffered_bytes");

  const auto parse_error = [&](std::string_view code) {
    return registry.AddCounter("xms_kv_stream_parse_errors_total",
                               "Live batches and snapshots that could not be read, by code.",
                               {{"code", std::string(code)}});
  };
  frame_errors = parse_error("frames");
  for (std::size_t i = 1; i < kDecodeCodes; ++i) {
    const auto code = static_cast<kv_events::DecodeCode>(i);
    parse_errors[i] = parse_error(kv_events::DecodeCodeName(code));
  }
  for (std::size_t i = 1; i < kIgnoreReasons; ++i) {
    const auto reason = static_cast<kv_events::IgnoreReason>(i);
    ignored[i] = registry.AddCounter("xms_kv_stream_ignored_events_total",
                                     "Well-formed events that are not for this index, by reason.",
                                     {{"reason", std::string(IgnoreReasonName(reason))}});
  }
  for (std::size_t i = 0; i < kExchangeOutcomes; ++i) {
    const std::string outcome(ExchangeOutcomeName(static_cast<ExchangeOutcome>(i)));
    recoveries[i] = registry.AddCounter("xms_kv_stream_recoveries_total",
                                        "Attempts to synchronize a stream, by outcome.",
                                        {{"outcome", outcome}});
    reconciliations[i] = registry.AddCounter(
        "xms_kv_stream_reconciliations_total",
        "Snapshots compared with a synchronized stream, by outcome.", {{"outcome", outcome}});
  }
  recovery_seconds = registry.AddHistogram("xms_kv_stream_recovery_seconds",
                                           "From the loss of synchrony to its return.",
                                           {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100});
}

}  // namespace xms::kv_directory
