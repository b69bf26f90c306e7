// Reader: one MessagePack item at a time, and never a byte past the payload.
//
// Place       The only code of kv_events that knows MessagePack's formats, but for the loops over
//             plain integers in integer_run.h.
// Threads     Confined to the DecodeBatch call that owns it.
// Ownership   Borrows the payload.
// Invariants  R1  offset() never exceeds the payload's size; nothing outside the payload is read.
//             R2  A declared length or count is compared with the bytes that are left before anything
//                 is done with it: an element takes at least one byte, a map's pair at least two.
//             R3  Nesting is counted, not recursed into: at most kMaxDepth open containers.
// Failure     Operations return false and leave code and offset in failure(). The position then means
//             nothing; a caller that only tried may Seek() back and go on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "kv_events/decoder.h"

namespace xms::kv_events::internal {

// Open containers at a time. Real messages need 6: batch, events, event, extra_keys, a block's
// entry, a pair in it.
inline constexpr unsigned kMaxDepth = 16;

enum class ItemKind : std::uint8_t {
  kNil,
  kBool,
  kUnsigned,
  kNegative,
  kFloat,
  kString,
  kBinary,
  kExtension,
  kArray,
  kMap,
};

struct Item {
  ItemKind kind = ItemKind::kNil;
  // kBool: 0 or 1. kUnsigned: the value. kNegative: two's complement. kString, kBinary, kExtension:
  // bytes at `data`. kArray: elements. kMap: pairs.
  std::uint64_t value = 0;
  double number = 0;                   // kFloat
  const std::uint8_t* data = nullptr;  // kString, kBinary, kExtension

  bool is_integer() const { return kind == ItemKind::kUnsigned || kind == ItemKind::kNegative; }
  bool is_container() const { return kind == ItemKind::kArray || kind == ItemKind::kMap; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data), value}; }
};

struct Failure {
  DecodeCode code = DecodeCode::kOk;
  std::size_t offset = 0;
};

inline std::uint64_t LoadBigEndian64(const std::uint8_t* bytes) {
  std::uint64_t value;
  std::memcpy(&value, bytes, sizeof value);
  if constexpr (std::endian::native == std::endian::little) value = __builtin_bswap64(value);
  return value;
}

inline std::uint32_t LoadBigEndian32(const std::uint8_t* bytes) {
  std::uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  if constexpr (std::endian::native == std::endian::little) value = __builtin_bswap32(value);
  return value;
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> payload)
      : begin_(reinterpret_cast<const std::uint8_t*>(payload.data())),
        position_(begin_),
        end_(begin_ + payload.size()) {}

  std::size_t offset() const { return static_cast<std::size_t>(position_ - begin_); }
  std::size_t left() const { return static_cast<std::size_t>(end_ - position_); }
  const std::uint8_t* position() const { return position_; }
  const std::uint8_t* end() const { return end_; }
  // To a place that was read before, or past bytes that the caller has read itself.
  void Seek(std::size_t offset) { position_ = begin_ + offset; }
  void Advance(std::size_t bytes) { position_ += bytes; }

  // A string, binary or extension whole; of an array or map only the head: its elements follow.
  [[nodiscard]] bool Next(Item& item) {
    // Most items of an event are short strings; the rest is a call away.
    if (position_ != end_ && (*position_ & 0xe0) == 0xa0 && *position_ - 0xa0u < left()) {
      item.kind = ItemKind::kString;
      item.value = *position_ & 0x1fu;
      item.data = position_ + 1;
      position_ += 1 + item.value;
      return true;
    }
    return NextOfAnyForm(item);
  }

  // One item with all that is in it. `open` containers are open around it. `says_something` becomes
  // true when the item holds a value other than nil, false and empty: [] and [nil, ""] hold none.
  [[nodiscard]] bool Skip(unsigned open, bool* says_something = nullptr);

  // Always false, so that callers can return it.
  bool Fail(DecodeCode code, std::size_t offset) {
    failure_ = {code, offset};
    return false;
  }
  const Failure& failure() const { return failure_; }

 private:
  bool NextOfAnyForm(Item& item);
  bool TakeUnsigned(unsigned width, std::uint64_t& value);
  bool TakeBytes(ItemKind kind, std::uint64_t length, std::size_t head, Item& item);
  bool TakeCount(ItemKind kind, std::uint64_t count, std::size_t head, Item& item);

  const std::uint8_t* begin_;
  const std::uint8_t* position_;
  const std::uint8_t* end_;
  Failure failure_;
};

}  // namespace xms::kv_events::internal
