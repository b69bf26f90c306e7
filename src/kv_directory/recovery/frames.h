// Frames: what the parts of a ZeroMQ message mean, before any payload is decoded.
//
// Place       Called by StreamMachine for live messages and snapshot replies. Pure.
// Threads     Free functions; any thread. Results point into the message.
// Source      kv-event-wire 4.1 and 4.5: live `topic, sequence, payload`; reply `"", watermark,
//             payload`, with a topic before the watermark accepted (A17); terminator 2^64 − 1 with
//             an empty payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace xms::kv_directory {

using Frame = std::span<const std::byte>;
using Message = std::span<const Frame>;

std::size_t TotalBytes(Message message);

struct LiveFrames {
  enum class Kind : std::uint8_t {
    kBatch,
    kForeign,  // another topic that begins with ours: dropped before its sequence is looked at
    kBad,
  };
  Kind kind = Kind::kBad;
  std::uint64_t sequence = 0;
  Frame payload;
  std::string_view topic;  // as sent
  std::string error;       // kBad: a clause for operators
};
LiveFrames ParseLive(Message message, std::string_view topic);

struct ReplyFrames {
  enum class Kind : std::uint8_t { kData, kTerminator, kBad };
  Kind kind = Kind::kBad;
  std::uint64_t watermark = 0;  // 2^64 − 1: nothing has been published yet
  Frame payload;
  std::string error;
};
ReplyFrames ParseReply(Message message, std::string_view topic);

}  // namespace xms::kv_directory
