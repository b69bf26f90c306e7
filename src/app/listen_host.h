// What follows from the numeric address on which both ports listen (--server_host).
//
// Threads     Pure functions.
// Proof       AppListenHost*.
#pragma once

#include <string>

namespace xms::app {

// Whether other machines may reach it. Empty and unspecified addresses are all interfaces.
bool IsBeyondLoopback(const std::string& host);

// The host that engines are given for it: an IPv4 address, 127.0.0.1 for all interfaces. Empty for
// an IPv6 address, which engines do not take.
std::string AdvertisableHost(const std::string& host);

}  // namespace xms::app
