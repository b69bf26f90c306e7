#include "model/content_key.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cstring>

namespace xms::model {

static_assert(
    std::endian::native == std::endian::little,
    "content keys are defined over little-endian bytes; add byte swaps for this processor");

BlockHasher::BlockHasher(std::uint64_t hash_seed, std::uint32_t block_size)
    : seed_(hash_seed), block_size_(block_size) {
  static_assert(kSecretBytes == XXH3_SECRET_DEFAULT_SIZE);
  XXH3_generateSecret_fromSeed(secret_.data(), seed_);
}

ContentKey BlockHasher::Child(const ContentKey& parent,
                              std::span<const std::uint32_t> tokens) const {
  // Up to this size one pass over a copy is the fastest; beyond it the copy would not fit the
  // stack.
  constexpr std::size_t kStackTokens = 512;
  const std::uint64_t head[2] = {parent.low, parent.high};
  if (tokens.size() <= kStackTokens) {
    alignas(64) unsigned char buffer[sizeof head + kStackTokens * 4];
    std::memcpy(buffer, head, sizeof head);
    if (!tokens.empty()) std::memcpy(buffer + sizeof head, tokens.data(), tokens.size_bytes());
    const XXH128_hash_t hash = XXH3_128bits_withSecretandSeed(
        buffer, sizeof head + tokens.size_bytes(), secret_.data(), secret_.size(), seed_);
    return {hash.low64, hash.high64};
  }
  XXH3_state_t state;
  XXH3_128bits_reset_withSecretandSeed(&state, secret_.data(), secret_.size(), seed_);
  XXH3_128bits_update(&state, head, sizeof head);
  XXH3_128bits_update(&state, tokens.data(), tokens.size_bytes());
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return {hash.low64, hash.high64};
}

void BlockHasher::Chain(std::span<const std::uint32_t> tokens, std::vector<ContentKey>& out) const {
  out.clear();
  const std::size_t blocks = tokens.size() / block_size_;
  out.reserve(blocks);
  ContentKey key = kRootKey;
  for (std::size_t block = 0; block < blocks; ++block) {
    key = Child(key, tokens.subspan(block * block_size_, block_size_));
    out.push_back(key);
  }
}

}  // namespace xms::model
