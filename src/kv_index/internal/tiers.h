// Tiers: a set of tiers, as two bits.
#pragma once

#include <cstdint>

#include "model/ids.h"

namespace xms::kv_index::internal {

using Tiers = std::uint8_t;
inline constexpr Tiers kNoTier = 0;
inline constexpr Tiers kOnDevice = 1;
inline constexpr Tiers kOnHost = 2;
inline constexpr Tiers kOnBoth = kOnDevice | kOnHost;

constexpr Tiers TierBit(model::Tier tier) {
  return tier == model::Tier::kDevice ? kOnDevice : kOnHost;
}

}  // namespace xms::kv_index::internal
