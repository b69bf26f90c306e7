// CAR against the specification's formulas. Expected numbers are worked out by hand in the comments.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "routing/policy.h"
#include "tests/unit/routing/fleet.h"

namespace xms::routing {
namespace {

using model::Role;

class CacheAwareRouting : public ::testing::Test {
 protected:
  void Use(double lambda, double host_weight) { policy_ = MakeCacheAware({lambda, host_weight}); }
  // Routes a prompt of 1000 tokens unless told otherwise; the chosen P's name.
  std::string Route(std::uint32_t input_tokens = 1000) {
    policy_->Choose(fleet_.Input(input_tokens), choice_);
    return fleet_.Name(choice_.primary);
  }
  // Names of the chosen P and D, one after the other.
  std::string RoutePair() {
    const std::string primary = Route();
    return primary + Decode();
  }
  std::string Decode() const { return fleet_.Name(choice_.decode); }
  const Scored& Of(std::size_t index) const { return choice_.scored[index]; }

  Fleet fleet_;
  std::unique_ptr<Policy> policy_ = MakeCacheAware({});
  Choice choice_;
};

TEST_F(CacheAwareRouting, SaysWhatItIs) {
  EXPECT_EQ(policy_->name(), "CAR");
  EXPECT_TRUE(policy_->wants_hits());
}

// G2
// ratio = (300 + 0.5 * 200) / 1000 = 0.4; score = 0.5 * 0.6 + 0.5 * (2/4) = 0.55
// ratio = (0 + 0.5 * 800) / 1000 = 0.4;   score = 0.5 * 0.6 + 0.5 * (4/4) = 0.8
// ratio = 0;                              score = 0.5 * 1.0 + 0.5 * (0/4) = 0.5
TEST_F(CacheAwareRouting, ScoresByTheFormula) {
  fleet_.Add("a", 2, {{300, 200}});
  fleet_.Add("b", 4, {{0, 800}});
  fleet_.Add("c", 0);
  EXPECT_EQ(Route(), "c");
  EXPECT_DOUBLE_EQ(Of(0).hit_ratio, 0.4);
  EXPECT_DOUBLE_EQ(Of(0).cost, 0.55);
  EXPECT_DOUBLE_EQ(Of(1).hit_ratio, 0.4);
  EXPECT_DOUBLE_EQ(Of(1).cost, 0.8);
  EXPECT_DOUBLE_EQ(Of(2).hit_ratio, 0);
  EXPECT_DOUBLE_EQ(Of(2).cost, 0.5);
  EXPECT_DOUBLE_EQ(choice_.cost, 0.5);
  EXPECT_EQ(choice_.reason, "shortest queue outweighs a shorter prefix");
  EXPECT_EQ(choice_.decode, -1);
}

// The same fleet at other weights:
// lambda 0.8: a 0.8*0.6 + 0.2*0.5 = 0.58, b 0.8*0.6 + 0.2*1 = 0.68, c 0.8 -> a
// lambda 1:   a 0.6, b 0.6, c 1 -> a and b tie
// lambda 0:   a 0.5, b 1, c 0 -> c
// host 0, lambda 0.8: a 0.8*0.7 + 0.2*0.5 = 0.66, b 0.8 + 0.2 = 1, c 0.8 -> a
// host 1, lambda 0.8: a 0.8*0.5 + 0.1 = 0.5, b 0.8*0.2 + 0.2 = 0.36, c 0.8 -> b
TEST_F(CacheAwareRouting, LambdaAndHostWeightShiftTheChoice) {
  fleet_.Add("a", 2, {{300, 200}});
  fleet_.Add("b", 4, {{0, 800}});
  fleet_.Add("c", 0);
  Use(0.8, 0.5);
  EXPECT_EQ(Route(), "a");
  EXPECT_NEAR(Of(0).cost, 0.58, 1e-15);
  EXPECT_NEAR(Of(1).cost, 0.68, 1e-15);
  EXPECT_NEAR(Of(2).cost, 0.8, 1e-15);
  EXPECT_EQ(choice_.reason, "longest prefix outweighs a longer queue");
  Use(1, 0.5);
  EXPECT_EQ(Route(), "a");
  EXPECT_EQ(choice_.reason, "tie: rotation");
  EXPECT_EQ(Route(), "b");
  Use(0, 0.5);
  EXPECT_EQ(Route(), "c");
  EXPECT_EQ(choice_.cost, 0);
  Use(0.8, 0);
  EXPECT_EQ(Route(), "a");
  EXPECT_NEAR(Of(0).cost, 0.66, 1e-15);
  EXPECT_NEAR(Of(1).cost, 1.0, 1e-15);
  Use(0.8, 1);
  EXPECT_EQ(Route(), "b");
  EXPECT_NEAR(Of(1).cost, 0.36, 1e-15);
}

// G2
// Ratios are floating point: 1/3 is not 0.
TEST_F(CacheAwareRouting, RatiosAreNotIntegers) {
  fleet_.Add("a", 1, {{1, 0}});
  fleet_.Add("b", 3, {{2, 0}});
  Use(0.5, 0.5);
  Route(3);
  EXPECT_DOUBLE_EQ(Of(0).hit_ratio, 1.0 / 3);
  EXPECT_DOUBLE_EQ(Of(0).cost, 0.5 * (2.0 / 3) + 0.5 * (1.0 / 3));
  EXPECT_DOUBLE_EQ(Of(1).cost, 0.5 * (1.0 / 3) + 0.5);
}

// G2
TEST_F(CacheAwareRouting, TheRatioIsClampedToOne) {
  fleet_.Add("a", 0, {{900, 900}});
  fleet_.Add("b", 0, {{1000, 0}});
  Use(0.5, 1);
  EXPECT_EQ(Route(), "a");
  EXPECT_EQ(Of(0).hit_ratio, 1);
  EXPECT_EQ(Of(0).cost, 0);
  EXPECT_EQ(Route(), "b") << "both cost nothing";
}

// G2
TEST_F(CacheAwareRouting, EmptyQueuesCostNothing) {
  fleet_.Add("a", 0, {{500, 0}});
  fleet_.Add("b", 0);
  EXPECT_EQ(Route(), "a");
  EXPECT_DOUBLE_EQ(Of(0).cost, 0.25);
  EXPECT_DOUBLE_EQ(Of(1).cost, 0.5);
  EXPECT_EQ(choice_.reason, "longest prefix at equal load");
}

TEST_F(CacheAwareRouting, UsageOfThePrefillSideIsNotLookedAt) {
  fleet_.Add("a", 0, {{500, 0}}).load.gpu_cache_usage_perc = 1;
  fleet_.Add("b", 0).load.gpu_cache_usage_perc = 0;
  EXPECT_EQ(Route(), "a");
}

TEST_F(CacheAwareRouting, WithoutHitsTheShortestQueueWins) {
  fleet_.Add("a", 5);
  fleet_.Add("b", 2);
  fleet_.Add("c", 3);
  EXPECT_EQ(Route(), "b");
  EXPECT_EQ(choice_.reason, "shortest queue at equal prefix");
}

TEST_F(CacheAwareRouting, ReasonsTellPrefixFromQueue) {
  fleet_.Add("a", 1, {{800, 0}});
  fleet_.Add("b", 2, {{100, 0}});
  EXPECT_EQ(Route(), "a");
  EXPECT_EQ(choice_.reason, "longest prefix and shortest queue");
  // a: 0.5*1 + 0 = 0.5; b: 0.5*0.4 + 0.5*0.3 = 0.35; c: 0.5*0 + 0.5 = 0.5
  fleet_ = Fleet();
  fleet_.Add("a", 0);
  fleet_.Add("b", 3, {{600, 0}});
  fleet_.Add("c", 10, {{1000, 0}});
  EXPECT_EQ(Route(), "b");
  EXPECT_EQ(choice_.reason, "best balance of prefix and queue");
}

TEST_F(CacheAwareRouting, AnOnlyCandidateNeedsNoArgument) {
  fleet_.Add("a", 7, {{100, 0}});
  EXPECT_EQ(Route(), "a");
  EXPECT_EQ(choice_.reason, "only candidate");
  EXPECT_DOUBLE_EQ(choice_.cost, 0.5 * 0.9 + 0.5);
}

// Prompts that carry no tokens.

// G4
TEST_F(CacheAwareRouting, APromptWithoutTokensHasNoHits) {
  fleet_.Add("a", 2, {{300, 0}});
  fleet_.Add("b", 1);
  EXPECT_EQ(Route(0), "b");
  EXPECT_EQ(Of(0).hit_ratio, 0);
  EXPECT_DOUBLE_EQ(Of(0).cost, 0.5 + 0.5);
  EXPECT_DOUBLE_EQ(Of(1).cost, 0.5 + 0.25);
}

// Ties.

// G4
TEST_F(CacheAwareRouting, EqualCostsRotate) {
  for (const char* name : {"a", "b", "c"}) fleet_.Add(name, 1.0);
  std::string order;
  for (int i = 0; i < 7; ++i) order += Route();
  EXPECT_EQ(order, "abcabca");
  EXPECT_EQ(choice_.reason, "tie: rotation");
}

TEST_F(CacheAwareRouting, OnlyTheEqualOnesRotate) {
  fleet_.Add("a", 0, {{500, 0}});
  fleet_.Add("b", 0);
  fleet_.Add("c", 0, {{500, 0}});
  std::string order;
  for (int i = 0; i < 4; ++i) order += Route();
  EXPECT_EQ(order, "acac");
}

// Equal means equal as doubles: costs that differ in the last bit are decided by it.
TEST_F(CacheAwareRouting, AlmostEqualIsNotEqual) {
  fleet_.Add("a", 1.0);
  fleet_.Add("b", std::nextafter(1.0, 0.0));
  Use(0, 0.5);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Route(), "b");
}

// A hit on Host of twice the tokens costs exactly what the Device hit costs at weight 0.5.
TEST_F(CacheAwareRouting, EqualByDifferentMeansIsATie) {
  fleet_.Add("a", 0, {{250, 0}});
  fleet_.Add("b", 0, {{0, 500}});
  std::string order;
  for (int i = 0; i < 3; ++i) order += Route();
  EXPECT_EQ(order, "aba");
}

TEST_F(CacheAwareRouting, ADecidedRequestTakesNobodysTurn) {
  fleet_.Add("a", 0.0);
  fleet_.Add("b", 0.0);
  EXPECT_EQ(Route(), "a");
  fleet_.Hits(fleet_[0], {{500, 0}});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Route(), "a");
  fleet_.Hits(fleet_[0], {{0, 0}});
  EXPECT_EQ(Route(), "b");
}

// Ranks.

// G5
TEST_F(CacheAwareRouting, TheWorstRankCounts) {
  fleet_.Add("a", 0, {{900, 0}, {200, 100}});  // min(0.9, 0.25)
  fleet_.Add("b", 0, {{300, 0}});
  EXPECT_EQ(Route(), "b");
  EXPECT_DOUBLE_EQ(Of(0).hit_ratio, 0.25);
}

TEST_F(CacheAwareRouting, TheWorstRankIsFoundByItsWeightedHits) {
  // Rank 0: 0.5 * 800 = 400; rank 1: 300 + 0.5 * 100 = 350.
  fleet_.Add("a", 0, {{0, 800}, {300, 100}});
  Route();
  EXPECT_DOUBLE_EQ(Of(0).hit_ratio, 0.35);
}

// G5
TEST_F(CacheAwareRouting, AMissingOrUnsynchronizedRankMakesTheRatioZeroButMayWin) {
  for (const NoCredit why :
       {NoCredit::kRankMissing, NoCredit::kUnsynchronized, NoCredit::kNoStream}) {
    fleet_ = Fleet();
    Candidate& a = fleet_.Add("a", 0, {{900, 0}});
    a.no_credit = why;
    fleet_.Add("b", 8, {{100, 0}});
    EXPECT_EQ(Route(), "a") << NoCreditName(why);
    EXPECT_EQ(Of(0).hit_ratio, 0);
    EXPECT_DOUBLE_EQ(choice_.cost, 0.5);
  }
}

TEST_F(CacheAwareRouting, NoRanksAtAllAreNoCredit) {
  fleet_.Add("a", 0, {});
  Route();
  EXPECT_EQ(Of(0).hit_ratio, 0);
}

// G6: the index belongs to the process before.
TEST_F(CacheAwareRouting, AnotherProcessGetsNoCredit) {
  for (const NoCredit why : {NoCredit::kIdentityChanged, NoCredit::kIdentityUnknown}) {
    fleet_ = Fleet();
    fleet_.Add("a", 0, {{1000, 0}}).no_credit = why;
    fleet_.Add("b", 0, {{128, 0}});
    EXPECT_EQ(Route(), "b") << NoCreditName(why);
    EXPECT_EQ(Of(0).hit_ratio, 0);
    EXPECT_TRUE(Of(0).considered);
  }
}

// Who takes part.

// G1
TEST_F(CacheAwareRouting, BadLoadsAreLeftOut) {
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<model::LoadSample> bad = {{nan, 0}, {-1, 0},   {inf, 0},
                                              {0, nan}, {0, -0.1}, {0, 1.1}};
  for (const model::LoadSample& load : bad) {
    fleet_ = Fleet();
    fleet_.Add("a", 0, {{1000, 0}}).load = load;
    fleet_.Add("b", 9.0);
    EXPECT_EQ(Route(), "b") << load.waiting_requests_num << " " << load.gpu_cache_usage_perc;
    EXPECT_FALSE(Of(0).considered);
    EXPECT_EQ(Of(0).left_out, "invalid load");
    EXPECT_EQ(Of(0).cost, Scored::kNoCost);
    EXPECT_EQ(choice_.reason, "only candidate");
  }
}

TEST_F(CacheAwareRouting, TheLongestQueueIsTakenOverThoseWhoTakePart) {
  fleet_.Add("a", 2.0);
  fleet_.Add("b", 100.0).schedulable = false;
  fleet_.Add("c", 100.0).load.gpu_cache_usage_perc = 7;
  fleet_.Add("d", Role::kDecode).load.waiting_requests_num = 100;
  fleet_.Add("e", 4.0);
  Route();
  EXPECT_DOUBLE_EQ(Of(0).cost, 0.5 + 0.5 * 0.5);
  EXPECT_EQ(Of(1).left_out, "not schedulable");
  EXPECT_EQ(Of(2).left_out, "invalid load");
}

TEST_F(CacheAwareRouting, ReportedLoadsGoBeforeUnreportedOnes) {
  fleet_.Add("a", 0.0).has_load = false;
  fleet_.Add("b", 50.0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Route(), "b");
  EXPECT_EQ(Of(0).left_out, "no load report");
}

// G1
TEST_F(CacheAwareRouting, AColdStartServesInRotation) {
  for (const char* name : {"a", "b", "c"}) fleet_.Add(name, 0.0).has_load = false;
  fleet_.Hits(fleet_[2], {{1000, 0}});
  std::string order;
  for (int i = 0; i < 4; ++i) order += Route();
  EXPECT_EQ(order, "abca");
  EXPECT_EQ(choice_.reason, "cold start: no load report yet, rotation");
  EXPECT_EQ(choice_.cost, Scored::kNoCost);
  EXPECT_TRUE(Of(0).considered);
}

// G1
TEST_F(CacheAwareRouting, AColdStartNeverTakesInvalidOrUnschedulable) {
  fleet_.Add("a", std::nan(""));
  fleet_.Add("b", 0.0).schedulable = false;
  fleet_.Add("c", 0.0).has_load = false;
  fleet_[1].has_load = false;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Route(), "c");
  fleet_[2].schedulable = false;
  EXPECT_EQ(Route(), "");
  EXPECT_EQ(choice_.reason, "every load report is invalid");
}

TEST_F(CacheAwareRouting, NobodyLeftIsExplained) {
  EXPECT_EQ(Route(), "");
  EXPECT_EQ(choice_.reason, "no instance is registered");
  fleet_.Add("a", 0.0).schedulable = false;
  EXPECT_EQ(Route(), "");
  EXPECT_EQ(choice_.reason, "no instance is schedulable");
  EXPECT_EQ(choice_.decode, -1);
  EXPECT_EQ(choice_.cost, Scored::kNoCost);
  fleet_.Add("d", Role::kDecode);
  EXPECT_EQ(Route(), "");
  EXPECT_EQ(choice_.reason, "only decode instances are schedulable");
  fleet_[1].schedulable = false;
  fleet_.Add("p", Role::kPrefill);
  EXPECT_EQ(Route(), "");
  EXPECT_EQ(choice_.reason, "no decode instance, and no DEFAULT that can serve alone");
}

// P and D.

// G3
// d1: 0.9 + 1/4 = 1.15; d2: 0.2 + 3/4 = 0.95; d3: 0.1 + 4/4 = 1.1
TEST_F(CacheAwareRouting, TheDecodeSideIsChosenByUsageAndQueue) {
  fleet_.Add("p", Role::kPrefill);
  fleet_.Add("d1", Role::kDecode).load = {1, 0.9};
  fleet_.Add("d2", Role::kDecode).load = {3, 0.2};
  fleet_.Add("d3", Role::kDecode).load = {4, 0.1};
  EXPECT_EQ(Route(), "p");
  EXPECT_EQ(Decode(), "d2");
  EXPECT_DOUBLE_EQ(Of(1).cost, 1.15);
  EXPECT_DOUBLE_EQ(Of(2).cost, 0.95);
  EXPECT_DOUBLE_EQ(Of(3).cost, 1.1);
  EXPECT_DOUBLE_EQ(choice_.cost, 0.5) << "the cost of the P";
}

// G3
TEST_F(CacheAwareRouting, TheDecodeSideGetsNoPrefixCredit) {
  fleet_.Add("p", Role::kPrefill);
  fleet_.Add("d1", Role::kDecode).load = {0, 0.5};
  fleet_.Add("d2", Role::kDecode).load = {0, 0.4};
  fleet_[1].no_credit = NoCredit::kNone;
  fleet_.Hits(fleet_[1], {{1000, 0}});
  Route();
  EXPECT_EQ(Decode(), "d2");
  EXPECT_EQ(Of(1).hit_ratio, 0);
}

// G4
TEST_F(CacheAwareRouting, EachSideRotatesWithItsOwnCursor) {
  fleet_.Add("p1", Role::kPrefill);
  fleet_.Add("p2", Role::kPrefill);
  for (const char* name : {"d1", "d2", "d3"}) fleet_.Add(name, Role::kDecode);
  std::string order;
  for (int i = 0; i < 6; ++i) {
    order += RoutePair() + " ";
  }
  EXPECT_EQ(order, "p1d1 p2d2 p1d3 p2d1 p1d2 p2d3 ");
}

TEST_F(CacheAwareRouting, ADecodeWithABadLoadIsLeftOut) {
  fleet_.Add("p", Role::kPrefill);
  fleet_.Add("d1", Role::kDecode).load = {0, std::nan("")};
  fleet_.Add("d2", Role::kDecode).load = {9, 0.9};
  Route();
  EXPECT_EQ(Decode(), "d2");
  EXPECT_EQ(Of(1).left_out, "invalid load");
}

// G4, G7
// Without a D only DEFAULT can serve: PREFILL and MIX are out before the longest queue is looked for.
TEST_F(CacheAwareRouting, WithoutDecodePrefillAndMixAreRemovedBeforeTheMaximum) {
  fleet_.Add("a", 2, {{500, 0}});
  fleet_.Add("b", 4, {{600, 0}});
  Candidate& p = fleet_.Add("p", Role::kPrefill);
  p.load.waiting_requests_num = 100;
  fleet_.Hits(p, {{1000, 0}});
  Candidate& m = fleet_.Add("m", Role::kPrefill);
  m.is_mix = true;
  m.load.waiting_requests_num = 200;
  // a: 0.5*0.5 + 0.5*2/4 = 0.5; b: 0.5*0.4 + 0.5*4/4 = 0.7
  EXPECT_EQ(Route(), "a");
  EXPECT_DOUBLE_EQ(Of(0).cost, 0.5);
  EXPECT_DOUBLE_EQ(Of(1).cost, 0.7);
  EXPECT_EQ(Of(2).left_out, "no decode instance");
  EXPECT_EQ(Of(3).left_out, "no decode instance");
  EXPECT_EQ(choice_.decode, -1);
  // An unschedulable D is none, and neither is one whose load is invalid.
  fleet_.Add("d", Role::kDecode).schedulable = false;
  EXPECT_EQ(Route(), "a");
  fleet_[4].schedulable = true;
  fleet_[4].load.waiting_requests_num = -1;
  EXPECT_EQ(Route(), "a");
  EXPECT_EQ(Of(2).left_out, "no decode instance");
  // With a D they take part: the longest queue is 200 now.
  fleet_[4].load.waiting_requests_num = 0;
  // a: 0.25 + 0.5*2/200 = 0.255; b: 0.2 + 0.5*4/200 = 0.21; p: 0 + 0.25; m: 0.5 + 0.5
  EXPECT_EQ(Route(), "b");
  EXPECT_NEAR(Of(0).cost, 0.255, 1e-15);
  EXPECT_NEAR(Of(1).cost, 0.21, 1e-15);
  EXPECT_NEAR(Of(2).cost, 0.25, 1e-15);
  EXPECT_NEAR(Of(3).cost, 1.0, 1e-15);
}

// G7
TEST_F(CacheAwareRouting, ADefaultServesAloneEvenBesideDecodes) {
  fleet_.Add("a", 0, {{900, 0}});
  fleet_.Add("p", Role::kPrefill);
  fleet_.Add("d", Role::kDecode);
  EXPECT_EQ(Route(), "a");
  EXPECT_EQ(choice_.decode, -1) << "a D's death must not end its requests";
  EXPECT_FALSE(Of(2).considered);
  EXPECT_EQ(Of(2).left_out, "not needed: a DEFAULT serves alone");
}

// G1
TEST_F(CacheAwareRouting, MixActsByItsCurrentRole) {
  Candidate& m1 = fleet_.Add("m1", Role::kPrefill);
  m1.is_mix = true;
  fleet_.Hits(m1, {{500, 0}});
  fleet_.Add("p", Role::kPrefill);
  fleet_.Add("m2", Role::kDecode).is_mix = true;
  fleet_[2].load.gpu_cache_usage_perc = 0.5;
  fleet_.Add("d", Role::kDecode).load.gpu_cache_usage_perc = 0.6;
  EXPECT_EQ(Route(), "m1");
  EXPECT_EQ(Decode(), "m2");
  // The roles change: m1 decodes now, and nobody prefills but p.
  fleet_[0].role = Role::kDecode;
  EXPECT_EQ(Route(), "p");
  EXPECT_EQ(Decode(), "m1");
}

TEST_F(CacheAwareRouting, AColdDecodeSideServesInRotation) {
  fleet_.Add("p", Role::kPrefill);
  fleet_.Add("d1", Role::kDecode).has_load = false;
  fleet_.Add("d2", Role::kDecode).has_load = false;
  std::string order;
  for (int i = 0; i < 3; ++i) order += RoutePair();
  EXPECT_EQ(order, "pd1pd2pd1");
  EXPECT_EQ(choice_.reason, "cold start: no load report yet, rotation");
  EXPECT_DOUBLE_EQ(choice_.cost, 0.5) << "the P's load is known, so it has a cost";
  fleet_[2].has_load = true;
  EXPECT_EQ(RoutePair(), "pd2") << "a known load goes first";
  EXPECT_EQ(choice_.reason, "only candidate");
}

TEST_F(CacheAwareRouting, AColdPairServes) {
  fleet_.Add("p", Role::kPrefill).has_load = false;
  fleet_.Add("d", Role::kDecode).has_load = false;
  EXPECT_EQ(RoutePair(), "pd");
  EXPECT_EQ(choice_.reason, "cold start: no load report yet, rotation");
  fleet_[1].has_load = true;
  EXPECT_EQ(RoutePair(), "pd");
  EXPECT_EQ(choice_.reason, "cold start: no load report yet, rotation");
  EXPECT_DOUBLE_EQ(Of(1).cost, 0) << "the D's load is known, so it has a cost";
}

// A DEFAULT whose load is known can serve; nothing unknown is tried beside it.
TEST_F(CacheAwareRouting, AKnownDefaultGoesBeforeAColdDecodeSide) {
  fleet_.Add("a", 9.0);
  fleet_.Add("p", Role::kPrefill);
  fleet_.Add("d", Role::kDecode).has_load = false;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(RoutePair(), "a");
  EXPECT_EQ(Of(1).left_out, "no decode instance");
  EXPECT_EQ(Of(2).left_out, "no load report");
}

TEST_F(CacheAwareRouting, AChoiceIsOverwrittenWhole) {
  fleet_.Add("p", Role::kPrefill);
  fleet_.Add("d", Role::kDecode);
  Route();
  EXPECT_EQ(choice_.decode, 1);
  fleet_ = Fleet();
  Route();
  EXPECT_EQ(choice_.primary, -1);
  EXPECT_EQ(choice_.decode, -1);
  EXPECT_TRUE(choice_.scored.empty());
}

TEST_F(CacheAwareRouting, NamesOfMissingCredit) {
  const std::map<NoCredit, std::string> names = {
      {NoCredit::kNone, ""},
      {NoCredit::kNotTokenized, "not_tokenized"},
      {NoCredit::kEmptyPrompt, "empty_prompt"},
      {NoCredit::kPromptShorterThanBlock, "prompt_shorter_than_block"},
      {NoCredit::kDirectoryOff, "directory_off"},
      {NoCredit::kNoStream, "no_stream"},
      {NoCredit::kRankMissing, "rank_missing"},
      {NoCredit::kUnsynchronized, "unsynchronized"},
      {NoCredit::kIdentityUnknown, "identity_unknown"},
      {NoCredit::kIdentityChanged, "identity_changed"},
      {NoCredit::kDecodeRole, "decode_role"},
      {NoCredit::kNotAsked, "not_asked"},
  };
  for (const auto& [why, name] : names) EXPECT_EQ(NoCreditName(why), name);
}

}  // namespace
}  // namespace xms::routing
