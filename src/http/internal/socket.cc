#include "http/internal/socket.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace xms::http::internal {
namespace {

bool IsWouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

IoResult Receive(int fd, char* buffer, std::size_t size, int flags, std::size_t& count) {
  for (;;) {
    const ssize_t n = ::recv(fd, buffer, size, flags | MSG_DONTWAIT);
    if (n > 0) {
      count = static_cast<std::size_t>(n);
      return IoResult::kBytes;
    }
    count = 0;
    if (n == 0) return IoResult::kEnd;
    if (errno == EINTR) continue;
    return IsWouldBlock(errno) ? IoResult::kWouldBlock : IoResult::kBroken;
  }
}

void SetOption(int fd, int level, int name, int value) {
  // Failure leaves the default in place, which works, only less well.
  (void)::setsockopt(fd, level, name, &value, sizeof value);
}

}  // namespace

IoResult ReadSome(int fd, char* buffer, std::size_t size, std::size_t& count) {
  return Receive(fd, buffer, size, 0, count);
}

IoResult Peek(int fd) {
  char byte = 0;
  std::size_t count = 0;
  return Receive(fd, &byte, 1, MSG_PEEK, count);
}

IoResult WriteSome(int fd, const std::string_view* pieces, std::size_t pieces_count,
                   std::size_t& count) {
  std::array<iovec, kMostPieces> vectors;
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = std::min(pieces_count, kMostPieces);
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    vectors[i] = {const_cast<char*>(pieces[i].data()), pieces[i].size()};
  }
  for (;;) {
    const ssize_t n = ::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      count = static_cast<std::size_t>(n);
      return IoResult::kBytes;
    }
    count = 0;
    if (errno == EINTR) continue;
    return IsWouldBlock(errno) ? IoResult::kWouldBlock : IoResult::kBroken;
  }
}

bool HasEnded(int fd) {
  pollfd watched{fd, POLLRDHUP, 0};
  return ::poll(&watched, 1, 0) > 0;
}

std::size_t Unconfirmed(int fd) {
  int bytes = 0;
  return ::ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

void TuneSocket(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

void LimitUnacknowledged(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 60000);  // milliseconds
}

void LazyTimer::Set(SteadyTime deadline, std::shared_ptr<void> owner) {
  if (!timer_) return;
  deadline_ = deadline;
  if (armed_for_ <= deadline) return;
  armed_for_ = deadline;
  Wait(std::move(owner));
}

void LazyTimer::Wait(std::shared_ptr<void> owner) {
  timer_->expires_at(armed_for_);
  timer_->async_wait(
      [this, owner = std::move(owner), round = ++round_](const boost::system::error_code& error) {
        if (error || round != round_) return;
        armed_for_ = SteadyTime::max();
        if (deadline_ == SteadyTime::max()) return;
        if (deadline_ > std::chrono::steady_clock::now()) {
          armed_for_ = deadline_;
          Wait(owner);
          return;
        }
        deadline_ = SteadyTime::max();
        expired_();
      });
}

void LazyTimer::Stop() {
  Clear();
  ++round_;
  armed_for_ = SteadyTime::max();
  timer_.reset();
}

}  // namespace xms::http::internal
