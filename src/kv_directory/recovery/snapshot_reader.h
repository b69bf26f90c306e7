// SnapshotReader: the replies of one exchange, put together until the terminator.
//
// Place       StreamMachine, for recovery and reconciliation alike.
// Threads     Externally synchronised; belongs to one stream.
// Ownership   Borrows spec and metrics.
// Source      Requirements D3, D8, D9; kv-event-wire A17, A20, A22: one or more parts of the same
//             watermark, each and their sum within max_message_bytes, then the terminator.
// Cost        Memory: decoded at most eight times the bytes on the wire, up to three times that for
//             the part that is being decoded; at most 4,096 parts.
// Failure     kBad once is kBad for good: error() is a clause for operators. Nothing is applied
//             here, so nothing has to be undone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kv_directory/config.h"
#include "kv_directory/recovery/frames.h"
#include "kv_directory/recovery/stream_metrics.h"
#include "kv_events/decoder.h"
#include "kv_events/kv_batch.h"

namespace xms::kv_directory {

class SnapshotReader {
 public:
  enum class State : std::uint8_t { kMore, kWhole, kBad };

  SnapshotReader(const StreamSpec& spec, const Limits& limits, const StreamMetrics& metrics);

  // Forgets what has been read and gives its memory back.
  void Reset();
  State Add(Message reply);

  // Watermark + 1, so that "nothing published yet" is 0. Set from the first part on.
  std::uint64_t next() const { return next_.value_or(0); }
  const std::vector<kv_events::KvBatch>& parts() const { return parts_; }
  // No part names a block.
  bool IsEmpty() const;

  const std::string& error() const { return error_; }
  ExchangeOutcome outcome() const { return outcome_; }  // kBad: kDamaged or kLimit

 private:
  State Fail(ExchangeOutcome outcome, std::string error);

  const StreamSpec& spec_;
  const Limits& limits_;
  const StreamMetrics& metrics_;
  const kv_events::DecoderOptions decoder_options_;

  std::optional<std::uint64_t> next_;
  std::vector<kv_events::KvBatch> parts_;
  std::uint64_t wire_bytes_ = 0;
  std::string error_;
  ExchangeOutcome outcome_ = ExchangeOutcome::kDamaged;
};

// "`raise` to at least 9600000", two digits of `needed` rounded up; or that no more than `largest` can
// be set, and `otherwise`.
std::string RaiseTo(std::uint64_t needed, std::uint64_t largest, std::string_view raise,
                    std::string_view otherwise);
// "batch of 12 bytes is over max_message_bytes 10; raise it to at least 12".
std::string TooLarge(std::string_view what, std::uint64_t bytes, const Limits& limits);
// The same above the sockets' limit, where libzmq ends the connection and says nothing.
std::string TooLargeToMeasure(std::string_view what, std::string_view endpoint,
                              const Limits& limits);
// Why a payload came to nothing: of `what`, published at `endpoint`. `outcome` is not ok.
std::string CannotBeRead(std::string_view what, const kv_events::DecodeOutcome& outcome,
                         const kv_events::DecoderOptions& options, std::size_t payload_bytes,
                         std::string_view endpoint);
// The sequence before `next`, for messages.
std::string SequenceBefore(std::uint64_t next);
kv_events::DecoderOptions DecoderOptionsFor(const StreamSpec& spec);

}  // namespace xms::kv_directory
