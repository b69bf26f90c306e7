#include "instances/state/state_machine.h"

#include <utility>

#include "base/str_cat.h"

namespace xms::instances {
namespace {

using base::LogLevel;
using base::StrCat;
using model::DataPlane;
using model::Role;

// An ACTIVE instance's load does not expire, but one this old decides badly.
constexpr std::chrono::seconds kOldLoad{10};

bool SamePlaceAndState(const Instance& a, const Instance& b) {
  return a.record == b.record && a.state == b.state && a.current_role == b.current_role;
}

// Upstream compares incarnations only, which makes every put of an old engine a refresh; the
// registration time tells two of their processes apart (requirement E5).
bool AnotherProcess(const model::ProcessIdentity& a, const model::ProcessIdentity& b) {
  if (a.incarnation_id != b.incarnation_id) return true;
  return a.incarnation_id.empty() && a.register_ts_ms != 0 && b.register_ts_ms != 0 &&
         a.register_ts_ms != b.register_ts_ms;
}

std::string_view WhyNotSchedulable(const Instance& instance) {
  if (instance.state == State::kSuspect) return "suspect";
  if (instance.record.data_plane == DataPlane::kRpc) return "rpc_plane_not_built";
  if (instance.record.type != Role::kDefault) return "pd_needs_rpc";
  return "";
}

std::string Described(const Instance& instance) {
  std::string text = StrCat("instance ", instance.record.id.name, ": ", StateName(instance.state),
                            ", ", model::RoleName(instance.record.type));
  if (instance.record.type == Role::kMix) {
    base::StrAppend(text, " acting as ", model::RoleName(instance.current_role));
  }
  base::StrAppend(text, ", ", instance.record.dp_size,
                  instance.record.dp_size == 1 ? " rank" : " ranks", ", data plane ",
                  model::DataPlaneName(instance.record.data_plane));
  if (!instance.schedulable) base::StrAppend(text, ", not schedulable: ", instance.reason);
  return text;
}

}  // namespace

// The registration rule: the first MIX without anybody who decodes becomes the one that does.
Role StateMachine::RoleFor(const model::InstanceRecord& record) const {
  if (record.type != Role::kMix) return record.type;
  for (const auto& [name, entry] : entries_) {
    if (name != record.id.name && entry.shown->current_role == Role::kDecode) return Role::kPrefill;
  }
  return Role::kDecode;
}

void StateMachine::Show(Entry& entry, Instance next, Effects& effects) {
  next.reason = WhyNotSchedulable(next);
  next.schedulable = next.reason.empty();
  if (entry.shown == nullptr || !SamePlaceAndState(*entry.shown, next))
    effects.members_changed = true;
  effects.view_changed = true;
  entry.shown = std::make_shared<const Instance>(std::move(next));
}

void StateMachine::Enter(Entry& entry, State state, base::SteadyTime now, std::string_view why,
                         Effects& effects) {
  if (state == State::kSuspect) entry.suspect_since = now;
  if (entry.shown->state == state) return;
  Instance next = *entry.shown;
  next.state = state;
  effects.notices.push_back(
      {state == State::kSuspect ? LogLevel::kWarning : LogLevel::kInfo,
       StrCat("instance ", next.record.id.name, ": ", StateName(entry.shown->state), " -> ",
              StateName(state), ", ", why)});
  Show(entry, std::move(next), effects);
}

PutOutcome StateMachine::Put(model::InstanceRecord record, base::SteadyTime now, Effects& effects) {
  PutOutcome outcome = PutOutcome::kRefreshed;
  auto found = entries_.find(record.id.name);
  if (found == entries_.end()) {
    outcome = PutOutcome::kCreated;
  } else if (AnotherProcess(found->second.shown->record.identity, record.identity)) {
    outcome = PutOutcome::kReplaced;
    entries_.erase(found);
  }

  if (outcome == PutOutcome::kRefreshed) {
    Entry& entry = found->second;
    entry.heard = now;
    entry.lease = ++leases_;
    entry.probing = false;
    Enter(entry, State::kActive, now, "registered again", effects);
    if (entry.shown->record != record) {
      Instance next = *entry.shown;
      if (next.record.type != record.type) next.current_role = RoleFor(record);
      next.record = std::move(record);
      Show(entry, std::move(next), effects);
      effects.notices.push_back(
          {LogLevel::kInfo, StrCat(Described(*entry.shown), " (registration changed)")});
    }
    return outcome;
  }

  Instance made;
  made.current_role = RoleFor(record);
  made.record = std::move(record);
  Entry entry;
  entry.heard = now;
  entry.lease = ++leases_;
  Show(entry, std::move(made), effects);
  effects.notices.push_back(
      {LogLevel::kInfo,
       StrCat(Described(*entry.shown),
              outcome == PutOutcome::kReplaced ? " (another process took the name)" : "")});
  const std::string& name = entry.shown->record.id.name;
  entries_.emplace(name, std::move(entry));
  return outcome;
}

bool StateMachine::Remove(const model::InstanceId& id, Effects& effects) {
  const auto found = entries_.find(id.name);
  if (found == entries_.end()) return false;
  effects.view_changed = effects.members_changed = true;
  effects.notices.push_back({LogLevel::kInfo, StrCat("instance ", id.name, ": deregistered")});
  entries_.erase(found);
  return true;
}

void StateMachine::LeaseLost(const model::InstanceId& id, std::string_view incarnation_id,
                             Effects& effects) {
  const auto found = entries_.find(id.name);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  if (!incarnation_id.empty() && incarnation_id != entry.shown->record.identity.incarnation_id)
    return;
  if (entry.probing) return;
  entry.probing = true;
  effects.probes.push_back({id, entry.lease});
}

void StateMachine::OnProbe(const ProbeTicket& ticket, bool alive, base::SteadyTime now,
                           Effects& effects) {
  const auto found = entries_.find(ticket.id.name);
  if (found == entries_.end() || found->second.lease != ticket.lease || !found->second.probing)
    return;
  Entry& entry = found->second;
  entry.probing = false;
  if (alive) {
    entry.heard = now;
    Enter(entry, State::kLeaseLost, now, "the lease ended but it answers", effects);
  } else {
    Enter(entry, State::kSuspect, now, "the lease ended and it does not answer", effects);
  }
}

base::Status StateMachine::OnHeartbeat(const Heartbeat& heartbeat, base::SteadyTime now,
                                       Effects& effects) {
  const auto found = entries_.find(heartbeat.id.name);
  if (found == entries_.end() ||
      found->second.shown->record.identity.incarnation_id != heartbeat.incarnation_id) {
    return base::Error{base::ErrorCode::kConflict, "instance not registered or stale incarnation"};
  }
  Entry& entry = found->second;
  entry.heard = now;
  if (entry.shown->state == State::kSuspect) {
    Enter(entry, State::kLeaseLost, now, "a heartbeat came", effects);
  }
  if (heartbeat.load.has_value()) {
    Instance next = *entry.shown;
    next.has_load = true;
    next.load = {*heartbeat.load, now, "heartbeat"};
    Show(entry, std::move(next), effects);
  }
  return base::Ok();
}

void StateMachine::Tick(base::SteadyTime now, Effects& effects) {
  for (auto at = entries_.begin(); at != entries_.end();) {
    Entry& entry = at->second;
    const Instance& shown = *entry.shown;
    if (shown.state == State::kSuspect &&
        now - entry.suspect_since >= options_.detect_disconnected_interval) {
      effects.view_changed = effects.members_changed = true;
      effects.notices.push_back(
          {LogLevel::kWarning, StrCat("instance ", at->first, ": gone, SUSPECT for ",
                                      options_.detect_disconnected_interval.count(), " ms")});
      at = entries_.erase(at);
      continue;
    }
    if (shown.state == State::kLeaseLost &&
        now - entry.heard >= options_.lease_lost_heartbeat_timeout) {
      Enter(entry, State::kSuspect, now, "no lease and no heartbeat", effects);
    } else if (shown.state == State::kActive && shown.has_load && !entry.warned_of_age &&
               now - shown.load.at > kOldLoad) {
      entry.warned_of_age = true;
      effects.notices.push_back(
          {LogLevel::kWarning,
           StrCat("instance ", at->first, ": its last load report is ",
                  base::MillisBetween(shown.load.at, now), " ms old and still used")});
    }
    ++at;
  }
}

std::vector<std::shared_ptr<const Instance>> StateMachine::Instances() const {
  std::vector<std::shared_ptr<const Instance>> out;
  out.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) out.push_back(entry.shown);
  return out;
}

}  // namespace xms::instances
