// ReadinessGate: when the client port opens and closes.
//
// Place       Driven by Service; knows neither sockets nor instances.
// Threads     Externally synchronised.
// Rules       Open as soon as an instance group can serve, but after a start wait up to `warmup`
//             for the event streams to synchronize (then serve regardless). Close only after
//             `linger` without a group, so that a flapping engine does not flap the port.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace xms::app {

class ReadinessGate {
 public:
  struct Options {
    std::chrono::milliseconds warmup{2000};
    std::chrono::milliseconds linger{3000};
  };

  ReadinessGate(Options options, base::SteadyTime started) : options_(options), started_(started) {}

  // Call on every change and a few times a second. True: the client port should be open.
  bool Update(base::SteadyTime now, bool group_can_serve, bool streams_settled);
  bool open() const { return open_; }
  // The service has begun to stop: not ready any more, whatever else.
  void Stopping() { stopping_ = true; }
  // Why no requests should be sent here, one word each; empty when they can be.
  std::vector<std::string> Reasons() const;

 private:
  Options options_;
  base::SteadyTime started_;
  bool open_ = false;
  bool stopping_ = false;
  bool warm_ = false;  // the wait for streams is over, for good
  bool group_can_serve_ = false;
  std::optional<base::SteadyTime> without_group_since_;
};

}  // namespace xms::app
