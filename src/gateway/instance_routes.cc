#include "gateway/instance_routes.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/str_cat.h"
#include "gateway/error_map.h"
#include "gateway/json_text.h"
#include "http/client.h"

namespace xms::gateway {
namespace {

using base::StrAppend;
using base::StrCat;
using instances::InstanceManager;

constexpr std::chrono::milliseconds kDefaultTtl{15000};
constexpr std::size_t kMaxNameBytes = 255;

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string PercentDecoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
        HexDigit(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

// The name is also what is dialled, so it must be an address.
std::optional<GatewayError> CheckName(const std::string& name) {
  http::Address address;
  const bool visible =
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (visible && name.size() <= kMaxNameBytes && http::ParseAddress(name, address)) {
    return std::nullopt;
  }
  return GatewayError{ErrorKind::kInvalidValue,
                      StrCat("the instance's name in the path is its address; allowed: host:port "
                             "with a port from 1 to 65535, at most ",
                             kMaxNameBytes, " visible characters"),
                      "name"};
}

std::optional<GatewayError> ReadTtl(const http::Request& request, std::chrono::milliseconds& ttl) {
  std::string text;
  ttl = kDefaultTtl;
  if (!request.QueryParameter("ttl_ms", text)) return std::nullopt;
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, code] = std::from_chars(text.data(), end, value);
  ttl = std::chrono::milliseconds(value);
  if (code == std::errc() && stopped == end && ttl >= instances::kMinTtl &&
      ttl <= instances::kMaxTtl) {
    return std::nullopt;
  }
  return GatewayError{ErrorKind::kInvalidValue,
                      StrCat("`ttl_ms` is ", text.size() <= 32 ? text : "too long", "; allowed: ",
                             instances::kMinTtl.count(), " to ", instances::kMaxTtl.count()),
                      "ttl_ms"};
}

GatewayError ReadOnly() {
  return {ErrorKind::kRegistryReadOnly,
          "instances are registered in etcd, not here; start the service with an empty --etcd_addr "
          "to use the embedded registry",
          ""};
}

std::string_view OutcomeName(InstanceManager::PutOutcome outcome) {
  switch (outcome) {
    case InstanceManager::PutOutcome::kCreated:
      return "created";
    case InstanceManager::PutOutcome::kReplaced:
      return "replaced";
    case InstanceManager::PutOutcome::kRefreshed:
      return "refreshed";
  }
  return "";
}

void AppendLoad(std::string& out, const instances::Instance& instance, base::SteadyTime now) {
  if (!instance.has_load) {
    out += "null";
    return;
  }
  const instances::Load& load = instance.load;
  out += R"({"waiting_requests_num":)";
  AppendNumber(out, load.sample.waiting_requests_num);
  out += R"(,"gpu_cache_usage_perc":)";
  AppendNumber(out, load.sample.gpu_cache_usage_perc);
  StrAppend(out, R"(,"age_ms":)", std::max<std::int64_t>(0, base::MillisBetween(load.at, now)),
            R"(,"source":)");
  AppendQuoted(out, load.source);
  StrAppend(out, R"(,"valid":)", BoolText(load.sample.valid()), "}");
}

void AppendInstance(std::string& out, const instances::Instance& instance, base::SteadyTime now) {
  const model::InstanceRecord& record = instance.record;
  out += R"({"name":)";
  AppendQuoted(out, record.id.name);
  StrAppend(out, R"(,"type":")", model::RoleName(record.type), R"(","role":")",
            model::RoleName(instance.current_role), R"(","state":")",
            instances::StateName(instance.state), R"(","backend_type":)");
  AppendQuoted(out, record.backend_type);
  StrAppend(out, R"(,"data_plane":")", model::DataPlaneName(record.data_plane),
            R"(","incarnation_id":)");
  AppendQuoted(out, record.identity.incarnation_id);
  StrAppend(out, R"(,"register_ts_ms":)", record.identity.register_ts_ms, R"(,"dp_size":)",
            record.dp_size, R"(,"schedulable":)", BoolText(instance.schedulable), R"(,"reason":)");
  AppendQuoted(out, instance.reason);
  out += R"(,"load":)";
  AppendLoad(out, instance, now);
  out.push_back('}');
}

}  // namespace

http::Response PutInstance(const Core& core, const http::Request& request, std::string_view name) {
  if (core.ports.registry == nullptr) return ErrorResponse(ReadOnly());
  const std::string decoded = PercentDecoded(name);
  if (const auto error = CheckName(decoded)) return ErrorResponse(*error);
  std::chrono::milliseconds ttl{};
  if (const auto error = ReadTtl(request, ttl)) return ErrorResponse(*error);
  auto record = model::ParseInstanceJson(decoded, request.body);
  if (!record.ok()) {
    // The message begins with the field's name.
    const std::string& message = record.error().message;
    const std::string field = message.substr(0, message.find(':'));
    return ErrorResponse({ErrorKind::kInvalidValue, message, field == "instance" ? "" : field});
  }
  const auto outcome = core.ports.registry->Put(std::move(record).value(), ttl);
  std::string body = R"({"name":)";
  AppendQuoted(body, decoded);
  StrAppend(body, R"(,"outcome":")", OutcomeName(outcome), R"(","ttl_ms":)", ttl.count(), "}");
  const bool refreshed = outcome == InstanceManager::PutOutcome::kRefreshed;
  return http::JsonResponse(refreshed ? 200 : 201, std::move(body));
}

http::Response DeleteInstance(const Core& core, std::string_view name) {
  if (core.ports.registry == nullptr) return ErrorResponse(ReadOnly());
  const std::string decoded = PercentDecoded(name);
  if (!core.ports.registry->Remove({decoded})) {
    return ErrorResponse(
        {ErrorKind::kUnknownInstance,
         "no instance of that name is registered; GET /v1/internal/instances lists all", "name"});
  }
  std::string body = R"({"name":)";
  AppendQuoted(body, decoded);
  body += R"(,"outcome":"removed"})";
  return http::JsonResponse(200, std::move(body));
}

http::Response ListInstances(const Core& core) {
  const auto view = core.ports.instances->view();
  const base::SteadyTime now = core.ports.clock->Now();
  std::string body = R"({"instances":[)";
  for (const auto& instance : view->instances) {
    if (instance != view->instances.front()) body.push_back(',');
    AppendInstance(body, *instance, now);
  }
  body += "]}";
  return http::JsonResponse(200, std::move(body));
}

}  // namespace xms::gateway
