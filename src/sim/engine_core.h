// EngineCore: one simulated engine without its sockets: ranks, limits, load.
//
// Place       Engine drives it from its event loop; tests drive it by hand.
// Threads     Externally synchronised.
// Ranks       A request goes to the rank with the most room, counting what its queue will take;
//             equal ones take turns. Ranks step independently. Nobody outside chooses a rank.
// Load        waiting: requests not yet admitted. cache usage: mean over ranks of the share of
//             Device blocks in use, as xLLM reports it; cached blocks that nobody uses count as
//             free.
// Failure     Submit: kInvalidArgument when the prompt cannot fit at all, kResourceExhausted over
//             max_concurrent_requests. An answer that would not fit is shortened.
// Proof       SimEngineCore*.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kv_events/kv_batch.h"
#include "sim/rank_scheduler.h"

namespace xms::sim {

struct EngineCoreOptions {
  std::uint32_t dp_size = 1;
  SchedulerOptions scheduler;  // of each rank; the ranks' hashes differ
  std::uint32_t max_concurrent_requests = 200;
};

class EngineSink {
 public:
  virtual ~EngineSink() = default;
  virtual void OnToken(const TokenOutput& output) = 0;
  virtual void OnEvents(std::uint32_t rank, kv_events::KvBatch batch) = 0;
};

// Since the core was made.
struct EngineTotals {
  std::uint64_t submitted = 0;
  std::uint64_t completed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t rejected = 0;
  std::uint64_t prompt_tokens = 0;  // of completed ones, like the two below
  std::uint64_t cached_tokens = 0;
  std::uint64_t generated_tokens = 0;
};

class EngineCore {
 public:
  // Borrows the sink, which must not call back.
  EngineCore(const EngineCoreOptions& options, EngineSink& sink);
  ~EngineCore();
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  base::Status Submit(SimTime now, GenerationRequest request);
  void Cancel(SimTime now, RequestId id);
  void Advance(SimTime now);
  std::optional<SimTime> NextEvent() const;

  std::uint32_t dp_size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  const RankScheduler& rank(std::uint32_t index) const;
  // Events not yet delivered go to the sink first, so that the snapshot stands right behind them.
  kv_events::KvBatch Snapshot(std::uint32_t rank);

  std::size_t waiting() const;
  std::size_t running() const;
  double cache_usage() const;
  const EngineTotals& totals() const { return totals_; }

 private:
  struct Rank;
  struct Request {
    std::uint32_t rank = 0;
    std::uint32_t prompt_tokens = 0;
  };

  std::uint32_t ChooseRank();
  void OnToken(const TokenOutput& output);

  EngineCoreOptions options_;
  EngineSink& sink_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unordered_map<RequestId, Request> requests_;
  std::uint32_t turn_ = 0;
  EngineTotals totals_;
};

}  // namespace xms::sim
