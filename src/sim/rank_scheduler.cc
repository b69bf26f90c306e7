#include "sim/rank_scheduler.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "sim/tokens.h"

namespace xms::sim {
namespace {

// Blocks that one transfer moves together.
constexpr std::uint32_t kCopyGroup = 128;

}  // namespace

RankScheduler::RankScheduler(const SchedulerOptions& options, RankSink& sink)
    : options_(options), sink_(sink), blocks_(options.blocks) {}

std::uint64_t RankScheduler::BlocksOf(const Sequence& sequence) const {
  const std::uint32_t block_size = options_.blocks.block_size;
  return (sequence.tokens.size() + block_size - 1) / block_size;
}

void RankScheduler::Wait(std::unique_ptr<Sequence> sequence, bool first) {
  blocks_wanted_ += BlocksOf(*sequence);
  waiting_.insert(first ? waiting_.begin() : waiting_.end(), std::move(sequence));
}

std::unique_ptr<RankScheduler::Sequence> RankScheduler::NextWaiting() {
  std::unique_ptr<Sequence> sequence = std::move(waiting_.front());
  waiting_.pop_front();
  blocks_wanted_ -= BlocksOf(*sequence);
  return sequence;
}

void RankScheduler::Submit(SimTime now, GenerationRequest request) {
  XMS_ASSERT(!request.prompt.empty() && request.max_tokens > 0);
  Advance(now);
  auto sequence = std::make_unique<Sequence>();
  sequence->id = request.id;
  sequence->prompt_tokens = static_cast<std::uint32_t>(request.prompt.size());
  sequence->max_tokens = request.max_tokens;
  sequence->digest = PromptDigest(request.prompt);
  sequence->tokens = std::move(request.prompt);
  Wait(std::move(sequence), false);
  if (!step_end_) StartStep(now);
}

void RankScheduler::Cancel(SimTime now, RequestId id) {
  Advance(now);
  const auto is_it = [id](const auto& sequence) { return sequence->id == id; };
  if (const auto found = std::ranges::find_if(waiting_, is_it); found != waiting_.end()) {
    blocks_wanted_ -= BlocksOf(**found);
    waiting_.erase(found);
  } else if (const auto run = std::ranges::find_if(running_, is_it); run != running_.end()) {
    blocks_.Release((*run)->hold);
    running_.erase(run);
    StartCopies(now);
  }
  // The room may be what the head of the queue waits for, when nothing else runs that would let it
  // in.
  if (!step_end_) StartStep(now);
}

void RankScheduler::Preempt() {
  std::unique_ptr<Sequence> youngest = std::move(running_.back());
  running_.pop_back();
  blocks_.Release(youngest->hold);
  youngest->computed = 0;
  youngest->to_load = 0;
  youngest->in_step = 0;
  Wait(std::move(youngest), true);
}

void RankScheduler::AddToStep(Sequence& sequence, std::uint32_t tokens, StepWork& work) {
  sequence.in_step = tokens;
  work.host_loaded_tokens += std::exchange(sequence.to_load, 0);
  if (tokens == 1 && sequence.generated() > 0) {
    work.AddDecode(sequence.computed + 1);
  } else {
    work.AddPrefill(tokens, sequence.computed);
  }
}

void RankScheduler::StartStep(SimTime now) {
  StepWork work;
  std::uint32_t budget = options_.max_tokens_per_batch;
  for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
    const auto has_room = [&] {
      return i < running_.size() && blocks_.Grow(running_[i]->hold, running_[i]->tokens.size());
    };
    // Without room it sits this step out while a copy is about to free some; else the youngest
    // goes, in the end this one itself.
    bool fits = has_room();
    while (!fits && i < running_.size() && !copies_end_) {
      Preempt();
      StartCopies(now);
      fits = has_room();
    }
    if (!fits) continue;
    const std::uint32_t tokens = std::min(budget, running_[i]->remaining());
    AddToStep(*running_[i], tokens, work);
    budget -= tokens;
  }
  while (budget > 0 && !waiting_.empty() && running_.size() < options_.max_seqs_per_batch) {
    Sequence& head = *waiting_.front();
    const auto hit = blocks_.Admit(next_hold_, head.tokens);
    if (!hit) break;
    running_.push_back(NextWaiting());
    head.hold = next_hold_++;
    head.computed = hit->blocks() * options_.blocks.block_size;
    head.to_load = hit->host_blocks * options_.blocks.block_size;
    if (!head.cached_tokens) head.cached_tokens = head.computed;
    const std::uint32_t tokens = std::min(budget, head.remaining());
    AddToStep(head, tokens, work);
    budget -= tokens;
  }
  if (budget < options_.max_tokens_per_batch) step_end_ = now + StepTime(work);
}

void RankScheduler::FinishStep() {
  const SimTime now = *std::exchange(step_end_, std::nullopt);
  std::vector<TokenOutput> outputs;
  std::erase_if(running_, [&](std::unique_ptr<Sequence>& sequence) {
    const std::uint32_t tokens = std::exchange(sequence->in_step, 0);
    if (tokens == 0) return false;
    sequence->computed += tokens;
    blocks_.Commit(sequence->hold, std::span(sequence->tokens).first(sequence->computed));
    if (sequence->remaining() > 0) return false;
    const std::uint32_t index = sequence->generated();
    const bool last = index + 1 == sequence->max_tokens;
    const std::uint32_t token = GeneratedToken(sequence->digest, index);
    outputs.push_back({sequence->id, index, token, last, sequence->cached_tokens.value_or(0)});
    sequence->tokens.push_back(token);
    if (last) blocks_.Release(sequence->hold);
    return last;
  });
  // First the events, so that whoever has seen an answer's end can expect its blocks to be
  // announced.
  FlushEvents();
  for (const TokenOutput& output : outputs) sink_.OnToken(output);
  StartCopies(now);
  StartStep(now);
}

void RankScheduler::StartCopies(SimTime now) {
  if (copies_end_) return;
  const std::uint32_t started = blocks_.StartCopies(kCopyGroup);
  if (started > 0) {
    copies_end_ = now + HostCopyTime(std::uint64_t{started} * options_.blocks.block_size);
  }
}

void RankScheduler::Advance(SimTime now) {
  for (auto next = NextEvent(); next && *next <= now; next = NextEvent()) {
    if (copies_end_ == next) {
      copies_end_.reset();
      blocks_.FinishCopies();
      FlushEvents();
      StartCopies(*next);
      // Copied blocks can be evicted: a request that waits for room may fit now.
      if (!step_end_) StartStep(*next);
    } else {
      FinishStep();
    }
  }
}

std::optional<SimTime> RankScheduler::NextEvent() const {
  if (!step_end_) return copies_end_;
  if (!copies_end_) return step_end_;
  return std::min(*step_end_, *copies_end_);
}

void RankScheduler::FlushEvents() {
  if (blocks_.has_events()) sink_.OnEvents(blocks_.TakeEvents());
}

}  // namespace xms::sim
