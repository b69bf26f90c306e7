// HttpServer: HTTP/1.1 on one port, requests to a handler, responses whole or as a stream.
//
// Place       Made by app for the HTTP and the RPC port, by the simulator for its engines. Knows
//             no OpenAI type.
// Threads     Start, Stop, port: the owner's thread. The handler runs on the event loop to which
//             the request's connection is bound; everything of one connection happens there.
//             Exchange methods: any thread (they post to that loop).
// Ownership   Borrows the pool. The handler and what it uses must outlive Stop(). An exchange may
//             outlive the server, not the pool.
// Bounds      Body, header, connection counts and pipelining are limited by Options; one request
//             per connection at a time. TCP_NODELAY always. Over the body limit: 413; malformed:
//             400; both answered here (on_refusal, error_body), then the connection closes.
// Failure     Start: kUnavailable with address and reason when the port cannot be bound.
//             Malformed: what two readers could understand differently is refused too
//             (internal/parser.h).
// Proof       Http*, bench/http.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "http/event_loop.h"
#include "http/message.h"

namespace xms::http {

// One request being answered. Kept alive by whoever answers. Destroyed without an answer: 500.
// Exactly one of Send or (StartStream, Write…, Finish | Abort).
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const Request& request() const = 0;
  virtual EventLoop& loop() = 0;

  virtual void Send(Response response) = 0;

  // Status and headers go out at once with the first chunk or at the next turn of the loop,
  // whichever is first; body by chunked coding, or until `Content-Length` when headers carry one.
  virtual void StartStream(int status, Headers headers) = 0;
  // `done(true)` once the bytes are with the kernel: write the next then, and memory stays bounded
  // by one chunk a client. `done(false)`: the client is gone.
  virtual void Write(std::string chunk, std::function<void(bool)> done) = 0;
  virtual void Finish() = 0;
  // Ends the connection without the closing chunk, so that the client sees that something is
  // missing.
  virtual void Abort() = 0;

  // Called once, on the loop, when the client closes or breaks before the answer is complete. A
  // client that ends its sending side while it is answered counts as gone. Not called after Send,
  // Finish or Abort: there is nothing left to stop then.
  virtual void OnDisconnect(std::function<void()> gone) = 0;
};

// A request that the server answers by itself.
struct Refusal {
  int status = 400;     // 400, 408, 413, 417, 431, 501; 500 when a handler dropped its exchange
  std::string message;  // for 413 and 431 with the limit in bytes
  // As far as it was read, without its body. Method and target are empty when the first line was
  // not read or not understood.
  const Request& request;
};

struct ServerOptions {
  std::string host = "127.0.0.1";  // numeric address; empty: all interfaces
  std::uint16_t port = 0;          // 0: any free one
  std::size_t max_body_bytes = std::size_t{16} * 1024 * 1024;
  std::size_t max_header_bytes = std::size_t{64} * 1024;
  std::size_t max_connections = 10000;         // further ones are closed at once and counted
  std::chrono::milliseconds idle_timeout{-1};  // between requests; negative: never
  // From the first byte of a request to the end of its header; negative: none.
  std::chrono::milliseconds header_timeout{30000};
  // A body may come slowly as long as each body_timeout brings body_progress bytes or its end;
  // negative: none.
  std::chrono::milliseconds body_timeout{30000};
  std::size_t body_progress = 4096;
  // From the first byte of a request to its last, however well it goes on; negative: none. Bounds
  // how long one that keeps to the pace above holds its connection.
  std::chrono::milliseconds request_timeout{600000};
  // Longest time in which a client that is being answered takes no byte; negative: none. Bounds
  // what one that stops reading can hold.
  std::chrono::milliseconds write_timeout{60000};
  // Asked when a request's header is complete, before its body is read, before 100 Continue and
  // before a declared length is compared with max_body_bytes; the request has no body yet. An
  // answer is sent instead of the handler's, and the connection closes after it. Runs on the
  // connection's loop.
  std::function<std::optional<Response>(const Request&)> on_headers = {};
  // Body of the answers which the server gives by itself. Status in, JSON out.
  std::function<std::string(int status, const std::string& message)> error_body = {};
  // The same with the request and the whole answer, for headers and counting; asked instead of
  // error_body when set. The status is Refusal's whatever the response says, and the connection
  // closes after it except when a handler dropped its exchange. Runs on the connection's loop.
  std::function<Response(const Refusal&)> on_refusal = {};
};

class HttpServer {
 public:
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;

  HttpServer(EventLoopPool& pool, ServerOptions options, Handler handler);
  ~HttpServer();  // Stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Reserves the port without listening: nobody else gets it, and clients are still refused.
  base::Status Bind();
  // Listens, on the port that Bind reserved if it was called. May be called again after
  // StopAccepting or Stop: the same port opens anew.
  base::Status Start();
  std::uint16_t port() const;  // after Bind or Start
  // Closes the listener and the connections on which nothing has been asked; exchanges in flight
  // and requests that are coming in go on, and every answer from now on ends its connection. Never
  // on a loop's own thread.
  void StopAccepting();
  // Closes the listener and every connection; OnDisconnect fires for those in flight, and has been
  // called when this returns. May be called twice, never on a loop's own thread.
  void Stop();
  std::size_t open_connections() const;
  // Those closed at once because max_connections was reached, since the first Start.
  std::uint64_t refused_connections() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace xms::http
