// P2, P3 and P4: a request trace as an index sees it, and the situations in which fast indexes are wrong.
#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "bench/support/measure.h"
#include "bench/support/streams.h"
#include "bench/support/trace_load.h"
#include "bench/support/trace_run.h"
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

const TraceLoad& SharedLoad(std::uint32_t workers) {
  static std::map<std::uint32_t, TraceLoad> loads;
  const auto [place, fresh] = loads.try_emplace(workers);
  if (fresh) place->second = BuildLoad(ReadTrace(), Quick() ? 2 : 4, workers, 2048, 1);
  return place->second;
}

// An index with 128 streams, of which the load's workers hold the first block.
struct Subject {
  explicit Subject(const TraceLoad& load) { StoreRoot(streams, load); }
  KvIndex index{{}};
  Streams streams = OpenStreams(index, 128, 1);
};

// P2. Argument: 16 of the 128 streams belong to a thread that stores and removes chains of the trace at
// full speed; the trace runs on the other 112. Otherwise all 128, and nobody writes during a look-up.
void P2_TraceLookUp(benchmark::State& state) {
  const bool churn = state.range(0) != 0;
  const TraceLoad& load = SharedLoad(churn ? 112 : 128);
  Pin(0);
  for (auto _ : state) {
    Subject subject(load);
    std::unique_ptr<Churn> other;
    if (churn) other = std::make_unique<Churn>(subject.index, subject.streams, load);
    Latency latency(load.ops.size());
    TimeLookUps(subject.index, subject.streams, load, latency);
    if (other != nullptr) {
      other->Stop();
      state.counters["churned_M/s"] = other->millions_a_second();
    }
    RequireEndState(subject.index, subject.streams, load);
    latency.Report(state);
  }
  Unpin();
  state.SetLabel(TraceName());
}
BENCHMARK(P2_TraceLookUp)
    ->ArgName("churn")
    ->Arg(1)
    ->Arg(0)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

void ReportRate(benchmark::State& state, const TraceLoad& load, double nanoseconds) {
  state.counters["M_block_ops/s"] = static_cast<double>(load.blocks()) / nanoseconds * 1e3;
  state.SetLabel(TraceName());
}

// P3: all of the trace on one thread. A second pass without the clock compares every answer.
void P3_TraceOneThread(benchmark::State& state) {
  const TraceLoad& load = SharedLoad(128);
  Pin(0);
  for (auto _ : state) {
    MatchResult result;
    {
      Subject subject(load);
      const auto begin = Clock::now();
      const double cpu_begin = CpuNanoseconds();
      for (const TraceOp& op : load.ops) {
        Match(subject.index, load, op, result);
        benchmark::DoNotOptimize(result);
        Apply(subject.streams, op);
      }
      const double cpu = CpuNanoseconds() - cpu_begin;
      ReportRate(state, load, Nanoseconds(Clock::now() - begin));
      state.counters["M_block_ops/cpu_s"] = static_cast<double>(load.blocks()) / cpu * 1e3;
      RequireEndState(subject.index, subject.streams, load);
    }
    Subject subject(load);
    for (const TraceOp& op : load.ops) {
      Match(subject.index, load, op, result);
      RequireLengths(subject.streams, load, op.lengths, result);
      Apply(subject.streams, op);
    }
  }
  Unpin();
}
BENCHMARK(P3_TraceOneThread)->Iterations(1)->Unit(benchmark::kMillisecond);

void Relax(unsigned turn) { turn % 1024 == 1023 ? std::this_thread::yield() : _mm_pause(); }

// P4, first form: one thread asks, at most kGroup requests ahead of the other, which applies what follows
// from those that were asked.
void P4_TraceReaderAndWriter(benchmark::State& state) {
  const TraceLoad& load = SharedLoad(128);
  constexpr std::size_t kHandOver = 16;
  for (auto _ : state) {
    Subject subject(load);
    alignas(64) std::atomic<std::size_t> asked{0};
    alignas(64) std::atomic<std::size_t> applied{0};
    const auto begin = Clock::now();
    std::thread writer([&] {
      Pin(1);
      std::size_t seen = 0;
      for (std::size_t i = 0; i < load.ops.size(); ++i) {
        for (unsigned turn = 0; seen <= i; ++turn) {
          seen = asked.load(std::memory_order_acquire);
          if (seen <= i) Relax(turn);
        }
        Apply(subject.streams, load.ops[i]);
        if ((i + 1) % kHandOver == 0) applied.store(i + 1, std::memory_order_release);
      }
    });
    std::thread reader([&] {
      Pin(0);
      MatchResult result;
      std::size_t seen = 0;
      for (std::size_t i = 0; i < load.ops.size(); ++i) {
        for (unsigned turn = 0; seen + kGroup <= i; ++turn) {
          seen = applied.load(std::memory_order_acquire);
          if (seen + kGroup <= i) Relax(turn);
        }
        Match(subject.index, load, load.ops[i], result);
        benchmark::DoNotOptimize(result);
        if ((i + 1) % kHandOver == 0) asked.store(i + 1, std::memory_order_release);
      }
      asked.store(load.ops.size(), std::memory_order_release);
    });
    reader.join();
    writer.join();
    ReportRate(state, load, Nanoseconds(Clock::now() - begin));
    RequireEndState(subject.index, subject.streams, load);
  }
}
BENCHMARK(P4_TraceReaderAndWriter)->Iterations(1)->Unit(benchmark::kMillisecond);

// P4, second form: two threads that ask and apply, each for the requests of half of the streams.
void P4_TraceTwoOfBoth(benchmark::State& state) {
  const TraceLoad& load = SharedLoad(128);
  for (auto _ : state) {
    Subject subject(load);
    const auto half = [&](std::uint32_t which) {
      Pin(which);
      MatchResult result;
      for (const TraceOp& op : load.ops) {
        if (op.worker % 2 != which) continue;
        Match(subject.index, load, op, result);
        benchmark::DoNotOptimize(result);
        Apply(subject.streams, op);
      }
    };
    const auto begin = Clock::now();
    std::thread first(half, 0);
    std::thread second(half, 1);
    first.join();
    second.join();
    ReportRate(state, load, Nanoseconds(Clock::now() - begin));
    RequireEndState(subject.index, subject.streams, load);
  }
}
BENCHMARK(P4_TraceTwoOfBoth)->Iterations(1)->Unit(benchmark::kMillisecond);

// --- Where the fast structures of others credit too much or too little, on 100 blocks of 128 streams.

class Situation {
 public:
  static constexpr std::uint32_t kBlocks = 100;

  Situation() {
    tokens_.resize(kBlocks);
    std::iota(tokens_.begin(), tokens_.end(), 1);
    for (std::uint32_t b = 0; b < kBlocks; ++b) hashes_.push_back({1'000 + b});
    model::BlockHasher(kHashSeed, 1).Chain(tokens_, keys_);
  }
  void Store(std::size_t stream, std::size_t from, std::size_t count) {
    const auto parent = from == 0 ? std::nullopt : std::optional<WireHash>(hashes_[from - 1]);
    last_ = streams_[stream].Store(Tier::kDevice, std::span(hashes_).subspan(from, count), parent,
                                   std::span(tokens_).subspan(from, count),
                                   StreamLedger::Orphans::kRefuse);
  }
  void Remove(std::size_t stream, std::size_t from, std::size_t count) {
    streams_[stream].Remove(Tier::kDevice, std::span(hashes_).subspan(from, count));
  }
  std::uint32_t Held(std::size_t stream) const {
    MatchResult result;
    index_.MatchKeys(kHashSeed, 1, keys_, result);
    return result.slots[streams_.slots[stream]].device_hit_tokens;
  }
  bool refused() const { return !last_.ok(); }

 private:
  KvIndex index_{{}};
  Streams streams_ = OpenStreams(index_, 128, 1);
  std::vector<std::uint32_t> tokens_;
  std::vector<WireHash> hashes_;
  std::vector<model::ContentKey> keys_;
  kv_index::ApplyResult last_;
};

void Situations(benchmark::State& state) {
  int checks = 0;
  const auto expect = [&checks](bool holds, const char* what) {
    Require(holds, what);
    ++checks;
  };
  for (auto _ : state) {
    {
      Situation s;  // the head of one and the tail of another: as many holders, not the same ones
      s.Store(0, 0, 100);
      s.Store(1, 0, 100);
      s.Remove(0, 50, 50);
      s.Remove(1, 0, 50);
      expect(s.Held(0) == 50, "a removed tail is not made up by another's");
      expect(s.Held(1) == 0, "without its head a chain counts nothing");
    }
    {
      Situation s;
      s.Store(0, 0, 100);
      s.Store(1, 0, 100);
      s.Remove(0, 10, 1);
      expect(s.Held(0) == 10, "a hole in the middle ends the prefix");
      expect(s.Held(1) == 100, "another's hole does not");
      s.Store(0, 10, 1);
      expect(s.Held(0) == 100, "a hole that is filled again is none");
    }
    {
      Situation s;
      s.Store(0, 0, 100);
      s.Store(0, 0, 100);
      s.Remove(0, 99, 1);
      expect(s.Held(0) == 99, "stored twice, removed once: gone");
    }
    {
      Situation s;
      s.Store(0, 50, 50);
      expect(s.refused() && s.Held(0) == 0, "an unknown parent is refused");
    }
    {
      Situation s;  // every stream ends somewhere else
      for (std::size_t i = 0; i < 100; ++i) s.Store(i, 0, i + 1);
      for (std::uint32_t i = 0; i < 100; ++i) expect(s.Held(i) == i + 1, "staggered lengths");
      for (std::size_t i = 0; i < 100; ++i) s.Remove(i, i / 2, 1);
      for (std::uint32_t i = 0; i < 100; ++i) expect(s.Held(i) == i / 2, "staggered holes");
    }
  }
  state.counters["checks"] = checks;
  state.counters["wrong"] = 0;  // the first one ends the program
}
BENCHMARK(Situations)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace xms::bench
