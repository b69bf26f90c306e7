// RaiseOpenFileLimit: as many descriptors as the system lets this process have.
//
// Place       main of each program, before anything is opened. A stream takes about eight descriptors, so 128
//             of them about 1,000, which is the soft limit that many systems begin with.
// Threads     The only one there is.
// Failure     None: what cannot be raised stays as it is, and the answer says so.
#pragma once

#include <cstdint>
#include <string>

namespace xms::base {

struct OpenFileLimit {
  std::uint64_t before = 0;
  std::uint64_t now = 0;
  std::uint64_t most = 0;  // what an administrator would have to raise
  std::string Describe() const;
};

// The soft limit becomes the hard one.
OpenFileLimit RaiseOpenFileLimit();

}  // namespace xms::base
