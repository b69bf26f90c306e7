// The one table from what went wrong to HTTP status and OpenAI error object.
//
// Place       Every route of gateway; Gateway::AnswerRefusal hands it to the HTTP server for its
//             own answers.
// Threads     Pure functions and plain values.
// Rules       Messages name the field, what is wrong with it and what is allowed; they never
//             contain a token id, a prompt, a secret or the address of an engine.
// Proof       GatewayErrorMap*, a case for each row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "http/message.h"

namespace xms::gateway {

enum class ErrorKind : std::uint8_t {
  kInvalidJson,
  kInvalidValue,
  kMissingField,
  kDuplicateField,
  kMalformedRequest,  // below JSON: the HTTP server could not read it
  kTokenMissing,
  kTokenWrong,
  kLoopbackOnly,
  kUnknownPath,
  kUnknownInstance,
  kMethodNotAllowed,
  kRequestTimeout,  // the request itself took too long to arrive
  kRegistryReadOnly,
  kBodyTooLarge,
  kHeadersTooLarge,
  kInternal,
  kEngineUnreachable,
  kEngineBrokeOff,
  kNoInstance,
  kTooManyRequests,
  kDeadline,
};

struct ErrorRow {
  ErrorKind kind;
  int status;
  std::string_view type;
  std::string_view code;
  int retry_after_s;  // 0: no Retry-After header
};

std::span<const ErrorRow> ErrorTable();
const ErrorRow& RowOf(ErrorKind kind);

struct GatewayError {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
  std::string param;  // field or query parameter; empty: null in the answer
};

// {"error":{"message","type","param","code"}}
std::string ErrorJson(const GatewayError& error);
// For answers of which only the status is known; the first row of that status, else a row of its
// class.
std::string ErrorJsonForStatus(int status, std::string_view message);
http::Response ErrorResponse(const GatewayError& error);

}  // namespace xms::gateway
