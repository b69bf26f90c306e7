// ClientCall: one request and its answer. ClientConnection: one socket to one peer, which has a
// call or waits in the pool for the next. ClientCore: what the calls of one client share.
//
// Threads     Confined to the client's loop.
// Ownership   The core owns calls in flight and idle connections; a call owns its connection and
//             keeps the core. Waits share what they wake, so that it lives until they are over.
//             After ClientCall::Leave and ClientConnection::Close neither loop nor socket is
//             touched.
// Invariants  A connection has a wait for readability pending except while its call holds reading
//             back; in the pool that wait tells that the peer has closed.
//             Callbacks run from the loop, never from inside Start (but on_sent), Cancel or resume;
//             GiveUp is what it says.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "http/client.h"
#include "http/internal/loop.h"
#include "http/internal/parser.h"
#include "http/internal/socket.h"

namespace xms::http::internal {

class ClientCall;

class ClientConnection final : public std::enable_shared_from_this<ClientConnection> {
 public:
  ClientConnection(LoopImpl& loop, std::string address, Socket socket,
                   std::function<void(ClientConnection&)> leave_pool);

  const std::string& address() const { return address_; }
  int fd() { return socket_->native_handle(); }
  bool closed() const { return !socket_; }
  void Close();

  void Attach(ClientCall* call) { call_ = call; }
  // Into the pool until `deadline`.
  void Detach(SteadyTime deadline);
  // Taken out of the pool: usable only if the peer has neither closed nor said anything.
  bool IsFresh() { return !closed() && internal::Peek(fd()) == IoResult::kWouldBlock; }

  void WaitReadable();
  void WaitWritable();

 private:
  LoopImpl& loop_;
  const std::string address_;
  std::optional<Socket> socket_;  // empty once closed
  std::function<void(ClientConnection&)> leave_pool_;
  LazyTimer idle_timer_;
  ClientCall* call_ = nullptr;  // borrowed; it detaches itself
  bool reading_ = false;
  bool writing_ = false;
};

// What the calls of one client share; outlives it while one of them is still known.
struct ClientCore : std::enable_shared_from_this<ClientCore> {
  LoopImpl& loop;
  const ClientOptions options;
  std::atomic<std::uint64_t> repeats{0};
  bool closed = false;
  std::map<std::string, std::vector<std::shared_ptr<ClientConnection>>, std::less<>> idle;
  std::unordered_set<std::shared_ptr<ClientCall>> calls;  // in flight

  ClientCore(LoopImpl& event_loop, ClientOptions client_options)
      : loop(event_loop), options(client_options) {}

  std::shared_ptr<ClientConnection> TakeIdle(const std::string& address);
  void Keep(std::shared_ptr<ClientConnection> connection);
  void Forget(ClientConnection& connection);
};

class ClientCall final : public HttpClient::Call, public std::enable_shared_from_this<ClientCall> {
 public:
  ClientCall(std::shared_ptr<ClientCore> client, Address to, Request request, CallOptions options,
             CallHandlers handlers);

  void Start();
  void Cancel() override;
  void GiveUp(base::Error why) override { Fail(std::move(why)); }
  void Fail(base::Error error);

  // Of the connection.
  void OnReadable();
  void Flush();

 private:
  enum class State : std::uint8_t { kConnecting, kExchanging, kOver };

  void Connect();
  void ConnectTo(const std::vector<boost::asio::ip::tcp::endpoint>& endpoints);
  void OnConnected(Socket socket);
  void Exchange(std::shared_ptr<ClientConnection> connection, bool kept);
  void Feed(std::string_view fresh);
  void DeliverHeaders();
  void DeliverBody(std::string chunk);
  void Resume(std::uint64_t chunk);
  // Of a connection that broke before any byte of the answer.
  bool CannotHaveBegun(bool orderly) const;
  void OnBroken(bool orderly);
  void Complete();
  void Leave();
  void SetDeadline();
  void OnDeadline();
  bool over() const { return state_ == State::kOver; }

  const std::shared_ptr<ClientCore> client_;
  const Address to_;
  const std::string address_;
  Request request_;
  const CallOptions options_;
  // Shared with a callback that is running, so that one which ends its own call does not destroy
  // itself.
  std::shared_ptr<CallHandlers> handlers_;

  State state_ = State::kConnecting;
  CallStage stage_ = CallStage::kConnecting;
  const SteadyTime started_ = Now();
  SteadyTime connect_started_ = started_;
  SteadyTime last_read_ = started_;
  std::optional<LazyTimer> timer_;
  std::optional<boost::asio::ip::basic_resolver<boost::asio::ip::tcp, Executor>> resolver_;
  std::weak_ptr<Socket> connecting_;  // the pending connect owns it

  std::shared_ptr<ClientConnection> connection_;
  bool kept_ = false;  // the connection had been used before
  std::string head_;
  std::size_t whole_ = 0;  // bytes of head_ and body
  std::size_t sent_ = 0;
  bool write_broken_ = false;

  ResponseParser parser_;
  std::string in_;  // received, not consumed
  bool headers_seen_ = false;
  bool message_done_ = false;  // parsed whole; on_end follows the last resume
  bool ended_by_close_ = false;
  bool paused_ = false;  // a chunk is with the handler
  std::uint64_t chunks_ = 0;
  int interim_ = 0;  // 1xx answers seen
};

}  // namespace xms::http::internal
