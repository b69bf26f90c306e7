// DecodeBatch: event bytes to KvBatch, tolerant of every legal spelling and gullible about none.
//
// Place       Called by kv_directory for live messages and snapshot replies. Pure; knows no socket.
// Threads     A free function; any thread. `out` belongs to the caller.
// Accepts     A batch as array or map; events as maps in any key order, or positional arrays; every
//             legal width and header form. README.md lists what is read, and how doubts are settled.
// Bounds      Work and memory are proportional to the bytes that are there: no declared length is
//             believed before it is compared with what is left; nesting is limited, without
//             recursion (B4). Records take at most eight times the payload's bytes (one-byte hashes;
//             real ones take one), and the arrays that hold them grow by doubling. Payloads are below
//             4 GiB: positions in a KvBatch have 32 bits.
// Failure     A rejected message leaves `out` unspecified and must change nothing but the stream's
//             state (B3). The first damage in byte order is reported; damage outranks a mismatch.
//             Never throws except std::bad_alloc.
// Cost        No allocation on the good path once `out` has grown.
// Proof       KVEventDecoder*, tests/data/kv-event-vectors.json, every strict prefix of every valid
//             vector, fuzz/kv_events, bench/kv_events.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kv_events/kv_batch.h"

namespace xms::kv_events {

// Who publishes; decides the few points where engines differ.
enum class Dialect : std::uint8_t { kXllm, kVllm, kSglang, kTrtLlm, kMooncake };

// The names of media that are known, in any case; none is Device too.
inline constexpr std::array<std::string_view, 4> kDeviceMedia = {"gpu", "device", "npu", "hbm"};
inline constexpr std::array<std::string_view, 4> kHostMedia = {"cpu", "host", "cpu_pinned", "dram"};

struct DecoderOptions {
  Dialect dialect = Dialect::kXllm;
  std::int32_t dp_rank = 0;        // the stream's rank; a batch of another rank is refused
  std::uint32_t block_size = 128;  // tokens per block that stores must have
  bool strict = false;             // refuse unknown event types instead of counting them
};

enum class DecodeCode : std::uint8_t {
  kOk,
  // Damage.
  kEmpty,
  kTruncated,
  kTrailingBytes,
  kReservedByte,
  kDepthExceeded,
  kWrongType,
  kIntOutOfRange,
  kBadHash,
  kDuplicateKey,
  kBadEventTag,
  kMissingField,
  kBatchTooShort,
  kTokenCount,
  kSelfReference,
  kBadTimestamp,
  kInvalidUtf8,
  kUnknownEventType,
  // Mismatch with the configuration.
  kDpRankMismatch,
  kBlockSizeMismatch,
};
// The code's name as in the vectors, e.g. "trailing_bytes". Static storage.
std::string_view DecodeCodeName(DecodeCode code);

struct DecodeOutcome {
  DecodeCode code = DecodeCode::kOk;
  std::size_t offset = 0;      // byte at which the message stopped making sense
  std::int64_t published = 0;  // mismatch: the rank (-1: none) or block size that was published
  bool ok() const { return code == DecodeCode::kOk; }
};

[[nodiscard]] DecodeOutcome DecodeBatch(std::span<const std::byte> payload,
                                        const DecoderOptions& options, KvBatch& out);

// One sentence for an operator: "block_size 64 published, 128 configured", "truncated at byte 41 of
// 115".
std::string Describe(const DecodeOutcome& outcome, const DecoderOptions& options,
                     std::size_t payload_bytes);

}  // namespace xms::kv_events
