// HashChain: the content keys of consecutive blocks, compiled once for each kind of processor.
//
// Place       BlockHasher alone.
// Threads     Pure functions; any thread.
// Source      Requirement C1; what XXH3_128bits_withSecretandSeed gives over 16 + block_bytes bytes.
// Cost        Nothing is copied but the first 48 bytes of a block. A long input's lanes are sums, so
//             everything that does not depend on the parent is added before its key is waited for:
//             blocks overlap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xms::model::internal {

inline constexpr std::size_t kSecretBytes = 192;

// Reads blocks × block_bytes bytes at `tokens` and writes two words, low and high, for each block.
// `secret` was generated from `seed`. block_bytes is not 0.
using HashChain = void(const std::uint64_t parent[2], const unsigned char* tokens,
                       std::size_t block_bytes, std::size_t blocks, const unsigned char* secret,
                       std::uint64_t seed, std::uint64_t* keys);

extern "C" HashChain xms_hash_chain_portable;
#if defined(__x86_64__)
extern "C" HashChain xms_hash_chain_avx2;
#endif

}  // namespace xms::model::internal
