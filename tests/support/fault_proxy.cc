#include "tests/support/fault_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tests/support/zmtp_splitter.h"

namespace xms::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

constexpr std::size_t kReadBytes = 16 << 10;
// Small, so that a reader who does not read is felt by the publisher soon.
constexpr int kSocketBuffer = 16 << 10;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "FaultProxy: %s: %s\n", what, std::strerror(errno));
  std::abort();
}

sockaddr_in Loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

int NewSocket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) Die("socket");
  return fd;
}

void SetInt(int fd, int level, int option, int value) {
  if (setsockopt(fd, level, option, &value, sizeof value) != 0) Die("socket option");
}

void CloseAs(int fd, FaultProxy::Cut how) {
  if (how == FaultProxy::Cut::kReset) {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  close(fd);
}

// One direction of a connection.
struct Flow {
  struct Chunk {
    Time due;
    std::string bytes;
    std::size_t sent = 0;
  };
  std::deque<Chunk> chunks;
  std::size_t queued = 0;
  bool ended = false;  // the sender has closed; what is queued still goes out
  Time next_write{};   // throttled

  void Add(std::string bytes, Time due) {
    if (bytes.empty()) return;
    queued += bytes.size();
    chunks.push_back({due, std::move(bytes)});
  }
};

}  // namespace

struct FaultProxy::Impl {
  struct Connection {
    int client = -1;
    int target = -1;
    bool joined = false;  // the connection to the target stands
    Flow up;
    Flow down;
    ZmtpSplitter splitter;
    std::size_t to_swallow = 0;
    std::optional<std::size_t> cut_after;
    std::optional<std::string> swapped;  // waits for its successor
  };

  explicit Impl(std::uint16_t to) : target_port(to) {
    listener = NewSocket();
    SetInt(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    SetInt(listener, SOL_SOCKET, SO_SNDBUF, kSocketBuffer);
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof address;
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0) Die("bind");
    if (listen(listener, 128) != 0) Die("listen");
    if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) Die("name");
    port = ntohs(address.sin_port);
    wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake < 0) Die("eventfd");
    thread = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }

  ~Impl() {
    thread.request_stop();
    Wake();
    thread.join();
    base::MutexLock lock(mu);
    for (Connection& one : connections) Close(one, Cut::kClose);
    for (const int fd : held) close(fd);
    close(listener);
    close(wake);
  }

  void Wake() const {
    const std::uint64_t one = 1;
    if (write(wake, &one, sizeof one) < 0 && errno != EAGAIN) Die("wake");
  }

  void Run(const std::stop_token& stop) {
    std::vector<pollfd> polled;
    while (!stop.stop_requested()) {
      int timeout = -1;
      {
        base::MutexLock lock(mu);
        timeout = Prepare(polled);
      }
      if (poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR) Die("poll");
      std::uint64_t count = 0;
      if (read(wake, &count, sizeof count) < 0 && errno != EAGAIN) Die("wake");
      base::MutexLock lock(mu);
      AcceptAll();
      if (stalled) continue;
      for (auto it = connections.begin(); it != connections.end();) {
        it = Serve(*it) ? std::next(it) : connections.erase(it);
      }
    }
  }

  // What to wait for; returns how long at most.
  int Prepare(std::vector<pollfd>& polled) XMS_REQUIRES(mu) {
    polled.assign({{listener, POLLIN, 0}, {wake, POLLIN, 0}});
    if (stalled) return -1;
    const Time now = Clock::now();
    Time next = Time::max();
    for (Connection& one : connections) {
      const auto watch = [&](int fd, const Flow& in, const Flow& out) {
        short events = 0;
        if (!in.ended && in.queued < kMaxQueued) events |= POLLIN;
        if (!out.chunks.empty()) {
          const Time at = std::max(out.chunks.front().due, out.next_write);
          if (at <= now) events |= POLLOUT;
          if (at > now) next = std::min(next, at);
        }
        // An end is always reported, so who waits for time alone is not polled.
        if (events != 0) polled.push_back({fd, events, 0});
      };
      if (!one.joined) {
        polled.push_back({one.target, POLLOUT, 0});
        continue;
      }
      watch(one.client, one.up, one.down);
      watch(one.target, one.down, one.up);
    }
    if (next == Time::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
    return static_cast<int>(std::max<std::int64_t>(left, 0));
  }

  void AcceptAll() XMS_REQUIRES(mu) {
    for (;;) {
      const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) break;
      held.push_back(fd);
    }
    if (hold_new) return;
    while (!held.empty()) {
      Join(held.back());
      held.pop_back();
    }
  }

  void Join(int client) XMS_REQUIRES(mu) {
    Connection& one = connections.emplace_back();
    one.client = client;
    one.target = NewSocket();
    one.cut_after = cut_after;
    SetInt(one.client, IPPROTO_TCP, TCP_NODELAY, 1);
    SetInt(one.target, IPPROTO_TCP, TCP_NODELAY, 1);
    SetInt(one.target, SOL_SOCKET, SO_RCVBUF, kSocketBuffer);
    const sockaddr_in address = Loopback(target_port);
    if (connect(one.target, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
        errno != EINPROGRESS) {
      Close(one, Cut::kReset);
      connections.pop_back();
    }
  }

  void Close(Connection& one, Cut how) XMS_REQUIRES(mu) {
    CloseAs(one.client, how);
    CloseAs(one.target, how);
  }

  // False: it is over.
  bool Serve(Connection& one) XMS_REQUIRES(mu) {
    if (!one.joined) {
      int error = 0;
      socklen_t size = sizeof error;
      pollfd ready{one.target, POLLOUT, 0};
      if (poll(&ready, 1, 0) == 0) return true;
      getsockopt(one.target, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) {
        Close(one, Cut::kReset);
        return false;
      }
      one.joined = true;
      ++accepted;
    }
    bool reset = false;
    std::string up;
    std::string down;
    bool open = Read(one.client, one.up, reset, up) && Read(one.target, one.down, reset, down);
    one.up.Add(std::move(up), Clock::now());
    TakeDown(one, std::move(down));
    open = open && Write(one.target, one.up, nullptr) && Write(one.client, one.down, &one);
    if (!open) {
      Close(one, reset ? Cut::kReset : cut_how);
      return false;
    }
    const bool over =
        (one.up.ended && one.up.chunks.empty()) || (one.down.ended && one.down.chunks.empty());
    if (over) Close(one, Cut::kClose);
    return !over;
  }

  // What is there, into `bytes`. False: the sender has reset the connection.
  static bool Read(int fd, Flow& flow, bool& reset, std::string& bytes) {
    char buffer[kReadBytes];
    while (!flow.ended && flow.queued + bytes.size() < kMaxQueued) {
      const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
      if (got > 0) {
        bytes.append(buffer, static_cast<std::size_t>(got));
      } else if (got == 0) {
        flow.ended = true;
      } else if (errno == EAGAIN) {
        break;
      } else {
        reset = true;
        return false;
      }
    }
    return true;
  }

  // Downstream bytes meet the faults in this order: all swallowed, whole messages, some swallowed,
  // delayed; later cut, throttled.
  void TakeDown(Connection& one, std::string bytes) XMS_REQUIRES(mu) {
    if (swallow) return;
    const Time now = Clock::now();
    const Time due = now + delay;
    for (ZmtpSplitter::Piece& piece : one.splitter.Take(bytes)) {
      if (!piece.message) {
        Emit(one, std::move(piece.bytes), now);
      } else if (to_lose > 0) {
        --to_lose;
        ++messages_lost;
      } else if (to_swap > 0) {
        --to_swap;
        one.swapped = std::move(piece.bytes);
      } else {
        if (to_repeat > 0) {
          --to_repeat;
          Emit(one, piece.bytes, due);
        }
        Emit(one, std::move(piece.bytes), due);
        if (one.swapped) Emit(one, *std::exchange(one.swapped, std::nullopt), due);
      }
    }
  }

  static void Emit(Connection& one, std::string bytes, Time due) {
    const std::size_t gone = std::min(bytes.size(), one.to_swallow);
    one.to_swallow -= gone;
    bytes.erase(0, gone);
    one.down.Add(std::move(bytes), due);
  }

  // `downstream`: null on the way up, where no fault applies. False: cut, or the receiver has gone.
  bool Write(int fd, Flow& flow, Connection* downstream) XMS_REQUIRES(mu) {
    while (!flow.chunks.empty()) {
      const Time now = Clock::now();
      Flow::Chunk& chunk = flow.chunks.front();
      if (chunk.due > now || flow.next_write > now) return true;
      std::size_t most = chunk.bytes.size() - chunk.sent;
      if (downstream != nullptr) {
        if (downstream->cut_after == 0) return false;
        if (downstream->cut_after) most = std::min(most, *downstream->cut_after);
        if (rate > 0) most = std::min(most, std::max<std::size_t>(1, rate / 100));
      }
      const ssize_t sent = send(fd, chunk.bytes.data() + chunk.sent, most, MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN;
      const auto count = static_cast<std::size_t>(sent);
      chunk.sent += count;
      flow.queued -= count;
      if (downstream != nullptr) {
        bytes_down += count;
        if (downstream->cut_after) *downstream->cut_after -= count;
        if (rate > 0) flow.next_write = now + std::chrono::microseconds(count * 1'000'000 / rate);
      }
      if (chunk.sent == chunk.bytes.size()) flow.chunks.pop_front();
    }
    return downstream == nullptr || downstream->cut_after != 0;
  }

  const std::uint16_t target_port;
  std::uint16_t port = 0;  // set once in the constructor
  int listener = -1;
  int wake = -1;

  base::Mutex mu;
  std::list<Connection> connections XMS_GUARDED_BY(mu);
  std::vector<int> held XMS_GUARDED_BY(mu);  // accepted, oldest first
  bool stalled XMS_GUARDED_BY(mu) = false;
  bool swallow XMS_GUARDED_BY(mu) = false;
  bool hold_new XMS_GUARDED_BY(mu) = false;
  std::chrono::milliseconds delay XMS_GUARDED_BY(mu){0};
  std::size_t rate XMS_GUARDED_BY(mu) = 0;
  std::optional<std::size_t> cut_after XMS_GUARDED_BY(mu);
  Cut cut_how XMS_GUARDED_BY(mu) = Cut::kClose;
  std::size_t to_lose XMS_GUARDED_BY(mu) = 0;
  std::size_t to_repeat XMS_GUARDED_BY(mu) = 0;
  std::size_t to_swap XMS_GUARDED_BY(mu) = 0;
  std::size_t accepted XMS_GUARDED_BY(mu) = 0;
  std::size_t messages_lost XMS_GUARDED_BY(mu) = 0;
  std::uint64_t bytes_down XMS_GUARDED_BY(mu) = 0;

  std::jthread thread;
};

FaultProxy::FaultProxy(std::uint16_t target_port) : impl_(std::make_unique<Impl>(target_port)) {}
FaultProxy::~FaultProxy() = default;

std::uint16_t FaultProxy::port() const { return impl_->port; }
std::string FaultProxy::endpoint() const { return "tcp://127.0.0.1:" + std::to_string(port()); }

void FaultProxy::Stall(bool on) {
  {
    base::MutexLock lock(impl_->mu);
    impl_->stalled = on;
  }
  impl_->Wake();
}

void FaultProxy::Delay(std::chrono::milliseconds by) {
  {
    base::MutexLock lock(impl_->mu);
    impl_->delay = by;
  }
  impl_->Wake();
}

void FaultProxy::Throttle(std::size_t bytes_a_second) {
  {
    base::MutexLock lock(impl_->mu);
    impl_->rate = bytes_a_second;
    for (auto& one : impl_->connections) one.down.next_write = {};
  }
  impl_->Wake();
}

void FaultProxy::Swallow(bool on) {
  {
    base::MutexLock lock(impl_->mu);
    impl_->swallow = on;
  }
  impl_->Wake();
}

void FaultProxy::CutAfter(std::size_t bytes, Cut how) {
  {
    base::MutexLock lock(impl_->mu);
    impl_->cut_after = bytes;
    impl_->cut_how = how;
    for (auto& one : impl_->connections) one.cut_after = bytes;
  }
  impl_->Wake();
}

void FaultProxy::CutNoMore() {
  {
    base::MutexLock lock(impl_->mu);
    impl_->cut_after.reset();
    for (auto& one : impl_->connections) one.cut_after.reset();
  }
  impl_->Wake();
}

void FaultProxy::HoldNew(bool on) {
  {
    base::MutexLock lock(impl_->mu);
    impl_->hold_new = on;
  }
  impl_->Wake();
}

void FaultProxy::CutAll(Cut how) {
  {
    base::MutexLock lock(impl_->mu);
    for (auto& one : impl_->connections) impl_->Close(one, how);
    impl_->connections.clear();
  }
  impl_->Wake();
}

void FaultProxy::SwallowBytes(std::size_t bytes) {
  {
    base::MutexLock lock(impl_->mu);
    for (auto& one : impl_->connections) one.to_swallow += bytes;
  }
  impl_->Wake();
}

void FaultProxy::LoseMessages(std::size_t messages) {
  {
    base::MutexLock lock(impl_->mu);
    impl_->to_lose += messages;
  }
  impl_->Wake();
}

void FaultProxy::RepeatMessages(std::size_t messages) {
  {
    base::MutexLock lock(impl_->mu);
    impl_->to_repeat += messages;
  }
  impl_->Wake();
}

void FaultProxy::SwapMessages() {
  {
    base::MutexLock lock(impl_->mu);
    ++impl_->to_swap;
  }
  impl_->Wake();
}

std::size_t FaultProxy::connections() const {
  base::MutexLock lock(impl_->mu);
  return static_cast<std::size_t>(
      std::count_if(impl_->connections.begin(), impl_->connections.end(),
                    [](const Impl::Connection& one) { return one.joined; }));
}

std::size_t FaultProxy::held() const {
  base::MutexLock lock(impl_->mu);
  return impl_->held.size();
}

std::size_t FaultProxy::accepted() const {
  base::MutexLock lock(impl_->mu);
  return impl_->accepted;
}

std::uint64_t FaultProxy::bytes_down() const {
  base::MutexLock lock(impl_->mu);
  return impl_->bytes_down;
}

std::size_t FaultProxy::messages_lost() const {
  base::MutexLock lock(impl_->mu);
  return impl_->messages_lost;
}

}  // namespace xms::testing
