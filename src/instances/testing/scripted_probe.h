// ScriptedProbe: a HealthProbe that answers when and how a test says.
//
// Threads     Any.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "instances/instance_manager.h"

namespace xms::instances::testing {

class ScriptedProbe final : public HealthProbe {
 public:
  void Probe(const model::InstanceId& id, std::function<void(bool alive)> done) override {
    base::MutexLock lock(mu_);
    asked_.push_back({id.name, std::move(done)});
  }

  std::size_t waiting() const {
    base::MutexLock lock(mu_);
    return asked_.size();
  }

  // Answers the oldest question; false when there is none, or it was not about `name`.
  bool Answer(const std::string& name, bool alive) {
    std::function<void(bool)> done;
    {
      base::MutexLock lock(mu_);
      if (asked_.empty() || asked_.front().first != name) return false;
      done = std::move(asked_.front().second);
      asked_.erase(asked_.begin());
    }
    done(alive);
    return true;
  }

 private:
  mutable base::Mutex mu_;
  std::vector<std::pair<std::string, std::function<void(bool)>>> asked_ XMS_GUARDED_BY(mu_);
};

}  // namespace xms::instances::testing
