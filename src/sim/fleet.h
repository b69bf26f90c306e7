// Fleet: the engines of one process, their ports and their order of start and stop.
//
// Place       main.cc; tests.
// Threads     The owner's thread. One event loop serves all engines.
// Start       Opens every port of every engine before any of them registers. Without given ports it
//             looks for a place for the whole fleet, probes all its ports together, and looks again
//             when another process was faster.
// Stop        Every engine is taken off the service's list, at most kFarewell long, then closed.
// Failure     Start: kUnavailable naming the port and the flag that changes it, kInvalidArgument
//             when the given ports cannot work; nothing stays open.
// Proof       SimFleet*.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "http/event_loop.h"
#include "sim/engine.h"
#include "sim/options.h"
#include "sim/port_plan.h"

namespace xms::sim {

class Fleet {
 public:
  static constexpr std::chrono::milliseconds kFarewell{1500};

  // Borrows the clock.
  Fleet(FleetOptions options, const base::Clock& clock);
  ~Fleet();  // Stop()
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  base::Status Start();
  void Stop();

  // After Start: {"engines":[{"name",…}],…}, one line.
  std::string DescriptionJson() const;
  const std::vector<std::unique_ptr<Engine>>& engines() const { return engines_; }

 private:
  base::Status FindPlace(const PortRequest& request);
  base::Status StartAt(const PortPlan& plan);
  EngineOptions OptionsOf(std::size_t index, const PortPlan& plan) const;

  const FleetOptions options_;
  const base::Clock& clock_;
  std::uint64_t seed_;
  PortPlan plan_;
  http::EventLoopPool pool_{1};
  std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace xms::sim
