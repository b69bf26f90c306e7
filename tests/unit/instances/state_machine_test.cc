// Row by row: what every input makes of every state.
#include "instances/state/state_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/instances/records.h"

namespace xms::instances {
namespace {

using model::DataPlane;
using model::LoadSample;
using model::Role;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr char kA[] = "10.0.0.5:8000";

class InstancesState : public ::testing::Test {
 protected:
  PutOutcome Put(model::InstanceRecord record) {
    return machine_.Put(std::move(record), now_, effects_);
  }
  PutOutcome Put() { return Put(Record(kA, "life-1")); }
  void Heartbeat(std::string incarnation = "life-1", std::optional<LoadSample> load = {}) {
    heartbeat_ok_ = machine_.OnHeartbeat({{kA}, std::move(incarnation), load}, now_, effects_).ok();
  }
  // The lease ends and the engine does or does not answer.
  void LoseLease(bool alive) {
    machine_.LeaseLost({kA}, "life-1", effects_);
    ASSERT_FALSE(effects_.probes.empty());
    machine_.OnProbe(TakeProbe(), alive, now_, effects_);
  }
  ProbeTicket TakeProbe() {
    const ProbeTicket ticket = effects_.probes.back();
    effects_.probes.clear();
    return ticket;
  }
  void Tick() { machine_.Tick(now_, effects_); }
  void TickAfter(milliseconds time) {
    now_ += time;
    Tick();
  }
  const Instance* Find(const std::string& name = kA) {
    for (const auto& instance : machine_.Instances()) {
      if (instance->record.id.name == name) return instance.get();
    }
    return nullptr;
  }
  // "gone", or the state's name.
  std::string StateOf(const std::string& name = kA) {
    const Instance* found = Find(name);
    return found == nullptr ? "gone" : std::string(StateName(found->state));
  }
  void Reach(State state) {
    Put();
    if (state == State::kLeaseLost) LoseLease(true);
    if (state == State::kSuspect) LoseLease(false);
    ASSERT_EQ(StateOf(), StateName(state));
    effects_ = {};
  }

  base::SteadyTime now_{std::chrono::hours(1)};
  StateMachine machine_{Options{}};
  Effects effects_;
  bool heartbeat_ok_ = false;
};

TEST_F(InstancesState, AFirstPutIsActiveAndSchedulable) {
  EXPECT_EQ(Put(), PutOutcome::kCreated);
  EXPECT_EQ(StateOf(), "ACTIVE");
  EXPECT_TRUE(Find()->schedulable);
  EXPECT_FALSE(Find()->has_load);
  EXPECT_TRUE(effects_.view_changed);
  EXPECT_TRUE(effects_.members_changed);
}

struct Row {
  State from;
  const char* input;
  const char* to;
};

class InstancesStateTable : public InstancesState, public ::testing::WithParamInterface<Row> {};

TEST_P(InstancesStateTable, LeadsTo) {
  const Row& row = GetParam();
  const std::string input = row.input;
  Reach(row.from);
  if (input == "put") {
    EXPECT_EQ(Put(), PutOutcome::kRefreshed);
  } else if (input == "put of another process") {
    EXPECT_EQ(Put(Record(kA, "life-2")), PutOutcome::kReplaced);
  } else if (input == "lease lost, answers") {
    LoseLease(true);
  } else if (input == "lease lost, does not answer") {
    LoseLease(false);
  } else if (input == "lease lost, no incarnation, answers") {
    machine_.LeaseLost({kA}, "", effects_);
    ASSERT_EQ(effects_.probes.size(), 1u);
    machine_.OnProbe(TakeProbe(), true, now_, effects_);
  } else if (input == "stale delete") {
    machine_.LeaseLost({kA}, "life-0", effects_);
    EXPECT_TRUE(effects_.probes.empty());
  } else if (input == "lease lost, no answer yet") {
    machine_.LeaseLost({kA}, "life-1", effects_);
    EXPECT_FALSE(effects_.view_changed);
  } else if (input == "heartbeat") {
    Heartbeat();
    EXPECT_TRUE(heartbeat_ok_);
  } else if (input == "stale heartbeat") {
    Heartbeat("life-0");
    EXPECT_FALSE(heartbeat_ok_);
    EXPECT_FALSE(effects_.view_changed);
  } else if (input == "2999 ms") {
    TickAfter(milliseconds(2999));
  } else if (input == "3000 ms") {
    TickAfter(milliseconds(3000));
  } else if (input == "14999 ms") {
    TickAfter(milliseconds(14999));
  } else if (input == "15000 ms") {
    TickAfter(milliseconds(15000));
  } else if (input == "an hour") {
    TickAfter(std::chrono::hours(1));
  } else if (input == "removed") {
    EXPECT_TRUE(machine_.Remove({kA}, effects_));
  } else {
    FAIL() << "no such input: " << input;
  }
  EXPECT_EQ(StateOf(), row.to);
  if (const Instance* found = Find()) {
    EXPECT_EQ(found->schedulable, found->state != State::kSuspect);
    EXPECT_EQ(found->reason, found->state == State::kSuspect ? "suspect" : "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    , InstancesStateTable,
    ::testing::Values(Row{State::kActive, "put", "ACTIVE"},                           //
                      Row{State::kActive, "put of another process", "ACTIVE"},        //
                      Row{State::kActive, "lease lost, answers", "LEASE_LOST"},       //
                      Row{State::kActive, "lease lost, does not answer", "SUSPECT"},  //
                      Row{State::kActive, "lease lost, no incarnation, answers", "LEASE_LOST"},
                      Row{State::kActive, "lease lost, no answer yet", "ACTIVE"},         //
                      Row{State::kActive, "stale delete", "ACTIVE"},                      //
                      Row{State::kActive, "heartbeat", "ACTIVE"},                         //
                      Row{State::kActive, "stale heartbeat", "ACTIVE"},                   //
                      Row{State::kActive, "an hour", "ACTIVE"},                           //
                      Row{State::kActive, "removed", "gone"},                             //
                      Row{State::kLeaseLost, "put", "ACTIVE"},                            //
                      Row{State::kLeaseLost, "put of another process", "ACTIVE"},         //
                      Row{State::kLeaseLost, "lease lost, answers", "LEASE_LOST"},        //
                      Row{State::kLeaseLost, "lease lost, does not answer", "SUSPECT"},   //
                      Row{State::kLeaseLost, "lease lost, no answer yet", "LEASE_LOST"},  //
                      Row{State::kLeaseLost, "stale delete", "LEASE_LOST"},               //
                      Row{State::kLeaseLost, "heartbeat", "LEASE_LOST"},                  //
                      Row{State::kLeaseLost, "stale heartbeat", "LEASE_LOST"},            //
                      Row{State::kLeaseLost, "2999 ms", "LEASE_LOST"},                    //
                      Row{State::kLeaseLost, "3000 ms", "SUSPECT"},                       //
                      Row{State::kLeaseLost, "removed", "gone"},                          //
                      Row{State::kSuspect, "put", "ACTIVE"},                              //
                      Row{State::kSuspect, "put of another process", "ACTIVE"},           //
                      Row{State::kSuspect, "lease lost, answers", "LEASE_LOST"},          //
                      Row{State::kSuspect, "lease lost, does not answer", "SUSPECT"},     //
                      Row{State::kSuspect, "stale delete", "SUSPECT"},                    //
                      Row{State::kSuspect, "heartbeat", "LEASE_LOST"},                    //
                      Row{State::kSuspect, "stale heartbeat", "SUSPECT"},                 //
                      Row{State::kSuspect, "14999 ms", "SUSPECT"},                        //
                      Row{State::kSuspect, "15000 ms", "gone"},                           //
                      Row{State::kSuspect, "removed", "gone"}),
    [](const auto& row) {
      std::string name(StateName(row.param.from));
      name.append("_").append(row.param.input);
      for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
      }
      return name;
    });

// Heartbeats keep a lost lease going, for ever if need be, but never bring the lease back.
TEST_F(InstancesState, HeartbeatsKeepALostLeaseSchedulable) {
  Reach(State::kLeaseLost);
  for (int i = 0; i < 20; ++i) {
    TickAfter(milliseconds(2900));
    Heartbeat();
  }
  EXPECT_EQ(StateOf(), "LEASE_LOST");
  TickAfter(milliseconds(3000));
  EXPECT_EQ(StateOf(), "SUSPECT");
}

TEST_F(InstancesState, AnAnsweredProbeRestartsTheHeartbeatClock) {
  Put();
  now_ += std::chrono::hours(1);
  LoseLease(true);
  TickAfter(milliseconds(2999));
  EXPECT_EQ(StateOf(), "LEASE_LOST");
}

TEST_F(InstancesState, AFailedProbeRestartsTheTimeInSuspect) {
  Reach(State::kSuspect);
  TickAfter(milliseconds(14000));
  LoseLease(false);
  TickAfter(milliseconds(14000));
  EXPECT_EQ(StateOf(), "SUSPECT");
  TickAfter(milliseconds(1000));
  EXPECT_EQ(StateOf(), "gone");
}

TEST_F(InstancesState, SuspectEnteredByTimeStaysItsWholeInterval) {
  Reach(State::kLeaseLost);
  TickAfter(milliseconds(5000));
  EXPECT_EQ(StateOf(), "SUSPECT");
  TickAfter(milliseconds(14999));
  EXPECT_EQ(StateOf(), "SUSPECT");
  TickAfter(milliseconds(1));
  EXPECT_EQ(StateOf(), "gone");
}

// The answer was asked for by a life, or a lease, that is over: it says nothing of the present one.
TEST_F(InstancesState, ALateProbeOfAnotherLifeChangesNothing) {
  Put();
  machine_.LeaseLost({kA}, "life-1", effects_);
  const ProbeTicket ticket = TakeProbe();
  Put(Record(kA, "life-2"));
  effects_ = {};
  machine_.OnProbe(ticket, false, now_, effects_);
  EXPECT_EQ(StateOf(), "ACTIVE");
  EXPECT_FALSE(effects_.view_changed);
}

TEST_F(InstancesState, ALateProbeOfARenewedLeaseChangesNothing) {
  Put();
  machine_.LeaseLost({kA}, "life-1", effects_);
  const ProbeTicket ticket = TakeProbe();
  EXPECT_EQ(Put(), PutOutcome::kRefreshed);
  machine_.OnProbe(ticket, false, now_, effects_);
  EXPECT_EQ(StateOf(), "ACTIVE");
}

TEST_F(InstancesState, ALateProbeOfARemovedAndReturnedNameChangesNothing) {
  Put();
  machine_.LeaseLost({kA}, "life-1", effects_);
  const ProbeTicket ticket = TakeProbe();
  machine_.Remove({kA}, effects_);
  machine_.OnProbe(ticket, true, now_, effects_);
  EXPECT_EQ(StateOf(), "gone");
  Put();
  machine_.OnProbe(ticket, false, now_, effects_);
  EXPECT_EQ(StateOf(), "ACTIVE");
}

TEST_F(InstancesState, OneProbeAtATimeAndOneAnswerCounts) {
  Put();
  machine_.LeaseLost({kA}, "life-1", effects_);
  machine_.LeaseLost({kA}, "life-1", effects_);
  ASSERT_EQ(effects_.probes.size(), 1u);
  const ProbeTicket ticket = TakeProbe();
  machine_.OnProbe(ticket, true, now_, effects_);
  machine_.OnProbe(ticket, false, now_, effects_);
  EXPECT_EQ(StateOf(), "LEASE_LOST");
}

TEST_F(InstancesState, UnknownNamesAreHarmless) {
  EXPECT_FALSE(machine_.Remove({kA}, effects_));
  machine_.LeaseLost({kA}, "", effects_);
  machine_.OnProbe({{kA}, 1}, true, now_, effects_);
  Heartbeat();
  EXPECT_FALSE(heartbeat_ok_);
  Tick();
  EXPECT_FALSE(effects_.view_changed);
  EXPECT_TRUE(effects_.probes.empty());
  EXPECT_TRUE(effects_.notices.empty());
}

TEST_F(InstancesState, ARefusedHeartbeatIsAConflict) {
  Put();
  const base::Status status = machine_.OnHeartbeat({{kA}, "life-0", {}}, now_, effects_);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, base::ErrorCode::kConflict);
  EXPECT_EQ(status.error().message, "instance not registered or stale incarnation");
}

// Identity.

TEST_F(InstancesState, AReplacementInheritsNothing) {
  Put();
  Heartbeat("life-1", LoadSample{3, 0.5});
  LoseLease(false);
  EXPECT_EQ(Put(Record(kA, "life-2")), PutOutcome::kReplaced);
  EXPECT_EQ(StateOf(), "ACTIVE");
  EXPECT_FALSE(Find()->has_load);
  Heartbeat("life-1", LoadSample{9, 0.9});
  EXPECT_FALSE(heartbeat_ok_);
  EXPECT_FALSE(Find()->has_load);
}

TEST_F(InstancesState, ARefreshKeepsTheLoadAndTakesTheNewRecord) {
  Put();
  Heartbeat("life-1", LoadSample{3, 0.5});
  model::InstanceRecord wider = Record(kA, "life-1");
  wider.dp_size = 2;
  effects_ = {};
  EXPECT_EQ(Put(wider), PutOutcome::kRefreshed);
  EXPECT_TRUE(effects_.members_changed);
  EXPECT_EQ(Find()->record.dp_size, 2);
  EXPECT_TRUE(Find()->has_load);
  effects_ = {};
  EXPECT_EQ(Put(wider), PutOutcome::kRefreshed);
  EXPECT_FALSE(effects_.view_changed) << "a keep-alive is not news";
}

// Engines that are too old to name an incarnation are told apart by their registration time, where
// both have one.
TEST_F(InstancesState, RegistrationTimeStandsInForTheIncarnation) {
  model::InstanceRecord old = Record(kA, "");
  old.identity.register_ts_ms = 1000;
  Put(old);
  EXPECT_EQ(Put(old), PutOutcome::kRefreshed);
  old.identity.register_ts_ms = 2000;
  EXPECT_EQ(Put(old), PutOutcome::kReplaced);
  old.identity.register_ts_ms = 0;
  EXPECT_EQ(Put(old), PutOutcome::kRefreshed) << "nothing to tell them apart by";
  Heartbeat("");
  EXPECT_TRUE(heartbeat_ok_);

  model::InstanceRecord young = Record(kA, "life-1");
  young.identity.register_ts_ms = 1000;
  EXPECT_EQ(Put(young), PutOutcome::kReplaced);
  young.identity.register_ts_ms = 2000;
  EXPECT_EQ(Put(young), PutOutcome::kRefreshed) << "the incarnation decides where there is one";
}

// Loads.

TEST_F(InstancesState, LoadsAreKeptAsTheyCome) {
  Put();
  effects_ = {};
  Heartbeat("life-1", LoadSample{3, 0.25});
  EXPECT_TRUE(effects_.view_changed);
  EXPECT_FALSE(effects_.members_changed) << "a load is not worth an announcement";
  EXPECT_TRUE(Find()->has_load);
  EXPECT_EQ(Find()->load.sample, (LoadSample{3, 0.25}));
  EXPECT_EQ(Find()->load.at, now_);
  EXPECT_EQ(Find()->load.source, "heartbeat");
}

TEST_F(InstancesState, AnInvalidLoadStaysInvalidUntilAValidOneComes) {
  Put();
  Heartbeat("life-1", LoadSample{std::nan(""), 0.25});
  EXPECT_TRUE(heartbeat_ok_) << "the engine is told nothing";
  EXPECT_TRUE(Find()->has_load);
  EXPECT_FALSE(Find()->load.sample.valid());
  Heartbeat();
  EXPECT_FALSE(Find()->load.sample.valid()) << "a heartbeat without load refreshes the clock only";
  Heartbeat("life-1", LoadSample{-1, 0.25});
  EXPECT_FALSE(Find()->load.sample.valid());
  Heartbeat("life-1", LoadSample{1, 0.25});
  EXPECT_TRUE(Find()->load.sample.valid());
  EXPECT_TRUE(Find()->schedulable);
}

TEST_F(InstancesState, AnOldLoadOfAnActiveInstanceIsWarnedAboutOnceALife) {
  Put();
  Heartbeat("life-1", LoadSample{1, 0});
  effects_ = {};
  TickAfter(milliseconds(10000));
  EXPECT_TRUE(effects_.notices.empty());
  TickAfter(milliseconds(1));
  ASSERT_EQ(effects_.notices.size(), 1u);
  EXPECT_EQ(effects_.notices[0].level, base::LogLevel::kWarning);
  EXPECT_THAT(effects_.notices[0].line,
              HasSubstr("10.0.0.5:8000: its last load report is 10001 ms old"));
  EXPECT_TRUE(Find()->has_load) << "loads do not expire";
  TickAfter(milliseconds(1000));
  Heartbeat("life-1", LoadSample{1, 0});
  TickAfter(milliseconds(20000));
  EXPECT_EQ(effects_.notices.size(), 1u);
  Put(Record(kA, "life-2"));
  Heartbeat("life-2", LoadSample{1, 0});
  effects_ = {};
  TickAfter(milliseconds(20000));
  EXPECT_EQ(effects_.notices.size(), 1u) << "another life, another warning";
}

TEST_F(InstancesState, NoLoadAtAllIsNotOld) {
  Put();
  effects_ = {};
  TickAfter(std::chrono::hours(1));
  EXPECT_TRUE(effects_.notices.empty());
}

// Planes and roles.

TEST_F(InstancesState, WhoCanBeScheduledRowByRow) {
  struct PlaneRow {
    Role type;
    DataPlane plane;
    const char* reason;
  };
  const std::vector<PlaneRow> rows = {
      {Role::kDefault, DataPlane::kHttp, ""},
      {Role::kPrefill, DataPlane::kHttp, "pd_needs_rpc"},
      {Role::kDecode, DataPlane::kHttp, "pd_needs_rpc"},
      {Role::kMix, DataPlane::kHttp, "pd_needs_rpc"},
      {Role::kDefault, DataPlane::kRpc, "rpc_plane_not_built"},
      {Role::kPrefill, DataPlane::kRpc, "rpc_plane_not_built"},
      {Role::kDecode, DataPlane::kRpc, "rpc_plane_not_built"},
      {Role::kMix, DataPlane::kRpc, "rpc_plane_not_built"},
  };
  for (const PlaneRow& row : rows) {
    model::InstanceRecord record = Record(kA, "life-1", row.type);
    record.data_plane = row.plane;
    Put(record);
    EXPECT_EQ(Find()->reason, row.reason)
        << RoleName(row.type) << " on " << DataPlaneName(row.plane);
    EXPECT_EQ(Find()->schedulable, std::string(row.reason).empty());
    machine_.Remove({kA}, effects_);
  }
}

TEST_F(InstancesState, TheFirstMixDecodesTheOthersPrefill) {
  Put(Record("a:1", "a", Role::kMix));
  Put(Record("b:1", "b", Role::kMix));
  Put(Record("c:1", "c", Role::kMix));
  EXPECT_EQ(Find("a:1")->current_role, Role::kDecode);
  EXPECT_EQ(Find("b:1")->current_role, Role::kPrefill);
  EXPECT_EQ(Find("c:1")->current_role, Role::kPrefill);
  Put(Record("b:1", "b", Role::kMix));
  EXPECT_EQ(Find("b:1")->current_role, Role::kPrefill) << "a refresh keeps the role";
  Put(Record("a:1", "a2", Role::kMix));
  EXPECT_EQ(Find("a:1")->current_role, Role::kDecode) << "it was the only one that decodes";
}

TEST_F(InstancesState, AMixBesideADecodePrefills) {
  Put(Record("d:1", "d", Role::kDecode));
  Put(Record("m:1", "m", Role::kMix));
  EXPECT_EQ(Find("m:1")->current_role, Role::kPrefill);
}

TEST_F(InstancesState, ARefreshWithAnotherTypeTakesTheRoleOfThatType) {
  Put(Record(kA, "life-1", Role::kPrefill));
  Put(Record(kA, "life-1", Role::kMix));
  EXPECT_EQ(Find()->current_role, Role::kDecode) << "it must not count its own former role";
  Put(Record(kA, "life-1", Role::kDefault));
  EXPECT_EQ(Find()->current_role, Role::kDefault);
}

TEST_F(InstancesState, ListedByNameBytes) {
  for (const char* name : {"b:1", "a:2", "a:10", "B:1", "\xc3\xa9:1"}) Put(Record(name, "x"));
  std::vector<std::string> names;
  for (const auto& instance : machine_.Instances()) names.push_back(instance->record.id.name);
  EXPECT_THAT(names, ::testing::ElementsAre("B:1", "a:10", "a:2", "b:1", "\xc3\xa9:1"));
}

// An operator can follow what happened; incarnations, which peers choose freely, are not in it.
TEST_F(InstancesState, EveryChangeOfStateIsOneLine) {
  model::InstanceRecord record = Record(kA, "life\n1", Role::kMix);
  record.dp_size = 2;
  Put(record);
  machine_.LeaseLost({kA}, "", effects_);
  machine_.OnProbe(TakeProbe(), false, now_, effects_);
  TickAfter(milliseconds(15000));
  std::vector<std::string> lines;
  for (const auto& notice : effects_.notices) lines.push_back(notice.line);
  EXPECT_THAT(
      lines,
      ::testing::ElementsAre(
          "instance 10.0.0.5:8000: ACTIVE, MIX acting as DECODE, 2 ranks, data plane http, "
          "not schedulable: pd_needs_rpc",
          "instance 10.0.0.5:8000: ACTIVE -> SUSPECT, the lease ended and it does not answer",
          "instance 10.0.0.5:8000: gone, SUSPECT for 15000 ms"));
}

}  // namespace
}  // namespace xms::instances
