// InstanceView: every known instance at one moment, immutable; what routing, discovery and listings
// read.
//
// Place       Published by InstanceManager; read by gateway (candidates) and, through app, by
// kv_directory. Threads     Immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "model/instance.h"

namespace xms::instances {

enum class State : std::uint8_t { kActive, kLeaseLost, kSuspect };
std::string_view StateName(State state);  // "ACTIVE", "LEASE_LOST", "SUSPECT"

struct Load {
  model::LoadSample sample;
  base::SteadyTime at;  // when it arrived
  std::string source;   // "heartbeat"
};

struct Instance {
  model::InstanceRecord record;
  State state = State::kActive;
  model::Role current_role = model::Role::kDefault;  // MIX acts as PREFILL or DECODE
  bool has_load = false;                             // some load report has come in this life
  Load load;
  // Can be chosen for requests right now; otherwise `reason` says why not in a word or two.
  bool schedulable = false;
  std::string reason;  // "" while schedulable; "suspect", "pd_needs_rpc", "rpc_plane_not_built", …
};

struct InstanceView {
  std::vector<std::shared_ptr<const Instance>> instances;  // by name bytes
  std::uint64_t version = 0;                               // grows with each change
  // nullptr when unknown.
  const Instance* Find(std::string_view name) const;
  // Readiness: one schedulable DEFAULT, or PREFILL + DECODE, or MIX as each.
  bool GroupCanServe() const;
};

}  // namespace xms::instances
