// KvPublisher: one engine rank as the directory sees it, over real TCP, with its faults under
// control.
//
// Place       Tests of kv_directory and of whatever queries it. Speaks the wire protocol (XPUB
//             for live batches, ROUTER for snapshots) and shares only the event encoder with what
//             it tests.
// Threads     Every public function: any thread. Snapshots are answered on a thread of its own,
//             from the truth at the moment of the answer.
// Truth       What this engine holds (kv_truth.h). Every batch that is published (or lost on
//             purpose) changes it first, so `Expected` says what a directory that is up to date
//             must answer.
// Ports       Binds to port 0 unless told otherwise. Restart and Reconnect bind the same ports
//             again.
// Failure     What cannot happen in a healthy test environment (no port, no thread) aborts with a
//             message.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/ids.h"
#include "tests/support/kv_truth.h"

namespace xms::testing {

class KvPublisher {
 public:
  struct Options {
    std::string topic = "xllm-kv";
    std::int32_t dp_rank = 0;
    std::uint32_t block_size = 4;
    std::uint64_t first_sequence = 1;
    std::string host = "127.0.0.1";
    std::uint16_t event_port = 0;
    std::uint16_t replay_port = 0;
    int high_water_mark = 0;  // messages per subscriber before the publisher drops; 0: none
  };

  KvPublisher() : KvPublisher(Options{}) {}
  explicit KvPublisher(Options options);
  ~KvPublisher();
  KvPublisher(const KvPublisher&) = delete;
  KvPublisher& operator=(const KvPublisher&) = delete;

  // Empty when the given ports cannot be bound; everything else about failure is as above.
  static std::unique_ptr<KvPublisher> TryMake(Options options);

  std::string endpoint() const;
  std::string replay_endpoint() const;
  std::uint16_t event_port() const;
  std::uint16_t replay_port() const;

  // --- what an engine does; each returns the sequence used
  std::uint64_t Publish(const KvBatchBuilder& builder);
  KvBatchBuilder NewBatch() const;
  std::uint64_t Store(model::Tier tier, std::span<const std::uint32_t> prompt);
  std::uint64_t Remove(model::Tier tier, std::span<const std::uint32_t> prompt);
  std::uint64_t Heartbeat();  // an empty batch

  // --- faults of the live side
  // The next `batches` change the truth and take a number, but are never sent.
  void LoseNext(std::size_t batches);
  // Topic, next sequence and these bytes. The truth stays; a number is taken.
  std::uint64_t SendPayload(std::string_view payload);
  // Exactly these frames. Nothing else changes.
  void SendFrames(const Frames& frames);
  // The truth becomes empty and nothing is said.
  void ForgetSilently();
  // The next batch will have this number.
  void SetNextSequence(std::uint64_t sequence);
  // A new life on the same connections: empty, numbering from `first_sequence` of the options.
  void RestartInPlace();

  // --- faults of the process
  // A new process on the same ports: connections break, everything is empty, numbering begins
  // anew.
  void Restart();
  // The process goes away; the truth stays for Reconnect.
  void Disconnect();
  void Reconnect();

  // --- faults of the recovery side
  void HoldSnapshots();                    // requests wait …
  void ReleaseSnapshots();                 // … until now
  void SetAnswering(bool answering);       // false: requests are ignored
  void SetTerminating(bool terminating);   // false: the terminator is left out
  void SplitSnapshots(std::size_t parts);  // one event list over several replies of one watermark
  // These messages are the answer of the next `times` requests, each prefixed with nothing but
  // the identity.
  void AnswerWith(std::vector<Frames> messages, std::size_t times = SIZE_MAX);
  void AnswerProperly();
  // What a proper answer would be now.
  std::vector<Frames> ProperAnswer() const;

  // --- what happened
  std::size_t snapshot_requests() const;
  std::size_t subscriptions() const;                   // alive now
  bool WaitForSubscriptions(std::size_t count) const;  // false after 20 s
  bool WaitForSnapshotRequests(std::size_t count) const;
  std::uint64_t last_sequence() const;  // next − 1, so 2^64 − 1 before 0 was published
  std::size_t resident_blocks(model::Tier tier) const;

  Expectation Expected(std::span<const std::uint32_t> prompt) const;

 private:
  struct Impl;
  explicit KvPublisher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// An engine as discovery knows it: an HTTP port that nobody listens on, and per rank a publisher
// at http_port + event_offset + rank and http_port + replay_offset + rank.
struct DiscoveredEngine {
  std::uint16_t http_port = 0;
  std::vector<std::unique_ptr<KvPublisher>> ranks;
  std::string name() const { return "127.0.0.1:" + std::to_string(http_port); }
};
DiscoveredEngine MakeEngine(std::size_t ranks, std::uint32_t event_offset,
                            std::uint32_t replay_offset, KvPublisher::Options options = {});

}  // namespace xms::testing
