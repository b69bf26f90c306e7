// MachineRig: one StreamMachine with a real index, a publisher's truth and a clock that tests move.
//
// Threads     The test's.
// Wires       Nothing arrives by itself: tests deliver live batches and snapshot answers, or lose
//             them. `Run` lets time pass and the machine act on it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kv_directory/recovery/stream_machine.h"
#include "kv_index/kv_index.h"
#include "kv_index/stream_ledger.h"
#include "tests/support/kv_truth.h"

namespace xms::kv_directory {

class MachineRig : public StreamMachine::Actions {
 public:
  using Millis = std::chrono::milliseconds;

  struct Options {
    StreamSpec spec = DefaultSpec();
    Limits limits;
    std::uint64_t seed = 1;
    std::uint64_t first_sequence = 1;
  };
  static StreamSpec DefaultSpec() {
    return {.key = {{"engine:8000"}, {0}},
            .block_size = 4,
            .endpoint = "tcp://engine:18000",
            .replay_endpoint = "tcp://engine:38000",
            .topic = "xllm-kv"};
  }

  MachineRig() : MachineRig(Options{}) {}
  explicit MachineRig(Options options)
      : options_(std::move(options)),
        truth(options_.spec.block_size, options_.spec.key.rank.value),
        next_sequence(options_.first_sequence),
        index({.max_blocks_per_stream = options_.limits.max_blocks_per_stream}) {
    auto opened = index.OpenStream({.key = options_.spec.key,
                                    .hash_seed = options_.spec.hash_seed,
                                    .block_size = options_.spec.block_size},
                                   "new");
    EXPECT_TRUE(opened.ok());
    ledger = *std::move(opened);
    machine.emplace(options_.spec, options_.limits, *ledger, *this, metrics, options_.seed);
  }
  virtual ~MachineRig() = default;

  // --- the publisher
  // The truth changes, a number is taken; nothing is delivered.
  testing::Frames Publish(const testing::KvBatchBuilder& batch) {
    truth.Apply(batch.batch());
    return {options_.spec.topic, testing::BigEndian64(next_sequence++), testing::Encode(batch)};
  }
  testing::Frames PublishStore(const testing::Tokens& prompt,
                               model::Tier tier = model::Tier::kDevice) {
    return Publish(truth.NewBatch().Store(tier, prompt));
  }
  std::vector<testing::Frames> Answer(std::size_t parts = 1) const {
    return truth.SnapshotAnswer(next_sequence - 1, parts);
  }

  // --- the wires
  void Deliver(const testing::Frames& frames) { WithFrames(frames, &StreamMachine::OnLive); }
  void Reply(const testing::Frames& frames) { WithFrames(frames, &StreamMachine::OnReply); }
  void Reply(const std::vector<testing::Frames>& messages) {
    for (const testing::Frames& message : messages) Reply(message);
  }
  void Start() { machine->Start(now); }
  void Connect() { machine->OnSubscribed(now); }
  void Disconnect() { machine->OnSubscriptionLost(LossCause::kClosed, now); }
  // The exchange that the machine has opened is asked, now.
  void Ask() {
    ASSERT_TRUE(exchange_open);
    machine->OnExchangeConnected();
    machine->OnExchangeStarted(now);
  }
  void StartExchangeAndAnswer() {
    Ask();
    Reply(Answer());
  }
  // From nothing to synchronized with the truth as it is.
  void Synchronize() {
    Start();
    Connect();
    StartExchangeAndAnswer();
    ASSERT_TRUE(Status().synchronized) << Status().error;
  }
  // Lets time pass in steps of a millisecond.
  void Run(Millis time) {
    for (; time.count() > 0; time -= Millis(1)) {
      now += Millis(1);
      if (now >= machine->NextTick()) machine->OnTick(now);
    }
  }
  // Until the machine asks for something, at most `limit`.
  bool RunUntilExchange(Millis limit) {
    for (; limit.count() > 0 && !exchange_open; limit -= Millis(1)) Run(Millis(1));
    return exchange_open;
  }
  bool RunUntilSubscribing(Millis limit) {
    for (; limit.count() > 0 && !subscription_open; limit -= Millis(1)) Run(Millis(1));
    return subscription_open;
  }

  // --- what readers see
  kv_index::StreamStatus Status() const { return index.Streams().at(0); }
  testing::Expectation Hits(const testing::Tokens& prompt) const {
    kv_index::MatchResult result;
    index.Match(prompt, result);
    testing::Expectation hits;
    for (std::size_t i = 0; i < result.slot_count; ++i) {
      hits.device_tokens += result.slots[i].device_hit_tokens;
      hits.host_only_tokens += result.slots[i].host_only_hit_tokens;
    }
    return hits;
  }

  // --- StreamMachine::Actions
  void OpenSubscription() override {
    EXPECT_FALSE(subscription_open);
    subscription_open = true;
    ++subscriptions;
  }
  void CloseSubscription() override { subscription_open = false; }
  void OpenExchange() override {
    EXPECT_FALSE(exchange_open);
    exchange_open = true;
    ++exchanges;
  }
  void CloseExchange() override {
    EXPECT_TRUE(exchange_open);
    exchange_open = false;
  }
  void StateChanged(bool synchronized, const std::string& line) override {
    changes.emplace_back(synchronized, line);
  }

 private:
  Options options_;

 public:
  testing::KvTruth truth;
  std::uint64_t next_sequence;
  kv_index::KvIndex index;
  std::unique_ptr<kv_index::StreamLedger> ledger;
  StreamMetrics metrics;
  std::optional<StreamMachine> machine;
  base::SteadyTime now{std::chrono::hours(1)};
  bool subscription_open = false;
  bool exchange_open = false;
  int subscriptions = 0;
  int exchanges = 0;
  std::vector<std::pair<bool, std::string>> changes;

 private:
  void WithFrames(const testing::Frames& frames,
                  void (StreamMachine::*input)(Message, base::SteadyTime)) {
    std::vector<Frame> parts;
    for (const std::string& frame : frames) parts.push_back(std::as_bytes(std::span(frame)));
    ((*machine).*input)(parts, now);
  }
};

}  // namespace xms::kv_directory
