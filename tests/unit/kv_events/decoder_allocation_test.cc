// What decoding takes from the heap: nothing for a good message once the batch has grown, and never more
// than the bytes that are there can justify. Counts every operator new of this program, so it is one of
// its own.
#include <gtest/gtest.h>

#include <random>

#include "kv_events/decoder.h"
#include "kv_events/encoder.h"
#include "tests/unit/kv_events/counting_new.h"
#include "tests/unit/kv_events/payload.h"
#include "tests/unit/kv_events/vectors.h"

namespace xms::kv_events::test {
namespace {

// A vector that doubles has taken up to twice its final capacity, itself below twice what it holds.
// Per byte of payload: a token of 4 bytes or a hash of 8, or half an event of 32.
constexpr std::size_t kBytesPerPayloadByte = std::size_t{4} * 16;
// One step of growth of hashes and tokens ahead of what has been read.
constexpr std::size_t kHeadStart = std::size_t{4} * 4096 * (8 + 4);

TEST(KVEventDecoderAllocation, NoneOnceTheBatchHasGrown) {
  KvBatch batch;
  for (int round = 0; round < 2; ++round) {
    for (const Vector& vector : AllVectors()) {
      if (!vector.valid) continue;
      DecodeOutcome outcome;
      const Taken taken =
          During([&] { outcome = DecodeBatch(vector.payload, vector.options, batch); });
      ASSERT_TRUE(outcome.ok()) << vector.name;
      if (round == 1) {
        EXPECT_EQ(taken.allocations, 0u) << vector.name;
      }
    }
  }
}

// Long events too: those whose hashes are looked up in a table and those whose hashes are sorted.
TEST(KVEventDecoderAllocation, NoneForLongEvents) {
  std::mt19937_64 random(3);
  for (const std::uint32_t blocks : {16u, 1'000u, 10'000u}) {
    KvBatch source;
    source.events.push_back(
        {.kind = EventKind::kStore, .hash_count = blocks, .token_count = 16 * blocks});
    for (std::uint32_t i = 0; i < blocks; ++i) source.hashes.push_back({random()});
    for (std::uint32_t i = 0; i < 16 * blocks; ++i) {
      source.tokens.push_back(static_cast<std::uint32_t>(random() % 151'936));
    }
    std::vector<std::byte> payload;
    EncodeBatch(source, 16, payload);
    const DecoderOptions options{.block_size = 16};
    KvBatch batch;
    ASSERT_TRUE(DecodeBatch(payload, options, batch).ok());
    DecodeOutcome outcome;
    const Taken taken = During([&] { outcome = DecodeBatch(payload, options, batch); });
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(taken.allocations, 0u) << blocks;
    EXPECT_EQ(batch.hashes, source.hashes);
    EXPECT_EQ(batch.tokens, source.tokens);
  }
}

TEST(KVEventDecoderAllocation, RejectionsTakeNoMoreThanTheirBytesAllow) {
  for (const Vector& vector : AllVectors()) {
    const Taken taken = During([&] {
      KvBatch batch;
      (void)DecodeBatch(vector.payload, vector.options, batch);
    });
    EXPECT_LE(taken.bytes, kHeadStart + kBytesPerPayloadByte * vector.payload.size())
        << vector.name;
  }
}

// B4
// A megabyte is there, so the count is possible; but the first element is wrong.
TEST(KVEventDecoderAllocation, ADeclaredCountTakesNothing) {
  constexpr std::uint32_t kDeclared = 1 << 20;
  for (const char* key : {"token_ids", "block_hashes", "extra_keys", "unknown"}) {
    Payload payload;
    payload.BatchHead(1).Map(2).Text("type").Text("BlockStored").Text(key).Array(kDeclared);
    payload.Byte(0xc1);
    for (std::uint32_t i = 0; i < kDeclared; ++i) payload.Byte(0);
    DecodeOutcome outcome;
    const Taken taken = During([&] {
      KvBatch batch;
      outcome = DecodeBatch(payload.bytes(), {}, batch);
    });
    EXPECT_EQ(outcome.code, DecodeCode::kReservedByte) << key;
    EXPECT_LE(taken.bytes, kHeadStart) << key;
  }
  // The same for the number of events.
  Payload payload;
  payload.BatchHead(kDeclared).Byte(0xc1);
  for (std::uint32_t i = 0; i < kDeclared; ++i) payload.Byte(0);
  const Taken taken = During([&] {
    KvBatch batch;
    EXPECT_EQ(DecodeBatch(payload.bytes(), {}, batch).code, DecodeCode::kReservedByte);
  });
  EXPECT_LE(taken.bytes, kHeadStart);
}

// As many events, tokens and hashes as a megabyte can hold: memory in proportion, not beyond.
TEST(KVEventDecoderAllocation, TheDensestMessagesStayInProportion) {
  constexpr std::uint32_t kCount = 1 << 19;
  std::vector<Payload> dense(3);
  dense[0].BatchHead(kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) dense[0].Byte(0x91).Byte(0xa0);  // an unknown type ""
  dense[0].Int(0);
  dense[1].BatchHead(1).Map(3).Text("type").Text("BlockStored").Text("medium").Text("ssd");
  dense[1].Text("block_hashes").Array(kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) dense[1].Byte(1);
  dense[1].Int(0);
  dense[2].BatchHead(1).Map(4).Text("type").Text("BlockStored").Text("medium").Text("ssd");
  dense[2].Text("block_hashes").Array(0).Text("token_ids").Array(kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) dense[2].Byte(1);
  dense[2].Int(0);
  for (const Payload& payload : dense) {
    const Taken taken = During([&] {
      KvBatch batch;
      EXPECT_TRUE(DecodeBatch(payload.bytes(), {}, batch).ok());
    });
    EXPECT_LE(taken.bytes, kHeadStart + kBytesPerPayloadByte * payload.size());
  }
}

}  // namespace
}  // namespace xms::kv_events::test
