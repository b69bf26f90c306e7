// The registry over HTTP: engines register, deregister and are listed.
//
// Place       Routes under /v1/internal/instances of the RPC port; access has been checked before.
// Threads     Any.
// Proof       GatewayInstances*.
#pragma once

#include <string_view>

#include "gateway/core.h"
#include "http/message.h"

namespace xms::gateway {

// `name` as it stands in the path, percent escapes and all.
http::Response PutInstance(const Core& core, const http::Request& request, std::string_view name);
http::Response DeleteInstance(const Core& core, std::string_view name);
http::Response ListInstances(const Core& core);

}  // namespace xms::gateway
