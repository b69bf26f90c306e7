// Feed: what an engine publishes, encoded before any clock starts.
//
// Content     Chains of blocks of 128 random token ids, told by (stream, chain number).
// Threads     Immutable once made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv_directory/recovery/frames.h"
#include "kv_events/kv_batch.h"

namespace xms::bench {

inline constexpr std::uint32_t kBlockTokens = 128;
inline constexpr std::size_t kBatchBlocks = 16;

std::array<std::byte, 8> BigEndian64(std::uint64_t value);
inline constexpr char kTopic[] = "xllm-kv";

// One chain of a stream.
std::vector<std::uint32_t> ChainTokens(std::uint64_t stream, std::uint64_t chain,
                                       std::size_t blocks);
// Payloads, one after the other in one piece of memory.
class Payloads {
 public:
  void Add(const kv_events::KvBatch& batch);
  std::size_t size() const { return ends_.size(); }
  std::size_t bytes() const { return bytes_.size(); }
  kv_directory::Frame operator[](std::size_t i) const;

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::size_t> ends_;
};

// Live batches of 16 stored blocks: `chains` chains of `chain_blocks`, each in as many batches as it takes.
Payloads StoreBatches(std::uint64_t stream, std::size_t chains, std::size_t chain_blocks);

// An endless stream at constant residency: batch i removes chain i − resident and stores chain i, 16 blocks
// each, over a circle of `chains` chains.
Payloads CircleBatches(std::uint64_t stream, std::size_t chains, std::size_t resident);

// Snapshot replies of `part_blocks` blocks each: chains of 64.
Payloads SnapshotParts(std::uint64_t stream, std::size_t blocks, std::size_t part_blocks);

}  // namespace xms::bench
