// P9: a complete decision of CAR: keys of a prompt of 12,000 tokens, match, candidates, scores, record.
//
// A program of its own, because it counts every operator new.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/gateway/fleet.h"
#include "bench/support/allocations.h"
#include "bench/support/measure.h"
#include "gateway/candidate_table.h"
#include "gateway/decision_log.h"
#include "gateway/gateway_metrics.h"
#include "observability/metrics.h"
#include "routing/policy.h"

namespace xms::gateway {
namespace {

using bench::Clock;
using bench::Latency;

// What RequestRouter does between the parsed request and the engine: range(0) instances.
void P9_Decide12kTokens(benchmark::State& state) {
  std::vector<std::string> names;
  for (int i = 0; i < state.range(0); ++i) names.push_back("10.0.0." + std::to_string(i) + ":8000");
  Fleet fleet(names);
  const auto policy = routing::MakeCacheAware({});
  const auto tokens = Tokens(kLongPrompt);
  observability::MetricRegistry registry;
  GatewayMetrics metrics(&registry);
  CandidateTable table;
  routing::Choice choice;
  DecisionLog log(1000);
  Decision decision;
  decision.request_id = "0123456789abcdef0123456789abcdef";
  decision.policy = policy->name();
  decision.input_tokens = kLongPrompt;
  decision.choice = &choice;
  decision.table = &table;

  const int decisions = bench::Quick() ? 5'000 : 50'000;
  Latency whole(static_cast<std::size_t>(decisions));
  Latency build(static_cast<std::size_t>(decisions));
  Latency choose(static_cast<std::size_t>(decisions));
  Latency record(static_cast<std::size_t>(decisions));
  std::uint64_t allocations = 0;
  const auto decide = [&](bool measured) {
    const std::uint64_t allocations_before = bench::Allocations();
    const auto begin = Clock::now();
    table.Build(fleet.manager().view(), &fleet.index(), true, {true, tokens}, {});
    const auto built = Clock::now();
    policy->Choose({table.candidates(), kLongPrompt}, choice);
    const auto chosen = Clock::now();
    metrics.decisions.Increment(choice.reason);
    benchmark::DoNotOptimize(log.Add(decision));
    std::uint32_t available = 0;
    for (std::size_t i = 0; i < table.candidates().size(); ++i) {
      available = std::max(available, table.PrefixTokens(i));
    }
    const auto primary = static_cast<std::size_t>(std::max(0, choice.primary));
    metrics.prefix_asked.Increment(kLongPrompt);
    metrics.prefix_available.Increment(available);
    metrics.prefix_chosen.Increment(table.PrefixTokens(primary));
    const auto end = Clock::now();
    const std::uint64_t allocations_after = bench::Allocations();
    // The last instance holds every whole block, and loads are equal.
    bench::Require(choice.primary >= 0 && table.candidates()[primary].name == names.back(),
                   "the choice");
    bench::Require(table.PrefixTokens(primary) == kLongPrompt / kBlock * kBlock,
                   "the credit of the chosen");
    table.Clear();
    if (!measured) return;
    allocations += allocations_after - allocations_before;
    whole.Add(end - begin);
    build.Add(built - begin);
    choose.Add(chosen - built);
    record.Add(end - chosen);
  };
  bench::Pin(0);
  // Steady: each place of the log has been used.
  for (int i = 0; i < 1100; ++i) decide(false);
  state.counters["allocations_before"] = static_cast<double>(bench::Allocations());
  for (auto _ : state) {
    for (int i = 0; i < decisions; ++i) decide(true);
  }
  bench::Unpin();
  whole.Report(state);
  state.counters["build_p50_us"] = build.At(0.5);
  state.counters["choose_p50_us"] = choose.At(0.5);
  state.counters["record_p50_us"] = record.At(0.5);
  state.counters["allocations"] = static_cast<double>(allocations);
}
BENCHMARK(P9_Decide12kTokens)
    ->ArgName("instances")
    ->Arg(128)
    ->Arg(8)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace xms::gateway
