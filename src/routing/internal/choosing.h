// What both policies do with candidates: sides, rotation, and why nobody was left.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "routing/policy.h"

namespace xms::routing::internal {

// Texts of Scored::left_out.
inline constexpr std::string_view kNotSchedulable = "not schedulable";
inline constexpr std::string_view kNoLoadReport = "no load report";
inline constexpr std::string_view kInvalidLoad = "invalid load";
inline constexpr std::string_view kNoDecodeInstance = "no decode instance";
inline constexpr std::string_view kServedAlone = "not needed: a DEFAULT serves alone";

inline bool Decodes(const Candidate& candidate) { return candidate.role == model::Role::kDecode; }
inline bool ServesAlone(const Candidate& candidate) {
  return candidate.role == model::Role::kDefault;
}

enum class Side : std::uint8_t { kPrimary, kDecode };
inline bool On(const Candidate& candidate, Side side) {
  return Decodes(candidate) == (side == Side::kDecode);
}

// Whose turn it is among equals. Threads: any.
class Rotation {
 public:
  // 0 … equals − 1; every value equally often. Alone, nobody's turn passes.
  std::size_t Next(std::size_t equals) {
    return equals < 2 ? 0 : static_cast<std::size_t>(turn_.fetch_add(1) % equals);
  }

 private:
  std::atomic<std::uint64_t> turn_{0};
};

// How many on that side are considered and satisfy `also`.
template <typename Predicate>
std::size_t CountConsidered(std::span<const Candidate> candidates,
                            const std::vector<Scored>& scored, Side side, const Predicate& also) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (scored[i].considered && On(candidates[i], side) && also(scored[i])) ++count;
  }
  return count;
}

// The next in turn of those; −1 when there is none.
template <typename Predicate>
int NextInTurn(std::span<const Candidate> candidates, const std::vector<Scored>& scored, Side side,
               Rotation& rotation, const Predicate& among) {
  const std::size_t equals = CountConsidered(candidates, scored, side, among);
  if (equals == 0) return -1;
  std::size_t skip = rotation.Next(equals);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (scored[i].considered && On(candidates[i], side) && among(scored[i]) && skip-- == 0) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

inline bool Anyone(const Scored& /*scored*/) { return true; }

// A DEFAULT takes the whole request: the D's do not take part.
void LeaveOutDecode(std::span<const Candidate> candidates, std::vector<Scored>& scored);

// Once nobody is left, the reason.
std::string_view WhyNobody(std::span<const Candidate> candidates,
                           const std::vector<Scored>& scored);

}  // namespace xms::routing::internal
