#include "kv_directory/recovery/stream_machine.h"

#include <algorithm>
#include <utility>

#include "base/str_cat.h"
#include "kv_directory/recovery/apply.h"

namespace xms::kv_directory {
namespace {

using base::SteadyTime;
using base::StrCat;
using kv_index::StreamLedger;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kFirstBackoff{50};
constexpr milliseconds kBackoffCap{5000};
// Connecting costs an engine nothing and tells when it is back, so it is tried more often.
constexpr milliseconds kConnectBackoffCap{1000};
constexpr milliseconds kConnectLimit{5000};
constexpr seconds kSynchronyThatForgives{30};
// With the next snapshot due later than this, the first ones of a connection have come.
constexpr milliseconds kLateForACoveredBatch{500};
constexpr std::size_t kMaxForeignTopics = 8;
constexpr std::size_t kMaxTopicShown = 64;

}  // namespace

StreamMachine::StreamMachine(const StreamSpec& spec, const Limits& limits, StreamLedger& ledger,
                             Actions& actions, const StreamMetrics& metrics, std::uint64_t seed)
    : spec_(spec),
      limits_(limits),
      ledger_(ledger),
      actions_(actions),
      metrics_(metrics),
      decoder_options_(DecoderOptionsFor(spec)),
      random_(seed),
      connect_backoff_(kFirstBackoff, kConnectBackoffCap),
      backoff_(kFirstBackoff, kBackoffCap),
      snapshot_(spec, limits, metrics),
      log_(limits.max_buffered_bytes) {}

void StreamMachine::Start(SteadyTime now) {
  phase_ = Phase::kConnecting;
  connecting_since_ = unsynchronized_since_ = now;
  connect_deadline_ = now + kConnectLimit;
  SetObstacle(StrCat("connecting to ", spec_.endpoint));
  actions_.OpenSubscription();
}

// --- the connection

void StreamMachine::OnSubscribed(SteadyTime now) {
  if (phase_ != Phase::kConnecting) return;
  phase_ = Phase::kWaiting;
  connect_backoff_.Reset();
  last_seen_.reset();
  snapshot_floor_ = 0;
  renewed_ = inherited_floor_ != 0;
  refused_next_.reset();
  topic_seen_ = snapshot_seen_ = false;
  silent_moves_ = 0;
  foreign_topics_.clear();
  SetObstacle(StrCat("connected to ", spec_.endpoint, ", no snapshot from ", spec_.replay_endpoint,
                     " yet"));
  TryRecovery(now);
}

void StreamMachine::OnSubscriptionInterrupted(SteadyTime now) {
  if (phase_ < Phase::kWaiting) return;
  metrics_.disconnects.Increment();
  Fault(StrCat("the connection to ", spec_.endpoint, " broke"), now);
  inherited_floor_ = 0;
  phase_ = Phase::kBroken;
}

void StreamMachine::OnSubscriptionLost(LossCause cause, SteadyTime now) {
  if (phase_ == Phase::kIdle || phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kConnecting) {
    inherited_floor_ = 0;
    ConnectFailed(cause, now);
    return;
  }
  OnSubscriptionInterrupted(now);
  if (cause == LossCause::kOversize) {
    metrics_.message_limits.Increment();
    ExplainBreak(TooLargeToMeasure("message", spec_.endpoint, limits_));
  }
  RenewConnection(now);
}

void StreamMachine::ConnectFailed(LossCause cause, SteadyTime now) {
  phase_ = Phase::kClosed;
  reopen_at_ = now + connect_backoff_.Next(random_);
  if (cause == LossCause::kRefused) {
    SetObstacle(StrCat("what answers at ", spec_.endpoint,
                       " is no event publisher; check that it is not the snapshot endpoint"));
  } else {
    const auto seconds = base::MillisBetween(connecting_since_, now) / 1000;
    SetObstacle(StrCat("no publisher answered at ", spec_.endpoint,
                       seconds > 0 ? StrCat(" for ", seconds, " s") : std::string(),
                       "; check the engine's event port"));
  }
  if (!std::exchange(unreachable_logged_, true)) actions_.StateChanged(false, obstacle_);
  actions_.CloseSubscription();
}

void StreamMachine::RenewConnection(SteadyTime now) {
  phase_ = Phase::kClosed;
  reopen_at_ = attempt_at_;
  connecting_since_ = now;
  unreachable_logged_ = false;
  actions_.CloseSubscription();
}

void StreamMachine::ExplainBreak(std::string reason) {
  // The break was the latest fault; its explanation takes its place.
  (obstacle_.empty() ? first_fault_ : obstacle_) = std::move(reason);
  ShowReason();
  actions_.StateChanged(false, obstacle_.empty() ? first_fault_ : obstacle_);
}

// --- live batches

void StreamMachine::OnLive(Message message, SteadyTime now) {
  if (phase_ < Phase::kWaiting) return;
  const LiveFrames live = ParseLive(message, spec_.topic);
  if (live.kind == LiveFrames::Kind::kForeign) {
    NoteForeignTopic(live.topic);
    return;
  }
  topic_seen_ = true;
  silent_moves_ = 0;
  const std::size_t bytes = TotalBytes(message);
  metrics_.batches.Increment();
  metrics_.bytes.Increment(bytes);
  if (live.kind == LiveFrames::Kind::kBad) {
    metrics_.frame_errors.Increment();
    Fault(live.error, now);
    return;
  }
  OnLiveBatch(live, bytes, now);
}

void StreamMachine::OnLiveBatch(const LiveFrames& live, std::size_t bytes, SteadyTime now) {
  if (const std::uint64_t floor = LiveFloor(); live.sequence < floor) {
    PublisherWentBack(
        StrCat("the publisher went back from sequence ", floor - 1, " to ", live.sequence), now);
    last_seen_ = live.sequence;
    return;
  }
  last_seen_ = live.sequence;
  if (phase_ == Phase::kMuted) {
    // The subscription works after all. What this batch says, the snapshot to come says too.
    phase_ = Phase::kWaiting;
    TryRecovery(now);
  } else if (phase_ == Phase::kSynchronized) {
    WhileSynchronized(live, bytes, now);
  } else {
    WhileUnsynchronized(live, bytes, now);
  }
}

void StreamMachine::WhileSynchronized(const LiveFrames& live, std::size_t bytes, SteadyTime now) {
  const bool zero = zero_may_come_ && live.sequence == 0;
  if (live.sequence < next_ && !zero) {
    // The snapshot covered it. Long after the snapshot it may as well be another life's first.
    if (reconcile_at_ - now > kLateForACoveredBatch) AskForSnapshot(now);
    return;
  }
  if (const std::string error = ReadBatch(live.payload, bytes); !error.empty()) {
    Fault(error, now);
    return;
  }
  if (live.sequence <= next_) {
    ApplyLive(live.sequence, bytes, now);
    return;
  }
  metrics_.gaps.Increment();
  if (batch_.BeginsWithFullClear() && snapshot_seen_) {
    ApplyFullBatch(live.sequence, now);
    return;
  }
  Fault(live.sequence - next_ == 1 ? StrCat("batch ", next_, " never came, ", live.sequence, " did")
                                   : StrCat("batches ", next_, " to ", live.sequence - 1,
                                            " never came, ", live.sequence, " did"),
        now);
}

void StreamMachine::ApplyLive(std::uint64_t sequence, std::size_t bytes, SteadyTime now) {
  const ApplyOutcome outcome = ApplyBatch(batch_, ledger_, StreamLedger::Orphans::kRefuse);
  CountApplied(outcome);
  if (!outcome.ok()) {
    Fault(StrCat(outcome.error, ", in batch ", sequence), now);
    return;
  }
  next_ = sequence + 1;
  zero_may_come_ = false;
  live_at_ = now;
  ledger_.Advance({sequence});
  if (outcome.unknown_stores > 0) {
    // The engine holds blocks that we cannot name. A snapshot names them.
    AskForSnapshot(now);
  }
  if (stage_ != Stage::kRunning && !holding_) return;
  if (!log_.Add(sequence, batch_, bytes)) {
    metrics_.buffer_limits.Increment();
    EndReconciliation(ExchangeOutcome::kLimit, now);
  } else if (holding_ && snapshot_.next() <= next_) {
    JudgeSnapshot(now);
  }
}

void StreamMachine::ApplyFullBatch(std::uint64_t sequence, SteadyTime now) {
  if (phase_ == Phase::kSynchronized) {
    ledger_.Unsynchronize(StrCat("batches ", next_, " to ", sequence - 1, " never came"));
    unsynchronized_since_ = now;
  }
  DropExchange(ExchangeOutcome::kAbandoned);
  ledger_.ClearAll();
  const ApplyOutcome outcome = ApplyBatch(batch_, ledger_, StreamLedger::Orphans::kRefuse);
  CountApplied(outcome);
  if (!outcome.ok()) {
    Fault(StrCat(outcome.error, ", in batch ", sequence), now);
    return;
  }
  next_ = sequence + 1;
  zero_may_come_ = false;
  live_at_ = now;
  BecomeSynchronized(now, ExchangeOutcome::kFullBatch);
}

void StreamMachine::WhileUnsynchronized(const LiveFrames& live, std::size_t bytes, SteadyTime now) {
  const bool buffering = stage_ == Stage::kRunning;
  // Before the request there is nothing to keep: the snapshot will be younger than this batch.
  if (!buffering && !snapshot_seen_) return;
  const std::string error = ReadBatch(live.payload, bytes);
  // What a snapshot covered says less than the snapshot did, however full it is.
  const bool news = live.sequence >= snapshot_floor_;
  if (error.empty() && snapshot_seen_ && news && batch_.BeginsWithFullClear()) {
    ApplyFullBatch(live.sequence, now);
    return;
  }
  if (!buffering) return;
  const bool kept = error.empty() ? log_.Add(live.sequence, batch_, bytes)
                                  : log_.AddDamaged(live.sequence, error);
  if (kept) return;
  metrics_.buffer_limits.Increment();
  ExchangeFailed(
      ExchangeOutcome::kLimit,
      StrCat("what was published while a snapshot was on its way is over "
             "max_buffered_bytes ",
             limits_.max_buffered_bytes, "; raise it to at least ", 2 * limits_.max_buffered_bytes),
      now);
}

std::string StreamMachine::ReadBatch(Frame payload, std::size_t bytes) {
  if (bytes > limits_.max_message_bytes) {
    metrics_.message_limits.Increment();
    return TooLarge("batch", bytes, limits_);
  }
  const kv_events::DecodeOutcome outcome =
      kv_events::DecodeBatch(payload, decoder_options_, batch_);
  if (outcome.ok()) return "";
  metrics_.parse_errors[static_cast<std::size_t>(outcome.code)].Increment();
  return CannotBeRead(StrCat("batch ", *last_seen_), outcome, decoder_options_, payload.size(),
                      spec_.endpoint);
}

// --- the exchange

void StreamMachine::OnExchangeConnected() {
  if (stage_ == Stage::kConnecting) stage_ = Stage::kQueued;
}

void StreamMachine::OnExchangeStarted(SteadyTime now) {
  if (stage_ != Stage::kConnecting && stage_ != Stage::kQueued) return;
  stage_ = Stage::kRunning;
  exchange_deadline_ = now + limits_.replay_timeout;
  floor_at_request_ = Floor();
  snapshot_.Reset();
  log_.Clear();
}

void StreamMachine::OnExchangeLost(LossCause cause, SteadyTime now) {
  if (stage_ == Stage::kNone) return;
  switch (cause) {
    case LossCause::kUnreachable:
      ExchangeFailed(ExchangeOutcome::kUnreachable,
                     StrCat("connected to ", spec_.endpoint, ", but nobody answers at ",
                            spec_.replay_endpoint, "; check the engine's replay port"),
                     now);
      return;
    case LossCause::kRefused:
      ExchangeFailed(ExchangeOutcome::kUnreachable,
                     StrCat("what answers at ", spec_.replay_endpoint,
                            " hands out no snapshots; check that it is not the event endpoint"),
                     now);
      return;
    case LossCause::kClosed:
      ExchangeFailed(ExchangeOutcome::kDamaged,
                     StrCat("the connection to ", spec_.replay_endpoint,
                            " broke before the snapshot was whole"),
                     now);
      return;
    case LossCause::kOversize:
      metrics_.message_limits.Increment();
      ExchangeFailed(ExchangeOutcome::kLimit,
                     TooLargeToMeasure("snapshot", spec_.replay_endpoint, limits_), now);
      return;
  }
}

void StreamMachine::OnReply(Message message, SteadyTime now) {
  if (stage_ != Stage::kRunning) return;
  switch (snapshot_.Add(message)) {
    case SnapshotReader::State::kMore:
      return;
    case SnapshotReader::State::kBad: {
      const std::string error = snapshot_.error();
      ExchangeFailed(snapshot_.outcome(), error, now);
      return;
    }
    case SnapshotReader::State::kWhole:
      EndExchange();
      if (phase_ == Phase::kSynchronized) {
        FinishReconciliation(now);
      } else {
        FinishRecovery(now);
      }
      return;
  }
}

void StreamMachine::EndExchange() {
  stage_ = Stage::kNone;
  last_exchange_timed_out_ = false;
  actions_.CloseExchange();
}

// --- faults

void StreamMachine::CountApplied(const ApplyOutcome& outcome) {
  switch (outcome.code) {
    case ApplyOutcome::Code::kApplied:
      break;
    case ApplyOutcome::Code::kUnknownParent:
      metrics_.unknown_parents.Increment();
      break;
    case ApplyOutcome::Code::kConflict:
      metrics_.conflicts.Increment();
      break;
    case ApplyOutcome::Code::kOverLimit:
      metrics_.block_limits.Increment();
      break;
    case ApplyOutcome::Code::kUnknownClear:
      metrics_.unknown_clears.Increment();
      break;
  }
  if (outcome.unknown_stores > 0) metrics_.unknown_stores.Increment(outcome.unknown_stores);
  if (outcome.unknown_removals > 0) metrics_.unknown_removals.Increment(outcome.unknown_removals);
  for (std::size_t i = 0; i < outcome.ignored.size(); ++i) {
    if (outcome.ignored[i] > 0) metrics_.ignored[i].Increment(outcome.ignored[i]);
  }
}

void StreamMachine::ExchangeFailed(ExchangeOutcome outcome, const std::string& error,
                                   SteadyTime now) {
  last_exchange_timed_out_ = outcome == ExchangeOutcome::kTimeout;
  if (phase_ == Phase::kSynchronized) {
    EndReconciliation(outcome, now);  // nothing is known that was not known before
    return;
  }
  DropExchange(outcome);
  Fault(error, now);
}

void StreamMachine::PublisherWentBack(const std::string& error, SteadyTime now) {
  metrics_.restarts.Increment();
  Fault(StrCat(error, "; it must have been restarted"), now);
  BeginAnew();
}

void StreamMachine::BeginAnew() {
  // A new life: nothing of the old one counts as seen.
  last_seen_.reset();
  snapshot_floor_ = inherited_floor_ = 0;
  snapshot_seen_ = false;
  proven_at_ = live_at_ = {};
  ledger_.ForgetSequence();
}

std::uint64_t StreamMachine::LiveFloor() const {
  return std::max(inherited_floor_, last_seen_ ? *last_seen_ + 1 : 0);
}

std::uint64_t StreamMachine::Floor() const { return std::max(snapshot_floor_, LiveFloor()); }

std::string StreamMachine::DescribeStale() const {
  return StrCat("the snapshot ends at ", SequenceBefore(snapshot_.next()), ", but batch ",
                SequenceBefore(floor_at_request_),
                " was known before it was asked for; asked again on a new connection. If this "
                "stays, the engine's snapshots lag behind its events");
}

void StreamMachine::Fault(const std::string& error, SteadyTime now) {
  const bool was_synchronized = phase_ == Phase::kSynchronized;
  if (first_fault_.empty()) {
    first_fault_ = error;
    obstacle_.clear();
  } else {
    obstacle_ = error;
  }
  ShowReason();
  if (was_synchronized) unsynchronized_since_ = now;
  DropExchange(ExchangeOutcome::kAbandoned);
  ledger_.ClearAll();
  phase_ = Phase::kWaiting;
  attempt_at_ = retrying_ ? now + backoff_.Next(random_) : now;
  if (was_synchronized || obstacle_.empty()) actions_.StateChanged(false, error);
}

void StreamMachine::CountExchange(ExchangeOutcome outcome) {
  const auto& counters =
      phase_ == Phase::kSynchronized ? metrics_.reconciliations : metrics_.recoveries;
  counters[static_cast<std::size_t>(outcome)].Increment();
}

void StreamMachine::DropExchange(ExchangeOutcome outcome) {
  if (stage_ != Stage::kNone || holding_) CountExchange(outcome);
  if (stage_ != Stage::kNone) actions_.CloseExchange();
  stage_ = Stage::kNone;
  holding_ = false;
  snapshot_.Reset();
  log_.Clear();
}

void StreamMachine::SetObstacle(std::string text) {
  obstacle_ = std::move(text);
  ShowReason();
}

void StreamMachine::ShowReason() {
  if (first_fault_.empty()) {
    ledger_.Unsynchronize(obstacle_);
  } else if (obstacle_.empty() || obstacle_ == first_fault_) {
    ledger_.Unsynchronize(first_fault_);
  } else {
    ledger_.Unsynchronize(StrCat(first_fault_, "; now: ", obstacle_));
  }
}

std::string StreamMachine::Printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kMaxTopicShown)) {
    const auto byte = static_cast<unsigned char>(c);
    out.push_back(byte >= 0x20 && byte < 0x7f ? c : '?');
  }
  return out;
}

void StreamMachine::NoteForeignTopic(std::string_view topic) {
  metrics_.foreign_topics.Increment();
  const std::string name = Printable(topic);
  if (const auto known = foreign_topics_.find(name); known != foreign_topics_.end()) {
    ++known->second;
  } else if (foreign_topics_.size() < kMaxForeignTopics) {
    foreign_topics_.emplace(name, 1);
  }
}

// --- time

void StreamMachine::OnTick(SteadyTime now) {
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kBroken:
    case Phase::kMuted:
      return;
    case Phase::kClosed:
      if (now < reopen_at_) return;
      phase_ = Phase::kConnecting;
      connect_deadline_ = now + kConnectLimit;
      actions_.OpenSubscription();
      return;
    case Phase::kConnecting:
      if (now >= connect_deadline_) ConnectFailed(LossCause::kUnreachable, now);
      return;
    case Phase::kWaiting:
      TryRecovery(now);
      return;
    case Phase::kSynchronized:
      if (retrying_ && now - synchronized_at_ >= kSynchronyThatForgives) {
        retrying_ = false;
        backoff_.Reset();
      }
      if (holding_) {
        if (now >= hold_until_) ApplyLostTail(now);
        return;
      }
      if (stage_ == Stage::kNone) {
        if (now >= reconcile_at_) StartReconciliation(now);
        return;
      }
      [[fallthrough]];
    case Phase::kRecovering:
      if (stage_ == Stage::kQueued || now < exchange_deadline_) return;
      if (stage_ == Stage::kConnecting) {
        OnExchangeLost(LossCause::kUnreachable, now);
      } else {
        ExchangeFailed(ExchangeOutcome::kTimeout,
                       StrCat("no whole snapshot came from ", spec_.replay_endpoint,
                              " within replay_timeout_ms ", limits_.replay_timeout.count(),
                              "; raise it if the engine needs longer to make one"),
                       now);
      }
      return;
  }
}

SteadyTime StreamMachine::NextTick() const {
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kBroken:
    case Phase::kMuted:
      return SteadyTime::max();
    case Phase::kClosed:
      return reopen_at_;
    case Phase::kConnecting:
      return connect_deadline_;
    case Phase::kWaiting:
      return attempt_at_;
    case Phase::kRecovering:
      return stage_ == Stage::kQueued ? SteadyTime::max() : exchange_deadline_;
    case Phase::kSynchronized:
      break;
  }
  SteadyTime next = retrying_ ? synchronized_at_ + kSynchronyThatForgives : SteadyTime::max();
  if (holding_) return std::min(next, hold_until_);
  if (stage_ == Stage::kNone) return std::min(next, reconcile_at_);
  return stage_ == Stage::kQueued ? next : std::min(next, exchange_deadline_);
}

}  // namespace xms::kv_directory
