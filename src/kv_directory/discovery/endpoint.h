// Endpoint: host and port of an engine, as written in configurations and instance names.
//
// Place       config.cc (static streams), stream_plan.cc (discovery), streams/ (what to dial).
// Threads     Pure functions over plain values; nothing here resolves a name.
// Failure     kInvalidArgument with one clause that quotes the text and says what is wrong with
//             it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace xms::kv_directory {

struct Endpoint {
  std::string host;  // a name, an IPv4 or an IPv6 literal; never in brackets
  std::uint16_t port = 0;
  bool ipv6 = false;  // `host` is an IPv6 literal

  // tcp://host:port, brackets around an IPv6 literal.
  std::string Url() const;
  // The same text for the same address however it is spelled (case, leading zeros, short forms).
  // Names are compared as names: whether two of them mean one machine cannot be known without
  // asking a resolver.
  std::string CanonicalHost() const;
};

// `host:port`, `[v6]:port`, and `v6:port`, where what follows the last colon is the port.
base::Result<Endpoint> ParseHostPort(std::string_view text);
// `tcp://` followed by the above; the only transport that is subscribed to.
base::Result<Endpoint> ParseTcpUrl(std::string_view text);

}  // namespace xms::kv_directory
