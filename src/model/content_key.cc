#include "model/content_key.h"

#define XXH_STATIC_LINKING_ONLY  // for XXH3_generateSecret_fromSeed
#include <xxhash.h>

#include <bit>

#include "base/assert.h"
#include "model/internal/chain_hash.h"

namespace xms::model {
namespace {

static_assert(
    std::endian::native == std::endian::little,
    "content keys are defined over little-endian bytes; add byte swaps for this processor");
static_assert(sizeof(ContentKey) == 2 * sizeof(std::uint64_t));
static_assert(internal::kSecretBytes == XXH3_SECRET_DEFAULT_SIZE);

internal::HashChain* BestForThisProcessor() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return internal::xms_hash_chain_avx2;
#endif
  return internal::xms_hash_chain_portable;
}

}  // namespace

BlockHasher::BlockHasher(std::uint64_t hash_seed, std::uint32_t block_size)
    : seed_(hash_seed), block_size_(block_size) {
  XXH3_generateSecret_fromSeed(secret_.data(), seed_);
}

void BlockHasher::Chain(const ContentKey& parent, std::span<const std::uint32_t> tokens,
                        std::span<ContentKey> out) const {
  static internal::HashChain* const hash_chain = BestForThisProcessor();
  XMS_ASSERT(tokens.size() == out.size() * block_size_);
  const std::uint64_t head[2] = {parent.low, parent.high};
  hash_chain(head, reinterpret_cast<const unsigned char*>(tokens.data()),
             std::size_t{block_size_} * sizeof(std::uint32_t), out.size(), secret_.data(), seed_,
             reinterpret_cast<std::uint64_t*>(out.data()));
}

void BlockHasher::Chain(std::span<const std::uint32_t> tokens, std::vector<ContentKey>& out) const {
  out.resize(tokens.size() / block_size_);
  Chain(kRootKey, tokens.first(out.size() * block_size_), out);
}

}  // namespace xms::model
