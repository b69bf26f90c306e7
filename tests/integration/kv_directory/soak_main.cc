// kv_directory_soak: the public cases about amounts and the reconnects, long. tools/soak runs it.
//
//   kv_directory_soak reconnects [COUNT]    connections cut and reset: nothing leaks
//   kv_directory_soak overload [SECONDS]    C11: ten times what the reader's connection carries
//   kv_directory_soak churn [SECONDS]       C16: eight streams replaced over and over, ten times the rate
//   kv_directory_soak queries [SECONDS]     C04: look-ups, quiet and while events pour in
//
// Publishers are another process, so that memory is the directory's. A line of progress now and then, a
// summary at the end; status 1 when a promise was broken, 2 when the amount is too small to judge. Times
// are reported, never judged.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/open_files.h"
#include "kv_directory/directory.h"
#include "kv_index/kv_index.h"
#include "observability/metrics.h"
#include "tests/integration/kv_directory/load_fixture.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/process_usage.h"

namespace xms::kv_directory {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FaultProxy;
using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

double SecondsSince(Time start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
double MiB(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

class Verdict {
 public:
  void Require(bool kept, const std::string& promise) {
    std::printf("%s: %s\n", kept ? "kept  " : "BROKEN", promise.c_str());
    broken_ = broken_ || !kept;
  }
  int status() const { return broken_ ? 1 : 0; }

 private:
  bool broken_ = false;
};

class Rig {
 public:
  explicit Rig(DirectoryConfig config)
      : index_({.max_blocks_per_stream = config.limits.max_blocks_per_stream}),
        directory_(std::move(config), index_, clock_, nullptr, metrics_) {
    directory_.Start();
  }

  bool WaitSettled(seconds limit) {
    return WaitFor(limit, [&] { return directory_.Settled(); });
  }
  template <typename Condition>
  static bool WaitFor(seconds limit, Condition&& condition) {
    const Time start = Clock::now();
    while (!condition()) {
      if (Clock::now() - start > limit) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }
  kv_index::KvIndex& index() { return index_; }
  std::uint32_t HitsOf(const std::string& name, const std::vector<std::uint32_t>& prompt) {
    const auto slots = index_.Slots();
    index_.Match(prompt, match_);
    for (const auto& entry : slots->Of({name})) {
      const kv_index::SlotMatch& one = match_.slots[entry.slot];
      if (kv_index::KvIndex::LifeOf(one.generation) != entry.life) return 0;
      return one.device_hit_tokens + one.host_only_hit_tokens;
    }
    return 0;
  }
  // Streams that are at their publisher's last sequence with as many blocks as he holds.
  std::size_t CaughtUp(LoadProcess& load) {
    std::size_t count = 0;
    for (const kv_index::StreamStatus& status : index_.Streams()) {
      const std::size_t stream = std::stoul(status.info->key.instance.name.substr(1));
      if (stream >= load.options().streams) continue;  // another process's
      const auto held = load.HeldBy(stream);
      if (status.synchronized && status.sequence.value == held.last_sequence &&
          status.device_blocks == held.count * load.options().chain) {
        ++count;
      }
    }
    return count;
  }
  // All series of a name whose labels contain `label`.
  double Total(const std::string& name, const std::string& label = "") const {
    std::istringstream lines(metrics_.Exposition());
    double total = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.compare(0, name.size(), name) != 0) continue;
      const char next = line[name.size()];
      if ((next != '{' && next != ' ') || line.find(label) == std::string::npos) continue;
      total += std::stod(line.substr(line.rfind(' ')));
    }
    return total;
  }

 private:
  base::SystemClock clock_;
  observability::MetricRegistry metrics_;
  kv_index::KvIndex index_;
  Directory directory_;
  kv_index::MatchResult match_;
};

DirectoryConfig ConfigOf(std::vector<StreamSpec> streams) {
  DirectoryConfig config;
  config.streams = std::move(streams);
  return config;
}

using Proxies = std::vector<std::unique_ptr<FaultProxy>>;

std::vector<StreamSpec> BehindProxies(const LoadProcess& load, Proxies& proxies) {
  std::vector<StreamSpec> specs = load.Specs();
  for (std::size_t i = 0; i < specs.size(); ++i) {
    proxies.push_back(std::make_unique<FaultProxy>(load.event_port(i)));
    specs[i].endpoint = proxies.back()->endpoint();
  }
  return specs;
}

constexpr std::size_t kReconnectStreams = 128;
constexpr std::size_t kWarmRounds = 3;
// As many rounds again are needed to see what grows.
constexpr std::size_t kFewestReconnects = 2 * kWarmRounds * kReconnectStreams;
// Below this the slope is that of warming up.
constexpr std::size_t kShortestChurn = 120;

int Reconnects(std::size_t wanted) {
  constexpr std::size_t kStreams = kReconnectStreams;
  LoadProcess load(
      {.streams = kStreams, .chains = 32, .chain = 16, .block_size = 4, .batches_a_second = 5});
  Proxies proxies;
  Rig rig(ConfigOf(BehindProxies(load, proxies)));
  Verdict verdict;
  verdict.Require(rig.WaitSettled(seconds(60)), "128 streams synchronize");
  const Time start = Clock::now();
  std::size_t done = 0;
  std::size_t files = 0;
  std::size_t threads = 0;
  std::size_t bytes = 0;
  const auto settled = [&] {
    return rig.Total("xms_kv_stream_disconnects_total") >= static_cast<double>(done) &&
           rig.WaitSettled(seconds(0));
  };
  bool recovered = true;
  for (std::size_t round = 0; done < wanted && recovered; ++round) {
    if (round == kWarmRounds) {
      Rig::WaitFor(seconds(2), [] { return false; });
      files = testing::OpenFiles();
      threads = testing::Threads();
      bytes = testing::ResidentBytes();
    }
    for (const auto& proxy : proxies) {
      proxy->CutAll(round % 2 == 0 ? FaultProxy::Cut::kReset : FaultProxy::Cut::kClose);
    }
    done += kStreams;
    recovered = Rig::WaitFor(seconds(60), settled);
    if (round % 10 == 0) {
      std::printf("%6.0f s  %6zu reconnects, %zu files, %zu threads, %.1f MiB\n",
                  SecondsSince(start), done, testing::OpenFiles(), testing::Threads(),
                  MiB(testing::ResidentBytes()));
      std::fflush(stdout);
    }
  }
  load.SetRate(0);
  const bool caught_up = Rig::WaitFor(seconds(60), [&] { return rig.CaughtUp(load) == kStreams; });
  const bool closed = Rig::WaitFor(seconds(20), [&] { return testing::OpenFiles() <= files; });
  std::printf(
      "summary: %zu reconnects of %zu streams in %.0f s; files %zu → %zu, threads %zu → %zu, "
      "resident %.1f → %.1f MiB; %.0f recoveries\n",
      done, kStreams, SecondsSince(start), files, testing::OpenFiles(), threads, testing::Threads(),
      MiB(bytes), MiB(testing::ResidentBytes()),
      rig.Total("xms_kv_stream_recoveries_total", "outcome=\"completed\""));
  verdict.Require(recovered, "every stream recovers from every cut");
  verdict.Require(caught_up, "at the end every stream is what its publisher holds");
  verdict.Require(closed, "no descriptor is left open");
  verdict.Require(testing::Threads() == threads, "no thread is left");
  verdict.Require(testing::ResidentBytes() < bytes + (32 << 20),
                  "memory grows by less than 32 MiB");
  return verdict.status();
}

// What was removed so long ago that a snapshot has certainly shown it must not be credited.
class StaleWatch {
 public:
  StaleWatch(LoadProcess& load, Rig& rig, milliseconds allowed)
      : load_(load), rig_(rig), allowed_(allowed), seen_(load.options().streams) {}

  void Look() {
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      const Time now = Clock::now();
      std::deque<std::pair<Time, std::uint64_t>>& seen = seen_[i];
      seen.emplace_back(now, load_.HeldBy(i).first);
      std::uint64_t gone = 0;
      while (!seen.empty() && now - seen.front().first > allowed_) {
        gone = seen.front().second;
        seen.pop_front();
      }
      if (gone == 0) continue;
      ++looks_;
      if (rig_.HitsOf(LoadProcess::NameOf(i), load_.Prompt(i, gone - 1)) != 0) ++stale_;
    }
  }
  std::uint64_t looks() const { return looks_; }
  std::uint64_t stale() const { return stale_; }

 private:
  LoadProcess& load_;
  Rig& rig_;
  const milliseconds allowed_;
  std::vector<std::deque<std::pair<Time, std::uint64_t>>> seen_;
  std::uint64_t looks_ = 0;
  std::uint64_t stale_ = 0;
};

int Overload(std::size_t length) {
  constexpr std::size_t kStreams = 4;
  LoadProcess load({.streams = kStreams, .chains = 64, .chain = 100, .high_water_mark = 10});
  Proxies proxies;
  DirectoryConfig config = ConfigOf(BehindProxies(load, proxies));
  config.limits.resync_interval = milliseconds(500);
  const milliseconds allowed = config.limits.resync_interval + 2 * config.limits.replay_timeout;
  Rig rig(std::move(config));
  Verdict verdict;
  verdict.Require(rig.WaitSettled(seconds(60)), "4 streams synchronize");
  const std::size_t bytes = testing::ResidentBytes();
  const auto requests = load.statistics().snapshot_requests;
  // A batch of 100 blocks of 16 tokens is about 8,000 bytes, so this is ten times what goes through.
  for (const auto& proxy : proxies) proxy->Throttle(80'000);
  load.SetRate(100);
  StaleWatch watch(load, rig, allowed);
  const Time start = Clock::now();
  std::size_t most_bytes = 0;
  std::uint64_t samples = 0;
  std::uint64_t synchronized = 0;
  for (double next_line = 0; SecondsSince(start) < static_cast<double>(length);) {
    watch.Look();
    for (const auto& status : rig.index().Streams()) {
      ++samples;
      synchronized += status.synchronized ? 1 : 0;
    }
    most_bytes = std::max(most_bytes, testing::ResidentBytes());
    if (SecondsSince(start) >= next_line) {
      std::printf("%6.0f s  %.0f gaps, %lu stale of %lu looks, %.1f MiB\n", SecondsSince(start),
                  rig.Total("xms_kv_stream_gaps_total"), watch.stale(), watch.looks(),
                  MiB(testing::ResidentBytes()));
      std::fflush(stdout);
      next_line += 10;
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
  load.SetRate(0);
  for (const auto& proxy : proxies) proxy->Throttle(0);
  const Time end = Clock::now();
  const bool caught_up = Rig::WaitFor(seconds(60), [&] { return rig.CaughtUp(load) == kStreams; });
  const double recovery = SecondsSince(end);
  const auto statistics = load.statistics();
  const double asked = static_cast<double>(statistics.snapshot_requests - requests);
  std::printf(
      "summary: %zu s, %lu batches published, %.0f arrived; %.0f gaps, %.0f recoveries, %.0f lost "
      "tails; "
      "synchronized %.0f %% of the time; %.0f snapshots (%.2f a second and stream), at most %lu "
      "at once; full synchrony %.2f s after the end; resident %.1f MiB before, %.1f at most\n",
      length, statistics.batches, rig.Total("xms_kv_stream_batches_total"),
      rig.Total("xms_kv_stream_gaps_total"),
      rig.Total("xms_kv_stream_recoveries_total", "outcome=\"completed\""),
      rig.Total("xms_kv_stream_reconciliations_total", "outcome=\"lost_tail\""),
      100.0 * static_cast<double>(synchronized) /
          static_cast<double>(std::max<std::uint64_t>(samples, 1)),
      asked, asked / static_cast<double>(length) / kStreams, statistics.most_snapshots_at_once,
      recovery, MiB(bytes), MiB(most_bytes));
  verdict.Require(watch.stale() == 0 && watch.looks() > 0,
                  "nothing is credited that was gone for longer than a snapshot takes to show it");
  verdict.Require(caught_up, "full synchrony when the overload has ended");
  verdict.Require(asked <= static_cast<double>(kStreams * (length * 4 + 20)),
                  "at most four snapshots a second and stream");
  verdict.Require(most_bytes < bytes + (128 << 20), "memory stays within its limits");
  return verdict.status();
}

// MiB a minute, by least squares over (seconds, bytes).
double SlopeOf(const std::vector<std::pair<double, double>>& points) {
  double x = 0;
  double y = 0;
  for (const auto& [at, bytes] : points) {
    x += at / static_cast<double>(points.size());
    y += bytes / static_cast<double>(points.size());
  }
  double up = 0;
  double down = 0;
  for (const auto& [at, bytes] : points) {
    up += (at - x) * (bytes - y);
    down += (at - x) * (at - x);
  }
  return down == 0 ? 0 : up / down * 60 / (1 << 20);
}

int Churn(std::size_t length) {
  constexpr std::size_t kStreams = 8;
  LoadProcess load({.streams = kStreams, .chains = 256, .chain = 64});  // 16,384 blocks
  DirectoryConfig config = ConfigOf(load.Specs());
  Rig rig(std::move(config));
  Verdict verdict;
  verdict.Require(rig.WaitSettled(seconds(60)), "8 streams of 16,384 blocks synchronize");
  const std::size_t first_bytes = testing::ResidentBytes();
  load.SetRate(20'000 / 64);
  const Time start = Clock::now();
  const double warm = std::min(60.0, static_cast<double>(length) / 4);
  std::vector<std::pair<double, double>> resident;
  std::vector<std::pair<double, double>> allocated;
  std::size_t most_bytes = 0;
  for (double next_line = 0; SecondsSince(start) < static_cast<double>(length);) {
    const double at = SecondsSince(start);
    most_bytes = std::max(most_bytes, testing::ResidentBytes());
    if (at > warm) {
      resident.emplace_back(at, static_cast<double>(testing::ResidentBytes()));
      allocated.emplace_back(at, static_cast<double>(testing::AllocatedBytes()));
    }
    if (at >= next_line) {
      const auto use = rig.index().Memory();
      std::printf(
          "%6.0f s  %.1f M blocks replaced, resident %.1f MiB, allocated %.1f, views %.1f, ledgers "
          "%.1f, %lu "
          "entries\n",
          at, static_cast<double>(load.statistics().batches) * 64e-6, MiB(testing::ResidentBytes()),
          MiB(testing::AllocatedBytes()), MiB(use.view_bytes), MiB(use.ledger_bytes),
          use.view_entries);
      std::fflush(stdout);
      next_line += 30;
    }
    std::this_thread::sleep_for(milliseconds(500));
  }
  load.SetRate(0);
  const double replaced = static_cast<double>(load.statistics().batches) * 64;
  const bool caught_up = Rig::WaitFor(seconds(60), [&] { return rig.CaughtUp(load) == kStreams; });
  const double slope = SlopeOf(allocated);
  load.Tell("resize 3 4097");  // 262,208 blocks, the limit is 262,144
  load.Publish(3, 4097 - 256);
  const bool refused = Rig::WaitFor(seconds(60), [&] {
    for (const auto& status : rig.index().Streams()) {
      if (status.info->key.instance.name == "e3") {
        return status.error.find("max_blocks_per_stream 262144") != std::string::npos;
      }
    }
    return false;
  });
  std::printf(
      "summary: %.0f blocks replaced in %zu s (%.0f a second); after %.0f s of warming allocated "
      "memory "
      "%+.3f MiB a minute, resident %+.3f; %.1f MiB resident at first, %.1f at most; %.0f gaps\n",
      replaced, length, replaced / static_cast<double>(length), warm, slope, SlopeOf(resident),
      MiB(first_bytes), MiB(most_bytes), rig.Total("xms_kv_stream_gaps_total"));
  verdict.Require(caught_up, "at the end every stream is what its publisher holds");
  // On a busy machine backlogs have peaks, and the allocator keeps what a peak needed for the next.
  verdict.Require(slope <= 1, "allocated memory grows by at most 1 MiB a minute");
  verdict.Require(most_bytes < first_bytes + kStreams * (32 << 20),
                  "resident memory stays within what the limits let 8 streams buffer");
  verdict.Require(refused, "the stream over its limit is named");
  verdict.Require(rig.CaughtUp(load) == kStreams - 1, "and the others keep their credit");
  return verdict.status();
}

struct Latencies {
  std::vector<double> microseconds;
  std::uint64_t hits = 0;

  void Print(const char* when) {
    std::sort(microseconds.begin(), microseconds.end());
    const auto at = [&](double share) {
      return microseconds[std::min(
          microseconds.size() - 1,
          static_cast<std::size_t>(share * static_cast<double>(microseconds.size())))];
    };
    std::printf("%s: %zu look-ups, %lu with hits; p50 %.1f µs, p99 %.1f, p99.9 %.1f, most %.1f\n",
                when, microseconds.size(), hits, at(0.5), at(0.99), at(0.999), microseconds.back());
  }
};

int Queries(std::size_t length) {
  LoadProcess load({.streams = 16, .chains = 160, .chain = 100});
  LoadProcess large({.streams = 1, .chains = 4096, .chain = 64, .seed = 2});  // 262,144 blocks
  std::vector<StreamSpec> specs = load.Specs();
  specs.push_back(large.SpecOf(0));
  specs.back().key.instance.name = "e16";
  DirectoryConfig config = ConfigOf(std::move(specs));
  config.limits.resync_interval = seconds(5);
  config.limits.replay_timeout = seconds(20);
  config.limits.max_message_bytes = 64 << 20;
  config.limits.max_blocks_per_stream = 1 << 20;
  Rig rig(std::move(config));
  Verdict verdict;
  verdict.Require(rig.WaitSettled(seconds(120)), "17 streams synchronize");
  const auto ask = [&](const char* when) {
    Latencies latencies;
    std::vector<LoadProcess::Held> held(16);
    const std::size_t wanted = length * 200 / 2;
    Time next = Clock::now();
    for (std::size_t i = 0; i < wanted; ++i, next += milliseconds(5)) {
      std::this_thread::sleep_until(next);
      const std::size_t stream = i % 16;
      if (i % 64 < 16) held[stream] = load.HeldBy(stream);
      const auto prompt = load.Prompt(stream, held[stream].first + held[stream].count - 1 - i % 8);
      const Time begin = Clock::now();
      const std::uint32_t hits = rig.HitsOf(LoadProcess::NameOf(stream), prompt);
      latencies.microseconds.push_back(
          std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
      latencies.hits += hits > 0 ? 1 : 0;
    }
    latencies.Print(when);
    return latencies.hits;
  };
  ask("quiet");
  load.SetRate(20);  // 2,000 blocks a second and stream
  const std::uint64_t hits =
      ask("while 16 × 2,000 blocks a second and a snapshot of 262,144 each 5 s come in");
  std::printf("summary: %lu batches, %lu snapshots of %.1f MiB, %.0f gaps\n",
              load.statistics().batches, large.statistics().snapshots,
              MiB(large.statistics().snapshot_bytes), rig.Total("xms_kv_stream_gaps_total"));
  verdict.Require(hits > 0, "look-ups find what is held while it changes");
  verdict.Require(large.statistics().snapshots >= length / 2 / 5,
                  "the large snapshot came all the while");
  load.SetRate(0);
  verdict.Require(Rig::WaitFor(seconds(60), [&] { return rig.CaughtUp(load) >= 16; }),
                  "at the end every stream is what its publisher holds");
  return verdict.status();
}

int Main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  // 0: fewer than `fewest`, and said so.
  const auto amount = [&](std::size_t usual, std::size_t fewest = 1) {
    const std::size_t asked = argc > 2 ? static_cast<std::size_t>(std::stoul(argv[2])) : usual;
    if (asked >= fewest) return asked;
    std::fprintf(stderr, "kv_directory_soak: %s %zu is too short to judge; at least %zu\n",
                 part.c_str(), asked, fewest);
    return std::size_t{0};
  };
  base::RaiseOpenFileLimit();
  base::SetLogLevel(base::LogLevel::kError);
  const auto run = [](int (*what)(std::size_t), std::size_t asked) {
    return asked == 0 ? 2 : what(asked);
  };
  if (part == "reconnects") return run(Reconnects, amount(10'000, kFewestReconnects));
  if (part == "overload") return run(Overload, amount(120));
  if (part == "churn") return run(Churn, amount(720, kShortestChurn));
  if (part == "queries") return run(Queries, amount(60));
  std::fprintf(stderr, "usage: kv_directory_soak reconnects|overload|churn|queries [AMOUNT]\n");
  return 2;
}

}  // namespace
}  // namespace xms::kv_directory

int main(int argc, char** argv) { return xms::kv_directory::Main(argc, argv); }
