// StreamMachine, the half that uses snapshots: recovery (D2, D3) and reconciliation (D7).
#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "base/str_cat.h"
#include "kv_directory/recovery/apply.h"
#include "kv_directory/recovery/resident_set.h"
#include "kv_directory/recovery/stream_machine.h"

namespace xms::kv_directory {
namespace {

using base::Duration;
using base::SteadyTime;
using base::StrAppend;
using base::StrCat;
using kv_index::StreamLedger;
using std::chrono::milliseconds;

// A snapshot can overtake live batches on their own connection; this is how long they may take.
constexpr milliseconds kHold{100};
constexpr int kSilentMovesThatCondemn = 2;
// After the first of them the next look comes soon, so that a wrong topic has its name within a
// minute however long the interval is.
constexpr std::chrono::seconds kSecondLook{10};
// The second snapshot follows the first synchronization within this time.
constexpr milliseconds kSecondSnapshotFrom{200};
constexpr milliseconds kSecondSnapshotTo{500};

// How long a publisher that says nothing has to give the same old snapshot before it is taken for one
// that has begun anew: longer than snapshots that are made from time to time may lag behind.
constexpr std::chrono::seconds kQuietForSure{5};

std::size_t HashCount(const SnapshotReader& snapshot, const BatchLog& log) {
  std::size_t count = 0;
  for (const auto& part : snapshot.parts()) count += part.hashes.size();
  for (const auto& entry : log.entries()) count += entry.batch.hashes.size();
  return count;
}

}  // namespace

// --- recovery

void StreamMachine::TryRecovery(SteadyTime now) {
  if (phase_ != Phase::kWaiting || now < attempt_at_) return;
  phase_ = Phase::kRecovering;
  stage_ = Stage::kConnecting;
  retrying_ = true;
  exchange_deadline_ = now + limits_.replay_timeout;
  actions_.OpenExchange();
}

bool StreamMachine::Covered(const BatchLog::Entry& entry, std::uint64_t next) const {
  const bool news = entry.sequence == 0 && snapshot_.next() == 1 && snapshot_.IsEmpty();
  return entry.sequence < next && !news;
}

std::string StreamMachine::CheckBuffer(std::uint64_t next, ExchangeOutcome& outcome) const {
  for (const BatchLog::Entry& entry : log_.entries()) {
    if (Covered(entry, next)) continue;
    if (!entry.damage.empty()) {
      outcome = ExchangeOutcome::kDamaged;
      return entry.damage;
    }
    if (entry.sequence > next) {
      outcome = ExchangeOutcome::kGap;
      return StrCat("the snapshot ends at ", SequenceBefore(next),
                    " and the next batch that came is ", entry.sequence);
    }
    next = entry.sequence + 1;
  }
  return "";
}

void StreamMachine::SnapshotIsStale(SteadyTime now) {
  const std::uint64_t next = snapshot_.next();
  CountExchange(ExchangeOutcome::kBehind);
  Fault(DescribeStale(), now);
  // Perhaps it is another life after all; then a full batch of the old one may still be on its way.
  snapshot_seen_ = false;
  if (renewed_ && !last_seen_) {  // nothing is left to renew: asked again
    if (refused_next_ != next) refused_since_ = now;
    refused_next_ = next;
    return;
  }
  inherited_floor_ = Floor();
  RenewConnection(now);
}

bool StreamMachine::IsAnotherLife(SteadyTime now) const {
  return renewed_ && !last_seen_ && refused_next_ == snapshot_.next() &&
         now - refused_since_ >= kQuietForSure;
}

void StreamMachine::FinishRecovery(SteadyTime now) {
  const std::uint64_t next = snapshot_.next();
  if (next < floor_at_request_ && IsAnotherLife(now)) {
    metrics_.restarts.Increment();
    BeginAnew();
  } else if (next < floor_at_request_) {
    SnapshotIsStale(now);
    return;
  }
  ExchangeOutcome outcome = ExchangeOutcome::kDamaged;
  std::string error = CheckBuffer(next, outcome);
  if (error.empty()) {
    ledger_.ClearAll();
    if (ApplySnapshot(StreamLedger::Orphans::kRefuse, error, outcome)) {
      snapshot_.Reset();
      log_.Clear();
      BecomeSynchronized(now, ExchangeOutcome::kCompleted);
      return;
    }
  } else if (outcome == ExchangeOutcome::kGap) {
    metrics_.gaps.Increment();
  }
  CountExchange(outcome);
  Fault(error, now);
}

bool StreamMachine::ApplySnapshot(StreamLedger::Orphans log_orphans, std::string& error,
                                  ExchangeOutcome& outcome) {
  const auto apply = [&](const kv_events::KvBatch& batch, StreamLedger::Orphans orphans) {
    const ApplyOutcome applied = ApplyBatch(batch, ledger_, orphans);
    CountApplied(applied);
    if (applied.ok()) return true;
    outcome = applied.code == ApplyOutcome::Code::kOverLimit ? ExchangeOutcome::kLimit
                                                             : ExchangeOutcome::kDamaged;
    error = applied.error;
    return false;
  };
  for (const kv_events::KvBatch& part : snapshot_.parts()) {
    if (apply(part, StreamLedger::Orphans::kRemember)) continue;
    StrAppend(error, ", in the snapshot");
    return false;
  }
  next_ = snapshot_.next();
  // Empty at watermark 0 may mean that nothing has been published yet (4.3).
  zero_may_come_ = next_ == 1 && snapshot_.IsEmpty();
  snapshot_floor_ = std::max(snapshot_floor_, zero_may_come_ ? 0 : next_);
  // What a full batch (D5) undoes need not be applied, nor the parents in it be known.
  std::uint64_t first_needed = 0;
  for (const BatchLog::Entry& entry : log_.entries()) {
    if (entry.batch.BeginsWithFullClear()) first_needed = entry.sequence;
  }
  for (const BatchLog::Entry& entry : log_.entries()) {
    if (Covered(entry, next_)) continue;
    if (entry.sequence >= first_needed && !apply(entry.batch, log_orphans)) {
      StrAppend(error, ", in batch ", entry.sequence);
      return false;
    }
    next_ = entry.sequence + 1;
    zero_may_come_ = false;
  }
  return true;
}

void StreamMachine::BecomeSynchronized(SteadyTime now, ExchangeOutcome how) {
  PublishLedger();
  CountExchange(how);
  metrics_.recovery_seconds.Observe(
      std::chrono::duration<double>(now - unsynchronized_since_).count());
  phase_ = Phase::kSynchronized;
  renewed_ = false;
  synchronized_at_ = proven_at_ = now;
  first_fault_.clear();
  obstacle_.clear();
  if (!snapshot_seen_) {
    // The subscription may have taken effect after the snapshot was made (D7).
    snapshot_seen_ = true;
    reconcile_at_ = now + milliseconds(std::uniform_int_distribution<std::int64_t>(
                              kSecondSnapshotFrom.count(), kSecondSnapshotTo.count())(random_));
  } else {
    reconcile_at_ = now + ReconciliationInterval();
  }
  actions_.StateChanged(true, StrCat("synchronized at sequence ", SequenceBefore(next_), ", ",
                                     ledger_.mappings(), " blocks"));
}

void StreamMachine::PublishLedger() {
  ledger_.Synchronize({next_ == 0 ? 0 : next_ - 1});
  if (next_ == 0) ledger_.ForgetSequence();  // synchronized, but nothing has been published yet
}

// --- reconciliation

Duration StreamMachine::ReconciliationInterval() {
  // A little early, by chance, so that streams which started together drift apart (D11).
  const auto interval = limits_.resync_interval.count();
  return milliseconds(
      std::uniform_int_distribution<std::int64_t>(interval - interval / 10, interval)(random_));
}

void StreamMachine::AskForSnapshot(SteadyTime now) {
  const SteadyTime soonest = hinted_ ? last_hint_ + limits_.resync_interval : now;
  if (stage_ != Stage::kNone || holding_ || soonest >= reconcile_at_) return;
  reconcile_at_ = std::max(now, soonest);
  last_hint_ = reconcile_at_;
  hinted_ = true;
}

void StreamMachine::StartReconciliation(SteadyTime now) {
  stage_ = Stage::kConnecting;
  exchange_deadline_ = now + limits_.replay_timeout;
  actions_.OpenExchange();
}

void StreamMachine::FinishReconciliation(SteadyTime now) {
  const std::uint64_t next = snapshot_.next();
  if (next < floor_at_request_) {
    SnapshotIsStale(now);
  } else if (next > next_) {
    holding_ = true;
    hold_until_ = now + kHold;
  } else {
    JudgeSnapshot(now);
  }
}

void StreamMachine::JudgeSnapshot(SteadyTime now) {
  ResidentSet published(ledger_, HashCount(snapshot_, log_));
  for (const kv_events::KvBatch& part : snapshot_.parts()) published.ApplySnapshot(part);
  for (const BatchLog::Entry& entry : log_.entries()) {
    if (!Covered(entry, snapshot_.next())) published.ApplyLive(entry.batch);
  }
  silent_moves_ = 0;
  if (published.contradictory()) {
    EndReconciliation(ExchangeOutcome::kDamaged, now);
  } else if (published.EqualsLedger()) {
    proven_at_ = now;
    EndReconciliation(ExchangeOutcome::kCompleted, now);
  } else {
    Rebuild(ExchangeOutcome::kDifferent, now);
  }
}

void StreamMachine::ApplyLostTail(SteadyTime now) {
  if (!topic_seen_) {
    if (silent_moves_++ == 0) silent_from_ = next_;
    if (silent_moves_ >= kSilentMovesThatCondemn) {
      const std::string reason = DescribeSilence();
      metrics_.silent_subscriptions.Increment();
      EndReconciliation(ExchangeOutcome::kLostTail, now);
      Fault(reason, now);
      phase_ = Phase::kMuted;
      return;
    }
  }
  Rebuild(ExchangeOutcome::kLostTail, now);
  if (silent_moves_ > 0) reconcile_at_ = std::min(reconcile_at_, now + kSecondLook);
}

std::string StreamMachine::DescribeSilence() const {
  const auto shown = [](const std::string& topic) { return topic.empty() ? "\"\"" : topic; };
  std::string reason = StrCat("connected to ", spec_.endpoint, ", watermark moved ",
                              SequenceBefore(silent_from_), " → ", SequenceBefore(snapshot_.next()),
                              ", topic ", shown(Printable(spec_.topic)), " never seen");
  for (const auto& [topic, count] : foreign_topics_) {
    StrAppend(reason, ", ", shown(topic), " seen ", count, count == 1 ? " time" : " times");
  }
  StrAppend(reason, "; check topic and event port");
  return reason;
}

void StreamMachine::Rebuild(ExchangeOutcome why, SteadyTime now) {
  const std::string line = why == ExchangeOutcome::kLostTail
                               ? StrCat("a snapshot showed that batches ", next_, " to ",
                                        SequenceBefore(snapshot_.next()), " were lost; applied it")
                               : StrCat("a snapshot at ", SequenceBefore(snapshot_.next()),
                                        " differed from what had been applied; applied it");
  // Zero hits while it is rebuilt, then the whole of it under a new generation.
  ledger_.Unsynchronize(line);
  std::string error;
  ExchangeOutcome outcome = why;
  // At the same sequence, what hashes stand for stays known: blocks on their way from one tier to the
  // other are in no snapshot, and come back by their hash alone (C2). Lost batches may have said
  // something else of them. The log was applied once, so every parent in it has been named, if only
  // before the snapshot.
  if (why == ExchangeOutcome::kDifferent) {
    ledger_.ForgetResidency();
  } else {
    ledger_.ClearAll();
  }
  bool applied = ApplySnapshot(StreamLedger::Orphans::kRemember, error, outcome);
  if (!applied && why == ExchangeOutcome::kDifferent) {
    // Or the hashes stand for something else now.
    ledger_.ClearAll();
    applied = ApplySnapshot(StreamLedger::Orphans::kRemember, error, outcome);
  }
  if (!applied) {
    EndReconciliation(outcome, now);
    Fault(error, now);
    return;
  }
  PublishLedger();
  proven_at_ = now;
  EndReconciliation(why, now);
  actions_.StateChanged(true, line);
}

void StreamMachine::EndReconciliation(ExchangeOutcome outcome, SteadyTime now) {
  CountExchange(outcome);
  if (stage_ != Stage::kNone) actions_.CloseExchange();
  stage_ = Stage::kNone;
  holding_ = false;
  snapshot_.Reset();
  log_.Clear();
  reconcile_at_ = now + ReconciliationInterval();
}

}  // namespace xms::kv_directory
