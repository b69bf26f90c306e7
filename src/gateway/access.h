// Who may use the internal routes.
//
// Threads     Pure functions.
// Proof       GatewayAccess*.
#pragma once

#include <optional>
#include <string_view>

#include "gateway/error_map.h"
#include "http/message.h"

namespace xms::gateway {

inline constexpr std::string_view kTokenHeader = "X-Internal-Token";

// Equal, in a time that depends on the length of `given` only: neither on where the two differ nor
// on how long `secret` is.
bool EqualsInConstantTime(std::string_view given, std::string_view secret);

// nullopt: allowed. Without a token everybody is.
std::optional<GatewayError> CheckToken(const http::Request& request, std::string_view token);
// Writes to the registry: without a token from loopback only.
std::optional<GatewayError> CheckRegistryWrite(const http::Request& request,
                                               std::string_view token);

}  // namespace xms::gateway
