// Engine: one simulated xLLM engine with its ports: OpenAI HTTP, KV events, registration, faults.
//
// Place       Fleet starts several; tests start one.
// Threads     Construction, Start, Stop and the accessors: the owner's thread. Everything else
//             happens on the one loop of the pool: requests, simulated time, faults, registration.
//             Publishers have threads of their own and post snapshot requests to the loop.
// Time        Simulated time runs time_scale times as fast as the clock, from Start on, restarts
//             included. A timer wakes the loop for the next thing that happens; being late costs
//             nothing but lateness.
// Life        Each life has an incarnation id, wire hashes and a sequence of its own. A restart by
//             fault breaks off what is under way and keeps the HTTP port.
// Failure     Start: kUnavailable naming the port that cannot be opened; nothing stays open then.
// Proof       SimEngine* over real sockets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "http/event_loop.h"
#include "sim/engine_core.h"
#include "sim/registrar.h"

namespace xms::sim {

struct EngineOptions {
  std::string host = "127.0.0.1";  // numeric; bound and advertised
  std::uint16_t port = 0;          // 0: any free one, likewise below
  std::string event_host = "127.0.0.1";
  // Of rank 0; rank r has the r-th port after it, or any free one.
  std::uint16_t event_port = 0;
  std::uint16_t replay_port = 0;
  std::string topic;
  std::uint64_t first_sequence = 1;
  std::string model_id = "sim";
  double time_scale = 1;              // simulated seconds a second
  std::uint32_t stream_interval = 1;  // tokens a streamed event
  EngineCoreOptions core;             // its hash_seed is the seed of the whole engine
  std::optional<RegistrarOptions> registration;
};

class Engine {
 public:
  // Borrows pool, which must have one loop, and clock.
  Engine(http::EventLoopPool& pool, const base::Clock& clock, EngineOptions options);
  ~Engine();  // Stop()
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  base::Status Start();
  // Begins to register, if that is configured.
  void Register();
  // Ends the registration; `done` runs on the loop when the service knows, or cannot be told.
  void Deregister(std::function<void()> done);
  // Closes every port, breaks off requests. May be called twice. Does not deregister.
  void Stop();

  // After Start.
  std::string name() const;  // host:port
  std::uint16_t port() const;
  std::uint16_t event_port(std::uint32_t rank) const;
  std::uint16_t replay_port(std::uint32_t rank) const;
  const EngineOptions& options() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace xms::sim
