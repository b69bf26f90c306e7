#include "kv_directory/streams/resolver.h"

#include <netdb.h>
#include <netinet/in.h>

#include <utility>

#include "base/thread_name.h"

namespace xms::kv_directory {
namespace {

std::vector<Resolver::Address> AskSystem(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &freeaddrinfo);
  std::vector<Resolver::Address> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) ==
        0) {
      addresses.push_back({text, one->ai_family == AF_INET6});
    }
  }
  return addresses;
}

}  // namespace

std::shared_ptr<const Resolver::Lookup> Resolver::Find(const std::string& host,
                                                       std::shared_ptr<Wakeup> wakeup) {
  if (auto literal = AskSystem(host, AI_NUMERICHOST); !literal.empty()) {
    auto lookup = std::make_shared<Lookup>();
    lookup->addresses_ = std::move(literal);
    lookup->done_.store(true, std::memory_order_release);
    return lookup;
  }
  base::MutexLock lock(mu_);
  // A thread whose lookup is done has nothing left to wait for.
  running_.remove_if([](const Running& one) { return one.lookup->done(); });
  for (const Running& one : running_) {
    if (one.host != host) continue;
    one.lookup->waiting_.push_back(std::move(wakeup));
    return one.lookup;
  }
  auto lookup = std::make_shared<Lookup>();
  lookup->waiting_.push_back(std::move(wakeup));
  Running& one = running_.emplace_back(Running{host, lookup, {}});
  one.thread = std::jthread([this, host, lookup] { Run(host, *lookup); });
  return lookup;
}

void Resolver::Run(const std::string& host, Lookup& lookup) {
  base::NameThisThread("xms-lookup");
  lookup.addresses_ = AskSystem(host, 0);
  std::vector<std::shared_ptr<Wakeup>> waiting;
  {
    base::MutexLock lock(mu_);
    waiting.swap(lookup.waiting_);
    lookup.done_.store(true, std::memory_order_release);
  }
  // Without the mutex from here on: whoever sees `done` may join this thread while holding it.
  for (const auto& wakeup : waiting) wakeup->Signal();
}

}  // namespace xms::kv_directory
