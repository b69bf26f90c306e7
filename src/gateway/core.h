// Core: what all requests of one gateway share.
//
// Place       Made by Gateway; requests in flight keep it alive.
// Threads     Every member is internally synchronised or set once.
#pragma once

#include <atomic>
#include <cstdint>

#include "gateway/decision_log.h"
#include "gateway/failure_log.h"
#include "gateway/gateway.h"
#include "gateway/gateway_metrics.h"
#include "gateway/live_calls.h"
#include "gateway/request_id.h"
#include "gateway/unreachable_memory.h"

namespace xms::gateway {

struct Core {
  Core(Options given_options, Ports given_ports, std::uint64_t id_seed)
      : options(std::move(given_options)),
        ports(std::move(given_ports)),
        metrics(ports.metrics),
        decisions(options.decision_log_size),
        failures(*ports.clock),
        ids(id_seed) {}

  const Options options;
  const Ports ports;
  GatewayMetrics metrics;
  DecisionLog decisions;
  FailureLog failures;
  RequestIds ids;
  LiveCalls calls;
  UnreachableMemory unreachable;
  std::atomic<std::uint32_t> models_cursor{0};  // whom /v1/models asks next
};

}  // namespace xms::gateway
