# Writes copies of the recovery's sources in which each seam asks whether its mutant is active
# (mutation.h). A seam that is not found exactly once stops the build: whoever changes that line says
# here what its defect is now.
#
#   cmake -DFROM=<src/kv_directory/recovery> -DTO=<folder> -P mutants.cmake
cmake_minimum_required(VERSION 3.25)

# One seam: in <file>, <text> becomes <replacement>, where M(x) asks for the mutant x.
function(seam file text replacement)
  if(NOT DEFINED code_${file})
    file(READ "${FROM}/${file}" code)
    string(PREPEND code "#include \"tests/unit/kv_directory/mutation.h\"\n"
                        "#define M(x) ::xms::kv_directory::proof::Mutant("
                        "::xms::kv_directory::proof::Mutation::x)\n")
    list(APPEND files ${file})
    set(files "${files}" PARENT_SCOPE)
  else()
    set(code "${code_${file}}")
  endif()
  string(FIND "${code}" "${text}" first)
  string(FIND "${code}" "${text}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "tests/unit/kv_directory/mutants.cmake: ${file} does not hold exactly once:\n${text}")
  endif()
  string(REPLACE "${text}" "${replacement}" code "${code}")
  set(code_${file} "${code}" PARENT_SCOPE)
endfunction()

seam(stream_machine.cc
  "if (live.sequence <= next_) {"
  "if (live.sequence <= next_ || M(kNoGapCheck)) {")
seam(stream_machine.cc
  "live.sequence < floor) {"
  "live.sequence < floor && !M(kNoRestartCheck)) {")
seam(stream_machine.cc
  "Fault(StrCat(\"the connection to \", spec_.endpoint, \" broke\"), now);"
  "if (!M(kConnectionForgotten)) Fault(StrCat(\"the connection to \", spec_.endpoint, \" broke\"), now);")
seam(stream_machine.cc
  "if (const std::string error = ReadBatch(live.payload, bytes); !error.empty()) {"
  "if (const std::string error = ReadBatch(live.payload, bytes); !error.empty()) {
    if (M(kDamageSkipped)) {
      next_ = live.sequence + 1;
      ledger_.Advance({live.sequence});
      return;
    }")
seam(stream_machine_snapshots.cc
  "if (entry.sequence > next) {"
  "if (entry.sequence > next && !M(kNoGapCheckInTheBuffer)) {")
seam(stream_machine_snapshots.cc
  "reconcile_at_ = now + milliseconds("
  "reconcile_at_ = M(kNoSecondSnapshot) ? now + ReconciliationInterval() : now + milliseconds(")
seam(stream_machine_snapshots.cc
  "} else if (next < floor_at_request_) {
    SnapshotIsStale(now);
    return;"
  "} else if (next < floor_at_request_ && !M(kStaleSnapshotApplied)) {
    SnapshotIsStale(now);
    return;")
seam(stream_machine_snapshots.cc
  "  inherited_floor_ = Floor();"
  "  if (!M(kFloorForgottenByRenewal)) inherited_floor_ = Floor();")
seam(stream_machine_snapshots.cc
  "Rebuild(ExchangeOutcome::kLostTail, now);"
  "M(kLostTailKept) ? EndReconciliation(ExchangeOutcome::kLostTail, now) : Rebuild(ExchangeOutcome::kLostTail, now);")
seam(stream_machine_snapshots.cc
  "Rebuild(ExchangeOutcome::kDifferent, now);"
  "M(kDifferenceKept) ? EndReconciliation(ExchangeOutcome::kDifferent, now) : Rebuild(ExchangeOutcome::kDifferent, now);")
seam(snapshot_reader.cc
  "reply.watermark + 1;"
  "reply.watermark + (M(kWatermarkOneTooHigh) ? 2 : M(kWatermarkOneTooLow) ? 0 : 1);")
seam(snapshot_reader.cc
  "return State::kMore;"
  "return M(kHalfSnapshotApplied) ? State::kWhole : State::kMore;")
seam(apply.cc
  "case EventKind::kStore: {"
  "case EventKind::kStore: {
        if (M(kOrphansForgotten) && orphans == StreamLedger::Orphans::kRemember && event.has_parent &&
            !ledger.Lookup(event.parent).mapped) {
          break;
        }")

foreach(file IN LISTS files)
  file(WRITE "${TO}/${file}" "${code_${file}}")
endforeach()
