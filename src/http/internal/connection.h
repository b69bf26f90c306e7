// Connection: one accepted socket, its requests one after another. ServerCore: what the
// connections of a server share.
//
// Threads     A connection is confined to its loop. ServerCore: options and handler are set before
//             the first connection; counters are atomics; a LoopConnections belongs to its loop.
// Ownership   LoopConnections owns open connections; waits and exchanges share them, so that a
//             closed one lives until the last of them lets go. After Close a connection touches
//             neither loop nor socket.
// Invariants  C1  At most one wait for reading and one for writing is pending.
//             C2  While an answer is made, reading goes on until kMostPipelined bytes are kept;
//                 from then on the end is looked for every kEndCheck. So a client that leaves is
//                 noticed; what it sent is its next request.
//             C3  What an exchange handed in is called from the loop's queue, never from inside
//                 one of its methods.
// Failure     A client that ends its side of the connection has left: before or while it is
//             answered the exchange is told and the connection closed, unless the answer is
//             complete and only has to be taken by the kernel.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "http/internal/loop.h"
#include "http/internal/parser.h"
#include "http/internal/socket.h"
#include "http/server.h"

namespace xms::http::internal {

class Connection;

struct LoopConnections {
  LoopImpl* loop = nullptr;
  std::unordered_set<std::shared_ptr<Connection>> open;  // the loop's thread only
  std::atomic<std::size_t> count{0};
};

struct ServerCore {
  ServerOptions options;
  HttpServer::Handler handler;
  std::vector<std::unique_ptr<LoopConnections>> loops;
  std::atomic<std::size_t> open{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<bool> draining{false};  // answers end their connection
  std::atomic<bool> stopped{false};   // no new connection

  Response AnswerTo(const Refusal& refusal) const;
};

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerCore> core, LoopConnections& home, Socket socket);
  ~Connection();

  void Start();
  // Ends it now. `callbacks_now`: what has to be told is told before Close returns; else by the
  // loop's queue.
  void Close(bool callbacks_now);

  // Ends it if nothing of a request has come.
  void CloseIfIdle();

  EventLoop& loop() { return loop_; }

  // Of exchanges. `serial` names the request; a call for one that is over changes nothing.
  void Send(std::uint64_t serial, Response response);
  void StartStream(std::uint64_t serial, int status, const Headers& headers);
  void Write(std::uint64_t serial, std::string chunk, std::function<void(bool)> done);
  void Finish(std::uint64_t serial);
  void Abort(std::uint64_t serial);
  void OnDisconnect(std::uint64_t serial, std::function<void()> gone);
  void Dropped(std::uint64_t serial, const Request& request);

 private:
  enum class State : std::uint8_t {
    kIdle,       // between requests
    kReceiving,  // part of a request is here
    kAnswering,  // from the complete request to the last byte of the answer
    kLingering,  // the last answer is out, the client shall read it before the connection goes
    kClosed,
  };
  enum class Phase : std::uint8_t { kOpen, kStreaming, kComplete };
  // The answer to the current request.
  struct Answer {
    Phase phase = Phase::kOpen;
    bool keep_alive = false;
    bool http_1_0 = false;
    bool head_only = false;
    bool chunked = false;
    std::optional<std::uint64_t> remaining;  // of a declared Content-Length
    bool request_cut_off = false;            // refused before its end
    bool client_gone = false;                // noticed while the answer was open
    std::function<void()> gone;
  };
  struct Outgoing {
    std::string head;
    std::string body;
    std::string_view tail;
    std::function<void(bool)> done;
    std::size_t size() const { return head.size() + body.size() + tail.size(); }
  };

  void WaitReadable();
  void OnReadable();
  void OnEnd();
  void KeepReading();
  void WatchForEnd();
  void Consume(std::string_view fresh);
  void OnHeaders();
  void Dispatch();
  bool AnsweredByHook();
  void Refuse(int status, std::string message);
  void AnswerUnhandled(Response response);
  void CompleteAnswer(int status, const Headers& headers, std::string body);
  void Push(Outgoing outgoing);
  void Flush();
  void WaitWritable();
  void OnAnswerWritten();
  void EndConnection();
  void SetDeadline();
  SteadyTime ReceivingDeadline();
  void OnDeadline();
  void Defer(std::function<void(bool)> done, bool ok);
  bool IsCurrent(std::uint64_t serial, Phase phase) const;

  const std::shared_ptr<ServerCore> core_;
  LoopConnections& home_;
  LoopImpl& loop_;
  std::optional<Socket> socket_;  // empty once closed
  LazyTimer timer_;
  std::string peer_address_;
  bool peer_is_loopback_ = false;

  State state_ = State::kIdle;
  bool reading_ = false;  // a wait is pending
  bool writing_ = false;  // a wait is pending
  bool pumping_ = false;  // Consume is on the stack
  bool peer_ended_ = false;
  std::unique_ptr<EventLoop::Timer> end_check_;  // while too much is here to read on
  std::string in_;                               // received, not consumed
  RequestParser parser_;
  bool headers_seen_ = false;  // of the request that is received
  std::optional<SteadyTime> receiving_since_;
  SteadyTime body_since_;       // the present stretch of the body
  std::size_t body_bytes_ = 0;  // in it, framing included
  SteadyTime idle_since_;
  SteadyTime write_progress_;  // when the kernel last took bytes

  std::uint64_t serial_ = 0;
  Answer answer_;
  std::deque<Outgoing> out_;
  std::size_t out_offset_ = 0;  // of out_.front(), already with the kernel
};

// The request with that serial, being answered. Its methods may be called from any thread.
std::shared_ptr<Exchange> MakeExchange(std::shared_ptr<Connection> connection, std::uint64_t serial,
                                       Request request);

}  // namespace xms::http::internal
