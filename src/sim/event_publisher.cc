#include "sim/event_publisher.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <limits>
#include <span>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "base/log.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "base/thread_name.h"

namespace xms::sim {
namespace {

constexpr std::uint64_t kTerminator = std::numeric_limits<std::uint64_t>::max();
// max_message_bytes of a service that was told nothing else.
constexpr std::size_t kUsualMessageLimit = 8 << 20;
constexpr int kHighWaterMark = 10'000;            // messages a subscriber
constexpr std::int64_t kMaxIncomingBytes = 1024;  // subscriptions and requests are small

std::string BigEndian(std::uint64_t value) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[7 - i] = static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
  }
  return bytes;
}

std::uint16_t PortOf(const zmq::socket_t& socket) {
  const std::string endpoint = socket.get(zmq::sockopt::last_endpoint);
  std::uint16_t port = 0;
  const std::string_view text = std::string_view(endpoint).substr(endpoint.rfind(':') + 1);
  std::from_chars(text.data(), text.data() + text.size(), port);
  return port;
}

struct Message {
  std::vector<std::string> frames;  // before the payload; the identity first where there is one
  std::vector<std::byte> payload;
  bool to_router = false;
};

}  // namespace

struct EventPublisher::Impl {
  Impl(Options given, std::function<void(SnapshotRequest)> handler)
      : options(std::move(given)), on_request(std::move(handler)) {}
  ~Impl() {
    if (thread.joinable()) {
      thread.request_stop();
      Wake();
      thread.join();
    }
    live.close();
    router.close();
    context.close();  // waits until the listeners are closed
    if (wake_fd >= 0) ::close(wake_fd);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  base::Status Bind();
  void Enqueue(std::vector<Message> messages);
  void Wake() const;
  void Run(const std::stop_token& stop);
  void ReadRequests();
  void Send(Message& message);
  void NoteSize(std::size_t snapshot_bytes);

  const Options options;
  const std::function<void(SnapshotRequest)> on_request;
  zmq::context_t context;
  // The opening thread until `thread` starts, then that one alone.
  zmq::socket_t live;
  zmq::socket_t router;
  std::uint16_t event_port = 0;  // set once in Bind
  std::uint16_t replay_port = 0;
  int wake_fd = -1;

  base::Mutex mu;
  std::vector<Message> queue XMS_GUARDED_BY(mu);
  std::atomic<std::size_t> requests{0};  // asked for and not yet answered
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<std::size_t> noted{0};  // size of the snapshot that was last said to be too large
  std::jthread thread;
};

base::Status EventPublisher::Impl::Bind() {
  wake_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd < 0) return base::Error{base::ErrorCode::kUnavailable, "no descriptor is left"};
  const auto open = [&](zmq::socket_t& socket, zmq::socket_type type, std::uint16_t port,
                        std::uint16_t& bound) -> base::Status {
    const std::string endpoint =
        base::StrCat("tcp://", options.host, ":", port == 0 ? "*" : std::to_string(port));
    try {
      socket = zmq::socket_t(context, type);
      socket.set(zmq::sockopt::linger, 0);
      socket.set(zmq::sockopt::sndhwm, kHighWaterMark);
      socket.set(zmq::sockopt::maxmsgsize, kMaxIncomingBytes);
      socket.bind(endpoint);
    } catch (const zmq::error_t& error) {
      return base::Error{base::ErrorCode::kUnavailable,
                         base::StrCat("cannot listen on ", endpoint, ": ", error.what())};
    }
    bound = PortOf(socket);
    return base::Ok();
  };
  if (auto opened = open(live, zmq::socket_type::xpub, options.event_port, event_port);
      !opened.ok()) {
    return opened;
  }
  return open(router, zmq::socket_type::router, options.replay_port, replay_port);
}

void EventPublisher::Impl::Wake() const {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the thread is awake anyway.
  [[maybe_unused]] const auto written = ::write(wake_fd, &one, sizeof one);
}

void EventPublisher::Impl::Enqueue(std::vector<Message> messages) {
  {
    base::MutexLock lock(mu);
    for (Message& message : messages) {
      if (queue.size() >= kMaxQueued) {
        dropped.fetch_add(1);
      } else {
        queue.push_back(std::move(message));
      }
    }
  }
  Wake();
}

void EventPublisher::Impl::Send(Message& message) {
  zmq::socket_t& socket = message.to_router ? router : live;
  try {
    for (const std::string& frame : message.frames) {
      // Neither socket type blocks: what has no room or no peer is dropped by ZeroMQ.
      if (!socket.send(zmq::buffer(frame), zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
        dropped.fetch_add(1);
        return;
      }
    }
    if (!socket.send(zmq::buffer(message.payload), zmq::send_flags::dontwait)) dropped.fetch_add(1);
  } catch (const zmq::error_t& error) {
    dropped.fetch_add(1);
    base::LogWarning(base::StrCat("sim: event port ", event_port, ": ", error.what()));
  }
}

void EventPublisher::Impl::NoteSize(std::size_t snapshot_bytes) {
  std::size_t last = noted.load();
  if (snapshot_bytes <= kUsualMessageLimit || snapshot_bytes / 5 <= last / 4) return;
  if (!noted.compare_exchange_strong(last, snapshot_bytes)) return;
  base::LogWarning(base::StrCat("sim: event port ", event_port, ": a snapshot of ", snapshot_bytes,
                                " bytes is over the ", kUsualMessageLimit,
                                " that a service takes by default; raise max_message_bytes in its "
                                "--kv_events_config_file to at least ",
                                snapshot_bytes));
}

void EventPublisher::Impl::ReadRequests() {
  while (true) {
    std::vector<std::string> frames;
    bool more = true;
    while (more) {
      zmq::message_t frame;
      if (!router.recv(frame, zmq::recv_flags::dontwait)) return;
      more = frame.more();
      if (frames.size() < 4) frames.push_back(frame.to_string());
    }
    // identity, empty delimiter, 8-byte start sequence
    if (frames.size() != 3 || !frames[1].empty() || frames[2].size() != 8) continue;
    if (requests.load() >= kMaxRequests) continue;
    requests.fetch_add(1);
    on_request({std::move(frames[0])});
  }
}

void EventPublisher::Impl::Run(const std::stop_token& stop) {
  std::array<zmq::pollitem_t, 3> items{
      zmq::pollitem_t{nullptr, wake_fd, ZMQ_POLLIN, 0},
      zmq::pollitem_t{live.handle(), 0, ZMQ_POLLIN, 0},
      zmq::pollitem_t{router.handle(), 0, ZMQ_POLLIN, 0},
  };
  while (!stop.stop_requested()) {
    try {
      zmq::poll(items.data(), items.size(), std::chrono::milliseconds(-1));
      std::uint64_t wakes = 0;
      [[maybe_unused]] const auto read = ::read(wake_fd, &wakes, sizeof wakes);
      // Who subscribes to what is ZeroMQ's business; reading it keeps the socket's inbox empty.
      zmq::message_t subscription;
      while (live.recv(subscription, zmq::recv_flags::dontwait)) {
      }
      std::vector<Message> messages;
      {
        base::MutexLock lock(mu);
        messages.swap(queue);
      }
      for (Message& message : messages) Send(message);
      ReadRequests();
    } catch (const zmq::error_t& error) {
      if (error.num() == EINTR) continue;
      base::LogError(base::StrCat("sim: event port ", event_port, ": ", error.what()));
      return;
    }
  }
}

base::Result<std::unique_ptr<EventPublisher>> EventPublisher::Open(
    Options options, std::function<void(SnapshotRequest)> on_request) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(on_request));
  if (auto bound = impl->Bind(); !bound.ok()) return std::move(bound).error();
  impl->thread = std::jthread([raw = impl.get()](const std::stop_token& stop) {
    base::NameThisThread(base::StrCat("sim-kv-", raw->event_port));
    raw->Run(stop);
  });
  return std::unique_ptr<EventPublisher>(new EventPublisher(std::move(impl)));
}

EventPublisher::EventPublisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EventPublisher::~EventPublisher() = default;

void EventPublisher::Publish(std::uint64_t sequence, std::vector<std::byte> payload) {
  std::vector<Message> messages;
  messages.push_back({{impl_->options.topic, BigEndian(sequence)}, std::move(payload), false});
  impl_->Enqueue(std::move(messages));
}

void EventPublisher::Reply(SnapshotRequest request, std::uint64_t watermark,
                           std::vector<std::byte> payload, Cut cut) {
  impl_->requests.fetch_sub(1);
  if (cut == Cut::kAll) return;
  if (cut == Cut::kPayload) payload.resize(payload.size() / 2);
  impl_->NoteSize(payload.size() + sizeof watermark);
  std::vector<Message> messages;
  messages.push_back({{request.identity, "", BigEndian(watermark)}, std::move(payload), true});
  if (cut != Cut::kTerminator) {
    messages.push_back({{std::move(request.identity), "", BigEndian(kTerminator)}, {}, true});
  }
  impl_->Enqueue(std::move(messages));
}

std::uint16_t EventPublisher::event_port() const { return impl_->event_port; }
std::uint16_t EventPublisher::replay_port() const { return impl_->replay_port; }
std::uint64_t EventPublisher::dropped() const { return impl_->dropped.load(); }

}  // namespace xms::sim
