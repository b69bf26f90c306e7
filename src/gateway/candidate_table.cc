#include "gateway/candidate_table.h"

#include <algorithm>
#include <utility>

namespace xms::gateway {

using routing::NoCredit;

namespace {

constexpr std::string_view kPauses = "recently unreachable";

}  // namespace

void CandidateTable::Build(std::shared_ptr<const instances::InstanceView> view,
                           const kv_index::KvIndex* index, bool wants_hits, const Prompt& prompt,
                           const Avoid& avoid) {
  Clear();
  const bool matched = wants_hits && index != nullptr && !prompt.tokens.empty();
  // The slots before the match, so that one given to another stream in between shows. Without a
  // match nobody asks for them.
  auto slots = matched ? index->Slots() : slots_;
  if (matched && !slots->entries.empty()) index->Match(prompt.tokens, match_);
  if (view != view_ || slots != slots_) {
    view_ = std::move(view);
    slots_ = std::move(slots);
    Join();
  }
  candidates_.reserve(view_->instances.size());
  for (std::size_t i = 0; i < view_->instances.size(); ++i) {
    AddCandidate(i, prompt, wants_hits, avoid);
    if (wants_hits && index == nullptr && candidates_.back().no_credit == NoCredit::kNoStream) {
      candidates_.back().no_credit = NoCredit::kDirectoryOff;
    }
  }
}

void CandidateTable::Clear() {
  candidates_.clear();
  why_not_.clear();
  hit_count_ = 0;
}

void CandidateTable::Join() {
  streams_.clear();
  // Both are sorted by the bytes of names.
  Slots left = slots_ == nullptr ? Slots() : Slots(slots_->entries);
  for (const auto& instance : view_->instances) {
    const model::InstanceId& id = instance->record.id;
    while (!left.empty() && left.front().info->key.instance < id) left = left.subspan(1);
    std::size_t count = 0;
    while (count < left.size() && left[count].info->key.instance == id) ++count;
    streams_.push_back(StreamsOf(instance->record, left.first(count)));
    left = left.subspan(count);
  }
}

CandidateTable::Streams CandidateTable::StreamsOf(const model::InstanceRecord& record,
                                                  Slots slots) {
  if (slots.empty()) return {NoCredit::kNoStream, {}};
  // Sorted by rank and without repetition, so the ranks 0 … dp_size − 1 are all there exactly when
  // each sits at its own place.
  const auto wanted = static_cast<std::size_t>(record.dp_size);
  if (slots.size() < wanted) return {NoCredit::kRankMissing, {}};
  for (std::size_t rank = 0; rank < wanted; ++rank) {
    if (slots[rank].info->key.rank.value != static_cast<std::int32_t>(rank)) {
      return {NoCredit::kRankMissing, {}};
    }
  }
  Streams streams{NoCredit::kNone, slots.first(wanted)};
  for (const auto& slot : streams.ranks) {
    const model::ProcessIdentity& indexed = slot.info->identity;
    if (!record.identity.known() || !indexed.known()) return {NoCredit::kIdentityUnknown, {}};
    if (!record.identity.SameProcess(indexed)) return {NoCredit::kIdentityChanged, {}};
    streams.shortest_block = std::min(streams.shortest_block, slot.info->block_size);
  }
  return streams;
}

bool CandidateTable::AnyPauses() const {
  return std::find(why_not_.begin(), why_not_.end(), kPauses) != why_not_.end();
}

std::uint32_t CandidateTable::PrefixTokens(std::size_t candidate) const {
  const auto ranks = candidates_[candidate].ranks;
  if (ranks.empty()) return 0;
  const auto total = [](const routing::RankHit& hit) {
    return hit.device_hit_tokens + hit.host_only_hit_tokens;
  };
  std::uint32_t least = total(ranks.front());
  for (const routing::RankHit& hit : ranks) least = std::min(least, total(hit));
  return least;
}

void CandidateTable::AddCandidate(std::size_t place, const Prompt& prompt, bool wants_hits,
                                  const Avoid& avoid) {
  const instances::Instance& instance = *view_->instances[place];
  routing::Candidate& candidate = candidates_.emplace_back();
  candidate.name = instance.record.id.name;
  candidate.role = instance.current_role;
  candidate.is_mix = instance.record.type == model::Role::kMix;
  const auto is_in = [&candidate](std::span<const std::string> names) {
    return std::find(names.begin(), names.end(), candidate.name) != names.end();
  };
  std::string_view why_not;
  if (is_in(avoid.tried)) {
    why_not = "unreachable";
  } else if (!instance.schedulable) {
    why_not = instance.reason;
  } else if (is_in(avoid.paused)) {
    why_not = kPauses;
  }
  candidate.schedulable = instance.schedulable && why_not.empty();
  why_not_.push_back(why_not);
  candidate.has_load = instance.has_load;
  candidate.load = instance.load.sample;
  if (candidate.role == model::Role::kDecode) {
    candidate.no_credit = NoCredit::kDecodeRole;
  } else if (!prompt.tokenized) {
    candidate.no_credit = NoCredit::kNotTokenized;
  } else if (prompt.tokens.empty()) {
    candidate.no_credit = NoCredit::kEmptyPrompt;
  } else {
    candidate.no_credit =
        wants_hits ? Credit(streams_[place], prompt, candidate.ranks) : NoCredit::kNotAsked;
  }
}

NoCredit CandidateTable::Credit(const Streams& streams, const Prompt& prompt,
                                std::span<const routing::RankHit>& ranks) {
  if (streams.no_credit != NoCredit::kNone) return streams.no_credit;
  const std::size_t first_hit = hit_count_;
  for (const auto& slot : streams.ranks) {
    const kv_index::SlotMatch match =
        slot.slot < match_.slot_count ? match_.slots[slot.slot] : kv_index::SlotMatch{};
    if (!match.synchronized || kv_index::KvIndex::LifeOf(match.generation) != slot.life ||
        hit_count_ == std::size(hits_)) {
      hit_count_ = first_hit;
      return NoCredit::kUnsynchronized;
    }
    const auto rank = static_cast<std::int32_t>(hit_count_ - first_hit);
    hits_[hit_count_++] = {rank, match.device_hit_tokens, match.host_only_hit_tokens};
  }
  if (prompt.tokens.size() < streams.shortest_block) {
    hit_count_ = first_hit;
    return NoCredit::kPromptShorterThanBlock;
  }
  ranks = std::span(hits_ + first_hit, streams.ranks.size());
  return NoCredit::kNone;
}

}  // namespace xms::gateway
