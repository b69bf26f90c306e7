// Told: a small world of blocks, what events say of them, and the bytes that say it.
//
// Place       The reference model (docs/correctness.md): shares no line with what it tests, and is slow
//             and obvious. Publishers, wires and the reference subscriber are built from it.
// Threads     Values and free functions; externally synchronised.
// Blocks      Three prompts that part after two and four blocks; besides, blocks that must never be
//             credited: an adapter's, a child of one, another cache group's, one under a stranger.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/ids.h"

namespace xms::kv_directory::proof {

using Blocks = std::uint32_t;  // a bit for each

inline constexpr int kBlockSize = 4;
inline constexpr int kPlain = 12;          // blocks 0 to 11
inline constexpr int kAdapter = 12;        // another content under the tokens of block 0
inline constexpr int kAdapterChild = 13;   // of the adapter
inline constexpr int kUnderAdapter = 14;   // published as plain, under the adapter's block
inline constexpr int kOtherGroup = 15;     // another cache group, under block 0
inline constexpr int kStranger = 16;       // never published, only named
inline constexpr int kUnderStranger = 17;  // plain, under the stranger
inline constexpr int kBlocks = 18;
inline constexpr std::uint64_t kMaxMappings = 64;

constexpr Blocks Bit(int block) { return Blocks{1} << block; }

struct Block {
  int parent = -1;
  model::WireHash hash;
  std::array<std::uint32_t, kBlockSize> tokens{};
};
const std::array<Block, kBlocks>& AllBlocks();

struct Prompt {
  std::vector<std::uint32_t> tokens;
  std::vector<int> blocks;  // those that may be credited, from the start
};
// The last one is the stranger's child taken for a root: nothing of it may ever be credited.
const std::vector<Prompt>& Prompts();

struct Credit {
  std::uint32_t device_tokens = 0;
  std::uint32_t host_only_tokens = 0;
  bool operator==(const Credit&) const = default;
};

struct Event {
  enum class Kind : std::uint8_t {
    kStore,    // `blocks`, each the parent of the next
    kReplica,  // a store without tokens
    kRemove,
    kElsewhere,  // a store in a medium that is neither tier
    kClear,
    kClearTier,
    kClearOther,  // a medium that is neither tier
    kTooMany,     // a store of more blocks than max_blocks_per_stream
    kNovelty,     // an event type of later versions
  };
  Kind kind = Kind::kStore;
  model::Tier tier = model::Tier::kDevice;
  std::vector<int> blocks{};
};
using Batch = std::vector<Event>;

bool BeginsWithClear(const Batch& batch);
std::string Print(const Batch& batch);
// MessagePack, as an engine of this rank writes it.
std::string Encode(std::span<const Event> batch, std::int32_t rank);

// What somebody who heard all of it knows.
struct Told {
  Blocks device = 0;
  Blocks host = 0;
  Blocks named = 0;    // some event named it, as a block or as a parent
  Blocks indexed = 0;  // it stands for plain tokens from the start of a prompt

  enum class Verdict : std::uint8_t { kFine, kUnknownParent, kUnknownClear, kTooMany };
  // What a parent means that nothing has named: a doubt, or an orphan without credit (B5, D4).
  enum class Orphans : std::uint8_t { kRefuse, kRemember };
  Verdict Apply(std::span<const Event> batch, Orphans orphans);

  // What blocks stand for, and nothing of who holds them (C2).
  Told MerelyKnown() const { return {.named = named, .indexed = indexed}; }

  // What a whole snapshot says of it, parents first.
  Batch Snapshot() const;
  Credit CreditFor(const Prompt& prompt) const { return Run(prompt, indexed & (device | host)); }
  // The same for the publisher itself, who knows its plain blocks without being told.
  Credit HeldOf(const Prompt& prompt) const { return Run(prompt, device | host); }
  // Whether that much of the prompt is held, in those tiers. A copy that was announced without
  // tokens may be unknown to who heard less (A10): a block on both tiers may count as Host only.
  bool CouldHold(const Prompt& prompt, const Credit& credit) const;
  bool operator==(const Told&) const = default;

 private:
  Verdict Store(const Event& event, Orphans orphans);
  void Hold(model::Tier tier, Blocks blocks);
  Credit Run(const Prompt& prompt, Blocks usable) const;
};

}  // namespace xms::kv_directory::proof
