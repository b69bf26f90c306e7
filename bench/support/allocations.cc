#include "bench/support/allocations.h"

#include <cstdlib>
#include <new>

#ifdef XMS_BENCH_COUNTS_NOTHING

std::uint64_t xms::bench::Allocations() { return 0; }

#else

namespace xms::bench {
namespace {

thread_local std::uint64_t calls = 0;

void* Counted(void* memory) {
  ++calls;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

std::uint64_t Allocations() { return calls; }

}  // namespace xms::bench

// The array and nothrow forms call these.
void* operator new(std::size_t size) { return xms::bench::Counted(std::malloc(size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto to = static_cast<std::size_t>(alignment);
  return xms::bench::Counted(std::aligned_alloc(to, (size + to - 1) / to * to));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#endif  // XMS_BENCH_COUNTS_NOTHING
