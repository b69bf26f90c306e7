#include "kv_directory/directory.h"

#include <zmq.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "base/thread_name.h"
#include "kv_directory/recovery/stream_metrics.h"
#include "kv_directory/streams/resolver.h"
#include "kv_directory/streams/snapshot_gate.h"
#include "kv_directory/streams/stream_thread.h"
#include "kv_directory/streams/wakeup.h"

namespace xms::kv_directory {
namespace {

using base::StrCat;
using std::chrono::milliseconds;

// How soon to try again when no slot was free, or streams could not be had for other reasons.
constexpr milliseconds kSlotRetry{50};
// How soon to look again at streams that are ending.
constexpr milliseconds kEndingRetry{10};
// Static streams are planned once; this is only how often the thread looks up when nothing is open.
constexpr milliseconds kStaticRefresh{60'000};
constexpr int kIoThreads = 2;
// A stream has up to eight for a moment: two links, each with a monitor at both ends, while the
// links before them are being closed.
constexpr int kMaxSockets = 4096;

std::string NameOf(const model::StreamKey& key) {
  return StrCat(key.instance.name, "/", key.rank.value);
}

// The stream may go on as it is. A registration refresh of the same process is no change (E5).
bool SameStream(const StreamSpec& running, const StreamSpec& planned) {
  StreamSpec aligned = planned;
  if (running.identity.SameProcess(planned.identity)) aligned.identity = running.identity;
  return running == aligned;
}

}  // namespace

struct Directory::Impl {
  using Streams = std::map<model::StreamKey, std::unique_ptr<StreamThread>>;

  Impl(DirectoryConfig given, kv_index::KvIndex& to_index, const base::Clock& with_clock,
       const InstanceSource* from_source, observability::MetricRegistry& registry)
      : config(std::move(given)),
        index(to_index),
        source(from_source),
        planned_gauge(registry.AddGauge("xms_kv_streams", "Streams that should be subscribed.")),
        excluded_gauge(registry.AddGauge(
            "xms_kv_excluded_instances",
            "Instances that should have streams and cannot: ports, overlaps, capacity.")),
        slot_waits(
            registry.AddCounter("xms_kv_stream_slot_waits_total",
                                "Streams that had to wait for a slot of the index to be cleared.")),
        gate({.at_once = config.limits.max_snapshots_at_once}, random()),
        shared{.limits = config.limits,
               .clock = with_clock,
               .gate = gate,
               .resolver = resolver,
               .recovery_seconds = RecoverySeconds(registry),
               .synchronized = registry.AddGauge("xms_kv_streams_synchronized",
                                                 "Streams that are credited now.")},
        reader(std::make_shared<Reader>()) {
    {
      base::MutexLock lock(reader->mu);
      reader->directory = this;
    }
    registry.AddSampler([reader = reader](observability::Samples& samples) {
      base::MutexLock lock(reader->mu);
      if (reader->directory != nullptr) reader->directory->ShowStreams(samples);
    });
  }

  ~Impl() {
    base::MutexLock lock(reader->mu);
    reader->directory = nullptr;
  }

  // Whoever reads the metrics. No stream's thread waits for it longer than for another query.
  void ShowStreams(observability::Samples& samples) {
    const base::SteadyTime now = shared.clock.Now();
    double oldest = 0;
    std::map<model::StreamKey, std::shared_ptr<const StreamMetrics>> counted;
    {
      base::MutexLock lock(mu);
      for (const auto& [key, stream] : streams) {
        counted.emplace(key, stream->metrics());
        if (!stream->synchronized()) continue;
        const std::chrono::duration<double> age = now - stream->proven_at();
        oldest = std::max(oldest, age.count());
      }
    }
    samples.Gauge("xms_kv_stream_oldest_proof_seconds",
                  "Longest time since a snapshot agreed with a synchronized stream or was applied.",
                  {}, oldest);
    for (const auto& [key, metrics] : counted) ShowStreamMetrics(key, *metrics, now, samples);
    for (const kv_index::StreamStatus& status : index.Streams()) {
      const model::StreamKey& key = status.info->key;
      if (!counted.contains(key)) continue;  // it is ending
      const auto gauge = [&](std::string_view name, std::string_view help,
                             observability::Labels labels, std::uint64_t value) {
        samples.Gauge(name, help, std::move(labels), static_cast<double>(value));
      };
      constexpr std::string_view kBlocks = "Resident blocks by tier; 0 while unsynchronized.";
      gauge("xms_kv_stream_blocks", kBlocks, StreamLabels(key, "tier", "device"),
            status.device_blocks);
      gauge("xms_kv_stream_blocks", kBlocks, StreamLabels(key, "tier", "host"), status.host_blocks);
      gauge("xms_kv_stream_opaque_blocks",
            "Blocks that are known without credit; 0 while unsynchronized.", StreamLabels(key),
            status.opaque_mappings);
      gauge("xms_kv_stream_synchronized", "1 while the stream is credited.", StreamLabels(key),
            status.synchronized ? 1 : 0);
    }
  }

  void Start() {
    if (thread.joinable() || !config.enabled()) return;
    shared.zmq_context = zmq_ctx_new();
    zmq_ctx_set(shared.zmq_context, ZMQ_IO_THREADS, kIoThreads);
    zmq_ctx_set(shared.zmq_context, ZMQ_MAX_SOCKETS, kMaxSockets);
    {
      base::MutexLock lock(mu);
      stopping = false;
      planned = false;
    }
    thread = std::jthread([this] {
      base::NameThisThread("xms-plan");
      Refresh();
    });
  }

  void Stop() {
    if (!thread.joinable()) return;
    {
      base::MutexLock lock(mu);
      stopping = true;
      changed.NotifyAll();
    }
    thread.join();
    thread = {};
    Streams ending;
    {
      base::MutexLock lock(mu);
      ending.swap(streams);
      excluded.clear();
      wanted = 0;
    }
    for (auto& [key, stream] : ending) leaving.push_back(std::move(stream));
    for (const auto& stream : leaving) stream->RequestStop();
    leaving.clear();
    planned_gauge.Set(0);
    excluded_gauge.Set(0);
    zmq_ctx_term(shared.zmq_context);
    shared.zmq_context = nullptr;
  }

  // The refresh thread.
  void Refresh() {
    for (;;) {
      const bool waiting = PlanOnce();
      milliseconds pause = config.discovery ? config.discovery->refresh_interval : kStaticRefresh;
      if (waiting) pause = leaving.empty() ? kSlotRetry : kEndingRetry;
      base::MutexLock lock(mu);
      const auto until = std::chrono::steady_clock::now() + pause;
      while (!stopping && !refresh_soon) {
        const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
        if (left.count() <= 0) break;
        changed.WaitFor(mu, left);
      }
      refresh_soon = false;
      if (stopping) return;
    }
  }

  // True: some stream could not be opened yet. Never waits for one that ends.
  bool PlanOnce() {
    StreamPlan plan;
    if (config.discovery) {
      plan = PlanStreams(*config.discovery, config.limits, source->Instances());
    } else {
      plan.streams = config.streams;
    }
    NoteExcluded(plan.excluded);
    std::map<model::StreamKey, const StreamSpec*> specs;
    for (const StreamSpec& spec : plan.streams) specs.emplace(spec.key, &spec);
    planned_gauge.Set(static_cast<double>(specs.size()));

    Streams ending;
    std::vector<const StreamSpec*> missing;
    {
      base::MutexLock lock(mu);
      for (auto it = streams.begin(); it != streams.end();) {
        const auto spec = specs.find(it->first);
        if (spec != specs.end() && SameStream(it->second->spec(), *spec->second)) {
          specs.erase(spec);
          ++it;
        } else {
          ending.insert(streams.extract(it++));
        }
      }
      for (const auto& [key, spec] : specs) missing.push_back(spec);
      wanted = streams.size() + missing.size();
      planned = true;
    }
    for (const auto& [key, stream] : ending) {
      base::LogInfo(StrCat("kv stream ", NameOf(key), ": ",
                           specs.contains(key) ? "replaced, its process or address has changed"
                                               : "ended, its instance is gone or not subscribed"));
    }
    for (auto& [key, stream] : ending) {
      stream->RequestStop();
      leaving.push_back(std::move(stream));
    }
    std::erase_if(leaving, [](const auto& stream) { return stream->ended(); });
    bool waiting = false;
    for (const StreamSpec* spec : missing) {
      // What a stream believed ends with it: its successor under the same name begins with nothing.
      const bool named = std::any_of(leaving.begin(), leaving.end(), [&](const auto& stream) {
        return stream->spec().key == spec->key;
      });
      waiting = named || !Open(*spec) || waiting;
    }
    return waiting;
  }

  // False: no slot is free yet.
  bool Open(const StreamSpec& spec) {
    auto ledger = index.OpenStream({.key = spec.key,
                                    .hash_seed = spec.hash_seed,
                                    .block_size = spec.block_size,
                                    .identity = spec.identity},
                                   "starting");
    const auto wakeup = ledger.ok() ? Wakeup::Make() : nullptr;
    if (wakeup == nullptr) {
      slot_waits.Increment();
      return false;
    }
    base::LogInfo(StrCat("kv stream ", NameOf(spec.key), ": subscribing to ", spec.endpoint,
                         ", snapshots from ", spec.replay_endpoint));
    auto stream =
        std::make_unique<StreamThread>(spec, *std::move(ledger), wakeup, shared, random());
    base::MutexLock lock(mu);
    streams.emplace(spec.key, std::move(stream));
    return true;
  }

  void NoteExcluded(const std::vector<Excluded>& now) {
    std::vector<Excluded> before;
    {
      base::MutexLock lock(mu);
      before = std::exchange(excluded, now);
    }
    excluded_gauge.Set(static_cast<double>(now.size()));
    for (const Excluded& one : now) {
      if (std::find(before.begin(), before.end(), one) != before.end()) continue;
      base::LogError(StrCat("kv streams of ", one.instance_name, " left out: ", one.reason));
    }
  }

  const DirectoryConfig config;
  kv_index::KvIndex& index;
  const InstanceSource* const source;
  const observability::Gauge planned_gauge;
  const observability::Gauge excluded_gauge;
  const observability::Counter slot_waits;
  std::random_device random;  // seeds only: the owner's before Start, then the refresh thread's
  SnapshotGate gate;
  Resolver resolver;
  StreamThread::Shared shared;

  mutable base::Mutex mu;
  base::CondVar changed;
  bool stopping XMS_GUARDED_BY(mu) = false;
  bool refresh_soon XMS_GUARDED_BY(mu) = false;
  bool planned XMS_GUARDED_BY(mu) = false;
  std::size_t wanted XMS_GUARDED_BY(mu) = 0;
  std::vector<Excluded> excluded XMS_GUARDED_BY(mu);
  // Changed by the refresh thread, and by Stop once that has ended.
  Streams streams XMS_GUARDED_BY(mu);

  // Streams that were told to stop and may still be clearing their bits. The refresh thread's, and
  // Stop's once that has ended.
  std::vector<std::unique_ptr<StreamThread>> leaving;

  // What outlives the directory in the registry.
  struct Reader {
    base::Mutex mu;
    Impl* directory XMS_GUARDED_BY(mu) = nullptr;
  };
  const std::shared_ptr<Reader> reader;

  std::jthread thread;  // the refresh thread
};

Directory::Directory(DirectoryConfig config, kv_index::KvIndex& index, const base::Clock& clock,
                     const InstanceSource* source, observability::MetricRegistry& metrics)
    : impl_(std::make_unique<Impl>(std::move(config), index, clock, source, metrics)) {}

Directory::~Directory() { Stop(); }

void Directory::Start() { impl_->Start(); }

void Directory::Stop() { impl_->Stop(); }

void Directory::RefreshSoon() {
  base::MutexLock lock(impl_->mu);
  impl_->refresh_soon = true;
  impl_->changed.NotifyAll();
}

std::vector<Excluded> Directory::CurrentlyExcluded() const {
  base::MutexLock lock(impl_->mu);
  return impl_->excluded;
}

bool Directory::Settled() const {
  if (!impl_->config.enabled()) return true;
  base::MutexLock lock(impl_->mu);
  return impl_->planned && impl_->streams.size() == impl_->wanted &&
         std::all_of(impl_->streams.begin(), impl_->streams.end(),
                     [](const auto& entry) { return entry.second->synchronized(); });
}

}  // namespace xms::kv_directory
