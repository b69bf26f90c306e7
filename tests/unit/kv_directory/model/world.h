// World: publishers, their wires, StreamMachines over one index, time; and a Reference beside each
// stream. Takes one step at a time and says which invariant it broke.
//
// Place       The one model that the explorer, the random histories and the fuzz target drive.
// Threads     Externally synchronised.
// Determinism A world made with the same options and given the same steps does the same. A step that
//             has nothing to act on does nothing, so any steps make a history.
// Assumption  Who answers in a dead process's place does so after its connections have ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "kv_directory/config.h"
#include "kv_index/kv_index.h"
#include "tests/unit/kv_directory/model/reference.h"

namespace xms::kv_directory::proof {

enum class Action : std::uint8_t {
  // the publisher; `argument` chooses the batch
  kPublish,  // at random
  kScript,   // one of Script
  kEmpty,    // its blocks are gone, and it says nothing
  // the live wire
  kDeliver,
  kLose,
  kDuplicate,
  kSwap,
  kTruncate,
  kSpoil,  // the frames
  kTwist,  // still decodes, and says something else
  // the connection
  kConnect,
  kUnreachable,
  kBreak,
  // the exchange
  kAsk,
  kAnswer,  // as of now, in 1 + argument % 3 parts; they arrive by kReply
  kReply,
  kReplyAll,
  kCut,  // what has not arrived never will
  kDamageAnswer,
  kLoseExchange,
  // the process
  kNewProcess,   // its connections end; argument odd: its numbers continue by chance
  kBeginAnew,    // in place, connections stand; likewise
  kNewIdentity,  // and the directory has noticed
  // time
  kWait,  // argument milliseconds
  kTick,  // until the stream does something by itself
};
inline constexpr int kActions = static_cast<int>(Action::kTick) + 1;

enum class Script : std::uint8_t {
  kRoot,
  kChild,
  kDropRoot,  // its children stay: orphans
  kOrphanChild,
  kDemote,
  kClear,
  kClearAndStore,
  kUnknownParent,
  kTooMany,
  kAdapter,
};

struct Step {
  Action action = Action::kDeliver;
  std::uint8_t stream = 0;
  std::uint16_t argument = 0;
  bool operator==(const Step&) const = default;
};
std::string Print(const Step& step);

class Engine;

class World {
 public:
  struct Options {
    int streams = 1;
    std::uint64_t seed = 1;
    std::uint64_t first_sequence = 0;
    bool traced = false;
  };
  explicit World(const Options& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // "", or which invariant it broke.
  std::string Do(const Step& step);
  // The same for a step that is known to break nothing; looks at less.
  void Redo(const Step& step);
  // Faults stop: everything arrives, every question is answered. "" when each stream is synchronized and
  // equal to its publisher within the bound (I3), nothing else having been broken meanwhile.
  std::string Calm();

  // Equal for worlds that no few steps can tell apart (fingerprint.h); exact: no steps at all.
  std::uint64_t StateDigest(bool exact) const;
  std::uint64_t synchronizations() const;
  std::uint64_t mixed_pictures() const;
  const std::string& trace() const { return trace_; }

  // --- for Engine
  void Trace(std::string line);
  bool redoing() const { return redoing_; }
  void Broke(std::string what);
  base::SteadyTime now() const { return now_; }
  void Pass(base::Duration time) { now_ += time; }
  void PassUntil(base::SteadyTime time) { now_ = std::max(now_, time); }
  kv_index::KvIndex& index() { return index_; }
  const Limits& limits() const { return limits_; }
  // A place in the slot table that a reader took while it was valid.
  void Retire(std::uint32_t slot, std::uint64_t life) { retired_.emplace_back(slot, life); }

 private:
  void TickAll();
  void JudgeAll();
  // A reader that looked its stream up before the stream was replaced.
  void JudgeSlowReaders();

  Limits limits_;
  base::SteadyTime now_{std::chrono::hours(1)};
  bool traced_ = false;
  bool redoing_ = false;
  std::string trace_;
  std::string broke_;
  kv_index::KvIndex index_;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> retired_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace xms::kv_directory::proof
