// HasRepeat: is a hash named twice in one store?
//
// Place       The event decoder. A repeated hash would make a block its own ancestor.
// Cost        Linear: a table on the stack, whose probes are counted. Long events, and hashes chosen to
//             collide, are sorted instead, O(n log n). No allocation once `hashes` has grown: the copy
//             to be sorted lies behind its last element.
#pragma once

#include <cstddef>
#include <vector>

#include "model/ids.h"

namespace xms::kv_events::internal {

// Looks at hashes[first, end()). The vector's elements and size are the same afterwards.
bool HasRepeat(std::vector<model::WireHash>& hashes, std::size_t first);

}  // namespace xms::kv_events::internal
