// Wakeup: makes a thread that waits in poll look up.
//
// Place       One per stream thread; signalled by whoever stops it and by SnapshotGate.
// Threads     Signal: any. fd, Drain: the waiting thread.
// Ownership   Shared: a signal may come while its target is ending.
#pragma once

#include <memory>

namespace xms::kv_directory {

class Wakeup {
 public:
  // Null when the process has run out of file descriptors.
  static std::shared_ptr<Wakeup> Make();
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  void Signal();
  void Drain();
  int fd() const { return fd_; }  // readable after Signal

 private:
  explicit Wakeup(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace xms::kv_directory
