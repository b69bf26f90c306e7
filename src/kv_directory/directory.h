// Directory: keeps the index equal to what the engines' event streams say.
//
// Place       Made by app; feeds kv_index. Gateway asks it only for `excluded` and for readiness.
// Threads     Start, Stop: the owner's. Excluded, Settled: any thread. Inside: one thread per
//             stream for its sockets and its ledger, one for discovery. Nothing of it runs on a
//             request.
// Ownership   Borrows index, clock, source and metrics; all outlive Stop().
// Invariants  A stream is credited only between a whole snapshot (or an authoritative live batch,
//             D5) and the first doubt. It never costs availability: every failure ends in
//             "unsynchronized, trying again".
// Failure     Nothing here fails outwardly; each stream's `error` says what is wrong.
// Proof       KVDirectory* over real TCP XPUB/ROUTER sockets; recovery/ driven without sockets.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "kv_directory/config.h"
#include "kv_directory/discovery/stream_plan.h"
#include "kv_index/kv_index.h"
#include "observability/metrics.h"

namespace xms::kv_directory {

class Directory {
 public:
  // `source` is used only with discovery; may be null otherwise.
  Directory(DirectoryConfig config, kv_index::KvIndex& index, const base::Clock& clock,
            const InstanceSource* source, observability::MetricRegistry& metrics);
  ~Directory();  // Stop()
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  void Start();
  // Ends every thread and every stream's credit. May be called twice.
  void Stop();
  // Something about instances changed: plan again now rather than at the next refresh. Any
  // thread, cheap.
  void RefreshSoon();

  std::vector<Excluded> CurrentlyExcluded() const;
  // Every planned stream is synchronized (true when there is none).
  bool Settled() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace xms::kv_directory
