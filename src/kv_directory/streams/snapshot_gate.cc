#include "kv_directory/streams/snapshot_gate.h"

#include <algorithm>
#include <utility>

namespace xms::kv_directory {

std::size_t SnapshotGate::granted() const {
  base::MutexLock lock(mu_);
  return granted_;
}

std::optional<base::SteadyTime> SnapshotGate::StartOf(const Ticket& ticket) const {
  base::MutexLock lock(mu_);
  if (ticket.state_ != Ticket::State::kGranted) return std::nullopt;
  return ticket.start_;
}

void SnapshotGate::Enter(Ticket& ticket, std::shared_ptr<Wakeup> wakeup, Ticket::Stream stream,
                         base::SteadyTime now) {
  Wakeups wakeups;
  {
    base::MutexLock lock(mu_);
    if (ticket.state_ != Ticket::State::kOut) return;
    latest_now_ = std::max(latest_now_, now);
    ticket.state_ = Ticket::State::kWaiting;
    ticket.stream_ = stream;
    ticket.wakeup_ = std::move(wakeup);
    waiting_.push_back(&ticket);
    wakeups = Grant();
  }
  for (const auto& one : wakeups) one->Signal();
}

void SnapshotGate::Leave(Ticket& ticket) {
  Wakeups wakeups;
  {
    base::MutexLock lock(mu_);
    switch (std::exchange(ticket.state_, Ticket::State::kOut)) {
      case Ticket::State::kOut:
        return;
      case Ticket::State::kWaiting:
        waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &ticket));
        break;
      case Ticket::State::kGranted:
        --granted_;
        if (ticket.stream_.slow) --granted_slow_;
        if (ticket.stream_.credited) --granted_credited_;
        break;
    }
    ticket.wakeup_.reset();
    wakeups = Grant();
  }
  for (const auto& one : wakeups) one->Signal();
}

SnapshotGate::Wakeups SnapshotGate::Grant() {
  Wakeups wakeups;
  while (granted_ < options_.at_once) {
    Ticket* const next = Choose();
    if (next == nullptr) break;
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), next));
    GrantOne(*next);
    wakeups.push_back(next->wakeup_);
  }
  return wakeups;
}

SnapshotGate::Ticket* SnapshotGate::Choose() const {
  const std::size_t most_slow = std::max<std::size_t>(1, options_.at_once / 2);
  // The last place is a credited stream's if none has any, so that proofs are renewed even while many
  // streams keep failing.
  const bool credited_first =
      options_.at_once > 1 && granted_ + 1 == options_.at_once && granted_credited_ == 0;
  Ticket* next = nullptr;
  for (Ticket* const ticket : waiting_) {
    if (ticket->stream_.slow && granted_slow_ >= most_slow) continue;
    if (ticket->stream_.credited == credited_first) return ticket;
    if (next == nullptr) next = ticket;
  }
  return next;
}

void SnapshotGate::GrantOne(Ticket& ticket) {
  ++granted_;
  if (ticket.stream_.slow) ++granted_slow_;
  if (ticket.stream_.credited) ++granted_credited_;
  ticket.state_ = Ticket::State::kGranted;
  ticket.start_ = std::max(latest_now_, next_start_);
  next_start_ =
      ticket.start_ + std::chrono::microseconds(std::uniform_int_distribution<std::int64_t>(
                          options_.spacing.count() / 2, 3 * options_.spacing.count() / 2)(random_));
}

}  // namespace xms::kv_directory
