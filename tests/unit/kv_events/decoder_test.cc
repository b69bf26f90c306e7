// What the vectors cannot state: fields beside the content, sentences, sizes.
#include "kv_events/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kv_events/encoder.h"
#include "tests/unit/kv_events/payload.h"
#include "tests/unit/kv_events/vectors.h"

namespace xms::kv_events::test {
namespace {

constexpr std::uint64_t kBig = 0x1122334455667788;

DecodeOutcome Decode(const Payload& payload, const DecoderOptions& options, KvBatch& batch) {
  return DecodeBatch(payload.bytes(), options, batch);
}

KvBatch DecodeVector(const std::string& name) {
  const Vector& vector = VectorNamed(name);
  KvBatch batch;
  const DecodeOutcome outcome = DecodeBatch(vector.payload, vector.options, batch);
  EXPECT_TRUE(outcome.ok()) << name << ": " << DecodeCodeName(outcome.code);
  return batch;
}

std::string DescribeVector(const std::string& name) {
  const Vector& vector = VectorNamed(name);
  KvBatch batch;
  const DecodeOutcome outcome = DecodeBatch(vector.payload, vector.options, batch);
  return Describe(outcome, vector.options, vector.payload.size());
}

TEST(KVEventDecoder, IgnoredStoreKeepsWhatMakesItOpaque) {
  const KvBatch batch = DecodeVector("vllm_map_partial_block");
  ASSERT_EQ(batch.events.size(), 1u);
  const KvEvent& event = batch.events[0];
  EXPECT_TRUE(event.ignored_store);
  EXPECT_EQ(event.reason, IgnoreReason::kGeometry);
  EXPECT_EQ(event.scope, EventScope::kDevice);
  EXPECT_TRUE(event.has_parent);
  EXPECT_EQ(event.parent.value, kBig);
  EXPECT_TRUE(batch.tokens.empty()) << "tokens of what is not indexed are not kept";
}

TEST(KVEventDecoder, IgnoredRemovalIsNoStore) {
  const KvBatch batch = DecodeVector("xllm_unknown_medium_ignored");
  ASSERT_EQ(batch.events.size(), 2u);
  EXPECT_TRUE(batch.events[0].ignored_store);
  EXPECT_FALSE(batch.events[1].ignored_store);
  EXPECT_EQ(batch.events[0].scope, EventScope::kUnknown);
  EXPECT_EQ(batch.events[1].scope, EventScope::kUnknown);
}

TEST(KVEventDecoder, UnknownTypeNamesNoHashes) {
  const KvBatch batch = DecodeVector("xllm_type_last_unknown");
  ASSERT_EQ(batch.events.size(), 2u);
  EXPECT_EQ(batch.events[0].reason, IgnoreReason::kUnknownType);
  EXPECT_FALSE(batch.events[0].ignored_store);
  EXPECT_EQ(batch.events[0].hash_count, 0u);
  EXPECT_FALSE(batch.events[0].has_parent);
}

// What can be said in the fewest bytes must not cost the most memory.
TEST(KVEventDecoder, RecordsTakeAtMostEightTimesTheBytesOfTheMessage) {
  const auto decoded = [](const std::vector<std::string>& events, std::size_t rounds) {
    const std::size_t count = rounds * events.size();
    Payload payload;
    payload.BatchHead(static_cast<std::uint32_t>(count));
    for (std::size_t i = 0; i < rounds; ++i) {
      for (const std::string& event : events) {
        for (const char c : event) payload.Byte(static_cast<unsigned char>(c));
      }
    }
    payload.Int(0);
    KvBatch batch;
    EXPECT_TRUE(DecodeBatch(payload.bytes(), {.block_size = 4}, batch).ok());
    EXPECT_LE(batch.decoded_bytes(), 8 * payload.size()) << events[0];
    std::size_t told = 0;
    for (const KvEvent& event : batch.events) told += 1 + event.repeats;
    EXPECT_EQ(told, count) << "every event is counted";
    return batch.events.size();
  };
  const std::string nameless = "\x91\xa0";
  const std::string x = "\x91\xa1x";
  const std::string empty_store =
      "\x92\xab"
      "BlockStored\x90";
  const std::string clear =
      "\x91\xb0"
      "AllBlocksCleared";
  const std::string removal =
      "\x92\xac"
      "BlockRemoved\x91\x01";
  EXPECT_EQ(decoded({nameless}, 10'000), 1u);
  EXPECT_EQ(decoded({nameless, x}, 10'000), 1u);
  EXPECT_EQ(decoded({nameless, empty_store}, 1'000), 2'000u) << "order is kept";
  EXPECT_EQ(decoded({nameless, clear}, 1'000), 2'000u);
  EXPECT_EQ(decoded({removal}, 1'000), 1'000u);
}

TEST(KVEventDecoder, ReplicaHasNoParent) {
  const KvBatch batch = DecodeVector("xllm_replica_cpu_nil_tokens");
  ASSERT_EQ(batch.events.size(), 1u);
  EXPECT_EQ(batch.events[0].kind, EventKind::kReplica);
  EXPECT_FALSE(batch.events[0].has_parent);
}

TEST(KVEventDecoder, OnlyAnUnscopedClearAtTheFrontIsAFullClear) {
  EXPECT_TRUE(DecodeVector("xllm_live_full_batch").BeginsWithFullClear());
  EXPECT_TRUE(DecodeVector("xllm_all_cleared").BeginsWithFullClear());
  EXPECT_FALSE(DecodeVector("xllm_clear_media").BeginsWithFullClear());
  EXPECT_FALSE(DecodeVector("vllm_map_removed_cleared").BeginsWithFullClear());
  EXPECT_FALSE(DecodeVector("xllm_snapshot_empty").BeginsWithFullClear());
}

TEST(KVEventDecoder, SaysWhereAndWhat) {
  EXPECT_EQ(DescribeVector("xllm_snapshot_empty"), "decoded");
  EXPECT_EQ(DescribeVector("bad_empty_payload"), "empty payload");
  EXPECT_EQ(DescribeVector("bad_truncated_last_byte"), "truncated at byte 114 of 114");
  EXPECT_EQ(DescribeVector("bad_trailing_bytes"),
            "bytes after the end of the batch at byte 115 of 116");
  EXPECT_EQ(DescribeVector("bad_reserved_byte"), "reserved byte c1 at byte 11 of 13");
  EXPECT_EQ(DescribeVector("bad_wrong_dp_rank"), "rank 3 published on the stream of rank 0");
  EXPECT_EQ(DescribeVector("bad_dp_rank_missing_on_rank_1"), "no rank published on the stream of rank 1");
  EXPECT_EQ(DescribeVector("bad_block_size_mismatch"), "block_size 8 published, 4 configured");
  EXPECT_EQ(DescribeVector("bad_depth_bomb"), "nested more than 16 levels deep at byte 49 of 238");
  EXPECT_EQ(DescribeVector("bad_medium_integer"), "value of a wrong type at byte 52 of 54");
  EXPECT_EQ(DescribeVector("bad_token_overflow"), "integer out of range at byte 77 of 110");
}

// A sentence of its own for every code, so that no two faults look the same to an operator.
TEST(KVEventDecoder, EveryCodeHasItsOwnNameAndSentence) {
  std::set<std::string> names;
  std::set<std::string> sentences;
  int count = 0;
  for (int code = 0; code <= static_cast<int>(DecodeCode::kBlockSizeMismatch); ++code, ++count) {
    const DecodeOutcome outcome{static_cast<DecodeCode>(code), 41, 64};
    names.insert(std::string(DecodeCodeName(outcome.code)));
    sentences.insert(Describe(outcome, DecoderOptions{}, 115));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(sentences.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(sentences.count("not decodable at byte 41 of 115"), 0u);
}

TEST(KVEventDecoder, OffsetPointsAtTheItemThatIsWrong) {
  const auto offset = [](const std::string& name) {
    const Vector& vector = VectorNamed(name);
    KvBatch batch;
    return DecodeBatch(vector.payload, vector.options, batch).offset;
  };
  EXPECT_EQ(offset("bad_timestamp_string"), 1u);
  EXPECT_EQ(offset("bad_batch_too_short"), 0u);
  EXPECT_EQ(offset("bad_event_empty_array"), 11u);
  // The second block_hashes key, and the same fault when the type comes last.
  EXPECT_EQ(offset("bad_duplicate_map_key"), 90u);
  const Vector& late = VectorNamed("bad_type_last_medium");
  const std::size_t at = offset("bad_type_last_medium");
  EXPECT_EQ(late.payload[at], std::byte{7});
  // A count that cannot be true is refused where it is declared.
  EXPECT_EQ(offset("bad_huge_hash_count"), VectorNamed("bad_huge_hash_count").payload.size() - 17);
}

// B4
TEST(KVEventDecoder, MapOfMorePairsThanBytesIsRefusedAtItsHead) {
  // Three pairs need six bytes; five are left.
  const Payload payload =
      Payload().Array(2).Double(0).Array(1).Byte(0x83).Nil().Nil().Nil().Nil().Nil();
  KvBatch batch;
  const DecodeOutcome outcome = Decode(payload, {}, batch);
  EXPECT_EQ(outcome.code, DecodeCode::kTruncated);
  EXPECT_EQ(outcome.offset, payload.size() - 6);
}

// Two faults in front of the type: the first one in the payload is the one reported.
TEST(KVEventDecoder, ReportsTheFirstOfTheFaultsBeforeTheType) {
  KvBatch batch;
  const auto code = [&](const Payload& pairs) {
    Payload payload;
    payload.BatchHead(1).Map(3).Append(pairs).Text("type").Text("BlockStored").Int(0);
    return Decode(payload, {}, batch).code;
  };
  const Payload medium = Payload().Text("medium").Int(1);
  const Payload tokens = Payload().Text("token_ids").Array(1).Byte(0xff);
  EXPECT_EQ(code(Payload().Append(medium).Append(tokens)), DecodeCode::kWrongType);
  EXPECT_EQ(code(Payload().Append(tokens).Append(medium)), DecodeCode::kIntOutOfRange);
}

TEST(KVEventDecoder, ComparedTextMustBeUtf8) {
  KvBatch batch;
  const auto code = [&](std::string_view text) {
    Payload payload;
    payload.BatchHead(1).Map(3).Text("type").Text("BlockRemoved").Text("block_hashes").Array(0);
    payload.Text("medium").Text(text).Int(0);
    return Decode(payload, {}, batch).code;
  };
  for (const std::string_view text :
       {"", "ssd", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xe1\x80\xbf", "\xed\x9f\xbf",
        "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(code(text), DecodeCode::kOk) << testing::PrintToString(text);
  }
  for (const std::string_view text : {"\x80",
                                      "\xbf",
                                      "\xc0\xaf",
                                      "\xc1\xbf",
                                      "\xc2",
                                      "\xc2\x7f",
                                      "\xc2\xc0",
                                      "\xe0\x9f\xbf",
                                      "\xe1\x80",
                                      "\xe1\x80\x28",
                                      "\xed\xa0\x80",
                                      "\xed\xbf\xbf",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf0\x90\x80\x28",
                                      "\xf0\x90\x28\x80",
                                      "\xf0\x90\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "ssd\xff",
                                      "\xe2\x82"}) {
    EXPECT_EQ(code(text), DecodeCode::kInvalidUtf8) << testing::PrintToString(text);
  }
}

// --- Arrays of tokens, in every mixture of encodings and at every distance from the payload's end.

// Writes the token in a random form that can hold it. `exotic` allows the forms outside the fast loop.
void WriteToken(std::uint32_t token, bool exotic, std::mt19937_64& random, Payload& payload) {
  for (;;) {
    switch (random() % (exotic ? 9 : 4)) {
      case 0:
        if (token < 0x80) return void(payload.Byte(token));
        break;
      case 1:
        if (token <= 0xff) return void(payload.Byte(0xcc).BigEndian(token, 1));
        break;
      case 2:
        if (token <= 0xffff) return void(payload.Byte(0xcd).BigEndian(token, 2));
        break;
      case 3:
        return void(payload.Byte(0xce).BigEndian(token, 4));
      case 4:
        return void(payload.Byte(0xcf).BigEndian(token, 8));
      case 5:
        if (token <= 0x7fff) return void(payload.Byte(0xd1).BigEndian(token, 2));
        break;
      case 6:
        if (token <= 0x7fffffff) return void(payload.Byte(0xd2).BigEndian(token, 4));
        break;
      case 7:
        return void(payload.Byte(0xd3).BigEndian(token, 8));
      default:
        return void(payload.Array(2).Int(token).Int(token));
    }
  }
}

std::uint32_t RandomToken(unsigned range, std::mt19937_64& random) {
  switch (range) {
    case 0:
      return static_cast<std::uint32_t>(random() % 32'000);
    case 1:
      return static_cast<std::uint32_t>(random() % 151'936);
    case 2:
      return static_cast<std::uint32_t>(random() >> (32 + random() % 32));
    default:
      return static_cast<std::uint32_t>(random() % 128);
  }
}

Payload StoreOf(std::span<const std::uint32_t> tokens, bool exotic, std::mt19937_64& random) {
  Payload payload;
  payload.BatchHead(1).Map(4).Text("type").Text("BlockStored");
  payload.Text("block_hashes").Array(static_cast<std::uint32_t>(tokens.size()));
  for (std::size_t i = 0; i < tokens.size(); ++i) payload.Int(random() | 1);
  payload.Text("block_size")
      .Int(1)
      .Text("token_ids")
      .Array(static_cast<std::uint32_t>(tokens.size()));
  for (const std::uint32_t token : tokens) WriteToken(token, exotic, random, payload);
  return payload;
}

TEST(KVEventDecoder, ReadsTokensInEveryMixtureOfForms) {
  constexpr std::uint64_t kSeed = 20261201;
  std::mt19937_64 random(kSeed);
  GuardedBuffer guarded(1 << 20);
  KvBatch batch;
  const DecoderOptions options{.block_size = 1};
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    std::vector<std::uint32_t> tokens(1 + random() % (round % 10 == 0 ? 9000 : 300));
    const unsigned range = random() % 4;
    for (std::uint32_t& token : tokens) token = RandomToken(range, random);
    // The forms change within an array too: minimal ones first, then anything.
    Payload payload = StoreOf(tokens, random() % 4 == 0, random);
    // Without a rank the tokens are the last bytes, and wide reads meet the end of the payload. With
    // a long element in its place the array's own end is what they must respect.
    std::vector<std::byte> bytes(payload.bytes().begin(), payload.bytes().end());
    if (random() % 2 == 0) {
      bytes[4] = std::byte{2};
    } else {
      bytes[4] = std::byte{4};
      payload.Int(0).Array(200);
      for (int i = 0; i < 200; ++i) payload.Int(7);
      bytes.insert(bytes.end(), payload.bytes().begin() + static_cast<std::ptrdiff_t>(bytes.size()),
                   payload.bytes().end());
    }
    const DecodeOutcome outcome = DecodeBatch(guarded.Place(bytes), options, batch);
    ASSERT_TRUE(outcome.ok()) << Describe(outcome, options, bytes.size());
    ASSERT_EQ(batch.tokens, tokens);
  }
}

// Runs of 3-byte tokens with something else at each place: the short way is left and found again.
TEST(KVEventDecoder, FindsTheOddTokenAmongShortOnes) {
  std::mt19937_64 random(7);
  KvBatch batch;
  const DecoderOptions options{.block_size = 1};
  for (std::size_t odd = 0; odd < 400; ++odd) {
    for (const std::uint32_t value : {5u, 200u, 70'000u}) {
      std::vector<std::uint32_t> tokens(400, 1000);
      tokens[odd] = value;
      Payload payload;
      payload.BatchHead(1).Map(4).Text("type").Text("BlockStored").Text("block_hashes").Array(400);
      for (std::uint64_t i = 0; i < 400; ++i) payload.Int(i + 1);
      payload.Text("block_size").Int(1).Text("token_ids").Array(400);
      for (const std::uint32_t token : tokens) payload.Int(token);
      payload.Int(0);
      const DecodeOutcome outcome = Decode(payload, options, batch);
      ASSERT_TRUE(outcome.ok()) << odd << ": " << Describe(outcome, options, payload.size());
      ASSERT_EQ(batch.tokens, tokens) << odd;
    }
  }
}

// Mixed encodings, and one token in a form that the fast loop does not know, at each place.
TEST(KVEventDecoder, FindsTheOddFormAmongMixedOnes) {
  constexpr std::uint64_t kSeed = 11;
  std::mt19937_64 random(kSeed);
  KvBatch batch;
  const DecoderOptions options{.block_size = 1};
  std::vector<std::uint32_t> tokens(300);
  for (std::uint32_t& token : tokens) token = RandomToken(2, random);
  for (std::size_t odd = 0; odd < tokens.size(); ++odd) {
    for (const bool pair : {false, true}) {
      Payload payload;
      payload.BatchHead(1).Map(4).Text("type").Text("BlockStored").Text("block_hashes").Array(300);
      for (std::uint64_t i = 0; i < 300; ++i) payload.Int(i + 1);
      payload.Text("block_size").Int(1).Text("token_ids").Array(300);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (i != odd) {
          payload.Int(tokens[i]);
        } else if (pair) {
          payload.Array(2).Int(tokens[i]).Nil();
        } else {
          payload.Byte(0xcf).BigEndian(tokens[i], 8);
        }
      }
      payload.Int(0);
      const DecodeOutcome outcome = Decode(payload, options, batch);
      ASSERT_TRUE(outcome.ok()) << "seed " << kSeed << " place " << odd << ": "
                                << Describe(outcome, options, payload.size());
      ASSERT_EQ(batch.tokens, tokens) << "seed " << kSeed << " place " << odd;
    }
  }
}

// A token that is none, at each place of a long array: found there, by name, whatever loop meets it.
TEST(KVEventDecoder, FindsTheBadTokenAtEachPlace) {
  constexpr std::uint64_t kSeed = 99;
  KvBatch batch;
  const DecoderOptions options{.block_size = 1};
  struct Fault {
    Payload bytes;
    DecodeCode code;
  };
  const std::vector<Fault> faults = {
      {Payload().Nil(), DecodeCode::kWrongType},
      {Payload().Byte(0xff), DecodeCode::kIntOutOfRange},
      {Payload().Byte(0xc1), DecodeCode::kReservedByte},
      {Payload().Byte(0xcf).BigEndian(std::uint64_t{1} << 32, 8), DecodeCode::kIntOutOfRange},
      {Payload().Byte(0xca).BigEndian(0, 4), DecodeCode::kWrongType},
      {Payload().Byte(0x80), DecodeCode::kWrongType},
  };
  for (const unsigned range : {0u, 1u}) {
    std::mt19937_64 random(kSeed);
    std::vector<std::uint32_t> tokens(300);
    for (std::uint32_t& token : tokens) token = RandomToken(range, random);
    for (std::size_t place = 0; place < tokens.size(); ++place) {
      for (const Fault& fault : faults) {
        Payload payload;
        payload.BatchHead(1).Map(3).Text("type").Text("BlockStored").Text("token_ids").Array(300);
        std::size_t at = 0;
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          if (i == place) at = payload.size();
          if (i == place) {
            payload.Append(fault.bytes);
          } else {
            payload.Int(tokens[i]);
          }
        }
        payload.Text("block_hashes").Array(0).Int(0);
        const DecodeOutcome outcome = Decode(payload, options, batch);
        ASSERT_EQ(outcome.code, fault.code) << "seed " << kSeed << " place " << place;
        ASSERT_EQ(outcome.offset, at) << "seed " << kSeed << " place " << place;
      }
    }
  }
}

// --- Repeated hashes: a chain may name a block once, however long it is.

Payload ReplicaOf(std::span<const std::uint64_t> hashes) {
  Payload payload;
  payload.BatchHead(1).Map(2).Text("type").Text("BlockStored").Text("block_hashes");
  payload.Array(static_cast<std::uint32_t>(hashes.size()));
  for (const std::uint64_t hash : hashes) payload.Int(hash);
  payload.Int(0);
  return payload;
}

// Multiplicative inverse modulo 2^64, by Newton's iteration.
std::uint64_t Inverse(std::uint64_t odd) {
  std::uint64_t inverse = odd;
  for (int i = 0; i < 6; ++i) inverse *= 2 - odd * inverse;
  return inverse;
}

class KVEventDecoderRepeats : public testing::TestWithParam<std::size_t> {
 protected:
  void ExpectFoundWhereverItIs(std::vector<std::uint64_t> hashes, const std::string& kind) {
    KvBatch batch;
    const DecodeOutcome distinct = Decode(ReplicaOf(hashes), {}, batch);
    ASSERT_EQ(distinct.code, DecodeCode::kOk) << kind << " " << hashes.size();
    ASSERT_EQ(batch.hashes.size(), hashes.size());
    std::mt19937_64 random(hashes.size());
    for (int round = 0; round < 20; ++round) {
      std::vector<std::uint64_t> repeated = hashes;
      const std::size_t from = random() % hashes.size();
      const std::size_t to = (from + 1 + random() % (hashes.size() - 1)) % hashes.size();
      repeated[to] = repeated[from];
      const DecodeOutcome outcome = Decode(ReplicaOf(repeated), {}, batch);
      ASSERT_EQ(outcome.code, DecodeCode::kSelfReference)
          << kind << " of " << hashes.size() << ": " << from << " and " << to;
    }
  }
};

TEST_P(KVEventDecoderRepeats, AreFoundAmongRandomHashes) {
  std::mt19937_64 random(GetParam());
  std::vector<std::uint64_t> hashes(GetParam());
  for (std::uint64_t& hash : hashes) hash = random();
  ExpectFoundWhereverItIs(hashes, "random");
}

TEST_P(KVEventDecoderRepeats, AreFoundAmongSmallIntegers) {
  std::vector<std::uint64_t> hashes(GetParam());
  std::iota(hashes.begin(), hashes.end(), 0);
  ExpectFoundWhereverItIs(hashes, "consecutive");
}

// Hashes that fall into one slot of the table: the answer stays right, by the way of sorting.
TEST_P(KVEventDecoderRepeats, AreFoundAmongHashesChosenToCollide) {
  const std::uint64_t inverse = Inverse(0x9e3779b97f4a7c15u);
  ASSERT_EQ(inverse * 0x9e3779b97f4a7c15u, 1u);
  std::vector<std::uint64_t> hashes(GetParam());
  for (std::size_t i = 0; i < hashes.size(); ++i) hashes[i] = i * inverse;
  ExpectFoundWhereverItIs(hashes, "colliding in the first slot");
  for (std::size_t i = 0; i < hashes.size(); ++i) hashes[i] = ~i * inverse;
  ExpectFoundWhereverItIs(hashes, "colliding in the last slot");
}

INSTANTIATE_TEST_SUITE_P(, KVEventDecoderRepeats,
                         testing::Values(2, 8, 9, 64, 129, 2047, 2048, 2049, 20'000));

}  // namespace
}  // namespace xms::kv_events::test
