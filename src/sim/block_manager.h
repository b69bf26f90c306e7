// BlockManager: the KV blocks of one rank: who holds which, what stays cached, what goes when room
// is needed.
//
// Place       RankScheduler owns one. Knows no clock, no socket and no request; sequences are
//             HoldIds.
// Threads     Externally synchronised.
// Blocks      A Device block is free, held privately by one sequence (not yet computed, partly
//             filled, or a second copy of a cached one), or cached: named by a wire hash, shared,
//             and kept after its last user until the room is needed. A Host block is cached or
//             reserved for a copy.
// Eviction    Least recently used first, skipping blocks in use or being copied. Of one chain the
//             last block is the oldest; a parent can leave before its child all the same, when the
//             child's user holds a copy of its own of the parent.
// Host tier   A cached block whose last user leaves is copied to Host and stays on Device until its
//             room is needed. StartCopies/FinishCopies bracket the time that the copy takes. A hit
//             on a block that is only on Host takes a Device block, which is filled by the next
//             Commit.
// Events      Every change of what is resident is recorded in order. When a store is recorded its
//             parent is resident. Host copies are recorded as tokenless replicas.
// Hashes      64 bits, chained over the prefix, seeded: two engines name the same content
//             differently.
// Failure     Admit and Grow change nothing when there is no room. Using a HoldId that is not held,
//             or one twice, is a defect of the caller (asserted).
// Cost        Admit, Commit: one hash per block; evictions and pins O(log cached blocks). Snapshot:
//             O(n log n).
// Proof       SimBlockManager*, among them a random test against a naive model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv_events/kv_batch.h"
#include "model/content_key.h"
#include "model/ids.h"
#include "sim/kv_event_recorder.h"

namespace xms::sim {

struct BlockManagerOptions {
  std::uint32_t block_size = 128;  // tokens, 1 … 65536
  std::uint32_t device_blocks = 3072;
  std::uint32_t host_blocks = 0;  // 0: no Host tier
  std::uint64_t hash_seed = 0;    // of the wire hashes
};

// A sequence's claim on blocks; chosen by the caller, unique while held.
using HoldId = std::uint64_t;

// How many leading blocks of a prompt are cached, by the tier that would serve them.
struct PrefixHit {
  std::uint32_t device_blocks = 0;
  std::uint32_t host_blocks = 0;  // only on Host
  std::uint32_t blocks() const { return device_blocks + host_blocks; }
  bool operator==(const PrefixHit&) const = default;
};

class BlockManager {
 public:
  explicit BlockManager(const BlockManagerOptions& options);

  // Longest run of complete cached blocks at the start of `tokens`.
  PrefixHit LongestPrefix(std::span<const std::uint32_t> tokens) const;

  // Takes the cached prefix of `tokens` (at least one token is left to compute) and room for the
  // rest.
  std::optional<PrefixHit> Admit(HoldId id, std::span<const std::uint32_t> tokens);
  // Makes room for `tokens` tokens in all.
  bool Grow(HoldId id, std::size_t tokens);
  // `computed`: all tokens whose KV the sequence has now; its complete blocks become cached. Blocks
  // that Admit took from Host count as loaded.
  void Commit(HoldId id, std::span<const std::uint32_t> computed);
  void Release(HoldId id);

  // Copies to Host wait in order. Start marks up to `limit` of those waiting as running and returns
  // how many; Finish completes all that run. At most one group runs at a time.
  std::uint32_t StartCopies(std::uint32_t limit);
  void FinishCopies();
  std::size_t copies_waiting() const { return copies_waiting_.size(); }

  // What changed since the last call.
  bool has_events() const { return !recorder_.empty(); }
  kv_events::KvBatch TakeEvents() { return recorder_.Take(); }

  // Everything resident, parents first. Blocks on Host alone come with tokens; of those on both
  // tiers the Host copies follow as replicas. A block whose parent has left is in it, naming that
  // parent.
  kv_events::KvBatch Snapshot() const;

  struct Residents {
    std::vector<model::WireHash> device;  // ascending
    std::vector<model::WireHash> host;
    bool operator==(const Residents&) const = default;
  };
  Residents ResidentHashes() const;

  const BlockManagerOptions& options() const { return options_; }
  std::uint32_t device_resident() const { return device_resident_; }
  std::uint32_t host_resident() const { return host_resident_; }
  // Free, or cached and evictable now.
  std::uint32_t available() const {
    return device_free_ + static_cast<std::uint32_t>(device_lru_.size());
  }
  // Held by sequences or by a running copy.
  std::uint32_t in_use() const { return options_.device_blocks - available(); }

 private:
  struct Entry {
    model::WireHash hash;
    bool has_parent = false;
    model::WireHash parent;
    std::vector<std::uint32_t> tokens;
    std::uint64_t serial = 0;  // order of creation, for a reproducible snapshot
    std::uint64_t stamp = 0;   // last use
    bool on_device = false;
    bool on_host = false;
    bool copying = false;            // Host room reserved, Device block pinned
    std::uint32_t device_users = 0;  // sequences
    std::uint32_t host_users = 0;    // loads under way
  };
  enum class SlotKind : std::uint8_t { kPrivate, kShared, kLoading };
  struct Slot {
    SlotKind kind = SlotKind::kPrivate;
    Entry* entry = nullptr;  // not for kPrivate
  };
  struct Hold {
    std::vector<Slot> slots;
    std::vector<model::ContentKey> keys;  // of the first complete blocks, as far as known
    std::size_t committed = 0;            // complete blocks at the last Commit
  };

  static model::WireHash NameOf(const model::ContentKey& key) { return {key.low}; }
  std::span<const std::uint32_t> BlockTokens(std::span<const std::uint32_t> tokens,
                                             std::size_t index) const {
    return tokens.subspan(index * options_.block_size, options_.block_size);
  }
  std::size_t SlotsFor(std::size_t tokens) const {
    return (tokens + options_.block_size - 1) / options_.block_size;
  }
  // The resident block of that name if it really is this content.
  const Entry* Find(const std::vector<model::ContentKey>& keys, std::size_t index,
                    std::span<const std::uint32_t> tokens) const;
  Entry* Find(const std::vector<model::ContentKey>& keys, std::size_t index,
              std::span<const std::uint32_t> tokens);
  void ExtendKeys(std::vector<model::ContentKey>& keys, std::span<const std::uint32_t> tokens,
                  std::size_t count) const;
  Hold& HoldOf(HoldId id);

  // An entry is listed in a tier's order exactly while it can be evicted from it. Every change of
  // use is bracketed by Unlist and List.
  void Unlist(Entry& entry);
  void List(Entry& entry);
  void Touch(Entry& entry);

  void TakeDeviceBlock();
  void EvictFromDevice(Entry& entry);
  void EvictFromHost(Entry& entry);
  void EraseIfGone(Entry& entry);
  void PutOnDevice(Entry& entry);
  void PlanCopy(Entry& entry);
  // Returns the cached block when another sequence had cached it first, so that this copy stays
  // private.
  Entry* CommitBlock(Hold& hold, std::size_t index, std::span<const std::uint32_t> tokens);

  BlockManagerOptions options_;
  model::BlockHasher hasher_;
  KvEventRecorder recorder_;
  std::unordered_map<model::WireHash, Entry> entries_;  // resident on a tier
  std::unordered_map<HoldId, Hold> holds_;
  std::map<std::uint64_t, Entry*> device_lru_;  // by stamp
  std::map<std::uint64_t, Entry*> host_lru_;
  std::deque<Entry*> copies_waiting_;
  std::vector<Entry*> copies_running_;
  std::uint32_t device_free_;
  std::uint32_t host_free_;
  std::uint32_t device_resident_ = 0;
  std::uint32_t host_resident_ = 0;
  std::uint64_t clock_ = 0;
  std::uint64_t serial_ = 0;
};

}  // namespace xms::sim
