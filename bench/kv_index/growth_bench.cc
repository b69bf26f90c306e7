// How costs grow: with blocks, with streams, with the length of the prompt. tools/bench draws them.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "bench/support/measure.h"
#include "bench/support/streams.h"
#include "kv_index/kv_index.h"
#include "kv_index/stream_ledger.h"
#include "model/content_key.h"

namespace xms::bench {
namespace {

using kv_index::KvIndex;
using kv_index::MatchResult;
using kv_index::StreamLedger;
using model::Tier;

// Prompts that all streams hold, `blocks` long, among other entries; matched in turn, keys ready.
void MatchInTurn(benchmark::State& state, std::uint32_t streams_count, std::size_t prompt_blocks,
                 std::uint64_t others) {
  KvIndex index({.max_blocks_per_stream = 16'777'216});
  const Streams streams = OpenStreams(index, streams_count, 1);
  std::mt19937_64 random(1);
  const model::BlockHasher hasher(kHashSeed, 1);
  constexpr std::size_t kPrompts = 16;
  std::vector<std::vector<model::ContentKey>> keys(kPrompts);
  double store_ns = 0;
  std::uint64_t stored = 0;
  for (auto& prompt : keys) {
    const auto tokens = RandomTokens(random, prompt_blocks);
    StoreEverywhere(streams, RandomHashes(random, prompt_blocks), tokens, false);
    hasher.Chain(tokens, prompt);
    for (std::uint64_t done = 0; done < others / kPrompts;) {
      const auto count = std::min<std::uint64_t>(64, others / kPrompts - done);
      const auto hashes = RandomHashes(random, count);
      const auto chain = RandomTokens(random, count);
      const auto begin = Clock::now();
      streams[stored / 64 % streams.size()].Store(Tier::kDevice, hashes, {}, chain,
                                                  StreamLedger::Orphans::kRefuse);
      store_ns += Nanoseconds(Clock::now() - begin);
      done += count;
      stored += count;
    }
  }
  Pin(0);
  Latency latency(4000);
  MatchResult result;
  for (auto _ : state) {
    for (std::size_t i = 0; i < (Quick() ? 400 : 4000); ++i) {
      const auto begin = Clock::now();
      index.MatchKeys(kHashSeed, 1, keys[i % kPrompts], result);
      latency.Add(Clock::now() - begin);
      Require(result.slots[streams.slots.back()].device_hit_tokens == prompt_blocks, "a match");
    }
  }
  Unpin();
  latency.Report(state);
  if (stored > 0) state.counters["store_ns"] = store_ns / static_cast<double>(stored);
}

void GrowthBlocks(benchmark::State& state) {
  MatchInTurn(state, 128, 100, static_cast<std::uint64_t>(state.range(0)));
}
void GrowthStreams(benchmark::State& state) {
  MatchInTurn(state, static_cast<std::uint32_t>(state.range(0)), 1000, 100'000);
}
void GrowthPrompt(benchmark::State& state) {
  MatchInTurn(state, 128, static_cast<std::size_t>(state.range(0)), 100'000);
}
BENCHMARK(GrowthBlocks)
    ->ArgName("blocks")
    ->RangeMultiplier(10)
    ->Range(1'000, Quick() ? 100'000 : 10'000'000)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(GrowthStreams)
    ->ArgName("streams")
    ->RangeMultiplier(2)
    ->Range(1, 128)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(GrowthPrompt)
    ->ArgName("blocks")
    ->RangeMultiplier(4)
    ->Range(1, 4096)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace xms::bench
