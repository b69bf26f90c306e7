// Plays a TraceLoad into an index, and compares its answers.
//
// Threads     A ledger belongs to whoever applies its events; reading is free.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "bench/support/measure.h"
#include "bench/support/streams.h"
#include "bench/support/trace_load.h"
#include "kv_index/kv_index.h"

namespace xms::bench {

// The block that every worker holds, on the first load.workers streams.
void StoreRoot(const Streams& streams, const TraceLoad& load);
void Apply(const Streams& streams, const TraceOp& op);
void Match(const kv_index::KvIndex& index, const TraceLoad& load, const TraceOp& op,
           kv_index::MatchResult& out);

void RequireLengths(const Streams& streams, const TraceLoad& load, const Lengths& lengths,
                    const kv_index::MatchResult& result);
void RequireEndState(const kv_index::KvIndex& index, const Streams& streams, const TraceLoad& load);

// The whole load, look-ups timed one by one in groups of kGroup, whose events follow. Every answer is
// compared with the exact one, beside the clock.
void TimeLookUps(const kv_index::KvIndex& index, const Streams& streams, const TraceLoad& load,
                 Latency& latency);

// A thread that stores and removes chains of the load on other streams, as fast as it can.
class Churn {
 public:
  Churn(const kv_index::KvIndex& index, const Streams& streams, const TraceLoad& load);
  ~Churn() { Stop(); }
  Churn(const Churn&) = delete;
  Churn& operator=(const Churn&) = delete;
  // Requires that the last store is visible. May be called twice.
  void Stop();
  double millions_a_second() const { return blocks_ / seconds_ / 1e6; }  // after Stop

 private:
  void Run();

  const kv_index::KvIndex& index_;
  const Streams& streams_;
  const TraceLoad& load_;
  std::atomic<bool> stop_{false};
  double blocks_ = 0;
  double seconds_ = 1;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace xms::bench
