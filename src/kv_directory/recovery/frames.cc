#include "kv_directory/recovery/frames.h"

#include <algorithm>
#include <optional>

#include "base/str_cat.h"

namespace xms::kv_directory {
namespace {

using base::StrCat;

constexpr std::uint64_t kReserved = UINT64_MAX;

std::string_view AsText(Frame frame) {
  return {reinterpret_cast<const char*>(frame.data()), frame.size()};
}

std::optional<std::uint64_t> ReadBigEndian(Frame frame) {
  if (frame.size() != 8) return std::nullopt;
  std::uint64_t value = 0;
  for (const std::byte byte : frame) value = value << 8 | static_cast<std::uint64_t>(byte);
  return value;
}

}  // namespace

std::size_t TotalBytes(Message message) {
  std::size_t bytes = 0;
  for (const Frame& frame : message) bytes += frame.size();
  return bytes;
}

LiveFrames ParseLive(Message message, std::string_view topic) {
  LiveFrames out;
  if (message.empty()) {
    out.error = "live message without frames; check what publishes at the event endpoint";
    return out;
  }
  out.topic = AsText(message[0]);
  if (out.topic != topic) {
    out.kind = LiveFrames::Kind::kForeign;
    return out;
  }
  if (message.size() != 3) {
    out.error = StrCat("live message of ", message.size(),
                       " frames published, 3 are expected: topic, sequence, batch; check what "
                       "publishes at the event endpoint");
    return out;
  }
  const auto sequence = ReadBigEndian(message[1]);
  if (!sequence) {
    out.error =
        StrCat("live sequence of ", message[1].size(),
               " bytes published, 8 are expected; check what publishes at the event endpoint");
    return out;
  }
  if (*sequence == kReserved) {
    out.error =
        "live sequence 2^64-1 published, which is reserved for the end of a snapshot; the engine "
        "must be restarted";
    return out;
  }
  out.kind = LiveFrames::Kind::kBatch;
  out.sequence = *sequence;
  out.payload = message[2];
  return out;
}

ReplyFrames ParseReply(Message message, std::string_view topic) {
  ReplyFrames out;
  if (message.size() != 3 && message.size() != 4) {
    out.error = StrCat("snapshot reply of ", message.size(), " frames, 3 are expected");
    return out;
  }
  if (!message[0].empty()) {
    out.error = StrCat("snapshot reply begins with ", message[0].size(),
                       " bytes where an empty frame is expected");
    return out;
  }
  const Frame payload = message.back();
  const auto watermark = ReadBigEndian(message[message.size() - 2]);
  if (!watermark) {
    out.error = StrCat("snapshot watermark of ", message[message.size() - 2].size(),
                       " bytes, 8 are expected");
    return out;
  }
  const bool ends = *watermark == kReserved && payload.empty();
  if (message.size() == 4) {
    const std::string_view named = AsText(message[1]);
    if (named != topic && !(ends && named.empty())) {
      out.error = "snapshot reply names another topic than the one that is configured";
      return out;
    }
  }
  if (!ends && payload.empty()) {
    out.error = StrCat("snapshot reply without content at watermark ", *watermark);
    return out;
  }
  out.kind = ends ? ReplyFrames::Kind::kTerminator : ReplyFrames::Kind::kData;
  out.watermark = *watermark;
  out.payload = payload;
  return out;
}

}  // namespace xms::kv_directory
