// P5 and P10: from the bytes of ZeroMQ messages in memory to what a match sees, through a stream's machine.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/kv_directory/feed.h"
#include "bench/kv_directory/memory_stream.h"
#include "bench/support/allocations.h"
#include "bench/support/measure.h"
#include "bench/support/streams.h"
#include "bench/support/trace_load.h"
#include "bench/support/trace_run.h"
#include "kv_index/kv_index.h"

namespace xms::bench {
namespace {

using kv_index::KvIndex;
using kv_index::MatchResult;

std::vector<std::unique_ptr<MemoryStream>> SynchronizedStreams(KvIndex& index, std::size_t count) {
  std::vector<std::unique_ptr<MemoryStream>> streams;
  for (std::size_t s = 0; s < count; ++s) {
    streams.push_back(std::make_unique<MemoryStream>(index, "engine-" + std::to_string(s)));
    streams.back()->SynchronizeEmpty();
  }
  return streams;
}

void RequireVisible(const KvIndex& index, const MemoryStream& stream, std::uint64_t id,
                    std::uint64_t chain, std::size_t blocks) {
  MatchResult result;
  index.Match(ChainTokens(id, chain, blocks), result);
  Require(result.slots[stream.slot()].device_hit_tokens == blocks * kBlockTokens,
          "a chain that was published");
}

void ReportRate(benchmark::State& state, double blocks, double ns, double cpu_ns) {
  state.counters["M_blocks/s"] = blocks / ns * 1e3;
  state.counters["M_blocks/cpu_s"] = blocks / cpu_ns * 1e3;
}

// P5. Streams in turn, batch by batch, on one thread; new content only, chains of 64 blocks.
void P5_FramesToVisible(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  constexpr std::size_t kChain = 64;
  const std::size_t chains = (Quick() ? 512 : 2048) / count;
  std::vector<Payloads> feeds;
  for (std::size_t s = 0; s < count; ++s) feeds.push_back(StoreBatches(s, chains, kChain));
  const double blocks = static_cast<double>(count * chains * kChain);
  for (auto _ : state) {
    KvIndex index({});
    const auto streams = SynchronizedStreams(index, count);
    Pin(0);
    const auto begin = Clock::now();
    const double cpu_begin = CpuNanoseconds();
    for (std::size_t i = 0; i < feeds[0].size(); ++i) {
      for (std::size_t s = 0; s < count; ++s) streams[s]->Live(feeds[s][i], Clock::now());
    }
    const double cpu = CpuNanoseconds() - cpu_begin;
    ReportRate(state, blocks, Nanoseconds(Clock::now() - begin), cpu);
    Unpin();
    for (std::size_t s = 0; s < count; ++s) {
      Require(streams[s]->synchronized() && streams[s]->ledger().mappings() == chains * kChain,
              "every block is applied");
      for (std::size_t chain = 0; chain < chains; chain += 17) {
        RequireVisible(index, *streams[s], s, chain, kChain);
      }
    }
  }
  state.counters["bytes/block"] =
      static_cast<double>(feeds[0].bytes()) / static_cast<double>(chains * kChain);
}
BENCHMARK(P5_FramesToVisible)
    ->ArgName("streams")
    ->Arg(1)
    ->Arg(16)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// The same at constant residency: each batch also removes as many blocks. Counted are stored blocks.
void P5_FramesUnderEviction(benchmark::State& state) {
  constexpr std::size_t kStreams = 16;
  constexpr std::size_t kChains = 512;
  constexpr std::size_t kResident = 256;
  std::vector<Payloads> feeds;
  for (std::size_t s = 0; s < kStreams; ++s) {
    feeds.push_back(CircleBatches(s, kChains, kResident));
  }
  const std::size_t rounds = Quick() ? 2 : 8;
  for (auto _ : state) {
    KvIndex index({});
    const auto streams = SynchronizedStreams(index, kStreams);
    const auto feed = [&](std::size_t i) {
      for (std::size_t s = 0; s < kStreams; ++s) streams[s]->Live(feeds[s][i], Clock::now());
    };
    Pin(0);
    // Until a ledger has dropped as many mappings as it remembers by name.
    for (std::size_t i = 0; i < 4 * kChains; ++i) feed(i % kChains);
    const std::uint64_t allocations_before = Allocations();
    const auto begin = Clock::now();
    const double cpu_begin = CpuNanoseconds();
    for (std::size_t i = 0; i < rounds * kChains; ++i) feed(i % kChains);
    const double cpu = CpuNanoseconds() - cpu_begin;
    const std::uint64_t allocations = Allocations() - allocations_before;
    ReportRate(state, static_cast<double>(rounds * kChains * kStreams * kBatchBlocks),
               Nanoseconds(Clock::now() - begin), cpu);
    state.counters["allocations"] = static_cast<double>(allocations);
    Unpin();
    MatchResult result;
    for (std::size_t s = 0; s < kStreams; ++s) {
      Require(streams[s]->synchronized(), "synchronized to the end");
      RequireVisible(index, *streams[s], s, kChains - 1, kBatchBlocks);
      RequireVisible(index, *streams[s], s, kChains - kResident, kBatchBlocks);
      index.Match(ChainTokens(s, kChains - kResident - 1, kBatchBlocks), result);
      Require(result.slots[streams[s]->slot()].device_hit_tokens == 0, "what was removed");
    }
  }
}
BENCHMARK(P5_FramesUnderEviction)->Iterations(1)->Unit(benchmark::kMillisecond);

// --- P10

constexpr std::uint64_t kSnapshotStream = 1'000;
constexpr std::size_t kPartBlocks = 1024;

std::size_t SnapshotBlocks() { return Quick() ? 65'536 : 262'144; }

// Seconds from the first byte to published; the stream ends with it.
double RecoverOnce(KvIndex& index, const Payloads& parts, std::size_t blocks) {
  MemoryStream stream(index, "recovering");
  stream.Begin();
  const auto begin = Clock::now();
  stream.Answer(parts, 7);
  const double seconds = Nanoseconds(Clock::now() - begin) / 1e9;
  Require(stream.synchronized() && stream.ledger().mappings() == blocks, "a recovered stream");
  RequireVisible(index, stream, kSnapshotStream, blocks / 64 - 1, 64);
  return seconds;
}

void P10_SnapshotToPublished(benchmark::State& state) {
  const Payloads parts = SnapshotParts(kSnapshotStream, SnapshotBlocks(), kPartBlocks);
  KvIndex index({});
  Pin(0);
  for (auto _ : state) {
    state.counters["seconds"] = RecoverOnce(index, parts, SnapshotBlocks());
  }
  Unpin();
  state.counters["blocks"] = static_cast<double>(SnapshotBlocks());
  state.counters["MB"] = static_cast<double>(parts.bytes()) / 1e6;
}
BENCHMARK(P10_SnapshotToPublished)->Iterations(1)->Unit(benchmark::kMillisecond);

// Look-ups of the trace (one copy, blocks of 128 tokens, 111 workers) while another thread changes 16 other
// streams of the view at full speed (as P2), or recovers one from a snapshot, again and again.
void P10_LookUpMeanwhile(benchmark::State& state) {
  const bool snapshot = state.range(0) != 0;
  constexpr std::uint32_t kWorkers = 111;
  static const TraceLoad load = BuildLoad(ReadTrace(), 1, kWorkers, 2048, kBlockTokens);
  static const Payloads parts = SnapshotParts(kSnapshotStream, SnapshotBlocks(), kPartBlocks);
  const int passes = Quick() ? 2 : 8;
  for (auto _ : state) {
    KvIndex index({});
    Latency latency(load.ops.size() * 64);
    std::atomic<bool> stop{false};
    std::atomic<int> recoveries{0};
    double slowest = 0;
    std::thread recovering;
    if (snapshot) {
      recovering = std::thread([&] {
        Pin(1);
        while (!stop.load(std::memory_order_relaxed)) {
          slowest = std::max(slowest, RecoverOnce(index, parts, SnapshotBlocks()));
          recoveries.fetch_add(1);
        }
      });
    }
    Pin(0);
    for (int pass = 0; pass < passes || (snapshot && recoveries.load() < 2); ++pass) {
      const Streams streams = OpenStreams(index, kWorkers + 16, kBlockTokens);
      StoreRoot(streams, load);
      std::unique_ptr<Churn> churn;
      if (!snapshot) churn = std::make_unique<Churn>(index, streams, load);
      TimeLookUps(index, streams, load, latency);
      if (churn != nullptr) churn->Stop();
      RequireEndState(index, streams, load);
    }
    Unpin();
    stop.store(true);
    if (recovering.joinable()) recovering.join();
    latency.Report(state);
    if (snapshot) {
      state.counters["recoveries"] = recoveries.load();
      state.counters["slowest_s"] = slowest;
    }
  }
  state.SetLabel(TraceName());
}
BENCHMARK(P10_LookUpMeanwhile)
    ->ArgName("snapshot")
    ->Arg(0)
    ->Arg(1)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace xms::bench
