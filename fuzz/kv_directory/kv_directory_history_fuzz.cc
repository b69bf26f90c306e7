// StreamMachine: any order of any faults. Bytes become a history (model/history.h), which the same
// world and reference judge as in the random histories.
//
// Holds       I1 to I6 of docs/correctness.md after each step, and I3 once the history is over.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "tests/unit/kv_directory/model/history.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace xms::kv_directory::proof;
  const History history = HistoryFromBytes(std::span(data, size));
  if (Run(history).empty()) return 0;
  std::fprintf(stderr, "%s", Explain(Shrink(history)).c_str());
  std::abort();
}
