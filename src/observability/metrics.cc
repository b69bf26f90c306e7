#include "observability/metrics.h"

#include <prometheus/check_names.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/str_cat.h"

namespace xms::observability {
namespace {

// prometheus-cpp's own histogram takes a mutex for each observation; requests observe on many
// threads.
class HistogramCell {
 public:
  explicit HistogramCell(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void Observe(double value) {
    if (std::isnan(value)) return;  // it belongs to no bucket and would spoil the sum for good
    const auto bound =
        std::lower_bound(bounds_.begin(), bounds_.end(), value);  // bounds include their value
    counts_[static_cast<std::size_t>(bound - bounds_.begin())].fetch_add(1);
    sum_.fetch_add(value);
  }

  // The count is the sum of the buckets that were read, so the two agree however many observe
  // meanwhile.
  prometheus::ClientMetric Collect() const {
    prometheus::ClientMetric metric;
    std::uint64_t cumulative = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      cumulative += counts_[i].load();
      const double bound =
          i < bounds_.size() ? bounds_[i] : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({cumulative, bound});
    }
    metric.histogram.sample_count = cumulative;
    metric.histogram.sample_sum = sum_.load();
    return metric;
  }

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<std::uint64_t>> counts_;
  std::atomic<double> sum_{0};
};

std::vector<prometheus::ClientMetric::Label> ToLabels(const Labels& labels) {
  std::vector<prometheus::ClientMetric::Label> out;
  out.reserve(labels.size());
  for (const auto& [name, value] : labels) out.push_back({name, value});
  return out;
}

// Names are written in our own code: a wrong one is a defect that the first test must show.
[[noreturn]] void Defect(std::string_view name, std::string_view what) {
  base::LogError(base::StrCat("metric ", name, ": ", what));
  std::abort();
}

// One name: help, type, and a metric for each set of labels. Metrics never move and never go.
template <typename Cell>
struct Family {
  std::string help;
  std::map<Labels, std::unique_ptr<Cell>> cells;
};

template <typename Cell>
using Families = std::map<std::string, Family<Cell>, std::less<>>;

template <typename Cell>
void CollectInto(const Families<Cell>& families, prometheus::MetricType type,
                 std::vector<prometheus::MetricFamily>& out) {
  for (const auto& [name, family] : families) {
    prometheus::MetricFamily collected{name, family.help, type, {}};
    for (const auto& [labels, cell] : family.cells) {
      collected.metric.push_back(cell->Collect());
      collected.metric.back().label = ToLabels(labels);
    }
    out.push_back(std::move(collected));
  }
}

// A name is a Prometheus name and so are its labels, or the first test shows it.
void CheckNames(std::string_view name, const Labels& labels) {
  if (!prometheus::CheckMetricName(std::string(name))) Defect(name, "not a Prometheus metric name");
  for (const auto& [label, value] : labels) {
    if (!prometheus::CheckLabelName(label))
      Defect(name, base::StrCat("not a Prometheus label name: ", label));
  }
}

}  // namespace

void Counter::Increment(double by) const {
  if (impl_ != nullptr) static_cast<prometheus::Counter*>(impl_)->Increment(by);
}

void Gauge::Set(double value) const {
  if (impl_ != nullptr) static_cast<prometheus::Gauge*>(impl_)->Set(value);
}

void Gauge::Add(double by) const {
  if (impl_ != nullptr) static_cast<prometheus::Gauge*>(impl_)->Increment(by);
}

double Gauge::Value() const {
  return impl_ != nullptr ? static_cast<prometheus::Gauge*>(impl_)->Value() : 0;
}

void Histogram::Observe(double value) const {
  if (impl_ != nullptr) static_cast<HistogramCell*>(impl_)->Observe(value);
}

struct MetricRegistry::Impl {
  mutable base::Mutex mu;
  Families<prometheus::Counter> counters XMS_GUARDED_BY(mu);
  Families<prometheus::Gauge> gauges XMS_GUARDED_BY(mu);
  Families<HistogramCell> histograms XMS_GUARDED_BY(mu);
  std::vector<std::function<void()>> collectors XMS_GUARDED_BY(mu);
  std::vector<std::function<void(Samples&)>> samplers XMS_GUARDED_BY(mu);

  template <typename Cell, typename Make>
  Cell* Add(Families<Cell>& families, std::string_view name, std::string_view help,
            const Labels& labels, const Make& make) XMS_REQUIRES(mu) {
    const std::size_t uses = counters.count(name) + gauges.count(name) + histograms.count(name);
    auto family = families.find(name);
    CheckNames(name, labels);
    if (family == families.end()) {
      if (uses != 0) Defect(name, "already there with another type");
      family = families.emplace(std::string(name), Family<Cell>{std::string(help), {}}).first;
    }
    std::unique_ptr<Cell>& cell = family->second.cells[labels];
    if (cell == nullptr) cell = make();
    return cell.get();
  }
};

void Samples::Put(std::string_view name, std::string_view help, bool counter, Labels labels,
                  double value) {
  auto family = families_.find(name);
  if (family == families_.end()) {
    CheckNames(name, labels);
    family = families_.emplace(std::string(name), Family{std::string(help), counter, {}}).first;
  }
  if (family->second.counter != counter) Defect(name, "already there with another type");
  family->second.values[std::move(labels)] = value;
}

void Samples::Counter(std::string_view name, std::string_view help, Labels labels, double value) {
  Put(name, help, /*counter=*/true, std::move(labels), value);
}

void Samples::Gauge(std::string_view name, std::string_view help, Labels labels, double value) {
  Put(name, help, /*counter=*/false, std::move(labels), value);
}

MetricRegistry::MetricRegistry() : impl_(std::make_unique<Impl>()) {}
MetricRegistry::~MetricRegistry() = default;

Counter MetricRegistry::AddCounter(std::string_view name, std::string_view help,
                                   const Labels& labels) {
  base::MutexLock lock(impl_->mu);
  return Counter(impl_->Add(impl_->counters, name, help, labels,
                            [] { return std::make_unique<prometheus::Counter>(); }));
}

Gauge MetricRegistry::AddGauge(std::string_view name, std::string_view help, const Labels& labels) {
  base::MutexLock lock(impl_->mu);
  return Gauge(impl_->Add(impl_->gauges, name, help, labels,
                          [] { return std::make_unique<prometheus::Gauge>(); }));
}

Histogram MetricRegistry::AddHistogram(std::string_view name, std::string_view help,
                                       std::vector<double> bounds, const Labels& labels) {
  if (std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<>()) != bounds.end()) {
    Defect(name, "bucket bounds must ascend");
  }
  base::MutexLock lock(impl_->mu);
  return Histogram(impl_->Add(impl_->histograms, name, help, labels,
                              [&] { return std::make_unique<HistogramCell>(std::move(bounds)); }));
}

void MetricRegistry::AddCollector(std::function<void()> collect) {
  base::MutexLock lock(impl_->mu);
  impl_->collectors.push_back(std::move(collect));
}

void MetricRegistry::AddSampler(std::function<void(Samples&)> sample) {
  base::MutexLock lock(impl_->mu);
  impl_->samplers.push_back(std::move(sample));
}

std::string MetricRegistry::Exposition() const {
  std::vector<std::function<void()>> collectors;
  std::vector<std::function<void(Samples&)>> samplers;
  {
    base::MutexLock lock(impl_->mu);
    collectors = impl_->collectors;
    samplers = impl_->samplers;
  }
  for (const auto& collect : collectors) collect();
  Samples samples;
  for (const auto& sample : samplers) sample(samples);

  std::vector<prometheus::MetricFamily> families;
  {
    base::MutexLock lock(impl_->mu);
    CollectInto(impl_->counters, prometheus::MetricType::Counter, families);
    CollectInto(impl_->gauges, prometheus::MetricType::Gauge, families);
    CollectInto(impl_->histograms, prometheus::MetricType::Histogram, families);
  }
  for (const prometheus::MetricFamily& added : families) {
    if (samples.families_.contains(added.name)) Defect(added.name, "added and sampled");
  }
  for (const auto& [name, family] : samples.families_) {
    prometheus::MetricFamily& sampled = families.emplace_back();
    sampled.name = name;
    sampled.help = family.help;
    sampled.type = family.counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
    for (const auto& [labels, value] : family.values) {
      prometheus::ClientMetric& metric = sampled.metric.emplace_back();
      metric.label = ToLabels(labels);
      (family.counter ? metric.counter.value : metric.gauge.value) = value;
    }
  }
  std::sort(families.begin(), families.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return std::move(text).str();
}

}  // namespace xms::observability
