// EmbeddedRegistry: instances that register over the RPC port, kept alive by repeating it.
//
// Place       The gateway's registry routes call Put and Remove; app ticks it.
// Threads     All methods: any thread.
// Ownership   Borrows Clock and InstanceManager.
// Locks       mu_ is held across the calls into the manager (its listener, log lines and the start
//             of probes included), so that lease and state change in one order: none of these may
//             call the registry. Readers of the view never meet it.
// Rules       The end of a TTL is a lease loss, as with etcd. Nothing survives a restart of the
//             service: engines register again within one TTL.
// Proof       InstancesEmbeddedRegistry*.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "instances/instance_manager.h"
#include "instances/registry/registry.h"
#include "model/instance.h"

namespace xms::instances {

inline constexpr std::chrono::milliseconds kMinTtl{1000};
inline constexpr std::chrono::milliseconds kMaxTtl{3'600'000};

class EmbeddedRegistry final : public Registry {
 public:
  EmbeddedRegistry(const base::Clock& clock, InstanceManager& manager);

  std::string Describe() const override { return "embedded registry"; }
  void Stop() override {}

  // `ttl` within kMinTtl … kMaxTtl, checked by the caller (its error names the query parameter).
  InstanceManager::PutOutcome Put(model::InstanceRecord record, std::chrono::milliseconds ttl)
      XMS_EXCLUDES(mu_);
  bool Remove(const model::InstanceId& id) XMS_EXCLUDES(mu_);
  // Ends leases whose time has come; call several times a second.
  void Tick() XMS_EXCLUDES(mu_);

 private:
  struct Lease {
    base::SteadyTime ends;
    std::string incarnation_id;
  };
  const base::Clock& clock_;
  InstanceManager& manager_;
  base::Mutex mu_;
  std::map<std::string, Lease> leases_ XMS_GUARDED_BY(mu_);
};

}  // namespace xms::instances
