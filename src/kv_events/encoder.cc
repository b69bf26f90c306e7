#include "kv_events/encoder.h"

#include <bit>
#include <cstdlib>
#include <string_view>

namespace xms::kv_events {
namespace {

// Appends MessagePack items in their shortest form.
class Writer {
 public:
  explicit Writer(std::vector<std::byte>& out) : out_(out) {}

  void Nil() { Byte(0xc0); }

  void Unsigned(std::uint64_t value) {
    if (value < 0x80) {
      Byte(static_cast<std::uint8_t>(value));
    } else if (value <= 0xff) {
      Byte(0xcc);
      BigEndian(value, 1);
    } else if (value <= 0xffff) {
      Byte(0xcd);
      BigEndian(value, 2);
    } else if (value <= 0xffffffff) {
      Byte(0xce);
      BigEndian(value, 4);
    } else {
      Byte(0xcf);
      BigEndian(value, 8);
    }
  }

  void Double(double value) {
    Byte(0xcb);
    BigEndian(std::bit_cast<std::uint64_t>(value), 8);
  }

  // Up to 31 bytes: every string of an event.
  void ShortString(std::string_view text) {
    Byte(static_cast<std::uint8_t>(0xa0 | text.size()));
    for (const char letter : text) Byte(static_cast<std::uint8_t>(letter));
  }

  // Up to 15 pairs: every map of a batch.
  void ShortMap(unsigned pairs) { Byte(static_cast<std::uint8_t>(0x80 | pairs)); }

  void Array(std::size_t elements) {
    if (elements < 16) {
      Byte(static_cast<std::uint8_t>(0x90 | elements));
    } else if (elements <= 0xffff) {
      Byte(0xdc);
      BigEndian(elements, 2);
    } else {
      Byte(0xdd);
      BigEndian(elements, 4);
    }
  }

 private:
  void Byte(std::uint8_t value) { out_.push_back(static_cast<std::byte>(value)); }

  void BigEndian(std::uint64_t value, unsigned width) {
    for (unsigned shift = 8 * width; shift != 0;) {
      shift -= 8;
      Byte(static_cast<std::uint8_t>(value >> shift));
    }
  }

  std::vector<std::byte>& out_;
};

// What the header calls a defect of the caller.
void Require(bool condition) {
  if (!condition) std::abort();
}

void WriteHashes(std::span<const model::WireHash> hashes, Writer& writer) {
  writer.ShortString("block_hashes");
  writer.Array(hashes.size());
  for (const model::WireHash hash : hashes) writer.Unsigned(hash.value);
}

void WriteMedium(EventScope scope, Writer& writer) {
  Require(scope == EventScope::kDevice || scope == EventScope::kHost);
  writer.ShortString("medium");
  writer.ShortString(scope == EventScope::kDevice ? "gpu" : "cpu");
}

void WriteEvent(const KvBatch& batch, const KvEvent& event, std::uint32_t block_size,
                Writer& writer) {
  switch (event.kind) {
    case EventKind::kStore:
    case EventKind::kReplica:
      writer.ShortMap(6);
      writer.ShortString("type");
      writer.ShortString("BlockStored");
      WriteHashes(batch.HashesOf(event), writer);
      writer.ShortString("parent_block_hash");
      if (event.has_parent) {
        writer.Unsigned(event.parent.value);
      } else {
        writer.Nil();
      }
      writer.ShortString("token_ids");
      writer.Array(event.token_count);
      for (const std::uint32_t token : batch.TokensOf(event)) writer.Unsigned(token);
      writer.ShortString("block_size");
      writer.Unsigned(block_size);
      WriteMedium(event.scope, writer);
      return;
    case EventKind::kRemove:
      writer.ShortMap(3);
      writer.ShortString("type");
      writer.ShortString("BlockRemoved");
      WriteHashes(batch.HashesOf(event), writer);
      WriteMedium(event.scope, writer);
      return;
    case EventKind::kClear:
      writer.ShortMap(event.scope == EventScope::kAll ? 1 : 2);
      writer.ShortString("type");
      writer.ShortString("AllBlocksCleared");
      if (event.scope != EventScope::kAll) WriteMedium(event.scope, writer);
      return;
    case EventKind::kIgnored:
      break;
  }
  Require(false);
}

}  // namespace

void EncodeBatch(const KvBatch& batch, std::uint32_t block_size, std::vector<std::byte>& out) {
  Require(batch.dp_rank >= 0);
  Writer writer(out);
  writer.Array(3);
  writer.Double(batch.timestamp);
  writer.Array(batch.events.size());
  for (const KvEvent& event : batch.events) WriteEvent(batch, event, block_size, writer);
  writer.Unsigned(static_cast<std::uint64_t>(batch.dp_rank));
}

}  // namespace xms::kv_events
