// StreamThread: the thread of one stream, with its sockets, its state machine and its ledger.
//
// Place       Made by Directory for each planned stream. The only place where sockets, time and
//             StreamMachine meet.
// Threads     Construction, RequestStop and destruction: the owner's. synchronized, proven_at and
//             metrics: any. Everything else happens on the thread that it owns.
// Ownership   Owns ledger and thread; borrows what is in Shared, which must outlive it. The
//             destructor ends the stream: it joins, and by then the ledger is gone.
// Failure     None outwardly: the ledger's error says what is wrong.
// Cost        A stop is noticed at once, unless one batch is being applied; the credit goes with it,
//             and clearing the ledger's bits comes after (kv_index).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "kv_directory/config.h"
#include "kv_directory/recovery/stream_metrics.h"
#include "kv_directory/streams/resolver.h"
#include "kv_directory/streams/snapshot_gate.h"
#include "kv_directory/streams/wakeup.h"
#include "kv_index/stream_ledger.h"
#include "observability/metrics.h"

namespace xms::kv_directory {

class StreamThread {
 public:
  // What all streams of a directory use together.
  struct Shared {
    void* zmq_context = nullptr;
    const Limits& limits;
    const base::Clock& clock;
    SnapshotGate& gate;
    Resolver& resolver;
    observability::Histogram recovery_seconds;
    observability::Gauge synchronized;  // streams
  };

  StreamThread(StreamSpec spec, std::unique_ptr<kv_index::StreamLedger> ledger,
               std::shared_ptr<Wakeup> wakeup, const Shared& shared, std::uint64_t seed);
  ~StreamThread();
  StreamThread(const StreamThread&) = delete;
  StreamThread& operator=(const StreamThread&) = delete;

  const StreamSpec& spec() const { return spec_; }
  bool synchronized() const { return synchronized_.load(std::memory_order_relaxed); }
  // When a snapshot last agreed with what is credited, or became it; means nothing before the first
  // synchrony.
  base::SteadyTime proven_at() const { return proven_at_.load(std::memory_order_relaxed); }
  // What the stream counts; may outlive it.
  std::shared_ptr<const StreamMetrics> metrics() const { return metrics_; }
  // Returns at once; the destructor waits.
  void RequestStop();
  // After RequestStop: the ledger is gone, and the destructor has nothing to wait for.
  bool ended() const { return ended_.load(std::memory_order_acquire); }

 private:
  class Loop;

  void Run(const std::stop_token& stop);

  const StreamSpec spec_;
  const Shared& shared_;
  const std::shared_ptr<Wakeup> wakeup_;
  const std::uint64_t seed_;
  const std::shared_ptr<StreamMetrics> metrics_;
  std::unique_ptr<kv_index::StreamLedger> ledger_;  // the thread's
  std::atomic<bool> synchronized_{false};
  std::atomic<bool> ended_{false};
  std::atomic<base::SteadyTime> proven_at_{};
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace xms::kv_directory
