// HttpPlane: forwards requests to engines that speak OpenAI over HTTP, and relays what they answer
// as it comes, headers and all.
//
// Place       Made by app; used by gateway through EnginePlane.
// Threads     Submit on any of the pool's loops; connections are pooled per loop, so a request and
//             its answer stay on one thread. repeated_requests: any.
// Ownership   Borrows the pool.
// Failure     An instance name that is no host:port is kInvalidArgument at kNotSent.
// Proof       PlaneHttp*.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "gateway/engine_plane.h"
#include "http/event_loop.h"

namespace xms::plane_http {

struct Options {
  std::chrono::milliseconds connect_timeout{5000};
  // Longest silence between two reads of an answer; negative: none.
  std::chrono::milliseconds idle_timeout{-1};
};

class HttpPlane final : public gateway::EnginePlane {
 public:
  HttpPlane(http::EventLoopPool& pool, Options options);
  ~HttpPlane() override;  // after the pool has stopped
  std::shared_ptr<gateway::EngineCall> Submit(http::EventLoop& loop, gateway::EngineRequest request,
                                              gateway::EngineHandlers handlers) override;
  // Requests that were sent once more (http/client.h, Pooling). Any thread.
  std::uint64_t repeated_requests() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace xms::plane_http
