#include "bench/support/measure.h"

#include <malloc.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace xms::bench {
namespace {

bool IsSet(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && std::string_view(value) != "" && std::string_view(value) != "0";
}

// As the process was started: the first call must come before any Pin.
const cpu_set_t& Allowed() {
  static const cpu_set_t allowed = [] {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return set;
  }();
  return allowed;
}

}  // namespace

bool Quick() { return IsSet("XMS_BENCH_QUICK"); }

double Nanoseconds(Clock::duration time) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

double CpuNanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0;
  statm >> pages >> pages;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double TrimmedResidentBytes() {
  malloc_trim(0);
  return ResidentBytes();
}

void Pin(unsigned processor) {
  const cpu_set_t& allowed = Allowed();
  const int count = CPU_COUNT(&allowed);
  if (count < 2 || IsSet("XMS_BENCH_NO_PIN")) return;
  int left = static_cast<int>(processor % static_cast<unsigned>(count));
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &allowed) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

void Unpin() { sched_setaffinity(0, sizeof(cpu_set_t), &Allowed()); }

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "benchmark: wrong answer: %s\n", what);
  std::exit(1);
}

double Latency::At(double q) {
  if (ns_.empty()) return 0;
  if (!sorted_) std::sort(ns_.begin(), ns_.end());
  sorted_ = true;
  const auto place = static_cast<std::size_t>(q * static_cast<double>(ns_.size()));
  return ns_[std::min(ns_.size() - 1, place)] / 1000;
}

void Latency::Report(benchmark::State& state) {
  state.counters["p50_us"] = At(0.5);
  state.counters["p99_us"] = At(0.99);
  state.counters["p99.9_us"] = At(0.999);
  state.counters["p99.99_us"] = At(0.9999);
  state.counters["max_us"] = At(1);
}

}  // namespace xms::bench
