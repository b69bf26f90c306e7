// Bodies of the internal routes: heartbeats and queries. What a query is taken for, another parser
// must see too.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "gateway/heartbeat.h"
#include "gateway/kv_query.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  xms::instances::Heartbeat beat;
  const auto fault = xms::gateway::ParseHeartbeat(body, beat);
  if (fault == xms::gateway::HeartbeatFault::kNone && beat.id.name.empty()) std::abort();

  std::vector<std::uint32_t> tokens;
  if (!xms::gateway::ParseKvQuery(body, tokens).has_value()) {
    nlohmann::json seen;
    try {
      seen = nlohmann::json::parse(body);
    } catch (const nlohmann::json::out_of_range&) {
      return 0;  // a number beyond a double, in a member that is ignored here
    }
    if (seen["token_ids"].get<std::vector<std::uint32_t>>() != tokens) std::abort();
  }
  return 0;
}
