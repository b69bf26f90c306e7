#include "tests/unit/kv_directory/model/world.h"

#include <algorithm>
#include <array>
#include <random>

#include "base/str_cat.h"
#include "tests/unit/kv_directory/model/engine.h"
#include "tests/unit/kv_directory/mutation.h"

namespace xms::kv_directory::proof {
namespace {

using base::StrAppend;
using base::StrCat;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::array<std::string_view, kActions> kActionNames = {
    "publish",     "script",      "empty",        "deliver",       "lose",
    "duplicate",   "swap",        "truncate",     "spoil",         "twist",
    "connect",     "unreachable", "break",        "ask",           "answer",
    "reply",       "reply-all",   "cut",          "damage-answer", "lose-exchange",
    "new-process", "begin-anew",  "new-identity", "wait",          "tick"};

// The second snapshot, how long it may be held, and a little.
constexpr milliseconds kSecondSnapshotBound{620};
// A stream that may wait for a live batch waits this long: longer than any back-off.
constexpr seconds kSilence{6};
// Each renewed connection may need one; a stream that needs ever more of them is broken.
constexpr int kMaxWords = 12;
// Two reconciliations, back-offs, and what it takes to connect.
constexpr seconds kBound{70};

}  // namespace

std::string Print(const Step& step) {
  return StrCat(int{step.stream}, " ", kActionNames[static_cast<std::size_t>(step.action)], " ",
                step.argument);
}

World::World(const Options& options)
    : traced_(options.traced), index_({.max_blocks_per_stream = kMaxMappings}) {
  limits_.max_blocks_per_stream = kMaxMappings;
  std::mt19937_64 seeds(options.seed);
  for (int rank = 0; rank < options.streams; ++rank) {
    engines_.push_back(std::make_unique<Engine>(*this, rank, seeds(), options.first_sequence));
  }
}

World::~World() = default;

void World::Trace(std::string line) {
  if (traced_) StrAppend(trace_, line, "\n");
}

void World::Broke(std::string what) {
  if (broke_.empty()) broke_ = std::move(what);
}

void World::TickAll() {
  for (const auto& engine : engines_) engine->Tick();
}

std::string World::Do(const Step& step) {
  if (traced_) Trace(Print(step));
  engines_[step.stream % engines_.size()]->Act(step);
  TickAll();
  JudgeAll();
  return broke_;
}

void World::Redo(const Step& step) {
  redoing_ = true;
  engines_[step.stream % engines_.size()]->Act(step);
  TickAll();
  redoing_ = false;
}

void World::JudgeAll() {
  // An engine that something happened to has been judged then.
  if (engines_.size() > 1) {
    for (const auto& engine : engines_) engine->Judge();
  }
  JudgeSlowReaders();
}

void World::JudgeSlowReaders() {
  kv_index::MatchResult result;
  for (const auto& [slot, life] : retired_) {
    for (const Prompt& prompt : Prompts()) {
      index_.Match(prompt.tokens, result);
      const auto& match = result.slots[slot];
      const bool valid = kv_index::KvIndex::LifeOf(match.generation) == life ||
                         Mutant(Mutation::kNoGenerationCheck);
      if (valid && match.device_hit_tokens + match.host_only_hit_tokens > 0) {
        Broke("I4: a process that is gone is credited with what another holds");
      }
    }
  }
}

std::string World::Calm() {
  Trace("faults stop");
  const base::SteadyTime start = now_;
  std::vector<bool> second_due;
  std::vector<std::uint64_t> synchronizations;
  for (const auto& engine : engines_) {
    second_due.push_back(engine->SecondSnapshotIsDue());
    synchronizations.push_back(engine->synchronizations());
  }
  base::SteadyTime end = start + kBound;
  // Since when each waits for its publisher to say something.
  std::vector<base::SteadyTime> waiting(engines_.size(), base::SteadyTime::max());
  int words = 0;
  while (broke_.empty()) {
    for (const auto& engine : engines_) engine->Settle();
    TickAll();
    JudgeAll();
    base::SteadyTime next = end;
    bool done = true;
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      Engine& engine = *engines_[i];
      const bool up_to_date = engine.UpToDate();
      if (second_due[i] && now_ >= start + kSecondSnapshotBound) {
        second_due[i] = false;
        // What was on its way may have ended this synchrony and begun another.
        if (engine.synchronizations() == synchronizations[i] && engine.synchronized() &&
            engine.reference().snapshots_taken() == 1) {
          Broke(StrCat("I3: no second snapshot\n", engine.Describe()));
        }
      }
      if (second_due[i]) next = std::min(next, start + kSecondSnapshotBound);
      if (!engine.WaitsForAWord()) {
        waiting[i] = base::SteadyTime::max();
      } else if (waiting[i] == base::SteadyTime::max()) {
        waiting[i] = now_;
      } else if (now_ >= waiting[i] + kSilence && words < kMaxWords) {
        engine.SayAWord();
        ++words;
        end = now_ + kBound;
        waiting[i] = base::SteadyTime::max();
      }
      if (waiting[i] != base::SteadyTime::max()) next = std::min(next, waiting[i] + kSilence);
      if (!up_to_date && now_ >= end) Broke(StrCat("I3: not up to date\n", engine.Describe()));
      done = done && up_to_date && !engine.WaitsForAWord();
      next = std::min(next, engine.NextTick());
    }
    if (done) break;
    now_ = std::max(now_ + milliseconds(1), next);
    TickAll();
  }
  return broke_;
}

std::uint64_t World::StateDigest(bool exact) const {
  Fingerprint fingerprint;
  for (const auto& engine : engines_) engine->AddTo(fingerprint);
  fingerprint.Add(retired_.empty() ? 0 : 1);
  return fingerprint.Digest(exact);
}

std::uint64_t World::synchronizations() const {
  std::uint64_t sum = 0;
  for (const auto& engine : engines_) sum += engine->synchronizations();
  return sum;
}

std::uint64_t World::mixed_pictures() const {
  std::uint64_t sum = 0;
  for (const auto& engine : engines_) sum += engine->reference().mixed_pictures();
  return sum;
}

}  // namespace xms::kv_directory::proof
