// What `error` says of a stream, word by word: the numbers, and what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/unit/kv_directory/machine_rig.h"

namespace xms::kv_directory {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::BigEndian64;
using ::testing::HasSubstr;
using testing::MakePrompt;

// Watermarks move while nothing of the topic comes, twice in a row.
void Condemn(MachineRig& rig, std::uint64_t first_watermark, std::uint64_t last_watermark) {
  for (const std::uint64_t watermark : {first_watermark, last_watermark}) {
    while (rig.next_sequence <= watermark) rig.Publish(rig.truth.NewBatch());
    ASSERT_TRUE(rig.RunUntilExchange(seconds(31)));
    rig.StartExchangeAndAnswer();
    rig.Run(milliseconds(100));
  }
  EXPECT_FALSE(rig.Status().synchronized);
}

TEST(KVDirectoryErrors, WrongTopicIsToldWithTheWatermarksAndWhatIsPublishedInstead) {
  MachineRig rig;
  while (rig.next_sequence <= 10) rig.Publish(rig.truth.NewBatch());
  rig.Synchronize();
  for (std::uint64_t i = 0; i < 41; ++i) rig.Deliver({"xllm-kv2", BigEndian64(i), ""});
  Condemn(rig, 30, 50);
  EXPECT_EQ(rig.Status().error,
            "connected to tcp://engine:18000, watermark moved 10 → 50, topic xllm-kv never seen, "
            "xllm-kv2 seen 41 times; check topic and event port");
  EXPECT_EQ(rig.changes.back().second, rig.Status().error) << "and the log says the same";
}

// C15: a wrong topic has its name within a minute of the defaults, however late the engine speaks.
TEST(KVDirectoryErrors, WrongTopicIsToldWithinAMinute) {
  MachineRig rig;
  rig.Synchronize();
  const auto started = rig.now;
  ASSERT_TRUE(rig.RunUntilExchange(seconds(1)));
  rig.StartExchangeAndAnswer();  // nothing has been published yet
  rig.Publish(rig.truth.NewBatch());
  Condemn(rig, 5, 9);
  EXPECT_THAT(rig.Status().error, HasSubstr("topic xllm-kv never seen"));
  EXPECT_LE(rig.now - started, seconds(60));
}

TEST(KVDirectoryErrors, AtMostEightOtherTopicsAreNamedPrintablyAndShort) {
  MachineRig rig;
  rig.Synchronize();
  for (char name = 'a'; name <= 'z'; ++name) rig.Deliver({std::string(1, name), "", ""});
  rig.Deliver({"a", "", ""});
  Condemn(rig, 5, 9);
  EXPECT_THAT(rig.Status().error, HasSubstr(", a seen 2 times, b seen 1 time, "));
  EXPECT_THAT(rig.Status().error, HasSubstr(", h seen 1 time; check topic and event port"));

  MachineRig odd;
  odd.Synchronize();
  odd.Deliver({"line\nbreak\x7f", "", ""});
  odd.Deliver({std::string(1000, 'x'), "", ""});
  odd.Deliver({"", "", ""});
  Condemn(odd, 5, 9);
  EXPECT_THAT(odd.Status().error, HasSubstr(", \"\" seen 1 time, line?break? seen 1 time, " +
                                            std::string(64, 'x') + " seen 1 time;"));
}

TEST(KVDirectoryErrors, NobodyThereIsToldForHowLongWhileItLasts) {
  MachineRig rig;
  rig.Start();
  std::vector<std::string> said;
  for (int second = 0; second < 60; ++second) {
    rig.Run(seconds(1));
    if (const std::string error = rig.Status().error; said.empty() || said.back() != error) {
      said.push_back(error);
    }
  }
  // An attempt that nobody answers takes five seconds, and each of them counts on.
  EXPECT_GE(said.size(), 9u);
  EXPECT_THAT(said[1], HasSubstr("no publisher answered at tcp://engine:18000 for 5 s; check the "
                                 "engine's event port"));
  EXPECT_THAT(said.back(), HasSubstr("no publisher answered at tcp://engine:18000 for 5"));
  EXPECT_EQ(rig.changes.size(), 1u) << "one line of the log";
}

TEST(KVDirectoryErrors, AnotherGeometryOrRankIsToldWithBothNumbers) {
  MachineRig::Options options;
  options.spec.block_size = 128;
  options.spec.key.rank.value = 1;
  {
    MachineRig rig(options);
    rig.Synchronize();
    testing::KvTruth other(64, 1);
    rig.Deliver(
        {"xllm-kv", BigEndian64(rig.next_sequence),
         testing::Encode(other.NewBatch().Store(model::Tier::kDevice, MakePrompt(1, 2, 64)))});
    EXPECT_EQ(rig.Status().error, "block_size 64 published, 128 configured");
  }
  MachineRig rig(options);
  rig.Synchronize();
  testing::KvTruth other(128, 3);
  rig.Deliver({"xllm-kv", BigEndian64(rig.next_sequence), testing::Encode(other.NewBatch())});
  EXPECT_EQ(rig.Status().error, "rank 3 published on the stream of rank 1");
}

// C7: the number is what the batch alone would need; blocks named twice count once.
TEST(KVDirectoryErrors, TooManyBlocksAreToldWithAValueToSet) {
  MachineRig::Options options;
  options.limits.max_blocks_per_stream = 10;
  const auto error_of = [&](auto&& fill) {
    MachineRig rig(options);
    rig.PublishStore(MakePrompt(1, 8));
    rig.Synchronize();
    auto batch = rig.truth.NewBatch();
    fill(batch);
    rig.Deliver(rig.Publish(batch));
    EXPECT_FALSE(rig.Status().synchronized);
    return rig.Status().error;
  };
  const std::string begin =
      "more than max_blocks_per_stream 10 blocks published (raise it above what the engine can "
      "hold, and to at least ";
  using model::Tier;
  EXPECT_EQ(error_of([](auto& batch) {
              batch.Store(Tier::kDevice, MakePrompt(2, 5)).Store(Tier::kHost, MakePrompt(2, 5));
            }),
            begin + "13), in batch 2");
  EXPECT_EQ(error_of([](auto& batch) {
              batch.Store(Tier::kDevice, MakePrompt(2, 1))
                  .Store(Tier::kDevice, MakePrompt(3, 100))
                  .Store(Tier::kHost, MakePrompt(1, 8))
                  .Clear()
                  .Store(Tier::kDevice, MakePrompt(4, 100));
            }),
            begin + "110), in batch 2")
      << "109, two digits rounded up";
}

TEST(KVDirectoryErrors, MoreThanCanBeSetIsToldAsThat) {
  EXPECT_EQ(RaiseTo(kLargestBlockLimit + 1, kLargestBlockLimit, "raise it", "hold less"),
            "more than 16777216 cannot be set, hold less");
  EXPECT_EQ(RaiseTo(kLargestBlockLimit - 1, kLargestBlockLimit, "raise it", "hold less"),
            "raise it to at least 16777216");
}

TEST(KVDirectoryErrors, PayloadThatCannotBeReadIsToldWithItsPlaceAndItsPublisher) {
  using kv_events::DecodeCode;
  const kv_events::DecoderOptions options{.dp_rank = 1, .block_size = 128};
  EXPECT_EQ(CannotBeRead("batch 12", {DecodeCode::kTruncated, 0}, options, 3, "tcp://e:1"),
            "the payload of batch 12 cannot be read: truncated at byte 0 of 3; if it stays, check "
            "the version of the engine at tcp://e:1");
  EXPECT_EQ(CannotBeRead("batch 12", {DecodeCode::kBlockSizeMismatch, 9, 64}, options, 30, ""),
            "block_size 64 published, 128 configured");
}

// B3
TEST(KVDirectoryErrors, BatchThatCannotBeReadIsToldWithItsNumber) {
  MachineRig rig;
  rig.Synchronize();
  rig.Deliver({"xllm-kv", BigEndian64(1), std::string("\x93\x00\x90", 3)});
  EXPECT_EQ(rig.Status().error,
            "the payload of batch 1 cannot be read: truncated at byte 0 of 3; if it stays, "
            "check the version of the engine at tcp://engine:18000");
}

// D8
TEST(KVDirectoryErrors, BatchOverTheLimitIsToldWithItsSizeAndAValueToSet) {
  MachineRig rig;
  rig.Synchronize();
  rig.Deliver({"xllm-kv", BigEndian64(rig.next_sequence), std::string(9'541'371, 'x')});
  EXPECT_EQ(rig.Status().error,
            "batch of 9541386 bytes (9.1 MiB) is over max_message_bytes 8388608; raise it to at "
            "least 9600000");
}

}  // namespace
}  // namespace xms::kv_directory
