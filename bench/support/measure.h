// Clocks, spreads, memory and processors: what every benchmark here measures with.
//
// Threads     Free functions: any. Latency: confined.
// Environment XMS_BENCH_QUICK=1: sizes that take seconds instead of minutes. XMS_BENCH_NO_PIN=1: threads
//             stay where the scheduler puts them.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <vector>

namespace xms::bench {

using Clock = std::chrono::steady_clock;

bool Quick();

double Nanoseconds(Clock::duration time);
// Of this thread; what a time would be if the machine had nothing else to do.
double CpuNanoseconds();

// Of this process.
double ResidentBytes();
// Freed heap is given back before.
double TrimmedResidentBytes();

// The calling thread stays on this processor, where there are several; so do threads made later.
void Pin(unsigned processor);
// And is free again.
void Unpin();

// A wrong answer is no measurement: says what, and ends the program.
void Require(bool holds, const char* what);

class Latency {
 public:
  explicit Latency(std::size_t samples) { ns_.reserve(samples); }
  void Add(Clock::duration time) { ns_.push_back(Nanoseconds(time)); }
  // Counters p50_us, p99_us, p99.9_us, p99.99_us, max_us.
  void Report(benchmark::State& state);
  // The q-quantile in microseconds.
  double At(double q);

 private:
  std::vector<double> ns_;
  bool sorted_ = false;
};

}  // namespace xms::bench
