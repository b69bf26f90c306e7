// Counts operator new, for programs that promise none in their steady state.
//
// Threads     Any; each counts its own.
#pragma once

#include <cstdint>

namespace xms::bench {

// Calls of operator new by this thread since it began; always 0 in sanitizer builds.
std::uint64_t Allocations();

}  // namespace xms::bench
