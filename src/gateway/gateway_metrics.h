// GatewayMetrics: what the request path counts. docs/metrics.md explains each.
//
// Threads     Any, no lock on a request but for the first of each label value.
// Proof       GatewayMetrics*.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "observability/metrics.h"

namespace xms::gateway {

// What a request asked for, as the label `route`.
enum class Route : std::uint8_t {
  kCompletions,
  kChatCompletions,
  kModels,
  kKvCacheQuery,
  kHeartbeat,
  kInstances,
  kDecisions,
  kConfig,
  kHealth,
  kReady,
  kMetrics,
  kUnknown,
};
inline constexpr std::size_t kRoutes = static_cast<std::size_t>(Route::kUnknown) + 1;
std::string_view RouteName(Route route);

// Counters that differ in the value of one label, made when a value first occurs.
// Bounds: kMaxValues; later values count as "other".
class CounterFamily {
 public:
  static constexpr std::size_t kMaxValues = 48;

  // `registry` may be null: nothing is counted.
  CounterFamily(observability::MetricRegistry* registry, std::string name, std::string help,
                std::string label, observability::Labels fixed);
  CounterFamily(const CounterFamily&) = delete;
  CounterFamily& operator=(const CounterFamily&) = delete;
  void Increment(std::string_view value, double by = 1);

 private:
  struct Entry {
    std::string value;
    observability::Counter counter;
  };
  const Entry* Find(std::string_view value, std::size_t count) const;
  const Entry& Make(std::string_view value);

  observability::MetricRegistry* const registry_;
  const std::string name_;
  const std::string help_;
  const std::string label_;
  const observability::Labels fixed_;
  base::Mutex mu_;  // makes entries
  // Entries below the count are complete and never change.
  std::array<Entry, kMaxValues + 1> entries_;
  std::atomic<std::size_t> count_{0};
};

class GatewayMetrics {
 public:
  explicit GatewayMetrics(observability::MetricRegistry* registry);

  void CountRequest(Route route, int status);

  // Client requests being served, to the last byte. Shared with the collector, which may outlive
  // the gateway.
  std::atomic<std::size_t>& in_flight() { return *in_flight_; }
  const std::atomic<std::size_t>& in_flight() const { return *in_flight_; }

  observability::Histogram ttft_seconds;
  observability::Histogram duration_seconds;
  observability::Histogram decision_seconds;
  observability::Counter prefix_asked;
  observability::Counter prefix_available;
  observability::Counter prefix_chosen;
  observability::Counter prefix_delivered;
  observability::Counter retries;
  observability::Counter client_gone;
  CounterFamily decisions;
  CounterFamily no_credit;  // reason: NoCreditName of the chosen instance
  CounterFamily engine_errors;

 private:
  std::shared_ptr<std::atomic<std::size_t>> in_flight_;
  std::array<std::unique_ptr<CounterFamily>, kRoutes> requests_;
};

// One client request in flight. The count falls when End is called or the object goes, whichever is
// first.
class InFlight {
 public:
  explicit InFlight(std::atomic<std::size_t>& count) : count_(&count) { count.fetch_add(1); }
  ~InFlight() { End(); }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  void End() {
    if (count_ != nullptr) count_->fetch_sub(1);
    count_ = nullptr;
  }

 private:
  std::atomic<std::size_t>* count_;
};

}  // namespace xms::gateway
