#include "tests/support/load_publisher.h"

#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "kv_events/encoder.h"
#include "tests/support/kv_truth.h"

namespace xms::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

// Batches of one stream between two looks at everything else.
constexpr std::uint64_t kBatchesATurn = 64;
constexpr std::uint32_t kVocabulary = 150'000;
constexpr std::uint64_t kTerminator = UINT64_MAX;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "LoadPublisher: %s: %s\n", what, zmq_strerror(zmq_errno()));
  std::abort();
}

std::uint64_t Mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

void* NewSocket(void* context, int type, int high_water_mark, std::uint16_t& port) {
  void* const socket = zmq_socket(context, type);
  if (socket == nullptr) Die("socket");
  const int no_linger = 0;
  zmq_setsockopt(socket, ZMQ_LINGER, &no_linger, sizeof no_linger);
  zmq_setsockopt(socket, ZMQ_SNDHWM, &high_water_mark, sizeof high_water_mark);
  const std::string where = "tcp://127.0.0.1:" + (port == 0 ? "*" : std::to_string(port));
  if (zmq_bind(socket, where.c_str()) != 0) Die(("bind " + where).c_str());
  char bound[256];
  std::size_t size = sizeof bound;
  if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound, &size) != 0) Die("last endpoint");
  const std::string text(bound);
  port = static_cast<std::uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
  return socket;
}

}  // namespace

struct LoadPublisher::Impl {
  struct Stream {
    void* live = nullptr;
    void* router = nullptr;
    Span held;
    std::uint64_t chains = 0;  // resident ones to come to
    std::uint64_t next_sequence = 1;
    std::uint64_t owed = 0;  // batches to publish at once
    Time next_batch{};
    // The last snapshot's payloads, as long as nothing changes.
    std::vector<std::string> parts;
    std::uint64_t parts_until = 0;  // the next sequence when they were made
  };
  struct Request {
    Time due;
    std::size_t stream;
    std::string identity;
  };

  explicit Impl(Options given) : options(std::move(given)), answer_after(options.answer_after) {
    context = zmq_ctx_new();
    zmq_ctx_set(context, ZMQ_MAX_SOCKETS, static_cast<int>(2 * options.streams + 64));
    wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (context == nullptr || wake < 0) Die("context");
    ports = options.ports;
    ports.resize(2 * options.streams);
    base::MutexLock lock(mu);
    rate = options.batches_a_second;
    for (std::size_t i = 0; i < options.streams; ++i) {
      Stream& stream = streams.emplace_back();
      stream.live = NewSocket(context, ZMQ_XPUB, options.high_water_mark, ports[2 * i]);
      stream.router = NewSocket(context, ZMQ_ROUTER, 0, ports[2 * i + 1]);
      stream.held = {0, options.chains};
      stream.chains = options.chains;
    }
    thread = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }

  ~Impl() {
    thread.request_stop();
    Wake();
    thread.join();
    base::MutexLock lock(mu);
    for (const Stream& stream : streams) {
      zmq_close(stream.live);
      zmq_close(stream.router);
    }
    zmq_ctx_term(context);
    close(wake);
  }

  void Wake() const {
    const std::uint64_t one = 1;
    if (write(wake, &one, sizeof one) < 0 && errno != EAGAIN) Die("wake");
  }

  void Run(const std::stop_token& stop) {
    std::vector<zmq_pollitem_t> items;
    {
      base::MutexLock lock(mu);
      items.push_back({nullptr, wake, ZMQ_POLLIN, 0});
      for (const Stream& stream : streams) {
        items.push_back({stream.live, 0, ZMQ_POLLIN, 0});
        items.push_back({stream.router, 0, ZMQ_POLLIN, 0});
      }
    }
    long timeout = 0;
    while (!stop.stop_requested()) {
      if (zmq_poll(items.data(), static_cast<int>(items.size()), timeout) < 0 &&
          zmq_errno() != EINTR) {
        Die("poll");
      }
      std::uint64_t count = 0;
      if (read(wake, &count, sizeof count) < 0 && errno != EAGAIN) Die("wake");
      base::MutexLock lock(mu);
      for (std::size_t i = 0; i < streams.size(); ++i) {
        if ((items[1 + 2 * i].revents & ZMQ_POLLIN) != 0) ReadSubscriptions(streams[i]);
        if ((items[2 + 2 * i].revents & ZMQ_POLLIN) != 0) ReadRequests(i);
      }
      timeout = Work();
    }
  }

  static void ReadSubscriptions(const Stream& stream) {
    char buffer[256];
    while (zmq_recv(stream.live, buffer, sizeof buffer, ZMQ_DONTWAIT) >= 0) {
    }
  }

  void ReadRequests(std::size_t stream) XMS_REQUIRES(mu) {
    for (;;) {
      std::vector<std::string> frames;
      int more = 1;
      while (more != 0) {
        char buffer[256];
        const int got = zmq_recv(streams[stream].router, buffer, sizeof buffer, ZMQ_DONTWAIT);
        if (got < 0) return;
        frames.emplace_back(buffer, std::min(static_cast<std::size_t>(got), sizeof buffer));
        std::size_t size = sizeof more;
        zmq_getsockopt(streams[stream].router, ZMQ_RCVMORE, &more, &size);
      }
      const Time now = Clock::now();
      if (statistics.snapshot_requests++ > 0) {
        const auto apart =
            std::chrono::duration_cast<std::chrono::microseconds>(now - last_request).count();
        statistics.least_spacing_us =
            std::min(statistics.least_spacing_us, static_cast<std::uint64_t>(apart));
      }
      last_request = now;
      requests.push_back({now + answer_after, stream, frames[0]});
      statistics.most_snapshots_at_once =
          std::max<std::uint64_t>(statistics.most_snapshots_at_once, requests.size());
    }
  }

  // Whatever is due; returns how long to wait for more, in milliseconds.
  long Work() XMS_REQUIRES(mu) {
    const Time now = Clock::now();
    Time next = Time::max();
    while (!requests.empty() && requests.front().due <= now) {
      Answer(requests.front());
      requests.pop_front();
    }
    if (!requests.empty()) next = requests.front().due;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      Stream& stream = streams[i];
      for (std::uint64_t n = 0; n < kBatchesATurn && stream.owed > 0; ++n, --stream.owed) {
        SendChange(i);
      }
      if (stream.owed > 0) next = now;
      if (rate == 0) continue;
      const auto interval = std::chrono::nanoseconds(1'000'000'000 / rate);
      // Who cannot keep up skips what he missed, rather than never looking at anything else.
      stream.next_batch = std::max(stream.next_batch, now - 100 * interval);
      for (std::uint64_t n = 0; n < kBatchesATurn && stream.next_batch <= now; ++n) {
        SendChange(i);
        stream.next_batch += interval;
      }
      next = std::min(next, stream.next_batch);
    }
    if (next == Time::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
    return static_cast<long>(std::max<std::int64_t>(left, 0));
  }

  std::uint64_t HashOf(std::size_t stream, std::uint64_t chain, std::size_t block) const {
    return Mix(Mix(Mix(options.seed * 1'000'003 + stream) + chain) + block);
  }

  void AppendChain(kv_events::KvBatch& batch, std::size_t stream, std::uint64_t chain,
                   kv_events::EventKind kind) const {
    kv_events::KvEvent& event = batch.events.emplace_back();
    event.kind = kind;
    event.scope = kv_events::EventScope::kDevice;
    event.first_hash = static_cast<std::uint32_t>(batch.hashes.size());
    event.hash_count = static_cast<std::uint32_t>(options.chain);
    event.first_token = static_cast<std::uint32_t>(batch.tokens.size());
    for (std::size_t i = 0; i < options.chain; ++i) {
      batch.hashes.push_back({HashOf(stream, chain, i)});
    }
    if (kind != kv_events::EventKind::kStore) return;
    const std::vector<std::uint32_t> tokens = Prompt(options, stream, chain);
    event.token_count = static_cast<std::uint32_t>(tokens.size());
    batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
  }

  std::string Bytes(const kv_events::KvBatch& batch) {
    bytes.clear();
    kv_events::EncodeBatch(batch, options.block_size, bytes);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // Stores a new chain, and removes the oldest beyond the wanted number.
  void SendChange(std::size_t index) XMS_REQUIRES(mu) {
    Stream& stream = streams[index];
    kv_events::KvBatch batch;
    batch.timestamp = 1760000000.25;
    AppendChain(batch, index, stream.held.first + stream.held.count, kv_events::EventKind::kStore);
    ++stream.held.count;
    while (stream.held.count > stream.chains) {
      AppendChain(batch, index, stream.held.first, kv_events::EventKind::kRemove);
      ++stream.held.first;
      --stream.held.count;
    }
    const std::string payload = Bytes(batch);
    const std::string sequence = BigEndian64(stream.next_sequence++);
    ++statistics.batches;
    const bool sent =
        zmq_send(stream.live, options.topic.data(), options.topic.size(),
                 ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 &&
        zmq_send(stream.live, sequence.data(), sequence.size(), ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 &&
        zmq_send(stream.live, payload.data(), payload.size(), ZMQ_DONTWAIT) >= 0;
    if (!sent) ++statistics.unsent;
  }

  void Reply(const Request& to, std::uint64_t watermark, const std::string& payload)
      XMS_REQUIRES(mu) {
    void* const router = streams[to.stream].router;
    const std::string sequence = BigEndian64(watermark);
    // Fails when the requester has left already, which is its right.
    if (zmq_send(router, to.identity.data(), to.identity.size(), ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
        zmq_send(router, nullptr, 0, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
        zmq_send(router, sequence.data(), sequence.size(), ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) {
      return;
    }
    zmq_send(router, payload.data(), payload.size(), ZMQ_DONTWAIT);
  }

  void Answer(const Request& to) XMS_REQUIRES(mu) {
    Stream& stream = streams[to.stream];
    if (stream.parts_until != stream.next_sequence) MakeParts(to.stream);
    statistics.snapshot_bytes = 0;
    for (const std::string& payload : stream.parts) {
      statistics.snapshot_bytes += payload.size();
      Reply(to, stream.next_sequence - 1, payload);
    }
    Reply(to, kTerminator, "");
    ++statistics.snapshots;
  }

  void MakeParts(std::size_t index) XMS_REQUIRES(mu) {
    Stream& stream = streams[index];
    stream.parts.clear();
    stream.parts_until = stream.next_sequence;
    kv_events::KvBatch batch;
    batch.timestamp = 1760000000.25;
    // Hash and tokens take at most nine and five bytes.
    const std::size_t chain_bytes = options.chain * (9 + 5 * std::size_t{options.block_size}) + 128;
    const std::size_t chains_a_part = std::max<std::size_t>(1, options.part_bytes / chain_bytes);
    for (std::uint64_t i = 0; i < stream.held.count || i == 0; ++i) {
      if (i < stream.held.count) {
        AppendChain(batch, index, stream.held.first + i, kv_events::EventKind::kStore);
      }
      if (batch.events.size() < chains_a_part && i + 1 < stream.held.count) continue;
      stream.parts.push_back(Bytes(batch));
      batch.events.clear();
      batch.hashes.clear();
      batch.tokens.clear();
    }
  }

  const Options options;
  std::vector<std::uint16_t> ports;  // set once in the constructor
  void* context = nullptr;
  int wake = -1;
  std::jthread thread;
  std::vector<std::byte> bytes;  // scratch of the thread

  mutable base::Mutex mu;
  std::chrono::milliseconds answer_after XMS_GUARDED_BY(mu);
  std::size_t rate XMS_GUARDED_BY(mu) = 0;
  std::vector<Stream> streams XMS_GUARDED_BY(mu);
  std::deque<Request> requests XMS_GUARDED_BY(mu);
  Time last_request XMS_GUARDED_BY(mu){};
  Statistics statistics XMS_GUARDED_BY(mu);
};

LoadPublisher::LoadPublisher(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
LoadPublisher::~LoadPublisher() = default;

std::vector<std::uint32_t> LoadPublisher::Prompt(const Options& options, std::size_t stream,
                                                 std::uint64_t chain) {
  std::vector<std::uint32_t> tokens(options.chain * options.block_size);
  std::uint64_t state = Mix(Mix(options.seed * 7 + stream) + chain);
  for (std::uint32_t& token : tokens) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    token = static_cast<std::uint32_t>((state >> 33) % kVocabulary);
  }
  return tokens;
}

std::vector<std::uint16_t> LoadPublisher::ports() const { return impl_->ports; }

void LoadPublisher::SetRate(std::size_t batches_a_second) {
  {
    base::MutexLock lock(impl_->mu);
    impl_->rate = batches_a_second;
    for (auto& stream : impl_->streams) stream.next_batch = Clock::now();
  }
  impl_->Wake();
}

void LoadPublisher::Publish(std::size_t stream, std::size_t batches) {
  {
    base::MutexLock lock(impl_->mu);
    impl_->streams.at(stream).owed += batches;
  }
  impl_->Wake();
}

void LoadPublisher::Resize(std::size_t stream, std::size_t chains) {
  base::MutexLock lock(impl_->mu);
  impl_->streams.at(stream).chains = chains;
}

void LoadPublisher::SetAnswerAfter(std::chrono::milliseconds delay) {
  base::MutexLock lock(impl_->mu);
  impl_->answer_after = delay;
}

LoadPublisher::Span LoadPublisher::Held(std::size_t stream) const {
  base::MutexLock lock(impl_->mu);
  return impl_->streams.at(stream).held;
}

std::uint64_t LoadPublisher::last_sequence(std::size_t stream) const {
  base::MutexLock lock(impl_->mu);
  return impl_->streams.at(stream).next_sequence - 1;
}

LoadPublisher::Statistics LoadPublisher::statistics() const {
  base::MutexLock lock(impl_->mu);
  return impl_->statistics;
}

}  // namespace xms::testing
