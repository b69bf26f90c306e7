// InstanceManager: which instances exist, in what state, with what load.
//
// Place       Fed by a Registry (registry/) and by heartbeats; read by everybody through view().
// Threads     All methods: any thread. view() neither locks nor waits, whatever writers do. The
//             listener is called without a lock of this class held, on the thread that caused the
//             change, after view() shows it; calls may be concurrent and must be cheap.
// Ownership   Borrows Clock and HealthProbe. Both must outlive it. A probe may answer after the
//             manager is gone (nothing happens), but not while it goes: stop its threads first.
// Rules       States: the table in state/state_machine.h. In short: put → ACTIVE; end of a lease →
//             probe: answers → LEASE_LOST, does not → SUSPECT; LEASE_LOST without a heartbeat for
//             lease_lost_heartbeat_timeout → SUSPECT; SUSPECT + heartbeat → LEASE_LOST; SUSPECT for
//             detect_disconnected_interval → gone. A replacement (other identity) inherits nothing.
//             Stale deletes and heartbeats (other incarnation) change nothing.
// Loads       Kept as they came; an invalid one makes the instance's load invalid until a valid one
//             comes. They do not expire; one older than 10 s on an ACTIVE instance is warned about
//             once a life.
// Failure     Results only; nothing throws but std::bad_alloc.
// Cost        A change copies the list of pointers to all instances.
// Proof       InstancesManager*, InstancesState*, InstancesManagerStress* under tsan.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "instances/instance_view.h"
#include "instances/state/inputs.h"
#include "model/instance.h"

namespace xms::instances {

// Asks an engine whether it lives. Implemented by app over http; answers on any thread, exactly
// once.
class HealthProbe {
 public:
  virtual ~HealthProbe() = default;
  virtual void Probe(const model::InstanceId& id, std::function<void(bool alive)> done) = 0;
};

class InstanceManager {
 public:
  InstanceManager(Options options, const base::Clock& clock, HealthProbe& probe);
  ~InstanceManager();
  InstanceManager(const InstanceManager&) = delete;
  InstanceManager& operator=(const InstanceManager&) = delete;

  using PutOutcome = instances::PutOutcome;
  PutOutcome Put(model::InstanceRecord record);
  // Deregistered by its owner: gone at once. False: unknown.
  bool Remove(const model::InstanceId& id);
  // The lease ended. `incarnation_id` empty or the current one; another is a stale delete and
  // ignored.
  void LeaseLost(const model::InstanceId& id, std::string_view incarnation_id);
  // kConflict: not registered, or another incarnation.
  base::Status OnHeartbeat(const Heartbeat& heartbeat);
  // Time passes; call every second or more often.
  void Tick();

  std::shared_ptr<const InstanceView> view() const;
  // One listener, for changes of who exists, in which state, role or record; loads are not
  // announced. Set before the first Put.
  void SetListener(std::function<void()> changed);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // probes in flight hold it weakly
};

}  // namespace xms::instances
