// EngineProcess: publishers in a process of their own, forked from this one.
//
// Threads     Confined. Made while this process has no other threads: the child is a copy of it.
// Protocol    The child writes its ports and what it is asked for as 64-bit numbers into one pipe, and
//             takes orders, a byte each, from another. It is killed with this object, and ends when its
//             parent does.
// Failure     What cannot happen on a healthy machine ends the program.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace xms::bench {

class EngineProcess {
 public:
  // `body` is the child's; it gets the ends of its pipes.
  explicit EngineProcess(const std::function<void(int orders, int answers)>& body);
  ~EngineProcess();
  EngineProcess(const EngineProcess&) = delete;
  EngineProcess& operator=(const EngineProcess&) = delete;

  void Order(char what) const;
  std::uint64_t Answer() const;  // waits for it

  static void SendAnswer(int answers, std::uint64_t value);

 private:
  pid_t pid_ = -1;
  int orders_ = -1;
  int answers_ = -1;
};

// A child's body: `streams` publishers, each on a live and a snapshot port, which it answers first, two
// numbers a stream. Order 'g': publish CircleBatches without a pause, as fast as the subscribers take it;
// nothing is dropped. Order 's': stop, and answer the last sequence of each. Snapshots are empty: the
// streams must have recovered before 'g'.
void PublishCircles(int orders, int answers, std::size_t streams, std::size_t chains,
                    std::size_t resident);

}  // namespace xms::bench
