// Random messages: what the encoder writes comes back; what bit flips make of it never crashes, and is
// never believed to be MessagePack, or not to be, against msgpack-cxx's word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "kv_events/decoder.h"
#include "kv_events/encoder.h"
#include "tests/unit/kv_events/payload.h"
#include "tests/unit/kv_events/vectors.h"

namespace xms::kv_events::test {
namespace {

using Random = std::mt19937_64;

// Of any magnitude, so that every width occurs.
std::uint64_t AnyInteger(Random& random) { return random() >> (random() % 64); }

KvBatch RandomBatch(std::uint32_t block_size, Random& random) {
  KvBatch batch;
  batch.timestamp = static_cast<double>(random() % 2'000'000'000) + 0.25;
  batch.dp_rank = static_cast<std::int32_t>(random() % 3 == 0 ? AnyInteger(random) >> 33 : 0);
  const std::size_t events = random() % 20;
  for (std::size_t i = 0; i < events; ++i) {
    KvEvent event;
    event.first_hash = static_cast<std::uint32_t>(batch.hashes.size());
    event.first_token = static_cast<std::uint32_t>(batch.tokens.size());
    event.scope = random() % 2 == 0 ? EventScope::kDevice : EventScope::kHost;
    switch (random() % 4) {
      case 0:
        event.kind = EventKind::kStore;
        break;
      case 1:
        event.kind = EventKind::kReplica;
        break;
      case 2:
        event.kind = EventKind::kRemove;
        break;
      default:
        event.kind = EventKind::kClear;
        if (random() % 2 == 0) event.scope = EventScope::kAll;
    }
    if (event.kind != EventKind::kClear) {
      event.hash_count = static_cast<std::uint32_t>(1 + random() % (random() % 8 == 0 ? 70 : 5));
      // Distinct, as a store's must be.
      std::uint64_t hash = AnyInteger(random);
      for (std::uint32_t k = 0; k < event.hash_count; ++k) {
        batch.hashes.push_back({hash});
        hash += 1 + AnyInteger(random) / 128;
      }
    }
    if (event.kind == EventKind::kStore) {
      event.token_count = event.hash_count * block_size;
      for (std::uint32_t k = 0; k < event.token_count; ++k) {
        batch.tokens.push_back(static_cast<std::uint32_t>(AnyInteger(random)));
      }
      event.has_parent = random() % 2 == 0;
      if (event.has_parent) event.parent.value = batch.hashes[event.first_hash].value - 1;
    }
    batch.events.push_back(event);
  }
  return batch;
}

DecoderOptions OptionsFor(const KvBatch& batch, std::uint32_t block_size) {
  return {.dp_rank = batch.dp_rank, .block_size = block_size};
}

TEST(KVEventDecoderRandom, ReadsBackWhatTheEncoderWrites) {
  constexpr std::uint64_t kSeed = 20261201;
  Random random(kSeed);
  KvBatch decoded;
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    const std::uint32_t block_size = std::array{1u, 4u, 16u, 128u}[random() % 4];
    const KvBatch batch = RandomBatch(block_size, random);
    const std::byte before{0x5a};
    std::vector<std::byte> bytes(1, before);
    EncodeBatch(batch, block_size, bytes);
    ASSERT_EQ(bytes.front(), before) << "EncodeBatch appends";
    const std::span<const std::byte> payload = std::span(bytes).subspan(1);
    ASSERT_TRUE(ReferenceAccepts(payload.data(), payload.size()));

    const DecoderOptions options = OptionsFor(batch, block_size);
    const DecodeOutcome outcome = DecodeBatch(payload, options, decoded);
    ASSERT_TRUE(outcome.ok()) << Describe(outcome, options, payload.size());
    ASSERT_EQ(BatchFault(decoded, options), "");
    ASSERT_EQ(decoded.timestamp, batch.timestamp);
    ASSERT_THAT(Plain(decoded), testing::ElementsAreArray(Plain(batch)));
  }
}

// What an engine publishes, byte for byte.
TEST(KVEventDecoderRandom, EncoderWritesTheVectorsBytes) {
  for (const char* name :
       {"xllm_store_root_gpu", "xllm_store_child_u64_hash", "xllm_replica_cpu_empty_tokens",
        "xllm_store_cpu_with_tokens", "xllm_remove_gpu", "xllm_remove_cpu", "xllm_all_cleared",
        "xllm_live_full_batch", "xllm_snapshot_empty", "xllm_snapshot_parent_first",
        "xllm_dp_rank_1", "xllm_block_size_128"}) {
    const Vector& vector = VectorNamed(name);
    KvBatch batch;
    ASSERT_TRUE(DecodeBatch(vector.payload, vector.options, batch).ok()) << name;
    std::vector<std::byte> bytes;
    EncodeBatch(batch, vector.options.block_size, bytes);
    EXPECT_EQ(bytes, vector.payload) << name;
  }
}

TEST(KVEventDecoderRandom, EncoderWritesTheShortestForms) {
  for (const std::size_t count : {15, 16, 0xffff, 0x10000}) {
    KvBatch batch;
    batch.events.push_back(
        {.kind = EventKind::kRemove, .hash_count = static_cast<std::uint32_t>(count)});
    Payload hashes;
    for (std::uint64_t i = 0; i < count; ++i) {
      constexpr std::array<std::uint64_t, 10> kEdges = {
          0, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x10000, 0xffffffff, 0x100000000, UINT64_MAX};
      batch.hashes.push_back({kEdges[i % kEdges.size()]});
      hashes.Int(batch.hashes.back().value);
    }
    std::vector<std::byte> bytes;
    EncodeBatch(batch, 4, bytes);
    Payload expected;
    expected.Byte(0x93).Double(0).Byte(0x91).Byte(0x83);
    for (const std::string_view text : {"type", "BlockRemoved", "block_hashes"}) {
      expected.Byte(0xa0 | static_cast<unsigned>(text.size()));
      for (const char letter : text) expected.Byte(static_cast<unsigned char>(letter));
    }
    if (count < 16) {
      expected.Byte(0x90 | static_cast<unsigned>(count));
    } else if (count <= 0xffff) {
      expected.Byte(0xdc).BigEndian(count, 2);
    } else {
      expected.Byte(0xdd).BigEndian(count, 4);
    }
    expected.Append(hashes).Byte(0xa6);
    for (const char letter : std::string_view("medium\xa3gpu")) {
      expected.Byte(static_cast<unsigned char>(letter));
    }
    expected.Int(0);
    EXPECT_TRUE(std::ranges::equal(bytes, expected.bytes())) << count;
  }
}

TEST(KVEventDecoderRandom, EncoderRefusesWhatCannotBePublished) {
  KvBatch batch;
  batch.events.push_back({.kind = EventKind::kIgnored});
  std::vector<std::byte> bytes;
  EXPECT_DEATH(EncodeBatch(batch, 4, bytes), "");
  batch.events[0] = {.kind = EventKind::kClear, .scope = EventScope::kUnknown};
  EXPECT_DEATH(EncodeBatch(batch, 4, bytes), "");
}

// The order of a map's keys carries no meaning, wherever the type stands.
TEST(KVEventDecoderRandom, KeysMayComeInAnyOrder) {
  Random random(5);
  std::vector<Payload> pairs(6);
  pairs[0].Text("type").Text("BlockStored");
  pairs[1].Text("block_hashes").Array(2).Int(7).Int(8);
  pairs[2].Text("parent_block_hash").Int(6);
  pairs[3].Text("token_ids").Array(4).Int(1).Int(300).Int(70'000).Int(4);
  pairs[4].Text("block_size").Int(2);
  pairs[5].Text("medium").Text("cpu");
  std::vector<int> order = {0, 1, 2, 3, 4, 5};
  const DecoderOptions options{.block_size = 2};
  KvBatch batch;
  const PlainEvent expected{"store", "host", "", {7, 8}, 6, {1, 300, 70'000, 4}};
  do {
    Payload payload;
    payload.BatchHead(1).Map(6);
    for (const int index : order) payload.Append(pairs[static_cast<std::size_t>(index)]);
    payload.Int(0);
    const DecodeOutcome outcome = DecodeBatch(payload.bytes(), options, batch);
    ASSERT_TRUE(outcome.ok()) << Describe(outcome, options, payload.size());
    ASSERT_THAT(Plain(batch), testing::ElementsAre(expected)) << testing::PrintToString(order);
  } while (std::ranges::next_permutation(order).found);
}

void Mutate(std::vector<std::byte>& bytes, Random& random) {
  const int changes = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < changes && !bytes.empty(); ++i) {
    const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(random() % bytes.size());
    switch (random() % 8) {
      case 0:
        bytes.erase(at);
        break;
      case 1:
        bytes.insert(at, static_cast<std::byte>(random()));
        break;
      case 2:
        *at = static_cast<std::byte>(random());
        break;
      case 3:
        *at = static_cast<std::byte>(0xc0 + random() % 0x20);
        break;  // another format
      default:
        *at ^= static_cast<std::byte>(1u << (random() % 8));
    }
  }
}

TEST(KVEventDecoderRandom, SurvivesDamageAndAgreesWithTheReference) {
  constexpr std::uint64_t kSeed = 424242;
  Random random(kSeed);
  KvBatch reused;
  GuardedBuffer guarded(1 << 16);
  std::size_t accepted = 0;
  constexpr int kRounds = 60'000;
  for (int round = 0; round < kRounds; ++round) {
    const Vector& vector = AllVectors()[random() % AllVectors().size()];
    std::vector<std::byte> bytes = vector.payload;
    Mutate(bytes, random);
    SCOPED_TRACE(testing::Message()
                 << "seed " << kSeed << " round " << round << " from " << vector.name);
    const auto payload = guarded.Place(bytes);
    const DecodeOutcome outcome = DecodeBatch(payload, vector.options, reused);
    ASSERT_LE(outcome.offset, bytes.size());
    const bool whole = ReferenceAccepts(bytes.data(), bytes.size());
    switch (outcome.code) {
      case DecodeCode::kOk:
        ++accepted;
        ASSERT_EQ(BatchFault(reused, vector.options), "");
        [[fallthrough]];
      case DecodeCode::kDpRankMismatch:
      case DecodeCode::kBlockSizeMismatch:
        ASSERT_TRUE(whole);
        break;
      case DecodeCode::kEmpty:
      case DecodeCode::kTruncated:
      case DecodeCode::kTrailingBytes:
      case DecodeCode::kReservedByte:
        ASSERT_FALSE(whole) << DecodeCodeName(outcome.code) << " at " << outcome.offset;
        break;
      default:
        break;  // Damage of meaning: MessagePack may be whole or not.
    }
    // What was in the batch before makes no difference.
    KvBatch fresh;
    const DecodeOutcome again = DecodeBatch(payload, vector.options, fresh);
    ASSERT_EQ(again.code, outcome.code);
    ASSERT_EQ(again.offset, outcome.offset);
    if (outcome.ok()) {
      ASSERT_EQ(Plain(fresh), Plain(reused));
    }
  }
  // Neither all nor nothing gets through, else the damage above tests little.
  EXPECT_GT(accepted, kRounds / 50);
  EXPECT_LT(accepted, kRounds / 2);
}

TEST(KVEventDecoderRandom, SurvivesNoise) {
  constexpr std::uint64_t kSeed = 1;
  Random random(kSeed);
  KvBatch batch;
  GuardedBuffer guarded(1 << 12);
  for (int round = 0; round < 50'000; ++round) {
    std::vector<std::byte> bytes(random() % 200);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    // A batch's beginning, so that the noise reaches the events.
    const Payload head = Payload().BatchHead(1 + random() % 2);
    std::copy_n(head.bytes().begin(), std::min(bytes.size(), head.size()), bytes.begin());
    const DecodeOutcome outcome = DecodeBatch(guarded.Place(bytes), {}, batch);
    ASSERT_LE(outcome.offset, bytes.size()) << "seed " << kSeed << " round " << round;
    if (outcome.ok()) {
      ASSERT_TRUE(ReferenceAccepts(bytes.data(), bytes.size()))
          << "seed " << kSeed << " round " << round;
    }
  }
}

}  // namespace
}  // namespace xms::kv_events::test
