#include "gateway/failure_log.h"

#include <utility>

#include "base/str_cat.h"

namespace xms::gateway {

std::string FailureLog::Report(std::string_view engine, std::string_view what) {
  const base::SteadyTime now = clock_.Now();
  base::MutexLock lock(mu_);
  auto at = engines_.find(engine);
  if (at != engines_.end() && now - at->second.last < kInterval) {
    ++at->second.unsaid;
    return {};
  }
  if (at == engines_.end()) {
    if (engines_.size() >= kMaxEngines) engines_.clear();
    at = engines_.emplace(engine, Engine{}).first;
  }
  const std::uint64_t unsaid = std::exchange(at->second.unsaid, 0);
  at->second.last = now;
  std::string line = base::StrCat("engine ", engine, ": ", what);
  if (unsaid > 0) base::StrAppend(line, " (", unsaid, " more failures since the last such line)");
  return line;
}

}  // namespace xms::gateway
