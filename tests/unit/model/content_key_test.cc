// The expected keys come from the library's plain seeded hash over bytes laid out here by hand, and
// for a few from fixed values, so that neither our code nor a change of the library can move a key
// unnoticed.
#include "model/content_key.h"

#include <gtest/gtest.h>
#define XXH_STATIC_LINKING_ONLY  // for XXH3_generateSecret_fromSeed
#include <xxhash.h>

#include <cstdint>
#include <random>
#include <vector>

#include "model/internal/chain_hash.h"

namespace xms::model {
namespace {

constexpr std::uint64_t kSeeds[] = {0, 1024, UINT64_MAX};

void AppendLittleEndian(std::vector<unsigned char>& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<unsigned char>(value >> (8 * i)));
}

ContentKey Expected(std::uint64_t seed, const ContentKey& parent,
                    std::span<const std::uint32_t> tokens) {
  std::vector<unsigned char> bytes;
  AppendLittleEndian(bytes, parent.low, 8);
  AppendLittleEndian(bytes, parent.high, 8);
  for (const std::uint32_t token : tokens) AppendLittleEndian(bytes, token, 4);
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.low64, hash.high64};
}

TEST(ModelContentKey, IsTheSeededHashOfParentAndTokensForEveryBlockSize) {
  std::mt19937 random(7);
  std::vector<std::uint32_t> tokens(600);
  for (std::uint32_t& token : tokens) token = random();
  const ContentKey parents[] = {kRootKey, {0x0123456789abcdef, 0xfedcba9876543210}};
  for (const std::uint64_t seed : kSeeds) {
    for (std::uint32_t size = 1; size <= 600; ++size) {
      const BlockHasher hasher(seed, size);
      for (const ContentKey& parent : parents) {
        const std::span block(tokens.data(), size);
        ASSERT_EQ(hasher.Child(parent, block), Expected(seed, parent, block))
            << "seed " << seed << ", block size " << size;
      }
    }
  }
}

// Whatever this machine's processor would choose.
TEST(ModelContentKey, IsTheSameInEveryCompiledForm) {
  std::vector<internal::HashChain*> forms = {internal::xms_hash_chain_portable};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) forms.push_back(internal::xms_hash_chain_avx2);
#endif
  std::mt19937 random(8);
  std::vector<std::uint32_t> tokens(3 * 4096);
  for (std::uint32_t& token : tokens) token = random();
  unsigned char secret[internal::kSecretBytes];
  XXH3_generateSecret_fromSeed(secret, 1024);
  const auto check = [&](std::uint32_t size) {
    for (internal::HashChain* form : forms) {
      const std::uint64_t root[2] = {5, 6};
      ContentKey keys[3];
      form(root, reinterpret_cast<const unsigned char*>(tokens.data()), size * 4, 3, secret, 1024,
           reinterpret_cast<std::uint64_t*>(keys));
      ContentKey parent{5, 6};
      for (std::size_t b = 0; b < 3; ++b) {
        parent = Expected(1024, parent, std::span(tokens).subspan(b * size, size));
        ASSERT_EQ(keys[b], parent) << "block " << b << " of " << size << " tokens";
      }
    }
  };
  for (std::uint32_t size = 1; size <= 600; ++size) check(size);
  for (const std::uint32_t size : {1023u, 1024u, 1025u, 4096u}) check(size);
}

TEST(ModelContentKey, HoldsForTheLargestBlocks) {
  std::vector<std::uint32_t> tokens(65536);
  for (std::uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = i * 2654435761u;
  for (const std::uint32_t size : {1023u, 4096u, 65535u, 65536u}) {
    const BlockHasher hasher(1024, size);
    const std::span block(tokens.data(), size);
    EXPECT_EQ(hasher.Child(kRootKey, block), Expected(1024, kRootKey, block)) << size;
  }
}

// C1
TEST(ModelContentKey, HasTheFixedValuesThatReplicasAgreeOn) {
  std::vector<std::uint32_t> tokens(128);
  for (std::uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = i;
  const ContentKey first = BlockHasher(1024, 128).Child(kRootKey, tokens);
  EXPECT_EQ(first, (ContentKey{0x9eff45d0e7a0e73f, 0x270ff365e633844d}));
  EXPECT_EQ(BlockHasher(1024, 128).Child(first, tokens),
            (ContentKey{0x45106e3896f58c20, 0xfec8ef526a2464de}));
  EXPECT_EQ(BlockHasher(0, 4).Child(kRootKey, std::span(tokens).first(4)),
            (ContentKey{0x7cb55c04878d9596, 0x361d40d624bc4584}));
}

TEST(ModelContentKey, AChainHasAKeyForEachCompleteBlockAndNoMore) {
  std::vector<std::uint32_t> tokens(3 * 16 + 15);
  for (std::uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = 1000 + i;
  const BlockHasher hasher(1024, 16);
  std::vector<ContentKey> keys = {{1, 2}, {3, 4}};
  hasher.Chain(tokens, keys);
  ASSERT_EQ(keys.size(), 3u);
  ContentKey parent = kRootKey;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    parent = Expected(1024, parent, std::span(tokens).subspan(i * 16, 16));
    EXPECT_EQ(keys[i], parent) << i;
  }
  hasher.Chain(std::span(tokens).first(15), keys);
  EXPECT_TRUE(keys.empty());
}

// C1
TEST(ModelContentKey, StandsForTheWholePrefix) {
  const std::vector<std::uint32_t> tail = {5, 6, 7, 8};
  const BlockHasher hasher(1024, 4);
  const ContentKey a = hasher.Child(kRootKey, std::vector<std::uint32_t>{1, 2, 3, 4});
  const ContentKey b = hasher.Child(kRootKey, std::vector<std::uint32_t>{1, 2, 3, 5});
  EXPECT_NE(a, b);
  EXPECT_NE(hasher.Child(a, tail), hasher.Child(b, tail));
  EXPECT_NE(BlockHasher(1025, 4).Child(kRootKey, tail), hasher.Child(kRootKey, tail));
}

}  // namespace
}  // namespace xms::model
