#include "http/internal/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <utility>

#include "base/str_cat.h"
#include "http/internal/wire.h"

namespace xms::http::internal {
namespace {

// Pipelined bytes that are taken while an answer is being made; then the client has to wait.
constexpr std::size_t kMostPipelined = std::size_t{16} * 1024;
// How often a client that has to wait is looked at. Its bytes in the kernel keep the socket readable,
// so that no wait would tell its end.
constexpr std::chrono::milliseconds kEndCheck{100};
// How long a client may take to read the last answer and close.
constexpr std::chrono::seconds kLingerTime{5};

// What a handler calls from any thread; runs on the connection's loop.
class ExchangeImpl final : public Exchange {
 public:
  ExchangeImpl(std::shared_ptr<Connection> connection, std::uint64_t serial, Request request)
      : connection_(std::move(connection)), serial_(serial), request_(std::move(request)) {}
  ~ExchangeImpl() override {
    if (ended_.load()) return;
    request_.body = {};
    OnLoop([serial = serial_, request = std::move(request_)](Connection& connection) {
      connection.Dropped(serial, request);
    });
  }
  ExchangeImpl(const ExchangeImpl&) = delete;
  ExchangeImpl& operator=(const ExchangeImpl&) = delete;

  const Request& request() const override { return request_; }
  EventLoop& loop() override { return connection_->loop(); }

  void Send(Response response) override {
    ended_.store(true);
    OnLoop([serial = serial_, response = std::move(response)](Connection& connection) mutable {
      connection.Send(serial, std::move(response));
    });
  }
  void StartStream(int status, Headers headers) override {
    OnLoop([serial = serial_, status, headers = std::move(headers)](Connection& connection) {
      connection.StartStream(serial, status, headers);
    });
  }
  void Write(std::string chunk, std::function<void(bool)> done) override {
    OnLoop([serial = serial_, chunk = std::move(chunk),
            done = std::move(done)](Connection& connection) mutable {
      connection.Write(serial, std::move(chunk), std::move(done));
    });
  }
  void Finish() override {
    ended_.store(true);
    OnLoop([serial = serial_](Connection& connection) { connection.Finish(serial); });
  }
  void Abort() override {
    ended_.store(true);
    OnLoop([serial = serial_](Connection& connection) { connection.Abort(serial); });
  }
  void OnDisconnect(std::function<void()> gone) override {
    OnLoop([serial = serial_, gone = std::move(gone)](Connection& connection) mutable {
      connection.OnDisconnect(serial, std::move(gone));
    });
  }

 private:
  template <typename Work>
  void OnLoop(Work work) {
    if (connection_->loop().OnThisThread()) {
      work(*connection_);
    } else {
      connection_->loop().Post(
          [connection = connection_, work = std::move(work)]() mutable { work(*connection); });
    }
  }

  const std::shared_ptr<Connection> connection_;
  const std::uint64_t serial_;
  Request request_;  // does not change before the destructor
  // Set by the call that ends the answer, not when it takes effect: the destructor may run on the
  // loop before a call from another thread has got there.
  std::atomic<bool> ended_{false};
};

bool AsksToClose(const Headers& headers) {
  const std::string* value = headers.Find("connection");
  return value != nullptr && EqualsIgnoringCase(*value, "close");
}

std::optional<std::uint64_t> DeclaredLength(const Headers& headers) {
  const std::string* text = headers.Find("content-length");
  if (text == nullptr) return std::nullopt;
  std::uint64_t length = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), length);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return length;
}

std::string ChunkHead(std::size_t size) {
  char text[20];
  char* end = std::to_chars(text, text + 16, size, 16).ptr;
  *end++ = '\r';
  *end++ = '\n';
  return {text, end};
}

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
  core_->handler(std::make_shared<ExchangeImpl>(shared_from_this(), serial_, std::move(request)));
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

bool Connection::IsCurrent(std::uint64_t serial, Phase phase) const {
  return state_ == State::kAnswering && serial == serial_ && answer_.phase == phase;
}

void Connection::Send(std::uint64_t serial, Response response) {
  if (!IsCurrent(serial, Phase::kOpen)) return;
  if (AsksToClose(response.headers)) answer_.keep_alive = false;
  CompleteAnswer(response.status, response.headers, std::move(response.body));
}

void Connection::CompleteAnswer(int status, const Headers& headers, std::string body) {
  if (status < 200 || status > 999) status = 500;
  if (core_->draining.load(std::memory_order_relaxed)) answer_.keep_alive = false;
  Framing framing;
  if (!StatusForbidsBody(status)) {
    framing.content_length = body.size();
    // A handler that answers HEAD may know the length without having the body.
    if (answer_.head_only && body.empty())
      framing.content_length = DeclaredLength(headers).value_or(0);
  }
  if (!answer_.keep_alive) {
    framing.connection = "close";
  } else if (answer_.http_1_0) {
    framing.connection = "keep-alive";
  }
  Outgoing outgoing;
  outgoing.head = ResponseHead(status, headers, framing);
  if (!answer_.head_only && !StatusForbidsBody(status)) outgoing.body = std::move(body);
  answer_.phase = Phase::kComplete;
  answer_.gone = nullptr;
  Push(std::move(outgoing));
  Flush();
}

void Connection::StartStream(std::uint64_t serial, int status, const Headers& headers) {
  if (!IsCurrent(serial, Phase::kOpen)) return;
  if (status < 200 || status > 999) status = 500;
  if (AsksToClose(headers) || core_->draining.load(std::memory_order_relaxed))
    answer_.keep_alive = false;
  answer_.phase = Phase::kStreaming;
  Framing framing;
  if (StatusForbidsBody(status)) {
    answer_.head_only = true;
  } else if (const auto length = DeclaredLength(headers)) {
    framing.content_length = length;
    answer_.remaining = length;
  } else if (answer_.http_1_0) {
    answer_.keep_alive = false;  // the end of the connection is the end of the body
  } else {
    framing.chunked = true;
    answer_.chunked = true;
  }
  if (!answer_.keep_alive) {
    framing.connection = "close";
  } else if (answer_.http_1_0) {
    framing.connection = "keep-alive";
  }
  Outgoing outgoing;
  outgoing.head = ResponseHead(status, headers, framing);
  Push(std::move(outgoing));
  // Together with the first chunk when that comes in this turn.
  loop_.Post([self = shared_from_this()] {
    if (self->state_ != State::kClosed) self->Flush();
  });
}

void Connection::Write(std::uint64_t serial, std::string chunk, std::function<void(bool)> done) {
  if (!IsCurrent(serial, Phase::kStreaming)) {
    Defer(std::move(done), false);
    return;
  }
  // An empty chunk would end a chunked body.
  if (answer_.head_only || chunk.empty()) {
    Defer(std::move(done), true);
    return;
  }
  if (answer_.remaining) {
    if (chunk.size() >
        *answer_.remaining) {  // the declared length was wrong: the client must not trust it
      Defer(std::move(done), false);
      Close(false);
      return;
    }
    *answer_.remaining -= chunk.size();
  }
  Outgoing outgoing;
  if (answer_.chunked) {
    outgoing.head = ChunkHead(chunk.size());
    outgoing.tail = "\r\n";
  }
  outgoing.body = std::move(chunk);
  outgoing.done = std::move(done);
  Push(std::move(outgoing));
  Flush();
}

void Connection::Finish(std::uint64_t serial) {
  if (!IsCurrent(serial, Phase::kStreaming)) return;
  if (answer_.remaining.value_or(0) > 0 && !answer_.head_only) {
    Abort(serial);
    return;
  }
  if (answer_.chunked && !answer_.head_only) {
    Outgoing end;
    end.tail = "0\r\n\r\n";
    Push(std::move(end));
  }
  answer_.phase = Phase::kComplete;
  answer_.gone = nullptr;
  Flush();
}

void Connection::Abort(std::uint64_t serial) {
  if (state_ != State::kAnswering || serial != serial_ || answer_.phase == Phase::kComplete) return;
  const bool delimited_by_close =
      answer_.phase == Phase::kStreaming && !answer_.chunked && !answer_.remaining;
  answer_.phase = Phase::kComplete;
  answer_.gone = nullptr;
  if (delimited_by_close) {
    // An orderly end would look like a complete body.
    const linger reset{1, 0};
    (void)::setsockopt(socket_->native_handle(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  Close(false);
}

void Connection::OnDisconnect(std::uint64_t serial, std::function<void()> gone) {
  if (serial != serial_ || answer_.phase == Phase::kComplete) return;
  if (state_ == State::kAnswering) {
    answer_.gone = std::move(gone);
  } else if (answer_.client_gone) {
    answer_.client_gone = false;
    loop_.Post(std::move(gone));
  }
}

void Connection::Dropped(std::uint64_t serial, const Request& request) {
  if (state_ != State::kAnswering || serial != serial_) return;
  if (answer_.phase == Phase::kStreaming) {
    Abort(serial);
  } else if (answer_.phase == Phase::kOpen) {
    Send(serial, core_->AnswerTo({500, "the request was not answered", request}));
  }
}

void Connection::Push(Outgoing outgoing) { out_.push_back(std::move(outgoing)); }

void Connection::Flush() {
  while (!out_.empty()) {
    std::array<std::string_view, kMostPieces> pieces;
    std::size_t used = 0;
    std::size_t skip = out_offset_;
    for (const Outgoing& outgoing : out_) {
      if (used + 3 > pieces.size()) break;
      for (std::string_view piece :
           {std::string_view(outgoing.head), std::string_view(outgoing.body), outgoing.tail}) {
        const std::size_t cut = std::min(skip, piece.size());
        skip -= cut;
        piece.remove_prefix(cut);
        if (!piece.empty()) pieces[used++] = piece;
      }
    }
    std::size_t written = 0;
    switch (WriteSome(socket_->native_handle(), pieces.data(), used, written)) {
      case IoResult::kBytes:
        break;
      case IoResult::kWouldBlock:
        WaitWritable();
        return;
      case IoResult::kEnd:
      case IoResult::kBroken:
        Close(false);
        return;
    }
    if (writing_) write_progress_ = Now();
    out_offset_ += written;
    while (!out_.empty() && out_offset_ >= out_.front().size()) {
      out_offset_ -= out_.front().size();
      if (out_.front().done) Defer(std::move(out_.front().done), true);
      out_.pop_front();
    }
  }
  if (state_ == State::kAnswering && answer_.phase == Phase::kComplete) OnAnswerWritten();
}

void Connection::WaitWritable() {
  if (writing_) {
    SetDeadline();
    return;
  }
  writing_ = true;
  write_progress_ = Now();
  SetDeadline();
  socket_->async_wait(Socket::wait_write,
                      [self = shared_from_this()](const boost::system::error_code& error) {
                        self->writing_ = false;
                        if (error || self->state_ == State::kClosed) return;
                        self->Flush();
                        if (self->state_ != State::kClosed) self->SetDeadline();
                      });
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
      if (options.header_timeout.count() < 0) break;
      if (!receiving_since_) receiving_since_ = Now();
      timer_.Set(*receiving_since_ + options.header_timeout, shared_from_this());
      return;
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

void Connection::OnDeadline() {
  if (state_ == State::kReceiving && out_.empty()) {
    Refuse(408, "the request did not arrive in time");
  } else if (state_ != State::kClosed) {
    Close(true);
  }
}

void Connection::Defer(std::function<void(bool)> done, bool ok) {
  if (done) loop_.Post([done = std::move(done), ok] { done(ok); });
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
