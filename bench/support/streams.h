// Streams of an index, with content made up from a seed.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "kv_index/kv_index.h"
#include "kv_index/stream_ledger.h"
#include "model/ids.h"

namespace xms::bench {

inline constexpr std::uint64_t kHashSeed = 1024;

// Opened together; slots[i] is where a match says what ledgers[i] holds.
struct Streams {
  std::vector<std::unique_ptr<kv_index::StreamLedger>> ledgers;
  std::vector<std::uint32_t> slots;
  kv_index::StreamLedger& operator[](std::size_t i) const { return *ledgers[i]; }
  std::size_t size() const { return ledgers.size(); }
};

// Synchronized and empty.
Streams OpenStreams(kv_index::KvIndex& index, std::uint32_t count, std::uint32_t block_size);

std::vector<std::uint32_t> RandomTokens(std::mt19937_64& random, std::size_t count);
std::vector<model::WireHash> RandomHashes(std::mt19937_64& random, std::size_t count);

// The prompt on all streams; every second stream on Host only if asked.
void StoreEverywhere(const Streams& streams, std::span<const model::WireHash> hashes,
                     std::span<const std::uint32_t> tokens, bool half_host);

}  // namespace xms::bench
