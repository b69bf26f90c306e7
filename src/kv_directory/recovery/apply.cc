#include "kv_directory/recovery/apply.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/str_cat.h"
#include "kv_directory/config.h"
#include "kv_directory/recovery/snapshot_reader.h"
#include "kv_events/decoder.h"
#include "model/ids.h"

namespace xms::kv_directory {
namespace {

using base::StrAppend;
using base::StrCat;
using kv_events::EventKind;
using kv_events::EventScope;
using kv_events::KvEvent;
using kv_index::ApplyCode;
using kv_index::ApplyResult;
using kv_index::StreamLedger;
using model::Tier;

std::optional<Tier> TierOf(EventScope scope) {
  switch (scope) {
    case EventScope::kDevice:
      return Tier::kDevice;
    case EventScope::kHost:
      return Tier::kHost;
    case EventScope::kAll:
    case EventScope::kUnknown:
      return std::nullopt;
  }
  return std::nullopt;
}

std::string Hex(model::WireHash hash) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  std::uint64_t value = hash.value;
  for (std::size_t i = text.size(); i-- > 0; value >>= 4) text[i] = kDigits[value & 15];
  return text;
}

// The fewest mappings that would hold what is there and what the batch still says: the events from
// `event` on, up to a clear. Only on failure, so it may cost a set.
std::uint64_t MappingsNeeded(const kv_events::KvBatch& batch, const KvEvent& event,
                             const StreamLedger& ledger) {
  std::unordered_set<std::uint64_t> missing;
  const auto miss = [&](model::WireHash hash) {
    if (!ledger.Lookup(hash).mapped) missing.insert(hash.value);
  };
  const auto first = static_cast<std::size_t>(&event - batch.events.data());
  for (const KvEvent& later : std::span(batch.events).subspan(first)) {
    if (later.kind == EventKind::kClear) break;
    if (later.kind != EventKind::kStore && !later.ignored_store) continue;
    if (later.has_parent) miss(later.parent);
    for (const model::WireHash hash : batch.HashesOf(later)) miss(hash);
  }
  return ledger.mappings() + missing.size();
}

std::string OverLimit(const kv_events::KvBatch& batch, const KvEvent& event,
                      const StreamLedger& ledger) {
  return StrCat(
      "more than max_blocks_per_stream ", ledger.limit(), " blocks published (",
      RaiseTo(MappingsNeeded(batch, event, ledger), kLargestBlockLimit,
              "raise it above what the engine can hold, and", "the engine must hold less"),
      ")");
}

std::string UnknownClear() {
  std::string text = "a medium that is neither Device nor Host was cleared, or a part of one";
  std::string_view before = " (known are ";
  for (const auto& media : {kv_events::kDeviceMedia, kv_events::kHostMedia}) {
    for (const std::string_view medium : media) {
      StrAppend(text, before, medium);
      before = ", ";
    }
  }
  return text + "; the engine must name one of them or none)";
}

void Judge(const ApplyResult& result, const kv_events::KvBatch& batch, const KvEvent& event,
           const StreamLedger& ledger, ApplyOutcome& outcome) {
  using Code = ApplyOutcome::Code;
  outcome.unknown_stores += result.unknown_hashes;
  switch (result.code) {
    case ApplyCode::kApplied:
      return;
    case ApplyCode::kUnknownParent:
      outcome.code = Code::kUnknownParent;
      outcome.error = StrCat("a block was stored under parent ", Hex(result.culprit),
                             ", which nothing has named before");
      return;
    case ApplyCode::kConflict:
      outcome.code = Code::kConflict;
      outcome.error = StrCat("hash ", Hex(result.culprit),
                             " was stored again with other tokens or another parent");
      return;
    case ApplyCode::kOverLimit:
      outcome.code = Code::kOverLimit;
      outcome.error = OverLimit(batch, event, ledger);
      return;
  }
}

}  // namespace

bool SaysOtherContent(const KvEvent& event) {
  using kv_events::IgnoreReason;
  return event.ignored_store &&
         (event.reason == IgnoreReason::kContext || event.reason == IgnoreReason::kCacheGroup ||
          event.reason == IgnoreReason::kGeometry);
}

ApplyOutcome ApplyBatch(const kv_events::KvBatch& batch, StreamLedger& ledger,
                        StreamLedger::Orphans orphans) {
  ApplyOutcome outcome;
  for (const KvEvent& event : batch.events) {
    const std::optional<Tier> tier = TierOf(event.scope);
    const auto hashes = batch.HashesOf(event);
    switch (event.kind) {
      case EventKind::kStore: {
        std::optional<model::WireHash> parent;
        if (event.has_parent) parent = event.parent;
        Judge(ledger.Store(tier.value_or(Tier::kDevice), hashes, parent, batch.TokensOf(event),
                           orphans),
              batch, event, ledger, outcome);
        break;
      }
      case EventKind::kReplica:
        Judge(ledger.StoreKnown(tier.value_or(Tier::kDevice), hashes), batch, event, ledger,
              outcome);
        break;
      case EventKind::kRemove:
        outcome.unknown_removals += ledger.Remove(tier.value_or(Tier::kDevice), hashes);
        break;
      case EventKind::kClear:
        if (event.scope == EventScope::kAll) {
          ledger.ClearAll();
        } else if (tier) {
          ledger.ClearTier(*tier);
        } else {
          outcome.code = ApplyOutcome::Code::kUnknownClear;
          outcome.error = UnknownClear();
        }
        break;
      case EventKind::kIgnored:
        outcome.ignored[static_cast<std::size_t>(event.reason)] += 1 + event.repeats;
        if (!event.ignored_store) break;
        // Naming a parent is enough for it to be known (B5).
        if (event.has_parent) ledger.StoreOpaque(std::nullopt, {&event.parent, 1});
        Judge(ledger.StoreOpaque(tier, hashes,
                                 SaysOtherContent(event) ? StreamLedger::Content::kOther
                                                         : StreamLedger::Content::kUnsaid),
              batch, event, ledger, outcome);
        break;
    }
    if (!outcome.ok()) return outcome;
  }
  return outcome;
}

}  // namespace xms::kv_directory
