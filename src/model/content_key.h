// ContentKey: the directory's own name for a block together with everything before it.
//
// Place       kv_index (view), bench, sim tests. Requirement C1.
// Formula     XXH3-128, seed `hash_seed`, over 16 bytes of the parent's key (low half, then high
//             half, little-endian; zero for a root) and the block's tokens as u32 little-endian.
//             The same on every processor: digests are compared between replicas.
// Threads     A BlockHasher is immutable; any thread.
// Cost        One pass over 16 + 4·block_size bytes, no allocation; several blocks in one call
//             overlap. The seed's secret is prepared once per hasher, the processor is asked once.
// Proof       ModelContentKey*: every compiled form against the library's plain seeded hash, and
//             fixed values.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/internal/chain_hash.h"

namespace xms::model {

struct ContentKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  auto operator<=>(const ContentKey&) const = default;
};

inline constexpr ContentKey kRootKey{};

class BlockHasher {
 public:
  // block_size: tokens per block, 1 … 65536.
  BlockHasher(std::uint64_t hash_seed, std::uint32_t block_size);

  std::uint64_t hash_seed() const { return seed_; }
  std::uint32_t block_size() const { return block_size_; }

  // `tokens` has exactly block_size elements.
  ContentKey Child(const ContentKey& parent, std::span<const std::uint32_t> tokens) const {
    ContentKey key;
    Chain(parent, tokens, std::span(&key, 1));
    return key;
  }

  // The keys of out.size() consecutive blocks, the first of them a child of `parent`. `tokens` has
  // exactly as many.
  void Chain(const ContentKey& parent, std::span<const std::uint32_t> tokens,
             std::span<ContentKey> out) const;

  // Replaces `out` by the keys of every complete block of `tokens`, in order.
  void Chain(std::span<const std::uint32_t> tokens, std::vector<ContentKey>& out) const;

 private:
  std::uint64_t seed_;
  std::uint32_t block_size_;
  alignas(64) std::array<unsigned char, internal::kSecretBytes> secret_;
};

}  // namespace xms::model
