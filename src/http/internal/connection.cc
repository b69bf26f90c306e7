#include "http/internal/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/str_cat.h"

namespace xms::http::internal {
namespace {

// Pipelined bytes that are taken while an answer is being made; then the client has to wait.
constexpr std::size_t kMostPipelined = std::size_t{16} * 1024;
// How often a client that has to wait is looked at. Its bytes in the kernel keep the socket
// readable, so that no wait would tell its end.
constexpr std::chrono::milliseconds kEndCheck{100};
// How long a client may take to read the last answer and close.
constexpr std::chrono::seconds kLingerTime{5};

}  // namespace

Response ServerCore::AnswerTo(const Refusal& refusal) const {
  const auto [status, message, request] = refusal;
  if (options.on_refusal) {
    Response response = options.on_refusal(refusal);
    response.status = status;
    return response;
  }
  if (options.error_body) return JsonResponse(status, options.error_body(status, message));
  return JsonResponse(
      status, base::StrCat("{\"error\":{\"message\":\"", message, "\",\"code\":", status, "}}"));
}

Connection::Connection(std::shared_ptr<ServerCore> core, LoopConnections& home, Socket socket)
    : core_(std::move(core)),
      home_(home),
      loop_(*home.loop),
      socket_(std::move(socket)),
      timer_(loop_.context(), [this] { OnDeadline(); }),
      parser_(core_->options.max_header_bytes, core_->options.max_body_bytes),
      idle_since_(Now()) {
  boost::system::error_code error;
  const auto endpoint = socket_->remote_endpoint(error);
  if (error) return;  // already gone; the first read will say so
  auto address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6());
  }
  peer_address_ = address.to_string();
  peer_is_loopback_ = address.is_loopback();
}

Connection::~Connection() = default;

void Connection::Start() {
  TuneSocket(socket_->native_handle());
  SetDeadline();
  // The first request is usually here already.
  OnReadable();
}

void Connection::WaitReadable() {
  if (reading_ || peer_ended_ || state_ == State::kClosed) return;
  reading_ = true;
  socket_->async_wait(Socket::wait_read,
                      [self = shared_from_this()](const boost::system::error_code& error) {
                        self->reading_ = false;
                        if (!error && self->state_ != State::kClosed) self->OnReadable();
                      });
}

void Connection::OnReadable() {
  std::size_t count = 0;
  switch (ReadSome(socket_->native_handle(), loop_.scratch(), LoopImpl::kScratchBytes, count)) {
    case IoResult::kWouldBlock:
      WaitReadable();
      return;
    case IoResult::kEnd:
      OnEnd();
      return;
    case IoResult::kBroken:
      Close(false);
      return;
    case IoResult::kBytes:
      break;
  }
  const std::string_view fresh(loop_.scratch(), count);
  switch (state_) {
    case State::kIdle:
    case State::kReceiving:
      Consume(fresh);
      return;
    case State::kAnswering:
      in_.append(fresh);
      KeepReading();
      return;
    case State::kLingering:
      WaitReadable();
      return;  // what a refused client still sends means nothing
    case State::kClosed:
      return;
  }
}

void Connection::OnEnd() {
  peer_ended_ = true;
  if (state_ == State::kAnswering && answer_.phase == Phase::kComplete) {
    answer_.keep_alive = false;  // only the kernel has to take the rest
    return;
  }
  Close(false);
}

void Connection::KeepReading() {
  if (state_ == State::kAnswering && in_.size() >= kMostPipelined) {
    WatchForEnd();
  } else {
    WaitReadable();
  }
}

void Connection::WatchForEnd() {
  if (end_check_ || peer_ended_) return;
  if (HasEnded(socket_->native_handle())) {
    OnEnd();
    return;
  }
  end_check_ = loop_.PostAfter(kEndCheck, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->state_ == State::kClosed) return;
    self->end_check_.reset();
    if (self->state_ == State::kAnswering && self->in_.size() >= kMostPipelined) {
      self->WatchForEnd();
    }
  });
}

void Connection::Consume(std::string_view fresh) {
  if (state_ == State::kReceiving && headers_seen_) body_bytes_ += fresh.size();
  // Bytes are parsed where they were read; only what cannot be consumed yet is copied.
  if (!in_.empty()) in_.append(fresh);
  bool from_in = !in_.empty();
  std::string_view rest = from_in ? std::string_view(in_) : fresh;
  pumping_ = true;
  bool more = true;
  while (more && (state_ == State::kIdle || state_ == State::kReceiving)) {
    if (state_ == State::kIdle) {
      // Some clients send an empty line after a body.
      while (!rest.empty() && (rest.front() == '\r' || rest.front() == '\n')) rest.remove_prefix(1);
      if (rest.empty()) break;
      state_ = State::kReceiving;
      headers_seen_ = false;
      parser_.Reset();
      parser_.request().peer_address = peer_address_;
      parser_.request().peer_is_loopback = peer_is_loopback_;
    }
    std::size_t used = 0;
    const Progress progress = parser_.Feed(rest, used);
    rest.remove_prefix(used);
    switch (progress) {
      case Progress::kNeedMore:
        more = false;
        break;
      case Progress::kHeaders:
        body_bytes_ = rest.size();  // what came together with the header
        OnHeaders();
        if (state_ != State::kReceiving) rest = {};
        break;
      case Progress::kDone:
        if (!from_in) {
          // The handler may lead to reads into the same scratch memory.
          in_.assign(rest);
          from_in = true;
          rest = in_;
        }
        Dispatch();
        break;
      case Progress::kFailed:
        rest = {};
        // A declared length over the limit fails when the header is complete; the hook comes first.
        if (parser_.failure().status == 413 && !headers_seen_ && AnsweredByHook()) break;
        Refuse(parser_.failure().status, parser_.failure().message);
        break;
    }
  }
  pumping_ = false;
  if (state_ == State::kClosed) return;
  if (!from_in) {
    in_.assign(rest);
  } else if (rest.size() < in_.size()) {
    in_.erase(0, in_.size() - rest.size());
  }
  // The parser takes headers and body bytes as they come; what it leaves is part of a chunk header
  // or a trailer.
  if (state_ == State::kReceiving && in_.size() > core_->options.max_header_bytes) {
    Refuse(431, base::StrCat("a chunk header or the trailer is larger than ",
                             core_->options.max_header_bytes, " bytes"));
  }
  if (state_ == State::kClosed) return;
  if (state_ == State::kIdle && in_.empty() && in_.capacity() > kMostPipelined) in_ = {};
  SetDeadline();
  KeepReading();
}

void Connection::OnHeaders() {
  headers_seen_ = true;
  if (AnsweredByHook()) return;
  body_since_ = Now();
  if (!parser_.expects_continue() || !parser_.has_body()) return;
  Outgoing go_on;
  go_on.head = "HTTP/1.1 100 Continue\r\n\r\n";
  Push(std::move(go_on));
  Flush();
}

void Connection::Dispatch() {
  state_ = State::kAnswering;
  receiving_since_.reset();
  ++serial_;
  answer_ = Answer{};
  answer_.keep_alive = parser_.keep_alive();
  answer_.http_1_0 = parser_.is_http_1_0();
  Request request = std::move(parser_.request());
  answer_.head_only = request.method == "HEAD";
  core_->handler(MakeExchange(shared_from_this(), serial_, std::move(request)));
}

bool Connection::AnsweredByHook() {
  if (!core_->options.on_headers) return false;
  std::optional<Response> response = core_->options.on_headers(parser_.request());
  if (!response) return false;
  AnswerUnhandled(std::move(*response));
  return true;
}

void Connection::Refuse(int status, std::string message) {
  parser_.request().body = {};
  AnswerUnhandled(core_->AnswerTo({status, std::move(message), parser_.request()}));
}

void Connection::AnswerUnhandled(Response response) {
  state_ = State::kAnswering;
  receiving_since_.reset();
  ++serial_;
  answer_ = Answer{};
  answer_.request_cut_off = true;
  answer_.head_only = parser_.request().method == "HEAD";
  in_.clear();
  CompleteAnswer(response.status, response.headers, std::move(response.body));
}

void Connection::OnAnswerWritten() {
  answer_.gone = nullptr;
  // The next requests of a client that left meanwhile are not begun.
  const bool has_left =
      !pumping_ && in_.size() >= kMostPipelined && HasEnded(socket_->native_handle());
  // An answer that was begun before may have promised another one; there will be no idle time.
  const bool drained = !pumping_ && in_.empty() && core_->draining.load(std::memory_order_relaxed);
  if (!answer_.keep_alive || has_left || drained) {
    EndConnection();
    return;
  }
  state_ = State::kIdle;
  if (core_->options.idle_timeout.count() >= 0) idle_since_ = Now();
  if (!pumping_) Consume({});
}

void Connection::EndConnection() {
  if (peer_ended_ || !answer_.request_cut_off) {
    Close(false);
    return;
  }
  // Closing while the client still sends would reset the connection, and the client might never see
  // why it was refused.
  (void)::shutdown(socket_->native_handle(), SHUT_WR);
  state_ = State::kLingering;
  in_ = {};
  timer_.Set(Now() + kLingerTime, shared_from_this());
  if (!pumping_) WaitReadable();
}

void Connection::SetDeadline() {
  const ServerOptions& options = core_->options;
  switch (state_) {
    case State::kIdle:
      if (options.idle_timeout.count() < 0) break;
      timer_.Set(idle_since_ + options.idle_timeout, shared_from_this());
      return;
    case State::kReceiving:
      if (const SteadyTime deadline = ReceivingDeadline(); deadline != SteadyTime::max()) {
        timer_.Set(deadline, shared_from_this());
        return;
      }
      break;
    case State::kAnswering:
      if (!writing_ || options.write_timeout.count() < 0) break;
      timer_.Set(write_progress_ + options.write_timeout, shared_from_this());
      return;
    case State::kLingering:  // set once
    case State::kClosed:
      return;
  }
  timer_.Clear();
}

SteadyTime Connection::ReceivingDeadline() {
  const ServerOptions& options = core_->options;
  if (!receiving_since_) receiving_since_ = Now();
  SteadyTime deadline = SteadyTime::max();
  const auto at_most = [&](SteadyTime from, std::chrono::milliseconds timeout) {
    if (timeout.count() >= 0) deadline = std::min(deadline, from + timeout);
  };
  at_most(*receiving_since_, options.request_timeout);
  if (headers_seen_) {
    at_most(body_since_, options.body_timeout);
  } else {
    at_most(*receiving_since_, options.header_timeout);
  }
  return deadline;
}

void Connection::OnDeadline() {
  if (state_ == State::kClosed) return;
  if (state_ != State::kReceiving || !out_.empty()) {
    Close(true);
    return;
  }
  const ServerOptions& options = core_->options;
  const bool request_is_over =
      options.request_timeout.count() >= 0 && Now() >= *receiving_since_ + options.request_timeout;
  if (request_is_over) {
    Refuse(408, base::StrCat("the request did not arrive within ", options.request_timeout.count(),
                             " ms"));
  } else if (!headers_seen_) {
    Refuse(408, base::StrCat("the header did not arrive within ", options.header_timeout.count(),
                             " ms"));
  } else if (body_bytes_ < options.body_progress) {
    Refuse(408, base::StrCat("the body came too slowly: less than ", options.body_progress,
                             " bytes in ", options.body_timeout.count(), " ms"));
  } else {
    body_since_ = Now();
    body_bytes_ = 0;
    SetDeadline();
  }
}

void Connection::CloseIfIdle() {
  if (state_ != State::kIdle || !in_.empty()) return;
  if (Peek(socket_->native_handle()) != IoResult::kBytes) Close(false);
}

void Connection::Close(bool callbacks_now) {
  if (state_ == State::kClosed) return;
  const bool was_open = state_ == State::kAnswering && answer_.phase != Phase::kComplete;
  state_ = State::kClosed;
  const auto self = shared_from_this();
  home_.open.erase(self);
  home_.count.fetch_sub(1, std::memory_order_relaxed);
  core_->open.fetch_sub(1, std::memory_order_relaxed);
  timer_.Stop();
  end_check_.reset();
  boost::system::error_code ignored;
  socket_->close(ignored);
  socket_.reset();
  in_ = {};
  std::vector<std::function<void()>> told;
  for (Outgoing& outgoing : std::exchange(out_, {})) {
    if (outgoing.done) told.push_back([done = std::move(outgoing.done)] { done(false); });
  }
  auto gone = std::exchange(answer_.gone, nullptr);
  if (was_open) {
    if (gone) {
      told.push_back(std::move(gone));
    } else {
      answer_.client_gone = true;
    }
  }
  for (auto& tell : told) {
    if (callbacks_now) {
      tell();
    } else {
      loop_.Post(std::move(tell));
    }
  }
}

}  // namespace xms::http::internal
