#include "bench/kv_directory/feed.h"

#include <algorithm>
#include <optional>
#include <random>

#include "kv_events/encoder.h"
#include "model/ids.h"

namespace xms::bench {
namespace {

using kv_events::EventKind;
using kv_events::KvBatch;
using kv_events::KvEvent;

std::uint64_t HashOf(std::uint64_t stream, std::uint64_t chain, std::size_t block) {
  return std::mt19937_64((stream << 48) ^ (chain << 16) ^ block)();
}

KvEvent& AddHashes(KvBatch& batch, EventKind kind, std::uint64_t stream, std::uint64_t chain,
                   std::size_t first, std::size_t count) {
  KvEvent& event = batch.events.emplace_back();
  event.kind = kind;
  event.first_hash = static_cast<std::uint32_t>(batch.hashes.size());
  event.hash_count = static_cast<std::uint32_t>(count);
  for (std::size_t i = 0; i < count; ++i)
    batch.hashes.push_back({HashOf(stream, chain, first + i)});
  return event;
}

// Blocks first … first + count − 1 of a chain whose tokens are given whole.
void AddStore(KvBatch& batch, std::uint64_t stream, std::uint64_t chain,
              const std::vector<std::uint32_t>& tokens, std::size_t first, std::size_t count) {
  KvEvent& event = AddHashes(batch, EventKind::kStore, stream, chain, first, count);
  event.has_parent = first > 0;
  if (first > 0) event.parent = {HashOf(stream, chain, first - 1)};
  event.first_token = static_cast<std::uint32_t>(batch.tokens.size());
  event.token_count = static_cast<std::uint32_t>(count * kBlockTokens);
  const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(first * kBlockTokens);
  batch.tokens.insert(batch.tokens.end(), begin,
                      begin + static_cast<std::ptrdiff_t>(count * kBlockTokens));
}

KvBatch NewBatch() {
  KvBatch batch;
  batch.timestamp = 1760000000.25;
  return batch;
}

}  // namespace

std::array<std::byte, 8> BigEndian64(std::uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(value >> (56 - 8 * i));
  return bytes;
}

std::vector<std::uint32_t> ChainTokens(std::uint64_t stream, std::uint64_t chain,
                                       std::size_t blocks) {
  std::mt19937_64 random((stream << 32) ^ chain);
  std::vector<std::uint32_t> tokens(blocks * kBlockTokens);
  for (auto& token : tokens) token = static_cast<std::uint32_t>(random() % 151'936);
  return tokens;
}

void Payloads::Add(const KvBatch& batch) {
  kv_events::EncodeBatch(batch, kBlockTokens, bytes_);
  ends_.push_back(bytes_.size());
}

kv_directory::Frame Payloads::operator[](std::size_t i) const {
  const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::span(bytes_).subspan(begin, ends_[i] - begin);
}

Payloads StoreBatches(std::uint64_t stream, std::size_t chains, std::size_t chain_blocks) {
  Payloads payloads;
  for (std::size_t chain = 0; chain < chains; ++chain) {
    const auto tokens = ChainTokens(stream, chain, chain_blocks);
    for (std::size_t first = 0; first < chain_blocks; first += kBatchBlocks) {
      KvBatch batch = NewBatch();
      AddStore(batch, stream, chain, tokens, first, std::min(kBatchBlocks, chain_blocks - first));
      payloads.Add(batch);
    }
  }
  return payloads;
}

Payloads CircleBatches(std::uint64_t stream, std::size_t chains, std::size_t resident) {
  Payloads payloads;
  for (std::size_t chain = 0; chain < chains; ++chain) {
    KvBatch batch = NewBatch();
    AddHashes(batch, EventKind::kRemove, stream, (chain + chains - resident) % chains, 0,
              kBatchBlocks);
    AddStore(batch, stream, chain, ChainTokens(stream, chain, kBatchBlocks), 0, kBatchBlocks);
    payloads.Add(batch);
  }
  return payloads;
}

Payloads SnapshotParts(std::uint64_t stream, std::size_t blocks, std::size_t part_blocks) {
  constexpr std::size_t kChain = 64;
  Payloads payloads;
  KvBatch batch = NewBatch();
  for (std::size_t done = 0; done < blocks; done += kChain) {
    const std::size_t count = std::min(kChain, blocks - done);
    AddStore(batch, stream, done / kChain, ChainTokens(stream, done / kChain, kChain), 0, count);
    if (batch.hashes.size() < part_blocks && done + kChain < blocks) continue;
    payloads.Add(batch);
    batch = NewBatch();
  }
  if (blocks == 0) payloads.Add(batch);
  return payloads;
}

}  // namespace xms::bench
