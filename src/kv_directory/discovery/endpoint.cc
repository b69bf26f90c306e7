#include "kv_directory/discovery/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/str_cat.h"

namespace xms::kv_directory {
namespace {

constexpr std::size_t kMaxShown = 80;

std::string Quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    out.push_back(byte >= 0x20 && byte < 0x7f && c != '"' ? c : '?');
  }
  out.append(text.size() > kMaxShown ? "…\"" : "\"");
  return out;
}

base::Error Wrong(std::string_view text, std::string_view what) {
  return {base::ErrorCode::kInvalidArgument, base::StrCat(Quote(text), " ", what)};
}

// Address and zone ("fe80::1%eth0") of an IPv6 literal.
std::optional<in6_addr> ParseIpv6(std::string_view host) {
  const std::size_t percent = host.find('%');
  if (percent != std::string_view::npos && percent + 1 == host.size()) return std::nullopt;
  const std::string address(host.substr(0, percent));
  in6_addr parsed{};
  if (inet_pton(AF_INET6, address.c_str(), &parsed) != 1) return std::nullopt;
  return parsed;
}

// The forms that the system's resolver takes for numbers too: "127.1", "0".
std::optional<in_addr> ParseIpv4(const std::string& host) {
  in_addr parsed{};
  if (host.empty() || inet_aton(host.c_str(), &parsed) == 0) return std::nullopt;
  return parsed;
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

bool IsAnyAddress(const Endpoint& endpoint) {
  if (endpoint.ipv6) {
    const auto address = ParseIpv6(endpoint.host);
    if (!address) return false;
    // :: itself, and 0.0.0.0 in an IPv6 coat.
    return IN6_IS_ADDR_UNSPECIFIED(&*address) ||
           (IN6_IS_ADDR_V4MAPPED(&*address) &&
            std::all_of(address->s6_addr + 12, address->s6_addr + 16,
                        [](auto byte) { return byte == 0; }));
  }
  const auto address = ParseIpv4(endpoint.host);
  return address && address->s_addr == 0;
}

// `text` is host:port; `shown` is what an error quotes.
base::Result<Endpoint> Parse(std::string_view text, std::string_view shown) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Wrong(shown, "has no port; host:port is needed");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);

  Endpoint endpoint;
  if (host.starts_with('[')) {
    if (!host.ends_with(']')) return Wrong(shown, "has no ] before its port");
    host = host.substr(1, host.size() - 2);
    if (!ParseIpv6(host)) return Wrong(shown, "has no IPv6 address in its brackets");
    endpoint.ipv6 = true;
  } else if (host.find(':') != std::string_view::npos) {
    if (!ParseIpv6(host))
      return Wrong(shown, "is not host:port; write an IPv6 address in brackets");
    endpoint.ipv6 = true;
  } else if (host.empty()) {
    return Wrong(shown, "has no host");
  } else if (host == "*") {
    return Wrong(shown, "is an address to bind, not to connect to; name the engine's host");
  } else if (!std::all_of(host.begin(), host.end(), IsNameCharacter)) {
    return Wrong(shown, "has a character in its host that no host name has");
  }
  endpoint.host = host;

  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number < 1 || number > 65535) {
    return Wrong(shown, "has no port from 1 to 65535");
  }
  endpoint.port = static_cast<std::uint16_t>(number);

  if (IsAnyAddress(endpoint)) {
    return Wrong(shown, "is an address to bind, not to connect to; name the engine's host");
  }
  return endpoint;
}

}  // namespace

std::string Endpoint::Url() const {
  return ipv6 ? base::StrCat("tcp://[", host, "]:", port) : base::StrCat("tcp://", host, ":", port);
}

std::string Endpoint::CanonicalHost() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (ipv6) {
    if (const auto address = ParseIpv6(host)) {
      inet_ntop(AF_INET6, &*address, text.data(), text.size());
      const std::size_t percent = host.find('%');
      return percent == std::string::npos
                 ? std::string(text.data())
                 : base::StrCat(text.data(), std::string_view(host).substr(percent));
    }
  } else if (const auto address = ParseIpv4(host)) {
    inet_ntop(AF_INET, &*address, text.data(), text.size());
    return text.data();
  }
  std::string lower = host;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower;
}

base::Result<Endpoint> ParseHostPort(std::string_view text) { return Parse(text, text); }

base::Result<Endpoint> ParseTcpUrl(std::string_view text) {
  constexpr std::string_view kScheme = "tcp://";
  if (!text.starts_with(kScheme)) return Wrong(text, "is not of the form tcp://host:port");
  return Parse(text.substr(kScheme.size()), text);
}

}  // namespace xms::kv_directory
