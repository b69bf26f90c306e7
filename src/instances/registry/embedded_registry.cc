#include "instances/registry/embedded_registry.h"

#include <utility>

namespace xms::instances {

EmbeddedRegistry::EmbeddedRegistry(const base::Clock& clock, InstanceManager& manager)
    : clock_(clock), manager_(manager) {}

InstanceManager::PutOutcome EmbeddedRegistry::Put(model::InstanceRecord record,
                                                  std::chrono::milliseconds ttl) {
  base::MutexLock lock(mu_);
  leases_[record.id.name] = {clock_.Now() + ttl, record.identity.incarnation_id};
  return manager_.Put(std::move(record));
}

bool EmbeddedRegistry::Remove(const model::InstanceId& id) {
  base::MutexLock lock(mu_);
  leases_.erase(id.name);
  return manager_.Remove(id);
}

void EmbeddedRegistry::Tick() {
  base::MutexLock lock(mu_);
  const base::SteadyTime now = clock_.Now();
  for (auto at = leases_.begin(); at != leases_.end();) {
    if (now < at->second.ends) {
      ++at;
      continue;
    }
    manager_.LeaseLost({at->first}, at->second.incarnation_id);
    at = leases_.erase(at);
  }
}

}  // namespace xms::instances
