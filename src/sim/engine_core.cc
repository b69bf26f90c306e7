#include "sim/engine_core.h"

#include <algorithm>
#include <utility>

#include "base/str_cat.h"

namespace xms::sim {

struct EngineCore::Rank final : RankSink {
  Rank(EngineCore& core, std::uint32_t rank_index, const SchedulerOptions& options)
      : owner(core), index(rank_index), scheduler(options, *this) {}

  void OnToken(const TokenOutput& output) override { owner.OnToken(output); }
  void OnEvents(kv_events::KvBatch batch) override {
    owner.sink_.OnEvents(index, std::move(batch));
  }

  EngineCore& owner;
  std::uint32_t index;
  RankScheduler scheduler;
};

EngineCore::EngineCore(const EngineCoreOptions& options, EngineSink& sink)
    : options_(options), sink_(sink) {
  for (std::uint32_t rank = 0; rank < options.dp_size; ++rank) {
    SchedulerOptions of_rank = options.scheduler;
    of_rank.blocks.hash_seed += rank;
    ranks_.push_back(std::make_unique<Rank>(*this, rank, of_rank));
  }
}

EngineCore::~EngineCore() = default;

std::uint32_t EngineCore::ChooseRank() {
  std::uint32_t best = 0;
  std::int64_t best_room = 0;
  for (std::uint32_t i = 0; i < dp_size(); ++i) {
    const std::uint32_t candidate = (turn_ + i) % dp_size();
    const RankScheduler& scheduler = ranks_[candidate]->scheduler;
    const std::int64_t room = static_cast<std::int64_t>(scheduler.blocks().available()) -
                              static_cast<std::int64_t>(scheduler.blocks_wanted());
    if (i == 0 || room > best_room) {
      best = candidate;
      best_room = room;
    }
  }
  turn_ = (turn_ + 1) % dp_size();
  return best;
}

base::Status EngineCore::Submit(SimTime now, GenerationRequest request) {
  Advance(now);
  const BlockManagerOptions& blocks = options_.scheduler.blocks;
  const std::uint64_t room = std::uint64_t{blocks.device_blocks} * blocks.block_size;
  if (request.prompt.size() >= room) {
    ++totals_.rejected;
    return base::Error{base::ErrorCode::kInvalidArgument,
                       base::StrCat("the prompt has ", request.prompt.size(),
                                    " tokens; prompt and answer together must fit ", room)};
  }
  if (requests_.size() >= options_.max_concurrent_requests) {
    ++totals_.rejected;
    return base::Error{
        base::ErrorCode::kResourceExhausted,
        base::StrCat(options_.max_concurrent_requests, " requests are being served already")};
  }
  request.max_tokens = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(request.max_tokens, room - request.prompt.size()));
  const std::uint32_t rank = ChooseRank();
  ++totals_.submitted;
  requests_.emplace(request.id, Request{rank, static_cast<std::uint32_t>(request.prompt.size())});
  ranks_[rank]->scheduler.Submit(now, std::move(request));
  return base::Ok();
}

void EngineCore::Cancel(SimTime now, RequestId id) {
  Advance(now);
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  ranks_[found->second.rank]->scheduler.Cancel(now, id);
  requests_.erase(id);
  ++totals_.cancelled;
}

void EngineCore::OnToken(const TokenOutput& output) {
  if (output.last) {
    const auto found = requests_.find(output.id);
    ++totals_.completed;
    totals_.prompt_tokens += found->second.prompt_tokens;
    totals_.cached_tokens += output.cached_tokens;
    totals_.generated_tokens += output.index + 1;
    requests_.erase(found);
  }
  sink_.OnToken(output);
}

void EngineCore::Advance(SimTime now) {
  for (const auto& rank : ranks_) rank->scheduler.Advance(now);
}

std::optional<SimTime> EngineCore::NextEvent() const {
  std::optional<SimTime> next;
  for (const auto& rank : ranks_) {
    const auto of_rank = rank->scheduler.NextEvent();
    if (of_rank && (!next || *of_rank < *next)) next = of_rank;
  }
  return next;
}

const RankScheduler& EngineCore::rank(std::uint32_t index) const {
  return ranks_[index]->scheduler;
}

kv_events::KvBatch EngineCore::Snapshot(std::uint32_t rank) {
  ranks_[rank]->scheduler.FlushEvents();
  return ranks_[rank]->scheduler.blocks().Snapshot();
}

std::size_t EngineCore::waiting() const {
  std::size_t sum = 0;
  for (const auto& rank : ranks_) sum += rank->scheduler.waiting();
  return sum;
}

std::size_t EngineCore::running() const {
  std::size_t sum = 0;
  for (const auto& rank : ranks_) sum += rank->scheduler.running();
  return sum;
}

double EngineCore::cache_usage() const {
  double sum = 0;
  for (const auto& rank : ranks_) {
    const BlockManager& blocks = rank->scheduler.blocks();
    sum += static_cast<double>(blocks.in_use()) / blocks.options().device_blocks;
  }
  return sum / static_cast<double>(ranks_.size());
}

}  // namespace xms::sim
