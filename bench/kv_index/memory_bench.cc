// P7: what a residency takes in memory. And what events cost without any decoding.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "bench/support/measure.h"
#include "bench/support/streams.h"
#include "kv_index/kv_index.h"
#include "kv_index/stream_ledger.h"

namespace xms::bench {
namespace {

using kv_index::KvIndex;
using kv_index::StreamLedger;
using model::Tier;
using model::WireHash;

// Arguments: blocks a stream, blocks a chain, whether all streams hold the same. tools/bench runs each in
// a process of its own, so that nothing is counted that an earlier one left behind.
void P7_BytesPerResidency(benchmark::State& state) {
  const auto blocks = static_cast<std::uint64_t>(state.range(0));
  const auto chain = static_cast<std::uint64_t>(state.range(1));
  const bool same = state.range(2) != 0;
  for (auto _ : state) {
    std::vector<std::uint32_t> tokens(chain);
    std::vector<WireHash> hashes(chain);
    const double before = TrimmedResidentBytes();
    KvIndex index({});
    const Streams streams = OpenStreams(index, 128, 1);
    const auto begin = Clock::now();
    for (std::uint64_t s = 0; s < 128; ++s) {
      std::mt19937_64 random(same ? 1 : s + 1);
      for (std::uint64_t done = 0; done < blocks; done += chain) {
        for (auto& token : tokens) token = static_cast<std::uint32_t>(random());
        for (auto& hash : hashes) hash = {random()};
        const std::size_t count = std::min(chain, blocks - done);
        streams[s].Store(Tier::kDevice, std::span(hashes).first(count), {},
                         std::span(tokens).first(count), StreamLedger::Orphans::kRefuse);
      }
      streams[s].Advance({1});
      Require(streams[s].mappings() == blocks, "mappings of a filled stream");
    }
    const double residencies = 128.0 * static_cast<double>(blocks);
    state.counters["fill_M/s"] = residencies / Nanoseconds(Clock::now() - begin) * 1e3;
    kv_index::MatchResult result;
    index.Match(std::span(tokens).first((blocks - 1) % chain + 1), result);
    Require(result.slots[streams.slots[127]].device_hit_tokens == (blocks - 1) % chain + 1,
            "the last chain");
    const auto use = index.Memory();
    state.counters["resident_bytes"] = (TrimmedResidentBytes() - before) / residencies;
    state.counters["view_bytes"] = static_cast<double>(use.view_bytes) / residencies;
    state.counters["ledger_bytes"] = static_cast<double>(use.ledger_bytes) / residencies;
  }
}
BENCHMARK(P7_BytesPerResidency)
    ->ArgNames({"blocks", "chain", "same"})
    ->Args({65'536, 64, 0})
    ->Args({65'536, 8, 0})
    ->Args({60'000, 64, 1})
    ->Args({70'000, 64, 1})
    ->Args({262'144, 64, 0})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// Chains of 64 blocks of 128 tokens, in batches of 16, hashing included; then removed tail first in batches
// of 64; then stored again and the stream closed. Times are this thread's CPU time.
void StoreRemoveClose(benchmark::State& state) {
  constexpr std::uint32_t kChains = 1024;
  constexpr std::uint32_t kTokensPerBlock = 128;
  std::mt19937_64 random(4);
  const auto tokens = RandomTokens(random, std::size_t{64} * kTokensPerBlock + kChains);
  const auto hashes = RandomHashes(random, std::size_t{64} * kChains);
  const auto store = [&](StreamLedger& ledger) {
    for (std::uint32_t chain = 0; chain < kChains; ++chain) {
      for (std::uint32_t b = 0; b < 64; b += 16) {
        const std::size_t at = std::size_t{chain} * 64 + b;
        // Chains differ from their first token on.
        ledger.Store(Tier::kDevice, std::span(hashes).subspan(at, 16),
                     b == 0 ? std::nullopt : std::optional(hashes[at - 1]),
                     std::span(tokens).subspan(chain + b * kTokensPerBlock, 16 * kTokensPerBlock),
                     StreamLedger::Orphans::kRefuse);
      }
    }
  };
  const double blocks = 64.0 * kChains;
  for (auto _ : state) {
    KvIndex index({});
    Streams streams = OpenStreams(index, 1, kTokensPerBlock);
    double begin = CpuNanoseconds();
    store(streams[0]);
    state.counters["store_ns"] = (CpuNanoseconds() - begin) / blocks;
    std::vector<WireHash> reversed = hashes;
    for (auto chain = reversed.begin(); chain != reversed.end(); chain += 64) {
      std::reverse(chain, chain + 64);
    }
    begin = CpuNanoseconds();
    for (std::size_t at = 0; at < reversed.size(); at += 64) {
      streams[0].Remove(Tier::kDevice, std::span(reversed).subspan(at, 64));
    }
    state.counters["remove_ns"] = (CpuNanoseconds() - begin) / blocks;
    store(streams[0]);
    begin = CpuNanoseconds();
    streams.ledgers.clear();
    state.counters["close_65536_ms"] = (CpuNanoseconds() - begin) / 1e6;
  }
}
BENCHMARK(StoreRemoveClose)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace xms::bench
