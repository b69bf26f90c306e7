// Every order of faults to a depth, memoised by state (docs/correctness.md).
#include "tests/unit/kv_directory/model/explorer.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace xms::kv_directory::proof {
namespace {

#ifdef XMS_SMALL_SHARE
constexpr int kCoreDepth = 3;
constexpr int kWideDepth = 2;
#else
constexpr int kCoreDepth = 6;
constexpr int kWideDepth = 4;
#endif

// `variable` in the environment goes deeper, and tells how far it is.
void ExploreAndExpect(Exploration exploration, const char* variable) {
  if (const char* depth = std::getenv(variable)) {
    exploration.depth = std::atoi(depth);
    exploration.progress = true;
  }
  const Explored explored = Explore(exploration);
  std::printf("depth %d: %s\n", exploration.depth, Describe(explored).c_str());
  EXPECT_EQ(explored.broken, "");
  EXPECT_TRUE(explored.complete);
}

TEST(KVDirectoryExplorer, NoOrderOfFaultsFromAnyStationBreaksAnInvariant) {
  ExploreAndExpect({.depth = kCoreDepth, .calm_every = 16}, "XMS_EXPLORE_DEPTH");
}

TEST(KVDirectoryExplorer, NeitherDoesAnyWithMoreKindsOfBatchesAndDamage) {
  ExploreAndExpect({.depth = kWideDepth, .wide = true}, "XMS_EXPLORE_WIDE_DEPTH");
}

}  // namespace
}  // namespace xms::kv_directory::proof
