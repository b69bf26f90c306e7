#include "http/internal/client_call.h"

#include <algorithm>
#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>
#include <utility>

#include "base/str_cat.h"
#include "http/internal/wire.h"

namespace xms::http::internal {
namespace {

using boost::asio::ip::tcp;
using Resolver = boost::asio::ip::basic_resolver<tcp, Executor>;

// 1xx answers to one request; more is a peer that never means to answer.
constexpr int kMostInterim = 32;

std::string AddressText(const Address& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return is_v6 ? base::StrCat("[", address.host, "]:", address.port)
               : base::StrCat(address.host, ":", address.port);
}

base::Error Unavailable(std::string message) {
  return {base::ErrorCode::kUnavailable, std::move(message)};
}

}  // namespace

ClientConnection::ClientConnection(LoopImpl& loop, std::string address, Socket socket,
                                   std::function<void(ClientConnection&)> leave_pool)
    : loop_(loop),
      address_(std::move(address)),
      socket_(std::move(socket)),
      leave_pool_(std::move(leave_pool)),
      idle_timer_(loop_.context(), [this] {
        if (call_ == nullptr) Close();
      }) {
  TuneSocket(fd());
  LimitUnacknowledged(fd());
}

void ClientConnection::Close() {
  if (!socket_) return;
  const auto self = shared_from_this();
  call_ = nullptr;
  idle_timer_.Stop();
  boost::system::error_code ignored;
  socket_->close(ignored);
  socket_.reset();
  if (const auto leave = std::exchange(leave_pool_, nullptr)) leave(*this);
}

void ClientConnection::Detach(SteadyTime deadline) {
  call_ = nullptr;
  idle_timer_.Set(deadline, shared_from_this());
  WaitReadable();
}

void ClientConnection::WaitReadable() {
  if (reading_ || !socket_) return;
  reading_ = true;
  socket_->async_wait(
      Socket::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
        self->reading_ = false;
        if (error || self->closed()) return;
        if (self->call_ == nullptr) {
          self->Close();  // nothing was asked, so whatever came ends this connection
        } else {
          self->call_->OnReadable();
        }
      });
}

void ClientConnection::WaitWritable() {
  if (writing_ || !socket_) return;
  writing_ = true;
  socket_->async_wait(Socket::wait_write,
                      [self = shared_from_this()](const boost::system::error_code& error) {
                        self->writing_ = false;
                        if (!error && !self->closed() && self->call_ != nullptr)
                          self->call_->Flush();
                      });
}

ClientCall::ClientCall(std::shared_ptr<ClientCore> client, Address to, Request request,
                       CallOptions options, CallHandlers handlers)
    : client_(std::move(client)),
      to_(std::move(to)),
      address_(AddressText(to_)),
      request_(std::move(request)),
      options_(options),
      handlers_(std::make_shared<CallHandlers>(std::move(handlers))),
      parser_(client_->options.max_header_bytes) {}

void ClientCall::Start() {
  timer_.emplace(client_->loop.context(), [this] { OnDeadline(); });
  Framing framing;
  const bool expects_body =
      request_.method == "POST" || request_.method == "PUT" || request_.method == "PATCH";
  if (expects_body || !request_.body.empty()) framing.content_length = request_.body.size();
  head_ = RequestHead(request_, address_, framing);
  whole_ = head_.size() + request_.body.size();
  if (auto connection = client_->TakeIdle(address_)) {
    Exchange(std::move(connection), true);
  } else {
    Connect();
  }
}

void ClientCall::Connect() {
  state_ = State::kConnecting;
  connect_started_ = Now();
  SetDeadline();
  boost::system::error_code error;
  const auto numeric = boost::asio::ip::make_address(to_.host, error);
  if (!error) {
    ConnectTo({tcp::endpoint(numeric, to_.port)});
    return;
  }
  resolver_.emplace(client_->loop.context());
  resolver_->async_resolve(
      to_.host, std::to_string(to_.port), Resolver::numeric_service,
      [self = shared_from_this()](const boost::system::error_code& failure,
                                  const Resolver::results_type& results) {
        if (self->over()) return;
        self->resolver_.reset();
        if (failure) {
          self->Fail(Unavailable(
              base::StrCat("cannot resolve ", self->to_.host, ": ", failure.message())));
          return;
        }
        self->ConnectTo(std::vector<tcp::endpoint>(results.begin(), results.end()));
      });
}

void ClientCall::ConnectTo(const std::vector<tcp::endpoint>& endpoints) {
  const auto socket = std::make_shared<Socket>(client_->loop.context());
  connecting_ = socket;
  boost::asio::async_connect(
      *socket, endpoints,
      [self = shared_from_this(), socket](const boost::system::error_code& failure,
                                          const tcp::endpoint&) {
        if (self->over()) return;
        if (failure) {
          self->Fail(Unavailable(
              base::StrCat("cannot connect to ", self->address_, ": ", failure.message())));
          return;
        }
        self->OnConnected(std::move(*socket));
      });
}

void ClientCall::OnConnected(Socket socket) {
  auto connection = std::make_shared<ClientConnection>(
      client_->loop, address_, std::move(socket),
      [weak = client_->weak_from_this()](ClientConnection& closed) {
        if (const auto client = weak.lock()) client->Forget(closed);
      });
  Exchange(std::move(connection), false);
}

void ClientCall::Exchange(std::shared_ptr<ClientConnection> connection, bool kept) {
  state_ = State::kExchanging;
  connection_ = std::move(connection);
  connection_->Attach(this);
  kept_ = kept;
  sent_ = 0;
  write_broken_ = false;
  parser_.Reset(request_.method == "HEAD");
  last_read_ = Now();
  SetDeadline();
  connection_->WaitReadable();
  Flush();
}

void ClientCall::Flush() {
  while (sent_ < whole_ && !write_broken_) {
    std::array<std::string_view, 2> pieces;
    std::size_t used = 0;
    if (sent_ < head_.size()) pieces[used++] = std::string_view(head_).substr(sent_);
    const std::size_t body_sent = sent_ > head_.size() ? sent_ - head_.size() : 0;
    if (body_sent < request_.body.size())
      pieces[used++] = std::string_view(request_.body).substr(body_sent);
    std::size_t written = 0;
    switch (WriteSome(connection_->fd(), pieces.data(), used, written)) {
      case IoResult::kBytes:
        if (stage_ == CallStage::kConnecting) stage_ = CallStage::kSent;
        if (sent_ == 0 && handlers_->on_sent) handlers_->on_sent();
        sent_ += written;
        break;
      case IoResult::kWouldBlock:
        connection_->WaitWritable();
        return;
      case IoResult::kEnd:
      case IoResult::kBroken:
        // The peer may have answered early and closed: reading tells.
        write_broken_ = true;
        break;
    }
  }
}

void ClientCall::OnReadable() {
  std::size_t count = 0;
  switch (ReadSome(connection_->fd(), client_->loop.scratch(), LoopImpl::kScratchBytes, count)) {
    case IoResult::kWouldBlock:
      connection_->WaitReadable();
      return;
    case IoResult::kEnd:
      OnBroken(true);
      return;
    case IoResult::kBroken:
      OnBroken(false);
      return;
    case IoResult::kBytes:
      break;
  }
  if (stage_ != CallStage::kAnswering) {
    stage_ = CallStage::kAnswering;
    if (sent_ == whole_) request_.body = {};  // it will not be sent again, and a stream may last
  }
  last_read_ = Now();
  const auto self = shared_from_this();  // a callback may end the call
  Feed(std::string_view(client_->loop.scratch(), count));
}

void ClientCall::Feed(std::string_view fresh) {
  if (!in_.empty()) in_.append(fresh);
  const bool from_in = !in_.empty();
  std::string_view rest = from_in ? std::string_view(in_) : fresh;
  bool headers_now = false;
  bool more = true;
  while (more) {
    std::size_t used = 0;
    const Progress progress = parser_.Feed(rest, used);
    rest.remove_prefix(used);
    switch (progress) {
      case Progress::kNeedMore:
        more = false;
        break;
      case Progress::kHeaders:
        if (parser_.status() == 101) {
          Fail({base::ErrorCode::kCorrupt,
                base::StrCat(address_, ": switched to a protocol nobody asked for")});
          return;
        }
        if (parser_.status() < 200) {
          if (++interim_ > kMostInterim) {
            Fail({base::ErrorCode::kCorrupt,
                  base::StrCat(address_, ": interim answers without end")});
            return;
          }
          parser_.Reset(request_.method == "HEAD");
        } else {
          headers_now = true;
        }
        break;
      case Progress::kDone:
        message_done_ = true;
        more = false;
        break;
      case Progress::kFailed: {
        const auto code = parser_.failed_on_size() ? base::ErrorCode::kResourceExhausted
                                                   : base::ErrorCode::kCorrupt;
        Fail({code, base::StrCat(address_, ": ", parser_.failure().message)});
        return;
      }
    }
  }
  // Copied before a callback can lead to another read into the scratch memory.
  if (!from_in) {
    in_.assign(rest);
  } else {
    in_.erase(0, in_.size() - rest.size());
  }
  if (!message_done_ && in_.size() > client_->options.max_header_bytes) {
    Fail({base::ErrorCode::kResourceExhausted,
          base::StrCat(address_, ": chunk header or trailer too large")});
    return;
  }
  if (headers_now) DeliverHeaders();
  if (over()) return;
  if (headers_seen_) {
    std::string chunk = parser_.TakeBody();
    if (!chunk.empty()) {
      DeliverBody(std::move(chunk));
      return;
    }
  }
  if (message_done_) {
    Complete();
  } else {
    SetDeadline();
    connection_->WaitReadable();
  }
}

void ClientCall::DeliverHeaders() {
  headers_seen_ = true;
  const auto handlers = handlers_;
  if (handlers->on_headers) handlers->on_headers(parser_.status(), std::move(parser_.headers()));
}

void ClientCall::DeliverBody(std::string chunk) {
  paused_ = true;
  SetDeadline();
  const auto handlers = handlers_;
  auto resume = [self = shared_from_this(), number = ++chunks_] { self->Resume(number); };
  if (handlers->on_body) {
    handlers->on_body(std::move(chunk), std::move(resume));
  } else {
    resume();
  }
}

void ClientCall::Resume(std::uint64_t chunk) {
  if (over() || !paused_ || chunk != chunks_) return;
  paused_ = false;
  if (message_done_) {
    // Not from inside the handler's own on_body.
    client_->loop.Post([self = shared_from_this()] {
      if (!self->over()) self->Complete();
    });
    return;
  }
  last_read_ = Now();
  SetDeadline();
  connection_->WaitReadable();
}

bool ClientCall::CannotHaveBegun(bool orderly) const {
  // Nobody begins a request of which a part is missing.
  if (sent_ < whole_) return true;
  // The peer's end confirms what it had received by then. When that is nothing of this request, it
  // closed before the request came. A reset confirms nothing.
  return orderly && Unconfirmed(connection_->fd()) >= sent_;
}

void ClientCall::OnBroken(bool orderly) {
  const auto self = shared_from_this();
  if (stage_ != CallStage::kAnswering) {
    const bool cannot_have_begun = CannotHaveBegun(orderly);
    // Asking twice for these changes nothing.
    const bool harmless = request_.method == "GET" || request_.method == "HEAD";
    if (kept_ && (harmless || cannot_have_begun)) {
      kept_ = false;
      if (cannot_have_begun) stage_ = CallStage::kConnecting;
      client_->repeats.fetch_add(1, std::memory_order_relaxed);
      std::exchange(connection_, nullptr)->Close();
      Connect();
      return;
    }
    Fail(Unavailable(base::StrCat(address_, orderly ? " closed" : " reset",
                                  " the connection without an answer")));
    return;
  }
  if (orderly && parser_.FeedEnd() == Progress::kDone) {
    ended_by_close_ = true;
    message_done_ = true;
    Complete();
    return;
  }
  Fail(Unavailable(base::StrCat(address_, " broke off its answer")));
}

void ClientCall::Complete() {
  const auto self = shared_from_this();
  const auto handlers = handlers_;
  const bool reusable =
      !ended_by_close_ && !write_broken_ && sent_ == whole_ && in_.empty() && parser_.keep_alive();
  const auto connection = std::exchange(connection_, nullptr);
  Leave();
  if (reusable) {
    client_->Keep(connection);
  } else {
    connection->Close();
  }
  if (handlers->on_end) handlers->on_end();
}

void ClientCall::Fail(base::Error error) {
  if (over()) return;
  const auto self = shared_from_this();
  const auto handlers = handlers_;
  const CallStage stage = stage_;
  Leave();
  if (handlers->on_error) handlers->on_error(std::move(error), stage);
}

void ClientCall::Cancel() {
  if (over()) return;
  const auto self = shared_from_this();
  const auto handlers = handlers_;  // dies after the call is over
  Leave();
}

void ClientCall::Leave() {
  state_ = State::kOver;
  if (const auto connection = std::exchange(connection_, nullptr)) connection->Close();
  resolver_.reset();
  if (const auto socket = connecting_.lock()) {
    boost::system::error_code ignored;
    socket->close(ignored);
  }
  if (timer_) timer_->Stop();
  handlers_ = nullptr;
  client_->calls.erase(shared_from_this());
}

void ClientCall::SetDeadline() {
  SteadyTime deadline = SteadyTime::max();
  const auto at_most = [&](SteadyTime from, std::chrono::milliseconds timeout) {
    if (timeout.count() >= 0) deadline = std::min(deadline, from + timeout);
  };
  at_most(started_, options_.total_timeout);
  if (state_ == State::kConnecting) {
    at_most(connect_started_, client_->options.connect_timeout);
  } else if (!paused_) {
    // While the caller holds reading back, silence is its own doing.
    at_most(last_read_, options_.idle_timeout);
  }
  if (deadline == SteadyTime::max()) {
    timer_->Clear();
  } else {
    timer_->Set(deadline, shared_from_this());
  }
}

void ClientCall::OnDeadline() {
  const auto self = shared_from_this();
  if (over()) return;
  std::string what = state_ == State::kConnecting
                         ? base::StrCat("no connection to ", address_, " in time")
                         : base::StrCat("no answer from ", address_, " in time");
  if (stage_ == CallStage::kAnswering)
    what = base::StrCat("the rest of the answer of ", address_, " did not come in time");
  Fail({base::ErrorCode::kTimeout, std::move(what)});
}

std::shared_ptr<ClientConnection> ClientCore::TakeIdle(const std::string& address) {
  const auto found = idle.find(address);
  if (found == idle.end()) return nullptr;
  // The one used last first: the others may grow old and be closed.
  std::shared_ptr<ClientConnection> usable;
  std::vector<std::shared_ptr<ClientConnection>> stale;
  auto& connections = found->second;
  while (!usable && !connections.empty()) {
    auto connection = std::move(connections.back());
    connections.pop_back();
    if (connection->IsFresh()) {
      usable = std::move(connection);
    } else {
      stale.push_back(std::move(connection));
    }
  }
  if (connections.empty()) idle.erase(found);
  for (const auto& connection : stale) connection->Close();  // comes back here, to Forget
  return usable;
}

void ClientCore::Keep(std::shared_ptr<ClientConnection> connection) {
  auto& connections = idle[connection->address()];
  if (closed || connections.size() >= options.max_idle_per_host) {
    if (connections.empty()) idle.erase(connection->address());
    connection->Close();
    return;
  }
  connection->Detach(options.idle_timeout.count() < 0 ? SteadyTime::max()
                                                      : Now() + options.idle_timeout);
  connections.push_back(std::move(connection));
}

void ClientCore::Forget(ClientConnection& connection) {
  const auto found = idle.find(connection.address());
  if (found == idle.end()) return;
  std::erase_if(found->second, [&](const auto& other) { return other.get() == &connection; });
  if (found->second.empty()) idle.erase(found);
}

}  // namespace xms::http::internal
