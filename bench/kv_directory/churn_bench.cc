// P8: churn at constant residency for minutes, over real sockets from a publishing process, snapshots
// compared every 30 s. Only with XMS_CHURN_SECONDS in the environment: `tools/bench --churn`.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "bench/kv_directory/engine_process.h"
#include "bench/support/measure.h"
#include "kv_directory/directory.h"
#include "kv_index/kv_index.h"
#include "observability/metrics.h"
#include "tests/support/load_publisher.h"

namespace xms::bench {
namespace {

using testing::LoadPublisher;

constexpr std::size_t kBatchesASecond = 125;  // of 16 blocks: 2,000 replaced a second and stream

LoadPublisher::Options Load() {
  LoadPublisher::Options options;
  options.streams = 8;
  options.chains = 1000;
  options.chain = 16;
  options.block_size = 128;
  return options;
}

struct Second {
  double resident_mib = 0;
  double p50_us = 0;
  double p99_us = 0;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// MiB a minute, by least squares.
double Slope(const std::vector<Second>& seconds) {
  const auto n = static_cast<double>(seconds.size());
  double mean = 0;
  for (const Second& second : seconds) mean += second.resident_mib / n;
  double above = 0;
  double below = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const double x = static_cast<double>(i) - (n - 1) / 2;
    above += x * (seconds[i].resident_mib - mean);
    below += x * x;
  }
  return above / below * 60;
}

void P8_Churn(benchmark::State& state, int total_seconds) {
  const LoadPublisher::Options load = Load();
  base::SetLogLevel(base::LogLevel::kError);
  for (auto _ : state) {
    const EngineProcess engines([&load](int orders, int answers) {
      LoadPublisher publisher(load);
      for (const std::uint16_t port : publisher.ports()) EngineProcess::SendAnswer(answers, port);
      char order = 0;
      if (::read(orders, &order, 1) != 1) return;
      publisher.SetRate(kBatchesASecond);
      if (::read(orders, &order, 1) != 1) return;
      publisher.SetRate(0);
      for (std::size_t s = 0; s < load.streams; ++s) {
        EngineProcess::SendAnswer(answers, publisher.last_sequence(s));
      }
      if (::read(orders, &order, 1) != 1) return;
    });
    kv_directory::DirectoryConfig config;
    config.limits.max_message_bytes = 64 << 20;  // a snapshot has about 9 MB
    for (std::size_t s = 0; s < load.streams; ++s) {
      kv_directory::StreamSpec& spec = config.streams.emplace_back();
      spec.key = {{"engine-" + std::to_string(100 + s)}, {0}};
      spec.block_size = load.block_size;
      spec.topic = load.topic;
      spec.endpoint = "tcp://127.0.0.1:" + std::to_string(engines.Answer());
      spec.replay_endpoint = "tcp://127.0.0.1:" + std::to_string(engines.Answer());
    }
    const base::SystemClock clock;
    observability::MetricRegistry registry;
    kv_index::KvIndex index({});
    kv_directory::Directory directory(config, index, clock, nullptr, registry);
    directory.Start();
    const auto patience = Clock::now() + std::chrono::seconds(60);
    while (index.Streams().size() < load.streams || !directory.Settled()) {
      Require(Clock::now() < patience, "all streams synchronize");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::vector<std::uint64_t> generations;
    for (const auto& status : index.Streams()) generations.push_back(status.generation);
    engines.Order('g');

    // Each millisecond a chain from the middle of what a stream holds, so that it neither leaves nor
    // arrives meanwhile.
    std::vector<Second> seconds;
    kv_index::MatchResult result;
    const auto start = Clock::now();
    auto next = start;
    for (int second = 0; second < total_seconds; ++second) {
      Latency latency(1000);
      for (int i = 0; i < 1000; ++i) {
        next += std::chrono::milliseconds(1);
        if (i % 100 == 0) std::this_thread::sleep_until(next);
        const auto statuses = index.Streams();
        const std::size_t s = static_cast<std::size_t>(i) % load.streams;
        const auto prompt =
            LoadPublisher::Prompt(load, s, statuses[s].sequence.value + load.chains / 2);
        const auto begin = Clock::now();
        index.Match(prompt, result);
        latency.Add(Clock::now() - begin);
        Require(result.slots[statuses[s].slot].device_hit_tokens == prompt.size(),
                "a chain that is held");
        std::this_thread::sleep_until(next);
      }
      seconds.push_back({ResidentBytes() / (1 << 20), latency.At(0.5), latency.At(0.99)});
      if ((second + 1) % 10 == 0) {
        std::fprintf(stderr, "churn: %d of %d s, %.1f MiB, match p50 %.1f us, p99 %.1f us\n",
                     second + 1, total_seconds, seconds.back().resident_mib, seconds.back().p50_us,
                     seconds.back().p99_us);
      }
    }
    const double elapsed = Nanoseconds(Clock::now() - start) / 1e9;
    engines.Order('s');
    double batches = 0;
    std::vector<std::uint64_t> last;
    for (std::size_t s = 0; s < load.streams; ++s) {
      last.push_back(engines.Answer());
      batches += static_cast<double>(last.back());
    }
    const auto arrival = Clock::now() + std::chrono::seconds(30);
    for (std::size_t s = 0; s < load.streams; ++s) {
      while (index.Streams()[s].sequence.value != last[s]) {
        Require(Clock::now() < arrival, "all that was published arrives");
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      const auto status = index.Streams()[s];
      Require(status.synchronized && status.generation == generations[s],
              "synchronized throughout");
      Require(status.device_blocks == load.chains * load.chain, "constant residency");
    }
    directory.Stop();

    const std::size_t warm = seconds.size() / 10;
    const std::vector<Second> steady(seconds.begin() + static_cast<std::ptrdiff_t>(warm),
                                     seconds.end());
    const auto part = [&steady](std::size_t from, std::size_t to, double Second::* what) {
      std::vector<double> values;
      for (std::size_t i = from; i < to; ++i) values.push_back(steady[i].*what);
      return Median(std::move(values));
    };
    const std::size_t quarter = std::max<std::size_t>(1, steady.size() / 4);
    state.counters["replaced/s"] = batches * static_cast<double>(load.chain) / elapsed;
    state.counters["resident_MiB"] = steady.back().resident_mib;
    state.counters["MiB/min"] = Slope(steady);
    state.counters["p50_us"] = part(0, steady.size(), &Second::p50_us);
    state.counters["p99_us"] = part(0, steady.size(), &Second::p99_us);
    state.counters["p50_drift"] = part(steady.size() - quarter, steady.size(), &Second::p50_us) /
                                  part(0, quarter, &Second::p50_us);
    state.counters["seconds"] = elapsed;
  }
}

const bool kChurn = [] {
  const char* const seconds = std::getenv("XMS_CHURN_SECONDS");
  if (seconds == nullptr) return false;
  benchmark::RegisterBenchmark("P8_Churn", P8_Churn, std::max(20, std::atoi(seconds)))
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
}  // namespace xms::bench
