#include "kv_directory/streams/internal/link.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/str_cat.h"
#include "kv_directory/discovery/endpoint.h"

namespace xms::kv_directory::internal {
namespace {

using base::StrCat;
using std::chrono::milliseconds;

// Longer than any link lives after its end; see "How" in the header.
constexpr int kRenewNeverMs = 10 * 60 * 1000;
// How long the monitor's "will retry" may lag behind "disconnected". Both come from one thread.
constexpr milliseconds kDecideAfter{50};
constexpr int kConnectTimeoutMs = 4000;
constexpr int kHandshakeTimeoutMs = 4000;
// A peer that has vanished without a word is noticed within this time. Silence of a publisher that
// answers heartbeats is no sign of anything.
constexpr int kHeartbeatIntervalMs = 2000;
constexpr int kHeartbeatTimeoutMs = 8000;
constexpr int kKeepaliveIdleS = 30;
constexpr int kKeepaliveIntervalS = 10;
constexpr int kKeepaliveCount = 3;
// Messages that wait inside libzmq. Beyond it TCP holds the publisher back, who drops what he
// cannot send, and the gap is seen.
constexpr int kSubscriptionHighWaterMark = 1000;
// Parts of a snapshot; a request is one message.
constexpr int kExchangeHighWaterMark = 64;

// The number of the next monitor event; nothing when none is there.
std::optional<std::uint16_t> ReadEvent(const ZmqSocket& monitor) {
  ZmqMessage message;
  std::uint16_t event = 0;
  if (!message.Receive(monitor) || message.frames()[0].size() < sizeof event) return std::nullopt;
  std::memcpy(&event, message.frames()[0].data(), sizeof event);
  return event;
}

}  // namespace

void Link::Open(void* context, const Options& options, unsigned number, Resolver& resolver,
                const std::shared_ptr<Wakeup>& wakeup) {
  Close();
  was_up_ = false;
  context_ = context;
  options_ = options;
  number_ = number;
  const auto endpoint = ParseTcpUrl(options.url);
  if (!endpoint.ok()) {
    state_ = State::kFailed;
    return;
  }
  port_ = endpoint->port;
  state_ = State::kResolving;
  lookup_ = resolver.Find(endpoint->host, wakeup);
  if (lookup_->done()) Connect();
}

void Link::Connect() {
  state_ = State::kFailed;
  const auto lookup = std::exchange(lookup_, nullptr);
  if (lookup->addresses().empty()) return;
  const Resolver::Address& to = lookup->addresses()[number_ % lookup->addresses().size()];
  const std::string url = Endpoint{.host = to.host, .port = port_, .ipv6 = to.ipv6}.Url();
  if (!Configure(context_, options_, to.ipv6)) return;
  if (zmq_connect(socket_.get(), url.c_str()) != 0) return;
  state_ = State::kConnecting;
}

bool Link::Configure(void* context, const Options& options, bool ipv6) {
  const bool subscription = options.kind == Kind::kSubscription;
  socket_ = ZmqSocket(context, subscription ? ZMQ_SUB : ZMQ_DEALER);
  if (!socket_.valid()) return false;
  bool ok = socket_.SetInt(ZMQ_LINGER, 0) && socket_.SetInt(ZMQ_IPV6, ipv6 ? 1 : 0) &&
            socket_.SetInt(ZMQ_RECONNECT_IVL, kRenewNeverMs) &&
            socket_.SetInt(ZMQ_CONNECT_TIMEOUT, kConnectTimeoutMs) &&
            socket_.SetInt(ZMQ_HANDSHAKE_IVL, kHandshakeTimeoutMs) &&
            socket_.SetInt(ZMQ_HEARTBEAT_IVL, kHeartbeatIntervalMs) &&
            socket_.SetInt(ZMQ_HEARTBEAT_TIMEOUT, kHeartbeatTimeoutMs) &&
            socket_.SetInt(ZMQ_TCP_KEEPALIVE, 1) &&
            socket_.SetInt(ZMQ_TCP_KEEPALIVE_IDLE, kKeepaliveIdleS) &&
            socket_.SetInt(ZMQ_TCP_KEEPALIVE_INTVL, kKeepaliveIntervalS) &&
            socket_.SetInt(ZMQ_TCP_KEEPALIVE_CNT, kKeepaliveCount) &&
            socket_.SetInt64(ZMQ_MAXMSGSIZE, options.max_frame_bytes) &&
            socket_.SetInt(ZMQ_RCVHWM,
                           subscription ? kSubscriptionHighWaterMark : kExchangeHighWaterMark);
  hears_all_ = subscription && !options.topic.empty();
  if (hears_all_) ok = ok && socket_.SetBytes(ZMQ_SUBSCRIBE, "");
  if (subscription) ok = ok && socket_.SetBytes(ZMQ_SUBSCRIBE, options.topic);
  if (!ok) return false;

  static std::atomic<std::uint64_t> number{0};
  const std::string address = StrCat("inproc://kv-link-", number.fetch_add(1));
  constexpr int kEvents = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                          ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECT_RETRIED;
  if (zmq_socket_monitor(socket_.get(), address.c_str(), kEvents) != 0) return false;
  monitor_ = ZmqSocket(context, ZMQ_PAIR);
  return monitor_.valid() && monitor_.SetInt(ZMQ_LINGER, 0) &&
         zmq_connect(monitor_.get(), address.c_str()) == 0;
}

void Link::HearOnlyTopic() {
  // Cannot fail on a socket that has this subscription.
  if (std::exchange(hears_all_, false)) socket_.SetBytes(ZMQ_UNSUBSCRIBE, "");
}

void Link::Close() {
  if (monitor_.valid() && socket_.valid()) zmq_socket_monitor(socket_.get(), nullptr, 0);
  monitor_.Close();
  socket_.Close();
  lookup_.reset();
  state_ = State::kClosed;
}

Link::Event Link::Lose(LossCause cause) {
  cause_ = cause;
  state_ = State::kOver;
  return Event::kLost;
}

Link::Event Link::Next(base::SteadyTime now) {
  if (state_ == State::kResolving) {
    if (!lookup_->done()) return Event::kNone;
    Connect();
  }
  if (state_ == State::kFailed) return Lose(LossCause::kUnreachable);
  if (state_ == State::kClosed || state_ == State::kOver) return Event::kNone;
  while (const auto event = ReadEvent(monitor_)) {
    switch (*event) {
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        if (state_ != State::kConnecting) break;
        state_ = State::kUp;
        was_up_ = true;
        return Event::kUp;
      case ZMQ_EVENT_DISCONNECTED:
        if (state_ == State::kEnding) break;
        state_ = State::kEnding;
        decide_at_ = now + kDecideAfter;
        if (was_up_) return Event::kBroken;
        break;
      case ZMQ_EVENT_CONNECT_RETRIED:
        return Lose(was_up_ ? LossCause::kClosed : LossCause::kUnreachable);
      default:
        return Lose(LossCause::kRefused);  // the handshake failed
    }
  }
  if (state_ == State::kEnding && now >= decide_at_) {
    return Lose(was_up_ ? LossCause::kOversize : LossCause::kRefused);
  }
  return Event::kNone;
}

}  // namespace xms::kv_directory::internal
