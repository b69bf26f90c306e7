#include "sim/port_plan.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <utility>

#include "base/str_cat.h"

namespace xms::sim {
namespace {

// Below it live well-known services.
constexpr std::uint32_t kLowestBase = 10240;
constexpr std::uint32_t kHighestPort = 65535;

base::Error Refused(std::string message) {
  return {base::ErrorCode::kInvalidArgument, std::move(message)};
}

class BoundSocket {
 public:
  BoundSocket(const std::string& host, std::uint16_t port)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    bound_ = ::inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1 &&
             ::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
             ::listen(fd_, 1) == 0;
  }
  ~BoundSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  BoundSocket(BoundSocket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), bound_(other.bound_) {}
  BoundSocket& operator=(BoundSocket&&) = delete;
  bool bound() const { return bound_; }

 private:
  int fd_;
  bool bound_ = false;
};

}  // namespace

PortRange EphemeralPorts() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  PortRange range;
  if (!(file >> range.first >> range.last)) return PortRange{};
  return range;
}

base::Result<PortPlan> PlanPorts(const PortRequest& request) {
  PortPlan plan;
  plan.http = request.http;
  if (plan.http.empty()) {
    std::uint32_t next = request.base;
    for (const std::uint32_t ranks : request.dp_sizes) {
      if (next > kHighestPort) return Refused(base::StrCat("HTTP port ", next, " is above 65535"));
      plan.http.push_back(static_cast<std::uint16_t>(next));
      next += ranks;
    }
  }
  // From the first HTTP port to behind the last rank.
  const std::uint32_t lowest = *std::ranges::min_element(plan.http);
  std::uint32_t end = 0;
  for (std::size_t i = 0; i < plan.http.size(); ++i) {
    end = std::max(end, plan.http[i] + request.dp_sizes[i]);
  }
  const std::uint32_t span = end - lowest;
  const bool fits_below = request.replay_offset == 0 || request.replay_offset >= 2 * span;
  plan.event_offset = request.event_offset != 0 ? request.event_offset
                      : fits_below              ? span
                                                : request.replay_offset + span;
  plan.replay_offset =
      request.replay_offset != 0 ? request.replay_offset : plan.event_offset + span;

  std::map<std::uint32_t, std::string> users;
  for (std::size_t i = 0; i < plan.http.size(); ++i) {
    std::vector<std::pair<std::uint32_t, std::string>> wanted{
        {plan.http[i], base::StrCat("HTTP of engine ", i)}};
    for (std::uint32_t rank = 0; rank < request.dp_sizes[i]; ++rank) {
      const std::string of = base::StrCat(" of engine ", i, " rank ", rank);
      wanted.emplace_back(plan.http[i] + plan.event_offset + rank, base::StrCat("events", of));
      wanted.emplace_back(plan.http[i] + plan.replay_offset + rank, base::StrCat("snapshots", of));
    }
    for (auto& [port, user] : wanted) {
      if (port > kHighestPort) {
        return Refused(base::StrCat("port ", port, " (", user, ") is above 65535"));
      }
      const auto [place, is_free] = users.try_emplace(port, user);
      if (!is_free) {
        return Refused(
            base::StrCat("port ", port, " is wanted twice: ", place->second, ", ", user));
      }
      plan.all.push_back(static_cast<std::uint16_t>(port));
    }
  }
  std::ranges::sort(plan.all);
  return plan;
}

std::vector<std::uint16_t> CandidateBases(const PortRequest& request, const PortRange& ephemeral,
                                          std::uint64_t seed) {
  std::vector<std::uint16_t> bases;
  PortRequest attempt = request;
  attempt.base = kLowestBase;
  // The same plan everywhere, only moved.
  const auto plan = PlanPorts(attempt);
  if (!plan.ok()) return bases;
  std::vector<std::uint16_t> above;
  for (std::uint32_t base = kLowestBase; base <= kHighestPort; ++base) {
    const std::uint32_t moved = base - kLowestBase;
    if (plan->all.back() + moved > kHighestPort) break;
    const bool clear = std::ranges::none_of(
        plan->all, [&](std::uint32_t port) { return ephemeral.Contains(port + moved); });
    if (!clear) continue;
    (plan->all.back() + moved < ephemeral.first ? bases : above)
        .push_back(static_cast<std::uint16_t>(base));
  }
  std::mt19937_64 random(seed);
  std::ranges::shuffle(bases, random);
  std::ranges::shuffle(above, random);
  bases.insert(bases.end(), above.begin(), above.end());
  return bases;
}

std::uint16_t FirstTakenPort(const std::string& host, const std::vector<std::uint16_t>& ports) {
  std::vector<BoundSocket> held;
  held.reserve(ports.size());
  for (const std::uint16_t port : ports) {
    held.emplace_back(host, port);
    if (!held.back().bound()) return port;
  }
  return 0;
}

}  // namespace xms::sim
