// RR: upstream's order of turns, one cursor for P and one for D. Different on purpose: a PREFILL
// whose D's are all unschedulable is not sent a request that must fail, and a DEFAULT is given no D,
// whose death would end the request for nothing.
#include "routing/internal/choosing.h"
#include "routing/policy.h"

namespace xms::routing {
namespace {

using namespace internal;  // NOLINT(google-build-using-namespace): this file is part of it

class RoundRobin final : public Policy {
 public:
  std::string_view name() const override { return "RR"; }
  bool wants_hits() const override { return false; }

  void Choose(const RouteInput& input, Choice& out) override {
    const std::span<const Candidate> candidates = input.candidates;
    bool have_decode = false;
    for (const Candidate& candidate : candidates)
      have_decode |= candidate.schedulable && Decodes(candidate);

    out.scored.assign(candidates.size(), Scored{});
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      Scored& scored = out.scored[i];
      if (!candidates[i].schedulable) {
        scored.left_out = kNotSchedulable;
      } else if (!have_decode && !ServesAlone(candidates[i])) {
        scored.left_out = kNoDecodeInstance;
      } else {
        scored.considered = true;
      }
    }

    out.cost = Scored::kNoCost;
    out.decode = -1;
    out.primary = NextInTurn(candidates, out.scored, Side::kPrimary, primaries_, Anyone);
    if (out.primary < 0) {
      out.reason = WhyNobody(candidates, out.scored);
    } else {
      out.reason = "rotation";
      if (ServesAlone(candidates[static_cast<std::size_t>(out.primary)])) {
        LeaveOutDecode(candidates, out.scored);
      } else {
        out.decode = NextInTurn(candidates, out.scored, Side::kDecode, decodes_, Anyone);
      }
    }
  }

 private:
  Rotation primaries_;
  Rotation decodes_;
};

}  // namespace

std::unique_ptr<Policy> MakeRoundRobin() { return std::make_unique<RoundRobin>(); }

}  // namespace xms::routing
