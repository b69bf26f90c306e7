// CAR: the specification's costs over what is known now (requirements G1 to G7).
#include <algorithm>

#include "routing/internal/choosing.h"
#include "routing/policy.h"

namespace xms::routing {
namespace {

using namespace internal;  // NOLINT(google-build-using-namespace): this file is part of it

// Whether candidates without a load report may take part. Each step is taken only when the one
// before leaves nobody: a cold start serves, a known load is never given up for an unknown one.
enum class Cold : std::uint8_t { kNone, kDecode, kAll };

struct Pool {
  std::size_t primaries = 0;
  bool cold_primaries = false;  // the primaries considered are those without a report
  bool cold_decodes = false;
};

std::string_view Flaw(const Candidate& candidate) {
  if (!candidate.schedulable) return kNotSchedulable;
  if (!candidate.has_load) return kNoLoadReport;
  if (!candidate.load.valid()) return kInvalidLoad;
  return {};
}

// Says for each candidate whether it takes part. Without a D, PREFILL and MIX are out before any
// maximum is taken.
Pool Consider(std::span<const Candidate> candidates, Cold cold, std::vector<Scored>& scored) {
  std::size_t decodes = 0;
  std::size_t decodes_without_report = 0;
  scored.assign(candidates.size(), Scored{});
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    scored[i].left_out = Flaw(candidates[i]);
    if (!Decodes(candidates[i])) continue;
    if (scored[i].left_out.empty()) ++decodes;
    if (scored[i].left_out == kNoLoadReport) ++decodes_without_report;
  }

  Pool pool;
  pool.cold_decodes = cold != Cold::kNone && decodes == 0 && decodes_without_report > 0;
  pool.cold_primaries = cold == Cold::kAll;
  const bool have_decode = decodes > 0 || pool.cold_decodes;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    Scored& entry = scored[i];
    const bool is_decode = Decodes(candidates[i]);
    const bool admits_cold = is_decode ? pool.cold_decodes : pool.cold_primaries;
    const bool admitted =
        entry.left_out.empty() || (admits_cold && entry.left_out == kNoLoadReport);
    if (!admitted) continue;
    if (!is_decode && !have_decode && !ServesAlone(candidates[i])) {
      entry.left_out = kNoDecodeInstance;
      continue;
    }
    entry.left_out = {};
    entry.considered = true;
    if (!is_decode) ++pool.primaries;
  }
  return pool;
}

double MostWaiting(std::span<const Candidate> candidates, const std::vector<Scored>& scored,
                   Side side) {
  double most = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (scored[i].considered && On(candidates[i], side)) {
      most = std::max(most, candidates[i].load.waiting_requests_num);
    }
  }
  return most;
}

double QueueCost(const Candidate& candidate, double most_waiting) {
  return most_waiting > 0 ? candidate.load.waiting_requests_num / most_waiting : 0;
}

// The service cannot pin the rank, so the worst one counts.
double HitRatio(const Candidate& candidate, std::uint32_t input_tokens, double host_hit_weight) {
  if (input_tokens == 0 || candidate.no_credit != NoCredit::kNone || candidate.ranks.empty())
    return 0;
  double worst = 1;
  for (const RankHit& rank : candidate.ranks) {
    const double tokens =
        double(rank.device_hit_tokens) + host_hit_weight * double(rank.host_only_hit_tokens);
    worst = std::min(worst, std::clamp(tokens / double(input_tokens), 0.0, 1.0));
  }
  return worst;
}

double LeastCost(std::span<const Candidate> candidates, const std::vector<Scored>& scored,
                 Side side) {
  double least = Scored::kNoCost;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (scored[i].considered && On(candidates[i], side)) least = std::min(least, scored[i].cost);
  }
  return least;
}

// Why the single cheapest one is that, in terms of what was weighed.
std::string_view Explain(std::span<const Candidate> candidates, const std::vector<Scored>& scored,
                         std::size_t chosen) {
  double longest = 0;
  double shortest = 1;
  double fewest = Scored::kNoCost;
  double most = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!scored[i].considered || Decodes(candidates[i])) continue;
    longest = std::max(longest, scored[i].hit_ratio);
    shortest = std::min(shortest, scored[i].hit_ratio);
    fewest = std::min(fewest, candidates[i].load.waiting_requests_num);
    most = std::max(most, candidates[i].load.waiting_requests_num);
  }
  const bool best_prefix = scored[chosen].hit_ratio == longest;
  const bool best_queue = candidates[chosen].load.waiting_requests_num == fewest;
  if (fewest == most) return "longest prefix at equal load";
  if (longest == shortest) return "shortest queue at equal prefix";
  if (best_prefix && best_queue) return "longest prefix and shortest queue";
  if (best_prefix) return "longest prefix outweighs a longer queue";
  if (best_queue) return "shortest queue outweighs a shorter prefix";
  return "best balance of prefix and queue";
}

class CacheAware final : public Policy {
 public:
  explicit CacheAware(CarOptions options) : options_(options) {}

  std::string_view name() const override { return "CAR"; }
  bool wants_hits() const override { return true; }

  void Choose(const RouteInput& input, Choice& out) override {
    const std::span<const Candidate> candidates = input.candidates;
    out.primary = out.decode = -1;
    out.cost = Scored::kNoCost;
    Pool pool = Consider(candidates, Cold::kNone, out.scored);
    if (pool.primaries == 0) pool = Consider(candidates, Cold::kDecode, out.scored);
    if (pool.primaries == 0) pool = Consider(candidates, Cold::kAll, out.scored);
    if (pool.primaries == 0) {
      out.reason = WhyNobody(candidates, out.scored);
      return;
    }
    ChoosePrimary(input, pool, out);
    if (ServesAlone(candidates[static_cast<std::size_t>(out.primary)])) {
      LeaveOutDecode(candidates, out.scored);
    } else {
      ChooseDecode(candidates, pool, out);
    }
    if (pool.cold_primaries || (pool.cold_decodes && out.decode >= 0)) {
      out.reason = "cold start: no load report yet, rotation";
    }
  }

 private:
  void ChoosePrimary(const RouteInput& input, const Pool& pool, Choice& out) {
    const std::span<const Candidate> candidates = input.candidates;
    if (pool.cold_primaries) {
      out.primary = NextInTurn(candidates, out.scored, Side::kPrimary, primaries_, Anyone);
      return;
    }
    const double lambda = options_.prefill_lambda;
    const double most_waiting = MostWaiting(candidates, out.scored, Side::kPrimary);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      Scored& scored = out.scored[i];
      if (!scored.considered || Decodes(candidates[i])) continue;
      scored.hit_ratio = HitRatio(candidates[i], input.input_tokens, options_.host_hit_weight);
      scored.cost =
          lambda * (1 - scored.hit_ratio) + (1 - lambda) * QueueCost(candidates[i], most_waiting);
    }
    const double least = LeastCost(candidates, out.scored, Side::kPrimary);
    const auto cheapest = [least](const Scored& scored) { return scored.cost == least; };
    const std::size_t equals = CountConsidered(candidates, out.scored, Side::kPrimary, cheapest);
    out.primary = NextInTurn(candidates, out.scored, Side::kPrimary, primaries_, cheapest);
    out.cost = least;
    if (pool.primaries == 1) {
      out.reason = "only candidate";
    } else if (equals > 1) {
      out.reason = "tie: rotation";
    } else {
      out.reason = Explain(candidates, out.scored, static_cast<std::size_t>(out.primary));
    }
  }

  void ChooseDecode(std::span<const Candidate> candidates, const Pool& pool, Choice& out) {
    if (pool.cold_decodes) {
      out.decode = NextInTurn(candidates, out.scored, Side::kDecode, decodes_, Anyone);
      return;
    }
    const double most_waiting = MostWaiting(candidates, out.scored, Side::kDecode);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (!out.scored[i].considered || !Decodes(candidates[i])) continue;
      out.scored[i].cost =
          candidates[i].load.gpu_cache_usage_perc + QueueCost(candidates[i], most_waiting);
    }
    const double least = LeastCost(candidates, out.scored, Side::kDecode);
    out.decode = NextInTurn(candidates, out.scored, Side::kDecode, decodes_,
                            [least](const Scored& scored) { return scored.cost == least; });
  }

  const CarOptions options_;
  Rotation primaries_;
  Rotation decodes_;
};

}  // namespace

std::unique_ptr<Policy> MakeCacheAware(CarOptions options) {
  return std::make_unique<CacheAware>(options);
}

}  // namespace xms::routing
