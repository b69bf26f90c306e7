#include "tests/support/kv_publisher.h"

#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace xms::testing {
namespace {

using model::Tier;

constexpr auto kWaitLimit = std::chrono::seconds(20);

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "KvPublisher: %s: %s\n", what, zmq_strerror(zmq_errno()));
  std::abort();
}

void SetOption(void* socket, int option, int value) {
  if (zmq_setsockopt(socket, option, &value, sizeof value) != 0) Die("socket option");
}

bool SendMessage(void* socket, const Frames& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const int more = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
    if (zmq_send(socket, frames[i].data(), frames[i].size(), ZMQ_DONTWAIT | more) < 0) return false;
  }
  return true;
}

// Empty when nothing is there.
Frames ReceiveMessage(void* socket) {
  Frames frames;
  for (;;) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&message);
      return frames;
    }
    frames.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
    const bool more = zmq_msg_more(&message) != 0;
    zmq_msg_close(&message);
    if (!more) return frames;
  }
}

}  // namespace

struct KvPublisher::Impl {
  explicit Impl(Options given)
      : options(std::move(given)),
        truth(options.block_size, options.dp_rank),
        next_sequence(options.first_sequence) {
    wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake < 0) Die("eventfd");
  }

  ~Impl() {
    Close();
    close(wake);
  }

  // False: a port is taken.
  bool Open() {
    base::MutexLock lock(mu);
    context = zmq_ctx_new();
    if (context == nullptr) Die("context");
    xpub = zmq_socket(context, ZMQ_XPUB);
    router = zmq_socket(context, ZMQ_ROUTER);
    if (xpub == nullptr || router == nullptr) Die("socket");
    for (void* socket : {xpub, router}) {
      SetOption(socket, ZMQ_LINGER, 0);
      SetOption(socket, ZMQ_SNDHWM, socket == xpub ? options.high_water_mark : 0);
      SetOption(socket, ZMQ_IPV6, options.host.find(':') == std::string::npos ? 0 : 1);
    }
    SetOption(xpub, ZMQ_XPUB_VERBOSER, 1);  // count every subscriber, not every topic
    if (!Bind(xpub, options.event_port) || !Bind(router, options.replay_port)) {
      CloseSockets();
      return false;
    }
    thread = std::jthread([this](const std::stop_token& stop) { Serve(stop); });
    return true;
  }

  bool Bind(void* socket, std::uint16_t& port) const {
    const std::string host =
        options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
    const std::string where =
        port == 0 ? "tcp://" + host + ":*" : "tcp://" + host + ":" + std::to_string(port);
    if (zmq_bind(socket, where.c_str()) != 0) return false;
    char bound[256];
    std::size_t size = sizeof bound;
    if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound, &size) != 0) Die("last endpoint");
    const std::string text(bound);
    port = static_cast<std::uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
    return true;
  }

  void CloseSockets() XMS_REQUIRES(mu) {
    zmq_close(xpub);
    zmq_close(router);
    zmq_ctx_term(context);
    context = xpub = router = nullptr;
  }

  void Close() {
    if (!thread.joinable()) return;
    thread.request_stop();
    Wake();
    thread.join();
    base::MutexLock lock(mu);
    CloseSockets();
    subscriptions = 0;
    waiting.clear();
  }

  void Wake() const {
    const std::uint64_t one = 1;
    if (write(wake, &one, sizeof one) < 0 && errno != EAGAIN) Die("wake");
  }

  // The recovery side, and the reading of subscriptions. The XPUB socket is used by several
  // threads, always under `mu`, so it cannot be polled here: it is looked at every few
  // milliseconds.
  void Serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      zmq_pollitem_t items[] = {{router, 0, ZMQ_POLLIN, 0}, {nullptr, wake, ZMQ_POLLIN, 0}};
      if (zmq_poll(items, 2, 2) < 0 && zmq_errno() != EINTR) Die("poll");
      std::uint64_t count = 0;
      if (read(wake, &count, sizeof count) < 0 && errno != EAGAIN) Die("wake");

      base::MutexLock lock(mu);
      for (Frames frames = ReceiveMessage(xpub); !frames.empty(); frames = ReceiveMessage(xpub)) {
        // A directory also hears every topic until it has seen its own: that is not one more subscriber.
        if (frames[0].size() < (options.topic.empty() ? 1 : 2)) continue;
        if (frames[0][0] == 1) ++subscriptions;
        if (frames[0][0] == 0 && subscriptions > 0) --subscriptions;
        changed.NotifyAll();
      }
      for (Frames frames = ReceiveMessage(router); !frames.empty();
           frames = ReceiveMessage(router)) {
        ++snapshot_requests;
        changed.NotifyAll();
        waiting.push_back(frames[0]);
      }
      if (held) continue;
      for (const std::string& identity : std::exchange(waiting, {})) Answer(identity);
    }
  }

  void Answer(const std::string& identity) XMS_REQUIRES(mu) {
    if (!answering) return;
    std::vector<Frames> messages;
    if (scripted_times > 0) {
      if (scripted_times != SIZE_MAX) --scripted_times;
      messages = scripted;
    } else {
      messages = truth.SnapshotAnswer(next_sequence - 1, parts);
      if (!terminating) messages.pop_back();
    }
    for (Frames& message : messages) {
      message.insert(message.begin(), identity);
      SendMessage(router,
                  message);  // fails when the requester has left already, which is its right
    }
  }

  std::uint64_t Send(const std::string& payload) XMS_REQUIRES(mu) {
    const std::uint64_t sequence = next_sequence++;
    if (to_lose > 0) {
      --to_lose;
    } else if (xpub != nullptr) {
      SendMessage(xpub, {options.topic, BigEndian64(sequence), payload});
    }
    return sequence;
  }

  // Until one of the counters below has reached `count`.
  bool WaitAtLeast(const std::size_t Impl::* counter, std::size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + kWaitLimit;
    base::MutexLock lock(mu);
    while (this->*counter < count) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) return false;
      changed.WaitFor(mu, left);
    }
    return true;
  }

  Options options;  // ports are filled in once they are bound
  void* context = nullptr;
  void* router = nullptr;  // the serving thread's, while it runs
  int wake = -1;
  std::jthread thread;

  base::Mutex mu;
  base::CondVar changed;
  void* xpub XMS_GUARDED_BY(mu) = nullptr;
  KvTruth truth XMS_GUARDED_BY(mu);
  std::uint64_t next_sequence XMS_GUARDED_BY(mu);
  std::size_t to_lose XMS_GUARDED_BY(mu) = 0;
  std::size_t subscriptions XMS_GUARDED_BY(mu) = 0;
  std::size_t snapshot_requests XMS_GUARDED_BY(mu) = 0;
  std::vector<std::string> waiting XMS_GUARDED_BY(mu);  // identities of unanswered requests
  bool held XMS_GUARDED_BY(mu) = false;
  bool answering XMS_GUARDED_BY(mu) = true;
  bool terminating XMS_GUARDED_BY(mu) = true;
  std::size_t parts XMS_GUARDED_BY(mu) = 1;
  std::vector<Frames> scripted XMS_GUARDED_BY(mu);
  std::size_t scripted_times XMS_GUARDED_BY(mu) = 0;
};

KvPublisher::KvPublisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

KvPublisher::KvPublisher(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {
  if (!impl_->Open()) Die("bind");
}

KvPublisher::~KvPublisher() = default;

std::unique_ptr<KvPublisher> KvPublisher::TryMake(Options options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (!impl->Open()) return nullptr;
  return std::unique_ptr<KvPublisher>(new KvPublisher(std::move(impl)));
}

std::uint16_t KvPublisher::event_port() const { return impl_->options.event_port; }
std::uint16_t KvPublisher::replay_port() const { return impl_->options.replay_port; }

std::string KvPublisher::endpoint() const {
  return "tcp://" + impl_->options.host + ":" + std::to_string(event_port());
}

std::string KvPublisher::replay_endpoint() const {
  return "tcp://" + impl_->options.host + ":" + std::to_string(replay_port());
}

KvBatchBuilder KvPublisher::NewBatch() const {
  return KvBatchBuilder(impl_->options.block_size, impl_->options.dp_rank);
}

std::uint64_t KvPublisher::Publish(const KvBatchBuilder& builder) {
  const std::string payload = Encode(builder);
  base::MutexLock lock(impl_->mu);
  impl_->truth.Apply(builder.batch());
  return impl_->Send(payload);
}

std::uint64_t KvPublisher::Store(Tier tier, std::span<const std::uint32_t> prompt) {
  return Publish(NewBatch().Store(tier, prompt));
}

std::uint64_t KvPublisher::Remove(Tier tier, std::span<const std::uint32_t> prompt) {
  return Publish(NewBatch().Remove(tier, prompt));
}

std::uint64_t KvPublisher::Heartbeat() { return Publish(NewBatch()); }

void KvPublisher::LoseNext(std::size_t batches) {
  base::MutexLock lock(impl_->mu);
  impl_->to_lose = batches;
}

std::uint64_t KvPublisher::SendPayload(std::string_view payload) {
  base::MutexLock lock(impl_->mu);
  return impl_->Send(std::string(payload));
}

void KvPublisher::SendFrames(const Frames& frames) {
  base::MutexLock lock(impl_->mu);
  if (impl_->xpub != nullptr) SendMessage(impl_->xpub, frames);
}

void KvPublisher::ForgetSilently() {
  base::MutexLock lock(impl_->mu);
  impl_->truth.Forget();
}

void KvPublisher::SetNextSequence(std::uint64_t sequence) {
  base::MutexLock lock(impl_->mu);
  impl_->next_sequence = sequence;
}

void KvPublisher::RestartInPlace() {
  base::MutexLock lock(impl_->mu);
  impl_->truth.Forget();
  impl_->next_sequence = impl_->options.first_sequence;
}

void KvPublisher::Restart() {
  Disconnect();
  RestartInPlace();
  Reconnect();
}

void KvPublisher::Disconnect() { impl_->Close(); }

void KvPublisher::Reconnect() {
  if (!impl_->Open()) Die("bind again");
}

void KvPublisher::HoldSnapshots() {
  base::MutexLock lock(impl_->mu);
  impl_->held = true;
}

void KvPublisher::ReleaseSnapshots() {
  {
    base::MutexLock lock(impl_->mu);
    impl_->held = false;
  }
  impl_->Wake();
}

void KvPublisher::SetAnswering(bool answering) {
  base::MutexLock lock(impl_->mu);
  impl_->answering = answering;
}

void KvPublisher::SetTerminating(bool terminating) {
  base::MutexLock lock(impl_->mu);
  impl_->terminating = terminating;
}

void KvPublisher::SplitSnapshots(std::size_t parts) {
  base::MutexLock lock(impl_->mu);
  impl_->parts = parts;
}

void KvPublisher::AnswerWith(std::vector<Frames> messages, std::size_t times) {
  base::MutexLock lock(impl_->mu);
  impl_->scripted = std::move(messages);
  impl_->scripted_times = times;
}

void KvPublisher::AnswerProperly() {
  base::MutexLock lock(impl_->mu);
  impl_->scripted_times = 0;
}

std::vector<Frames> KvPublisher::ProperAnswer() const {
  base::MutexLock lock(impl_->mu);
  return impl_->truth.SnapshotAnswer(impl_->next_sequence - 1, impl_->parts);
}

std::size_t KvPublisher::snapshot_requests() const {
  base::MutexLock lock(impl_->mu);
  return impl_->snapshot_requests;
}

std::size_t KvPublisher::subscriptions() const {
  base::MutexLock lock(impl_->mu);
  return impl_->subscriptions;
}

bool KvPublisher::WaitForSubscriptions(std::size_t count) const {
  return impl_->WaitAtLeast(&Impl::subscriptions, count);
}

bool KvPublisher::WaitForSnapshotRequests(std::size_t count) const {
  return impl_->WaitAtLeast(&Impl::snapshot_requests, count);
}

std::uint64_t KvPublisher::last_sequence() const {
  base::MutexLock lock(impl_->mu);
  return impl_->next_sequence - 1;
}

std::size_t KvPublisher::resident_blocks(Tier tier) const {
  base::MutexLock lock(impl_->mu);
  return impl_->truth.resident_blocks(tier);
}

Expectation KvPublisher::Expected(std::span<const std::uint32_t> prompt) const {
  base::MutexLock lock(impl_->mu);
  return impl_->truth.Expected(prompt);
}

DiscoveredEngine MakeEngine(std::size_t ranks, std::uint32_t event_offset,
                            std::uint32_t replay_offset, KvPublisher::Options options) {
  // The kernel picks the first rank's event port; the others follow from it and may be taken.
  for (int attempt = 0; attempt < 200; ++attempt) {
    DiscoveredEngine engine;
    options.event_port = 0;
    options.replay_port = 0;
    {
      const KvPublisher probe(options);
      engine.http_port = static_cast<std::uint16_t>(probe.event_port() - event_offset);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      options.dp_rank = static_cast<std::int32_t>(rank);
      options.event_port = static_cast<std::uint16_t>(engine.http_port + event_offset + rank);
      options.replay_port = static_cast<std::uint16_t>(engine.http_port + replay_offset + rank);
      auto publisher = KvPublisher::TryMake(options);
      if (publisher == nullptr) break;
      engine.ranks.push_back(std::move(publisher));
    }
    if (engine.ranks.size() == ranks) return engine;
  }
  Die("no free ports for an engine");
}

}  // namespace xms::testing
