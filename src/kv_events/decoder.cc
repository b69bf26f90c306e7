#include "kv_events/decoder.h"

#include <cmath>
#include <optional>
#include <string>

#include "kv_events/internal/event_decoder.h"
#include "kv_events/internal/reader.h"

namespace xms::kv_events {
namespace {

using internal::EventDecoder;
using internal::Item;
using internal::ItemKind;
using internal::Reader;

// What DecodeOutcome::published says of a batch without a rank; no published rank is negative.
constexpr std::int64_t kNoRank = -1;

// Open containers around an element of the batch.
constexpr unsigned kElementDepth = 1;

class BatchDecoder {
 public:
  BatchDecoder(std::span<const std::byte> payload, const DecoderOptions& options, KvBatch& batch)
      : reader_(payload), options_(options), batch_(batch), event_(reader_, options, batch) {}

  DecodeOutcome Run() {
    batch_.Clear();
    if (reader_.left() == 0) return {DecodeCode::kEmpty, 0, 0};
    if (!DecodeRoot()) return {reader_.failure().code, reader_.failure().offset, 0};
    if (reader_.left() != 0) return {DecodeCode::kTrailingBytes, reader_.offset(), 0};

    // A mismatch is believed only of a message that is otherwise whole.
    const bool rank_needed = options_.dialect == Dialect::kXllm && options_.dp_rank != 0;
    if (rank_ ? *rank_ != options_.dp_rank : rank_needed) {
      return {DecodeCode::kDpRankMismatch, rank_ ? rank_at_ : 0, rank_.value_or(kNoRank)};
    }
    if (const auto& mismatch = event_.block_size_mismatch()) {
      return {DecodeCode::kBlockSizeMismatch, mismatch->offset, mismatch->published};
    }
    batch_.dp_rank = options_.dp_rank;
    return {};
  }

 private:
  bool DecodeRoot() {
    Item head;
    if (!reader_.Next(head)) return false;
    if (head.kind == ItemKind::kMap) return DecodeRootMap(head.value);
    if (head.kind != ItemKind::kArray) return reader_.Fail(DecodeCode::kWrongType, 0);
    if (head.value < 2) return reader_.Fail(DecodeCode::kBatchTooShort, 0);
    if (!DecodeTimestamp() || !DecodeEvents()) return false;
    if (head.value > 2 && !DecodeRank()) return false;
    for (std::uint64_t i = 3; i < head.value; ++i) {
      if (!reader_.Skip(kElementDepth)) return false;
    }
    return true;
  }

  // A batch as a map occurs in one revision of vLLM's publisher.
  bool DecodeRootMap(std::uint64_t pairs) {
    bool has_timestamp = false;
    bool has_events = false;
    bool has_rank = false;
    // The first time it is met; a second time parsers disagree on which one counts.
    const auto first = [&](bool& seen, std::size_t at) {
      if (seen) return reader_.Fail(DecodeCode::kDuplicateKey, at);
      return seen = true;
    };
    for (; pairs != 0; --pairs) {
      const std::size_t at = reader_.offset();
      Item name;
      if (!reader_.Next(name)) return false;
      if (name.kind != ItemKind::kString) return reader_.Fail(DecodeCode::kWrongType, at);
      bool ok = false;
      if (name.text() == "ts") {
        ok = first(has_timestamp, at) && DecodeTimestamp();
      } else if (name.text() == "events") {
        ok = first(has_events, at) && DecodeEvents();
      } else if (name.text() == "data_parallel_rank") {
        ok = first(has_rank, at) && DecodeRank();
      } else {
        ok = reader_.Skip(kElementDepth);
      }
      if (!ok) return false;
    }
    return (has_timestamp && has_events) || reader_.Fail(DecodeCode::kMissingField, 0);
  }

  bool DecodeTimestamp() {
    const std::size_t at = reader_.offset();
    Item item;
    if (!reader_.Next(item)) return false;
    switch (item.kind) {
      case ItemKind::kUnsigned:
        batch_.timestamp = static_cast<double>(item.value);
        return true;
      case ItemKind::kNegative:
        return reader_.Fail(DecodeCode::kBadTimestamp, at);
      case ItemKind::kFloat:
        if (!std::isfinite(item.number) || item.number < 0) {
          return reader_.Fail(DecodeCode::kBadTimestamp, at);
        }
        batch_.timestamp = item.number;
        return true;
      default:
        return reader_.Fail(DecodeCode::kWrongType, at);
    }
  }

  bool DecodeEvents() {
    const std::size_t at = reader_.offset();
    Item head;
    if (!reader_.Next(head)) return false;
    if (head.kind != ItemKind::kArray) return reader_.Fail(DecodeCode::kWrongType, at);
    // Nothing is reserved: an event takes a byte in the declared count and 40 in memory.
    for (std::uint64_t i = 0; i < head.value; ++i) {
      if (!event_.Decode()) return false;
    }
    return true;
  }

  bool DecodeRank() {
    rank_at_ = reader_.offset();
    Item item;
    if (!reader_.Next(item)) return false;
    if (item.kind == ItemKind::kNil) return true;
    if (!item.is_integer()) return reader_.Fail(DecodeCode::kWrongType, rank_at_);
    if (item.kind == ItemKind::kNegative || item.value > INT32_MAX) {
      return reader_.Fail(DecodeCode::kIntOutOfRange, rank_at_);
    }
    rank_ = static_cast<std::int64_t>(item.value);
    return true;
  }

  Reader reader_;
  const DecoderOptions& options_;
  KvBatch& batch_;
  EventDecoder event_;
  std::optional<std::int64_t> rank_;
  std::size_t rank_at_ = 0;
};

// What is wrong, as the beginning of "… at byte 41 of 115".
std::string_view Complaint(DecodeCode code) {
  switch (code) {
    case DecodeCode::kTruncated:
      return "truncated";
    case DecodeCode::kTrailingBytes:
      return "bytes after the end of the batch";
    case DecodeCode::kReservedByte:
      return "reserved byte c1";
    case DecodeCode::kDepthExceeded:
      return "nested more than 16 levels deep";
    case DecodeCode::kWrongType:
      return "value of a wrong type";
    case DecodeCode::kIntOutOfRange:
      return "integer out of range";
    case DecodeCode::kBadHash:
      return "block hash of fewer than 8 bytes";
    case DecodeCode::kDuplicateKey:
      return "key given twice";
    case DecodeCode::kBadEventTag:
      return "event without a type";
    case DecodeCode::kMissingField:
      return "required field missing in the map or event";
    case DecodeCode::kBatchTooShort:
      return "batch of fewer than 2 elements";
    case DecodeCode::kTokenCount:
      return "token_ids do not make up the blocks of the store";
    case DecodeCode::kSelfReference:
      return "block that is its own ancestor in the store";
    case DecodeCode::kBadTimestamp:
      return "timestamp that is negative or not finite";
    case DecodeCode::kInvalidUtf8:
      return "text that is not UTF-8";
    case DecodeCode::kUnknownEventType:
      return "event of unknown type";
    case DecodeCode::kOk:
    case DecodeCode::kEmpty:
    case DecodeCode::kDpRankMismatch:
    case DecodeCode::kBlockSizeMismatch:
      break;
  }
  return "not decodable";
}

}  // namespace

std::string_view DecodeCodeName(DecodeCode code) {
  switch (code) {
    case DecodeCode::kOk:
      return "ok";
    case DecodeCode::kEmpty:
      return "empty";
    case DecodeCode::kTruncated:
      return "truncated";
    case DecodeCode::kTrailingBytes:
      return "trailing_bytes";
    case DecodeCode::kReservedByte:
      return "reserved_byte";
    case DecodeCode::kDepthExceeded:
      return "depth_exceeded";
    case DecodeCode::kWrongType:
      return "wrong_type";
    case DecodeCode::kIntOutOfRange:
      return "int_out_of_range";
    case DecodeCode::kBadHash:
      return "bad_hash";
    case DecodeCode::kDuplicateKey:
      return "duplicate_key";
    case DecodeCode::kBadEventTag:
      return "bad_event_tag";
    case DecodeCode::kMissingField:
      return "missing_field";
    case DecodeCode::kBatchTooShort:
      return "batch_too_short";
    case DecodeCode::kTokenCount:
      return "token_count";
    case DecodeCode::kSelfReference:
      return "self_reference";
    case DecodeCode::kBadTimestamp:
      return "bad_timestamp";
    case DecodeCode::kInvalidUtf8:
      return "invalid_utf8";
    case DecodeCode::kUnknownEventType:
      return "unknown_event_type";
    case DecodeCode::kDpRankMismatch:
      return "dp_rank_mismatch";
    case DecodeCode::kBlockSizeMismatch:
      return "block_size_mismatch";
  }
  return "unknown";
}

DecodeOutcome DecodeBatch(std::span<const std::byte> payload, const DecoderOptions& options,
                          KvBatch& out) {
  return BatchDecoder(payload, options, out).Run();
}

std::string Describe(const DecodeOutcome& outcome, const DecoderOptions& options,
                     std::size_t payload_bytes) {
  switch (outcome.code) {
    case DecodeCode::kOk:
      return "decoded";
    case DecodeCode::kEmpty:
      return "empty payload";
    case DecodeCode::kDpRankMismatch:
      return (outcome.published == kNoRank ? std::string("no rank")
                                           : "rank " + std::to_string(outcome.published)) +
             " published on the stream of rank " + std::to_string(options.dp_rank);
    case DecodeCode::kBlockSizeMismatch:
      return "block_size " + std::to_string(outcome.published) + " published, " +
             std::to_string(options.block_size) + " configured";
    default:
      return std::string(Complaint(outcome.code)) + " at byte " + std::to_string(outcome.offset) +
             " of " + std::to_string(payload_bytes);
  }
}

}  // namespace xms::kv_events
