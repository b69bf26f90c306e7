#include "gateway/request_router.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "gateway/access.h"

namespace xms::gateway {
namespace {

// Ours, or no longer true of the body that was written anew.
constexpr std::array<std::string_view, 4> kNotForwarded = {kTokenHeader, "Content-MD5", "Digest",
                                                           "Content-Digest"};

http::Headers ForwardedHeaders(const http::Request& request, const std::string& request_id) {
  http::Headers headers = http::EndToEndHeaders(request.headers);
  for (const std::string_view name : kNotForwarded) headers.Remove(name);
  headers.Set(kRequestIdHeader, request_id);
  return headers;
}

}  // namespace

std::optional<GatewayError> RequestRouter::RouteRequest(Core& core, Route route,
                                                        const http::Request& request,
                                                        const std::string& request_id,
                                                        std::span<const std::string> tried,
                                                        RoutedRequest& out) {
  out.engine_request = {};
  std::optional<GatewayError> error;
  if (route == Route::kModels) {
    error = RouteModels(core, tried, out);
  } else {
    const CompletionApi api = route == Route::kCompletions ? CompletionApi::kCompletions
                                                           : CompletionApi::kChatCompletions;
    error = RouteCompletion(core, api, request, request_id, tried, out);
  }
  if (error.has_value()) return error;
  http::Request& forwarded = out.engine_request.request;
  // A HEAD is asked as GET: not every engine answers it, and the server leaves out the body.
  forwarded.method = route == Route::kModels ? "GET" : request.method;
  forwarded.target = request.target;
  forwarded.headers = ForwardedHeaders(request, request_id);
  return std::nullopt;
}

std::optional<GatewayError> RequestRouter::RouteCompletion(Core& core, CompletionApi api,
                                                           const http::Request& request,
                                                           const std::string& request_id,
                                                           std::span<const std::string> tried,
                                                           RoutedRequest& out) {
  if (auto error = parser_.Parse(api, request.body, parsed_)) return error;
  const base::SteadyTime begin = core.ports.clock->Now();
  routing::Policy& policy = *core.ports.policy;
  const Prompt prompt{parsed_.tokenized, parsed_.tokens};
  const auto input_tokens = static_cast<std::uint32_t>(prompt.tokens.size());
  const auto choose = [&](const std::shared_ptr<const instances::InstanceView>& view) {
    table_.Build(view, core.ports.index, policy.wants_hits(), prompt, {tried, paused_});
    policy.Choose({table_.candidates(), input_tokens}, choice_);
    return choice_.primary < 0
               ? std::string_view()
               : table_.candidates()[static_cast<std::size_t>(choice_.primary)].name;
  };
  out.passed_over = ChooseReachable(core, choose);
  out.tokenized = prompt.tokenized;
  // When nobody is left after attempts, the record of the last of them says more.
  if (choice_.primary >= 0 || tried.empty()) Record(core, request_id, prompt, out);
  core.metrics.decision_seconds.Observe(
      std::chrono::duration<double>(core.ports.clock->Now() - begin).count());

  std::optional<GatewayError> error;
  if (choice_.primary < 0) {
    error = NobodyLeft();
  } else {
    const auto chosen = static_cast<std::size_t>(choice_.primary);
    out.engine_request.instance = table_.candidates()[chosen].name;
    out.instance = table_.instance(chosen);
    out.engine_request.request.body = std::move(parsed_.body);
  }
  table_.Clear();
  return error;
}

template <typename Choose>
bool RequestRouter::ChooseReachable(Core& core, Choose choose) {
  // Twice at most: another request may have claimed the one whose pause has just ended.
  for (int round = 0; round < 2; ++round) {
    const base::SteadyTime now = core.ports.clock->Now();
    const auto view = core.ports.instances->view();
    core.unreachable.Paused(*view, now, paused_);
    const std::string_view chosen = choose(view);
    if (chosen.empty()) {
      if (paused_.empty()) return false;
      break;
    }
    if (core.unreachable.Claim(chosen, now)) return table_.AnyPauses();
  }
  paused_.clear();
  choose(core.ports.instances->view());
  return false;
}

void RequestRouter::Record(Core& core, const std::string& request_id, const Prompt& prompt,
                           RoutedRequest& out) {
  Decision decision;
  decision.request_id = request_id;
  decision.time_ms = core.ports.clock->WallMs();
  decision.policy = core.ports.policy->name();
  decision.input_tokens = static_cast<std::uint32_t>(prompt.tokens.size());
  decision.choice = &choice_;
  decision.table = &table_;
  core.metrics.decisions.Increment(choice_.reason);
  if (out.ticket != DecisionLog::kNoTicket) {
    core.decisions.Replace(out.ticket, decision);
    return;
  }
  out.ticket = core.decisions.Add(decision);
  if (choice_.primary >= 0) {
    const auto why = table_.candidates()[static_cast<std::size_t>(choice_.primary)].no_credit;
    if (why != routing::NoCredit::kNone)
      core.metrics.no_credit.Increment(routing::NoCreditName(why));
  }
  if (prompt.tokens.empty()) return;
  std::uint32_t available = 0;
  for (std::size_t i = 0; i < table_.candidates().size(); ++i) {
    available = std::max(available, table_.PrefixTokens(i));
  }
  core.metrics.prefix_asked.Increment(static_cast<double>(prompt.tokens.size()));
  core.metrics.prefix_available.Increment(available);
  if (choice_.primary >= 0) {
    core.metrics.prefix_chosen.Increment(
        table_.PrefixTokens(static_cast<std::size_t>(choice_.primary)));
  }
}

// How many instances are left out for which reason; no names, since those are addresses.
GatewayError RequestRouter::NobodyLeft() const {
  std::vector<std::pair<std::string_view, std::size_t>> counts;
  for (std::size_t i = 0; i < table_.candidates().size(); ++i) {
    std::string_view why = table_.WhyNot(i);
    if (why.empty() && i < choice_.scored.size()) why = choice_.scored[i].left_out;
    if (why.empty()) why = choice_.reason;
    const auto known = std::find_if(counts.begin(), counts.end(),
                                    [why](const auto& count) { return count.first == why; });
    if (known != counts.end()) {
      ++known->second;
    } else {
      counts.emplace_back(why, 1);
    }
  }
  std::string message = "no instance can take the request: ";
  if (counts.empty()) message += "none is registered";
  for (std::size_t i = 0; i < counts.size(); ++i) {
    base::StrAppend(message, i == 0 ? "" : ", ", counts[i].second, " ", counts[i].first);
  }
  return {ErrorKind::kNoInstance, std::move(message), ""};
}

std::optional<GatewayError> RequestRouter::RouteModels(Core& core,
                                                       std::span<const std::string> tried,
                                                       RoutedRequest& out) {
  std::optional<std::size_t> chosen;
  ChooseReachable(core, [&](const std::shared_ptr<const instances::InstanceView>& view) {
    table_.Build(view, nullptr, false, Prompt{}, {tried, paused_});
    std::vector<std::size_t> able;
    for (std::size_t i = 0; i < table_.candidates().size(); ++i) {
      if (table_.candidates()[i].schedulable) able.push_back(i);
    }
    chosen.reset();
    if (able.empty()) return std::string_view();
    chosen = able[core.models_cursor.fetch_add(1) % able.size()];
    return std::string_view(table_.candidates()[*chosen].name);
  });
  std::optional<GatewayError> error;
  if (!chosen.has_value()) {
    choice_.scored.clear();
    choice_.reason = "not schedulable";
    error = NobodyLeft();
  } else {
    out.engine_request.instance = table_.candidates()[*chosen].name;
    out.instance = table_.instance(*chosen);
  }
  table_.Clear();
  return error;
}

}  // namespace xms::gateway
