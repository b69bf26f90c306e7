// KvTruth: what one engine rank holds, how it says so, and what a directory should make of it.
//
// Place       Tests of kv_directory, with sockets (KvPublisher) and without. Shares only the event
//             encoder with what it tests, and is slow and obvious otherwise.
// Threads     Externally synchronised.
// Blocks      A prompt's blocks get 64-bit hashes derived from everything up to their end, so that
//             two prompts with a common prefix share its blocks, as in an engine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kv_events/kv_batch.h"
#include "model/ids.h"

namespace xms::testing {

using Tokens = std::vector<std::uint32_t>;
using Frames = std::vector<std::string>;

// `blocks` blocks of distinct tokens; prompts of different seeds share nothing.
Tokens MakePrompt(std::uint32_t seed, std::size_t blocks, std::uint32_t block_size = 4);

// The wire hashes of a prompt's complete blocks.
std::vector<model::WireHash> HashesOf(std::span<const std::uint32_t> tokens,
                                      std::uint32_t block_size = 4);

std::string BigEndian64(std::uint64_t value);

// One batch, event by event. Blocks are named by a prompt and a range of its blocks.
class KvBatchBuilder {
 public:
  static constexpr std::size_t kAll = SIZE_MAX;

  explicit KvBatchBuilder(std::uint32_t block_size = 4, std::int32_t dp_rank = 0);
  KvBatchBuilder& Store(model::Tier tier, std::span<const std::uint32_t> prompt,
                        std::size_t first = 0, std::size_t count = kAll);
  KvBatchBuilder& Replicate(model::Tier tier, std::span<const std::uint32_t> prompt,
                            std::size_t first = 0,
                            std::size_t count = kAll);  // without tokens
  KvBatchBuilder& Remove(model::Tier tier, std::span<const std::uint32_t> prompt,
                         std::size_t first = 0, std::size_t count = kAll);
  KvBatchBuilder& Clear(std::optional<model::Tier> tier = std::nullopt);

  const kv_events::KvBatch& batch() const { return batch_; }
  std::uint32_t block_size() const { return block_size_; }

 private:
  kv_events::KvEvent& Add(kv_events::EventKind kind, model::Tier tier);
  void AddHashes(kv_events::KvEvent& event, std::span<const std::uint32_t> prompt,
                 std::size_t first, std::size_t count);

  std::uint32_t block_size_;
  kv_events::KvBatch batch_;
};

// Payload bytes as an engine writes them.
std::string Encode(const KvBatchBuilder& builder);

// Device and Host-only tokens of the longest prefix that is held.
struct Expectation {
  std::uint32_t device_tokens = 0;
  std::uint32_t host_only_tokens = 0;
  bool operator==(const Expectation&) const = default;
};

class KvTruth {
 public:
  explicit KvTruth(std::uint32_t block_size = 4, std::int32_t dp_rank = 0)
      : block_size_(block_size), dp_rank_(dp_rank) {}

  KvBatchBuilder NewBatch() const { return KvBatchBuilder(block_size_, dp_rank_); }
  void Apply(const kv_events::KvBatch& batch);
  // Nothing is held and nothing is remembered.
  void Forget();

  // A whole answer to a snapshot request: data in `parts` messages, then the terminator.
  std::vector<Frames> SnapshotAnswer(std::uint64_t watermark, std::size_t parts = 1) const;

  Expectation Expected(std::span<const std::uint32_t> prompt) const;
  bool Holds(std::span<const std::uint32_t> prompt, std::size_t block, model::Tier tier) const;
  std::size_t resident_blocks(model::Tier tier) const;

 private:
  // A block that was stored and is still known; `resident` by tier.
  struct Block {
    std::uint64_t order = 0;
    std::optional<model::WireHash> parent;
    Tokens tokens;
    bool resident[2] = {false, false};
  };
  static void AppendBlock(kv_events::KvBatch& batch, model::WireHash hash, const Block& block);

  std::uint32_t block_size_;
  std::int32_t dp_rank_;
  std::map<std::uint64_t, Block> blocks_;
  std::uint64_t next_order_ = 0;
};

}  // namespace xms::testing
