// SnapshotGate: how many snapshots may be on their way at once, and how close together they start.
//
// Place       Shared by all streams of a directory (D11): a restart of the service asks its engines
//             one after the other instead of all in the same millisecond.
// Threads     Everything: any thread.
// Ownership   Borrows nothing; keeps a waiter's Wakeup until its turn has come or it leaves.
// Invariants  At most `at_once` tickets are granted, and at most half of those to streams whose last
//             exchange was not answered: endpoints that hang cannot starve those which answer.
//             Streams without credit go before those that only renew their proof, but for one place.
//             Within a class it is first come, first served.
// Failure     None. A ticket that is dropped gives its place back.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "kv_directory/streams/wakeup.h"

namespace xms::kv_directory {

class SnapshotGate {
 public:
  struct Options {
    std::size_t at_once = 8;                  // snapshots on their way, all streams together
    std::chrono::microseconds spacing{2000};  // between two starts, on average
  };

  // A place in the queue, then the right to ask. Movable by nobody: it lives where it was made.
  class Ticket {
   public:
    explicit Ticket(SnapshotGate& gate) : gate_(gate) {}
    ~Ticket() { Leave(); }
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;

    struct Stream {
      bool slow = false;      // its last exchange was not answered
      bool credited = false;  // it is synchronized, and asks for a reconciliation
    };
    // `wakeup` is signalled when the turn comes.
    void Enter(std::shared_ptr<Wakeup> wakeup, Stream stream, base::SteadyTime now) {
      gate_.Enter(*this, std::move(wakeup), stream, now);
    }
    // When to ask; nothing while others are before it.
    std::optional<base::SteadyTime> start() const { return gate_.StartOf(*this); }
    // The exchange is over, or will not be.
    void Leave() { gate_.Leave(*this); }

   private:
    friend class SnapshotGate;
    enum class State : std::uint8_t { kOut, kWaiting, kGranted };

    SnapshotGate& gate_;
    // Guarded by the gate's mutex.
    State state_ = State::kOut;
    Stream stream_;
    base::SteadyTime start_{};
    std::shared_ptr<Wakeup> wakeup_;
  };

  SnapshotGate(Options options, std::uint64_t seed) : options_(options), random_(seed) {}

  // Snapshots on their way now.
  std::size_t granted() const;

 private:
  using Wakeups = std::vector<std::shared_ptr<Wakeup>>;

  void Enter(Ticket& ticket, std::shared_ptr<Wakeup> wakeup, Ticket::Stream stream,
             base::SteadyTime now);
  void Leave(Ticket& ticket);
  std::optional<base::SteadyTime> StartOf(const Ticket& ticket) const;
  // Whoever can go now is granted; their wakeups are to be signalled without the lock.
  Wakeups Grant() XMS_REQUIRES(mu_);
  // Who is next; null when nobody may be.
  Ticket* Choose() const XMS_REQUIRES(mu_);
  void GrantOne(Ticket& ticket) XMS_REQUIRES(mu_);

  const Options options_;
  mutable base::Mutex mu_;
  std::mt19937_64 random_ XMS_GUARDED_BY(mu_);
  std::deque<Ticket*> waiting_ XMS_GUARDED_BY(mu_);
  std::size_t granted_ XMS_GUARDED_BY(mu_) = 0;
  std::size_t granted_slow_ XMS_GUARDED_BY(mu_) = 0;
  std::size_t granted_credited_ XMS_GUARDED_BY(mu_) = 0;
  base::SteadyTime next_start_ XMS_GUARDED_BY(mu_){};
  base::SteadyTime latest_now_ XMS_GUARDED_BY(mu_){};
};

}  // namespace xms::kv_directory
