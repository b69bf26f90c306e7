#include "instances/instance_manager.h"

#include <utility>

#include "base/epoch.h"
#include "base/log.h"
#include "base/mutex.h"
#include "instances/state/state_machine.h"

namespace xms::instances {

struct InstanceManager::Impl : std::enable_shared_from_this<Impl> {
  Impl(Options options, const base::Clock& clock_in, HealthProbe& probe_in)
      : clock(clock_in), probe(probe_in), states(options) {}

  // Runs one input and lets its effects happen: the view under the lock, so that views appear in
  // the order of the inputs; everything that leaves this class after it.
  template <typename Input>
  auto Apply(const Input& input) {
    Effects effects;
    auto result = [&] {
      base::MutexLock lock(mu);
      auto answer = input(states, effects);
      if (effects.view_changed) Publish();
      return answer;
    }();
    for (const Effects::Notice& notice : effects.notices) base::Log(notice.level, notice.line);
    if (effects.members_changed && listener) listener();
    for (ProbeTicket& ticket : effects.probes) {
      const model::InstanceId id = ticket.id;
      probe.Probe(id, [weak = weak_from_this(), ticket = std::move(ticket)](bool alive) {
        if (const std::shared_ptr<Impl> impl = weak.lock()) impl->OnProbe(ticket, alive);
      });
    }
    return result;
  }

  void OnProbe(const ProbeTicket& ticket, bool alive) {
    Apply([&](StateMachine& machine, Effects& effects) {
      machine.OnProbe(ticket, alive, clock.Now(), effects);
      return true;
    });
  }

  void Publish() XMS_REQUIRES(mu) {
    auto next = std::make_shared<InstanceView>();
    next->instances = states.Instances();
    next->version = ++version;
    current.Set(std::make_unique<const std::shared_ptr<const InstanceView>>(std::move(next)));
  }

  const base::Clock& clock;
  HealthProbe& probe;
  std::function<void()> listener;  // set before the first input, constant afterwards
  base::Mutex mu;
  StateMachine states XMS_GUARDED_BY(mu);
  std::uint64_t version XMS_GUARDED_BY(mu) = 0;
  base::SnapshotCell<std::shared_ptr<const InstanceView>> current{
      std::make_unique<const std::shared_ptr<const InstanceView>>(
          std::make_shared<const InstanceView>())};
};

InstanceManager::InstanceManager(Options options, const base::Clock& clock, HealthProbe& probe)
    : impl_(std::make_shared<Impl>(options, clock, probe)) {}

InstanceManager::~InstanceManager() = default;

PutOutcome InstanceManager::Put(model::InstanceRecord record) {
  return impl_->Apply([&](StateMachine& states, Effects& effects) {
    return states.Put(std::move(record), impl_->clock.Now(), effects);
  });
}

bool InstanceManager::Remove(const model::InstanceId& id) {
  return impl_->Apply(
      [&](StateMachine& states, Effects& effects) { return states.Remove(id, effects); });
}

void InstanceManager::LeaseLost(const model::InstanceId& id, std::string_view incarnation_id) {
  impl_->Apply([&](StateMachine& states, Effects& effects) {
    states.LeaseLost(id, incarnation_id, effects);
    return true;
  });
}

base::Status InstanceManager::OnHeartbeat(const Heartbeat& heartbeat) {
  return impl_->Apply([&](StateMachine& states, Effects& effects) {
    return states.OnHeartbeat(heartbeat, impl_->clock.Now(), effects);
  });
}

void InstanceManager::Tick() {
  impl_->Apply([&](StateMachine& states, Effects& effects) {
    states.Tick(impl_->clock.Now(), effects);
    return true;
  });
}

std::shared_ptr<const InstanceView> InstanceManager::view() const {
  base::EpochGuard guard;
  return *impl_->current.Get();
}

void InstanceManager::SetListener(std::function<void()> changed) {
  impl_->listener = std::move(changed);
}

}  // namespace xms::instances
