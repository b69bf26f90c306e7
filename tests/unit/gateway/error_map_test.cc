#include "gateway/error_map.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace xms::gateway {
namespace {

using Json = nlohmann::json;

struct Row {
  ErrorKind kind;
  int status;
  const char* type;
  const char* code;
};

class GatewayErrorMap : public ::testing::TestWithParam<Row> {};

TEST_P(GatewayErrorMap, AnswersStatusTypeAndCode) {
  const Row& row = GetParam();
  const http::Response response = ErrorResponse({row.kind, "what happened", "field"});
  EXPECT_EQ(response.status, row.status);
  EXPECT_EQ(Json::parse(response.body), Json({{"error",
                                               {{"message", "what happened"},
                                                {"type", row.type},
                                                {"param", "field"},
                                                {"code", row.code}}}}));
  ASSERT_NE(response.headers.Find("content-type"), nullptr);
  EXPECT_EQ(response.headers.Find("content-type")->substr(0, 16), "application/json");
  const std::string* retry_after = response.headers.Find("Retry-After");
  if (row.status == 503) {
    ASSERT_NE(retry_after, nullptr);
    EXPECT_EQ(*retry_after, "1");
  } else {
    EXPECT_EQ(retry_after, nullptr);
  }
}

constexpr char kInvalid[] = "invalid_request_error";
constexpr char kServer[] = "server_error";

INSTANTIATE_TEST_SUITE_P(
    , GatewayErrorMap,
    ::testing::Values(Row{ErrorKind::kInvalidJson, 400, kInvalid, "invalid_json"},
                      Row{ErrorKind::kInvalidValue, 400, kInvalid, "invalid_value"},
                      Row{ErrorKind::kMissingField, 400, kInvalid, "missing_field"},
                      Row{ErrorKind::kDuplicateField, 400, kInvalid, "duplicate_field"},
                      Row{ErrorKind::kMalformedRequest, 400, kInvalid, "malformed_request"},
                      Row{ErrorKind::kTokenMissing, 401, "authentication_error",
                          "internal_token_missing"},
                      Row{ErrorKind::kTokenWrong, 403, "permission_error", "internal_token_wrong"},
                      Row{ErrorKind::kLoopbackOnly, 403, "permission_error", "loopback_only"},
                      Row{ErrorKind::kUnknownPath, 404, kInvalid, "unknown_path"},
                      Row{ErrorKind::kUnknownInstance, 404, kInvalid, "unknown_instance"},
                      Row{ErrorKind::kMethodNotAllowed, 405, kInvalid, "method_not_allowed"},
                      Row{ErrorKind::kRequestTimeout, 408, kInvalid, "request_timeout"},
                      Row{ErrorKind::kRegistryReadOnly, 409, kInvalid, "registry_read_only"},
                      Row{ErrorKind::kBodyTooLarge, 413, kInvalid, "body_too_large"},
                      Row{ErrorKind::kHeadersTooLarge, 431, kInvalid, "headers_too_large"},
                      Row{ErrorKind::kInternal, 500, kServer, "internal_error"},
                      Row{ErrorKind::kEngineUnreachable, 502, kServer, "engine_unreachable"},
                      Row{ErrorKind::kEngineBrokeOff, 502, kServer, "engine_broke_off"},
                      Row{ErrorKind::kNoInstance, 503, kServer, "no_instance"},
                      Row{ErrorKind::kTooManyRequests, 503, kServer, "too_many_requests"},
                      Row{ErrorKind::kDeadline, 504, kServer, "deadline_exceeded"}),
    [](const auto& param) { return std::string(param.param.code); });

TEST(GatewayErrorMapTable, HasARowAndACaseForEachKind) {
  // As many rows as the cases above; kinds are distinct because RowOf finds each by itself.
  EXPECT_EQ(ErrorTable().size(), 21u);
  for (const ErrorRow& row : ErrorTable()) EXPECT_EQ(&RowOf(row.kind), &row);
}

TEST(GatewayErrorMapTable, ParamIsNullWhenNoFieldIsMeant) {
  const Json body = Json::parse(ErrorJson({ErrorKind::kInternal, "x", ""}));
  EXPECT_TRUE(body["error"]["param"].is_null());
}

TEST(GatewayErrorMapTable, ServesTheHttpServersOwnAnswersByStatus) {
  const auto code = [](int status) {
    return Json::parse(ErrorJsonForStatus(status, "m"))["error"]["code"].get<std::string>();
  };
  EXPECT_EQ(code(400), "malformed_request");
  EXPECT_EQ(code(408), "request_timeout");
  EXPECT_EQ(code(413), "body_too_large");
  EXPECT_EQ(code(431), "headers_too_large");
  EXPECT_EQ(code(500), "internal_error");
  // Statuses without a row of their own go with their class.
  EXPECT_EQ(code(414), "malformed_request");
  EXPECT_EQ(code(507), "internal_error");
  // A coding or version that we do not speak is the client's to change.
  EXPECT_EQ(code(501), "malformed_request");
  EXPECT_EQ(code(505), "malformed_request");
}

TEST(GatewayErrorMapTable, MessagesOfAnyBytesStayJson) {
  const std::string message =
      "quote \" backslash \\ newline \n zero " + std::string(1, '\0') + " not utf-8 \xff\xfe";
  const Json body = Json::parse(ErrorJson({ErrorKind::kInternal, message, ""}));
  EXPECT_EQ(body["error"]["message"].get<std::string>(),
            "quote \" backslash \\ newline \n zero " + std::string(1, '\0') + " not utf-8 ??");
}

}  // namespace
}  // namespace xms::gateway
