// What server and client connections share: the socket type, reads and writes that never block,
// and one timer a connection.
//
// Threads     Confined to the connection's loop.
// Design      Asio only says when a socket is ready; bytes move by recv and sendmsg with
//             MSG_DONTWAIT. So a connection that waits owns no buffer, a wait can be pending while
//             an answer is being made, and an answer that fits into the kernel's buffer costs one
//             call.
#pragma once

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace xms::http::internal {

using Executor = boost::asio::io_context::executor_type;
using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, Executor>;
using SteadyTime = std::chrono::steady_clock::time_point;
inline SteadyTime Now() { return std::chrono::steady_clock::now(); }

enum class IoResult { kBytes, kWouldBlock, kEnd, kBroken };

// kBytes: count > 0 says how many.
IoResult ReadSome(int fd, char* buffer, std::size_t size, std::size_t& count);
// Whether the peer has closed or sent something, without taking it.
IoResult Peek(int fd);
// At most kMostPieces pieces.
constexpr std::size_t kMostPieces = 16;
IoResult WriteSome(int fd, const std::string_view* pieces, std::size_t pieces_count,
                   std::size_t& count);

// Whether the peer has ended its side or reset, even though bytes may lie before that.
bool HasEnded(int fd);
// Bytes written that the peer's kernel has not confirmed; 0 when that is unknown.
std::size_t Unconfirmed(int fd);

// No delay for small writes; keep-alive probes notice within about a minute that a silent peer's
// machine vanished.
void TuneSocket(int fd);
// The same for bytes that nobody acknowledges: the kernel would try for a quarter of an hour.
void LimitUnacknowledged(int fd);

// A deadline that moves often and passes rarely: moving it later costs nothing, the timer that was
// set notices when it fires.
class LazyTimer {
 public:
  // `expired` is called on the loop when the deadline that is set then has passed.
  LazyTimer(boost::asio::io_context& context, std::function<void()> expired)
      : timer_(std::in_place, context), expired_(std::move(expired)) {}

  // `owner` is kept alive until the pending wait ends or Stop is called.
  void Set(SteadyTime deadline, std::shared_ptr<void> owner);
  void Clear() { deadline_ = SteadyTime::max(); }
  // For good; afterwards the loop may be gone.
  void Stop();

 private:
  using AsioTimer = boost::asio::basic_waitable_timer<
      std::chrono::steady_clock, boost::asio::wait_traits<std::chrono::steady_clock>, Executor>;
  void Wait(std::shared_ptr<void> owner);

  std::optional<AsioTimer> timer_;
  std::function<void()> expired_;
  SteadyTime deadline_ = SteadyTime::max();
  SteadyTime armed_for_ = SteadyTime::max();  // max: no wait is pending
  std::uint64_t round_ = 0;                   // of the pending wait; older ones were replaced
};

}  // namespace xms::http::internal
