#include "gateway/candidate_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kv_index/stream_ledger.h"

namespace xms::gateway {
namespace {

using routing::NoCredit;

constexpr std::uint32_t kBlock = 4;
constexpr char kA[] = "10.0.0.1:8000";
constexpr char kB[] = "10.0.0.2:8000";

class GatewayCandidateTable : public ::testing::Test {
 protected:
  using Ledger = std::unique_ptr<kv_index::StreamLedger>;

  instances::Instance& Add(const std::string& name, const std::string& incarnation = "x",
                           std::int32_t dp_size = 1) {
    auto instance = std::make_shared<instances::Instance>();
    instance->record.id.name = name;
    instance->record.identity.incarnation_id = incarnation;
    instance->record.dp_size = dp_size;
    instance->has_load = true;
    instance->schedulable = true;
    instances_.push_back(instance);
    return *instance;
  }

  // A synchronized stream that holds this many blocks of the prompt on Device, and as many more on
  // Host.
  Ledger Open(const std::string& name, std::int32_t rank, std::size_t device_blocks,
              std::size_t host_blocks = 0, const std::string& incarnation = "x") {
    kv_index::StreamInfo info;
    info.key = {{name}, {rank}};
    info.block_size = kBlock;
    info.identity.incarnation_id = incarnation;
    auto opened = index_.OpenStream(info, "new");
    EXPECT_TRUE(opened.ok());
    Ledger ledger = std::move(opened).value();
    for (std::size_t block = 0; block < device_blocks + host_blocks; ++block) {
      const model::WireHash hash{block + 1};
      const auto parent = block == 0 ? std::nullopt : std::optional(model::WireHash{block});
      const auto stored = ledger->Store(
          block < device_blocks ? model::Tier::kDevice : model::Tier::kHost, std::span(&hash, 1),
          parent, std::span(prompt_).subspan(block * kBlock, kBlock),
          kv_index::StreamLedger::Orphans::kRefuse);
      EXPECT_TRUE(stored.ok());
    }
    ledger->Synchronize({1});
    return ledger;
  }

  void Build(const Prompt& prompt, bool wants_hits = true,
             const std::vector<std::string>& tried = {}) {
    auto view = std::make_shared<instances::InstanceView>();
    view->instances.assign(instances_.begin(), instances_.end());
    table_.Build(view, index_on_ ? &index_ : nullptr, wants_hits, prompt,
                 {.tried = tried, .paused = paused_});
  }
  void Build() { Build({true, prompt_}); }
  NoCredit Why(std::size_t candidate = 0) { return table_.candidates()[candidate].no_credit; }

  std::vector<std::string> paused_;
  kv_index::KvIndex index_{kv_index::Options{}};
  bool index_on_ = true;
  std::vector<std::uint32_t> prompt_ = [] {
    std::vector<std::uint32_t> tokens(10 * kBlock);
    std::iota(tokens.begin(), tokens.end(), 100);
    return tokens;
  }();
  std::vector<std::shared_ptr<instances::Instance>> instances_;
  CandidateTable table_;
};

TEST_F(GatewayCandidateTable, CreditsEachRankOfTheProcessThatIsRegistered) {
  Add(kA, "x", 2);
  Add(kB);
  const Ledger a0 = Open(kA, 0, 3, 2);
  const Ledger a1 = Open(kA, 1, 1, 1);
  const Ledger b0 = Open(kB, 0, 10);
  Build();
  ASSERT_EQ(table_.candidates().size(), 2u);
  const routing::Candidate& a = table_.candidates()[0];
  EXPECT_EQ(a.name, kA);
  EXPECT_EQ(a.no_credit, NoCredit::kNone);
  ASSERT_EQ(a.ranks.size(), 2u);
  EXPECT_EQ(a.ranks[0].dp_rank, 0);
  EXPECT_EQ(a.ranks[0].device_hit_tokens, 3 * kBlock);
  EXPECT_EQ(a.ranks[0].host_only_hit_tokens, 2 * kBlock);
  EXPECT_EQ(a.ranks[1].dp_rank, 1);
  EXPECT_EQ(a.ranks[1].device_hit_tokens, 1 * kBlock);
  EXPECT_EQ(a.ranks[1].host_only_hit_tokens, 1 * kBlock);
  // The worst rank counts: the service cannot choose it.
  EXPECT_EQ(table_.PrefixTokens(0), 2 * kBlock);
  EXPECT_EQ(table_.PrefixTokens(1), 10 * kBlock);
}

TEST_F(GatewayCandidateTable, ASynchronizedStreamWithoutTheBlocksIsCreditOfZero) {
  Add(kA);
  const Ledger a0 = Open(kA, 0, 0);
  Build();
  EXPECT_EQ(Why(), NoCredit::kNone);
  ASSERT_EQ(table_.candidates()[0].ranks.size(), 1u);
  EXPECT_EQ(table_.PrefixTokens(0), 0u);
}

TEST_F(GatewayCandidateTable, AMissingRankTakesTheCredit) {
  Add(kA, "x", 3);
  const Ledger a0 = Open(kA, 0, 5);
  const Ledger a2 = Open(kA, 2, 5);
  Build();
  EXPECT_EQ(Why(), NoCredit::kRankMissing);
  EXPECT_TRUE(table_.candidates()[0].ranks.empty());
  // As many streams as ranks, but not these.
  const Ledger a3 = Open(kA, 3, 5);
  Build();
  EXPECT_EQ(Why(), NoCredit::kRankMissing);
  const Ledger a1 = Open(kA, 1, 5);
  Build();
  EXPECT_EQ(Why(), NoCredit::kNone);
  EXPECT_EQ(table_.candidates()[0].ranks.size(), 3u);
}

TEST_F(GatewayCandidateTable, AnUnsynchronizedRankTakesTheCredit) {
  Add(kA, "x", 2);
  const Ledger a0 = Open(kA, 0, 5);
  const Ledger a1 = Open(kA, 1, 5);
  a1->Unsynchronize("gap");
  Build();
  EXPECT_EQ(Why(), NoCredit::kUnsynchronized);
  EXPECT_TRUE(table_.candidates()[0].ranks.empty());
  EXPECT_EQ(table_.PrefixTokens(0), 0u);
}

// G6
TEST_F(GatewayCandidateTable, AnotherProcessGetsNoCreditForWhatTheOldOneHeld) {
  Add(kA, "new");
  const Ledger a0 = Open(kA, 0, 5, 0, "old");
  Build();
  EXPECT_EQ(Why(), NoCredit::kIdentityChanged);
}

// E8
TEST_F(GatewayCandidateTable, WithoutAnIdentityOnEitherSideThereIsNoCredit) {
  Add(kA, "x");
  const Ledger a0 = Open(kA, 0, 5, 0, "");  // a static stream
  Add(kB, "");
  const Ledger b0 = Open(kB, 0, 5, 0, "x");
  Build();
  EXPECT_EQ(Why(0), NoCredit::kIdentityUnknown);
  EXPECT_EQ(Why(1), NoCredit::kIdentityUnknown);
}

TEST_F(GatewayCandidateTable, TheRegistrationTimeStandsInForAnIncarnation) {
  instances::Instance& a = Add(kA, "");
  a.record.identity.register_ts_ms = 17;
  kv_index::StreamInfo info;
  info.key = {{kA}, {0}};
  info.block_size = kBlock;
  info.identity.register_ts_ms = 17;
  const Ledger ledger = std::move(index_.OpenStream(info, "new")).value();
  ledger->Synchronize({1});
  Build();
  EXPECT_EQ(Why(), NoCredit::kNone);
  a.record.identity.register_ts_ms = 18;
  Build();
  EXPECT_EQ(Why(), NoCredit::kIdentityChanged);
}

TEST_F(GatewayCandidateTable, InstancesWithoutAStreamHaveTheirReason) {
  Add(kA);
  Build();
  EXPECT_EQ(Why(), NoCredit::kNoStream);
  index_on_ = false;
  Build();
  EXPECT_EQ(Why(), NoCredit::kDirectoryOff);
}

TEST_F(GatewayCandidateTable, ThePromptsOwnReasonsComeFirst) {
  Add(kA);
  const Ledger a0 = Open(kA, 0, 5);
  Build({false, {}});
  EXPECT_EQ(Why(), NoCredit::kNotTokenized);
  Build({true, {}});
  EXPECT_EQ(Why(), NoCredit::kEmptyPrompt);
  Build({true, std::span(prompt_).first(kBlock - 1)});
  EXPECT_EQ(Why(), NoCredit::kPromptShorterThanBlock);
  Build({true, std::span(prompt_).first(kBlock)});
  EXPECT_EQ(Why(), NoCredit::kNone);
  EXPECT_EQ(table_.PrefixTokens(0), kBlock);
}

TEST_F(GatewayCandidateTable, DecodeInstancesGetNoCredit) {
  Add(kA).current_role = model::Role::kDecode;
  const Ledger a0 = Open(kA, 0, 5);
  Build();
  EXPECT_EQ(Why(), NoCredit::kDecodeRole);
}

TEST_F(GatewayCandidateTable, MixCarriesItsCurrentRole) {
  instances::Instance& mix = Add(kA);
  mix.record.type = model::Role::kMix;
  mix.current_role = model::Role::kPrefill;
  Build();
  EXPECT_EQ(table_.candidates()[0].role, model::Role::kPrefill);
  EXPECT_TRUE(table_.candidates()[0].is_mix);
}

// A policy that does not look at hits costs no match.
TEST_F(GatewayCandidateTable, HitsAreNotLookedUpUnlessWanted) {
  Add(kA);
  const Ledger a0 = Open(kA, 0, 5);
  Build({true, prompt_}, false);
  EXPECT_EQ(Why(), NoCredit::kNotAsked);
  EXPECT_TRUE(table_.candidates()[0].ranks.empty());
}

TEST_F(GatewayCandidateTable, TriedInstancesAreNotSchedulable) {
  Add(kA);
  Add(kB).schedulable = false;
  instances_.back()->reason = "suspect";
  Build({true, prompt_}, true, {kA});
  EXPECT_FALSE(table_.candidates()[0].schedulable);
  EXPECT_EQ(table_.WhyNot(0), "unreachable");
  EXPECT_FALSE(table_.candidates()[1].schedulable);
  EXPECT_EQ(table_.WhyNot(1), "suspect");
  paused_ = {kA, kB};
  Build();
  EXPECT_FALSE(table_.candidates()[0].schedulable);
  EXPECT_EQ(table_.WhyNot(0), "recently unreachable");
  EXPECT_EQ(table_.WhyNot(1), "suspect");
  paused_.clear();
  Build();
  EXPECT_TRUE(table_.candidates()[0].schedulable);
  EXPECT_EQ(table_.WhyNot(0), "");
}

TEST_F(GatewayCandidateTable, LoadsAreTakenOver) {
  instances::Instance& a = Add(kA);
  a.load.sample = {7, 0.5};
  Add(kB).has_load = false;
  Build();
  EXPECT_EQ(table_.candidates()[0].load.waiting_requests_num, 7);
  EXPECT_FALSE(table_.candidates()[1].has_load);
}

TEST_F(GatewayCandidateTable, BuiltAgainItKnowsNothingOfTheRequestBefore) {
  Add(kA);
  Ledger a0 = Open(kA, 0, 5);
  Build();
  EXPECT_EQ(table_.PrefixTokens(0), 5 * kBlock);
  a0.reset();
  Build();
  EXPECT_EQ(Why(), NoCredit::kNoStream);
  EXPECT_EQ(table_.PrefixTokens(0), 0u);
}

}  // namespace
}  // namespace xms::gateway
