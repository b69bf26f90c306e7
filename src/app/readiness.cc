#include "app/readiness.h"

namespace xms::app {

bool ReadinessGate::Update(base::SteadyTime now, bool group_can_serve, bool streams_settled) {
  group_can_serve_ = group_can_serve;
  if (group_can_serve) {
    without_group_since_.reset();
    // Streams can only settle once there are instances to subscribe to, hence the order.
    if (streams_settled || now - started_ >= options_.warmup) warm_ = true;
    if (warm_) open_ = true;
    return open_;
  }
  if (!without_group_since_) without_group_since_ = now;
  if (now - *without_group_since_ >= options_.linger) open_ = false;
  return open_;
}

std::vector<std::string> ReadinessGate::Reasons() const {
  if (stopping_) return {"stopping"};
  // The port lingers for a while after the last group went; whoever asks here should know at once.
  if (!group_can_serve_) return {"no_instance_group_can_serve"};
  if (!open_) return {"waiting_for_kv_streams"};
  return {};
}

}  // namespace xms::app
