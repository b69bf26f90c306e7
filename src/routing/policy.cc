#include "routing/policy.h"

#include "routing/internal/choosing.h"

namespace xms::routing {

std::string_view NoCreditName(NoCredit why) {
  switch (why) {
    case NoCredit::kNone:
      return "";
    case NoCredit::kNotTokenized:
      return "not_tokenized";
    case NoCredit::kEmptyPrompt:
      return "empty_prompt";
    case NoCredit::kPromptShorterThanBlock:
      return "prompt_shorter_than_block";
    case NoCredit::kDirectoryOff:
      return "directory_off";
    case NoCredit::kNoStream:
      return "no_stream";
    case NoCredit::kRankMissing:
      return "rank_missing";
    case NoCredit::kUnsynchronized:
      return "unsynchronized";
    case NoCredit::kIdentityUnknown:
      return "identity_unknown";
    case NoCredit::kIdentityChanged:
      return "identity_changed";
    case NoCredit::kDecodeRole:
      return "decode_role";
    case NoCredit::kNotAsked:
      return "not_asked";
  }
  return "unknown";
}

namespace internal {

void LeaveOutDecode(std::span<const Candidate> candidates, std::vector<Scored>& scored) {
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (Decodes(candidates[i]) && scored[i].considered) {
      scored[i].considered = false;
      scored[i].left_out = kServedAlone;
    }
  }
}

std::string_view WhyNobody(std::span<const Candidate> candidates,
                           const std::vector<Scored>& scored) {
  if (candidates.empty()) return "no instance is registered";
  bool schedulable = false;
  bool primary = false;
  bool lacks_decode = false;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].schedulable) continue;
    schedulable = true;
    if (!Decodes(candidates[i])) primary = true;
    if (scored[i].left_out == kNoDecodeInstance) lacks_decode = true;
  }
  if (!schedulable) return "no instance is schedulable";
  if (!primary) return "only decode instances are schedulable";
  if (lacks_decode) return "no decode instance, and no DEFAULT that can serve alone";
  return "every load report is invalid";
}

}  // namespace internal
}  // namespace xms::routing
