// Records for tests of instances.
#pragma once

#include <string>
#include <utility>

#include "model/instance.h"

namespace xms::instances {

// A DEFAULT engine on the HTTP plane: what can serve.
inline model::InstanceRecord Record(std::string name, std::string incarnation) {
  model::InstanceRecord record;
  record.id.name = std::move(name);
  record.identity.incarnation_id = std::move(incarnation);
  record.data_plane = model::DataPlane::kHttp;
  return record;
}

inline model::InstanceRecord Record(std::string name, std::string incarnation, model::Role type) {
  model::InstanceRecord record = Record(std::move(name), std::move(incarnation));
  record.type = type;
  return record;
}

}  // namespace xms::instances
