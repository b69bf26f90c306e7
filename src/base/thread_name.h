// NameThisThread: what `top -H`, `perf` and debuggers call the calling thread.
//
// Threads     Any, for itself.
// Failure     None: the kernel keeps 15 bytes, so a longer name is cut.
// Proof       BaseThreadName*, tests/integration/service/fleet_test.py; docs/threading.md lists the
//             names.
#pragma once

#include <string_view>

namespace xms::base {

void NameThisThread(std::string_view name);

}  // namespace xms::base
