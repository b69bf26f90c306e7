// Metrics: counters, gauges and histograms, and the Prometheus text that shows them.
//
// Place       Every module above base that counts something; `app` owns the one registry. prometheus-cpp
//             stays inside metrics.cc.
// Threads     Increment, Set, Observe: any thread, no lock. Add…: any thread, locks.
//             Exposition: any thread.
// Ownership   The registry owns its metrics; handles are plain pointers that live as long as it.
// Series      What a registry is told to add stays. What comes and goes (streams, with their names as
//             labels) is put into Samples by a sampler at each exposition: nothing of it is kept.
// Names       `xms_…`, unit in the name (`_seconds`, `_bytes`, `_total`). The same name and labels give
//             the same metric. docs/metrics.md lists all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace xms::observability {

using Labels = std::map<std::string, std::string>;

// Handles are cheap to copy; a default-made one counts nothing, so that plain classes work without metrics.
class Counter {
 public:
  Counter() = default;
  void Increment(double by = 1) const;

 private:
  friend class MetricRegistry;
  explicit Counter(void* impl) : impl_(impl) {}
  void* impl_ = nullptr;
};

class Gauge {
 public:
  Gauge() = default;
  void Set(double value) const;
  void Add(double by) const;
  double Value() const;

 private:
  friend class MetricRegistry;
  explicit Gauge(void* impl) : impl_(impl) {}
  void* impl_ = nullptr;
};

class Histogram {
 public:
  Histogram() = default;
  void Observe(double value) const;

 private:
  friend class MetricRegistry;
  explicit Histogram(void* impl) : impl_(impl) {}
  void* impl_ = nullptr;
};

// One exposition's values of things that come and go. What a sampler does not put is not shown.
class Samples {
 public:
  void Counter(std::string_view name, std::string_view help, Labels labels, double value);
  void Gauge(std::string_view name, std::string_view help, Labels labels, double value);

 private:
  friend class MetricRegistry;
  struct Family {
    std::string help;
    bool counter = false;
    std::map<Labels, double> values;
  };
  void Put(std::string_view name, std::string_view help, bool counter, Labels labels, double value);
  std::map<std::string, Family, std::less<>> families_;
};

class MetricRegistry {
 public:
  MetricRegistry();
  ~MetricRegistry();
  MetricRegistry(const MetricRegistry&) = delete;
  MetricRegistry& operator=(const MetricRegistry&) = delete;

  Counter AddCounter(std::string_view name, std::string_view help, const Labels& labels = {});
  Gauge AddGauge(std::string_view name, std::string_view help, const Labels& labels = {});
  // `bounds`: upper bounds of the buckets, ascending, in the metric's unit.
  Histogram AddHistogram(std::string_view name, std::string_view help, std::vector<double> bounds,
                         const Labels& labels = {});

  // Called before each exposition, for values that are cheaper to read than to keep. May call Set on gauges.
  // Collectors must outlive the registry or be idle when it is read; run without a lock held.
  void AddCollector(std::function<void()> collect);
  // Called after the collectors, under the same rules. Names that were added to the registry are not
  // for samplers.
  void AddSampler(std::function<void(Samples&)> sample);

  // Content-Type: text/plain; version=0.0.4.
  std::string Exposition() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace xms::observability
