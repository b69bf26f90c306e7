// Payload: MessagePack written by hand, for what the encoder would never write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace xms::kv_events::test {

class Payload {
 public:
  Payload& Byte(unsigned value) {
    bytes_.push_back(static_cast<std::byte>(value));
    return *this;
  }
  Payload& BigEndian(std::uint64_t value, unsigned width) {
    for (unsigned i = width; i-- > 0;) Byte(static_cast<unsigned>(value >> (8 * i)) & 0xff);
    return *this;
  }
  Payload& Nil() { return Byte(0xc0); }
  // In the shortest form.
  Payload& Int(std::uint64_t value) {
    if (value < 0x80) return Byte(static_cast<unsigned>(value));
    if (value <= 0xff) return Byte(0xcc).BigEndian(value, 1);
    if (value <= 0xffff) return Byte(0xcd).BigEndian(value, 2);
    if (value <= 0xffffffff) return Byte(0xce).BigEndian(value, 4);
    return Byte(0xcf).BigEndian(value, 8);
  }
  Payload& Double(std::uint64_t bits) { return Byte(0xcb).BigEndian(bits, 8); }
  Payload& Text(std::string_view text) {
    Byte(0xd9).Byte(static_cast<unsigned>(text.size()));
    for (const char letter : text) Byte(static_cast<unsigned char>(letter));
    return *this;
  }
  Payload& Array(std::uint32_t elements) { return Byte(0xdd).BigEndian(elements, 4); }
  Payload& Map(std::uint32_t pairs) { return Byte(0xdf).BigEndian(pairs, 4); }
  Payload& Append(const Payload& other) {
    bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end());
    return *this;
  }
  // [0.0, events, …: the events and the rank are to follow.
  Payload& BatchHead(std::uint32_t events) { return Array(3).Double(0).Array(events); }

  std::span<const std::byte> bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace xms::kv_events::test
