// Mutation: one defect at a time, put in on purpose, to see that the proofs would notice it.
//
// Place       Tests only. mutants.cmake writes a copy of the recovery's sources in which each seam of its
//             table asks Mutant(); the production sources know nothing of it. The defects that lie
//             outside those sources (identity, readers) are World's.
// Threads     The test's; set between histories.
#pragma once

#include <cstdint>

namespace xms::kv_directory::proof {

enum class Mutation : std::uint8_t {
  kNone,
  kNoGapCheck,             // a live batch that skips numbers is applied
  kNoGapCheckInTheBuffer,  // the same behind a snapshot
  kNoRestartCheck,         // a live sequence that goes back is taken for a late one
  kNoGenerationCheck,      // a reader does not compare the generation with the stream it looked up
  kNoIdentityCheck,        // a new process on the old address inherits the stream
  kConnectionForgotten,    // what a connection vouched for counts after it broke
  kWatermarkOneTooHigh,
  kWatermarkOneTooLow,
  kOrphansForgotten,  // a snapshot's orphans are not remembered as opaque
  kNoSecondSnapshot,  // the next snapshot comes after resync_interval_ms
  kStaleSnapshotApplied,
  kHalfSnapshotApplied,      // without waiting for the terminator
  kDamageSkipped,            // a batch that cannot be read is left out
  kLostTailKept,             // a snapshot that is ahead is not applied
  kDifferenceKept,           // a snapshot that differs is not applied
  kFloorForgottenByRenewal,  // our own renewal of a connection counts as the peer's break
};
inline constexpr int kMutations = 17;

inline Mutation active_mutation = Mutation::kNone;
inline bool Mutant(Mutation mutation) { return active_mutation == mutation; }

constexpr const char* NameOf(Mutation mutation) {
  constexpr const char* kNames[kMutations] = {
      "none",
      "no gap check",
      "no gap check in the buffer",
      "no restart check",
      "no generation check",
      "no identity check",
      "connection forgotten",
      "watermark one too high",
      "watermark one too low",
      "orphans forgotten",
      "no second snapshot",
      "stale snapshot applied",
      "half a snapshot applied",
      "damage skipped",
      "lost tail kept",
      "difference kept",
      "floor forgotten by renewal",
  };
  return kNames[static_cast<int>(mutation)];
}

}  // namespace xms::kv_directory::proof
