// KvIndex: for a prompt, how long a prefix does each stream hold, and on which tier?
//
// Place       One per process. Written by kv_directory through StreamLedger (stream_ledger.h), read by
//             gateway. Knows nothing of sockets, events' bytes, instances or requests.
// Shape       One shared prefix view per (hash_seed, block_size): content key → which stream slots
//             hold it on Device and on Host, as bit sets. One probe a block answers for all streams;
//             the walk ends when no stream is left.
// Threads     Everything here: any thread. Match, MatchKeys and Slots never wait for anybody.
// Ownership   Owns views and slots; must outlive its ledgers. Callbacks: none.
// Invariants  I1  A match reports, per stream, blocks each of which was resident at some moment of
//                 the call (requirement C8), and misses none that was resident throughout; exact when
//                 nothing is written meanwhile.
//             I2  An unsynchronized stream, or one whose generation changed during the call, has zero
//                 hits.
//             I3  Memory follows resident blocks, not history (but for the names of L1, bounded).
// Visibility  A slot's generation is odd while it is synchronized. The stream's thread stores it
//             (G1, release) and then exchanges the index's stamp for a value that was never used
//             (S1, acq_rel), after the bits that the generation vouches for and before any bit that it
//             does not vouch for any more. A match loads the stamp (S2, acquire), the generations (G2,
//             acquire), walks, and loads the stamp again (S3). Exchanges form one release sequence, so S2
//             sees every G1 whose S1 came before the value it reads, and with an odd G1 all bits of that
//             recovery. Had the walk seen a bit of a later one, S3 would follow that one's S1 (the bits
//             are released and acquired, prefix_view.h A and B) and differ from S2. Then, and only then,
//             the generations are compared one by one (G3, acquire) and those that differ report nothing.
//             Results remember the stamp: as long as S2 finds it, G2 need not be repeated.
// Failure     OpenStream: kResourceExhausted when every slot is taken.
// Cost        O(blocks + streams) a match, no allocation, no lock, and no store outside `out` but the
//             epoch announcement, which has a cache line of its own for each thread.
// Proof       KVIndex*, KVIndexModel* (random events against a naive model), KVIndexView* (every
//             interleaving of one reader with writers), KVIndexStress* under tsan, bench/kv_index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "model/content_key.h"
#include "model/ids.h"

namespace xms::kv_index {

class StreamLedger;

inline constexpr std::size_t kMaxSlots = 128;

struct Options {
  std::uint64_t max_blocks_per_stream = 262144;  // mappings kept per stream, 1 … 16777216
  // Mixed into every table position. Anything random, so that nobody can choose prompts or hashes
  // that meet in one place; the answers do not depend on it.
  std::uint64_t salt = 0;
};

// What a stream is, fixed for the life of its ledger.
struct StreamInfo {
  model::StreamKey key;
  std::uint64_t hash_seed = 1024;
  std::uint32_t block_size = 128;   // tokens
  model::ProcessIdentity identity;  // not known() for static streams: no CAR credit (E8)
};

// One slot's answer. The error text is not here: it is read from Streams(), off the hot path.
struct SlotMatch {
  std::uint64_t generation = 0;  // 0: the slot is free
  bool synchronized = false;
  std::uint32_t device_hit_tokens = 0;
  std::uint32_t host_only_hit_tokens = 0;
};

// The hits of all slots, in arrays that a match can fill for many slots at once.
struct alignas(64) SlotHits {
  std::uint32_t device_tokens[kMaxSlots] = {};
  std::uint32_t host_only_tokens[kMaxSlots] = {};
  bool any_host_only = false;  // false: host_only_tokens are all 0
};

// slots[i] says what the stream in slot i holds. Which stream that is: Slots(), taken before the match.
// Reuse one from match to match: what has not changed since is not written again.
class SlotMatches {
 public:
  SlotMatch operator[](std::size_t slot) const {
    return {generation_[slot], (synchronized_[slot >> 6] >> (slot & 63) & 1) != 0,
            hits_.device_tokens[slot], hits_.host_only_tokens[slot]};
  }

 private:
  friend class KvIndex;
  SlotHits hits_;
  std::uint64_t generation_[kMaxSlots] = {};
  std::uint64_t synchronized_[2] = {0, 0};
};

struct MatchResult {
  SlotMatches slots;
  std::size_t slot_count = 0;  // slots beyond are free, their entries mean nothing

 private:
  friend class KvIndex;
  // The state that generations above were read in, and the view (null: all) whose slots have hits.
  // 0: unknown.
  std::uint64_t stamp_ = 0;
  const void* scope_ = nullptr;
};

// What the query answer and the candidate table need to know of one stream, at one moment. `generation`
// equals that of a match for as long as the state is the same.
struct StreamStatus {
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
  std::shared_ptr<const StreamInfo> info;
  bool synchronized = false;
  model::StreamSeq sequence;        // the last one indexed; kept while unsynchronized
  bool sequence_valid = false;      // some sequence of this life has been indexed
  std::uint64_t device_blocks = 0;  // resident indexed blocks as of `sequence`; 0 while
                                    // unsynchronized
  std::uint64_t host_blocks = 0;
  // Over all resident mappings as of `sequence`, opaque ones included (StreamLedger::digest); 0 while
  // unsynchronized, and also when nothing is resident.
  std::uint64_t digest = 0;
  std::uint64_t opaque_mappings = 0;  // known without credit (B5); 0 while unsynchronized
  // When a snapshot was last applied or agreed, and when a live batch was last applied; the epoch
  // when that has never happened in this life. Not of one moment with the rest.
  base::SteadyTime snapshot_at{};
  base::SteadyTime live_at{};
  std::string error;  // "" while synchronized
};

class KvIndex {
 public:
  explicit KvIndex(Options options);
  ~KvIndex();
  KvIndex(const KvIndex&) = delete;
  KvIndex& operator=(const KvIndex&) = delete;

  // A ledger for a new stream, unsynchronized, with `reason` as its error. The ledger's destruction ends
  // the stream: its credit goes at once, its slot is free when its bits are cleared.
  base::Result<std::unique_ptr<StreamLedger>> OpenStream(StreamInfo info, std::string reason);

  // Longest prefix of complete blocks each synchronized stream holds. Streams of another geometry are
  // matched with their own keys: tokens are hashed once per distinct (hash_seed, block_size).
  void Match(std::span<const std::uint32_t> tokens, MatchResult& out) const;
  // The same for the streams of one geometry, by a caller who has the keys already.
  void MatchKeys(std::uint64_t hash_seed, std::uint32_t block_size,
                 std::span<const model::ContentKey> keys, MatchResult& out) const;

  // Every open stream, by name bytes, then rank. Allocates; takes locks that no match ever takes.
  std::vector<StreamStatus> Streams() const;

  // The immutable list that says which slots belong to which stream; changes only when streams come
  // and go. Cheap enough for the request path (one reference count).
  struct SlotEntry {
    std::uint32_t slot = 0;
    std::uint64_t life = 0;  // of this ledger; never used twice
    std::shared_ptr<const StreamInfo> info;
  };
  struct SlotTable {
    std::vector<SlotEntry> entries;  // sorted by key
    // Ranks of one instance, empty when it has no stream.
    std::span<const SlotEntry> Of(const model::InstanceId& instance) const;
  };
  // Take it before the match, so that a slot given to another stream in between shows: credit counts
  // only if LifeOf(match.generation) == entry.life.
  std::shared_ptr<const SlotTable> Slots() const;

  // Generations carry the ledger's life in their upper bits.
  static std::uint64_t LifeOf(std::uint64_t generation) { return generation >> 32; }

  struct MemoryUse {
    std::size_t view_bytes = 0;  // tables, shared by all streams
    std::size_t ledger_bytes = 0;
    std::uint64_t view_entries = 0;  // distinct blocks with a resident
  };
  MemoryUse Memory() const;

 private:
  friend class StreamLedger;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace xms::kv_index
