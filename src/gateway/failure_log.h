// FailureLog: says once in a while that an engine fails, and how often it has in between.
//
// Place       proxy_call; engines can fail thousands of times a second, and one line says it all.
// Threads     Any; a lock of its own, taken on failures only.
// Bounds      kMaxEngines names; when they are used up, the memory of all is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"

namespace xms::gateway {

class FailureLog {
 public:
  static constexpr std::chrono::seconds kInterval{10};
  static constexpr std::size_t kMaxEngines = 1024;

  explicit FailureLog(const base::Clock& clock) : clock_(clock) {}

  // The line to log now, or "" when this engine had one within kInterval.
  std::string Report(std::string_view engine, std::string_view what);

 private:
  struct Engine {
    base::SteadyTime last;
    std::uint64_t unsaid = 0;
  };
  const base::Clock& clock_;
  base::Mutex mu_;
  std::map<std::string, Engine, std::less<>> engines_ XMS_GUARDED_BY(mu_);
};

}  // namespace xms::gateway
