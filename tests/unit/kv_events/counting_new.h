// Counts every operator new of the program that links counting_new.cc.
#pragma once

#include <cstddef>

namespace xms::kv_events::test {

struct Taken {
  std::size_t allocations = 0;
  std::size_t bytes = 0;
};

// Since the program began; never given back by a delete.
Taken TakenSoFar();

template <typename Work>
Taken During(Work work) {
  const Taken before = TakenSoFar();
  work();
  const Taken after = TakenSoFar();
  return {after.allocations - before.allocations, after.bytes - before.bytes};
}

}  // namespace xms::kv_events::test
