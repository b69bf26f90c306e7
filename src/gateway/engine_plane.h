// EnginePlane: how a request travels to an engine and its answer back.
//
// Place       Port of gateway; implemented by plane_http (and later plane_xllm), chosen by app per
//             data plane.
// Threads     Submit: on `loop`; every callback on that loop too, from inside Submit only on_sent.
// Ownership   The plane outlives its calls. A call may be dropped after Cancel.
// Failure     Exactly one of on_end and on_error, never after Cancel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "http/event_loop.h"
#include "http/message.h"

namespace xms::gateway {

struct EngineRequest {
  std::string instance;   // registered name, host:port
  http::Request request;  // method, target, end-to-end headers, re-serialised body
};

// How far a failed call had got; decides whether another engine may be tried.
enum class EngineStage : std::uint8_t {
  kNotSent,    // the engine never saw it, or nothing that can have begun it
  kSent,       // it may have; no byte of an answer came
  kAnswering,  // part of the answer came
};

struct EngineHandlers {
  // The engine is there: it has been sent the beginning of the request. May come inside Submit, and
  // again where the plane repeats; must not end the call.
  std::function<void()> on_sent;
  // As the engine sent them: which of them go further is the gateway's to say.
  std::function<void(int status, http::Headers headers)> on_headers;
  // `resume` asks for the next bytes; the engine is not read before.
  std::function<void(std::string chunk, std::function<void()> resume)> on_body;
  std::function<void()> on_end;
  std::function<void(base::Error error, EngineStage stage)> on_error;
};

class EngineCall {
 public:
  virtual ~EngineCall() = default;
  // The client is gone or a deadline passed: the engine is told at once (connection closed, or a
  // cancel message).
  virtual void Cancel() = 0;
  // The same, but on_error hears `why` and how far the call had got, before this returns.
  virtual void GiveUp(base::Error why) = 0;
};

class EnginePlane {
 public:
  virtual ~EnginePlane() = default;
  virtual std::shared_ptr<EngineCall> Submit(http::EventLoop& loop, EngineRequest request,
                                             EngineHandlers handlers) = 0;
};

}  // namespace xms::gateway
