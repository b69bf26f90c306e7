#include "kv_events/internal/repeats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace xms::kv_events::internal {
namespace {

// Events of up to this many hashes are looked up in a table; longer ones are rare.
constexpr std::size_t kTableHashes = 2048;
constexpr std::size_t kSlotsPerHash = 4;
// Up to here comparing each with each is cheaper than clearing a table.
constexpr std::size_t kPairwiseHashes = 8;

enum class Answer { kYes, kNo, kTooManyProbes };

bool HasRepeatPairwise(const model::WireHash* hashes, std::size_t count) {
  for (std::size_t i = 1; i < count; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (hashes[i] == hashes[j]) return true;
    }
  }
  return false;
}

Answer HasRepeatByTable(const model::WireHash* hashes, std::size_t count) {
  std::array<std::uint16_t, kSlotsPerHash * kTableHashes> slots;  // 1 + index of a hash; 0 free
  const std::size_t size = std::bit_ceil(kSlotsPerHash * count);
  const std::size_t mask = size - 1;
  const int shift = 64 - std::bit_width(mask);
  std::fill_n(slots.begin(), size, std::uint16_t{0});
  // At a quarter full, unrelated hashes need 0.2 further probes each.
  std::size_t probes_left = 2 * count + 64;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t mixed = hashes[i].value * 0x9e3779b97f4a7c15u;
    std::size_t slot = mixed >> shift;
    while (slots[slot] != 0) {
      if (hashes[slots[slot] - 1u] == hashes[i]) return Answer::kYes;
      if (probes_left-- == 0) return Answer::kTooManyProbes;
      slot = (slot + 1) & mask;
    }
    slots[slot] = static_cast<std::uint16_t>(i + 1);
  }
  return Answer::kNo;
}

bool HasRepeatBySorting(std::vector<model::WireHash>& hashes, std::size_t first) {
  const std::size_t end = hashes.size();
  hashes.resize(end + (end - first));
  const auto copy = hashes.begin() + static_cast<std::ptrdiff_t>(end);
  std::copy(hashes.begin() + static_cast<std::ptrdiff_t>(first), copy, copy);
  std::sort(copy, hashes.end());
  const bool found = std::adjacent_find(copy, hashes.end()) != hashes.end();
  hashes.resize(end);
  return found;
}

}  // namespace

bool HasRepeat(std::vector<model::WireHash>& hashes, std::size_t first) {
  const std::size_t count = hashes.size() - first;
  if (count <= kPairwiseHashes) return HasRepeatPairwise(hashes.data() + first, count);
  if (count <= kTableHashes) {
    const Answer answer = HasRepeatByTable(hashes.data() + first, count);
    if (answer != Answer::kTooManyProbes) return answer == Answer::kYes;
  }
  return HasRepeatBySorting(hashes, first);
}

}  // namespace xms::kv_events::internal
