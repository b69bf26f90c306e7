#include "sim/kv_event_recorder.h"

#include <utility>

namespace xms::sim {

using kv_events::EventKind;
using kv_events::EventScope;
using kv_events::KvBatch;
using kv_events::KvEvent;

KvEvent& KvEventRecorder::Append(EventKind kind, EventScope tier) {
  KvEvent& event = batch_.events.emplace_back();
  event.kind = kind;
  event.scope = tier;
  event.first_hash = static_cast<std::uint32_t>(batch_.hashes.size());
  event.first_token = static_cast<std::uint32_t>(batch_.tokens.size());
  return event;
}

void KvEventRecorder::Store(EventScope tier, const model::WireHash* parent, model::WireHash hash,
                            std::span<const std::uint32_t> tokens) {
  const bool continues = !batch_.events.empty() && parent != nullptr &&
                         batch_.events.back().kind == EventKind::kStore &&
                         batch_.events.back().scope == tier && batch_.hashes.back() == *parent;
  KvEvent& event = continues ? batch_.events.back() : Append(EventKind::kStore, tier);
  if (!continues && parent != nullptr) {
    event.has_parent = true;
    event.parent = *parent;
  }
  batch_.hashes.push_back(hash);
  batch_.tokens.insert(batch_.tokens.end(), tokens.begin(), tokens.end());
  ++event.hash_count;
  event.token_count += static_cast<std::uint32_t>(tokens.size());
}

void KvEventRecorder::Replica(model::WireHash hash) {
  const bool continues = !batch_.events.empty() && batch_.events.back().kind == EventKind::kReplica;
  KvEvent& event =
      continues ? batch_.events.back() : Append(EventKind::kReplica, EventScope::kHost);
  batch_.hashes.push_back(hash);
  ++event.hash_count;
}

void KvEventRecorder::Remove(EventScope tier, model::WireHash hash) {
  const bool continues = !batch_.events.empty() &&
                         batch_.events.back().kind == EventKind::kRemove &&
                         batch_.events.back().scope == tier;
  KvEvent& event = continues ? batch_.events.back() : Append(EventKind::kRemove, tier);
  batch_.hashes.push_back(hash);
  ++event.hash_count;
}

KvBatch KvEventRecorder::Take() { return std::exchange(batch_, KvBatch{}); }

}  // namespace xms::sim
