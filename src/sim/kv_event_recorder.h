// KvEventRecorder: turns single changes of a prefix cache into the events of one batch.
//
// Place       BlockManager writes; whoever publishes takes the batch.
// Threads     Externally synchronised.
// Merging     A change joins the event before it when the result means the same: the next block of
//             a chain, another replica, another removal from the same tier. The order of changes
//             is kept, so that replaying the events gives the same resident set.
#pragma once

#include <cstdint>
#include <span>

#include "kv_events/kv_batch.h"
#include "model/ids.h"

namespace xms::sim {

class KvEventRecorder {
 public:
  // A block with its tokens; `parent` is null for a root.
  void Store(kv_events::EventScope tier, const model::WireHash* parent, model::WireHash hash,
             std::span<const std::uint32_t> tokens);
  // A tokenless store on Host.
  void Replica(model::WireHash hash);
  void Remove(kv_events::EventScope tier, model::WireHash hash);

  bool empty() const { return batch_.events.empty(); }
  // What was recorded since the last Take. Timestamp and rank are left at zero.
  kv_events::KvBatch Take();

 private:
  kv_events::KvEvent& Append(kv_events::EventKind kind, kv_events::EventScope tier);

  kv_events::KvBatch batch_;
};

}  // namespace xms::sim
