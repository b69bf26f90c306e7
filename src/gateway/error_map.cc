#include "gateway/error_map.h"

#include <utility>

#include "base/str_cat.h"
#include "gateway/json_text.h"

namespace xms::gateway {
namespace {

constexpr std::string_view kInvalidRequest = "invalid_request_error";
constexpr std::string_view kServerError = "server_error";

// In the order of ErrorKind. The first row of a status is what ErrorJsonForStatus takes.
constexpr ErrorRow kRows[] = {
    {ErrorKind::kInvalidJson, 400, kInvalidRequest, "invalid_json", 0},
    {ErrorKind::kInvalidValue, 400, kInvalidRequest, "invalid_value", 0},
    {ErrorKind::kMissingField, 400, kInvalidRequest, "missing_field", 0},
    {ErrorKind::kDuplicateField, 400, kInvalidRequest, "duplicate_field", 0},
    {ErrorKind::kMalformedRequest, 400, kInvalidRequest, "malformed_request", 0},
    {ErrorKind::kTokenMissing, 401, "authentication_error", "internal_token_missing", 0},
    {ErrorKind::kTokenWrong, 403, "permission_error", "internal_token_wrong", 0},
    {ErrorKind::kLoopbackOnly, 403, "permission_error", "loopback_only", 0},
    {ErrorKind::kUnknownPath, 404, kInvalidRequest, "unknown_path", 0},
    {ErrorKind::kUnknownInstance, 404, kInvalidRequest, "unknown_instance", 0},
    {ErrorKind::kMethodNotAllowed, 405, kInvalidRequest, "method_not_allowed", 0},
    {ErrorKind::kRequestTimeout, 408, kInvalidRequest, "request_timeout", 0},
    {ErrorKind::kRegistryReadOnly, 409, kInvalidRequest, "registry_read_only", 0},
    {ErrorKind::kBodyTooLarge, 413, kInvalidRequest, "body_too_large", 0},
    {ErrorKind::kHeadersTooLarge, 431, kInvalidRequest, "headers_too_large", 0},
    {ErrorKind::kInternal, 500, kServerError, "internal_error", 0},
    {ErrorKind::kEngineUnreachable, 502, kServerError, "engine_unreachable", 0},
    {ErrorKind::kEngineBrokeOff, 502, kServerError, "engine_broke_off", 0},
    {ErrorKind::kNoInstance, 503, kServerError, "no_instance", 1},
    {ErrorKind::kTooManyRequests, 503, kServerError, "too_many_requests", 1},
    {ErrorKind::kDeadline, 504, kServerError, "deadline_exceeded", 0},
};

constexpr bool InOrder() {
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    if (static_cast<std::size_t>(kRows[i].kind) != i) return false;
  }
  return static_cast<std::size_t>(ErrorKind::kDeadline) + 1 == std::size(kRows);
}
static_assert(InOrder(), "kRows has one row for each ErrorKind, in its order");

std::string Json(const ErrorRow& row, std::string_view message, std::string_view param) {
  std::string out = R"({"error":{"message":)";
  AppendQuoted(out, message);
  base::StrAppend(out, R"(,"type":")", row.type, R"(","param":)");
  if (param.empty()) {
    out += "null";
  } else {
    AppendQuoted(out, param);
  }
  base::StrAppend(out, R"(,"code":")", row.code, "\"}}");
  return out;
}

}  // namespace

std::span<const ErrorRow> ErrorTable() { return kRows; }

const ErrorRow& RowOf(ErrorKind kind) { return kRows[static_cast<std::size_t>(kind)]; }

std::string ErrorJson(const GatewayError& error) {
  return Json(RowOf(error.kind), error.message, error.param);
}

std::string ErrorJsonForStatus(int status, std::string_view message) {
  // 400 from below is about HTTP, not about JSON.
  if (status == 400) return Json(RowOf(ErrorKind::kMalformedRequest), message, {});
  for (const ErrorRow& row : kRows) {
    if (row.status == status) return Json(row, message, {});
  }
  // 501 and 505: a coding or version that we do not speak, which is for the client to change.
  const bool of_client = status < 500 || status == 501 || status == 505;
  return Json(RowOf(of_client ? ErrorKind::kMalformedRequest : ErrorKind::kInternal), message, {});
}

http::Response ErrorResponse(const GatewayError& error) {
  const ErrorRow& row = RowOf(error.kind);
  http::Response response = http::JsonResponse(row.status, ErrorJson(error));
  if (row.retry_after_s > 0) {
    response.headers.Add("Retry-After", base::StrCat(row.retry_after_s));
  }
  return response;
}

}  // namespace xms::gateway
