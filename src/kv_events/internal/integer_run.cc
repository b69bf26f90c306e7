#include "kv_events/internal/integer_run.h"

#include <array>
#include <bit>
#include <cstring>

namespace xms::kv_events::internal {
namespace {

constexpr std::uint8_t kUint8 = 0xcc;
constexpr std::uint8_t kUint16 = 0xcd;
constexpr std::uint8_t kUint32 = 0xce;
constexpr std::uint8_t kUint64 = 0xcf;

// Bytes of a plain token whose first byte is known are 1, 2, 3 or 5; 0 stands for anything else.
constexpr std::size_t kLongestToken = 5;

// What is the value in the last four bytes of a token of this length, given that a short token's
// four bytes begin in front of it.
constexpr std::array<std::uint32_t, kLongestToken + 1> kValueMask = {0,      0xff, 0xff,
                                                                     0xffff, 0,    0xffffffff};

using Lanes = std::uint8_t __attribute__((vector_size(16)));
constexpr std::size_t kLanes = sizeof(Lanes);

Lanes Splat(std::uint8_t value) { return value - Lanes{}; }

Lanes Load(const std::uint8_t* bytes) {
  Lanes lanes;
  std::memcpy(&lanes, bytes, sizeof lanes);
  return lanes;
}

void Store(std::uint8_t* bytes, Lanes lanes) { std::memcpy(bytes, &lanes, sizeof lanes); }

// `value` where the condition's lane is set (all ones), else 0.
template <typename Condition>
Lanes Where(Condition condition, Lanes value) {
  return reinterpret_cast<Lanes>(condition) & value;
}

// Token lengths for every byte position of a window, as if a token began there.
class LengthWindow {
 public:
  // Positions at which a pair may begin.
  static constexpr std::size_t kPositions = 128;
  // Bytes that must be readable from the window's start: the tokens of the last pair included.
  static constexpr std::size_t kBytes = kPositions + kLanes;
  static_assert(kPositions - 1 + 2 * kLongestToken <= kBytes);

  explicit LengthWindow(const std::uint8_t* bytes) {
    for (std::size_t at = 0; at < kBytes; at += kLanes) {
      const Lanes format = Load(bytes + at);
      Store(one_.data() + at, Where(format < Splat(0x80), Splat(1)) |
                                  Where(format == Splat(kUint8), Splat(2)) |
                                  Where(format == Splat(kUint16), Splat(3)) |
                                  Where(format == Splat(kUint32), Splat(5)));
    }
    for (std::size_t at = 0; at < kPositions; at += kLanes) {
      const std::uint8_t* next = one_.data() + at;
      const Lanes first = Load(next);
      const Lanes second =
          Where(first == Splat(1), Load(next + 1)) | Where(first == Splat(2), Load(next + 2)) |
          Where(first == Splat(3), Load(next + 3)) | Where(first == Splat(5), Load(next + 5));
      Store(two_.data() + at, Where(second != Lanes{}, first + second));
    }
  }

  // Length of the token at `position`, which is below kBytes; 0 if there is no plain token.
  std::size_t One(std::size_t position) const { return one_[position]; }
  // Length of the two tokens from `position` on, which is below kPositions; 0 unless both are plain.
  std::size_t Two(std::size_t position) const { return two_[position]; }

 private:
  static_assert(kPositions - kLanes + kLongestToken + kLanes <= kBytes);
  std::array<std::uint8_t, kBytes> one_;
  std::array<std::uint8_t, kPositions> two_;
};

std::uint64_t LoadNative64(const std::uint8_t* bytes) {
  std::uint64_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

constexpr std::size_t kGroup = 8;  // tokens in a group of 3-byte tokens
constexpr std::size_t kGroupBytes = 3 * kGroup;

// Do eight 3-byte tokens begin here?
bool IsGroupOfUint16(const std::uint8_t* bytes) {
  // Bit masks over the 24 bytes, read as three words: 0xff at every third byte.
  constexpr std::array<std::uint8_t, kGroupBytes> kAt = {0xff, 0, 0, 0xff, 0, 0, 0xff, 0, 0,
                                                         0xff, 0, 0, 0xff, 0, 0, 0xff, 0, 0,
                                                         0xff, 0, 0, 0xff, 0, 0};
  constexpr auto kWords = std::bit_cast<std::array<std::uint64_t, 3>>(kAt);
  constexpr std::uint64_t kTag = kUint16 * 0x0101010101010101u;
  return (((LoadNative64(bytes) ^ kTag) & kWords[0]) |
          ((LoadNative64(bytes + 8) ^ kTag) & kWords[1]) |
          ((LoadNative64(bytes + 16) ^ kTag) & kWords[2])) == 0;
}

// One token after the other, each checked against the end. Returns how many were read.
std::size_t ReadOneByOne(const std::uint8_t*& position, const std::uint8_t* end, std::size_t count,
                         std::uint32_t* out) {
  const std::uint8_t* p = position;
  std::size_t done = 0;
  for (; done < count && p != end; ++done) {
    const std::uint8_t format = *p;
    const std::size_t left = static_cast<std::size_t>(end - p);
    if (format == kUint16 && left >= 3) {
      out[done] = static_cast<std::uint32_t>(p[1]) << 8 | p[2];
      p += 3;
    } else if (format == kUint32 && left >= 5) {
      out[done] = LoadBigEndian32(p + 1);
      p += 5;
    } else if (format < 0x80) {
      out[done] = format;
      p += 1;
    } else if (format == kUint8 && left >= 2) {
      out[done] = p[1];
      p += 2;
    } else {
      break;
    }
  }
  position = p;
  return done;
}

}  // namespace

std::size_t ReadTokenRun(Reader& reader, std::size_t count, std::uint32_t* out, bool& mixed) {
  const std::uint8_t* p = reader.position();
  const std::uint8_t* const end = reader.end();
  std::size_t done = 0;
  bool wide = true;  // nothing but plain tokens so far
  while (wide && count - done >= kGroup &&
         static_cast<std::size_t>(end - p) >= LengthWindow::kBytes) {
    if (IsGroupOfUint16(p)) {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kGroup; ++i) {
        out[done + i] = LoadBigEndian32(p + 3 * i - 1) & 0xffff;
      }
      done += kGroup;
      p += kGroupBytes;
      mixed = false;
      continue;
    }
    if (!mixed) {
      // Perhaps a lone one among 3-byte tokens: cheaper past it than through a window.
      const std::size_t read = ReadOneByOne(p, end, kGroup, out + done);
      done += read;
      if (read < kGroup) break;
      mixed = true;
      continue;
    }
    const LengthWindow window(p);
    const std::size_t before = done;
    std::size_t at = 0;
    while (at < LengthWindow::kPositions && count - done >= 2) {
      const std::size_t both = window.Two(at);
      if (both == 0) [[unlikely]] {
        wide = false;
        break;
      }
      const std::size_t middle = at + window.One(at);
      const std::size_t next = at + both;
      out[done] = LoadBigEndian32(p + middle - 4) & kValueMask[middle - at];
      out[done + 1] = LoadBigEndian32(p + next - 4) & kValueMask[next - middle];
      done += 2;
      at = next;
    }
    p += at;
    mixed = at != 3 * (done - before);
  }
  done += ReadOneByOne(p, end, count - done, out + done);
  reader.Advance(static_cast<std::size_t>(p - reader.position()));
  return done;
}

std::size_t ReadHashRun(Reader& reader, std::size_t count, model::WireHash* out) {
  constexpr std::size_t kBytes = 9;
  const std::uint8_t* p = reader.position();
  std::size_t done = 0;
  while (done < count && static_cast<std::size_t>(reader.end() - p) >= kBytes && *p == kUint64) {
    out[done++].value = LoadBigEndian64(p + 1);
    p += kBytes;
  }
  reader.Advance(done * kBytes);
  return done;
}

}  // namespace xms::kv_events::internal
