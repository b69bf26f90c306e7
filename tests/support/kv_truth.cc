#include "tests/support/kv_truth.h"

#include <algorithm>
#include <utility>

#include "kv_events/encoder.h"

namespace xms::testing {
namespace {

using kv_events::EventKind;
using kv_events::EventScope;
using kv_events::KvBatch;
using kv_events::KvEvent;
using model::Tier;
using model::WireHash;

constexpr std::uint64_t kReserved = UINT64_MAX;

std::uint64_t Mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

EventScope ScopeOf(Tier tier) {
  return tier == Tier::kDevice ? EventScope::kDevice : EventScope::kHost;
}

}  // namespace

Tokens MakePrompt(std::uint32_t seed, std::size_t blocks, std::uint32_t block_size) {
  Tokens tokens;
  for (std::size_t i = 0; i < blocks * block_size; ++i) {
    tokens.push_back(static_cast<std::uint32_t>(Mix(Mix(seed) + i)));
  }
  return tokens;
}

std::vector<WireHash> HashesOf(std::span<const std::uint32_t> tokens, std::uint32_t block_size) {
  std::vector<WireHash> hashes;
  std::uint64_t hash = block_size;
  for (std::size_t i = 0; i < tokens.size() / block_size * block_size; ++i) {
    hash = Mix(hash ^ (std::uint64_t{tokens[i]} << 8));
    if ((i + 1) % block_size == 0) hashes.push_back({hash});
  }
  return hashes;
}

std::string BigEndian64(std::uint64_t value) {
  std::string bytes(8, '\0');
  for (int i = 7; i >= 0; --i, value >>= 8)
    bytes[static_cast<std::size_t>(i)] = static_cast<char>(value & 0xff);
  return bytes;
}

KvBatchBuilder::KvBatchBuilder(std::uint32_t block_size, std::int32_t dp_rank)
    : block_size_(block_size) {
  batch_.timestamp = 1760000000.25;
  batch_.dp_rank = dp_rank;
}

KvEvent& KvBatchBuilder::Add(EventKind kind, Tier tier) {
  KvEvent& event = batch_.events.emplace_back();
  event.kind = kind;
  event.scope = ScopeOf(tier);
  event.first_hash = static_cast<std::uint32_t>(batch_.hashes.size());
  event.first_token = static_cast<std::uint32_t>(batch_.tokens.size());
  return event;
}

void KvBatchBuilder::AddHashes(KvEvent& event, std::span<const std::uint32_t> prompt,
                               std::size_t first, std::size_t count) {
  const std::vector<WireHash> hashes = HashesOf(prompt, block_size_);
  count = std::min(count, hashes.size() - first);
  event.hash_count = static_cast<std::uint32_t>(count);
  for (std::size_t i = first; i < first + count; ++i) batch_.hashes.push_back(hashes[i]);
}

KvBatchBuilder& KvBatchBuilder::Store(Tier tier, std::span<const std::uint32_t> prompt,
                                      std::size_t first, std::size_t count) {
  KvEvent& event = Add(EventKind::kStore, tier);
  AddHashes(event, prompt, first, count);
  if (first > 0) {
    event.has_parent = true;
    event.parent = HashesOf(prompt, block_size_)[first - 1];
  }
  const auto tokens =
      prompt.subspan(first * block_size_, std::size_t{event.hash_count} * block_size_);
  event.token_count = static_cast<std::uint32_t>(tokens.size());
  batch_.tokens.insert(batch_.tokens.end(), tokens.begin(), tokens.end());
  return *this;
}

KvBatchBuilder& KvBatchBuilder::Replicate(Tier tier, std::span<const std::uint32_t> prompt,
                                          std::size_t first, std::size_t count) {
  AddHashes(Add(EventKind::kReplica, tier), prompt, first, count);
  return *this;
}

KvBatchBuilder& KvBatchBuilder::Remove(Tier tier, std::span<const std::uint32_t> prompt,
                                       std::size_t first, std::size_t count) {
  AddHashes(Add(EventKind::kRemove, tier), prompt, first, count);
  return *this;
}

KvBatchBuilder& KvBatchBuilder::Clear(std::optional<Tier> tier) {
  Add(EventKind::kClear, Tier::kDevice).scope = tier ? ScopeOf(*tier) : EventScope::kAll;
  return *this;
}

std::string Encode(const KvBatchBuilder& builder) {
  std::vector<std::byte> bytes;
  kv_events::EncodeBatch(builder.batch(), builder.block_size(), bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void KvTruth::Apply(const KvBatch& batch) {
  for (const KvEvent& event : batch.events) {
    const std::size_t tier = event.scope == EventScope::kHost ? 1 : 0;
    std::optional<WireHash> parent;
    if (event.has_parent) parent = event.parent;
    std::size_t token = event.first_token;
    switch (event.kind) {
      case EventKind::kStore:
        for (const WireHash hash : batch.HashesOf(event)) {
          const auto [entry, fresh] = blocks_.try_emplace(hash.value);
          if (fresh) {
            entry->second.order = next_order_++;
            entry->second.parent = parent;
            const auto first = batch.tokens.begin() + static_cast<std::ptrdiff_t>(token);
            entry->second.tokens.assign(first, first + block_size_);
          }
          entry->second.resident[tier] = true;
          parent = hash;
          token += block_size_;
        }
        break;
      case EventKind::kReplica:
        for (const WireHash hash : batch.HashesOf(event)) {
          if (const auto entry = blocks_.find(hash.value); entry != blocks_.end())
            entry->second.resident[tier] = true;
        }
        break;
      case EventKind::kRemove:
        for (const WireHash hash : batch.HashesOf(event)) {
          if (const auto entry = blocks_.find(hash.value); entry != blocks_.end())
            entry->second.resident[tier] = false;
        }
        break;
      case EventKind::kClear:
        if (event.scope == EventScope::kAll) blocks_.clear();
        for (auto& [hash, block] : blocks_) block.resident[tier] = false;
        break;
      case EventKind::kIgnored:
        break;
    }
  }
}

void KvTruth::Forget() { blocks_.clear(); }

std::vector<Frames> KvTruth::SnapshotAnswer(std::uint64_t sequence, std::size_t parts) const {
  const std::string watermark = BigEndian64(sequence);
  std::vector<const std::pair<const std::uint64_t, Block>*> blocks;
  for (const auto& entry : blocks_) {
    if (entry.second.resident[0] || entry.second.resident[1]) blocks.push_back(&entry);
  }
  std::sort(blocks.begin(), blocks.end(),
            [](const auto* a, const auto* b) { return a->second.order < b->second.order; });
  std::vector<Frames> messages;
  for (std::size_t part = 0; part < parts; ++part) {
    KvBatch batch;
    batch.timestamp = 1760000000.25;
    batch.dp_rank = dp_rank_;
    for (std::size_t i = blocks.size() * part / parts; i < blocks.size() * (part + 1) / parts;
         ++i) {
      AppendBlock(batch, {blocks[i]->first}, blocks[i]->second);
    }
    std::vector<std::byte> bytes;
    kv_events::EncodeBatch(batch, block_size_, bytes);
    messages.push_back(
        {"", watermark, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  messages.push_back({"", BigEndian64(kReserved), ""});
  return messages;
}

// A store with tokens in one tier, and a replica without them when the block is in both.
void KvTruth::AppendBlock(KvBatch& batch, WireHash hash, const Block& block) {
  KvEvent store;
  store.kind = EventKind::kStore;
  store.scope = block.resident[0] ? EventScope::kDevice : EventScope::kHost;
  store.has_parent = block.parent.has_value();
  store.parent = block.parent.value_or(WireHash{});
  store.first_hash = static_cast<std::uint32_t>(batch.hashes.size());
  store.hash_count = 1;
  store.first_token = static_cast<std::uint32_t>(batch.tokens.size());
  store.token_count = static_cast<std::uint32_t>(block.tokens.size());
  batch.hashes.push_back(hash);
  batch.tokens.insert(batch.tokens.end(), block.tokens.begin(), block.tokens.end());
  batch.events.push_back(store);
  if (!block.resident[0] || !block.resident[1]) return;
  KvEvent replica;
  replica.kind = EventKind::kReplica;
  replica.scope = EventScope::kHost;
  replica.first_hash = static_cast<std::uint32_t>(batch.hashes.size());
  replica.hash_count = 1;
  replica.first_token = static_cast<std::uint32_t>(batch.tokens.size());
  batch.hashes.push_back(hash);
  batch.events.push_back(replica);
}

Expectation KvTruth::Expected(std::span<const std::uint32_t> prompt) const {
  Expectation expectation;
  for (const WireHash hash : HashesOf(prompt, block_size_)) {
    const auto entry = blocks_.find(hash.value);
    if (entry == blocks_.end()) break;
    if (entry->second.resident[0]) {
      expectation.device_tokens += block_size_;
    } else if (entry->second.resident[1]) {
      expectation.host_only_tokens += block_size_;
    } else {
      break;
    }
  }
  return expectation;
}

bool KvTruth::Holds(std::span<const std::uint32_t> prompt, std::size_t block, Tier tier) const {
  const auto entry = blocks_.find(HashesOf(prompt, block_size_)[block].value);
  return entry != blocks_.end() && entry->second.resident[static_cast<std::size_t>(tier)];
}

std::size_t KvTruth::resident_blocks(Tier tier) const {
  return static_cast<std::size_t>(std::count_if(
      blocks_.begin(), blocks_.end(),
      [&](const auto& entry) { return entry.second.resident[static_cast<std::size_t>(tier)]; }));
}

}  // namespace xms::testing
