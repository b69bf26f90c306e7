// HttpClient: requests over kept connections, answers as they arrive.
//
// Place       plane_http (to engines), probes, the simulator (registration, heartbeats), tests.
// Threads     A client is bound to one EventLoop: Start and Call methods are called there,
//             callbacks come there. Constructed anywhere.
// Ownership   Borrows the loop. Calls in flight end with kCancelled when the client is destroyed,
//             which happens on its loop, or anywhere once the pool has stopped: then no callback
//             comes.
// Pooling     Idle connections are kept per address up to max_idle_per_host and reused. A request
//             on a kept connection that the peer closed before any byte of the answer is sent once
//             more on a new one if that cannot begin it twice: GET and HEAD, one that was not
//             written whole, one of which the peer had received nothing when it closed. Any other
//             fails with kSent.
// Failure     Everything ends in exactly one on_end or on_error, and nothing after Cancel.
// Bounds      Headers and, through pause, body: the next bytes are read only after the last
//             chunk's `resume` was called. A resume that is dropped instead holds the call until
//             Cancel or total_timeout.
// Proof       Http*, PlaneHttp*.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/event_loop.h"
#include "http/message.h"

namespace xms::http {

// `host:port`, `[v6]:port`; names are resolved, numeric addresses without a look-up.
struct Address {
  std::string host;
  std::uint16_t port = 0;
};
// False when it is not host:port with a port of 1 … 65535.
bool ParseAddress(std::string_view text, Address& out);

struct ClientOptions {
  std::chrono::milliseconds connect_timeout{5000};
  std::size_t max_idle_per_host = 64;
  std::chrono::milliseconds idle_timeout{60000};
  std::size_t max_header_bytes = std::size_t{64} * 1024;
};

struct CallOptions {
  // From start to the last byte; negative: none. Between two reads; negative: none.
  std::chrono::milliseconds total_timeout{-1};
  std::chrono::milliseconds idle_timeout{-1};
};

// Where a call had got to when it failed: decides whether another engine may be tried.
enum class CallStage : std::uint8_t {
  kConnecting,  // nothing was sent, or nothing that can have begun the request (see Pooling)
  kSent,        // the request may have been read; no byte of the answer was seen
  kAnswering,   // part of the answer was seen
};

struct CallHandlers {
  // The connection stands and has taken the first bytes of the request; once more when it is sent
  // once more. May run inside Start, where a kept connection serves, and must not end the call.
  std::function<void()> on_sent;
  std::function<void(int status, Headers headers)> on_headers;
  // `resume` asks for more; call it once, now or later, on the loop.
  std::function<void(std::string chunk, std::function<void()> resume)> on_body;
  std::function<void()> on_end;  // the answer is complete
  std::function<void(base::Error error, CallStage stage)> on_error;
};

class HttpClient {
 public:
  HttpClient(EventLoop& loop, ClientOptions options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Destroying the handle does nothing; Cancel closes the connection at once, without callbacks
  // after it.
  class Call {
   public:
    virtual ~Call() = default;
    virtual void Cancel() = 0;
    // The same, but on_error hears `why`, before this returns.
    virtual void GiveUp(base::Error why) = 0;
  };
  // Host and Content-Length are added. Never throws; errors come through on_error, later.
  std::shared_ptr<Call> Start(const Address& to, Request request, CallOptions options,
                              CallHandlers handlers);

  // The whole answer at once, up to `max_body_bytes`.
  std::shared_ptr<Call> Fetch(const Address& to, Request request, CallOptions options,
                              std::size_t max_body_bytes,
                              std::function<void(base::Result<Response>)> done);

  // Requests that were sent once more, see Pooling. Any thread.
  std::uint64_t repeated_requests() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace xms::http
