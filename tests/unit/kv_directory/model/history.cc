#include "tests/unit/kv_directory/model/history.h"

#include <algorithm>
#include <array>
#include <random>

#include "base/str_cat.h"

namespace xms::kv_directory::proof {
namespace {

using base::StrAppend;
using base::StrCat;

constexpr std::array kFaults = {Action::kLose,         Action::kDuplicate,    Action::kSwap,
                                Action::kTruncate,     Action::kSpoil,        Action::kTwist,
                                Action::kUnreachable,  Action::kBreak,        Action::kCut,
                                Action::kDamageAnswer, Action::kLoseExchange, Action::kNewProcess,
                                Action::kBeginAnew,    Action::kNewIdentity,  Action::kEmpty};

// How often each action is drawn, in this history.
std::vector<Action> Urn(std::mt19937_64& random) {
  std::vector<Action> urn;
  const auto add = [&](Action action, std::size_t times) { urn.insert(urn.end(), times, action); };
  add(Action::kPublish, 30);
  add(Action::kDeliver, 30 + random() % 10);
  add(Action::kConnect, 8);
  add(Action::kAsk, 10);
  add(Action::kAnswer, 10);
  add(Action::kReply, 10);
  add(Action::kReplyAll, random() % 8);
  add(Action::kWait, 4 + random() % 6);
  add(Action::kTick, 4 + random() % 6);
  for (const Action fault : kFaults) add(fault, random() % 2 * (1 + random() % 2));
  return urn;
}

std::string Broken(World& world, const History& history) {
  for (const Step& step : history.steps) {
    if (std::string wrong = world.Do(step); !wrong.empty()) return wrong;
  }
  return world.Calm();
}

}  // namespace

History RandomHistory(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  History history;
  history.options.seed = random();
  history.options.streams = 1 + static_cast<int>(random() % 3);
  history.options.first_sequence = random() % 2;
  const std::vector<Action> urn = Urn(random);
  const auto streams = static_cast<std::uint64_t>(history.options.streams);
  const std::size_t steps = streams * (40 + random() % 160);
  const std::uint64_t calm_parts = 4 + random() % 12;
  while (history.steps.size() < steps) {
    if (random() % 100 < calm_parts) {
      // Back to synchrony, whatever it takes; else histories would mostly be about not connecting.
      const auto stream = static_cast<std::uint8_t>(random() % streams);
      for (const Action action :
           {Action::kTick, Action::kConnect, Action::kAsk, Action::kAnswer, Action::kReplyAll}) {
        history.steps.push_back({.action = action, .stream = stream});
      }
      continue;
    }
    Step step{.action = urn[random() % urn.size()],
              .stream = static_cast<std::uint8_t>(random() % streams),
              .argument = static_cast<std::uint16_t>(random())};
    if (step.action == Action::kWait) {
      step.argument = static_cast<std::uint16_t>(step.argument % (random() % 5 == 0 ? 32000 : 300));
    }
    history.steps.push_back(step);
  }
  return history;
}

History HistoryFromBytes(std::span<const std::uint8_t> bytes) {
  History history;
  const std::uint8_t head = bytes.empty() ? std::uint8_t{0} : bytes[0];
  history.options.streams = 1 + head % 2;
  history.options.first_sequence = head / 2 % 2;
  for (std::size_t at = 1; at + 4 <= bytes.size() && history.steps.size() < 400; at += 4) {
    Step step{.action = static_cast<Action>(bytes[at] % kActions),
              .stream = bytes[at + 1],
              .argument = static_cast<std::uint16_t>(bytes[at + 2] * 256 + bytes[at + 3])};
    if (step.action == Action::kScript) step.argument %= 10;
    history.steps.push_back(step);
  }
  return history;
}

std::string Run(const History& history, Totals* totals) {
  World world(history.options);
  std::string wrong = Broken(world, history);
  if (totals != nullptr) {
    ++totals->histories;
    totals->steps += history.steps.size();
    totals->synchronizations += world.synchronizations();
    totals->mixed_pictures += world.mixed_pictures();
    for (const Step& step : history.steps) ++totals->actions[static_cast<int>(step.action)];
  }
  return wrong;
}

History Shrink(History history) {
  for (std::size_t length = std::max<std::size_t>(1, history.steps.size() / 2); length > 0;) {
    bool shorter = false;
    for (std::size_t from = 0; from + length <= history.steps.size();) {
      History without = history;
      const auto first = without.steps.begin() + static_cast<std::ptrdiff_t>(from);
      without.steps.erase(first, first + static_cast<std::ptrdiff_t>(length));
      if (Run(without).empty()) {
        from += length;
      } else {
        history = std::move(without);
        shorter = true;
      }
    }
    if (!shorter || length > history.steps.size()) length /= 2;
  }
  return history;
}

std::string Explain(const History& history) {
  World::Options options = history.options;
  options.traced = true;
  World world(options);
  const std::string wrong = Broken(world, history);
  return StrCat(wrong.empty() ? "nothing was broken" : wrong, "\n", options.streams,
                " streams, first sequence ", options.first_sequence, ", ", history.steps.size(),
                " steps:\n", world.trace());
}

std::string RunSeed(std::uint64_t seed, Totals& totals) {
  const History history = RandomHistory(seed);
  if (Run(history, &totals).empty()) return "";
  return StrCat("seed ", seed, ": ", Explain(Shrink(history)),
                "again: SOAK_HISTORIES=1 SOAK_SEED=", seed, " tools/soak histories\n");
}

std::string Describe(const Totals& totals) {
  std::string text = StrCat(totals.histories, " histories, ", totals.steps, " steps, ",
                            totals.synchronizations, " synchronizations, ", totals.mixed_pictures,
                            " looks at pictures of two lives; drawn:");
  for (int action = 0; action < kActions; ++action) {
    StrAppend(text, " ", Print({.action = static_cast<Action>(action)}).substr(2), "=",
              totals.actions[action]);
  }
  return text;
}

}  // namespace xms::kv_directory::proof
