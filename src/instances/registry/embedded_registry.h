// EmbeddedRegistry: instances that register over the RPC port, kept alive by repeating it.
//
// Place       The gateway's registry routes call Put and Remove; app ticks it.
// Threads     All methods: any thread.
// Ownership   Borrows Clock and InstanceManager.
// Rules       The end of a TTL is a lease loss, as with etcd. Nothing survives a restart of the service: engines
//             register again within one TTL.
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
  InstanceManager::PutOutcome Put(model::InstanceRecord record, std::chrono::milliseconds ttl);
  bool Remove(const model::InstanceId& id);
  // Ends leases whose time has come; call several times a second.
  void Tick();

 private:
  struct Lease {
    base::SteadyTime ends;
    std::chrono::milliseconds ttl;
    std::string incarnation_id;
  };
  const base::Clock& clock_;
  InstanceManager& manager_;
  base::Mutex mu_;
  std::map<std::string, Lease> leases_ XMS_GUARDED_BY(mu_);
};

}  // namespace xms::instances
