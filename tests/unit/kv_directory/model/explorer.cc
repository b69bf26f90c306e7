#include "tests/unit/kv_directory/model/explorer.h"

#include <cstdio>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "tests/unit/kv_directory/model/history.h"

namespace xms::kv_directory::proof {
namespace {

using base::StrAppend;
using base::StrCat;

struct Symbol {
  std::string_view name;
  std::vector<Step> steps;
  bool core = true;
};

Step Do(Action action, std::uint16_t argument = 0) {
  return {.action = action, .argument = argument};
}
Step Say(Script script) { return Do(Action::kScript, static_cast<std::uint16_t>(script)); }
Symbol Live(std::string_view name, Script script, bool core = true) {
  return {name, {Say(script), Do(Action::kDeliver)}, core};
}
Symbol Wide(std::string_view name, std::vector<Step> steps) {
  return {name, std::move(steps), false};
}

// The alphabet of faults, and of what is no fault.
std::vector<Symbol> Alphabet(bool wide) {
  const Step ask = Do(Action::kAsk);
  const Step answer = Do(Action::kAnswer);
  const Step deliver = Do(Action::kDeliver);
  std::vector<Symbol> symbols = {
      Live("live batch", Script::kChild),
      {"lost batch", {Say(Script::kRoot), Do(Action::kSwap), Do(Action::kLose)}},
      {"duplicated batch", {Say(Script::kRoot), Do(Action::kDuplicate), deliver, deliver}},
      {"reordered batches",
       {Say(Script::kRoot), Say(Script::kDemote), Do(Action::kSwap), deliver, deliver}},
      {"late batch: published", {Say(Script::kDemote)}},
      {"late batch: arrives", {deliver}},
      {"late snapshot: asked for and made", {ask, answer}},
      {"late snapshot: arrives", {Do(Action::kReplyAll)}},
      {"snapshot", {ask, Do(Action::kAnswer, 1), Do(Action::kReplyAll)}},
      {"cut snapshot", {ask, answer, Do(Action::kReply), Do(Action::kCut)}},
      Live("root removed, so that the next snapshot has an orphan", Script::kDropRoot),
      Live("child of an orphan", Script::kOrphanChild, false),
      Live("store again", Script::kRoot, false),
      Live("clear", Script::kClear),
      Live("clear and store", Script::kClearAndStore, false),
      Live("unknown parent", Script::kUnknownParent),
      Live("adapter's blocks", Script::kAdapter, false),
      {"parse error", {Say(Script::kRoot), Do(Action::kTruncate), deliver}},
      Wide("frames spoiled", {Say(Script::kRoot), Do(Action::kSpoil), deliver}),
      Live("over the limit", Script::kTooMany),
      Wide("snapshot damaged", {ask, answer, Do(Action::kDamageAnswer), Do(Action::kReplyAll)}),
      Wide("exchange lost", {Do(Action::kLoseExchange)}),
      {"disconnect", {Do(Action::kBreak)}},
      {"connect", {Do(Action::kConnect)}},
      Wide("refused", {Do(Action::kUnreachable)}),
      {"new identity on the old address", {Do(Action::kNewIdentity)}},
      {"new process, sequence back to its first", {Do(Action::kNewProcess)}},
      {"new process, sequence continuing by chance", {Do(Action::kNewProcess, 1)}},
      {"begun anew in place, sequence back", {Do(Action::kBeginAnew)}},
      {"time-out or resync tick, whichever is next", {Do(Action::kTick)}},
  };
  std::erase_if(symbols, [&](const Symbol& symbol) { return !wide && !symbol.core; });
  return symbols;
}

// Ways to states that are worth a start of their own.
std::vector<Symbol> Stations(bool wide) {
  const std::vector<Step> connected = {Do(Action::kConnect)};
  const std::vector<Step> whole = {Do(Action::kAsk), Do(Action::kAnswer), Do(Action::kReplyAll)};
  std::vector<Symbol> stations;
  const auto after = [](std::vector<Step> steps, std::initializer_list<std::vector<Step>> more) {
    for (const auto& part : more) steps.insert(steps.end(), part.begin(), part.end());
    return steps;
  };
  const std::vector<Step> live = {Say(Script::kRoot), Do(Action::kDeliver)};
  const std::vector<Step> unheard = {Say(Script::kRoot), Say(Script::kDemote), Say(Script::kRoot)};
  const std::vector<Step> tick = {Do(Action::kTick)};
  stations.push_back({"nothing", {}});
  stations.push_back({"recovering", after(connected, {{Do(Action::kAsk)}}), false});
  stations.push_back({"synchronized by a snapshot alone", after(unheard, {connected, whole})});
  stations.push_back({"synchronized, with live batches", after(connected, {whole, live})});
  stations.push_back({"settled", after(connected, {whole, live, tick, whole}), false});
  stations.push_back({"reconciling", after(connected, {whole, live, tick, {Do(Action::kAsk)}})});
  stations.push_back(
      {"after a gap",
       after(connected, {whole, live, {Say(Script::kRoot), Do(Action::kLose)}, live}), false});
  // In place, unheard, with numbers below the watermark: a snapshot that looks old.
  stations.push_back(
      {"connection renewed",
       after(unheard, {connected, whole, tick, {Do(Action::kBeginAnew)}, whole, tick, connected})});
  std::erase_if(stations, [&](const Symbol& station) { return !wide && !station.core; });
  return stations;
}

struct Node {
  std::int64_t parent = -1;  // -1: a station
  std::size_t symbol = 0;    // or which station
};

class Search {
 public:
  explicit Search(const Exploration& exploration)
      : exploration_(exploration),
        alphabet_(Alphabet(exploration.wide)),
        stations_(Stations(exploration.wide)) {
    explored_.symbols = alphabet_.size();
  }

  Explored Run() {
    explored_.stations = stations_.size();
    for (std::size_t i = 0; i < stations_.size(); ++i) nodes_.push_back({-1, i});
    std::size_t from = 0;
    for (int depth = 1; depth <= exploration_.depth; ++depth) {
      const std::size_t to = nodes_.size();
      for (; from < to; ++from) {
        for (std::size_t symbol = 0; symbol < alphabet_.size(); ++symbol) {
          Try({static_cast<std::int64_t>(from), symbol}, depth < exploration_.depth);
          if (!explored_.broken.empty() || !explored_.complete) return std::move(explored_);
        }
      }
      if (exploration_.progress) {
        std::printf("depth %d: %s\n", depth, Describe(explored_).c_str());
        std::fflush(stdout);
      }
    }
    return std::move(explored_);
  }

 private:
  std::vector<Step> StepsTo(Node node) const {
    std::vector<std::size_t> symbols;
    for (; node.parent >= 0; node = nodes_[static_cast<std::size_t>(node.parent)]) {
      symbols.push_back(node.symbol);
    }
    std::vector<Step> steps = stations_[node.symbol].steps;
    for (auto it = symbols.rbegin(); it != symbols.rend(); ++it) {
      steps.insert(steps.end(), alphabet_[*it].steps.begin(), alphabet_[*it].steps.end());
    }
    return steps;
  }

  void Try(Node node, bool follow) {
    if (explored_.transitions == exploration_.max_transitions) {
      explored_.complete = false;
      return;
    }
    ++explored_.transitions;
    const History history{.steps = StepsTo(node)};
    World world(history.options);
    std::string broken;
    const std::size_t redone = history.steps.size() - alphabet_[node.symbol].steps.size();
    for (std::size_t i = 0; i < history.steps.size() && broken.empty(); ++i) {
      if (i < redone) {
        world.Redo(history.steps[i]);
      } else {
        broken = world.Do(history.steps[i]);
      }
    }
    if (broken.empty()) {
      if (!seen_.insert(world.StateDigest(exploration_.exact)).second) return;
      ++explored_.states;
      if (follow) nodes_.push_back(node);
      if (explored_.states % exploration_.calm_every != 0) return;
      ++explored_.calmed;
      broken = world.Calm();
    }
    if (!broken.empty()) explored_.broken = Explain(Shrink(history));
  }

  const Exploration& exploration_;
  const std::vector<Symbol> alphabet_;
  const std::vector<Symbol> stations_;
  Explored explored_;
  std::vector<Node> nodes_;
  std::unordered_set<std::uint64_t> seen_;
};

}  // namespace

Explored Explore(const Exploration& exploration) { return Search(exploration).Run(); }

std::string Describe(const Explored& explored) {
  return StrCat(explored.stations, " stations, ", explored.symbols, " symbols, ", explored.states,
                " states, ", explored.transitions, " transitions, ", explored.calmed,
                " states calmed");
}

}  // namespace xms::kv_directory::proof
