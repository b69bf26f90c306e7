#include "http/server.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/str_cat.h"
#include "http/internal/connection.h"
#include "http/internal/loop.h"
#include "http/internal/socket.h"

namespace xms::http {
namespace {

using boost::asio::ip::tcp;
using internal::Executor;
using internal::LoopConnections;
using internal::LoopImpl;
using internal::ServerCore;
using internal::Socket;
using Acceptor = boost::asio::basic_socket_acceptor<tcp, Executor>;

// After an error that is not about one connection (no descriptor is left), instead of spinning on
// it.
constexpr std::chrono::milliseconds kAcceptPause{50};

// Runs `work` on the loop and waits for it. A loop that has stopped has no thread any more: then
// here.
void RunOn(LoopImpl& loop, const std::function<void()>& work) {
  auto ran = std::make_shared<std::promise<void>>();
  std::future<void> done = ran->get_future();
  loop.Post([&work, ran] {
    work();
    ran->set_value();
  });
  ran.reset();
  try {
    done.get();
  } catch (const std::future_error&) {  // dropped unrun
    work();
  }
}

}  // namespace

struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  std::shared_ptr<ServerCore> core = std::make_shared<ServerCore>();
  std::uint16_t port = 0;

  // The accepting loop's thread only (the pool's first), or any while nothing listens.
  LoopImpl* accepting_loop = nullptr;
  std::optional<Acceptor> reserved;  // bound, not listening
  std::optional<Acceptor> acceptor;
  std::unique_ptr<EventLoop::Timer> pause;
  std::size_t last_loop = 0;
  std::uint64_t round = 0;     // of listening; an accept of an earlier one means nothing
  bool accept_failed = false;  // said once a streak

  base::Status Bind();
  base::Status Listen();
  void CloseListener();
  void Accept();
  void OnAccepted(LoopConnections& home, const boost::system::error_code& error, Socket socket);
  LoopConnections& LeastLoaded();
};

base::Status HttpServer::Impl::Bind() {
  const ServerOptions& options = core->options;
  // A port chosen by the system stays the same when the listener opens again.
  const std::uint16_t wanted = options.port != 0 ? options.port : port;
  const bool is_v6 = options.host.find(':') != std::string::npos;
  const std::string host = options.host.empty() ? "*"
                           : is_v6              ? "[" + options.host + "]"
                                                : options.host;
  const std::string where = base::StrCat("cannot listen on ", host, ":", wanted);
  const auto failure = [&](const boost::system::error_code& error) {
    return base::Error{base::ErrorCode::kUnavailable, base::StrCat(where, ": ", error.message())};
  };
  boost::system::error_code error;
  tcp::endpoint endpoint(tcp::v6(), wanted);
  if (!options.host.empty()) {
    const auto address = boost::asio::ip::make_address(options.host, error);
    if (error) {
      return base::Error{
          base::ErrorCode::kInvalidArgument,
          base::StrCat("cannot listen on \"", options.host, "\": not a numeric address")};
    }
    endpoint.address(address);
  }
  Acceptor listener(accepting_loop->context());
  listener.open(endpoint.protocol(), error);
  if (error && options.host.empty()) {  // a machine without IPv6
    endpoint = tcp::endpoint(tcp::v4(), wanted);
    listener.open(endpoint.protocol(), error);
  }
  if (error) return failure(error);
  if (options.host.empty() && endpoint.protocol() == tcp::v6()) {
    listener.set_option(boost::asio::ip::v6_only(false), error);
  }
  // Linux lets several sockets have one port while all of them reuse addresses and none listens, so
  // a reserved port must not. Only when connections of an earlier listener are still winding down
  // is there no other way.
  listener.bind(endpoint, error);
  if (error == boost::asio::error::address_in_use) {
    listener.set_option(Acceptor::reuse_address(true), error);
    listener.bind(endpoint, error);
  }
  if (error) return failure(error);
  port = listener.local_endpoint(error).port();
  reserved.emplace(std::move(listener));
  return base::Ok();
}

base::Status HttpServer::Impl::Listen() {
  if (!reserved) {
    if (base::Status bound = Bind(); !bound.ok()) return bound;
  }
  boost::system::error_code error;
  // Inherited by connections, so that they do not keep the port from the next listener.
  reserved->set_option(Acceptor::reuse_address(true), error);
  reserved->listen(boost::asio::socket_base::max_listen_connections, error);
  if (error) {
    reserved.reset();
    return base::Error{base::ErrorCode::kUnavailable,
                       base::StrCat("cannot listen on port ", port, ": ", error.message())};
  }
  acceptor.emplace(std::move(*reserved));
  reserved.reset();
  return base::Ok();
}

void HttpServer::Impl::CloseListener() {
  reserved.reset();
  acceptor.reset();
  pause.reset();
  ++round;
}

LoopConnections& HttpServer::Impl::LeastLoaded() {
  // Rotation between equals.
  const auto& loops = core->loops;
  std::size_t best = (last_loop + 1) % loops.size();
  for (std::size_t i = 1; i < loops.size(); ++i) {
    const std::size_t other = (last_loop + 1 + i) % loops.size();
    if (loops[other]->count.load(std::memory_order_relaxed) <
        loops[best]->count.load(std::memory_order_relaxed)) {
      best = other;
    }
  }
  last_loop = best;
  return *loops[best];
}

void HttpServer::Impl::Accept() {
  if (!acceptor) return;
  LoopConnections& home = LeastLoaded();
  acceptor->async_accept(home.loop->context(),
                         [self = shared_from_this(), &home, round = round](
                             const boost::system::error_code& error, Socket socket) {
                           if (round == self->round)
                             self->OnAccepted(home, error, std::move(socket));
                         });
}

void HttpServer::Impl::OnAccepted(LoopConnections& home, const boost::system::error_code& error,
                                  Socket socket) {
  if (error && error != boost::asio::error::connection_aborted) {
    if (!std::exchange(accept_failed, true)) {
      base::LogWarning(
          base::StrCat("port ", port, ": cannot accept connections: ", error.message()));
    }
    pause =
        accepting_loop->PostAfter(kAcceptPause, [self = shared_from_this()] { self->Accept(); });
    return;
  }
  accept_failed = false;
  if (!error) {
    if (core->open.load(std::memory_order_relaxed) >= core->options.max_connections) {
      core->refused.fetch_add(1, std::memory_order_relaxed);
    } else {
      core->open.fetch_add(1, std::memory_order_relaxed);
      home.count.fetch_add(1, std::memory_order_relaxed);
      auto moved = std::make_shared<Socket>(std::move(socket));
      home.loop->Post([core = core, &home, moved] {
        if (core->stopped.load()) {
          core->open.fetch_sub(1, std::memory_order_relaxed);
          home.count.fetch_sub(1, std::memory_order_relaxed);
          return;
        }
        auto connection = std::make_shared<internal::Connection>(core, home, std::move(*moved));
        home.open.insert(connection);
        connection->Start();
      });
    }
  }
  Accept();
}

HttpServer::HttpServer(EventLoopPool& pool, ServerOptions options, Handler handler)
    : impl_(std::make_shared<Impl>()) {
  impl_->core->options = std::move(options);
  impl_->core->handler = std::move(handler);
  for (std::size_t i = 0; i < pool.size(); ++i) {
    impl_->core->loops.push_back(std::make_unique<LoopConnections>());
    impl_->core->loops.back()->loop = &internal::Impl(pool.loop(i));
  }
  impl_->accepting_loop = impl_->core->loops.front()->loop;
}

HttpServer::~HttpServer() {
  Stop();
  // Closed connections may live until the loops' last waits are cleared; what the handler owns must
  // not.
  impl_->core->handler = nullptr;
}

base::Status HttpServer::Bind() {
  base::Status status = base::Ok();
  RunOn(*impl_->accepting_loop, [&] {
    if (!impl_->reserved && !impl_->acceptor) status = impl_->Bind();
  });
  return status;
}

base::Status HttpServer::Start() {
  impl_->core->draining.store(false);
  impl_->core->stopped.store(false);
  base::Status status = base::Ok();
  RunOn(*impl_->accepting_loop, [&] {
    if (impl_->acceptor) {
      status = base::Error{base::ErrorCode::kConflict,
                           base::StrCat("already listening on port ", impl_->port)};
      return;
    }
    status = impl_->Listen();
    if (status.ok()) impl_->Accept();
  });
  return status;
}

std::uint16_t HttpServer::port() const { return impl_->port; }

void HttpServer::StopAccepting() {
  impl_->core->draining.store(true);
  RunOn(*impl_->accepting_loop, [&] { impl_->CloseListener(); });
  for (const auto& home : impl_->core->loops) {
    RunOn(*home->loop, [&] {
      const auto open = std::vector(home->open.begin(), home->open.end());
      for (const auto& connection : open) connection->CloseIfIdle();
    });
  }
}

void HttpServer::Stop() {
  StopAccepting();
  impl_->core->stopped.store(true);
  for (const auto& home : impl_->core->loops) {
    RunOn(*home->loop, [&] {
      const auto open = std::vector(home->open.begin(), home->open.end());
      for (const auto& connection : open) connection->Close(true);
    });
    // What connections that closed by themselves have posted is told before this.
    RunOn(*home->loop, [] {});
  }
}

std::size_t HttpServer::open_connections() const {
  return impl_->core->open.load(std::memory_order_relaxed);
}

std::uint64_t HttpServer::refused_connections() const {
  return impl_->core->refused.load(std::memory_order_relaxed);
}

}  // namespace xms::http
