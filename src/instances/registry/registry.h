// Registry: where instances are found. EmbeddedRegistry (embedded_registry.h) keeps them itself;
// the etcd client takes its place behind the same interface.
//
// Place       Made and owned by app; writes into InstanceManager.
// Threads     As each implementation says.
#pragma once

#include <string>

namespace xms::instances {

class Registry {
 public:
  virtual ~Registry() = default;
  // For the first log line: "embedded registry".
  virtual std::string Describe() const = 0;
  virtual void Stop() = 0;
};

}  // namespace xms::instances
