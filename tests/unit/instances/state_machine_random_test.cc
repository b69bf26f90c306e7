// Random histories against a model that keeps the whole history and looks everything up in it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "instances/state/state_machine.h"
#include "tests/unit/instances/records.h"

namespace xms::instances {
namespace {

using std::chrono::milliseconds;

// What the rules say of one name, written as a reader of the table would: a few words and times, no
// leases, no entries that move.
struct NaiveInstance {
  std::string incarnation;
  std::string state = "ACTIVE";
  std::int64_t heard_ms = 0;
  std::int64_t suspect_ms = 0;
  std::optional<double> waiting;
};

struct NaiveModel {
  std::map<std::string, NaiveInstance> known;
  std::int64_t now_ms = 0;

  void Put(const std::string& name, const std::string& incarnation) {
    const auto at = known.find(name);
    if (at == known.end() || at->second.incarnation != incarnation) {
      known[name] = NaiveInstance{incarnation, "ACTIVE", now_ms, 0, {}};
      return;
    }
    at->second.state = "ACTIVE";
    at->second.heard_ms = now_ms;
  }
  void Probed(const std::string& name, bool alive) {
    NaiveInstance& instance = known.at(name);
    instance.state = alive ? "LEASE_LOST" : "SUSPECT";
    (alive ? instance.heard_ms : instance.suspect_ms) = now_ms;
  }
  bool Heartbeat(const std::string& name, const std::string& incarnation,
                 std::optional<double> waiting) {
    const auto at = known.find(name);
    if (at == known.end() || at->second.incarnation != incarnation) return false;
    at->second.heard_ms = now_ms;
    if (at->second.state == "SUSPECT") at->second.state = "LEASE_LOST";
    if (waiting) at->second.waiting = waiting;
    return true;
  }
  void Tick() {
    std::vector<std::string> gone;
    for (auto& [name, instance] : known) {
      if (instance.state == "SUSPECT") {
        if (now_ms - instance.suspect_ms >= 15000) gone.push_back(name);
      } else if (instance.state == "LEASE_LOST" && now_ms - instance.heard_ms >= 3000) {
        instance.state = "SUSPECT";
        instance.suspect_ms = now_ms;
      }
    }
    for (const std::string& name : gone) known.erase(name);
  }
};

// A probe on its way, and whether anything registered or removed the name since.
struct Pending {
  ProbeTicket ticket;
  bool outdated = false;
};

class InstancesStateRandom : public ::testing::TestWithParam<unsigned> {};

TEST_P(InstancesStateRandom, AgreesWithTheModel) {
  const unsigned seed = GetParam();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  const std::vector<std::string> names = {"a:1", "b:1", "c:1"};
  const std::vector<std::string> lives = {"", "x", "y"};

  StateMachine machine{Options{}};
  NaiveModel model;
  std::vector<Pending> pending;
  base::SteadyTime now{std::chrono::hours(1)};
  const auto outdate = [&](const std::string& name) {
    for (Pending& probe : pending) probe.outdated |= probe.ticket.id.name == name;
  };

  for (int step = 0; step < 4000; ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    const std::string& name = names[below(3)];
    const std::string& life = lives[below(3)];
    const auto before = machine.Instances();
    Effects effects;
    switch (below(12)) {
      case 0:
      case 1: {
        const bool known = model.known.count(name) != 0;
        const bool same = known && model.known.at(name).incarnation == life;
        const PutOutcome outcome = machine.Put(Record(name, life), now, effects);
        EXPECT_EQ(outcome, same    ? PutOutcome::kRefreshed
                           : known ? PutOutcome::kReplaced
                                   : PutOutcome::kCreated);
        model.Put(name, life);
        outdate(name);
        break;
      }
      case 2:
        if (below(4) == 0) {
          EXPECT_EQ(machine.Remove({name}, effects), model.known.erase(name) != 0);
          outdate(name);
        }
        break;
      case 3:
      case 4: {
        machine.LeaseLost({name}, life, effects);
        bool expected = model.known.count(name) != 0 &&
                        (life.empty() || life == model.known.at(name).incarnation);
        for (const Pending& probe : pending) {
          if (probe.ticket.id.name == name && !probe.outdated) expected = false;  // already asked
        }
        ASSERT_EQ(effects.probes.size(), expected ? 1u : 0u);
        if (expected) pending.push_back({effects.probes[0]});
        break;
      }
      case 5:
      case 6:
        if (!pending.empty()) {
          const std::size_t which = below(static_cast<unsigned>(pending.size()));
          const Pending probe = pending[which];
          pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(which));
          const bool alive = below(2) == 0;
          machine.OnProbe(probe.ticket, alive, now, effects);
          if (!probe.outdated) model.Probed(probe.ticket.id.name, alive);
          EXPECT_FALSE(probe.outdated && effects.view_changed);
        }
        break;
      case 7:
      case 8: {
        std::optional<double> waiting;
        std::optional<model::LoadSample> load;
        if (below(2) == 0) {
          waiting = below(5);
          load = model::LoadSample{*waiting, 0.5};
        }
        EXPECT_EQ(machine.OnHeartbeat({{name}, life, load}, now, effects).ok(),
                  model.Heartbeat(name, life, waiting));
        break;
      }
      default: {
        const milliseconds passed(below(2) == 0 ? below(500) : below(6000));
        now += passed;
        model.now_ms += passed.count();
        const std::map<std::string, NaiveInstance> had = model.known;
        machine.Tick(now, effects);
        model.Tick();
        for (const auto& [had_name, instance] : had) {
          if (model.known.count(had_name) == 0) outdate(had_name);
        }
        break;
      }
    }

    const auto after = machine.Instances();
    ASSERT_EQ(after.size(), model.known.size());
    auto expected = model.known.begin();
    for (const auto& instance : after) {
      ASSERT_EQ(instance->record.id.name, expected->first);
      ASSERT_EQ(StateName(instance->state), expected->second.state) << expected->first;
      ASSERT_EQ(instance->record.identity.incarnation_id, expected->second.incarnation);
      ASSERT_EQ(instance->has_load, expected->second.waiting.has_value());
      if (instance->has_load) {
        ASSERT_EQ(instance->load.sample.waiting_requests_num, *expected->second.waiting);
      }
      ASSERT_EQ(instance->schedulable, instance->state != State::kSuspect);
      ++expected;
    }
    ASSERT_EQ(effects.view_changed, after != before)
        << "views are published when and only when something changed";
    ASSERT_TRUE(effects.view_changed || !effects.members_changed);
  }
}

INSTANTIATE_TEST_SUITE_P(, InstancesStateRandom, ::testing::Range(1u, 21u));

}  // namespace
}  // namespace xms::instances
