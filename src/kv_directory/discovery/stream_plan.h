// PlanStreams: which streams should exist, given the instances that exist. A pure function.
//
// Place       Called by Directory at each refresh; app adapts instances to InstanceSource.
// Threads     PlanStreams: any. InstanceSource::Instances: the directory's refresh thread; must
//             not block.
// Source      Requirements E2, E3, E6, E7.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv_directory/config.h"
#include "model/instance.h"

namespace xms::kv_directory {

// An instance in the manager's local snapshot (E1), reduced to what a plan needs.
struct SourceInstance {
  model::InstanceRecord record;
  model::Role current_role = model::Role::kDefault;  // MIX as it acts now
  bool suspect = false;
};

class InstanceSource {
 public:
  virtual ~InstanceSource() = default;
  virtual std::vector<SourceInstance> Instances() const = 0;
};

struct Excluded {
  std::string instance_name;
  std::string reason;  // one sentence with the numbers
  bool operator==(const Excluded&) const = default;
};

struct StreamPlan {
  std::vector<StreamSpec> streams;  // by key
  std::vector<Excluded> excluded;   // by name
};

StreamPlan PlanStreams(const DiscoveryConfig& config, const Limits& limits,
                       std::vector<SourceInstance> instances);

}  // namespace xms::kv_directory
