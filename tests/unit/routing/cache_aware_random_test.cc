// Random fleets against a slow model that reads like the specification.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "routing/policy.h"
#include "tests/unit/routing/fleet.h"

namespace xms::routing {
namespace {

struct Engine {
  std::string kind;  // DEFAULT, PREFILL, MIX-P, MIX-D, DECODE
  bool schedulable = true;
  std::string load = "known";  // none, bad, known
  double waiting = 0;
  double usage = 0;
  std::string credit = "full";  // none: some reason for no credit
  std::vector<Hit> ranks;
};

struct Expected {
  std::map<std::size_t, double> primary_costs;  // NaN: by rotation, without a cost
  std::map<std::size_t, double> decode_costs;
};

using Engines = std::vector<Engine>;

std::vector<std::size_t> Select(const Engines& engines, bool decode, const std::string& load) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < engines.size(); ++i) {
    const bool is_decode = engines[i].kind == "DECODE" || engines[i].kind == "MIX-D";
    if (is_decode == decode && engines[i].schedulable && engines[i].load == load) out.push_back(i);
  }
  return out;
}

std::vector<std::size_t> OnlyDefaults(const Engines& engines, std::vector<std::size_t> of) {
  std::erase_if(of, [&](std::size_t i) { return engines[i].kind != "DEFAULT"; });
  return of;
}

Expected Model(const Engines& engines, double lambda, double host_weight, double input) {
  std::vector<std::size_t> primaries = Select(engines, false, "known");
  std::vector<std::size_t> decodes = Select(engines, true, "known");
  bool cold_primaries = false;
  bool cold_decodes = false;
  if (decodes.empty()) primaries = OnlyDefaults(engines, primaries);
  if (primaries.empty()) {
    if (decodes.empty()) {
      decodes = Select(engines, true, "none");
      cold_decodes = !decodes.empty();
      if (cold_decodes) primaries = Select(engines, false, "known");
    }
    if (primaries.empty()) {
      primaries = Select(engines, false, "none");
      if (decodes.empty()) primaries = OnlyDefaults(engines, primaries);
      cold_primaries = true;
    }
  }
  if (primaries.empty()) return {};

  Expected expected;
  double longest = 0;
  for (const std::size_t i : primaries) longest = std::max(longest, engines[i].waiting);
  for (const std::size_t i : primaries) {
    const Engine& engine = engines[i];
    std::vector<double> ratios;
    for (const Hit& hit : engine.ranks) {
      ratios.push_back(input == 0 ? 0 : (hit.device + host_weight * hit.host_only) / input);
    }
    double ratio = engine.credit == "full" && !ratios.empty()
                       ? *std::min_element(ratios.begin(), ratios.end())
                       : 0;
    ratio = std::min(1.0, std::max(0.0, ratio));
    const double queue = longest == 0 ? 0 : engine.waiting / longest;
    expected.primary_costs[i] =
        cold_primaries ? std::nan("") : lambda * (1 - ratio) + (1 - lambda) * queue;
  }
  longest = 0;
  for (const std::size_t i : decodes) longest = std::max(longest, engines[i].waiting);
  for (const std::size_t i : decodes) {
    const double queue = longest == 0 ? 0 : engines[i].waiting / longest;
    expected.decode_costs[i] = cold_decodes ? std::nan("") : engines[i].usage + queue;
  }
  return expected;
}

// Among the costs, is `chosen` a cheapest one? Without costs everybody is.
void ExpectCheapest(const std::map<std::size_t, double>& costs, int chosen) {
  ASSERT_GE(chosen, 0);
  const auto at = costs.find(static_cast<std::size_t>(chosen));
  ASSERT_NE(at, costs.end()) << "candidate " << chosen << " must not take part";
  if (std::isnan(at->second)) return;
  for (const auto& [index, cost] : costs) {
    ASSERT_LE(at->second, cost + 1e-12) << "candidate " << index << " is cheaper than " << chosen;
  }
}

class CacheAwareRoutingRandom : public ::testing::TestWithParam<unsigned> {};

TEST_P(CacheAwareRoutingRandom, AgreesWithTheModel) {
  const unsigned seed = GetParam();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  const auto pick = [&](const std::vector<std::string>& of) {
    return of[below(static_cast<unsigned>(of.size()))];
  };

  Choice choice;
  int served = 0;
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const double lambda = below(5) / 4.0;
    const double host_weight = below(5) / 4.0;
    const std::uint32_t input = below(8) == 0 ? 0 : 128 * (1 + below(8)) + below(3);
    const auto policy = MakeCacheAware({lambda, host_weight});
    const unsigned turns = below(4);

    // A run favours some kind of load, so that whole fleets without reports or with bad ones come up too.
    const std::string usual_load = pick({"known", "known", "none", "bad"});
    Engines engines;
    Fleet fleet;
    for (unsigned n = below(7); n > 0; --n) {
      Engine engine;
      engine.kind = pick({"DEFAULT", "DEFAULT", "PREFILL", "MIX-P", "MIX-D", "DECODE"});
      engine.schedulable = below(6) != 0;
      engine.load = below(3) != 0 ? usual_load : pick({"none", "bad", "known"});
      engine.waiting = below(4);
      engine.usage = below(5) / 4.0;
      engine.credit = below(4) != 0 ? "full" : "none";
      for (unsigned ranks = below(8) == 0 ? 0 : 1 + below(3); ranks > 0; --ranks) {
        engine.ranks.push_back({128 * below(8), 128 * below(4)});
      }
      engines.push_back(engine);

      const bool decode = engine.kind == "DECODE" || engine.kind == "MIX-D";
      const model::Role role = engine.kind == "DEFAULT" ? model::Role::kDefault
                               : decode                 ? model::Role::kDecode
                                                        : model::Role::kPrefill;
      Candidate& candidate = fleet.Add("engine" + std::to_string(engines.size()), role);
      candidate.is_mix = engine.kind.starts_with("MIX");
      candidate.schedulable = engine.schedulable;
      candidate.has_load = engine.load != "none";
      candidate.load = {engine.waiting, engine.usage};
      if (engine.load == "bad") {
        candidate.load =
            below(2) == 0 ? model::LoadSample{std::nan(""), 0.5} : model::LoadSample{1, -0.5};
      }
      if (engine.credit == "none") candidate.no_credit = NoCredit::kUnsynchronized;
      fleet.Hits(candidate, engine.ranks);
    }

    const Expected expected = Model(engines, lambda, host_weight, input);
    for (unsigned turn = 0; turn <= turns; ++turn) policy->Choose(fleet.Input(input), choice);

    ASSERT_EQ(choice.scored.size(), engines.size());
    if (expected.primary_costs.empty()) {
      ASSERT_EQ(choice.primary, -1);
      ASSERT_EQ(choice.decode, -1);
      ASSERT_FALSE(choice.reason.empty());
      continue;
    }
    ++served;
    ASSERT_NO_FATAL_FAILURE(ExpectCheapest(expected.primary_costs, choice.primary));
    const bool alone = engines[static_cast<std::size_t>(choice.primary)].kind == "DEFAULT";
    if (alone) {
      ASSERT_EQ(choice.decode, -1);
    } else {
      ASSERT_NO_FATAL_FAILURE(ExpectCheapest(expected.decode_costs, choice.decode));
    }
    for (std::size_t i = 0; i < engines.size(); ++i) {
      const bool takes_part =
          expected.primary_costs.count(i) != 0 || (!alone && expected.decode_costs.count(i) != 0);
      ASSERT_EQ(choice.scored[i].considered, takes_part) << "candidate " << i;
      ASSERT_EQ(choice.scored[i].left_out.empty(), takes_part) << "candidate " << i;
      const auto at = expected.primary_costs.find(i);
      if (at == expected.primary_costs.end()) continue;
      if (std::isnan(at->second)) {
        ASSERT_EQ(choice.scored[i].cost, Scored::kNoCost);
      } else {
        ASSERT_NEAR(choice.scored[i].cost, at->second, 1e-12);
      }
    }
  }
  EXPECT_GT(served, 400) << "the generator must produce fleets that can serve";
}

INSTANTIATE_TEST_SUITE_P(, CacheAwareRoutingRandom, ::testing::Range(1u, 11u));

// Whoever ties, in whatever place, gets the same number of turns.
TEST(CacheAwareRoutingTies, EveryOneOfTheEqualGetsTheSameShare) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Fleet fleet;
    std::vector<std::size_t> equal;
    for (std::size_t i = 0; i < 12; ++i) {
      const bool cheap = random() % 2 == 0;
      fleet.Add("engine" + std::to_string(i), cheap ? 1.0 : 2.0);
      if (cheap) equal.push_back(i);
    }
    if (equal.empty()) continue;
    const auto policy = MakeCacheAware({});
    Choice choice;
    std::map<std::size_t, int> turns;
    for (std::size_t i = 0; i < 5 * equal.size(); ++i) {
      policy->Choose(fleet.Input(1000), choice);
      ++turns[static_cast<std::size_t>(choice.primary)];
    }
    ASSERT_EQ(turns.size(), equal.size());
    for (const std::size_t i : equal) ASSERT_EQ(turns[i], 5) << "candidate " << i;
  }
}

}  // namespace
}  // namespace xms::routing
