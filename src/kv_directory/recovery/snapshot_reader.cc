#include "kv_directory/recovery/snapshot_reader.h"

#include <algorithm>
#include <utility>

#include "base/str_cat.h"

namespace xms::kv_directory {

using base::StrCat;

namespace {

// A reply of some bytes costs a batch of arrays. No publisher needs as many as this.
constexpr std::size_t kMaxParts = 4096;

// The next number of two significant digits: what a person would set.
std::uint64_t RoundedUp(std::uint64_t bytes) {
  std::uint64_t unit = 1;
  while (bytes / unit >= 100) unit *= 10;
  return (bytes + unit - 1) / unit * unit;
}

std::string Remedy(std::uint64_t bytes, std::string_view raise) {
  return StrCat(
      "; ", RaiseTo(bytes, kLargestMessageLimit, raise, "the engine must publish less at once"));
}

}  // namespace

std::string RaiseTo(std::uint64_t needed, std::uint64_t largest, std::string_view raise,
                    std::string_view otherwise) {
  if (needed > largest) return StrCat("more than ", largest, " cannot be set, ", otherwise);
  return StrCat(raise, " to at least ", std::min(RoundedUp(needed), largest));
}

std::string TooLarge(std::string_view what, std::uint64_t bytes, const Limits& limits) {
  const std::uint64_t tenths = (bytes * 10 + (1 << 19)) >> 20;  // of a MiB
  const std::string about =
      tenths > 0 ? StrCat(" (", tenths / 10, ".", tenths % 10, " MiB)") : std::string();
  return StrCat(what, " of ", bytes, " bytes", about, " is over max_message_bytes ",
                limits.max_message_bytes, Remedy(bytes, "raise it"));
}

std::string TooLargeToMeasure(std::string_view what, std::string_view endpoint,
                              const Limits& limits) {
  const std::uint64_t limit = 2 * limits.max_message_bytes;
  return StrCat("the connection to ", endpoint, " ended on a ", what, " over ", limit,
                " bytes, size unknown (or on bytes that are not ZeroMQ)",
                Remedy(limit + 1, StrCat("raise max_message_bytes ", limits.max_message_bytes)));
}

std::string CannotBeRead(std::string_view what, const kv_events::DecodeOutcome& outcome,
                         const kv_events::DecoderOptions& options, std::size_t payload_bytes,
                         std::string_view endpoint) {
  std::string reason = kv_events::Describe(outcome, options, payload_bytes);
  // Of a mismatch both numbers say it all, wherever they were found.
  using Code = kv_events::DecodeCode;
  if (outcome.code == Code::kDpRankMismatch || outcome.code == Code::kBlockSizeMismatch) {
    return reason;
  }
  return StrCat("the payload of ", what, " cannot be read: ", reason,
                "; if it stays, check the version of the engine at ", endpoint);
}

std::string SequenceBefore(std::uint64_t next) {
  return next == 0 ? std::string("nothing") : StrCat(next - 1);
}

kv_events::DecoderOptions DecoderOptionsFor(const StreamSpec& spec) {
  return {.dp_rank = spec.key.rank.value, .block_size = spec.block_size};
}

SnapshotReader::SnapshotReader(const StreamSpec& spec, const Limits& limits,
                               const StreamMetrics& metrics)
    : spec_(spec), limits_(limits), metrics_(metrics), decoder_options_(DecoderOptionsFor(spec)) {}

void SnapshotReader::Reset() {
  next_.reset();
  parts_ = {};
  wire_bytes_ = 0;
  error_.clear();
}

bool SnapshotReader::IsEmpty() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const kv_events::KvBatch& part) { return part.hashes.empty(); });
}

SnapshotReader::State SnapshotReader::Add(Message message) {
  if (!error_.empty()) return State::kBad;
  const std::size_t bytes = TotalBytes(message);
  metrics_.bytes.Increment(bytes);
  const ReplyFrames reply = ParseReply(message, spec_.topic);
  if (reply.kind == ReplyFrames::Kind::kBad) {
    metrics_.frame_errors.Increment();
    return Fail(ExchangeOutcome::kDamaged,
                StrCat(reply.error, "; check what answers at ", spec_.replay_endpoint));
  }
  if (reply.kind == ReplyFrames::Kind::kTerminator) {
    if (next_) return State::kWhole;
    return Fail(ExchangeOutcome::kDamaged,
                "the snapshot ended before it began; at least one part must come before the end");
  }
  const std::uint64_t next = reply.watermark + 1;
  if (next_ && *next_ != next) {
    return Fail(ExchangeOutcome::kDamaged,
                StrCat("the snapshot's parts disagree about their watermark: ",
                       SequenceBefore(*next_), " and ", SequenceBefore(next),
                       "; the engine must answer a request with parts of one"));
  }
  next_ = next;
  wire_bytes_ += bytes;
  if (wire_bytes_ > limits_.max_message_bytes) {
    metrics_.message_limits.Increment();
    return Fail(ExchangeOutcome::kLimit, TooLarge("snapshot", wire_bytes_, limits_));
  }
  if (parts_.size() == kMaxParts) {
    metrics_.message_limits.Increment();
    return Fail(ExchangeOutcome::kLimit,
                StrCat("snapshot of more than ", kMaxParts, " parts; publish fewer, larger ones"));
  }
  kv_events::KvBatch& part = parts_.emplace_back();
  const kv_events::DecodeOutcome outcome =
      kv_events::DecodeBatch(reply.payload, decoder_options_, part);
  if (outcome.ok()) {
    // The arrays have grown by doubling; this is how they stay until the terminator.
    part.events.shrink_to_fit();
    part.hashes.shrink_to_fit();
    part.tokens.shrink_to_fit();
    return State::kMore;
  }
  metrics_.parse_errors[static_cast<std::size_t>(outcome.code)].Increment();
  return Fail(ExchangeOutcome::kDamaged, CannotBeRead("the snapshot", outcome, decoder_options_,
                                                      reply.payload.size(), spec_.replay_endpoint));
}

SnapshotReader::State SnapshotReader::Fail(ExchangeOutcome outcome, std::string error) {
  parts_ = {};
  outcome_ = outcome;
  error_ = std::move(error);
  return State::kBad;
}

}  // namespace xms::kv_directory
