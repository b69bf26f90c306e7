// P6: real sockets over TCP loopback, from a publishing process to the directory's own threads and the
// index. Both share this machine's processors.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "bench/kv_directory/engine_process.h"
#include "bench/kv_directory/feed.h"
#include "bench/support/measure.h"
#include "bench/support/streams.h"
#include "kv_directory/directory.h"
#include "kv_index/kv_index.h"
#include "observability/metrics.h"

namespace xms::bench {
namespace {

using kv_index::KvIndex;

constexpr std::size_t kChains = 1024;
constexpr std::size_t kResident = 512;  // chains of 16 blocks, a stream

// Looks again each millisecond: the threads that are waited for need the processor.
template <typename Condition>
void WaitFor(const char* what, std::chrono::seconds limit, Condition&& condition) {
  const auto end = Clock::now() + limit;
  while (!condition()) {
    Require(Clock::now() < end, what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::vector<std::uint64_t> Sequences(const KvIndex& index) {
  std::vector<std::uint64_t> sequences;
  for (const auto& status : index.Streams()) sequences.push_back(status.sequence.value);
  return sequences;
}

double Sum(const std::vector<std::uint64_t>& values) {
  double sum = 0;
  for (const std::uint64_t value : values) sum += static_cast<double>(value);
  return sum;
}

// range(0): streams. What is counted has been applied: a stream's published sequence.
void P6_SocketsToVisible(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  base::SetLogLevel(base::LogLevel::kError);
  for (auto _ : state) {
    const EngineProcess engines([count](int orders, int answers) {
      PublishCircles(orders, answers, count, kChains, kResident);
    });
    kv_directory::DirectoryConfig config;
    // The publisher's snapshots are true before it publishes only.
    config.limits.resync_interval = std::chrono::hours(1);
    for (std::size_t s = 0; s < count; ++s) {
      kv_directory::StreamSpec& spec = config.streams.emplace_back();
      spec.key = {{"engine-" + std::to_string(100 + s)}, {0}};
      spec.block_size = kBlockTokens;
      spec.topic = kTopic;
      spec.hash_seed = kHashSeed;
      spec.endpoint = "tcp://127.0.0.1:" + std::to_string(engines.Answer());
      spec.replay_endpoint = "tcp://127.0.0.1:" + std::to_string(engines.Answer());
    }
    const base::SystemClock clock;
    observability::MetricRegistry registry;
    KvIndex index({});
    kv_directory::Directory directory(config, index, clock, nullptr, registry);
    directory.Start();
    WaitFor("all streams synchronize", std::chrono::seconds(30),
            [&] { return index.Streams().size() == count && directory.Settled(); });
    std::vector<std::uint64_t> generations;
    for (const auto& status : index.Streams()) generations.push_back(status.generation);

    engines.Order('g');
    WaitFor("every chain once", std::chrono::seconds(120),
            [&] { return Sum(Sequences(index)) > static_cast<double>(2 * kChains * count); });
    // Until the queues between the two are as full as they get.
    std::this_thread::sleep_for(std::chrono::milliseconds(Quick() ? 1500 : 4000));
    // The time is given, the work is counted.
    const auto begin = Clock::now();
    const double before = Sum(Sequences(index));
    const double resident_before = ResidentBytes();
    std::this_thread::sleep_for(std::chrono::seconds(Quick() ? 3 : 10));
    const double resident_after = ResidentBytes();
    const double batches = Sum(Sequences(index)) - before;
    const double seconds = Nanoseconds(Clock::now() - begin) / 1e9;
    engines.Order('s');
    std::vector<std::uint64_t> last;
    for (std::size_t s = 0; s < count; ++s) last.push_back(engines.Answer());
    WaitFor("all that was published arrives", std::chrono::seconds(60),
            [&] { return Sequences(index) == last; });

    const auto statuses = index.Streams();
    kv_index::MatchResult result;
    for (std::size_t s = 0; s < count; ++s) {
      Require(statuses[s].synchronized && statuses[s].generation == generations[s],
              "no stream lost its synchrony");
      Require(statuses[s].device_blocks == kResident * kBatchBlocks, "resident blocks");
      const std::uint64_t newest = (last[s] - 1) % kChains;
      index.Match(ChainTokens(s, newest, kBatchBlocks), result);
      Require(result.slots[statuses[s].slot].device_hit_tokens == kBatchBlocks * kBlockTokens,
              "the newest chain");
      index.Match(ChainTokens(s, (newest + kChains - kResident) % kChains, kBatchBlocks), result);
      Require(result.slots[statuses[s].slot].device_hit_tokens == 0, "the chain that went last");
    }
    directory.Stop();
    state.counters["M_blocks/s"] = batches * kBatchBlocks / seconds / 1e6;
    state.counters["resident_MiB"] = resident_after / (1 << 20);
    state.counters["resident_growth_MiB"] = (resident_after - resident_before) / (1 << 20);
  }
}
BENCHMARK(P6_SocketsToVisible)
    ->ArgName("streams")
    ->Arg(8)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace xms::bench
