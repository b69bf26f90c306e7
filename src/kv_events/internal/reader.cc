#include "kv_events/internal/reader.h"

#include <array>

namespace xms::kv_events::internal {
namespace {

// Sign-extends the low `width` bytes.
std::int64_t SignExtend(std::uint64_t value, unsigned width) {
  const unsigned unused = 64 - 8 * width;
  return static_cast<std::int64_t>(value << unused) >> unused;
}

bool SaysSomething(const Item& item) {
  switch (item.kind) {
    case ItemKind::kNil:
      return false;
    case ItemKind::kBool:
    case ItemKind::kString:
    case ItemKind::kBinary:
      return item.value != 0;
    case ItemKind::kArray:
    case ItemKind::kMap:
      return false;  // What is in them decides.
    case ItemKind::kUnsigned:
    case ItemKind::kNegative:
    case ItemKind::kFloat:
    case ItemKind::kExtension:
      return true;
  }
  return true;
}

}  // namespace

bool Reader::TakeUnsigned(unsigned width, std::uint64_t& value) {
  if (left() < width) return false;
  std::uint64_t result = 0;
  for (unsigned i = 0; i < width; ++i) result = result << 8 | position_[i];
  position_ += width;
  value = result;
  return true;
}

bool Reader::TakeBytes(ItemKind kind, std::uint64_t length, std::size_t head, Item& item) {
  if (length > left()) return Fail(DecodeCode::kTruncated, head);
  item.kind = kind;
  item.value = length;
  item.data = position_;
  position_ += length;
  return true;
}

bool Reader::TakeCount(ItemKind kind, std::uint64_t count, std::size_t head, Item& item) {
  // Counts are below 2^32: doubling cannot overflow.
  if ((kind == ItemKind::kMap ? 2 * count : count) > left()) {
    return Fail(DecodeCode::kTruncated, head);
  }
  item.kind = kind;
  item.value = count;
  return true;
}

bool Reader::NextOfAnyForm(Item& item) {
  const std::size_t head = offset();
  if (position_ == end_) return Fail(DecodeCode::kTruncated, head);
  const std::uint8_t format = *position_++;
  if (format < 0x80) {
    item.kind = ItemKind::kUnsigned;
    item.value = format;
    return true;
  }
  if (format < 0x90) return TakeCount(ItemKind::kMap, format & 0x0f, head, item);
  if (format < 0xa0) return TakeCount(ItemKind::kArray, format & 0x0f, head, item);
  if (format < 0xc0) return TakeBytes(ItemKind::kString, format & 0x1f, head, item);
  if (format >= 0xe0) {
    item.kind = ItemKind::kNegative;
    item.value = static_cast<std::uint64_t>(static_cast<std::int64_t>(format) - 0x100);
    return true;
  }

  std::uint64_t value = 0;
  switch (format) {
    case 0xc0:
      item.kind = ItemKind::kNil;
      item.value = 0;
      return true;
    case 0xc1:
      return Fail(DecodeCode::kReservedByte, head);
    case 0xc2:
    case 0xc3:
      item.kind = ItemKind::kBool;
      item.value = format & 1u;
      return true;
    case 0xc4:
    case 0xc5:
    case 0xc6:  // bin 8, 16, 32
      if (!TakeUnsigned(1u << (format - 0xc4), value)) return Fail(DecodeCode::kTruncated, head);
      return TakeBytes(ItemKind::kBinary, value, head, item);
    case 0xc7:
    case 0xc8:
    case 0xc9:  // ext 8, 16, 32: the length leaves out the byte that holds the type
      if (!TakeUnsigned(1u << (format - 0xc7), value)) return Fail(DecodeCode::kTruncated, head);
      return TakeBytes(ItemKind::kExtension, value + 1, head, item);
    case 0xca:
      if (!TakeUnsigned(4, value)) return Fail(DecodeCode::kTruncated, head);
      item.kind = ItemKind::kFloat;
      item.number = std::bit_cast<float>(static_cast<std::uint32_t>(value));
      return true;
    case 0xcb:
      if (!TakeUnsigned(8, value)) return Fail(DecodeCode::kTruncated, head);
      item.kind = ItemKind::kFloat;
      item.number = std::bit_cast<double>(value);
      return true;
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:  // uint 8, 16, 32, 64
      if (!TakeUnsigned(1u << (format - 0xcc), value)) return Fail(DecodeCode::kTruncated, head);
      item.kind = ItemKind::kUnsigned;
      item.value = value;
      return true;
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3: {  // int 8, 16, 32, 64; a packer may write positive values so
      const unsigned width = 1u << (format - 0xd0);
      if (!TakeUnsigned(width, value)) return Fail(DecodeCode::kTruncated, head);
      const std::int64_t number = SignExtend(value, width);
      item.kind = number < 0 ? ItemKind::kNegative : ItemKind::kUnsigned;
      item.value = static_cast<std::uint64_t>(number);
      return true;
    }
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:  // fixext 1, 2, 4, 8, 16
      return TakeBytes(ItemKind::kExtension, (1u << (format - 0xd4)) + 1, head, item);
    case 0xd9:
    case 0xda:
    case 0xdb:  // str 8, 16, 32
      if (!TakeUnsigned(1u << (format - 0xd9), value)) return Fail(DecodeCode::kTruncated, head);
      return TakeBytes(ItemKind::kString, value, head, item);
    case 0xdc:
    case 0xdd:  // array 16, 32
      if (!TakeUnsigned(format == 0xdc ? 2 : 4, value)) return Fail(DecodeCode::kTruncated, head);
      return TakeCount(ItemKind::kArray, value, head, item);
    default:  // 0xde, 0xdf: map 16, 32
      if (!TakeUnsigned(format == 0xde ? 2 : 4, value)) return Fail(DecodeCode::kTruncated, head);
      return TakeCount(ItemKind::kMap, value, head, item);
  }
}

bool Reader::Skip(unsigned open, bool* says_something) {
  std::array<std::uint64_t, kMaxDepth> remaining;  // items still to come, per container opened here
  unsigned levels = 0;
  Item item;
  for (;;) {
    const std::size_t head = offset();
    if (!Next(item)) return false;
    if (says_something != nullptr && SaysSomething(item)) *says_something = true;
    if (item.is_container()) {
      if (open + levels >= kMaxDepth) return Fail(DecodeCode::kDepthExceeded, head);
      const std::uint64_t items = item.kind == ItemKind::kMap ? 2 * item.value : item.value;
      if (items != 0) {
        remaining[levels++] = items;
        continue;
      }
    }
    while (levels != 0 && --remaining[levels - 1] == 0) --levels;
    if (levels == 0) return true;
  }
}

}  // namespace xms::kv_events::internal
