// XMS_ASSERT: states what only a defect of our own can break. On in every build; prints and aborts.
//
// Place       Every module. Never for anything that a peer or a user can cause.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace xms::base::internal {

[[noreturn]] inline void AssertFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace xms::base::internal

#define XMS_ASSERT(condition)                                                      \
  (static_cast<bool>(condition)                                                    \
       ? static_cast<void>(0)                                                      \
       : ::xms::base::internal::AssertFailed(#condition, __FILE__, __LINE__))
