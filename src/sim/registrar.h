// Registrar: keeps one engine registered at a service's embedded registry, and its load reported.
//
// Place       Engine owns one when it has a service. Talks HTTP to the service's RPC port.
// Threads     Confined to its event loop, construction and destruction included.
// Life        PUT of the instance until it succeeds, again each third of the TTL (the keep-alive)
//             and at once when a heartbeat is answered by 409 or 404. Heartbeats with load only
//             while registered. Stop sends DELETE.
// Failure     A service that is away or refuses is asked again with capped, jittered back-off, for
//             ever; one log line per change. A heartbeat that fails is not repeated: the next one
//             is due anyway.
// Proof       SimRegistrar*.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "base/error.h"
#include "http/client.h"
#include "http/event_loop.h"
#include "model/instance.h"

namespace xms::sim {

struct RegistrarOptions {
  http::Address service;
  std::string token;                     // of the service's internal endpoints; empty: none
  std::chrono::milliseconds ttl{15000};  // 1000 … 3600000
  std::chrono::milliseconds heartbeat_interval{500};
  std::chrono::milliseconds first_retry{50};
  std::chrono::milliseconds longest_retry{2000};
  std::uint64_t seed = 0;  // of the jitter
};

class Registrar {
 public:
  // Starts to register. `load` is asked on the loop.
  Registrar(http::EventLoop& loop, RegistrarOptions options, model::InstanceRecord record,
            std::function<model::LoadSample()> load);
  ~Registrar() { stopped_ = true; }  // before the calls of client_ end
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  // Registers again at once under another identity.
  void Restart(model::ProcessIdentity identity);
  // No more registrations and heartbeats. `done` runs when the service has answered the DELETE, or
  // cannot.
  void Stop(std::function<void()> done);

  bool registered() const { return registered_; }
  std::uint64_t heartbeats() const { return heartbeats_; }  // accepted ones

 private:
  void Register();
  void OnRegisterAnswer(base::Result<http::Response> answer);
  void RetryLater(const std::string& reason);
  void Heartbeat();
  void OnHeartbeatAnswer(std::uint64_t life, base::Result<http::Response> answer);
  void HeartbeatLater();
  http::Request RequestTo(std::string method, std::string target, std::string body) const;

  http::EventLoop& loop_;
  const RegistrarOptions options_;
  model::InstanceRecord record_;
  const std::function<model::LoadSample()> load_;
  std::mt19937_64 random_;

  bool registered_ = false;
  bool was_refused_ = false;  // and that was logged
  bool stopped_ = false;
  std::uint64_t life_ = 0;  // the answer to an earlier life's heartbeat means nothing
  std::uint64_t heartbeats_ = 0;
  std::chrono::milliseconds retry_;
  std::shared_ptr<http::HttpClient::Call> registering_;  // the PUT under way
  std::unique_ptr<http::EventLoop::Timer> register_timer_;
  std::unique_ptr<http::EventLoop::Timer> heartbeat_timer_;
  // Last: ends its calls, whose callbacks look at the members above.
  http::HttpClient client_;
};

}  // namespace xms::sim
