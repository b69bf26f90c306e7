// Frames of live messages and snapshot replies: any number, any bytes.
//
// Input       Messages: a byte that counts frames, then per frame two bytes of length and its bytes.
// Holds       A live batch has our topic and a sequence that is not reserved. A snapshot is whole only
//             after at least one part, its parts fit the limit together, and bad is bad for good.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "kv_directory/recovery/frames.h"
#include "kv_directory/recovery/snapshot_reader.h"

namespace {

using namespace xms::kv_directory;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  StreamSpec spec;
  spec.block_size = 4;
  spec.topic = "t";
  Limits limits;
  limits.max_message_bytes = 1024;
  const StreamMetrics metrics;
  SnapshotReader reader(spec, limits, metrics);

  std::span<const std::byte> left = std::as_bytes(std::span(data, size));
  const auto take = [&](std::size_t bytes) {
    const auto taken = left.first(std::min(bytes, left.size()));
    left = left.subspan(taken.size());
    return taken;
  };
  bool was_bad = false;
  while (!left.empty()) {
    std::vector<Frame> frames(static_cast<std::size_t>(take(1)[0]) % 6);
    for (Frame& frame : frames) {
      const auto length = take(2);
      std::size_t bytes = 0;
      for (const std::byte byte : length) bytes = bytes << 8 | static_cast<std::size_t>(byte);
      frame = take(bytes);
    }

    const LiveFrames live = ParseLive(frames, spec.topic);
    if (live.kind == LiveFrames::Kind::kBatch) {
      Check(live.topic == spec.topic && live.sequence != UINT64_MAX && frames.size() == 3,
            "a live batch has three frames, our topic and a sequence");
    }
    Check((live.kind == LiveFrames::Kind::kBad) == !live.error.empty(), "bad has a reason");

    const SnapshotReader::State state = reader.Add(frames);
    Check(!was_bad || state == SnapshotReader::State::kBad, "bad is bad for good");
    was_bad = state == SnapshotReader::State::kBad;
    if (state == SnapshotReader::State::kWhole) {
      Check(!reader.parts().empty(), "a snapshot has a part");
      reader.Reset();
    }
    Check(!was_bad || (!reader.error().empty() && reader.parts().empty()),
          "a bad snapshot has a reason and nothing else");
  }
  return 0;
}
