#include "sim/time_model.h"

#include <gtest/gtest.h>

namespace xms::sim {
namespace {

double Ms(SimTime time) { return std::chrono::duration<double, std::milli>(time).count(); }

double PrefillMs(std::uint32_t tokens, std::uint32_t behind = 0) {
  StepWork work;
  work.AddPrefill(tokens, behind);
  return Ms(StepTime(work));
}

double DecodeMs(std::uint32_t sequences, std::uint32_t context) {
  StepWork work;
  for (std::uint32_t i = 0; i < sequences; ++i) work.AddDecode(context);
  return Ms(StepTime(work));
}

// The published figures that the header quotes.
TEST(SimTimeModel, ReproducesThePublishedPrefills) {
  EXPECT_NEAR(PrefillMs(500), 47.77, 0.06 * 47.77);
  EXPECT_NEAR(PrefillMs(1000), 82.46, 0.06 * 82.46);
  EXPECT_NEAR(PrefillMs(5000), 406.77, 0.06 * 406.77);
  EXPECT_NEAR(PrefillMs(20000), 1833.01, 0.06 * 1833.01);
}

TEST(SimTimeModel, ReproducesThePublishedDecodes) {
  EXPECT_NEAR(DecodeMs(1, 1500), 18.91, 0.04 * 18.91);
  EXPECT_NEAR(DecodeMs(1, 21000), 19.58, 0.04 * 19.58);
  // Without the share of the prefills: requests/s times time to first token.
  const double pure_100 = 29.98 * (1 - 3322.87 / 2000 * 0.04777);
  EXPECT_NEAR(DecodeMs(100, 1500), pure_100, 0.04 * pure_100);
  const double pure_5_long = 25.24 * (1 - 186.8 / 2000 * 1.83301);
  EXPECT_NEAR(DecodeMs(5, 21000), pure_5_long, 0.04 * pure_5_long);
}

TEST(SimTimeModel, MixedLoadHasThePublishedThroughput) {
  // A request's share of the rank: its own prefill, and a 25th of 500 decode steps.
  const double per_request = PrefillMs(5000) + 500.0 / 25 * DecodeMs(25, 5250);
  EXPECT_NEAR(1000 / per_request, 623.4 / 500, 0.08 * 623.4 / 500);
}

TEST(SimTimeModel, ChunksCostTheFixedPartOnceAStepAndElseTheSame) {
  const double whole = PrefillMs(8000);
  const double chunks = PrefillMs(3000) + PrefillMs(5000, 3000);
  EXPECT_NEAR(chunks - whole, PrefillMs(1) - (PrefillMs(2) - PrefillMs(1)), 0.001);
}

TEST(SimTimeModel, LoadingFromHostIsFarCheaperThanComputing) {
  StepWork load;
  load.AddPrefill(1, 4096);
  const double without = Ms(StepTime(load));
  load.host_loaded_tokens = 4096;
  EXPECT_NEAR(Ms(StepTime(load)) - without, Ms(HostCopyTime(4096)), 1e-6);
  EXPECT_LT(Ms(HostCopyTime(4096)), PrefillMs(4096) / 10);
}

TEST(SimTimeModel, NoStepIsFree) {
  EXPECT_GT(StepTime(StepWork{}), SimTime(0));
  EXPECT_GT(HostCopyTime(0), SimTime(0));
}

}  // namespace
}  // namespace xms::sim
