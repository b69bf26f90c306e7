// Gateway: every HTTP route of the service. Public routes for clients, internal ones for operators
// and engines.
//
// Place       Made by app, which hands HandlePublic and HandleRpcPort to two HttpServers.
// Threads     Handle…: any of the pool's loops, concurrently. Nothing on the request path takes a
//             lock that a writer of the index or of the instances holds.
// Ownership   Borrows everything in Ports; all must outlive the servers that call it.
// Failure     A request always gets an answer: an engine's own, or an OpenAI error object by the
//             one table in error_map.h.
// Proof       Gateway*, KVCacheQuery*, tests/integration.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gateway/engine_plane.h"
#include "http/server.h"
#include "instances/instance_manager.h"
#include "instances/registry/embedded_registry.h"
#include "kv_index/kv_index.h"
#include "observability/metrics.h"
#include "routing/policy.h"

namespace xms::gateway {

struct Options {
  std::string internal_api_token;  // "": none
  std::size_t http_max_body_bytes = 16 * 1024 * 1024;
  std::size_t max_concurrency = 0;  // requests in flight, to the end of the stream; 0: unlimited
  std::size_t decision_log_size = 1000;  // decisions kept
  // Until the client is sent the first of an answer (AnswerRelay's modes say when); negative: none.
  std::chrono::milliseconds request_timeout{-1};
};

struct Ports {
  const base::Clock* clock = nullptr;
  const kv_index::KvIndex* index = nullptr;  // null: the directory is off
  instances::InstanceManager* instances = nullptr;
  instances::EmbeddedRegistry* registry = nullptr;  // null: registry writes answer 409
  routing::Policy* policy = nullptr;
  EnginePlane* http_plane = nullptr;
  observability::MetricRegistry* metrics = nullptr;
  // Instances that discovery left out: name and reason. May be empty.
  std::function<std::vector<std::pair<std::string, std::string>>()> excluded;
  // /ready: empty when ready, else the reasons.
  std::function<std::vector<std::string>()> not_ready_reasons;
  // /v1/internal/config: configured values as JSON, without secrets.
  std::function<std::string()> config_json;
};

class Gateway {
 public:
  Gateway(Options options, Ports ports);
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // HTTP port: /v1/completions, /v1/chat/completions, /v1/models, /v1/internal/kv-cache/query,
  // /v1/internal/heartbeat, /health, /metrics.
  void HandlePublic(std::shared_ptr<http::Exchange> exchange);
  // RPC port: /health, /ready, /metrics, /v1/internal/heartbeat, /v1/internal/instances…,
  // /v1/internal/routing/decisions, /v1/internal/config.
  void HandleRpcPort(std::shared_ptr<http::Exchange> exchange);
  // Asked when a request's headers are there, before its body is read: what an internal path
  // without the right token is answered. Any loop.
  std::optional<http::Response> RefuseAtHeaders(const http::Request& request);
  // Answers which the HTTP server has to give by itself (413, 400, …). Any loop.
  http::Response AnswerRefusal(const http::Refusal& refusal);
  // Ends what is still in flight, so that clients learn why: streams by an error event, others by
  // 503. Any thread; the answers go out on the requests' own loops, soon after.
  void EndAll();
  // Who is registered has changed: requests that are with an engine which is no longer end like
  // those whose engine broke off. Any thread; cheap.
  void OnInstancesChanged();

  std::size_t requests_in_flight() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace xms::gateway
