#include "tests/unit/kv_events/counting_new.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> g_allocations{0};
std::atomic<std::size_t> g_bytes{0};
}  // namespace

// In a file of their own: a compiler that sees both inlined takes malloc and free for a mismatch.
void* operator new(std::size_t size) {
  ++g_allocations;
  g_bytes += size;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace xms::kv_events::test {

Taken TakenSoFar() { return {g_allocations, g_bytes}; }

}  // namespace xms::kv_events::test
