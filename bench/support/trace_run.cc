#include "bench/support/trace_run.h"

#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace xms::bench {

using kv_index::KvIndex;
using kv_index::MatchResult;
using kv_index::StreamLedger;
using model::Tier;

void StoreRoot(const Streams& streams, const TraceLoad& load) {
  for (std::uint32_t w = 0; w < load.workers; ++w) {
    streams[w].Store(Tier::kDevice, std::span(&load.root_hash, 1), {}, load.root_tokens,
                     StreamLedger::Orphans::kRefuse);
  }
}

void Apply(const Streams& streams, const TraceOp& op) {
  StreamLedger& ledger = streams[op.worker];
  if (!op.evicted.empty()) ledger.Remove(Tier::kDevice, op.evicted);
  if (op.held == op.hashes.size()) return;
  const auto parent =
      op.held == 0 ? std::nullopt : std::optional<model::WireHash>(op.hashes[op.held - 1]);
  ledger.Store(Tier::kDevice, std::span(op.hashes).subspan(op.held), parent,
               std::span(op.tokens).subspan(op.tokens.size() / op.hashes.size() * op.held),
               StreamLedger::Orphans::kRefuse);
}

void Match(const KvIndex& index, const TraceLoad& load, const TraceOp& op, MatchResult& out) {
  index.MatchKeys(kHashSeed, load.block_size, op.keys, out);
}

void RequireLengths(const Streams& streams, const TraceLoad& load, const Lengths& lengths,
                    const MatchResult& result) {
  bool right = true;
  for (std::size_t w = 0; w < lengths.size(); ++w) {
    right =
        right && result.slots[streams.slots[w]].device_hit_tokens == lengths[w] * load.block_size;
  }
  Require(right, "a look-up of the trace");
}

void RequireEndState(const KvIndex& index, const Streams& streams, const TraceLoad& load) {
  MatchResult result;
  for (const TraceLoad::Final& final : load.finals) {
    Match(index, load, load.ops[final.op], result);
    RequireLengths(streams, load, final.lengths, result);
  }
}

void TimeLookUps(const KvIndex& index, const Streams& streams, const TraceLoad& load,
                 Latency& latency) {
  MatchResult result;
  for (std::size_t i = 0; i < load.ops.size(); i += kGroup) {
    const std::size_t end = std::min(i + kGroup, load.ops.size());
    for (std::size_t k = i; k < end; ++k) {
      const auto begin = Clock::now();
      Match(index, load, load.ops[k], result);
      latency.Add(Clock::now() - begin);
      RequireLengths(streams, load, load.ops[k].group_lengths, result);
    }
    for (std::size_t k = i; k < end; ++k) Apply(streams, load.ops[k]);
  }
}

Churn::Churn(const KvIndex& index, const Streams& streams, const TraceLoad& load)
    : index_(index), streams_(streams), load_(load), thread_([this] { Run(); }) {}

void Churn::Stop() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

void Churn::Run() {
  Pin(1);
  const std::size_t others = streams_.size() - load_.workers;
  std::mt19937_64 random(3);
  std::vector<const TraceOp*> held(others * 8, nullptr);
  const auto start = Clock::now();
  const TraceOp* last = nullptr;
  std::size_t place = 0;
  for (std::uint64_t round = 0; !stop_.load(std::memory_order_relaxed) || last == nullptr;
       ++round) {
    place = round % held.size();
    StreamLedger& ledger = streams_[load_.workers + place % others];
    if (held[place] != nullptr) {
      ledger.Remove(Tier::kDevice, held[place]->hashes);
      blocks_ += static_cast<double>(held[place]->hashes.size());
    }
    last = held[place] = &load_.ops[random() % load_.ops.size()];
    ledger.Store(Tier::kDevice, last->hashes, {}, last->tokens, StreamLedger::Orphans::kRefuse);
    ledger.Advance({round});
    blocks_ += static_cast<double>(last->hashes.size());
  }
  seconds_ = Nanoseconds(Clock::now() - start) / 1e9;
  MatchResult result;
  Match(index_, load_, *last, result);
  Require(result.slots[streams_.slots[load_.workers + place % others]].device_hit_tokens ==
              last->tokens.size(),
          "what the other thread stored");
}

}  // namespace xms::bench
