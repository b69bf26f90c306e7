// EncodeBatch: KvBatch to the bytes that an xLLM engine publishes.
//
// Place       The simulator, tests, benchmarks.
// Form        Array of 3 (timestamp, events, rank), events as maps with the tag first, minimal widths.
// Threads     A free function; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv_events/kv_batch.h"

namespace xms::kv_events {

// Appends to `out`. kStore, kReplica, kRemove and kClear (kAll without medium, kDevice and kHost
// with one) are written; anything else cannot be published and is a defect of the caller: it aborts.
// `block_size` is written into stores.
void EncodeBatch(const KvBatch& batch, std::uint32_t block_size, std::vector<std::byte>& out);

}  // namespace xms::kv_events
