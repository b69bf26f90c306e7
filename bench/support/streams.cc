#include "bench/support/streams.h"

#include <string>
#include <utility>

#include "bench/support/measure.h"

namespace xms::bench {

Streams OpenStreams(kv_index::KvIndex& index, std::uint32_t count, std::uint32_t block_size) {
  Streams streams;
  for (std::uint32_t s = 0; s < count; ++s) {
    kv_index::StreamInfo info;
    info.key = {{"engine-" + std::to_string(1000 + s)}, {0}};
    info.hash_seed = kHashSeed;
    info.block_size = block_size;
    auto opened = index.OpenStream(std::move(info), "new");
    Require(opened.ok(), "a free slot");
    streams.ledgers.push_back(std::move(opened).value());
    streams.ledgers.back()->Synchronize({0});
  }
  const auto table = index.Slots();
  for (const auto& ledger : streams.ledgers) {
    streams.slots.push_back(table->Of(ledger->info().key.instance).front().slot);
  }
  return streams;
}

std::vector<std::uint32_t> RandomTokens(std::mt19937_64& random, std::size_t count) {
  std::vector<std::uint32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<std::uint32_t>(random() % 150'000);
  return tokens;
}

std::vector<model::WireHash> RandomHashes(std::mt19937_64& random, std::size_t count) {
  std::vector<model::WireHash> hashes(count);
  for (auto& hash : hashes) hash = {random()};
  return hashes;
}

void StoreEverywhere(const Streams& streams, std::span<const model::WireHash> hashes,
                     std::span<const std::uint32_t> tokens, bool half_host) {
  for (std::size_t s = 0; s < streams.size(); ++s) {
    const model::Tier tier = half_host && s % 2 == 1 ? model::Tier::kHost : model::Tier::kDevice;
    Require(
        streams[s].Store(tier, hashes, {}, tokens, kv_index::StreamLedger::Orphans::kRefuse).ok(),
        "a store");
  }
}

}  // namespace xms::bench
