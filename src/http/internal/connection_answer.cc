// The answering half of a connection: what an exchange asks for, and the bytes on their way out.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <utility>

#include "http/internal/connection.h"
#include "http/internal/wire.h"

namespace xms::http::internal {
namespace {

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

std::shared_ptr<Exchange> MakeExchange(std::shared_ptr<Connection> connection, std::uint64_t serial,
                                       Request request) {
  return std::make_shared<ExchangeImpl>(std::move(connection), serial, std::move(request));
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

void Connection::Defer(std::function<void(bool)> done, bool ok) {
  if (done) loop_.Post([done = std::move(done), ok] { done(ok); });
}

}  // namespace xms::http::internal
