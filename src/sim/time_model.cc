#include "sim/time_model.h"

#include <algorithm>

namespace xms::sim {
namespace {

// Milliseconds; where they come from is said in the header.
constexpr double kPrefillFixed = 10.0;
constexpr double kPrefillPerToken = 0.0763;
constexpr double kPrefillPerTokenSquared = 7.4e-7;
constexpr double kDecodeFixed = 18.5;
constexpr double kDecodePerSequence = 0.065;
constexpr double kDecodePerContextToken = 2.0e-5;
constexpr double kHostCopyPerToken = 1.28e-3;

SimTime FromMs(double ms) {
  return std::max(SimTime(1), SimTime(static_cast<SimTime::rep>(ms * 1e6)));
}

}  // namespace

void StepWork::AddPrefill(std::uint32_t tokens, std::uint32_t behind) {
  const double before = behind;
  const double after = before + tokens;
  prefill_tokens += tokens;
  attention += after * after - before * before;
}

void StepWork::AddDecode(std::uint32_t context_tokens) {
  ++decode_sequences;
  decode_context_tokens += context_tokens;
}

SimTime StepTime(const StepWork& work) {
  double ms = 0;
  if (work.prefill_tokens > 0) {
    ms += kPrefillFixed + kPrefillPerToken * work.prefill_tokens +
          kPrefillPerTokenSquared * work.attention;
  }
  if (work.decode_sequences > 0) {
    ms += kDecodeFixed + kDecodePerSequence * work.decode_sequences +
          kDecodePerContextToken * static_cast<double>(work.decode_context_tokens);
  }
  return FromMs(ms) +
         (work.host_loaded_tokens > 0 ? HostCopyTime(work.host_loaded_tokens) : SimTime(0));
}

SimTime HostCopyTime(std::uint64_t tokens) {
  return FromMs(kHostCopyPerToken * static_cast<double>(tokens));
}

}  // namespace xms::sim
