#include "kv_directory/streams/state_log.h"

#include <algorithm>
#include <utility>

#include "base/str_cat.h"

namespace xms::kv_directory {

void StateLog::Refill(base::SteadyTime now) {
  if (left_ == kBurst) {
    refilled_at_ = now;
    return;
  }
  const auto more = std::max<std::int64_t>((now - refilled_at_) / kInterval, 0);
  left_ = static_cast<int>(std::min<std::int64_t>(left_ + more, kBurst));
  refilled_at_ += more * kInterval;
}

std::optional<StateLog::Line> StateLog::Change(bool synchronized, const std::string& text,
                                               base::SteadyTime now) {
  held_ = {synchronized, text};
  ++held_count_;
  return Due(now);
}

std::optional<StateLog::Line> StateLog::Due(base::SteadyTime now) {
  Refill(now);
  if (held_count_ == 0 || left_ == 0) return std::nullopt;
  --left_;
  if (const std::uint64_t more = std::exchange(held_count_, 0) - 1; more > 0) {
    base::StrAppend(held_.text, " (and ", more, more == 1 ? " change" : " changes",
                    " before it that were not logged)");
  }
  return std::move(held_);
}

base::SteadyTime StateLog::next() const {
  return held_count_ == 0 ? base::SteadyTime::max() : refilled_at_ + kInterval;
}

}  // namespace xms::kv_directory
