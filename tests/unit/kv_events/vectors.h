// The vectors of tests/data/kv-event-vectors.json, and what a decoded batch is compared by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "kv_events/decoder.h"

namespace xms::kv_events::test {

// An event as the vectors state it: by content, without positions in arrays.
struct PlainEvent {
  std::string op;      // store, replica, remove, clear, ignore
  std::string tier;    // device, host, unknown; "" for an unscoped clear and for what is ignored
  std::string reason;  // of ignore
  std::vector<std::uint64_t> hashes;
  std::optional<std::uint64_t> parent;
  std::vector<std::uint32_t> tokens;
  bool operator==(const PlainEvent&) const = default;
};
std::ostream& operator<<(std::ostream& out, const PlainEvent& event);

struct Vector {
  std::string name;
  std::vector<std::byte> payload;
  DecoderOptions options;
  bool valid = false;
  // Of a valid one:
  double timestamp = 0;
  std::optional<std::int32_t> dp_rank;
  std::vector<PlainEvent> events;
  // Of a malformed one:
  std::string error;
};

// Read once; an unreadable file fails the test that asks.
const std::vector<Vector>& AllVectors();
const Vector& VectorNamed(const std::string& name);

std::vector<PlainEvent> Plain(const KvBatch& batch);

// What every decoded batch must satisfy; "" or the first violation.
std::string BatchFault(const KvBatch& batch, const DecoderOptions& options);

// Does msgpack-cxx see one whole MessagePack item and nothing after it?
bool ReferenceAccepts(const std::byte* data, std::size_t size);

// A page that ends where reading ends: one byte too far is a crash in every build.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t capacity);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  // A copy whose last byte is the last one that can be read. Replaces the copy before.
  std::span<const std::byte> Place(std::span<const std::byte> payload);

 private:
  std::byte* base_ = nullptr;
  std::size_t readable_ = 0;
  std::size_t mapped_ = 0;
};

}  // namespace xms::kv_events::test
