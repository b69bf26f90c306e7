#include "bench/kv_directory/engine_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "bench/kv_directory/feed.h"
#include "bench/support/measure.h"

namespace xms::bench {
namespace {

struct Publisher {
  void* live = nullptr;
  void* router = nullptr;
  Payloads payloads;
  std::uint64_t last_sequence = 0;
};

std::uint64_t Bind(void* socket) {
  Require(zmq_bind(socket, "tcp://127.0.0.1:*") == 0, "a free port");
  char endpoint[64];
  std::size_t size = sizeof endpoint;
  zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &size);
  const std::string text(endpoint);
  return std::stoull(text.substr(text.rfind(':') + 1));
}

void SetInt(void* socket, int option, int value) {
  Require(zmq_setsockopt(socket, option, &value, sizeof value) == 0, "a socket option");
}

// Whether the batch was taken. Its payload is sent from where it lies.
bool Send(Publisher& publisher) {
  if (zmq_send(publisher.live, kTopic, sizeof kTopic - 1, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
    return false;
  }
  const auto sequence = BigEndian64(++publisher.last_sequence);
  const auto payload =
      publisher.payloads[(publisher.last_sequence - 1) % publisher.payloads.size()];
  zmq_msg_t message;
  zmq_msg_init_data(&message, const_cast<std::byte*>(payload.data()), payload.size(), nullptr,
                    nullptr);
  Require(zmq_send(publisher.live, sequence.data(), sequence.size(), ZMQ_SNDMORE) >= 0 &&
              zmq_msg_send(&message, publisher.live, 0) >= 0,
          "the rest of a message whose first frame was taken");
  return true;
}

// Subscriptions are read, and requests for snapshots answered with an empty one.
void Serve(Publisher& publisher, const Payloads& empty) {
  char bytes[256];
  while (zmq_recv(publisher.live, bytes, sizeof bytes, ZMQ_DONTWAIT) >= 0) {
  }
  for (;;) {
    char identity[256];
    const int size = zmq_recv(publisher.router, identity, sizeof identity, ZMQ_DONTWAIT);
    if (size < 0) return;
    for (int more = 1; more != 0;) {
      std::size_t length = sizeof more;
      zmq_getsockopt(publisher.router, ZMQ_RCVMORE, &more, &length);
      if (more != 0) zmq_recv(publisher.router, bytes, sizeof bytes, 0);
    }
    const auto reply = [&](std::uint64_t watermark, kv_directory::Frame payload) {
      const auto sequence = BigEndian64(watermark);
      zmq_send(publisher.router, identity, static_cast<std::size_t>(size), ZMQ_SNDMORE);
      zmq_send(publisher.router, nullptr, 0, ZMQ_SNDMORE);
      zmq_send(publisher.router, sequence.data(), sequence.size(), ZMQ_SNDMORE);
      zmq_send(publisher.router, payload.data(), payload.size(), 0);
    };
    reply(publisher.last_sequence, empty[0]);
    reply(UINT64_MAX, {});
  }
}

// The next order, or 0 when there is none; ends the process with its parent.
char NextOrder(int orders, int timeout_ms) {
  pollfd item{orders, POLLIN, 0};
  if (::poll(&item, 1, timeout_ms) <= 0) return 0;
  char order = 0;
  if (::read(orders, &order, 1) <= 0) _exit(0);
  return order;
}

}  // namespace

EngineProcess::EngineProcess(const std::function<void(int orders, int answers)>& body) {
  int orders[2];
  int answers[2];
  Require(::pipe(orders) == 0 && ::pipe(answers) == 0, "pipes");
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  Require(pid_ >= 0, "a process");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) _exit(0);
    ::close(orders[1]);
    ::close(answers[0]);
    body(orders[0], answers[1]);
    _exit(0);
  }
  ::close(orders[0]);
  ::close(answers[1]);
  orders_ = orders[1];
  answers_ = answers[0];
}

EngineProcess::~EngineProcess() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ::close(orders_);
  ::close(answers_);
}

void EngineProcess::Order(char what) const {
  Require(::write(orders_, &what, 1) == 1, "the other process takes an order");
}

std::uint64_t EngineProcess::Answer() const {
  std::uint64_t value = 0;
  Require(::read(answers_, &value, sizeof value) == sizeof value, "the other process answers");
  return value;
}

void EngineProcess::SendAnswer(int answers, std::uint64_t value) {
  if (::write(answers, &value, sizeof value) != sizeof value) _exit(1);
}

void PublishCircles(int orders, int answers, std::size_t streams, std::size_t chains,
                    std::size_t resident) {
  void* const context = zmq_ctx_new();
  std::vector<Publisher> publishers(streams);
  const Payloads empty = SnapshotParts(0, 0, 1);
  for (std::size_t s = 0; s < streams; ++s) {
    Publisher& publisher = publishers[s];
    publisher.payloads = CircleBatches(s, chains, resident);
    publisher.live = zmq_socket(context, ZMQ_XPUB);
    publisher.router = zmq_socket(context, ZMQ_ROUTER);
    SetInt(publisher.live, ZMQ_XPUB_NODROP, 1);
    SetInt(publisher.live, ZMQ_SNDHWM, 256);
    EngineProcess::SendAnswer(answers, Bind(publisher.live));
    EngineProcess::SendAnswer(answers, Bind(publisher.router));
  }
  bool publishing = false;
  for (std::uint64_t round = 0;; ++round) {
    const char order = !publishing || round % 64 == 0 ? NextOrder(orders, publishing ? 0 : 1) : 0;
    if (order == 'g') publishing = true;
    if (order == 's') {
      publishing = false;
      for (const Publisher& p : publishers) EngineProcess::SendAnswer(answers, p.last_sequence);
    }
    bool sent = !publishing;
    for (Publisher& publisher : publishers) {
      if (publishing) {
        sent = Send(publisher) || sent;
      } else {
        Serve(publisher, empty);
      }
    }
    // Nobody takes more: let them work, on the processor that we share.
    if (!sent) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace xms::bench
