// What the index costs: matches, events, memory. Machine, command and spread are printed by tools/bench; counters
// ending in _us or _ns are times of one call or of one block.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/kv_index/trace_load.h"
#include "kv_index/kv_index.h"
#include "kv_index/stream_ledger.h"
#include "model/content_key.h"

namespace xms::bench {
namespace {

using kv_index::KvIndex;
using kv_index::MatchResult;
using kv_index::StreamLedger;
using model::Tier;
using model::WireHash;
using Clock = std::chrono::steady_clock;

using Ledgers = std::vector<std::unique_ptr<StreamLedger>>;

Ledgers OpenStreams(KvIndex& index, std::uint32_t count, std::uint32_t block_size) {
  Ledgers ledgers;
  for (std::uint32_t s = 0; s < count; ++s) {
    auto opened = index.OpenStream(
        {{{"engine-" + std::to_string(1000 + s)}, {0}}, kTraceSeed, block_size, {}}, "new");
    ledgers.push_back(std::move(opened).value());
    ledgers.back()->Synchronize({0});
  }
  return ledgers;
}

double Nanoseconds(Clock::duration time) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

// Of this thread; what a time would be if the machine had nothing else to do.
double CpuNanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

class Latency {
 public:
  explicit Latency(std::size_t samples) { ns_.reserve(samples); }
  void Add(Clock::duration time) { ns_.push_back(Nanoseconds(time)); }
  void Report(benchmark::State& state) {
    std::sort(ns_.begin(), ns_.end());
    const auto at = [this](double q) {
      const auto n = static_cast<double>(ns_.size());
      return ns_[std::min(ns_.size() - 1, static_cast<std::size_t>(q * n))] / 1000;
    };
    state.counters["p50_us"] = at(0.5);
    state.counters["p99_us"] = at(0.99);
    state.counters["p99.9_us"] = at(0.999);
    state.counters["p99.99_us"] = at(0.9999);
    state.counters["max_us"] = ns_.back();
  }

 private:
  std::vector<double> ns_;
};

std::vector<std::uint32_t> RandomTokens(std::mt19937_64& random, std::size_t count) {
  std::vector<std::uint32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<std::uint32_t>(random() % 150'000);
  return tokens;
}

std::vector<WireHash> RandomHashes(std::mt19937_64& random, std::size_t count) {
  std::vector<WireHash> hashes(count);
  for (auto& hash : hashes) hash = {random()};
  return hashes;
}

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "kv_index_bench: wrong answer: %s\n", what);
  std::abort();
}

// --- Matches of long prompts that every stream holds.

constexpr std::uint32_t kLongBlocks = 1000;
constexpr std::uint32_t kTokensPerBlock = 128;

// A prompt on all streams; every second stream on Host only if asked.
void StoreEverywhere(Ledgers& ledgers, std::span<const WireHash> hashes,
                     std::span<const std::uint32_t> tokens, bool half_host) {
  for (std::size_t s = 0; s < ledgers.size(); ++s) {
    const Tier tier = half_host && s % 2 == 1 ? Tier::kHost : Tier::kDevice;
    Require(ledgers[s]->Store(tier, hashes, {}, tokens, StreamLedger::Orphans::kRefuse).ok(),
            "store");
  }
}

// P1. Argument 0: half of the streams hold it on Host only. Argument 1: another thread ingests.
void BM_MatchTokens1000x128(benchmark::State& state) {
  const bool half_host = state.range(0) != 0;
  const bool ingest = state.range(1) != 0;
  KvIndex index({});
  Ledgers ledgers = OpenStreams(index, 128, kTokensPerBlock);
  std::mt19937_64 random(1);
  const auto tokens = RandomTokens(random, std::size_t{kLongBlocks} * kTokensPerBlock);
  StoreEverywhere(ledgers, RandomHashes(random, kLongBlocks), tokens, half_host);

  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> ingested{0};
  std::thread writer;
  if (ingest) {
    writer = std::thread([&] {
      std::mt19937_64 own(2);
      const auto more = RandomTokens(own, 16u * kTokensPerBlock * 64);
      std::vector<std::vector<WireHash>> stored(ledgers.size());
      for (std::uint64_t round = 0; !stop.load(std::memory_order_relaxed); ++round) {
        const std::size_t s = round % ledgers.size();
        if (!stored[s].empty()) ledgers[s]->Remove(Tier::kDevice, stored[s]);
        stored[s] = RandomHashes(own, 16);
        const std::size_t piece = own() % 64;
        ledgers[s]->Store(
            Tier::kDevice, stored[s], {},
            std::span(more).subspan(piece * 16 * kTokensPerBlock, 16 * kTokensPerBlock),
            StreamLedger::Orphans::kRefuse);
        ledgers[s]->Advance({round});
        ingested.fetch_add(32, std::memory_order_relaxed);
      }
    });
  }
  Latency latency(200'000);
  MatchResult result;
  const auto start = Clock::now();
  for (auto _ : state) {
    const auto begin = Clock::now();
    index.Match(tokens, result);
    latency.Add(Clock::now() - begin);
  }
  const double seconds = Nanoseconds(Clock::now() - start) / 1e9;
  stop.store(true);
  if (writer.joinable()) writer.join();
  for (std::size_t s = 0; s < ledgers.size(); ++s) {
    const bool host = half_host && s % 2 == 1;
    Require(result.slots[s].device_hit_tokens == (host ? 0 : tokens.size()), "device");
    Require(result.slots[s].host_only_hit_tokens == (host ? tokens.size() : 0), "host");
  }
  latency.Report(state);
  if (ingest) state.counters["ingested_M/s"] = static_cast<double>(ingested) / seconds / 1e6;
}
BENCHMARK(BM_MatchTokens1000x128)
    ->ArgNames({"half_host", "ingest"})
    ->Args({0, 0})
    ->Args({1, 0})
    ->Args({0, 1})
    ->Args({1, 1})
    ->Iterations(5000)
    ->Unit(benchmark::kMicrosecond);

// P11. Argument: millions of other entries, among which the prompts' entries lie. With 0 one prompt is matched over
// and over; otherwise 64 prompts take turns, which together exceed the second-level cache.
void BM_MatchKeys1000x128(benchmark::State& state) {
  const auto others = static_cast<std::uint64_t>(state.range(0)) * 1'000'000;
  KvIndex index({.max_blocks_per_stream = 16'777'216});
  Ledgers ledgers = OpenStreams(index, 128, 1);
  std::mt19937_64 random(1);
  const std::uint32_t prompts = others == 0 ? 1 : 64;
  const model::BlockHasher hasher(kTraceSeed, 1);
  std::vector<std::vector<model::ContentKey>> keys(prompts);
  for (auto& prompt : keys) {
    const auto tokens = RandomTokens(random, kLongBlocks);
    StoreEverywhere(ledgers, RandomHashes(random, kLongBlocks), tokens, false);
    hasher.Chain(tokens, prompt);
  }
  for (std::uint64_t stored = 0; stored < others; stored += 1000) {
    ledgers[stored / 1000 % ledgers.size()]->Store(Tier::kDevice, RandomHashes(random, 1000), {},
                                                   RandomTokens(random, 1000),
                                                   StreamLedger::Orphans::kRefuse);
  }
  Latency latency(200'000);
  MatchResult result;
  std::size_t turn = 0;
  for (auto _ : state) {
    const auto& prompt = keys[turn++ % prompts];
    const auto begin = Clock::now();
    index.MatchKeys(kTraceSeed, 1, prompt, result);
    latency.Add(Clock::now() - begin);
    if (result.slots[127].device_hit_tokens != kLongBlocks) Require(false, "length");
  }
  latency.Report(state);
}
BENCHMARK(BM_MatchKeys1000x128)
    ->ArgName("million_others")
    ->Arg(0)
    ->Arg(4)
    ->Iterations(20'000)
    ->Unit(benchmark::kMicrosecond);

// What a match costs before its first block and after its last: nobody holds the prompt, 128 streams are asked.
void BM_MatchNothing(benchmark::State& state) {
  KvIndex index({});
  Ledgers ledgers = OpenStreams(index, 128, 1);
  std::mt19937_64 random(1);
  StoreEverywhere(ledgers, RandomHashes(random, 64), RandomTokens(random, 64), false);
  std::vector<model::ContentKey> keys;
  model::BlockHasher(kTraceSeed, 1).Chain(RandomTokens(random, 16), keys);
  MatchResult result;
  for (auto _ : state) {
    index.MatchKeys(kTraceSeed, 1, keys, result);
    benchmark::DoNotOptimize(result);
  }
  Require(result.slots[127].device_hit_tokens == 0, "nothing");
}
BENCHMARK(BM_MatchNothing);

// --- The trace.

const TraceLoad& SharedLoad(std::uint32_t workers) {
  static std::map<std::uint32_t, TraceLoad> loads;
  auto [place, fresh] = loads.try_emplace(workers);
  if (fresh) place->second = BuildLoad(ReadTrace(), 4, workers, 2048);
  return place->second;
}

void Seed(Ledgers& ledgers, std::uint32_t workers) {
  const std::uint32_t token = RootToken();
  const WireHash hash = RootHash();
  for (std::uint32_t w = 0; w < workers; ++w) {
    ledgers[w]->Store(Tier::kDevice, std::span(&hash, 1), {}, std::span(&token, 1),
                      StreamLedger::Orphans::kRefuse);
  }
}

void Apply(Ledgers& ledgers, const TraceOp& op) {
  StreamLedger& ledger = *ledgers[op.worker];
  if (!op.evicted.empty()) ledger.Remove(Tier::kDevice, op.evicted);
  if (op.held < op.hashes.size()) {
    const auto parent =
        op.held == 0 ? std::nullopt : std::optional<WireHash>(op.hashes[op.held - 1]);
    ledger.Store(Tier::kDevice, std::span(op.hashes).subspan(op.held), parent,
                 std::span(op.tokens).subspan(op.held), StreamLedger::Orphans::kRefuse);
  }
}

bool IsRight(const MatchResult& result, const TraceOp& op) {
  for (std::size_t w = 0; w < op.lengths.size(); ++w) {
    if (result.slots[w].device_hit_tokens != op.lengths[w]) return false;
  }
  return true;
}

// P3: all of the trace on one thread. Every answer is compared with the exact one in a second pass without clock.
void BM_TraceOneThread(benchmark::State& state) {
  const TraceLoad& load = SharedLoad(128);
  double rate = 0;
  double cpu_rate = 0;
  for (auto _ : state) {
    KvIndex index({});
    Ledgers ledgers = OpenStreams(index, 128, 1);
    Seed(ledgers, 128);
    MatchResult result;
    const auto begin = Clock::now();
    const double cpu_begin = CpuNanoseconds();
    for (const TraceOp& op : load.ops) {
      index.MatchKeys(kTraceSeed, 1, op.keys, result);
      benchmark::DoNotOptimize(result);
      Apply(ledgers, op);
    }
    rate = static_cast<double>(load.blocks()) / Nanoseconds(Clock::now() - begin) * 1e3;
    cpu_rate = static_cast<double>(load.blocks()) / (CpuNanoseconds() - cpu_begin) * 1e3;
  }
  {
    KvIndex index({});
    Ledgers ledgers = OpenStreams(index, 128, 1);
    Seed(ledgers, 128);
    MatchResult result;
    for (const TraceOp& op : load.ops) {
      index.MatchKeys(kTraceSeed, 1, op.keys, result);
      Require(IsRight(result, op), "trace");
      Apply(ledgers, op);
    }
  }
  state.counters["M_block_ops/s"] = rate;
  state.counters["M_block_ops/cpu_s"] = cpu_rate;
  state.SetLabel(TraceName());
}
BENCHMARK(BM_TraceOneThread)->Iterations(1)->Unit(benchmark::kMillisecond);

// P2: look-ups timed one by one. Argument: 16 of the 128 streams belong to a thread that stores and removes chains of
// the trace at full speed; the trace runs on the other 112. Otherwise all 128, and nobody writes during a look-up.
void BM_TraceMatch(benchmark::State& state) {
  const bool churn = state.range(0) != 0;
  const std::uint32_t workers = churn ? 112 : 128;
  const TraceLoad& load = SharedLoad(workers);
  for (auto _ : state) {
    KvIndex index({});
    Ledgers ledgers = OpenStreams(index, 128, 1);
    Seed(ledgers, workers);
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> churned{0};
    std::thread writer;
    if (churn) {
      writer = std::thread([&] {
        std::mt19937_64 random(3);
        std::vector<const TraceOp*> held(16 * 8, nullptr);
        for (std::uint64_t round = 0; !stop.load(std::memory_order_relaxed); ++round) {
          const std::size_t place = round % held.size();
          StreamLedger& ledger = *ledgers[112 + place % 16];
          if (held[place] != nullptr) ledger.Remove(Tier::kDevice, held[place]->hashes);
          held[place] = &load.ops[random() % load.ops.size()];
          ledger.Store(Tier::kDevice, held[place]->hashes, {}, held[place]->tokens,
                       StreamLedger::Orphans::kRefuse);
          ledger.Advance({round});
          churned.fetch_add(2 * held[place]->hashes.size(), std::memory_order_relaxed);
        }
      });
    }
    Latency latency(load.ops.size());
    MatchResult result;
    const auto start = Clock::now();
    for (std::size_t i = 0; i < load.ops.size(); i += 64) {
      const std::size_t end = std::min(i + 64, load.ops.size());
      for (std::size_t k = i; k < end; ++k) {
        const auto begin = Clock::now();
        index.MatchKeys(kTraceSeed, 1, load.ops[k].keys, result);
        latency.Add(Clock::now() - begin);
      }
      for (std::size_t k = i; k < end; ++k) Apply(ledgers, load.ops[k]);
    }
    const double seconds = Nanoseconds(Clock::now() - start) / 1e9;
    stop.store(true);
    if (writer.joinable()) writer.join();
    latency.Report(state);
    if (churn) {
      state.counters["churned_M/s"] = static_cast<double>(churned.load()) / seconds / 1e6;
    }
  }
  state.SetLabel(TraceName());
}
BENCHMARK(BM_TraceMatch)
    ->ArgName("churn")
    ->Arg(0)
    ->Arg(1)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// --- Events.

// Chains of 64 blocks of 128 tokens, in batches of 16, hashing included; then removed tail first in batches of 64;
// then stored again and the stream closed. Times are this thread's CPU time.
void BM_StoreRemoveClose(benchmark::State& state) {
  constexpr std::uint32_t kChains = 1024;
  std::mt19937_64 random(4);
  const auto tokens = RandomTokens(random, std::size_t{64} * kTokensPerBlock + kChains);
  const auto hashes = RandomHashes(random, std::size_t{64} * kChains);
  double store_ns = 0;
  double remove_ns = 0;
  double close_ms = 0;
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
    Ledgers ledgers = OpenStreams(index, 1, kTokensPerBlock);
    double begin = CpuNanoseconds();
    store(*ledgers[0]);
    store_ns = (CpuNanoseconds() - begin) / blocks;
    std::vector<WireHash> reversed = hashes;
    for (auto chain = reversed.begin(); chain != reversed.end(); chain += 64) {
      std::reverse(chain, chain + 64);
    }
    begin = CpuNanoseconds();
    for (std::size_t at = 0; at < reversed.size(); at += 64) {
      ledgers[0]->Remove(Tier::kDevice, std::span(reversed).subspan(at, 64));
    }
    remove_ns = (CpuNanoseconds() - begin) / blocks;
    store(*ledgers[0]);
    begin = CpuNanoseconds();
    ledgers.clear();
    close_ms = (CpuNanoseconds() - begin) / 1e6;
  }
  state.counters["store_ns"] = store_ns;
  state.counters["remove_ns"] = remove_ns;
  state.counters["close_65536_ms"] = close_ms;
}
BENCHMARK(BM_StoreRemoveClose)->Iterations(1)->Unit(benchmark::kMillisecond);

// --- Memory (P7).

double ResidentBytes() {
  malloc_trim(0);
  std::ifstream statm("/proc/self/statm");
  double pages = 0;
  statm >> pages >> pages;
  return pages * 4096;
}

// Arguments: blocks a stream, blocks a chain, whether all streams hold the same.
void BM_BytesPerResidency(benchmark::State& state) {
  const auto blocks = static_cast<std::uint64_t>(state.range(0));
  const auto chain = static_cast<std::uint64_t>(state.range(1));
  const bool same = state.range(2) != 0;
  for (auto _ : state) {
    const double before = ResidentBytes();
    KvIndex index({});
    Ledgers ledgers = OpenStreams(index, 128, 1);
    std::vector<std::uint32_t> tokens(chain);
    std::vector<WireHash> hashes(chain);
    const auto begin = Clock::now();
    for (std::uint64_t s = 0; s < 128; ++s) {
      std::mt19937_64 random(same ? 1 : s + 1);
      for (std::uint64_t done = 0; done < blocks; done += chain) {
        for (auto& token : tokens) token = static_cast<std::uint32_t>(random());
        for (auto& hash : hashes) hash = {random()};
        const std::size_t count = std::min(chain, blocks - done);
        ledgers[s]->Store(Tier::kDevice, std::span(hashes).first(count), {},
                          std::span(tokens).first(count), StreamLedger::Orphans::kRefuse);
      }
      ledgers[s]->Advance({1});
    }
    state.counters["fill_M/s"] =
        static_cast<double>(128 * blocks) / Nanoseconds(Clock::now() - begin) * 1e3;
    const auto use = index.Memory();
    const double residencies = 128.0 * static_cast<double>(blocks);
    state.counters["resident_bytes"] = (ResidentBytes() - before) / residencies;
    state.counters["view_bytes"] = static_cast<double>(use.view_bytes) / residencies;
    state.counters["ledger_bytes"] = static_cast<double>(use.ledger_bytes) / residencies;
  }
}
BENCHMARK(BM_BytesPerResidency)
    ->ArgNames({"blocks", "chain", "same"})
    ->Args({65'536, 64, 0})
    ->Args({65'536, 8, 0})
    ->Args({60'000, 64, 1})
    ->Args({70'000, 64, 1})
    ->Iterations(1)
    ->Repetitions(1)
    ->Unit(benchmark::kMillisecond);
// 33.5 million entries, 2 GB and half a minute: only when asked for.
const bool kLarge = [] {
  if (std::getenv("XMS_BENCH_LARGE") == nullptr) return false;
  benchmark::RegisterBenchmark("BM_BytesPerResidency", BM_BytesPerResidency)
      ->ArgNames({"blocks", "chain", "same"})
      ->Args({262'144, 64, 0})
      ->Iterations(1)
      ->Repetitions(1)
      ->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
}  // namespace xms::bench
