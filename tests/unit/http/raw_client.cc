#include "tests/unit/http/raw_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

namespace xms::http::testing {
namespace {

constexpr int kPatienceMs = 10000;

bool WaitFor(int fd, short events, int timeout_ms) {
  pollfd poll_for{fd, events, 0};
  int ready = 0;
  do {
    ready = ::poll(&poll_for, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

sockaddr_in Loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

void SetReset(int fd) {
  const linger reset{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

bool SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    if (!WaitFor(fd, POLLOUT, kPatienceMs)) {
      ADD_FAILURE() << "the peer took no byte for " << kPatienceMs << " ms";
      return false;
    }
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::size_t ContentLength(std::string_view header) {
  std::string lower(header);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto at = lower.find("content-length: ");
  if (at == std::string::npos) return 0;
  std::size_t length = 0;
  const char* first = lower.data() + at + std::strlen("content-length: ");
  std::from_chars(first, lower.data() + lower.size(), length);
  return length;
}

}  // namespace

RawClient::RawClient(std::uint16_t port, Options options) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (options.receive_buffer > 0) {
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &options.receive_buffer, sizeof(int));
  }
  const sockaddr_in address = Loopback(port);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      !options.may_fail) {
    ADD_FAILURE() << "cannot connect to port " << port << ": " << std::strerror(errno);
  }
}

RawClient::~RawClient() { Close(); }

void RawClient::Send(std::string_view bytes) {
  if (!SendAll(fd_, bytes)) ADD_FAILURE() << "the server closed while it was sent to";
}

bool RawClient::TrySend(std::string_view bytes) { return SendAll(fd_, bytes); }

void RawClient::EndSending() { ::shutdown(fd_, SHUT_WR); }

void RawClient::Close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void RawClient::Reset() {
  SetReset(fd_);
  Close();
}

bool RawClient::ReadMore() {
  if (!WaitFor(fd_, POLLIN, kPatienceMs)) {
    ADD_FAILURE() << "nothing came for " << kPatienceMs << " ms; so far: \""
                  << buffer_.substr(0, 500) << "\"";
    return false;
  }
  char bytes[16384];
  const ssize_t count = ::recv(fd_, bytes, sizeof bytes, 0);
  if (count < 0) was_reset_ = true;
  if (count <= 0) return false;
  buffer_.append(bytes, static_cast<std::size_t>(count));
  return true;
}

std::string RawClient::ReadUntil(std::string_view mark) {
  std::size_t end = std::string::npos;
  while ((end = buffer_.find(mark)) == std::string::npos) {
    if (!ReadMore()) return std::exchange(buffer_, {});
  }
  std::string out = buffer_.substr(0, end + mark.size());
  buffer_.erase(0, out.size());
  return out;
}

std::string RawClient::Read(std::size_t bytes) {
  while (buffer_.size() < bytes && ReadMore()) {
  }
  std::string out = buffer_.substr(0, bytes);
  buffer_.erase(0, out.size());
  return out;
}

std::string RawClient::ReadAll(bool* reset) {
  while (ReadMore()) {
  }
  if (reset != nullptr) *reset = was_reset_;
  return std::exchange(buffer_, {});
}

std::string RawClient::ReadResponse() {
  std::string header = ReadUntil("\r\n\r\n");
  return header + Read(ContentLength(header));
}

bool RawClient::IsSilent() const { return buffer_.empty() && !WaitFor(fd_, POLLIN, 0); }

int StatusOf(std::string_view response) {
  int status = 0;
  if (response.size() < 12 || response.substr(0, 7) != "HTTP/1.") return 0;
  std::from_chars(response.data() + 9, response.data() + 12, status);
  return status;
}

std::string BodyOf(std::string_view response) {
  const auto end = response.find("\r\n\r\n");
  return end == std::string_view::npos ? std::string() : std::string(response.substr(end + 4));
}

RawServer::RawServer() {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(fd_, 64) != 0 ||
      ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    ADD_FAILURE() << "cannot listen: " << std::strerror(errno);
  }
  port_ = ntohs(address.sin_port);
}

RawServer::~RawServer() { StopListening(); }

void RawServer::StopListening() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

RawServer::Peer RawServer::Accept() {
  if (!WaitFor(fd_, POLLIN, kPatienceMs)) {
    ADD_FAILURE() << "nobody connected for " << kPatienceMs << " ms";
    return Peer(-1);
  }
  return Peer(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC));
}

bool RawServer::NobodyWaits() const { return !WaitFor(fd_, POLLIN, 0); }

RawServer::Peer::~Peer() { Close(); }

void RawServer::Peer::Close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void RawServer::Peer::Reset() {
  SetReset(fd_);
  Close();
}

std::string RawServer::Peer::ReadRequest() {
  for (;;) {
    const auto end = buffer_.find("\r\n\r\n");
    if (end != std::string::npos) {
      const std::size_t whole =
          end + 4 + ContentLength(std::string_view(buffer_).substr(0, end + 2));
      if (buffer_.size() >= whole) {
        std::string request = buffer_.substr(0, whole);
        buffer_.erase(0, whole);
        return request;
      }
    }
    if (!WaitFor(fd_, POLLIN, kPatienceMs)) {
      ADD_FAILURE() << "no whole request for " << kPatienceMs << " ms";
      return {};
    }
    char bytes[16384];
    const ssize_t count = ::recv(fd_, bytes, sizeof bytes, 0);
    if (count <= 0) return {};
    buffer_.append(bytes, static_cast<std::size_t>(count));
  }
}

bool RawServer::Peer::WaitForBytes() { return WaitFor(fd_, POLLIN, kPatienceMs); }

void RawServer::Peer::Send(std::string_view bytes) {
  if (!SendAll(fd_, bytes)) ADD_FAILURE() << "the client closed while it was sent to";
}

std::size_t RawServer::Peer::SendUntilFull(std::size_t at_most) {
  const std::string block(16384, 'x');
  std::size_t sent = 0;
  while (sent < at_most && WaitFor(fd_, POLLOUT, 300)) {
    const ssize_t count = ::send(fd_, block.data(), std::min(block.size(), at_most - sent),
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) break;
    sent += static_cast<std::size_t>(count);
  }
  return sent;
}

bool RawServer::Peer::WaitForEnd() {
  for (;;) {
    if (!WaitFor(fd_, POLLIN, kPatienceMs)) return false;
    char bytes[16384];
    if (::recv(fd_, bytes, sizeof bytes, 0) <= 0) return true;
  }
}

}  // namespace xms::http::testing
