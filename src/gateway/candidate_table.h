// CandidateTable: every registered instance as routing sees it, with what the directory holds of
// the prompt.
//
// Place       Between instances' view, kv_index and routing: the one place where the three meet.
// Threads     Confined to its thread; one per event loop, reused from request to request.
// Ownership   Build keeps the view and the slot table alive until the next Build; names and spans of
//             the candidates point into them and into this table.
// Rules       Credit only for the very process that is registered now (G6), only when each of its
//             ranks is subscribed and synchronized (G5), only for a stream life that the slot table
//             showed before the match. Otherwise a NoCredit reason, the first that applies.
// Cost        No allocation once the buffers have grown; one match a request, and only when asked
//             for. Which streams belong to which instance is found out once for each pair of view
//             and slot table.
// Proof       GatewayCandidateTable*.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "instances/instance_view.h"
#include "kv_index/kv_index.h"
#include "routing/policy.h"

namespace xms::gateway {

// The prompt as far as routing is concerned.
struct Prompt {
  bool tokenized = false;
  std::span<const std::uint32_t> tokens;
};

// Instances that are not to be chosen, by name.
struct Avoid {
  std::span<const std::string> tried;   // by this request: "unreachable"
  std::span<const std::string> paused;  // after others' attempts: "recently unreachable"
};

class CandidateTable {
 public:
  // `index` may be null: the directory is off. `wants_hits` false: nothing is matched, and only the
  // prompt's own reasons are given. Instances named in `avoid` are not schedulable.
  void Build(std::shared_ptr<const instances::InstanceView> view, const kv_index::KvIndex* index,
             bool wants_hits, const Prompt& prompt, const Avoid& avoid);
  void Clear();

  std::span<const routing::Candidate> candidates() const { return candidates_; }
  // As it was registered when the table was built.
  std::shared_ptr<const instances::Instance> instance(std::size_t candidate) const {
    return view_->instances[candidate];
  }
  // Why the candidate is not schedulable; "" when it is.
  std::string_view WhyNot(std::size_t candidate) const { return why_not_[candidate]; }
  // Somebody is left out for having been unreachable to others, and for nothing else.
  bool AnyPauses() const;
  // Tokens of the prompt that every rank of the candidate holds, in either tier.
  std::uint32_t PrefixTokens(std::size_t candidate) const;

 private:
  using Slots = std::span<const kv_index::KvIndex::SlotEntry>;

  // An instance's streams, one for each of its ranks, or why it has no credit whatever it holds.
  struct Streams {
    routing::NoCredit no_credit = routing::NoCredit::kNoStream;
    Slots ranks;
    std::uint32_t shortest_block = UINT32_MAX;
  };

  // Fills streams_ from view_ and slots_.
  void Join();
  static Streams StreamsOf(const model::InstanceRecord& record, Slots slots);
  // `place`: in the view.
  void AddCandidate(std::size_t place, const Prompt& prompt, bool wants_hits, const Avoid& avoid);
  routing::NoCredit Credit(const Streams& streams, const Prompt& prompt,
                           std::span<const routing::RankHit>& ranks);

  std::shared_ptr<const instances::InstanceView> view_;
  std::shared_ptr<const kv_index::KvIndex::SlotTable> slots_;
  std::vector<Streams> streams_;  // one for each instance of the view; points into slots_
  kv_index::MatchResult match_;
  std::vector<routing::Candidate> candidates_;
  std::vector<std::string_view> why_not_;  // one for each candidate
  // A slot belongs to one rank of one instance, so there are never more hits than slots, and spans
  // into the array stay valid while it fills.
  routing::RankHit hits_[kv_index::kMaxSlots];
  std::size_t hit_count_ = 0;
};

}  // namespace xms::gateway
