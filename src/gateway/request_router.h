// RequestRouter: from a client's request to the engine that gets it, and what it gets.
//
// Place       proxy_call, once an attempt.
// Threads     Confined to its thread; one per event loop, reused. Takes no lock that a writer of
//             the index or of the instances holds; makes no look-up outside the process (G8).
// Rules       An attempt starts from the client's bytes again, so nothing of a request is kept for
//             the rare second attempt.
// Proof       GatewayProxy*, bench/gateway.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gateway/candidate_table.h"
#include "gateway/completion_request.h"
#include "gateway/core.h"
#include "gateway/engine_plane.h"
#include "gateway/error_map.h"
#include "http/message.h"

namespace xms::gateway {

struct RoutedRequest {
  EngineRequest engine_request;
  std::shared_ptr<const instances::Instance> instance;  // whom it is for
  DecisionLog::Ticket ticket = DecisionLog::kNoTicket;
  bool tokenized = false;
  bool passed_over = false;  // an instance that might have served pauses
};

class RequestRouter {
 public:
  // `tried`: instances that could not be reached, not to be chosen again. `out.ticket`: of the
  // attempt before, whose record this decision replaces. nullopt: `out` is filled.
  std::optional<GatewayError> RouteRequest(Core& core, Route route, const http::Request& request,
                                           const std::string& request_id,
                                           std::span<const std::string> tried, RoutedRequest& out);

 private:
  std::optional<GatewayError> RouteCompletion(Core& core, CompletionApi api,
                                              const http::Request& request,
                                              const std::string& request_id,
                                              std::span<const std::string> tried,
                                              RoutedRequest& out);
  std::optional<GatewayError> RouteModels(Core& core, std::span<const std::string> tried,
                                          RoutedRequest& out);
  // Lets `choose` (from a view, without `tried`, to an instance's name, "" when nobody is left)
  // choose among those that do not pause, and only when nobody is left among all.
  // True: somebody pauses who might have been chosen.
  template <typename Choose>
  bool ChooseReachable(Core& core, Choose choose);
  void Record(Core& core, const std::string& request_id, const Prompt& prompt, RoutedRequest& out);
  GatewayError NobodyLeft() const;

  CompletionParser parser_;
  CompletionRequest parsed_;
  CandidateTable table_;
  routing::Choice choice_;
  std::vector<std::string> paused_;
};

}  // namespace xms::gateway
