// The vectors: what they state, every strict prefix of them, and what msgpack-cxx thinks of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "kv_events/decoder.h"
#include "tests/unit/kv_events/vectors.h"

namespace xms::kv_events::test {
namespace {

// B2
TEST(KVEventDecoderVectors, ValidOnesDecodeToTheStatedEvents) {
  KvBatch batch;  // One for all: nothing of a message may be left in the next one.
  int seen = 0;
  for (const Vector& vector : AllVectors()) {
    if (!vector.valid) continue;
    SCOPED_TRACE(vector.name);
    ++seen;
    const DecodeOutcome outcome = DecodeBatch(vector.payload, vector.options, batch);
    ASSERT_TRUE(outcome.ok()) << DecodeCodeName(outcome.code) << " at " << outcome.offset;
    EXPECT_EQ(batch.timestamp, vector.timestamp);
    EXPECT_EQ(batch.dp_rank, vector.dp_rank.value_or(vector.options.dp_rank));
    EXPECT_EQ(BatchFault(batch, vector.options), "");
    EXPECT_THAT(Plain(batch), testing::ElementsAreArray(vector.events));
  }
  EXPECT_GE(seen, 46);
}

// B2
TEST(KVEventDecoderVectors, MalformedOnesAreRejectedByName) {
  KvBatch batch;
  std::set<std::string> codes;
  for (const Vector& vector : AllVectors()) {
    if (vector.valid) continue;
    SCOPED_TRACE(vector.name);
    codes.insert(vector.error);
    const DecodeOutcome outcome = DecodeBatch(vector.payload, vector.options, batch);
    EXPECT_EQ(DecodeCodeName(outcome.code), vector.error);
    EXPECT_LE(outcome.offset, vector.payload.size());
  }
  // Every way to fail has a vector.
  for (int code = 1; code <= static_cast<int>(DecodeCode::kBlockSizeMismatch); ++code) {
    EXPECT_TRUE(codes.contains(std::string(DecodeCodeName(static_cast<DecodeCode>(code)))))
        << DecodeCodeName(static_cast<DecodeCode>(code));
  }
}

// Whatever is cut off, the message is recognised as cut, and not one byte behind it is touched.
TEST(KVEventDecoderVectors, EveryStrictPrefixIsTruncated) {
  GuardedBuffer guarded(1 << 16);
  KvBatch batch;
  std::size_t prefixes = 0;
  for (const Vector& vector : AllVectors()) {
    if (!vector.valid) continue;
    for (std::size_t length = 0; length < vector.payload.size(); ++length) {
      const std::span<const std::byte> prefix(vector.payload.data(), length);
      const DecodeOutcome outcome = DecodeBatch(guarded.Place(prefix), vector.options, batch);
      ASSERT_EQ(outcome.code, length == 0 ? DecodeCode::kEmpty : DecodeCode::kTruncated)
          << vector.name << " cut to " << length << ": " << DecodeCodeName(outcome.code);
      ASSERT_LE(outcome.offset, length) << vector.name;
      ++prefixes;
    }
  }
  EXPECT_GT(prefixes, 6000u);
}

// The same from an allocation of exactly the prefix's size, which AddressSanitizer fences on both
// sides, and for the malformed ones too.
TEST(KVEventDecoderVectors, PrefixesInTheirOwnAllocationStayInside) {
  KvBatch batch;
  for (const Vector& vector : AllVectors()) {
    for (std::size_t length = 0; length <= vector.payload.size(); ++length) {
      const auto own = std::make_unique<std::byte[]>(length);
      std::copy_n(vector.payload.begin(), length, own.get());
      const DecodeOutcome outcome = DecodeBatch({own.get(), length}, vector.options, batch);
      ASSERT_LE(outcome.offset, length) << vector.name;
      if (vector.valid) {
        ASSERT_EQ(outcome.ok(), length == vector.payload.size())
            << vector.name << " cut to " << length << ": " << DecodeCodeName(outcome.code);
      }
    }
  }
}

TEST(KVEventDecoderVectors, AByteTooManyIsTrailing) {
  KvBatch batch;
  for (const Vector& vector : AllVectors()) {
    if (!vector.valid) continue;
    for (const std::byte extra : {std::byte{0xc0}, std::byte{0x00}, std::byte{0xc1}}) {
      std::vector<std::byte> longer = vector.payload;
      longer.push_back(extra);
      const DecodeOutcome outcome = DecodeBatch(longer, vector.options, batch);
      EXPECT_EQ(outcome.code, DecodeCode::kTrailingBytes) << vector.name;
      EXPECT_EQ(outcome.offset, vector.payload.size()) << vector.name;
    }
  }
}

// The four codes that speak of MessagePack itself, and no other, are msgpack-cxx's verdict too.
TEST(KVEventDecoderVectors, ReferenceRejectsExactlyTheStructurallyBroken) {
  const std::set<std::string> structural = {"empty", "truncated", "trailing_bytes",
                                            "reserved_byte"};
  for (const Vector& vector : AllVectors()) {
    EXPECT_EQ(ReferenceAccepts(vector.payload.data(), vector.payload.size()),
              !structural.contains(vector.error))
        << vector.name;
  }
}

}  // namespace
}  // namespace xms::kv_events::test
