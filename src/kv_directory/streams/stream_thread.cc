#include "kv_directory/streams/stream_thread.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/str_cat.h"
#include "base/thread_name.h"
#include "kv_directory/recovery/stream_machine.h"
#include "kv_directory/streams/internal/link.h"
#include "kv_directory/streams/internal/zmq.h"
#include "kv_directory/streams/state_log.h"

namespace xms::kv_directory {
namespace {

using base::SteadyTime;
using base::StrCat;
using internal::Link;
using internal::ZmqMessage;

// Live messages between two looks at everything else.
constexpr int kMessagesPerTurn = 256;

}  // namespace

class StreamThread::Loop final : public StreamMachine::Actions {
 public:
  explicit Loop(StreamThread& owner)
      : owner_(owner),
        shared_(owner.shared_),
        ticket_(owner.shared_.gate),
        machine_(owner.spec_, owner.shared_.limits, *owner.ledger_, *this, *owner.metrics_,
                 owner.seed_) {}

  void Run(const std::stop_token& stop) {
    owner_.metrics_->unsynchronized.Begin(shared_.clock.Now());
    machine_.Start(shared_.clock.Now());
    while (!stop.stop_requested()) {
      Wait();
      owner_.wakeup_->Drain();
      ServeSubscription();
      ServeExchange();
      const SteadyTime now = shared_.clock.Now();
      if (now >= machine_.NextTick()) machine_.OnTick(now);
      ReturnTicket();
      Write(state_log_.Due(now));
      owner_.proven_at_.store(machine_.proven_at(), std::memory_order_relaxed);
      owner_.ledger_->NoteProof(machine_.proven_at(), machine_.live_at());
      ShowSynchrony(machine_.synchronized());
    }
    exchange_.Close();
    subscription_.Close();
    ShowSynchrony(false);
  }

  // --- StreamMachine::Actions: sockets only, never back into the machine.
  void OpenSubscription() override {
    subscription_.Open(shared_.zmq_context, LinkOptions(Link::Kind::kSubscription),
                       subscription_address_, shared_.resolver, owner_.wakeup_);
  }
  void CloseSubscription() override { subscription_.Close(); }
  void OpenExchange() override {
    ReturnTicket();
    // The address that took the subscription is the first to be tried.
    exchange_.Open(shared_.zmq_context, LinkOptions(Link::Kind::kExchange),
                   subscription_address_ + exchange_address_, shared_.resolver, owner_.wakeup_);
    asked_ = false;
  }
  void CloseExchange() override { exchange_.Close(); }
  void StateChanged(bool synchronized, const std::string& line) override {
    Write(state_log_.Change(synchronized, line, shared_.clock.Now()));
  }

 private:
  void Write(const std::optional<StateLog::Line>& line) const {
    if (!line) return;
    const std::string text = StrCat("kv stream ", owner_.spec_.key.instance.name, "/",
                                    owner_.spec_.key.rank.value, ": ", line->text);
    if (line->synchronized) {
      base::LogInfo(text);
    } else {
      base::LogWarning(text);
    }
  }

  Link::Options LinkOptions(Link::Kind kind) const {
    const bool subscription = kind == Link::Kind::kSubscription;
    return {.kind = kind,
            .url = subscription ? owner_.spec_.endpoint : owner_.spec_.replay_endpoint,
            .topic = owner_.spec_.topic,
            .max_frame_bytes = static_cast<std::int64_t>(2 * shared_.limits.max_message_bytes)};
  }

  void Wait() {
    std::array<zmq_pollitem_t, 5> items{};
    int count = 0;
    items[count++] = {nullptr, owner_.wakeup_->fd(), ZMQ_POLLIN, 0};
    for (const Link* link : {&subscription_, &exchange_}) {
      if (link->monitor().valid()) items[count++] = {link->monitor().get(), 0, ZMQ_POLLIN, 0};
      if (link->up()) items[count++] = {link->socket().get(), 0, ZMQ_POLLIN, 0};
    }
    // A failed poll (a signal) is a turn in which nothing was ready.
    zmq_poll(items.data(), count, TimeoutMs());
  }

  // Until the next thing that is due, rounded up: a turn too early would only come again.
  long TimeoutMs() {
    SteadyTime next = std::min(
        {machine_.NextTick(), subscription_.deadline(), exchange_.deadline(), state_log_.next()});
    if (exchange_.up() && !asked_) {
      if (const auto start = ticket_.start()) next = std::min(next, *start);
    }
    if (next == SteadyTime::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - shared_.clock.Now());
    return std::clamp<long>(static_cast<long>(left.count()), 0, 60'000);
  }

  void ServeSubscription() {
    for (;;) {
      const SteadyTime now = shared_.clock.Now();
      const Link::Event event = subscription_.Next(now);
      if (event == Link::Event::kNone) break;
      if (event == Link::Event::kUp) machine_.OnSubscribed(now);
      if (event == Link::Event::kBroken) machine_.OnSubscriptionInterrupted(now);
      if (event == Link::Event::kLost) {
        if (subscription_.cause() == LossCause::kUnreachable) ++subscription_address_;
        machine_.OnSubscriptionLost(subscription_.cause(), now);
      }
    }
    for (int i = 0; i < kMessagesPerTurn && subscription_.up(); ++i) {
      if (!message_.Receive(subscription_.socket())) return;
      machine_.OnLive(message_.frames(), shared_.clock.Now());
      if (machine_.topic_seen()) subscription_.HearOnlyTopic();
    }
  }

  void ServeExchange() {
    // Replies first: the peer may close behind the terminator.
    while (exchange_.open() && asked_ && message_.Receive(exchange_.socket())) {
      machine_.OnReply(message_.frames(), shared_.clock.Now());
    }
    for (;;) {
      const SteadyTime now = shared_.clock.Now();
      const Link::Event event = exchange_.Next(now);
      if (event == Link::Event::kNone) break;
      if (event == Link::Event::kUp) {
        machine_.OnExchangeConnected();
        has_ticket_ = true;
        ticket_.Enter(
            owner_.wakeup_,
            {.slow = machine_.last_exchange_timed_out(), .credited = machine_.synchronized()}, now);
      }
      if (event == Link::Event::kLost) {
        if (exchange_.cause() == LossCause::kUnreachable) ++exchange_address_;
        machine_.OnExchangeLost(exchange_.cause(), now);
      }
    }
    if (!exchange_.up() || asked_) return;
    const auto start = ticket_.start();
    const SteadyTime now = shared_.clock.Now();
    if (!start || now < *start) return;
    Ask(now);
  }

  void Ask(SteadyTime now) {
    constexpr std::array<std::byte, 8> kFromTheStart{};
    void* const socket = exchange_.socket().get();
    asked_ = zmq_send(socket, nullptr, 0, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 &&
             zmq_send(socket, kFromTheStart.data(), kFromTheStart.size(), ZMQ_DONTWAIT) >= 0;
    if (asked_) {
      machine_.OnExchangeStarted(now);
    } else {
      machine_.OnExchangeLost(LossCause::kClosed, now);
    }
  }

  // Not in CloseExchange: a snapshot keeps its place until it has been applied, so that no more of them
  // are in memory, and at work, than may be on their way.
  void ReturnTicket() {
    if (!has_ticket_ || exchange_.open()) return;
    has_ticket_ = false;
    ticket_.Leave();
  }

  void ShowSynchrony(bool synchronized) {
    if (owner_.synchronized_.load(std::memory_order_relaxed) == synchronized) return;
    owner_.synchronized_.store(synchronized, std::memory_order_relaxed);
    shared_.synchronized.Add(synchronized ? 1 : -1);
    if (synchronized) {
      owner_.metrics_->unsynchronized.End(shared_.clock.Now());
    } else {
      owner_.metrics_->unsynchronized.Begin(shared_.clock.Now());
    }
  }

  StreamThread& owner_;
  const Shared& shared_;
  Link subscription_;
  Link exchange_;
  SnapshotGate::Ticket ticket_;
  bool has_ticket_ = false;  // entered, and not yet left
  bool asked_ = false;
  // Which of a host's addresses is tried; moves on when nobody answers there.
  unsigned subscription_address_ = 0;
  unsigned exchange_address_ = 0;
  ZmqMessage message_;
  StateLog state_log_;
  StreamMachine machine_;
};

StreamThread::StreamThread(StreamSpec spec, std::unique_ptr<kv_index::StreamLedger> ledger,
                           std::shared_ptr<Wakeup> wakeup, const Shared& shared, std::uint64_t seed)
    : spec_(std::move(spec)),
      shared_(shared),
      wakeup_(std::move(wakeup)),
      seed_(seed),
      metrics_(std::make_shared<StreamMetrics>(shared.recovery_seconds)),
      ledger_(std::move(ledger)),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

StreamThread::~StreamThread() { RequestStop(); }

void StreamThread::RequestStop() {
  thread_.request_stop();
  wakeup_->Signal();
}

void StreamThread::Run(const std::stop_token& stop) {
  // The event port tells the streams of a host apart.
  base::NameThisThread(StrCat("xms-kv-", spec_.endpoint.substr(spec_.endpoint.rfind(':') + 1)));
  Loop(*this).Run(stop);
  // Here rather than by the owner, so that many streams that stop clear their bits side by side.
  ledger_.reset();
  ended_.store(true, std::memory_order_release);
}

}  // namespace xms::kv_directory
