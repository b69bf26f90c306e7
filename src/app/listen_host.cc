#include "app/listen_host.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>
#include <optional>

namespace xms::app {
namespace {

// The IPv4 address that `host` is or maps (::ffff:10.0.0.7).
std::optional<in_addr> Ipv4Of(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return v4;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1 || !IN6_IS_ADDR_V4MAPPED(&v6)) {
    return std::nullopt;
  }
  std::memcpy(&v4, &v6.s6_addr[12], sizeof v4);
  return v4;
}

std::optional<in6_addr> Ipv6Of(const std::string& host) {
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return std::nullopt;
  return v6;
}

constexpr std::uint32_t kLoopbackNet = 127;

}  // namespace

bool IsBeyondLoopback(const std::string& host) {
  if (const auto v4 = Ipv4Of(host)) return ntohl(v4->s_addr) >> 24 != kLoopbackNet;
  const auto v6 = Ipv6Of(host);
  return !v6 || !IN6_IS_ADDR_LOOPBACK(&*v6);
}

std::string AdvertisableHost(const std::string& host) {
  constexpr char kThisMachine[] = "127.0.0.1";
  if (host.empty()) return kThisMachine;
  if (const auto v4 = Ipv4Of(host)) {
    if (v4->s_addr == INADDR_ANY) return kThisMachine;
    char text[INET_ADDRSTRLEN];
    return inet_ntop(AF_INET, &*v4, text, sizeof text);
  }
  const auto v6 = Ipv6Of(host);
  return v6 && IN6_IS_ADDR_UNSPECIFIED(&*v6) ? kThisMachine : "";
}

}  // namespace xms::app
