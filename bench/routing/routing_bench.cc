// What a choice costs: 128 candidates, every one scored.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "routing/policy.h"

namespace xms::routing {
namespace {

class Fleet {
 public:
  Fleet(std::size_t size, std::size_t ranks, bool pd) {
    std::mt19937 random(1);
    for (std::size_t i = 0; i < size; ++i) {
      std::vector<RankHit>& hits = hits_.emplace_back();
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        hits.push_back({static_cast<std::int32_t>(rank),
                        static_cast<std::uint32_t>(random() % 8192),
                        static_cast<std::uint32_t>(random() % 1024)});
      }
      Candidate candidate;
      candidate.name = names_.emplace_back("10.0.0." + std::to_string(i) + ":8000");
      candidate.role = !pd          ? model::Role::kDefault
                       : i % 2 == 0 ? model::Role::kPrefill
                                    : model::Role::kDecode;
      candidate.schedulable = true;
      candidate.has_load = true;
      candidate.load = {double(random() % 16), double(random() % 100) / 100};
      candidate.ranks = hits;
      candidates_.push_back(candidate);
    }
  }
  RouteInput Input() const { return {candidates_, 8192}; }

 private:
  std::deque<std::string> names_;
  std::deque<std::vector<RankHit>> hits_;
  std::vector<Candidate> candidates_;
};

void Run(benchmark::State& state, Policy& policy, const Fleet& fleet) {
  Choice choice;
  for (auto _ : state) {
    policy.Choose(fleet.Input(), choice);
    benchmark::DoNotOptimize(choice.primary);
  }
}

void BM_CacheAware(benchmark::State& state) {
  const Fleet fleet(static_cast<std::size_t>(state.range(0)),
                    static_cast<std::size_t>(state.range(1)), false);
  Run(state, *MakeCacheAware({}), fleet);
}
BENCHMARK(BM_CacheAware)
    ->ArgNames({"candidates", "ranks"})
    ->Args({8, 1})
    ->Args({128, 1})
    ->Args({16, 8});

void BM_CacheAwarePd(benchmark::State& state) {
  const Fleet fleet(static_cast<std::size_t>(state.range(0)), 1, true);
  Run(state, *MakeCacheAware({}), fleet);
}
BENCHMARK(BM_CacheAwarePd)->ArgName("candidates")->Arg(128);

void BM_RoundRobin(benchmark::State& state) {
  const Fleet fleet(static_cast<std::size_t>(state.range(0)), 1, false);
  Run(state, *MakeRoundRobin(), fleet);
}
BENCHMARK(BM_RoundRobin)->ArgName("candidates")->Arg(128);

}  // namespace
}  // namespace xms::routing
