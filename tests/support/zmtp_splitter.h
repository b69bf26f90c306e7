// ZmtpSplitter: where a ZMTP 3 byte stream's messages begin and end.
//
// Place       FaultProxy.
// Threads     Externally synchronised.
// Form        A greeting of 64 bytes that begins with 0xff, then frames: flags (1 more, 2 long,
//             4 command), a length of one byte or of eight, the body. A message is its frames up to the
//             first without `more`; a command is one frame. A stream that begins otherwise is not
//             taken apart.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xms::testing {

class ZmtpSplitter {
 public:
  struct Piece {
    bool message = false;  // whole; else a greeting, a command or unknown bytes
    std::string bytes;
  };

  // Everything that is complete now. The rest is kept.
  std::vector<Piece> Take(std::string_view bytes) {
    std::vector<Piece> out;
    rest_.append(bytes);
    std::size_t done = 0;
    while (done < rest_.size()) {
      if (greeted_ == 0) raw_ = rest_.front() != '\xff';
      if (raw_ || greeted_ < kGreeting) {
        // As it comes: each side sends the rest of its greeting when it has seen the other's begin.
        const std::size_t size = raw_ ? rest_.size() : std::min(rest_.size(), kGreeting - greeted_);
        greeted_ += size;
        out.push_back({false, rest_.substr(done, size)});
        done += size;
        continue;
      }
      bool command = false;
      const std::size_t size = SizeOfMessage(std::string_view(rest_).substr(done), command);
      if (size == 0) break;
      out.push_back({!command, rest_.substr(done, size)});
      done += size;
    }
    rest_.erase(0, done);
    return out;
  }

 private:
  static constexpr std::size_t kGreeting = 64;

  // 0: not all of it is there.
  static std::size_t SizeOfMessage(std::string_view bytes, bool& command) {
    std::size_t at = 0;
    for (;;) {
      if (bytes.size() < at + 2) return 0;
      const auto flags = static_cast<unsigned char>(bytes[at]);
      const std::size_t width = (flags & 2) != 0 ? 8 : 1;
      if (bytes.size() < at + 1 + width) return 0;
      std::uint64_t length = 0;
      for (std::size_t i = 0; i < width; ++i) {
        length = length << 8 | static_cast<unsigned char>(bytes[at + 1 + i]);
      }
      const std::size_t body = at + 1 + width;
      if (bytes.size() - body < length) return 0;
      at = body + static_cast<std::size_t>(length);
      command = (flags & 4) != 0;
      if ((flags & 1) == 0) return at;
    }
  }

  std::size_t greeted_ = 0;  // bytes of the greeting that have passed
  bool raw_ = false;
  std::string rest_;
};

}  // namespace xms::testing
