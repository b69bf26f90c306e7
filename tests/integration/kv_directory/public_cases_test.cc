// Cases that users of comparable products reported in public, C01 to C10. Each suite is one of them.
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/integration/kv_directory/directory_fixture.h"
#include "tests/integration/kv_directory/discovered.h"

namespace xms::kv_directory {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::DiscoveredEngine;
using testing::HashesOf;
using testing::KvPublisher;
using testing::MakeEngine;
using testing::MakePrompt;
using testing::WaitFor;

// MessagePack by hand, for what an engine of ours would not write.
std::string Array(std::size_t count) { return std::string(1, static_cast<char>(0x90 | count)); }
std::string Map(std::size_t pairs) { return std::string(1, static_cast<char>(0x80 | pairs)); }
std::string Text(std::string_view text) {
  return std::string(1, static_cast<char>(0xa0 | text.size())) + std::string(text);
}
std::string Small(unsigned value) { return std::string(1, static_cast<char>(value)); }
std::string Unsigned(std::uint64_t value) { return "\xcf" + testing::BigEndian64(value); }
std::string Signed(std::uint64_t value) { return "\xd3" + testing::BigEndian64(value); }
std::string Binary(const std::string& bytes) {
  return "\xc4" + std::string(1, static_cast<char>(bytes.size())) + bytes;
}
std::string Batch(const std::string& event) {
  return Array(3) + Small(1) + Array(1) + event + Small(0);
}
std::string Tokens8() {
  std::string out = Array(8);
  for (unsigned token = 1; token <= 8; ++token) out += Small(token);
  return out;
}

// --- C01

class KVDirectoryC01RestartInPlace : public KVDirectory {
 protected:
  static constexpr std::size_t kBlocks = 1000;

  // 1,000 blocks up to sequence 500.
  void Fill(KvPublisher& publisher) const {
    for (std::size_t first = 0; first < kBlocks; first += 2) {
      publisher.Publish(publisher.NewBatch().Store(Tier::kDevice, old_, first, 2));
    }
    ASSERT_EQ(publisher.last_sequence(), 500u);
  }
  // Before its snapshot the new life has no credit, whatever it publishes; then exactly its own.
  void ExpectOnlyTheNewLife(KvPublisher& publisher, const std::string& name) {
    EXPECT_EQ(HitsOf(name, old_), Expectation());
    const Tokens fresh = MakePrompt(2, 3);
    publisher.Store(Tier::kDevice, fresh);
    ASSERT_TRUE(publisher.WaitForSubscriptions(1));
    publisher.Heartbeat();
    EXPECT_EQ(HitsOf(name, old_), Expectation());
    EXPECT_FALSE(StatusOf(name)->synchronized);
    publisher.ReleaseSnapshots();
    ASSERT_TRUE(WaitCaughtUp(publisher, name));
    EXPECT_EQ(HitsOf(name, old_), Expectation());
    EXPECT_EQ(HitsOf(name, fresh), Expectation({12, 0}));
    EXPECT_EQ(StatusOf(name)->device_blocks, 3u);
  }
  ::testing::AssertionResult WaitNewLife(const std::string& name, std::uint64_t generation) const {
    return WaitFor("a new life begins", [&] {
      const auto status = StatusOf(name);
      return status &&
             kv_index::KvIndex::LifeOf(status->generation) != kv_index::KvIndex::LifeOf(generation);
    });
  }

  const Tokens old_ = MakePrompt(1, kBlocks);
};

TEST_F(KVDirectoryC01RestartInPlace, ANewIdentityThatCountsFromZero) {
  const DiscoveredEngine engine = MakeEngine(1, kEventOffset, kReplayOffset);
  KvPublisher& publisher = *engine.ranks[0];
  ASSERT_NO_FATAL_FAILURE(Fill(publisher));
  instances_.Set({InstanceOf(engine, "one")});
  StartWith(DiscoveryOf());
  ASSERT_TRUE(WaitCaughtUp(publisher, engine.name()));
  EXPECT_EQ(HitsOf(engine.name(), old_), Expectation({4000, 0}));
  publisher.HoldSnapshots();
  publisher.Restart();
  publisher.SetNextSequence(0);
  instances_.Set({InstanceOf(engine, "two")});
  ASSERT_TRUE(
      WaitFor("the credit goes", [&] { return HitsOf(engine.name(), old_) == Expectation(); }));
  ASSERT_TRUE(WaitFor("the new identity is known", [&] {
    const auto status = StatusOf(engine.name());
    return status && status->info->identity.incarnation_id == "two";
  }));
  ExpectOnlyTheNewLife(publisher, engine.name());
}

TEST_F(KVDirectoryC01RestartInPlace, NoIdentityAtAllAndCountingFromZero) {
  KvPublisher publisher;
  ASSERT_NO_FATAL_FAILURE(Fill(publisher));
  StartWith(publisher);
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", old_), Expectation({4000, 0}));
  publisher.HoldSnapshots();
  publisher.Restart();
  publisher.SetNextSequence(0);
  ASSERT_TRUE(WaitUnsynchronized("a"));
  ExpectOnlyTheNewLife(publisher, "a");
}

// Neither the connection nor the number tells; the identity does.
TEST_F(KVDirectoryC01RestartInPlace, ANewIdentityWhoseNumberContinuesByChance) {
  const DiscoveredEngine engine = MakeEngine(1, kEventOffset, kReplayOffset);
  KvPublisher& publisher = *engine.ranks[0];
  ASSERT_NO_FATAL_FAILURE(Fill(publisher));
  instances_.Set({InstanceOf(engine, "one")});
  StartWith(DiscoveryOf());
  ASSERT_TRUE(WaitCaughtUp(publisher, engine.name()));
  const std::uint64_t generation = StatusOf(engine.name())->generation;
  publisher.HoldSnapshots();
  publisher.RestartInPlace();
  publisher.SetNextSequence(501);
  instances_.Set({InstanceOf(engine, "two")});
  ASSERT_TRUE(WaitNewLife(engine.name(), generation));
  ExpectOnlyTheNewLife(publisher, engine.name());
}

// --- C02

class KVDirectoryC02ClearedButIdle : public KVDirectory {
 protected:
  void StartSynchronized(KvPublisher& publisher) {
    publisher.Store(Tier::kDevice, prompt_);
    DirectoryConfig config = ConfigOf({SpecOf(publisher, "a")});
    config.limits.resync_interval = milliseconds(300);
    StartWith(config);
    ASSERT_TRUE(WaitSynchronized("a"));
    ASSERT_TRUE(publisher.WaitForSubscriptions(1));
    publisher.Heartbeat();
    ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
    EXPECT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
  }
};

// The bound is resync_interval_ms and one exchange; what is asserted is that it is found at all.
TEST_F(KVDirectoryC02ClearedButIdle, NothingSaidIsFoundByThePeriodicSnapshot) {
  KvPublisher publisher;
  ASSERT_NO_FATAL_FAILURE(StartSynchronized(publisher));
  publisher.ForgetSilently();
  ASSERT_TRUE(WaitFor("the credit goes", [&] { return HitsOf("a", prompt_) == Expectation(); }));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(StatusOf("a")->device_blocks, 0u);
}

TEST_F(KVDirectoryC02ClearedButIdle, TheEventIsEffectiveWhenItHasCome) {
  KvPublisher publisher;
  ASSERT_NO_FATAL_FAILURE(StartSynchronized(publisher));
  publisher.Publish(publisher.NewBatch().Clear());
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
}

TEST_F(KVDirectoryC02ClearedButIdle, ClearAndStoreInOneBatchLeaveWhatWasStored) {
  KvPublisher publisher;
  ASSERT_NO_FATAL_FAILURE(StartSynchronized(publisher));
  const Tokens other = MakePrompt(2, 3);
  publisher.Publish(publisher.NewBatch().Clear().Store(Tier::kDevice, other));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  EXPECT_EQ(HitsOf("a", other), Expectation({12, 0}));
  EXPECT_EQ(StatusOf("a")->device_blocks, 3u);
}

// --- C03

class KVDirectoryC03YoungerThanTheEngine : public KVDirectory {};

TEST_F(KVDirectoryC03YoungerThanTheEngine, SnapshotAndLiveExtensionsMakeOneChain) {
  const Tokens chain = MakePrompt(1, 300);
  KvPublisher publisher;
  publisher.Publish(publisher.NewBatch().Store(Tier::kDevice, chain, 0, 200));
  publisher.HoldSnapshots();
  DirectoryConfig config = ConfigOf({SpecOf(publisher, "a")});
  config.limits.replay_timeout = seconds(20);
  StartWith(config);
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  ASSERT_TRUE(publisher.WaitForSnapshotRequests(1));
  for (std::size_t first = 200; first < 300; first += 10) {
    publisher.Publish(publisher.NewBatch().Store(Tier::kDevice, chain, first, 10));
    EXPECT_EQ(HitsOf("a", chain), Expectation());
  }
  EXPECT_FALSE(StatusOf("a")->synchronized);
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", chain), Expectation({1200, 0}));
  EXPECT_EQ(StatusOf("a")->device_blocks, 300u) << "none lost, none double";
  const Tokens tail(chain.begin() + 200 * 4, chain.end());
  EXPECT_EQ(HitsOf("a", tail), Expectation()) << "a tail alone is no prefix";
}

TEST_F(KVDirectoryC03YoungerThanTheEngine, AnUnknownParentIsADoubtAndNeverARoot) {
  const Tokens chain = MakePrompt(1, 200);
  const Tokens orphan = MakePrompt(2, 6);
  const Tokens tail(orphan.begin() + 3 * 4, orphan.end());
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, chain);
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  publisher.HoldSnapshots();
  publisher.Publish(publisher.NewBatch().Store(Tier::kDevice, orphan, 3));
  ASSERT_TRUE(WaitUnsynchronized("a"));
  for (const Tokens* prompt : {&chain, &orphan, &tail}) {
    EXPECT_EQ(HitsOf("a", *prompt), Expectation());
  }
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", chain), Expectation({800, 0}));
  EXPECT_EQ(HitsOf("a", orphan), Expectation());
  EXPECT_EQ(HitsOf("a", tail), Expectation());
  // The engine goes on extending what was skipped: the ordinary case, and no reason to recover again.
  const Tokens longer = MakePrompt(2, 8);
  publisher.Publish(publisher.NewBatch().Store(Tier::kDevice, longer, 6));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", chain), Expectation({800, 0}));
  EXPECT_EQ(HitsOf("a", longer), Expectation());
}

// --- C05

class KVDirectoryC05ClearOfOneTier : public KVDirectory {};

TEST_F(KVDirectoryC05ClearOfOneTier, TheOtherTierStaysAndAnUnknownOneIsADoubt) {
  const Tokens prompt = MakePrompt(1, 10);
  KvPublisher publisher;
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  const auto fill = [&] {
    publisher.Publish(
        publisher.NewBatch().Store(Tier::kDevice, prompt).Replicate(Tier::kHost, prompt, 0, 6));
  };
  fill();
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt), Expectation({40, 0}));
  publisher.Publish(publisher.NewBatch().Clear(Tier::kDevice));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt), Expectation({0, 24})) << "6 blocks on Host only";
  publisher.Publish(publisher.NewBatch().Clear());
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt), Expectation());

  fill();
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  publisher.HoldSnapshots();
  publisher.SendPayload(
      Batch(Map(2) + Text("type") + Text("AllBlocksCleared") + Text("medium") + Text("disk")));
  ASSERT_TRUE(WaitUnsynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt), Expectation());
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", prompt), Expectation({40, 0}));
}

// --- C06

class KVDirectoryC06DeviceGoneHostStays : public KVDirectory {};

TEST_F(KVDirectoryC06DeviceGoneHostStays, TheRunAlternatesBetweenTiersBlockByBlock) {
  const Tokens prompt = MakePrompt(3, 20);
  KvPublisher publisher;
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  const auto after = [&](const testing::KvBatchBuilder& batch) {
    publisher.Publish(batch);
    EXPECT_TRUE(WaitCaughtUp(publisher, "a"));
    return HitsOf("a", prompt);
  };
  EXPECT_EQ(after(publisher.NewBatch().Store(Tier::kDevice, prompt).Replicate(Tier::kHost, prompt)),
            Expectation({80, 0}));
  EXPECT_EQ(after(publisher.NewBatch().Remove(Tier::kDevice, prompt, 7)),
            Expectation({7 * 4, 13 * 4}));
  EXPECT_EQ(after(publisher.NewBatch().Remove(Tier::kHost, prompt, 9, 1)),
            Expectation({7 * 4, 2 * 4}));
  EXPECT_EQ(after(publisher.NewBatch().Replicate(Tier::kHost, prompt, 9, 1)),
            Expectation({7 * 4, 13 * 4}));
  EXPECT_EQ(after(publisher.NewBatch().Store(Tier::kDevice, prompt, 15, 2)),
            Expectation({9 * 4, 11 * 4}));
}

// --- C07

class KVDirectoryC07StoredTwiceRemovedOnce : public KVDirectory {};

// Settled by design (C4): xLLM's caches are maps, one block a key, so storing what is there changes
// nothing and one removal ends it. Counts belong to dialects whose engines announce copies.
TEST_F(KVDirectoryC07StoredTwiceRemovedOnce, OneRemovalEndsItAndASnapshotOverrides) {
  const Tokens x = MakePrompt(1, 1);
  KvPublisher publisher;
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  publisher.Store(Tier::kDevice, x);
  publisher.Store(Tier::kDevice, x);
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", x), Expectation({4, 0}));
  EXPECT_EQ(StatusOf("a")->device_blocks, 1u);
  for (int removal = 0; removal < 2; ++removal) {
    publisher.Remove(Tier::kDevice, x);
    ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
    EXPECT_EQ(HitsOf("a", x), Expectation());
    EXPECT_EQ(StatusOf("a")->device_blocks, 0u);
  }
  publisher.Store(Tier::kDevice, x);
  publisher.Store(Tier::kDevice, x);
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  const std::size_t asked = publisher.snapshot_requests();
  publisher.LoseNext(1);  // a gap, so that a snapshot with X once in it replaces everything
  publisher.Heartbeat();
  publisher.Heartbeat();
  ASSERT_TRUE(publisher.WaitForSnapshotRequests(asked + 1));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", x), Expectation({4, 0}));
  publisher.Remove(Tier::kDevice, x);
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(HitsOf("a", x), Expectation());
}

// --- C08

class KVDirectoryC08RanksAnnouncedAndRanksThatExist : public KVDirectory {};

TEST_F(KVDirectoryC08RanksAnnouncedAndRanksThatExist, StreamsFollowWhatIsRegistered) {
  const DiscoveredEngine engine = MakeEngine(2, kEventOffset, kReplayOffset);
  SourceInstance instance = InstanceOf(engine, "one");
  instance.record.dp_size = 4;
  instances_.Set({instance});
  StartWith(DiscoveryOf());
  ASSERT_TRUE(WaitSynchronized(engine.name(), 0));
  ASSERT_TRUE(WaitSynchronized(engine.name(), 1));
  for (const std::int32_t rank : {2, 3}) {
    ASSERT_TRUE(WaitFor("a rank that does not run is named", [&] {
      return ErrorOf(engine.name(), rank).find("no publisher answered") != std::string::npos;
    }));
  }
  instance.record.dp_size = 2;
  instances_.Set({instance});
  ASSERT_TRUE(WaitFor("ranks 2 and 3 go", [&] { return index_->Streams().size() == 2; }));
  EXPECT_TRUE(directory_->Settled());
}

TEST_F(KVDirectoryC08RanksAnnouncedAndRanksThatExist, OverlappingPortsExcludeBothByName) {
  const DiscoveredEngine engine = MakeEngine(1, kEventOffset, kReplayOffset);
  SourceInstance four = InstanceOf(engine, "x");
  four.record.id.name = "127.0.0.1:3000";
  four.record.dp_size = 4;
  SourceInstance inside = InstanceOf(engine, "y");
  inside.record.id.name = "127.0.0.1:3002";
  instances_.Set({InstanceOf(engine, "one"), four, inside});
  StartWith(DiscoveryOf());
  ASSERT_TRUE(WaitSynchronized(engine.name()));
  const std::vector<Excluded> excluded = directory_->CurrentlyExcluded();
  ASSERT_EQ(excluded.size(), 2u);
  EXPECT_EQ(excluded[0].instance_name, "127.0.0.1:3000");
  EXPECT_THAT(excluded[0].reason, ::testing::HasSubstr("127.0.0.1:3002"));
  EXPECT_EQ(excluded[1].instance_name, "127.0.0.1:3002");
  EXPECT_THAT(excluded[1].reason, ::testing::HasSubstr("127.0.0.1:3000"));
  EXPECT_EQ(index_->Streams().size(), 1u);
}

TEST_F(KVDirectoryC08RanksAnnouncedAndRanksThatExist, ABatchOfAnotherRankIsADoubtWithBothNumbers) {
  KvPublisher publisher(KvPublisher::Options{.dp_rank = 1});
  publisher.Store(Tier::kDevice, prompt_);
  StartWith(ConfigOf({SpecOf(publisher, "a", 1)}));
  ASSERT_TRUE(WaitSynchronized("a", 1));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  publisher.HoldSnapshots();
  publisher.SendPayload(
      testing::Encode(testing::KvBatchBuilder(4, 3).Store(Tier::kDevice, MakePrompt(2, 1))));
  ASSERT_TRUE(WaitFor("the error names both", [&] {
    return ErrorOf("a", 1).find("rank 3 published on the stream of rank 1") != std::string::npos;
  })) << ErrorOf("a", 1);
  EXPECT_EQ(HitsOf("a", prompt_, 1), Expectation());
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitSynchronized("a", 1));
  EXPECT_EQ(HitsOf("a", prompt_, 1), Expectation({32, 0}));
}

// --- C09

class KVDirectoryC09BlockSizesDiffer : public KVDirectory {};

TEST_F(KVDirectoryC09BlockSizesDiffer, OneOfThreeStreamsIsRefusedWithBothNumbers) {
  const Tokens prompt = MakePrompt(1, 3, 128);
  std::vector<std::unique_ptr<KvPublisher>> publishers;
  std::vector<StreamSpec> specs;
  for (const std::uint32_t published : {128u, 64u, 128u}) {
    publishers.push_back(
        std::make_unique<KvPublisher>(KvPublisher::Options{.block_size = published}));
    publishers.back()->Store(Tier::kDevice, prompt);
    specs.push_back(SpecOf(*publishers.back(), std::string(1, "abc"[specs.size()])));
    specs.back().block_size = 128;
  }
  StartWith(ConfigOf(specs));
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(WaitSynchronized("c"));
  ASSERT_TRUE(WaitError("b", "block_size 64 published, 128 configured"));
  EXPECT_EQ(HitsOf("a", prompt), Expectation({384, 0}));
  EXPECT_EQ(HitsOf("b", prompt), Expectation());
  EXPECT_EQ(HitsOf("c", prompt), Expectation({384, 0}));
}

TEST_F(KVDirectoryC09BlockSizesDiffer, TokensThatAreNotHashesTimesBlockSizeAreRefused) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  publisher.HoldSnapshots();
  publisher.SendPayload(Batch(Map(5) + Text("type") + Text("BlockStored") + Text("block_hashes") +
                              Array(1) + Small(7) + Text("token_ids") + Tokens8() +
                              Text("block_size") + Small(4) + Text("medium") + Text("gpu")));
  ASSERT_TRUE(WaitUnsynchronized("a"));
  EXPECT_THAT(ErrorOf("a"), ::testing::HasSubstr("token"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation());
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitSynchronized("a"));
  EXPECT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
}

// --- C10

class KVDirectoryC10EncodingChanged : public KVDirectory {
 protected:
  static constexpr std::uint64_t kSecond = 0x8877665544332211u;  // negative as a signed number

  static std::string StoredAsMap(const std::string& first, const std::string& second,
                                 std::size_t extra_pairs = 0, const std::string& extra = "") {
    return Batch(Map(6 + extra_pairs) + Text("type") + Text("BlockStored") + extra +
                 Text("block_hashes") + Array(2) + first + second + Text("parent_block_hash") +
                 "\xc0" + Text("token_ids") + Tokens8() + Text("block_size") + Small(4) +
                 Text("medium") + Text("gpu"));
  }
  // A stream that will not be compared with its publisher, who knows nothing of these payloads.
  void StartFresh(KvPublisher& publisher) {
    directory_.reset();
    StartWith(publisher);
    ASSERT_TRUE(WaitSynchronized("a"));
    ASSERT_TRUE(publisher.WaitForSubscriptions(1));
    // The one that follows the first synchronization; the next is 27 s away.
    ASSERT_TRUE(publisher.WaitForSnapshotRequests(2));
    publisher.Heartbeat();
    ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  }
  const Tokens tokens_ = {1, 2, 3, 4, 5, 6, 7, 8};
};

TEST_F(KVDirectoryC10EncodingChanged, EachSpellingOfOneBatchMeansTheSame) {
  const std::string digest = std::string(24, 'd') + testing::BigEndian64(kSecond);  // 32 bytes
  const std::string first = Small(17);
  const std::vector<std::pair<const char*, std::string>> spellings = {
      {"map", StoredAsMap(first, Unsigned(kSecond))},
      {"map with unknown fields",
       StoredAsMap(first, Unsigned(kSecond), 2,
                   Text("group_size") + Small(3) + Text("more") + Array(2) + Map(0) + "\xc3")},
      {"positional array",
       Batch(Array(7) + Text("BlockStored") + Array(2) + first + Unsigned(kSecond) + "\xc0" +
             Tokens8() + Small(4) + "\xc0" + Text("gpu"))},
      {"negative 64-bit hash", StoredAsMap(first, Signed(kSecond))},
      {"32-byte hash", StoredAsMap(first, Binary(digest))},
  };
  for (const auto& [what, payload] : spellings) {
    SCOPED_TRACE(what);
    KvPublisher publisher;
    ASSERT_NO_FATAL_FAILURE(StartFresh(publisher));
    publisher.SendPayload(payload);
    ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
    EXPECT_EQ(HitsOf("a", tokens_), Expectation({8, 0}));
    // One identity, however it is spelled: the removal names the second block unsigned.
    publisher.SendPayload(Batch(Map(3) + Text("type") + Text("BlockRemoved") +
                                Text("block_hashes") + Array(1) + Unsigned(kSecond) +
                                Text("medium") + Text("gpu")));
    ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
    EXPECT_EQ(HitsOf("a", tokens_), Expectation({4, 0}));
    directory_->Stop();
  }
}

TEST_F(KVDirectoryC10EncodingChanged, AnythingElseIsADoubtThatNamesTheShape) {
  const std::vector<std::pair<std::string, std::string>> shapes = {
      {StoredAsMap(Small(17), "\xcb" + testing::BigEndian64(0x4000000000000000u)), "type"},
      {StoredAsMap(Small(17), Text("0x8877")), "type"},
      {StoredAsMap(Small(17), Binary("1234567")), "hash"},
      {Batch(Text("BlockStored")), "wrong type"},
      {Text("BlockStored"), "type"},
  };
  for (const auto& [payload, named] : shapes) {
    KvPublisher publisher;
    publisher.Store(Tier::kDevice, prompt_);
    ASSERT_NO_FATAL_FAILURE(StartFresh(publisher));
    publisher.HoldSnapshots();
    publisher.SendPayload(payload);
    ASSERT_TRUE(WaitUnsynchronized("a"));
    EXPECT_THAT(ErrorOf("a"), ::testing::HasSubstr(named));
    EXPECT_THAT(ErrorOf("a"), ::testing::HasSubstr("byte"));
    EXPECT_EQ(HitsOf("a", prompt_), Expectation());
    EXPECT_EQ(HitsOf("a", tokens_), Expectation());
    directory_->Stop();
  }
}

}  // namespace
}  // namespace xms::kv_directory
