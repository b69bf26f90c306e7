// ProxyCall: one client request on its way through: route, send, relay, account for.
//
// Place       Started by Gateway for the routes that engines answer.
// Threads     Everything on the loop of the client's connection.
// Ownership   Kept alive by the engine call's handlers; ends with the answer.
// Failure     Engine not reached: another one, each once, for kRetryBudget at most, as long as the
//             client has seen nothing and the engine cannot have begun (or the request is one that
//             may be repeated). Otherwise 502, 504 or a broken stream. Client gone: the engine is
//             told at once. Engine too busy (429) while another pauses: that one is asked, and only
//             if it cannot be reached the client gets the 429. Another process under the engine's name, or an engine given up as suspect:
//             as if it had broken off, since one that hangs would never say so. One that is
//             deregistered while it lives ends what it has.
// Invariants  Every request is accounted for exactly once, before its last byte goes out: status,
//             durations, decision record, requests in flight.
// Proof       GatewayProxy*, GatewayIntegration*.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/answer_relay.h"
#include "gateway/core.h"
#include "gateway/request_router.h"
#include "http/server.h"

namespace xms::gateway {

class ProxyCall : public std::enable_shared_from_this<ProxyCall> {
 public:
  // A refusal costs next to nothing, so that half a fleet may be down; a connection attempt that
  // hangs may use it up alone.
  static constexpr std::chrono::seconds kRetryBudget{10};

  static void Start(std::shared_ptr<Core> core, Route route,
                    std::shared_ptr<http::Exchange> exchange);

  ProxyCall(std::shared_ptr<Core> core, Route route, std::shared_ptr<http::Exchange> exchange);

 private:
  void Begin();
  void Attempt();
  void OnSent();
  void OnHeaders(int status, const http::Headers& headers);
  void OnBody(std::string chunk, std::function<void()> resume);
  void OnEnd();
  void OnEngineError(const base::Error& error, EngineStage stage);
  void OnDeadline();
  void OnClientGone();
  void OnNews(LiveCalls::News news);
  void OnInstancesChanged();
  void Refuse(const GatewayError& error);
  // An engine was too busy while another pauses: that one is asked before the client is refused.
  bool TryWhoPauses();
  void PassOnRefusal();
  GatewayError Told(const base::Error& error, EngineStage stage) const;
  // What was collected of an answer that is not complete: the client gets none of it.
  void ForgetUnseen();
  // Ends what has not ended: by this answer, or where an answer has begun, by breaking it.
  void EndWith(const GatewayError& error);
  // False when the request is accounted for already.
  bool Account(int status);

  const std::shared_ptr<Core> core_;
  const Route route_;
  const std::shared_ptr<http::Exchange> exchange_;
  const base::SteadyTime began_;
  const std::string request_id_;
  InFlight in_flight_;
  AnswerRelay relay_;
  std::optional<AnswerRelay> refusal_;  // an engine's, held while another is asked
  bool passed_over_ = false;            // somebody pauses who might have served
  std::unique_ptr<http::EventLoop::Timer> deadline_;
  std::vector<std::string> tried_;
  std::shared_ptr<const instances::Instance> instance_;  // the last of them, as it was then
  DecisionLog::Ticket ticket_ = DecisionLog::kNoTicket;
  bool tokenized_ = false;
  std::shared_ptr<EngineCall> call_;
  bool sent_ = false;       // the engine has taken the request's beginning
  bool suspect_ = false;    // the instance, when last seen
  bool answering_ = false;  // the engine's headers have come
  bool done_ = false;
  std::optional<base::SteadyTime> first_byte_;
};

}  // namespace xms::gateway
