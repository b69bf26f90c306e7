// DecodeBatch against msgpack-cxx and against itself.
//
// Input       A byte of options (make_seeds.py writes it), then the payload.
// Holds       Whatever is decoded is whole MessagePack; whatever is rejected as structurally broken is
//             not. A decoded batch lies in order inside its arrays; a store has its tokens. What the
//             encoder can write of it decodes to the same. Nothing is left over from the batch before.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <msgpack.hpp>
#include <span>
#include <vector>

#include "kv_events/decoder.h"
#include "kv_events/encoder.h"

namespace {

using xms::kv_events::DecodeBatch;
using xms::kv_events::DecodeCode;
using xms::kv_events::DecodeOutcome;
using xms::kv_events::DecoderOptions;
using xms::kv_events::Dialect;
using xms::kv_events::EventKind;
using xms::kv_events::EventScope;
using xms::kv_events::KvBatch;
using xms::kv_events::KvEvent;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

DecoderOptions OptionsFrom(std::uint8_t byte) {
  constexpr std::array kDialects = {Dialect::kXllm, Dialect::kVllm, Dialect::kSglang,
                                    Dialect::kTrtLlm, Dialect::kMooncake};
  constexpr std::array<std::uint32_t, 4> kBlockSizes = {4, 1, 16, 128};
  return {.dialect = kDialects[(byte & 7u) % kDialects.size()],
          .dp_rank = byte >> 6,
          .block_size = kBlockSizes[(byte >> 4) & 3u],
          .strict = (byte & 8u) != 0};
}

bool IsWhole(std::span<const std::byte> payload) {
  msgpack::null_visitor visitor;
  std::size_t offset = 0;
  return msgpack::parse(reinterpret_cast<const char*>(payload.data()), payload.size(), offset,
                        visitor) &&
         offset == payload.size();
}

void CheckBatch(const KvBatch& batch, const DecoderOptions& options) {
  std::size_t hashes = 0;
  std::size_t tokens = 0;
  for (const KvEvent& event : batch.events) {
    Check(event.first_hash == hashes && event.first_token == tokens, "events in order");
    hashes += event.hash_count;
    tokens += event.token_count;
    const bool store = event.kind == EventKind::kStore;
    const std::uint64_t due = store ? std::uint64_t{event.hash_count} * options.block_size : 0;
    Check(event.token_count == due, "a store has its tokens, nothing else has any");
  }
  Check(hashes == batch.hashes.size() && tokens == batch.tokens.size(), "nothing without an event");
}

bool SameEvents(const KvBatch& a, const KvBatch& b) {
  const auto same = [](const KvEvent& x, const KvEvent& y) {
    return x.kind == y.kind && x.reason == y.reason && x.scope == y.scope &&
           x.ignored_store == y.ignored_store && x.has_parent == y.has_parent &&
           x.parent == y.parent && x.first_hash == y.first_hash && x.hash_count == y.hash_count &&
           x.first_token == y.first_token && x.token_count == y.token_count &&
           x.repeats == y.repeats;
  };
  return a.timestamp == b.timestamp && a.dp_rank == b.dp_rank && a.hashes == b.hashes &&
         a.tokens == b.tokens && std::ranges::equal(a.events, b.events, same);
}

bool CanBeEncoded(const KvBatch& batch) {
  return std::ranges::all_of(batch.events, [](const KvEvent& event) {
    return event.kind != EventKind::kIgnored && event.scope != EventScope::kUnknown;
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const DecoderOptions options = OptionsFrom(data[0]);
  const std::span<const std::byte> payload(reinterpret_cast<const std::byte*>(data + 1), size - 1);

  static KvBatch reused;
  const DecodeOutcome outcome = DecodeBatch(payload, options, reused);
  KvBatch fresh;
  const DecodeOutcome again = DecodeBatch(payload, options, fresh);
  Check(outcome.code == again.code && outcome.offset == again.offset, "the same outcome twice");
  Check(outcome.offset <= payload.size(), "an offset inside the payload");
  Check(!Describe(outcome, options, payload.size()).empty(), "a sentence for each outcome");

  switch (outcome.code) {
    case DecodeCode::kDpRankMismatch:
    case DecodeCode::kBlockSizeMismatch:
      Check(IsWhole(payload), "a mismatch is believed of whole messages only");
      return 0;
    case DecodeCode::kEmpty:
    case DecodeCode::kTruncated:
    case DecodeCode::kTrailingBytes:
    case DecodeCode::kReservedByte:
      Check(!IsWhole(payload), "what is called broken is broken");
      return 0;
    case DecodeCode::kOk:
      break;
    default:
      return 0;  // Damage of meaning says nothing about the frame.
  }

  Check(IsWhole(payload), "what is decoded is whole");
  Check(reused.decoded_bytes() <= 8 * payload.size(), "records within eight times the bytes");
  CheckBatch(reused, options);
  Check(SameEvents(reused, fresh), "nothing left over from the batch before");
  if (CanBeEncoded(reused)) {
    std::vector<std::byte> bytes;
    EncodeBatch(reused, options.block_size, bytes);
    KvBatch back;
    Check(DecodeBatch(bytes, options, back).ok(), "the encoder writes what can be decoded");
    Check(SameEvents(reused, back), "encoding keeps the events");
  }
  return 0;
}
