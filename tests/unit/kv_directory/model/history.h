// Histories: steps for a World, at random or out of bytes; run, and shrunk when one breaks something.
//
// Place       The random histories (unit test and soak), the mutants and the fuzz target.
// Threads     Free functions; any thread, one World each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/unit/kv_directory/model/world.h"

namespace xms::kv_directory::proof {

struct History {
  World::Options options{};
  std::vector<Step> steps{};
};

struct Totals {
  std::uint64_t histories = 0;
  std::uint64_t steps = 0;
  std::uint64_t synchronizations = 0;
  std::uint64_t mixed_pictures = 0;
  std::uint64_t actions[kActions] = {};
};

// Each leaves out some faults altogether, so that the others meet in more ways.
History RandomHistory(std::uint64_t seed);
// Any bytes; four a step.
History HistoryFromBytes(std::span<const std::uint8_t> bytes);

// The history, then calm. "" or which invariant was broken.
std::string Run(const History& history, Totals* totals = nullptr);
// A part of `history` that still breaks something, and does not without any one of its steps.
History Shrink(History history);
// Every step, what it did, and what was broken.
std::string Explain(const History& history);

// "" or the failure: what was broken, the minimal history, and the
// command that shows it again.
std::string RunSeed(std::uint64_t seed, Totals& totals);
std::string Describe(const Totals& totals);

}  // namespace xms::kv_directory::proof
