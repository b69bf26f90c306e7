// TraceLoad: a request trace turned into what an index has to do, before any clock starts.
//
// Source      $XMS_SHARED/traces/mooncake_conversation.jsonl where the variable is set, else a synthetic
//             trace of the same character. One 512-token id is one block here, of one token where keys
//             are to cost next to nothing, as if they had been ready.
// Model       Workers with an LRU block cache each. A used chain is touched from its tail to its head,
//             so eviction takes tails first. A request goes to the worker that holds most of it, ties to
//             the one that was given least. Every worker holds id 0 from the start, because every request
//             begins with it; copies of the trace share only that id.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/content_key.h"
#include "model/ids.h"

namespace xms::bench {

using Trace = std::vector<std::vector<std::uint32_t>>;  // the ids of each request

Trace ReadTrace();
std::string TraceName();

// Requests whose look-ups may come before the events of any of them.
inline constexpr std::size_t kGroup = 64;

// Per worker, the leading blocks that it holds.
using Lengths = std::vector<std::uint16_t>;

// A request and the events that follow from it.
struct TraceOp {
  std::vector<std::uint32_t> tokens;
  std::vector<model::ContentKey> keys;
  std::vector<model::WireHash> hashes;  // of the same blocks
  std::uint32_t worker = 0;
  std::uint32_t held = 0;  // blocks of the best worker: the rest is stored
  std::vector<model::WireHash> evicted;
  Lengths lengths;        // the exact answer when all events before have been applied
  Lengths group_lengths;  // and when those of its group of kGroup have not
};

struct TraceLoad {
  std::uint32_t block_size = 1;
  std::uint32_t workers = 0;
  std::vector<std::uint32_t> root_tokens;  // the block that every worker holds
  model::WireHash root_hash;
  std::vector<TraceOp> ops;
  // Exact answers in the end state, for some of the requests.
  struct Final {
    std::size_t op = 0;
    Lengths lengths;
  };
  std::vector<Final> finals;
  std::uint64_t asked = 0;
  std::uint64_t stored = 0;
  std::uint64_t removed = 0;
  std::uint64_t blocks() const { return asked + stored + removed; }
};

TraceLoad BuildLoad(const Trace& trace, std::uint32_t copies, std::uint32_t workers,
                    std::uint32_t blocks_per_worker, std::uint32_t block_size);

}  // namespace xms::bench
