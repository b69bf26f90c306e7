#include "model/content_key.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cstring>


namespace xms::model {

static_assert(std::endian::native == std::endian::little,
              "content keys are defined over little-endian bytes; add byte swaps for this processor");

BlockHasher::BlockHasher(std::uint64_t hash_seed, std::uint32_t block_size)
    : seed_(hash_seed), block_size_(block_size) {
  static_assert(kSecretBytes == XXH3_SECRET_DEFAULT_SIZE);
  XXH3_generateSecret_fromSeed(secret_.data(), seed_);
}

ContentKey BlockHasher::Child(const ContentKey& parent,
                              std::span<const std::uint32_t> tokens) const {
  // 65536 tokens are the largest block; common ones are a few hundred bytes and stay on the stack.
  constexpr std::size_t kStackTokens = 512;
  const auto digest = [&](const void* bytes, std::size_t size) {
    const XXH128_hash_t hash =
        XXH3_128bits_withSecretandSeed(bytes, size, secret_.data(), secret_.size(), seed_);
    return ContentKey{hash.low64, hash.high64};
  };
  if (tokens.size() <= kStackTokens) {
    unsigned char buffer[16 + kStackTokens * 4];
    std::memcpy(buffer, &parent.low, 8);
    std::memcpy(buffer + 8, &parent.high, 8);
    std::memcpy(buffer + 16, tokens.data(), tokens.size_bytes());
    return digest(buffer, 16 + tokens.size_bytes());
  }
  std::vector<unsigned char> buffer(16 + tokens.size_bytes());
  std::memcpy(buffer.data(), &parent.low, 8);
  std::memcpy(buffer.data() + 8, &parent.high, 8);
  std::memcpy(buffer.data() + 16, tokens.data(), tokens.size_bytes());
  return digest(buffer.data(), buffer.size());
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
