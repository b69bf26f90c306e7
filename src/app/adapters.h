// Adapters: where one module's port meets another module's class. Nothing here decides anything.
//
// Place       app only; the modules on either side do not know each other.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "http/client.h"
#include "http/event_loop.h"
#include "instances/instance_manager.h"
#include "kv_directory/discovery/stream_plan.h"

namespace xms::app {

// GET /health on the instance's own address: alive means status 200 within the time allowed.
//
// Threads     Probe: any thread; the answer comes on the loop's thread.
// Ownership   Borrows the loop, which must have stopped before this is destroyed.
class HttpHealthProbe final : public instances::HealthProbe {
 public:
  struct Options {
    std::chrono::milliseconds timeout{1000};  // per attempt, connecting included
    int attempts = 2;
  };
  HttpHealthProbe(http::EventLoop& loop, Options options);
  void Probe(const model::InstanceId& id, std::function<void(bool alive)> done) override;

 private:
  struct Attempt;
  void Try(std::shared_ptr<Attempt> attempt);

  http::EventLoop& loop_;
  Options options_;
  http::HttpClient client_;
};

// The instance manager's snapshot as the directory wants to see it.
class InstanceSourceAdapter final : public kv_directory::InstanceSource {
 public:
  explicit InstanceSourceAdapter(const instances::InstanceManager& manager) : manager_(manager) {}
  std::vector<kv_directory::SourceInstance> Instances() const override;

 private:
  const instances::InstanceManager& manager_;
};

}  // namespace xms::app
