// StreamMachine: one stream's way from nothing to synchronized and back, as often as it takes.
//
// Place       Between a stream's sockets (streams/) and its ledger (kv_index). No socket, clock or
//             thread of its own: time comes with every input, randomness from a seed.
// Threads     Externally synchronised: the stream's thread. Never call back into it from Actions.
// Ownership   Borrows ledger, actions and metrics.
// Invariants  M1  The ledger is synchronized only while everything up to next − 1 has been applied,
//                 from a snapshot of this connection (or a full live batch after one, D5) onwards.
//             M2  Any doubt unsynchronizes within the input that raised it, before anything else.
//             M3  What a snapshot or batch says is applied only after all of it was read (B3).
//             M4  Live batches are kept within max_buffered_bytes, wire and decoded; a snapshot within
//                 max_message_bytes of wire and 4,096 parts, decoded at most eight times that.
//             M5  Retries are paced: 50 ms doubling to 5 s, reset by 30 s of synchrony (D3, D4).
// Failure     Every fault ends in "unsynchronized, trying again" with the reason in the ledger's
//             error; the reason named first stays, what stands in the way now follows it (D3).
// Source      Requirements D2 to D10; docs and design call this "a stream's life".
// Proof       docs/correctness.md: KVDirectoryExplorer* (every order of faults to a depth),
//             KVDirectoryHistory* (random ones), KVDirectoryMutants*; KVDirectoryMachine*, and
//             KVDirectory* over real sockets.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "kv_directory/config.h"
#include "kv_directory/recovery/backoff.h"
#include "kv_directory/recovery/batch_log.h"
#include "kv_directory/recovery/frames.h"
#include "kv_directory/recovery/snapshot_reader.h"
#include "kv_directory/recovery/stream_metrics.h"
#include "kv_events/decoder.h"
#include "kv_events/kv_batch.h"
#include "kv_index/stream_ledger.h"

namespace xms::kv_directory {

// Why a connection or a snapshot exchange came to nothing, as far as the sockets can tell.
enum class LossCause : std::uint8_t {
  kUnreachable,  // refused, reset before the handshake, or no such host
  kRefused,      // somebody answered who does not speak this protocol here
  kClosed,       // an established connection broke
  kOversize,     // an established connection ended by a message over the socket's limit, or garbage
};

struct MachineProbe;  // tests: a stream's state, for a memo of states

class StreamMachine {
 public:
  // What the machine asks of the sockets around it. Calls happen inside inputs and must not lead
  // back into the machine before the input returns.
  class Actions {
   public:
    // A fresh SUB on a fresh connection that will not be renewed by itself. OnSubscribed or
    // OnSubscriptionLost follows.
    virtual void OpenSubscription() = 0;
    virtual void CloseSubscription() = 0;
    // A fresh DEALER. OnExchangeConnected, then OnExchangeStarted once the request has been sent,
    // or OnExchangeLost.
    virtual void OpenExchange() = 0;
    virtual void CloseExchange() = 0;
    // One line for the log, on each change of state.
    virtual void StateChanged(bool synchronized, const std::string& line) = 0;

   protected:
    ~Actions() = default;
  };

  StreamMachine(const StreamSpec& spec, const Limits& limits, kv_index::StreamLedger& ledger,
                Actions& actions, const StreamMetrics& metrics, std::uint64_t seed);
  StreamMachine(const StreamMachine&) = delete;
  StreamMachine& operator=(const StreamMachine&) = delete;

  // The first input, once.
  void Start(base::SteadyTime now);

  void OnSubscribed(base::SteadyTime now);
  // The connection broke, the cause is still being found out: no credit from here.
  // OnSubscriptionLost follows.
  void OnSubscriptionInterrupted(base::SteadyTime now);
  void OnSubscriptionLost(LossCause cause, base::SteadyTime now);
  void OnLive(Message message, base::SteadyTime now);

  void OnExchangeConnected();
  void OnExchangeStarted(base::SteadyTime now);
  void OnExchangeLost(LossCause cause, base::SteadyTime now);
  void OnReply(Message message, base::SteadyTime now);

  void OnTick(base::SteadyTime now);
  // When OnTick has something to do next.
  base::SteadyTime NextTick() const;

  bool synchronized() const { return phase_ == Phase::kSynchronized; }
  // While synchronized: when the proof for what is credited came, a snapshot that was applied or that
  // agreed, or a full live batch (D5, D7).
  base::SteadyTime proven_at() const { return proven_at_; }
  // When a live batch was last applied; the epoch: none in this life.
  base::SteadyTime live_at() const { return live_at_; }
  // A live message of the topic has come on this connection.
  bool topic_seen() const { return topic_seen_; }
  // The last exchange of this stream was asked and not answered; its next one gets a place among
  // its like, behind streams that may do better (D11).
  bool last_exchange_timed_out() const { return last_exchange_timed_out_; }

 private:
  friend struct MachineProbe;

  enum class Phase : std::uint8_t {
    kIdle,
    kBroken,  // the connection broke; waits to hear why
    kClosed,  // waits to open the subscription again
    kConnecting,
    kWaiting,     // subscribed; waits for the next attempt
    kMuted,       // subscribed to what seems to be the wrong thing; waits for a live batch (D7)
    kRecovering,  // an exchange is open
    kSynchronized,
  };
  enum class Stage : std::uint8_t { kNone, kConnecting, kQueued, kRunning };

  // --- inputs, continued
  void ConnectFailed(LossCause cause, base::SteadyTime now);
  void OnLiveBatch(const LiveFrames& live, std::size_t bytes, base::SteadyTime now);
  void WhileSynchronized(const LiveFrames& live, std::size_t bytes, base::SteadyTime now);
  void WhileUnsynchronized(const LiveFrames& live, std::size_t bytes, base::SteadyTime now);
  void ApplyLive(std::uint64_t sequence, std::size_t bytes, base::SteadyTime now);
  // `batch_` began with a full clear: the state is known again, whatever it was.
  void ApplyFullBatch(std::uint64_t sequence, base::SteadyTime now);
  // Decodes into batch_. Not "" : why it cannot be used; counted.
  std::string ReadBatch(Frame payload, std::size_t bytes);

  // --- recovery
  void TryRecovery(base::SteadyTime now);
  void EndExchange();  // its snapshot is whole
  void FinishRecovery(base::SteadyTime now);
  // "" when the buffered batches continue the snapshot without a gap or damage.
  std::string CheckBuffer(std::uint64_t next, ExchangeOutcome& outcome) const;
  // A snapshot up to `next` says what this batch says. An empty one at watermark 0 may not: perhaps
  // nothing had been published yet, and batch 0 is news (4.3).
  bool Covered(const BatchLog::Entry& entry, std::uint64_t next) const;
  // Snapshot and log into the cleared ledger. `log_orphans`: what a parent means that neither has
  // named. False: `error` and `outcome` say why.
  bool ApplySnapshot(kv_index::StreamLedger::Orphans log_orphans, std::string& error,
                     ExchangeOutcome& outcome);
  void BecomeSynchronized(base::SteadyTime now, ExchangeOutcome how);
  void PublishLedger();
  // A live sequence below this is another life's: this one has published further, as far as live
  // batches and inherited_floor_ say. What a snapshot said does not count: a batch that it covers
  // may come late.
  std::uint64_t LiveFloor() const;
  // The lowest next sequence that a snapshot asked for now may have: a process does not forget what
  // it has published, and another one cannot be on this connection (D2, D6).
  std::uint64_t Floor() const;
  // The snapshot that came is below it: a doubt, and not applied.
  void SnapshotIsStale(base::SteadyTime now);
  // For seconds, a connection that we renewed for that reason has brought nothing, and every answer is
  // the same: neither wire can carry anything late, so the publisher has begun anew.
  bool IsAnotherLife(base::SteadyTime now) const;
  // Forgets what was known of the life before.
  void BeginAnew();
  // Ends the connection to open another, on which nothing comes late and so a live sequence says
  // which life it is of.
  void RenewConnection(base::SteadyTime now);
  // A reconciliation soon, though not more often than one in resync_interval_ms (C2).
  void AskForSnapshot(base::SteadyTime now);
  std::string DescribeStale() const;

  // --- reconciliation
  void StartReconciliation(base::SteadyTime now);
  void FinishReconciliation(base::SteadyTime now);
  void JudgeSnapshot(base::SteadyTime now);  // the ledger is at the watermark or beyond
  void ApplyLostTail(base::SteadyTime now);  // the ledger stayed behind it
  void Rebuild(ExchangeOutcome why, base::SteadyTime now);
  void EndReconciliation(ExchangeOutcome outcome, base::SteadyTime now);
  base::Duration ReconciliationInterval();
  std::string DescribeSilence() const;

  // --- faults
  void CountApplied(const ApplyOutcome& outcome);
  void ExchangeFailed(ExchangeOutcome outcome, const std::string& error, base::SteadyTime now);
  void PublisherWentBack(const std::string& error, base::SteadyTime now);
  // Unsynchronizes, forgets, and schedules the next attempt.
  void Fault(const std::string& error, base::SteadyTime now);
  void DropExchange(ExchangeOutcome outcome);
  void CountExchange(ExchangeOutcome outcome);
  void ExplainBreak(std::string reason);
  // What stands in the way now, beside the fault that was named first.
  void SetObstacle(std::string text);
  void ShowReason();
  void NoteForeignTopic(std::string_view topic);
  static std::string Printable(std::string_view topic);

  // --- constant
  const StreamSpec& spec_;
  const Limits& limits_;
  kv_index::StreamLedger& ledger_;
  Actions& actions_;
  const StreamMetrics& metrics_;
  const kv_events::DecoderOptions decoder_options_;

  Backoff::Random random_;
  Phase phase_ = Phase::kIdle;

  // --- the connection
  base::SteadyTime connecting_since_{};  // first attempt since the last connection
  bool unreachable_logged_ = false;      // since then
  base::SteadyTime connect_deadline_{};
  base::SteadyTime reopen_at_{};
  Backoff connect_backoff_;
  std::optional<std::uint64_t> last_seen_;  // live, on this connection and in this life
  bool topic_seen_ = false;                 // on this connection
  bool snapshot_seen_ = false;  // applied on this connection and in this life: D5's condition
  std::map<std::string, std::uint64_t> foreign_topics_;

  // What believed snapshots of this connection and life reach up to, as a next sequence.
  std::uint64_t snapshot_floor_ = 0;
  // What was known before a stale snapshot made us renew the connection. The process may be the same,
  // so a break that we made ourselves forgets nothing; one made by the peer does.
  std::uint64_t inherited_floor_ = 0;
  bool renewed_ = false;  // for that reason, and not synchronized since
  // Of the stale snapshots on the renewed connection, and since when they have agreed.
  std::optional<std::uint64_t> refused_next_;
  base::SteadyTime refused_since_{};

  // --- what has been applied
  std::uint64_t next_ = 0;      // the sequence to be applied next
  bool zero_may_come_ = false;  // the snapshot was empty at watermark 0: live 0 is news (4.3)

  // --- attempts
  Backoff backoff_;
  bool retrying_ = false;  // some attempt was made since the last 30 s of synchrony
  base::SteadyTime attempt_at_{};
  base::SteadyTime unsynchronized_since_{};
  base::SteadyTime synchronized_at_{};
  base::SteadyTime proven_at_{};
  base::SteadyTime live_at_{};
  std::string first_fault_;  // since the last synchrony; "" before any
  std::string obstacle_;

  // --- the exchange
  Stage stage_ = Stage::kNone;
  base::SteadyTime exchange_deadline_{};
  bool last_exchange_timed_out_ = false;
  SnapshotReader snapshot_;
  std::uint64_t floor_at_request_ = 0;
  // Recovery: what came since the request. Reconciliation: what was applied since.
  BatchLog log_;

  // --- reconciliation
  base::SteadyTime reconcile_at_{};
  bool holding_ = false;  // the snapshot is ahead; what is on its way may still arrive
  base::SteadyTime hold_until_{};
  base::SteadyTime last_hint_{};  // a tokenless unknown last asked for a snapshot (C2)
  bool hinted_ = false;
  int silent_moves_ = 0;  // reconciliations in a row that were ahead while no live batch ever came
  std::uint64_t silent_from_ = 0;  // next_ before the first of them

  kv_events::KvBatch batch_;  // scratch, reused
};

}  // namespace xms::kv_directory
