// MachineProbe: what a StreamMachine remembers, for the explorer's memo of states.
//
// Place       Tests only; the machine's one friend. Times count by what they are still good for: which
//             of them comes next, and whether it has come.
// Threads     Externally synchronised.
#pragma once

#include <cstdint>

#include "kv_directory/recovery/stream_machine.h"
#include "tests/unit/kv_directory/model/fingerprint.h"

namespace xms::kv_directory {

struct MachineProbe {
  static void AddTo(const StreamMachine& machine, base::SteadyTime now,
                    proof::Fingerprint& fingerprint) {
    const auto flag = [](bool set, int bit) { return set ? std::uint64_t{1} << bit : 0; };
    fingerprint.Add(static_cast<std::uint64_t>(machine.phase_) << 8 |
                    static_cast<std::uint64_t>(machine.stage_));
    fingerprint.Add(flag(machine.topic_seen_, 0) | flag(machine.snapshot_seen_, 1) |
                    flag(machine.zero_may_come_, 2) | flag(machine.retrying_, 3) |
                    flag(machine.holding_, 4) | flag(machine.hinted_, 5) |
                    flag(machine.renewed_, 6) | flag(machine.refused_next_.has_value(), 7));
    fingerprint.AddNext(machine.last_seen_ ? *machine.last_seen_ + 1 : 0);
    fingerprint.AddNext(machine.snapshot_floor_);
    fingerprint.AddNext(machine.inherited_floor_);
    if (machine.synchronized()) {
      const auto left = base::MillisBetween(now, machine.reconcile_at_);
      fingerprint.Add(left <= 0 ? 0 : left <= 500 ? 1 : 2);
      fingerprint.Add(static_cast<std::uint64_t>(machine.silent_moves_));
      fingerprint.AddNext(machine.next_);
    }
    fingerprint.Add(machine.snapshot_.parts().size());
    if (machine.stage_ == StreamMachine::Stage::kRunning || machine.holding_) {
      fingerprint.AddNext(machine.floor_at_request_);
      fingerprint.AddNext(machine.snapshot_.next());
    }
    for (const auto& entry : machine.log_.entries()) {
      fingerprint.AddNext(entry.sequence + 1);
      fingerprint.Add(entry.damage.size());
    }
  }
};

}  // namespace xms::kv_directory
