// A table of candidates for tests: owns what Candidate only points at.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "routing/policy.h"

namespace xms::routing {

struct Hit {
  std::uint32_t device = 0;
  std::uint32_t host_only = 0;
};

class Fleet {
 public:
  // Schedulable, idle and without hits until told otherwise.
  Candidate& Add(std::string name, model::Role role = model::Role::kDefault) {
    Candidate candidate;
    candidate.name = names_.emplace_back(std::move(name));
    candidate.role = role;
    candidate.schedulable = true;
    candidate.has_load = true;
    if (role == model::Role::kDecode) {
      candidate.no_credit = NoCredit::kDecodeRole;
    } else {
      candidate.ranks = ranks_.emplace_back(1);
    }
    candidates_.push_back(candidate);
    return candidates_.back();
  }
  Candidate& Add(std::string name, double waiting, const std::vector<Hit>& hits = {Hit{}}) {
    Candidate& candidate = Add(std::move(name));
    candidate.load.waiting_requests_num = waiting;
    Hits(candidate, hits);
    return candidate;
  }
  // One entry per rank.
  void Hits(Candidate& candidate, const std::vector<Hit>& hits) {
    std::vector<RankHit>& ranks = ranks_.emplace_back();
    for (std::size_t rank = 0; rank < hits.size(); ++rank) {
      ranks.push_back({static_cast<std::int32_t>(rank), hits[rank].device, hits[rank].host_only});
    }
    candidate.ranks = ranks;
  }

  Candidate& operator[](std::size_t index) { return candidates_[index]; }
  std::size_t size() const { return candidates_.size(); }
  RouteInput Input(std::uint32_t input_tokens) const { return {candidates_, input_tokens}; }

  std::string Name(int index) const {
    return index < 0 ? "" : std::string(candidates_[static_cast<std::size_t>(index)].name);
  }

 private:
  std::deque<std::string> names_;
  std::deque<std::vector<RankHit>> ranks_;
  std::vector<Candidate> candidates_;
};

}  // namespace xms::routing
