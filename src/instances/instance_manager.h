// InstanceManager: which instances exist, in what state, with what load.
//
// Place       Fed by a Registry (registry/) and by heartbeats; read by everybody through view().
// Threads     All methods: any thread. The listener is called without a lock held, on the thread that caused
//             the change, after view() shows it; calls may be concurrent and must be cheap.
// Ownership   Borrows Clock and HealthProbe. Both must outlive it.
// Rules       States, in this simple form (the full machine of roles and links has its place in state/):
//             put → ACTIVE; end of a lease → probe: answers → LEASE_LOST, does not → SUSPECT; LEASE_LOST without a
//             heartbeat for lease_lost_heartbeat_timeout → SUSPECT; SUSPECT + heartbeat → LEASE_LOST;
//             SUSPECT for detect_disconnected_interval → gone. A replacement (other identity) inherits
//             nothing. Stale deletes and heartbeats (other incarnation) change nothing.
// Failure     Results only; nothing throws but std::bad_alloc.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "instances/instance_view.h"
#include "model/instance.h"

namespace xms::instances {

// Asks an engine whether it lives. Implemented by app over http; answers on any thread, exactly once.
class HealthProbe {
 public:
  virtual ~HealthProbe() = default;
  virtual void Probe(const model::InstanceId& id, std::function<void(bool alive)> done) = 0;
};

struct Options {
  std::chrono::milliseconds lease_lost_heartbeat_timeout{3000};
  std::chrono::milliseconds detect_disconnected_interval{15000};
};

struct Heartbeat {
  model::InstanceId id;
  std::string incarnation_id;
  std::optional<model::LoadSample> load;
};

class InstanceManager {
 public:
  InstanceManager(Options options, const base::Clock& clock, HealthProbe& probe);
  ~InstanceManager();
  InstanceManager(const InstanceManager&) = delete;
  InstanceManager& operator=(const InstanceManager&) = delete;

  enum class PutOutcome : std::uint8_t { kCreated, kReplaced, kRefreshed };
  PutOutcome Put(model::InstanceRecord record);
  // Deregistered by its owner: gone at once. False: unknown.
  bool Remove(const model::InstanceId& id);
  // The lease ended. `incarnation_id` empty or the current one; another is a stale delete and ignored.
  void LeaseLost(const model::InstanceId& id, std::string_view incarnation_id);
  // kConflict: not registered, or another incarnation.
  base::Status OnHeartbeat(const Heartbeat& heartbeat);
  // Time passes; call every second or more often.
  void Tick();

  std::shared_ptr<const InstanceView> view() const;
  // One listener. Set before the first Put.
  void SetListener(std::function<void()> changed);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace xms::instances
