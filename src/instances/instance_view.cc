#include "instances/instance_view.h"

#include <algorithm>

namespace xms::instances {

std::string_view StateName(State state) {
  switch (state) {
    case State::kActive:
      return "ACTIVE";
    case State::kLeaseLost:
      return "LEASE_LOST";
    case State::kSuspect:
      return "SUSPECT";
  }
  return "unknown";
}

const Instance* InstanceView::Find(std::string_view name) const {
  const auto at = std::lower_bound(instances.begin(), instances.end(), name,
                                   [](const auto& instance, std::string_view wanted) {
                                     return instance->record.id.name < wanted;
                                   });
  return at != instances.end() && (*at)->record.id.name == name ? at->get() : nullptr;
}

// As upstream decides it: MIX pairs with MIX only, though PREFILL with a MIX that decodes would do.
bool InstanceView::GroupCanServe() const {
  using model::Role;
  bool prefill = false;
  bool decode = false;
  bool mix_prefill = false;
  bool mix_decode = false;
  for (const auto& instance : instances) {
    if (!instance->schedulable) continue;
    switch (instance->record.type) {
      case Role::kDefault:
        return true;
      case Role::kPrefill:
        prefill = true;
        break;
      case Role::kDecode:
        decode = true;
        break;
      case Role::kMix:
        (instance->current_role == Role::kDecode ? mix_decode : mix_prefill) = true;
        break;
    }
  }
  return (prefill && decode) || (mix_prefill && mix_decode);
}

}  // namespace xms::instances
