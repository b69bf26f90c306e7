#include "gateway/gateway_metrics.h"

#include <utility>
#include <vector>

#include "base/str_cat.h"

namespace xms::gateway {
namespace {

using observability::Counter;
using observability::Histogram;
using observability::Labels;
using observability::MetricRegistry;

std::vector<double> SecondsOfAnswers() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
}

std::vector<double> SecondsOfDecisions() {
  return {1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 1e-3, 1e-2};
}

Histogram MakeHistogram(MetricRegistry* registry, std::string_view name, std::string_view help,
                        std::vector<double> bounds) {
  return registry == nullptr ? Histogram() : registry->AddHistogram(name, help, std::move(bounds));
}

Counter MakeCounter(MetricRegistry* registry, std::string_view name, std::string_view help) {
  return registry == nullptr ? Counter() : registry->AddCounter(name, help);
}

}  // namespace

std::string_view RouteName(Route route) {
  switch (route) {
    case Route::kCompletions:
      return "completions";
    case Route::kChatCompletions:
      return "chat_completions";
    case Route::kModels:
      return "models";
    case Route::kKvCacheQuery:
      return "kv_cache_query";
    case Route::kHeartbeat:
      return "heartbeat";
    case Route::kInstances:
      return "instances";
    case Route::kDecisions:
      return "decisions";
    case Route::kConfig:
      return "config";
    case Route::kHealth:
      return "health";
    case Route::kReady:
      return "ready";
    case Route::kMetrics:
      return "metrics";
    case Route::kUnknown:
      return "unknown";
  }
  return "unknown";
}

CounterFamily::CounterFamily(MetricRegistry* registry, std::string name, std::string help,
                             std::string label, Labels fixed)
    : registry_(registry),
      name_(std::move(name)),
      help_(std::move(help)),
      label_(std::move(label)),
      fixed_(std::move(fixed)) {}

void CounterFamily::Increment(std::string_view value, double by) {
  if (registry_ == nullptr) return;
  const Entry* entry = Find(value, count_.load());
  if (entry == nullptr) entry = &Make(value);
  entry->counter.Increment(by);
}

const CounterFamily::Entry* CounterFamily::Find(std::string_view value, std::size_t count) const {
  for (std::size_t i = 0; i < count; ++i) {
    if (entries_[i].value == value) return &entries_[i];
  }
  return nullptr;
}

const CounterFamily::Entry& CounterFamily::Make(std::string_view value) {
  base::MutexLock lock(mu_);
  const std::size_t count = count_.load();
  if (count >= kMaxValues) value = "other";
  if (const Entry* entry = Find(value, count)) return *entry;
  Entry& entry = entries_[count];
  Labels labels = fixed_;
  labels[label_] = value;
  entry.value = value;
  entry.counter = registry_->AddCounter(name_, help_, labels);
  count_.store(count + 1);
  return entry;
}

GatewayMetrics::GatewayMetrics(MetricRegistry* registry)
    : ttft_seconds(MakeHistogram(registry, "xms_time_to_first_token_seconds",
                                 "From a completion request to the first byte of its answer's body",
                                 SecondsOfAnswers())),
      duration_seconds(MakeHistogram(registry, "xms_request_duration_seconds",
                                     "From a completion request to the end of its answer",
                                     SecondsOfAnswers())),
      decision_seconds(MakeHistogram(registry, "xms_routing_decision_seconds",
                                     "Candidates, prefix match and choice of one request",
                                     SecondsOfDecisions())),
      prefix_asked(MakeCounter(registry, "xms_prefix_tokens_asked_total",
                               "Prompt tokens of requests that came as token ids")),
      prefix_available(MakeCounter(registry, "xms_prefix_tokens_available_total",
                                   "Of these, the longest prefix that any candidate held")),
      prefix_chosen(MakeCounter(registry, "xms_prefix_tokens_chosen_total",
                                "Of these, the prefix that the chosen instance held")),
      prefix_delivered(MakeCounter(registry, "xms_prefix_tokens_delivered_total",
                                   "Of these, the cached tokens that the engine reported")),
      retries(MakeCounter(registry, "xms_routing_retries_total",
                          "Requests sent to another instance after one could not be reached")),
      client_gone(MakeCounter(registry, "xms_client_disconnects_total",
                              "Clients that left before their answer was complete")),
      decisions(registry, "xms_routing_decisions_total",
                "Routing decisions by the policy's reason, refusals and retries included", "reason",
                {}),
      no_credit(registry, "xms_routing_no_credit_total",
                "Routed requests whose instance got no prefix credit, by reason", "reason", {}),
      engine_errors(registry, "xms_engine_errors_total",
                    "Calls to engines that failed, by how far they had got", "stage", {}),
      in_flight_(std::make_shared<std::atomic<std::size_t>>(0)) {
  for (std::size_t i = 0; i < kRoutes; ++i) {
    requests_[i] = std::make_unique<CounterFamily>(
        registry, "xms_requests_total", "Requests answered, by route and HTTP status", "status",
        Labels{{"route", std::string(RouteName(static_cast<Route>(i)))}});
  }
  if (registry == nullptr) return;
  const observability::Gauge gauge = registry->AddGauge(
      "xms_requests_in_flight", "Client requests being served, to the end of their streams");
  registry->AddCollector(
      [gauge, count = in_flight_] { gauge.Set(static_cast<double>(count->load())); });
}

void GatewayMetrics::CountRequest(Route route, int status) {
  requests_[static_cast<std::size_t>(route)]->Increment(base::StrCat(status));
}

}  // namespace xms::gateway
