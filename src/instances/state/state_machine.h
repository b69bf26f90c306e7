// StateMachine: what becomes of each registered instance, input by input.
//
// Place       Inside InstanceManager, which brings time, threads and probes. Roles that change by
//             themselves and P/D links (the cluster's part) belong here too.
// Threads     One at a time; no clock, no I/O, no threads of its own: times come with the inputs.
// States      event                           ACTIVE       LEASE_LOST       SUSPECT
//             put, same process               ACTIVE       ACTIVE           ACTIVE
//             put, another process            new ACTIVE   new ACTIVE       new ACTIVE
//             lease lost, probe answers       LEASE_LOST   LEASE_LOST       LEASE_LOST
//             lease lost, probe fails         SUSPECT      SUSPECT          SUSPECT, time restarts
//             heartbeat                       –            clock restarts   LEASE_LOST
//             lease_lost_heartbeat_timeout    –            SUSPECT          –
//             detect_disconnected_interval    –            –                gone
//             removed                         gone         gone             gone
// Invariants  I1  A process that takes a name over inherits nothing: no load, no role, no state.
//             I2  What speaks of another life changes nothing: a delete or heartbeat of another
//                 incarnation, a probe that was asked before the last put.
//             I3  SUSPECT is never schedulable.
// Cost        An input copies one Instance, a tick none unless something is due.
// Proof       InstancesState*, InstancesStateRandom*.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "instances/instance_view.h"
#include "instances/state/inputs.h"

namespace xms::instances {

// Names the lease whose end is being looked into, so that a late answer is recognised.
struct ProbeTicket {
  model::InstanceId id;
  std::uint64_t lease = 0;
};

// What an input led to. Several inputs may add to one.
struct Effects {
  bool view_changed = false;        // Instances() is different
  bool members_changed = false;     // and by more than a load: who, which state, role or record
  std::vector<ProbeTicket> probes;  // ask these engines, then call OnProbe
  struct Notice {
    base::LogLevel level;
    std::string line;
  };
  std::vector<Notice> notices;  // for the log
};

class StateMachine {
 public:
  explicit StateMachine(Options options) : options_(options) {}

  PutOutcome Put(model::InstanceRecord record, base::SteadyTime now, Effects& effects);
  bool Remove(const model::InstanceId& id, Effects& effects);
  void LeaseLost(const model::InstanceId& id, std::string_view incarnation_id, Effects& effects);
  void OnProbe(const ProbeTicket& ticket, bool alive, base::SteadyTime now, Effects& effects);
  base::Status OnHeartbeat(const Heartbeat& heartbeat, base::SteadyTime now, Effects& effects);
  void Tick(base::SteadyTime now, Effects& effects);

  // By name bytes.
  std::vector<std::shared_ptr<const Instance>> Instances() const;

 private:
  struct Entry {
    std::shared_ptr<const Instance> shown;  // never null outside Put
    base::SteadyTime heard;                 // last put, accepted heartbeat or answered probe
    base::SteadyTime suspect_since;         // while SUSPECT
    std::uint64_t lease = 0;                // of the last put; no two puts share one
    bool probing = false;                   // the end of this lease is being looked into
    bool warned_of_age = false;             // once a life
  };

  model::Role RoleFor(const model::InstanceRecord& record) const;
  void Show(Entry& entry, Instance next, Effects& effects);
  void Enter(Entry& entry, State state, base::SteadyTime now, std::string_view why,
             Effects& effects);

  const Options options_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::uint64_t leases_ = 0;
};

}  // namespace xms::instances
