// RankScheduler: what one rank computes when: queue, continuous batching, blocks, copies to Host.
//
// Place       EngineCore owns one per rank. Knows no socket and no clock: simulated time comes with
//             each call.
// Threads     Externally synchronised.
// Steps       The rank works in steps. A step computes one token for every running sequence and,
//             with what is left of max_tokens_per_batch, prompts: those under way first, then
//             waiting ones in order of arrival (chunked prefill). A waiting request is admitted
//             when there are blocks for its whole prompt. When a running sequence needs a block and
//             there is none, the youngest one goes back to the head of the queue and computes again
//             later what it lost.
// Time        Advance(now) plays everything that ended up to `now` at the time at which it ended,
//             so a late call loses nothing. Calls must not go back in time.
// Outputs     The sink is called from Submit, Cancel, Advance and FlushEvents; it must not call
//             back. Events come in one batch per step or finished group of copies, in order.
// Invariants  R1  a request gets tokens 0 … n−1 in order, the last marked, and nothing after
//             Cancel.
//             R2  with nothing running and nothing waiting no block is held, except by copies.
// Proof       SimRankScheduler*.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "kv_events/kv_batch.h"
#include "sim/block_manager.h"
#include "sim/time_model.h"

namespace xms::sim {

using RequestId = std::uint64_t;

struct GenerationRequest {
  RequestId id = 0;                   // unique among those not yet ended
  std::vector<std::uint32_t> prompt;  // at least one token
  std::uint32_t max_tokens = 1;       // at least one; prompt and answer fit the rank's blocks
};

struct TokenOutput {
  RequestId id = 0;
  std::uint32_t index = 0;
  std::uint32_t token = 0;
  bool last = false;
  std::uint32_t cached_tokens = 0;  // of the prompt, when it was first admitted
};

struct SchedulerOptions {
  BlockManagerOptions blocks;
  std::uint32_t max_tokens_per_batch = 10240;
  std::uint32_t max_seqs_per_batch = 1024;
};

class RankSink {
 public:
  virtual ~RankSink() = default;
  virtual void OnToken(const TokenOutput& output) = 0;
  // Timestamp and rank are left at zero.
  virtual void OnEvents(kv_events::KvBatch batch) = 0;
};

class RankScheduler {
 public:
  // Borrows the sink.
  RankScheduler(const SchedulerOptions& options, RankSink& sink);

  void Submit(SimTime now, GenerationRequest request);
  // Frees what the request holds at once. Unknown or ended ones are ignored.
  void Cancel(SimTime now, RequestId id);
  void Advance(SimTime now);
  // When Advance has something to do next; nothing while idle.
  std::optional<SimTime> NextEvent() const;

  // Hands what is recorded but not yet delivered to the sink: a snapshot taken now then agrees with
  // the events delivered before it.
  void FlushEvents();

  const BlockManager& blocks() const { return blocks_; }
  std::size_t waiting() const { return waiting_.size(); }
  std::size_t running() const { return running_.size(); }
  // Blocks that the waiting requests will ask for.
  std::uint64_t blocks_wanted() const { return blocks_wanted_; }

 private:
  struct Sequence {
    RequestId id = 0;
    HoldId hold = 0;
    std::vector<std::uint32_t> tokens;  // prompt, then answer
    std::uint32_t prompt_tokens = 0;
    std::uint32_t max_tokens = 0;
    std::uint64_t digest = 0;
    std::uint32_t computed = 0;  // tokens whose KV is there
    std::uint32_t to_load = 0;   // of these, still on Host only
    std::uint32_t in_step = 0;   // tokens that the step under way computes
    std::optional<std::uint32_t> cached_tokens;
    std::uint32_t generated() const {
      return static_cast<std::uint32_t>(tokens.size()) - prompt_tokens;
    }
    std::uint32_t remaining() const { return static_cast<std::uint32_t>(tokens.size()) - computed; }
  };

  std::uint64_t BlocksOf(const Sequence& sequence) const;
  void Wait(std::unique_ptr<Sequence> sequence, bool first);
  std::unique_ptr<Sequence> NextWaiting();
  // Gives the youngest sequence's blocks back and queues it again.
  void Preempt();
  void AddToStep(Sequence& sequence, std::uint32_t tokens, StepWork& work);
  void StartStep(SimTime now);
  void FinishStep();
  void StartCopies(SimTime now);

  SchedulerOptions options_;
  RankSink& sink_;
  BlockManager blocks_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in order of admission
  std::uint64_t blocks_wanted_ = 0;
  HoldId next_hold_ = 1;
  std::optional<SimTime> step_end_;
  std::optional<SimTime> copies_end_;
};

}  // namespace xms::sim
