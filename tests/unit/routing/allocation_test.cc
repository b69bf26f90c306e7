// Choosing allocates nothing once a Choice has been used: it happens for every request.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "routing/policy.h"
#include "tests/unit/routing/fleet.h"

namespace {
std::atomic<long> allocations{0};
}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace xms::routing {
namespace {

void ExpectNoAllocation(Policy& policy) {
  Fleet fleet;
  for (int i = 0; i < 128; ++i) {
    Candidate& candidate = fleet.Add("engine" + std::to_string(i),
                                     i % 4 == 0 ? model::Role::kDecode : model::Role::kPrefill);
    candidate.load.waiting_requests_num = i % 7;
    candidate.has_load = i % 9 != 0;
  }
  Choice choice;
  policy.Choose(fleet.Input(1000), choice);
  const long before = allocations.load();
  for (int i = 0; i < 100; ++i) policy.Choose(fleet.Input(1000), choice);
  EXPECT_EQ(allocations.load() - before, 0);
  EXPECT_GE(choice.primary, 0);
  EXPECT_GE(choice.decode, 0);
}

TEST(CacheAwareRoutingAllocation, NoneInSteadyState) { ExpectNoAllocation(*MakeCacheAware({})); }

TEST(RoundRobinAllocation, NoneInSteadyState) { ExpectNoAllocation(*MakeRoundRobin()); }

}  // namespace
}  // namespace xms::routing
