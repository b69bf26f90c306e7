// StreamMachine: the exchange of a snapshot, its limits and its retries (D3, D8 to D10).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kv_directory/recovery/stream_machine.h"
#include "tests/unit/kv_directory/machine_rig.h"
#include "tests/unit/kv_directory/raw_batch.h"

namespace xms::kv_directory {
namespace {

using model::Tier;
using testing::BigEndian64;
using testing::Expectation;
using testing::Frames;
using ::testing::HasSubstr;
using testing::MakePrompt;
using testing::Tokens;
using Millis = std::chrono::milliseconds;
using Seconds = std::chrono::seconds;
using testing::raw::Batch;
using testing::raw::Map;
using testing::raw::Str;

class KVDirectoryMachineSnapshots : public ::testing::Test {
 protected:
  const Tokens prompt_ = MakePrompt(1, 8);
};

// --- snapshots: damage, time, size (D3, D8, D9, D10)

// B3
TEST_F(KVDirectoryMachineSnapshots, DamagedSnapshotsChangeNothingAndAreAskedForAgain) {
  MachineRig source;
  source.PublishStore(prompt_);
  const std::vector<Frames> good = source.Answer();
  const std::string payload = good[0][2];
  const Frames end = good[1];
  struct Case {
    std::vector<Frames> messages;
    std::string error;
  };
  const std::vector<Case> cases = {
      {{end}, "the snapshot ended before it began"},
      {{{"", BigEndian64(1), ""}}, "snapshot reply without content at watermark 1"},
      {{{"", BigEndian64(1), payload.substr(0, payload.size() - 1)}, end},
       "the payload of the snapshot cannot be read: truncated"},
      {{good[0], {"", BigEndian64(2), payload}, end},
       "disagree about their watermark: 1 and 2; the engine must answer a request with parts of "
       "one"},
      {{{"x", BigEndian64(1), payload}, end}, "begins with 1 bytes where an empty frame"},
      {{{"", BigEndian64(1).substr(4), payload}, end}, "snapshot watermark of 4 bytes"},
      {{{"", BigEndian64(1)}, end},
       "snapshot reply of 2 frames, 3 are expected; check what answers at tcp://engine:38000"},
      {{{"", "other", BigEndian64(1), payload}, end}, "names another topic"},
      {{{"", BigEndian64(1),
         Batch({Map({{"type", Str("AllBlocksCleared")}, {"medium", Str("ssd")}})})},
        end},
       "neither Device nor Host was cleared, or a part of one (known are gpu, device, npu, hbm, "
       "cpu, "
       "host, cpu_pinned, dram; the engine must name one of them or none), in the snapshot"},
  };
  for (const Case& c : cases) {
    MachineRig rig;
    rig.PublishStore(prompt_);
    rig.Start();
    rig.Connect();
    rig.Ask();
    rig.Reply(c.messages);
    EXPECT_FALSE(rig.Status().synchronized) << c.error;
    EXPECT_THAT(rig.Status().error, HasSubstr(c.error));
    EXPECT_FALSE(rig.exchange_open) << "late frames have no socket to come from";
    EXPECT_EQ(rig.ledger->mappings(), 0u);
    ASSERT_TRUE(rig.RunUntilExchange(Millis(101))) << c.error;
    rig.StartExchangeAndAnswer();
    EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
  }
}

// D9
TEST_F(KVDirectoryMachineSnapshots, SnapshotMayNameTheTopicAndComeInParts) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.Start();
  rig.Connect();
  rig.Ask();
  for (Frames message : rig.Answer(3)) {
    message.insert(message.begin() + 1, message[2].empty() ? "" : "xllm-kv");
    rig.Reply(message);
  }
  EXPECT_TRUE(rig.Status().synchronized) << rig.Status().error;
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

// D3
TEST_F(KVDirectoryMachineSnapshots, WholeExchangeHasToEndWithinTheTimeout) {
  MachineRig rig;
  rig.PublishStore(prompt_);
  rig.Start();
  rig.Connect();
  rig.machine->OnExchangeConnected();
  rig.Run(Seconds(10));
  EXPECT_TRUE(rig.exchange_open) << "waiting for its turn costs no time";
  rig.Ask();
  rig.Reply(rig.Answer()[0]);
  rig.Run(Millis(1999));
  EXPECT_TRUE(rig.exchange_open);
  rig.Run(Millis(1));
  EXPECT_FALSE(rig.exchange_open);
  EXPECT_FALSE(rig.Status().synchronized);
  EXPECT_EQ(rig.Hits(prompt_), Expectation());
  EXPECT_EQ(rig.Status().error,
            "no whole snapshot came from tcp://engine:38000 within replay_timeout_ms 2000; "
            "raise it if the engine needs longer to make one");
  rig.Reply(rig.Answer());
  EXPECT_FALSE(rig.Status().synchronized) << "too late";
}

// D3
TEST_F(KVDirectoryMachineSnapshots, RetriesBackOffFromFiftyMillisecondsToFiveSeconds) {
  MachineRig rig;
  rig.Start();
  rig.Connect();
  Millis longest{100};
  for (int attempt = 0; attempt < 12; ++attempt) {
    rig.Ask();
    rig.Reply(Frames{"", BigEndian64(UINT64_MAX), ""});
    ASSERT_FALSE(rig.exchange_open);
    const auto failed = rig.now;
    ASSERT_TRUE(rig.RunUntilExchange(Seconds(6)));
    const auto waited = std::chrono::duration_cast<Millis>(rig.now - failed);
    EXPECT_GE(waited.count(), longest.count() / 2) << "attempt " << attempt;
    EXPECT_LE(waited.count(), longest.count() + 1) << "attempt " << attempt;
    longest = std::min(Millis(5000), 2 * longest);
  }
}

// D4
TEST_F(KVDirectoryMachineSnapshots, OnlyThirtySecondsOfSynchronyForgiveEarlierFaults) {
  MachineRig rig;
  const auto fault = [&] {
    ++rig.next_sequence;
    rig.Deliver(rig.PublishStore(prompt_));
    ASSERT_FALSE(rig.Status().synchronized);
  };
  const auto wait = [&] {
    const auto from = rig.now;
    EXPECT_TRUE(rig.RunUntilExchange(Seconds(6)));
    rig.StartExchangeAndAnswer();
    EXPECT_TRUE(rig.Status().synchronized) << rig.Status().error;
    return base::MillisBetween(from, rig.now);
  };
  rig.Synchronize();
  for (int i = 0; i < 7; ++i) {
    fault();
    EXPECT_GE(wait(), 50 << std::min(i, 5)) << "fault, success, fault is paced too";
  }
  // Keep answering the reconciliations while time passes.
  const auto stay_synchronized = [&](int for_seconds) {
    for (int i = 0; i < for_seconds; ++i) {
      rig.Run(Seconds(1));
      if (rig.exchange_open) rig.StartExchangeAndAnswer();
    }
  };
  stay_synchronized(29);
  fault();
  EXPECT_GE(wait(), 50 << 5) << "29 s forgive nothing";
  stay_synchronized(31);
  fault();
  EXPECT_LE(wait(), 1);
}

// D3
TEST_F(KVDirectoryMachineSnapshots, ReasonNamedFirstStaysThroughTheRetries) {
  MachineRig::Options options;
  options.limits.max_blocks_per_stream = 10;
  MachineRig rig(options);
  rig.Synchronize();
  rig.Deliver(rig.PublishStore(MakePrompt(2, 11)));
  const std::string reason =
      "more than max_blocks_per_stream 10 blocks published (raise it above what the engine can "
      "hold, and to at least 11), in batch 1";
  EXPECT_EQ(rig.Status().error, reason);
  EXPECT_EQ(rig.ledger->mappings(), 0u) << "C7: memory is given back";
  ASSERT_TRUE(rig.RunUntilExchange(Millis(101)));
  rig.Ask();
  rig.Run(Seconds(2));
  EXPECT_EQ(rig.Status().error, reason +
                                    "; now: no whole snapshot came from tcp://engine:38000 within "
                                    "replay_timeout_ms 2000; raise it if the engine needs longer "
                                    "to make one");
  ASSERT_TRUE(rig.RunUntilExchange(Millis(301)));
  rig.StartExchangeAndAnswer();
  EXPECT_THAT(rig.Status().error, HasSubstr(reason));
  rig.Deliver(rig.Publish(rig.truth.NewBatch().Clear().Store(Tier::kDevice, prompt_)));
  EXPECT_EQ(rig.Status().error, "");
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

TEST_F(KVDirectoryMachineSnapshots, SizesOverTheLimitAreNamedExactly) {
  MachineRig::Options options;
  options.limits.max_message_bytes = 1024;
  MachineRig rig(options);
  rig.PublishStore(prompt_);
  rig.Synchronize();
  Frames big = rig.Publish(rig.truth.NewBatch());
  big[2] = std::string(1024, 'x');
  rig.Deliver(big);
  EXPECT_EQ(rig.Status().error,
            "batch of 1039 bytes is over max_message_bytes 1024; raise it to at least 1100");
  ASSERT_TRUE(rig.RunUntilExchange(Millis(101)));
  rig.Ask();
  // Each part fits, their sum does not (A20).
  std::vector<Frames> parts = rig.Answer();
  parts.insert(parts.begin(), parts[0]);
  parts.insert(parts.begin(), parts[0]);
  ASSERT_LT(parts[0][2].size(), 1016u);
  ASSERT_GT(3 * parts[0][2].size(), 1024u);
  rig.Reply(parts);
  EXPECT_FALSE(rig.Status().synchronized);
  EXPECT_THAT(rig.Status().error, HasSubstr("; now: snapshot of "));
  EXPECT_THAT(rig.Status().error, HasSubstr(" is over max_message_bytes 1024"));
}

// D8: the numbers that an operator needs, and one that can be set.
TEST_F(KVDirectoryMachineSnapshots, LimitsAreNamedWithTheExactSizeAndAValueToRaiseThemTo) {
  EXPECT_EQ(TooLarge("batch", 9541386, Limits{}),
            "batch of 9541386 bytes (9.1 MiB) is over max_message_bytes 8388608; raise it to at "
            "least 9600000");
  EXPECT_EQ(TooLarge("snapshot", 1073741823, {.max_message_bytes = 1'000'000'000}),
            "snapshot of 1073741823 bytes (1024.0 MiB) is over max_message_bytes 1000000000; raise "
            "it to at least 1073741824");
  EXPECT_EQ(
      TooLarge("batch", 1200000000, {.max_message_bytes = kLargestMessageLimit}),
      "batch of 1200000000 bytes (1144.4 MiB) is over max_message_bytes 1073741824; more than "
      "1073741824 cannot be set, the engine must publish less at once");
  EXPECT_THAT(
      TooLargeToMeasure("snapshot", "tcp://e:1", {.max_message_bytes = 600'000'000}),
      HasSubstr("over 1200000000 bytes, size unknown (or on bytes that are not ZeroMQ); more "
                "than 1073741824 cannot be set"));
}

TEST_F(KVDirectoryMachineSnapshots, SnapshotOfCountlessTinyPartsIsRefused) {
  MachineRig rig;
  rig.Start();
  rig.Connect();
  rig.Ask();
  const Frames part{"", BigEndian64(1), std::string("\x92\x00\x90", 3)};
  int accepted = 0;
  for (; accepted < 10'000 && rig.exchange_open; ++accepted) rig.Reply(part);
  EXPECT_EQ(accepted, 4097);
  EXPECT_EQ(rig.Status().error, "snapshot of more than 4096 parts; publish fewer, larger ones");
  ASSERT_TRUE(rig.RunUntilExchange(Millis(101)));
  rig.StartExchangeAndAnswer();
  EXPECT_TRUE(rig.Status().synchronized);
}

TEST_F(KVDirectoryMachineSnapshots, BufferHasABudgetAndSaysSo) {
  MachineRig::Options options;
  options.limits.max_buffered_bytes = 4096;
  MachineRig rig(options);
  rig.Start();
  rig.Connect();
  rig.Ask();
  for (int i = 0; i < 40 && rig.exchange_open; ++i) rig.Deliver(rig.PublishStore(MakePrompt(i, 4)));
  EXPECT_FALSE(rig.exchange_open);
  EXPECT_THAT(rig.Status().error, HasSubstr("max_buffered_bytes 4096; raise it to at least 8192"));
  ASSERT_TRUE(rig.RunUntilExchange(Millis(101)));
  rig.StartExchangeAndAnswer();
  EXPECT_TRUE(rig.Status().synchronized);
}

// D10
// kv-event-wire 4.3
TEST_F(KVDirectoryMachineSnapshots, WatermarkBeforeAnythingWasPublishedMeansNextIsZero) {
  MachineRig::Options options;
  options.first_sequence = 0;
  MachineRig rig(options);
  rig.Synchronize();
  EXPECT_FALSE(rig.Status().sequence_valid);
  EXPECT_EQ(rig.Status().sequence.value, 0u);
  rig.Deliver(rig.PublishStore(prompt_));
  EXPECT_TRUE(rig.Status().sequence_valid);
  EXPECT_EQ(rig.Status().sequence.value, 0u);
  EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0}));
}

// D10
TEST_F(KVDirectoryMachineSnapshots, AfterAnEmptySnapshotAtZeroBothZeroAndOneMayFollow) {
  for (const std::uint64_t first : {0, 1}) {
    for (const bool buffered : {false, true}) {
      MachineRig::Options options;
      options.first_sequence = first;
      MachineRig rig(options);
      rig.Start();
      rig.Connect();
      rig.Ask();
      const std::vector<Frames> answer = rig.truth.SnapshotAnswer(0);
      if (!buffered) rig.Reply(answer);
      rig.Deliver(rig.PublishStore(prompt_));
      if (buffered) rig.Reply(answer);
      EXPECT_TRUE(rig.Status().synchronized) << first << rig.Status().error;
      EXPECT_EQ(rig.Hits(prompt_), Expectation({32, 0})) << first << buffered;
      rig.Deliver(rig.Publish(rig.truth.NewBatch().Remove(Tier::kDevice, prompt_)));
      EXPECT_TRUE(rig.Status().synchronized) << rig.Status().error;
      EXPECT_EQ(rig.Hits(prompt_), Expectation());
    }
  }
}

}  // namespace
}  // namespace xms::kv_directory
