// Tokens whose root blocks have content keys that agree in the 28 bits by which a ledger names them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv_index/internal/prefix_view.h"
#include "model/content_key.h"

namespace xms::kv_index {

// Pairs for block size 1, seed 1024 and salt 0, by trying tokens in order.
inline std::vector<std::pair<std::uint32_t, std::uint32_t>> TwinTokens(std::size_t pairs) {
  const internal::PrefixView view(0);
  const model::BlockHasher hasher(1024, 1);
  std::unordered_map<internal::KeyRef, std::uint32_t> seen;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> found;
  for (std::uint32_t token = 0; found.size() < pairs; ++token) {
    const auto ref = view.RefOf(hasher.Child(model::kRootKey, std::span(&token, 1)));
    const auto [place, fresh] = seen.emplace(ref, token);
    if (!fresh) found.emplace_back(place->second, token);
  }
  return found;
}

}  // namespace xms::kv_index
