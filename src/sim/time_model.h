// TimeModel: how long an engine's step takes, from published measurements.
//
// Place       RankScheduler asks it once a step. Pure; any thread.
// Source      One set of measurements, so that prefill and decode belong together: NVIDIA NIM
//             1.8.0, Llama-3.3-70B-Instruct, fp8, two H100 80 GB (tensor parallel 2),
//             https://docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance
//               time to first token of a lone request, ms: 200 tokens 31.22 · 500 47.77 ·
//               1000 82.46 · 5000 406.77 · 20000 1833.01
//               between tokens, ms (500 in, 2000 out): 1 request 18.91 · 5 19.04 · 25 21.69 ·
//               50 23.97 · 100 29.98; (20000 in) 1 19.58 · 5 25.24. At more than one the figures
//               contain the prefills that interrupt decoding; their share (requests/s × time to
//               first token) is taken out before fitting.
// Fit         prefill of n tokens  = 10 + 0.0763 n + 7.4e-7 n² ms
//             decode of B sequences with c tokens of context in all = 18.5 + 0.065 B + 2.0e-5 c ms
//             Within 6 % of the prefills from 500 tokens up and within 4 % of the lone decodes.
// Chunks      A chunk of n tokens behind p earlier ones costs prefill(p + n) − prefill(p), the
//             fixed part once a step. A step that does both costs the sum: the measured throughput
//             of mixed load (5000 in, 500 out, 25 requests) is within 8 % of that.
// Host        80 layers × 8 KV heads × 128 × 2 (key, value) × 1 byte = 163,840 bytes a token, over
//             each GPU's PCIe 5.0 link, half of it on each, at the 64 GB/s a direction of the data
//             sheet, https://www.nvidia.com/en-us/data-center/h100/: 1.28e-3 ms a token.
// Proof       SimTimeModel*: every figure quoted above.
#pragma once

#include <chrono>
#include <cstdint>

namespace xms::sim {

// Simulated time since the engine's clock began.
using SimTime = std::chrono::nanoseconds;

// What one step computes.
struct StepWork {
  std::uint32_t prefill_tokens = 0;
  // Sum over the prefills of (tokens after)² − (tokens before)²: what attention has to look at.
  double attention = 0;
  std::uint32_t decode_sequences = 0;
  std::uint64_t decode_context_tokens = 0;
  std::uint64_t host_loaded_tokens = 0;

  void AddPrefill(std::uint32_t tokens, std::uint32_t behind);
  void AddDecode(std::uint32_t context_tokens);
};

// Never zero, also when there is nothing to do.
SimTime StepTime(const StepWork& work);
// Either direction between Device and Host.
SimTime HostCopyTime(std::uint64_t tokens);

}  // namespace xms::sim
