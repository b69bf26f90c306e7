#include "gateway/gateway.h"

#include <charconv>
#include <optional>
#include <random>
#include <string_view>

#include "base/str_cat.h"
#include "gateway/access.h"
#include "gateway/core.h"
#include "gateway/error_map.h"
#include "gateway/heartbeat.h"
#include "gateway/instance_routes.h"
#include "gateway/json_text.h"
#include "gateway/kv_query.h"
#include "gateway/proxy_call.h"

namespace xms::gateway {
namespace {

using base::StrAppend;
using base::StrCat;

enum Port : unsigned { kPublic = 1, kRpc = 2, kBoth = 3 };

struct RouteRow {
  std::string_view path;
  Route route;
  unsigned ports;
  std::string_view allow;  // methods
};

constexpr RouteRow kTable[] = {
    {"/v1/completions", Route::kCompletions, kPublic, "POST"},
    {"/v1/chat/completions", Route::kChatCompletions, kPublic, "POST"},
    {"/v1/models", Route::kModels, kPublic, "GET, HEAD"},
    {"/v1/internal/kv-cache/query", Route::kKvCacheQuery, kPublic, "POST"},
    {"/v1/internal/heartbeat", Route::kHeartbeat, kBoth, "POST"},
    {"/v1/internal/instances", Route::kInstances, kRpc, "GET, HEAD"},
    {"/v1/internal/routing/decisions", Route::kDecisions, kRpc, "GET, HEAD"},
    {"/v1/internal/config", Route::kConfig, kRpc, "GET, HEAD"},
    {"/health", Route::kHealth, kBoth, "GET, HEAD"},
    {"/ready", Route::kReady, kRpc, "GET, HEAD"},
    {"/metrics", Route::kMetrics, kBoth, "GET, HEAD"},
};
constexpr std::string_view kInternalPrefix = "/v1/internal/";
// One instance: the path goes on with its name.
constexpr std::string_view kInstancePrefix = "/v1/internal/instances/";
constexpr RouteRow kOneInstance = {kInstancePrefix, Route::kInstances, kRpc, "PUT, DELETE"};
constexpr RouteRow kNoRoute = {"", Route::kUnknown, 0, ""};

// kBoth: on either port.
const RouteRow& Find(std::string_view path, Port port) {
  for (const RouteRow& row : kTable) {
    if ((row.ports & port) != 0 && row.path == path) return row;
  }
  if ((port & kRpc) != 0 && path.starts_with(kInstancePrefix)) return kOneInstance;
  return kNoRoute;
}

// `allow` lists methods by ", ".
bool Allows(std::string_view allow, std::string_view method) {
  while (!allow.empty()) {
    const std::size_t comma = allow.find(", ");
    if (allow.substr(0, comma) == method) return true;
    allow = comma == std::string_view::npos ? std::string_view() : allow.substr(comma + 2);
  }
  return false;
}

http::Response MethodNotAllowed(const RouteRow& row) {
  http::Response response = ErrorResponse(
      {ErrorKind::kMethodNotAllowed, StrCat("this path answers ", row.allow, " only"), ""});
  response.headers.Add("Allow", std::string(row.allow));
  return response;
}

// Bodies of the heartbeat are not ours to choose: sidecars know them.
http::Response HeartbeatError(int status, std::string_view message) {
  return http::JsonResponse(status, StrCat(R"({"error":")", message, "\"}"));
}

http::Response Heartbeat(const Core& core, const http::Request& request) {
  instances::Heartbeat beat;
  switch (ParseHeartbeat(request.body, beat)) {
    case HeartbeatFault::kInvalidJson:
      return HeartbeatError(400, "invalid heartbeat json");
    case HeartbeatFault::kMissingName:
      return HeartbeatError(400, "missing instance name");
    case HeartbeatFault::kNone:
      break;
  }
  if (!core.ports.instances->OnHeartbeat(beat).ok()) {
    return HeartbeatError(409, "instance not registered or stale incarnation");
  }
  return http::JsonResponse(200, R"({"ok":true})");
}

http::Response KvQuery(const Core& core, const http::Request& request) {
  std::vector<std::uint32_t> tokens;
  if (const auto error = ParseKvQuery(request.body, tokens)) return ErrorResponse(*error);
  const Excluded excluded = core.ports.excluded ? core.ports.excluded() : Excluded();
  return http::JsonResponse(
      200, KvQueryAnswer(core.ports.index, tokens, excluded, core.ports.clock->Now()));
}

http::Response Decisions(const Core& core, const http::Request& request) {
  constexpr std::size_t kDefaultLimit = 20;
  constexpr std::size_t kMaxLimit = 1000;
  std::size_t limit = kDefaultLimit;
  std::string text;
  if (request.QueryParameter("limit", text)) {
    const char* const end = text.data() + text.size();
    const auto [stopped, code] = std::from_chars(text.data(), end, limit);
    if (code != std::errc() || stopped != end || limit < 1 || limit > kMaxLimit) {
      return ErrorResponse({ErrorKind::kInvalidValue,
                            StrCat("`limit` is ", text.size() <= 32 ? text : "too long",
                                   "; allowed: 1 to ", kMaxLimit),
                            "limit"});
    }
  }
  std::string request_id;
  if (request.QueryParameter("request_id", request_id) && request_id.empty()) {
    return ErrorResponse({ErrorKind::kInvalidValue,
                          "`request_id` is empty; give one or leave it out", "request_id"});
  }
  return http::JsonResponse(200, core.decisions.Json(limit, request_id));
}

http::Response Ready(const Core& core) {
  const auto reasons =
      core.ports.not_ready_reasons ? core.ports.not_ready_reasons() : std::vector<std::string>();
  std::string body = StrCat(R"({"ready":)", BoolText(reasons.empty()), R"(,"reasons":[)");
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    if (i > 0) body.push_back(',');
    AppendQuoted(body, reasons[i]);
  }
  body += "]}";
  return http::JsonResponse(reasons.empty() ? 200 : 503, std::move(body));
}

http::Response Metrics(const Core& core) {
  http::Response response;
  response.headers.Add("Content-Type", "text/plain; version=0.0.4");
  if (core.ports.metrics != nullptr) response.body = core.ports.metrics->Exposition();
  return response;
}

http::Response Instances(const Core& core, const http::Request& request) {
  if (!request.path().starts_with(kInstancePrefix)) return ListInstances(core);
  if (const auto error = CheckRegistryWrite(request, core.options.internal_api_token)) {
    return ErrorResponse(*error);
  }
  const std::string_view name = request.path().substr(kInstancePrefix.size());
  return request.method == "PUT" ? PutInstance(core, request, name) : DeleteInstance(core, name);
}

// Everything but what engines answer.
http::Response Answer(const Core& core, const RouteRow& row, const http::Request& request) {
  switch (row.route) {
    case Route::kKvCacheQuery:
      return KvQuery(core, request);
    case Route::kHeartbeat:
      return Heartbeat(core, request);
    case Route::kInstances:
      return Instances(core, request);
    case Route::kDecisions:
      return Decisions(core, request);
    case Route::kConfig:
      return http::JsonResponse(200, core.ports.config_json ? core.ports.config_json() : "{}");
    case Route::kHealth:
      return http::JsonResponse(200, R"({"status":"ok"})");
    case Route::kReady:
      return Ready(core);
    case Route::kMetrics:
      return Metrics(core);
    case Route::kCompletions:
    case Route::kChatCompletions:
    case Route::kModels:
    case Route::kUnknown:
      break;
  }
  return ErrorResponse({ErrorKind::kUnknownPath,
                        "there is nothing at this path; docs/http-api.md lists what there is", ""});
}

// What is refused before method and body are looked at.
std::optional<http::Response> CheckAccess(const Core& core, const RouteRow& row,
                                          const http::Request& request) {
  if (!request.path().starts_with(kInternalPrefix)) return std::nullopt;
  const auto error = CheckToken(request, core.options.internal_api_token);
  if (!error.has_value()) return std::nullopt;
  if (row.route == Route::kHeartbeat) return HeartbeatError(401, "invalid internal token");
  return ErrorResponse(*error);
}

GatewayError BodyTooLarge(const Core& core) {
  return {ErrorKind::kBodyTooLarge,
          StrCat("the body is over ", core.options.http_max_body_bytes,
                 " bytes; send less or raise --http_max_body_bytes"),
          ""};
}

// An answer that no engine has made is counted here, and an error gets a name that the client and
// our logs can share.
http::Response Counted(Core& core, Route route, const http::Request& request,
                       http::Response response) {
  core.metrics.CountRequest(route, response.status);
  if (response.status >= 400) {
    response.headers.Set(kRequestIdHeader, core.ids.Of(request));
  }
  return response;
}

void Handle(const std::shared_ptr<Core>& core, Port port,
            std::shared_ptr<http::Exchange> exchange) {
  const http::Request& request = exchange->request();
  const RouteRow& row = Find(request.path(), port);
  std::optional<http::Response> response = CheckAccess(*core, row, request);
  if (!response.has_value() && row.route != Route::kUnknown && !Allows(row.allow, request.method)) {
    response = MethodNotAllowed(row);
  }
  if (!response.has_value() && request.body.size() > core->options.http_max_body_bytes) {
    response = ErrorResponse(BodyTooLarge(*core));
  }
  if (!response.has_value()) {
    if (row.route == Route::kCompletions || row.route == Route::kChatCompletions ||
        row.route == Route::kModels) {
      return ProxyCall::Start(core, row.route, std::move(exchange));
    }
    response = Answer(*core, row, request);
  }
  exchange->Send(Counted(*core, row.route, request, std::move(*response)));
}

std::uint64_t Seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) ^ device();
}

}  // namespace

struct Gateway::Impl {
  std::shared_ptr<Core> core;
};

Gateway::Gateway(Options options, Ports ports)
    : impl_(std::make_shared<Impl>(
          Impl{std::make_shared<Core>(std::move(options), std::move(ports), Seed())})) {}

Gateway::~Gateway() = default;

void Gateway::HandlePublic(std::shared_ptr<http::Exchange> exchange) {
  Handle(impl_->core, kPublic, std::move(exchange));
}

void Gateway::HandleRpcPort(std::shared_ptr<http::Exchange> exchange) {
  Handle(impl_->core, kRpc, std::move(exchange));
}

std::optional<http::Response> Gateway::RefuseAtHeaders(const http::Request& request) {
  const RouteRow& row = Find(request.path(), kBoth);
  auto refused = CheckAccess(*impl_->core, row, request);
  if (!refused.has_value()) return std::nullopt;
  return Counted(*impl_->core, row.route, request, std::move(*refused));
}

http::Response Gateway::AnswerRefusal(const http::Refusal& refusal) {
  Core& core = *impl_->core;
  const GatewayError too_large = BodyTooLarge(core);
  std::string body = ErrorJsonForStatus(
      refusal.status, refusal.status == 413 ? too_large.message : refusal.message);
  return Counted(core, Find(refusal.request.path(), kBoth).route, refusal.request,
                 http::JsonResponse(refusal.status, std::move(body)));
}

void Gateway::EndAll() { impl_->core->calls.Tell(LiveCalls::News::kServiceStops); }

void Gateway::OnInstancesChanged() {
  Core& core = *impl_->core;
  core.unreachable.OnInstancesChanged(*core.ports.instances->view());
  core.calls.Tell(LiveCalls::News::kInstancesChanged);
}

std::size_t Gateway::requests_in_flight() const { return impl_->core->metrics.in_flight().load(); }

}  // namespace xms::gateway
