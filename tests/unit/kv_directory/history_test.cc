// Random histories of publishers, wires and time against StreamMachine (docs/correctness.md).
#include "tests/unit/kv_directory/model/history.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace xms::kv_directory::proof {
namespace {

#ifdef XMS_SMALL_SHARE
constexpr std::uint64_t kShare = 150;
#else
constexpr std::uint64_t kShare = 8000;
#endif
constexpr std::uint64_t kShares = 4;

std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

// The seeds of one share, so that shares can run beside each other. XMS_HISTORIES=n makes it so many,
// from XMS_HISTORY_SEED=n on, and tells how far it is.
class KVDirectoryHistory : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(KVDirectoryHistory, NeverBelievesAnythingStaleAndAlwaysRecovers) {
  const std::uint64_t histories = FromEnvironment("XMS_HISTORIES", kShare);
  const std::uint64_t first = FromEnvironment("XMS_HISTORY_SEED", 1 + GetParam() * histories);
  const bool progress = histories > kShare;
  Totals totals;
  for (std::uint64_t seed = first; seed < first + histories; ++seed) {
    ASSERT_EQ(RunSeed(seed, totals), "");
    if (progress && totals.histories % 50'000 == 0) {
      std::printf("%llu of %llu histories\n", static_cast<unsigned long long>(totals.histories),
                  static_cast<unsigned long long>(histories));
      std::fflush(stdout);
    }
  }
  std::printf("from seed %llu: %s\n", static_cast<unsigned long long>(first),
              Describe(totals).c_str());
  if (histories < 100) return;
  EXPECT_GT(totals.synchronizations, 2 * histories) << "what never synchronizes proves nothing";
}

INSTANTIATE_TEST_SUITE_P(, KVDirectoryHistory, ::testing::Range<std::uint64_t>(0, kShares));

}  // namespace
}  // namespace xms::kv_directory::proof
