// Each defect of mutation.h, put into the recovery's sources, is noticed by the explorer or by the
// random histories. Linked with mutated copies of those sources (mutants.cmake).
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/unit/kv_directory/model/explorer.h"
#include "tests/unit/kv_directory/model/history.h"
#include "tests/unit/kv_directory/mutation.h"

namespace xms::kv_directory::proof {
namespace {

#ifdef XMS_SMALL_SHARE
constexpr std::uint64_t kHistories = 300;
#else
constexpr std::uint64_t kHistories = 3000;
#endif

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

class KVDirectoryMutants : public ::testing::TestWithParam<int> {
 protected:
  void TearDown() override { active_mutation = Mutation::kNone; }
};

TEST_P(KVDirectoryMutants, IsCaught) {
  active_mutation = static_cast<Mutation>(GetParam());
  const Explored explored =
      Explore({.depth = 3, .wide = true, .calm_every = 1, .max_transitions = 30'000});
  std::string broken;
  std::uint64_t seed = 0;
  while (broken.empty() && seed < kHistories) broken = proof::Run(RandomHistory(++seed));
  EXPECT_FALSE(explored.broken.empty() && broken.empty()) << "this defect survives";
  std::printf("%s\n", NameOf(active_mutation));
  std::printf(
      "  explorer: %s, %llu transitions: %s\n", explored.broken.empty() ? "missed" : "caught",
      static_cast<unsigned long long>(explored.transitions), FirstLine(explored.broken).c_str());
  std::printf("  histories: %s, %llu: %s\n", broken.empty() ? "missed" : "caught",
              static_cast<unsigned long long>(seed), FirstLine(broken).c_str());
}

std::string CaseName(const ::testing::TestParamInfo<int>& info) {
  std::string name;
  for (const char c : std::string(NameOf(static_cast<Mutation>(info.param)))) {
    name += c == ' ' ? '_' : c;
  }
  return name;
}
INSTANTIATE_TEST_SUITE_P(, KVDirectoryMutants, ::testing::Range(1, kMutations), CaseName);

TEST(KVDirectoryMutantsOriginal, WithoutADefectNothingIsBroken) {
  EXPECT_EQ(Explore({.depth = 2, .wide = true}).broken, "");
  Totals totals;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) ASSERT_EQ(RunSeed(seed, totals), "");
}

// A minimal history: with any one step less, nothing is broken.
TEST(KVDirectoryMutantsOriginal, FailureIsShrunkToWhatItTakes) {
  active_mutation = Mutation::kNoGapCheck;
  std::uint64_t seed = 1;
  while (proof::Run(RandomHistory(seed)).empty()) ++seed;
  const History minimal = Shrink(RandomHistory(seed));
  EXPECT_NE(proof::Run(minimal), "");
  EXPECT_LE(minimal.steps.size(), 16u) << Explain(minimal);
  for (std::size_t i = 0; i < minimal.steps.size(); ++i) {
    History less = minimal;
    less.steps.erase(less.steps.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(proof::Run(less), "") << "step " << i;
  }
  active_mutation = Mutation::kNone;
}

}  // namespace
}  // namespace xms::kv_directory::proof
