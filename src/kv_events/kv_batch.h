// KvBatch: one decoded event message, as flat arrays that are reused from message to message.
//
// Place       Filled by the decoder, read by kv_directory; built by the simulator for the encoder.
// Threads     Externally synchronised.
// Cost        No allocation once the vectors have grown to the largest message seen.
// Source      Event semantics: requirement B; xLLM's live message and snapshot share this form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/ids.h"

namespace xms::kv_events {

enum class EventKind : std::uint8_t {
  kStore,    // blocks with tokens
  kReplica,  // a store without tokens: the hashes must be known from before
  kRemove,
  kClear,
  kIgnored,  // well-formed, but not for this index; its hashes are remembered as opaque (B5)
};

// Why an event is kIgnored.
enum class IgnoreReason : std::uint8_t {
  kNone,
  kUnknownType,    // no hashes
  kUnknownMedium,  // neither Device nor Host, or on another machine
  kContext,        // LoRA, multimodal, cache salt
  kCacheGroup,     // a cache group other than full attention
  kGeometry,       // another block size or token count (dialects other than xLLM)
  kEmptyStore,
};

// Which tier an event speaks of.
enum class EventScope : std::uint8_t {
  kDevice,
  kHost,
  kAll,      // kClear without a medium
  kUnknown,  // a medium that is neither; on kClear the stream must be unsynchronized (D5)
};

// Positions are indices into the batch's arrays.
struct KvEvent {
  EventKind kind = EventKind::kIgnored;
  IgnoreReason reason = IgnoreReason::kNone;
  EventScope scope = EventScope::kDevice;
  // For an ignored event: it was a store, so that its hashes become opaque (a removal's do not).
  bool ignored_store = false;
  bool has_parent = false;  // kStore, and ignored stores where it was given; false: a root
  model::WireHash parent;
  std::uint32_t first_hash = 0;
  std::uint32_t hash_count = 0;
  std::uint32_t first_token = 0;
  std::uint32_t token_count = 0;  // kStore: hash_count × block_size
  // kIgnored without hash or parent: how many events exactly like this one followed it directly.
  // They can be as short as two bytes, so they share a record.
  std::uint32_t repeats = 0;
};

struct KvBatch {
  double timestamp = 0;         // as published; informational, never ordered by
  std::int32_t dp_rank = 0;     // the stream's own where none was published
  std::vector<KvEvent> events;  // in the order in which they apply
  std::vector<model::WireHash> hashes;
  std::vector<std::uint32_t> tokens;

  std::span<const model::WireHash> HashesOf(const KvEvent& event) const {
    return std::span(hashes).subspan(event.first_hash, event.hash_count);
  }
  std::span<const std::uint32_t> TokensOf(const KvEvent& event) const {
    return std::span(tokens).subspan(event.first_token, event.token_count);
  }
  // An unscoped clear at the front makes a live batch authoritative (D5).
  bool BeginsWithFullClear() const {
    return !events.empty() && events.front().kind == EventKind::kClear &&
           events.front().scope == EventScope::kAll;
  }
  // Bytes of decoded records, for budgets (D2).
  std::size_t decoded_bytes() const {
    return events.size() * sizeof(KvEvent) + hashes.size() * sizeof(model::WireHash) +
           tokens.size() * sizeof(std::uint32_t);
  }
  void Clear() {
    timestamp = 0;
    dp_rank = 0;
    events.clear();
    hashes.clear();
    tokens.clear();
  }
};

}  // namespace xms::kv_events
