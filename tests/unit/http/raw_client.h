// RawClient: a TCP connection that sends and reads exactly the bytes a test wants.
//
// Threads     Externally synchronised. Every read gives up after ten seconds, so a test ends.
// Failure     A connection that cannot be made, or a read that takes too long, fails the test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace xms::http::testing {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
inline std::string Filler(std::size_t bytes) { return std::string(bytes, 'x'); }

class RawClient {
 public:
  struct Options {
    int receive_buffer = 0;  // bytes; 0: the kernel's choice
    bool may_fail = false;   // a refused connection is no failure of the test
  };
  explicit RawClient(std::uint16_t port) : RawClient(port, Options()) {}
  RawClient(std::uint16_t port, Options options);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void Send(std::string_view bytes);
  // False when the peer has closed or reset.
  bool TrySend(std::string_view bytes);
  void EndSending();
  void Close();
  void Reset();  // RST instead of FIN

  // Everything up to and including `mark`, or what came before the peer closed.
  std::string ReadUntil(std::string_view mark);
  std::string Read(std::size_t bytes);
  // Until the peer closes; `reset` tells whether it did so rudely.
  std::string ReadAll(bool* reset = nullptr);
  // One response with Content-Length, header and body.
  std::string ReadResponse();
  // Nothing has come and the peer has not closed.
  bool IsSilent() const;

 private:
  // False at the end.
  bool ReadMore();

  int fd_ = -1;
  bool was_reset_ = false;
  std::string buffer_;
};

// "HTTP/1.1 404 Not Found…" -> 404; 0 when it is no response.
int StatusOf(std::string_view response);
std::string BodyOf(std::string_view response);

// A listening socket whose connections are served by hand: for tests of the client.
class RawServer {
 public:
  RawServer();
  ~RawServer();
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

  std::uint16_t port() const { return port_; }
  void StopListening();

  class Peer {
   public:
    explicit Peer(int fd) : fd_(fd) {}
    ~Peer();
    Peer(Peer&& other) noexcept : fd_(other.fd_), buffer_(std::move(other.buffer_)) {
      other.fd_ = -1;
    }
    Peer& operator=(Peer&&) = delete;

    // Header and, by Content-Length, body; empty when the client closed instead.
    std::string ReadRequest();
    // True once the client has sent something that was not read.
    bool WaitForBytes();
    void Send(std::string_view bytes);
    // As many bytes as the client takes before it stops reading for a moment.
    std::size_t SendUntilFull(std::size_t at_most);
    void Close();
    void Reset();
    // True once the client has closed or reset.
    bool WaitForEnd();

   private:
    int fd_;
    std::string buffer_;
  };
  Peer Accept();
  // No connection is waiting to be accepted.
  bool NobodyWaits() const;

 private:
  int fd_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace xms::http::testing
