// What the tests of kv_index share: prompts by name, streams that speak in positions of a prompt.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kv_index/kv_index.h"
#include "kv_index/stream_ledger.h"
#include "model/ids.h"

namespace xms::kv_index {

using model::Tier;
using model::WireHash;

// A prompt of `blocks` blocks of `block_size` tokens; different names differ in every token.
inline std::vector<std::uint32_t> Prompt(std::uint32_t name, std::uint32_t blocks,
                                         std::uint32_t block_size) {
  std::vector<std::uint32_t> tokens(std::size_t{blocks} * block_size);
  for (std::uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = name * 1'000'003 + i;
  return tokens;
}

// Wire hashes first, first + 1, …
inline std::vector<WireHash> Wires(std::uint64_t first, std::size_t count) {
  std::vector<WireHash> wires;
  for (std::size_t i = 0; i < count; ++i) wires.push_back({first + i});
  return wires;
}

inline StreamInfo Info(std::string name, std::int32_t rank = 0, std::uint32_t block_size = 4,
                       std::uint64_t seed = 1024) {
  return {{{std::move(name)}, {rank}}, seed, block_size, {"incarnation", 1}};
}

inline std::unique_ptr<StreamLedger> Open(KvIndex& index, StreamInfo info) {
  auto opened = index.OpenStream(std::move(info), "new");
  EXPECT_TRUE(opened.ok());
  return opened.ok() ? std::move(opened).value() : nullptr;
}

inline std::unique_ptr<StreamLedger> OpenSynchronized(KvIndex& index, StreamInfo info) {
  auto ledger = Open(index, std::move(info));
  ledger->Synchronize({0});
  return ledger;
}

// Stores a prompt's blocks [first, last) under wires 1000 × name + position; the parent is the block
// before.
inline ApplyResult StoreBlocks(StreamLedger& ledger, std::uint32_t name, std::uint32_t first,
                               std::uint32_t last, Tier tier = Tier::kDevice) {
  const std::uint32_t size = ledger.info().block_size;
  const auto tokens = Prompt(name, last, size);
  const std::uint64_t base = 1000 * std::uint64_t{name};
  return ledger.Store(tier, Wires(base + first, last - first),
                      first == 0 ? std::nullopt : std::optional(WireHash{base + first - 1}),
                      std::span(tokens).subspan(std::size_t{first} * size),
                      StreamLedger::Orphans::kRefuse);
}

inline std::uint32_t RemoveBlocks(StreamLedger& ledger, std::uint32_t name, std::uint32_t first,
                                  std::uint32_t last, Tier tier = Tier::kDevice) {
  return ledger.Remove(tier, Wires(1000 * std::uint64_t{name} + first, last - first));
}

inline StreamStatus StatusOf(const KvIndex& index, const StreamLedger& ledger) {
  for (StreamStatus& status : index.Streams()) {
    if (status.info.get() == &ledger.info()) return status;
  }
  ADD_FAILURE() << "the stream is not listed";
  return {};
}

// What a match says of one stream, in tokens.
struct Hits {
  std::uint32_t device = 0;
  std::uint32_t host_only = 0;
  bool operator==(const Hits&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Hits& hits) {
    return out << "device " << hits.device << ", host only " << hits.host_only;
  }
};

inline Hits Match(const KvIndex& index, const StreamLedger& ledger,
                  std::span<const std::uint32_t> tokens) {
  static thread_local MatchResult result;
  index.Match(tokens, result);
  const SlotMatch& slot = result.slots[StatusOf(index, ledger).slot];
  return {slot.device_hit_tokens, slot.host_only_hit_tokens};
}

inline Hits MatchPrompt(const KvIndex& index, const StreamLedger& ledger, std::uint32_t name,
                        std::uint32_t blocks) {
  return Match(index, ledger, Prompt(name, blocks, ledger.info().block_size));
}

}  // namespace xms::kv_index
