#include "bench/kv_directory/memory_stream.h"

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "bench/support/measure.h"
#include "bench/support/streams.h"

namespace xms::bench {
namespace {

kv_directory::StreamSpec SpecOf(const std::string& name) {
  kv_directory::StreamSpec spec;
  spec.key = {{name}, {0}};
  spec.block_size = kBlockTokens;
  spec.endpoint = "tcp://127.0.0.1:1";
  spec.replay_endpoint = "tcp://127.0.0.1:2";
  spec.topic = kTopic;
  spec.hash_seed = kHashSeed;
  return spec;
}

// Room for a snapshot of a large cache with its tokens.
kv_directory::Limits LargeLimits() {
  kv_directory::Limits limits;
  limits.max_message_bytes = kv_directory::kLargestMessageLimit;
  return limits;
}

std::unique_ptr<kv_index::StreamLedger> Open(kv_index::KvIndex& index,
                                             const kv_directory::StreamSpec& spec) {
  kv_index::StreamInfo info;
  info.key = spec.key;
  info.hash_seed = spec.hash_seed;
  info.block_size = spec.block_size;
  auto opened = index.OpenStream(std::move(info), "new");
  Require(opened.ok(), "a free slot");
  return std::move(opened).value();
}

}  // namespace

MemoryStream::MemoryStream(kv_index::KvIndex& index, const std::string& name)
    : spec_(SpecOf(name)),
      limits_(LargeLimits()),
      ledger_(Open(index, spec_)),
      machine_(spec_, limits_, *ledger_, *this, metrics_, 1),
      slot_(index.Slots()->Of(spec_.key.instance).front().slot) {}

void MemoryStream::Begin() {
  const base::SteadyTime now = Clock::now();
  machine_.Start(now);
  machine_.OnSubscribed(now);
  machine_.OnExchangeConnected();
  machine_.OnExchangeStarted(now);
}

void MemoryStream::Answer(const Payloads& parts, std::uint64_t watermark) {
  const auto sequence = BigEndian64(watermark);
  const auto end = BigEndian64(UINT64_MAX);
  std::array<kv_directory::Frame, 3> frames;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    frames = {kv_directory::Frame(), kv_directory::Frame(sequence), parts[i]};
    machine_.OnReply(frames, Clock::now());
  }
  frames = {kv_directory::Frame(), kv_directory::Frame(end), kv_directory::Frame()};
  machine_.OnReply(frames, Clock::now());
  next_sequence_ = watermark + 1;
}

void MemoryStream::SynchronizeEmpty() {
  Begin();
  Answer(SnapshotParts(0, 0, 1), 0);
  Require(synchronized(), "a stream synchronizes with an empty snapshot");
}

void MemoryStream::Live(kv_directory::Frame payload, base::SteadyTime now) {
  const auto sequence = BigEndian64(next_sequence_++);
  const std::array<kv_directory::Frame, 3> frames = {
      std::as_bytes(std::span(std::string_view(kTopic))), kv_directory::Frame(sequence), payload};
  machine_.OnLive(frames, now);
}

void MemoryStream::StateChanged(bool /*synchronized*/, const std::string& line) {
  last_line_ = line;
}

}  // namespace xms::bench
