// GatewayProxy: two engines, requests through the gateway, and what their clients see.
#pragma once

#include "tests/unit/gateway/gateway_fixture.h"

namespace xms::gateway {

inline constexpr char kA[] = "10.0.0.1:8000";
inline constexpr char kB[] = "10.0.0.2:8000";

class GatewayProxy : public GatewayFixture {
 protected:
  http::Headers Type(const char* type) {
    http::Headers headers;
    headers.Add("Content-Type", type);
    return headers;
  }
  std::string Header(const Client& client, const char* name) {
    const std::string* value = client->headers.Find(name);
    return value == nullptr ? "" : *value;
  }
};

}  // namespace xms::gateway
