// P1 and P11: matches of long prompts that every stream holds. tools/bench holds them against their bars.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <thread>
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

constexpr std::uint32_t kLongBlocks = 1000;
constexpr std::uint32_t kTokensPerBlock = 128;

// A thread that stores a batch of 16 blocks on each stream in turn and removes the one before.
class Ingest {
 public:
  Ingest(const KvIndex& index, const Streams& streams)
      : index_(index), streams_(streams), thread_([this] { Run(); }) {}
  ~Ingest() { Stop(); }
  Ingest(const Ingest&) = delete;
  Ingest& operator=(const Ingest&) = delete;
  void Stop() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  double millions_a_second() const { return blocks_ / seconds_ / 1e6; }  // after Stop

 private:
  static constexpr std::size_t kBatch = 16;

  void Run() {
    Pin(1);
    std::mt19937_64 random(2);
    const auto tokens = RandomTokens(random, kBatch * kTokensPerBlock * 64);
    std::vector<std::vector<model::WireHash>> stored(streams_.size());
    std::vector<std::span<const std::uint32_t>> prompts(streams_.size());
    const auto start = Clock::now();
    for (std::uint64_t round = 0; !stop_.load(std::memory_order_relaxed); ++round) {
      const std::size_t s = round % streams_.size();
      if (!stored[s].empty()) streams_[s].Remove(Tier::kDevice, stored[s]);
      stored[s] = RandomHashes(random, kBatch);
      prompts[s] = std::span(tokens).subspan(random() % 64 * kBatch * kTokensPerBlock,
                                             kBatch * kTokensPerBlock);
      streams_[s].Store(Tier::kDevice, stored[s], {}, prompts[s], StreamLedger::Orphans::kRefuse);
      streams_[s].Advance({round});
      blocks_ += round < streams_.size() ? kBatch : 2 * kBatch;
    }
    seconds_ = Nanoseconds(Clock::now() - start) / 1e9;
    MatchResult result;
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      if (stored[s].empty()) continue;
      index_.Match(prompts[s], result);
      Require(result.slots[streams_.slots[s]].device_hit_tokens == prompts[s].size(),
              "what was ingested");
    }
  }

  const KvIndex& index_;
  const Streams& streams_;
  std::atomic<bool> stop_{false};
  double blocks_ = 0;
  double seconds_ = 1;
  std::thread thread_;  // last: it uses everything above
};

// P1. Argument 0: half of the streams hold it on Host only. Argument 1: another thread ingests into all.
void P1_MatchTokens1000x128(benchmark::State& state) {
  const bool half_host = state.range(0) != 0;
  KvIndex index({});
  const Streams streams = OpenStreams(index, 128, kTokensPerBlock);
  std::mt19937_64 random(1);
  const auto tokens = RandomTokens(random, std::size_t{kLongBlocks} * kTokensPerBlock);
  StoreEverywhere(streams, RandomHashes(random, kLongBlocks), tokens, half_host);

  Pin(0);
  std::unique_ptr<Ingest> ingest;
  if (state.range(1) != 0) ingest = std::make_unique<Ingest>(index, streams);
  const int matches = Quick() ? 3'000 : 20'000;
  Latency latency(static_cast<std::size_t>(matches));
  MatchResult result;
  for (auto _ : state) {
    for (int i = 0; i < matches; ++i) {
      const auto begin = Clock::now();
      index.Match(tokens, result);
      latency.Add(Clock::now() - begin);
      for (std::size_t s = 0; s < streams.size(); ++s) {
        const auto& slot = result.slots[streams.slots[s]];
        const bool host = half_host && s % 2 == 1;
        Require(slot.device_hit_tokens == (host ? 0 : tokens.size()), "Device tokens");
        Require(slot.host_only_hit_tokens == (host ? tokens.size() : 0), "Host tokens");
      }
    }
  }
  if (ingest != nullptr) {
    ingest->Stop();
    state.counters["ingested_M/s"] = ingest->millions_a_second();
  }
  Unpin();
  latency.Report(state);
}
BENCHMARK(P1_MatchTokens1000x128)
    ->ArgNames({"half_host", "ingest"})
    ->Args({0, 1})
    ->Args({1, 1})
    ->Args({0, 0})
    ->Args({1, 0})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// P11. Argument: millions of other entries, among which the prompts' entries lie. With 0 one prompt is
// matched over and over; otherwise 64 prompts take turns, whose entries exceed the second-level cache.
void P11_MatchKeys1000x128(benchmark::State& state) {
  const auto others = static_cast<std::uint64_t>(state.range(0)) * 1'000'000;
  KvIndex index({.max_blocks_per_stream = 16'777'216});
  const Streams streams = OpenStreams(index, 128, 1);
  std::mt19937_64 random(1);
  const std::uint32_t prompts = others == 0 ? 1 : 64;
  const model::BlockHasher hasher(kHashSeed, 1);
  std::vector<std::vector<model::ContentKey>> keys(prompts);
  const auto store_others = [&](std::uint64_t count) {
    for (std::uint64_t stored = 0; stored < count; stored += 1000) {
      streams[stored / 1000 % streams.size()].Store(Tier::kDevice, RandomHashes(random, 1000), {},
                                                    RandomTokens(random, 1000),
                                                    StreamLedger::Orphans::kRefuse);
    }
  };
  for (auto& prompt : keys) {
    const auto tokens = RandomTokens(random, kLongBlocks);
    StoreEverywhere(streams, RandomHashes(random, kLongBlocks), tokens, false);
    hasher.Chain(tokens, prompt);
    store_others(others / prompts);
  }
  Pin(0);
  const int matches = Quick() ? 4'000 : 20'000;
  Latency latency(static_cast<std::size_t>(matches));
  MatchResult result;
  for (auto _ : state) {
    for (int i = 0; i < matches; ++i) {
      const auto& prompt = keys[static_cast<std::size_t>(i) % prompts];
      const auto begin = Clock::now();
      index.MatchKeys(kHashSeed, 1, prompt, result);
      latency.Add(Clock::now() - begin);
      for (const std::uint32_t slot : streams.slots) {
        Require(result.slots[slot].device_hit_tokens == kLongBlocks, "a long match");
      }
    }
  }
  Unpin();
  latency.Report(state);
  state.counters["million_entries"] = static_cast<double>(index.Memory().view_entries) / 1e6;
}
BENCHMARK(P11_MatchKeys1000x128)
    ->ArgName("million_others")
    ->Arg(0)
    ->Arg(Quick() ? 2 : 16)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// What a match costs before its first block and after its last: nobody holds the prompt, 128 are asked.
void MatchNothing(benchmark::State& state) {
  KvIndex index({});
  const Streams streams = OpenStreams(index, 128, 1);
  std::mt19937_64 random(1);
  StoreEverywhere(streams, RandomHashes(random, 64), RandomTokens(random, 64), false);
  std::vector<model::ContentKey> keys;
  model::BlockHasher(kHashSeed, 1).Chain(RandomTokens(random, 16), keys);
  MatchResult result;
  for (auto _ : state) {
    index.MatchKeys(kHashSeed, 1, keys, result);
    benchmark::DoNotOptimize(result);
  }
  Require(result.slots[127].device_hit_tokens == 0, "nothing");
}
BENCHMARK(MatchNothing);

}  // namespace
}  // namespace xms::bench
