// DroppedNames: hashes of this life whose mappings had to give way (C2), so that a child of one is not
// taken for a sign of lost events (B5).
//
// Place       StreamLedger alone.
// Shape       Two generations of 32-bit fingerprints, open addressing, at most half full. A full young
//             one becomes the old one, and the old one is forgotten: the last `most` distinct names are
//             remembered, up to twice as many.
// Threads     One at a time.
// Failure     A name that was never added is found about once in 10^9 questions: then an orphan is
//             opaque instead of unknown.
// Cost        One cache line an operation. 8 to 16 bytes a name of `most`, for each generation, from
//             the first name on; nothing before.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "model/ids.h"

namespace xms::kv_index::internal {

class DroppedNames {
 public:
  DroppedNames(std::uint64_t salt, std::size_t most)
      : salt_(salt), most_(most), mask_(std::bit_ceil(2 * most) - 1) {}

  std::size_t bytes() const {
    return (young_.capacity() + old_.capacity()) * sizeof(std::uint32_t);
  }

  void Add(model::WireHash wire) {
    if (young_.empty()) young_.resize(mask_ + 1);
    const Name name = NameOf(wire);
    std::uint32_t& place = young_[PlaceOf(young_, name)];
    if (place != 0) return;
    place = name.print;
    if (++count_ < most_) return;
    old_ = std::exchange(young_, {});
    count_ = 0;
  }

  bool Has(model::WireHash wire) const {
    const Name name = NameOf(wire);
    const auto in = [&](const std::vector<std::uint32_t>& names) {
      return !names.empty() && names[PlaceOf(names, name)] != 0;
    };
    return in(young_) || in(old_);
  }

  void Clear() {
    young_ = std::vector<std::uint32_t>();
    old_ = std::vector<std::uint32_t>();
    count_ = 0;
  }

 private:
  struct Name {
    std::size_t home;
    std::uint32_t print;  // not 0, which marks a free place
  };
  Name NameOf(model::WireHash wire) const {
    std::uint64_t x = wire.value ^ salt_;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return {static_cast<std::size_t>(x >> 32), std::max(static_cast<std::uint32_t>(x), 1u)};
  }
  // Where the name is, or the free place where it would be.
  std::size_t PlaceOf(const std::vector<std::uint32_t>& names, const Name& name) const {
    std::size_t at = name.home & mask_;
    while (names[at] != 0 && names[at] != name.print) at = (at + 1) & mask_;
    return at;
  }

  const std::uint64_t salt_;
  const std::size_t most_;
  const std::size_t mask_;
  std::vector<std::uint32_t> young_;
  std::vector<std::uint32_t> old_;
  std::size_t count_ = 0;  // in young_
};

}  // namespace xms::kv_index::internal
