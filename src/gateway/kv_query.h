// The internal query: token ids in, one line a stream out (requirements F1 to F4).
//
// Place       The route of that name. Reads KvIndex only: no look-up leaves the process.
// Threads     Any.
// Proof       GatewayKvQuery*, KVCacheQuery* over real sockets, fuzz/gateway.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gateway/error_map.h"
#include "kv_index/kv_index.h"

namespace xms::gateway {

// {"token_ids":[…]}. Unknown keys are ignored; anything else that is not exactly that is an error.
std::optional<GatewayError> ParseKvQuery(std::string_view body, std::vector<std::uint32_t>& tokens);

// Instances that discovery left out: name and reason.
using Excluded = std::vector<std::pair<std::string, std::string>>;

// `index` null: the directory is off. `now`: what the ages of proofs are counted to.
std::string KvQueryAnswer(const kv_index::KvIndex* index, std::span<const std::uint32_t> tokens,
                          const Excluded& excluded, base::SteadyTime now);

}  // namespace xms::gateway
