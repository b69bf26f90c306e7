#include "tests/unit/kv_events/vectors.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <msgpack.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace xms::kv_events::test {
namespace {

using Json = nlohmann::json;

std::vector<std::byte> FromHex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Dialect DialectNamed(const std::string& name) {
  if (name == "xllm") return Dialect::kXllm;
  if (name == "vllm") return Dialect::kVllm;
  if (name == "sglang") return Dialect::kSglang;
  if (name == "trtllm") return Dialect::kTrtLlm;
  if (name == "mooncake") return Dialect::kMooncake;
  throw std::invalid_argument("no dialect " + name);
}

PlainEvent EventOf(const Json& json) {
  PlainEvent event;
  event.op = json.at("op");
  event.tier = json.value("tier", "");
  event.reason = json.value("reason", "");
  for (const Json& hash : json.value("hashes", Json::array())) {
    event.hashes.push_back(std::stoull(hash.get<std::string>(), nullptr, 16));
  }
  if (json.contains("parent") && !json["parent"].is_null()) {
    event.parent = std::stoull(json["parent"].get<std::string>(), nullptr, 16);
  }
  event.tokens = json.value("tokens", std::vector<std::uint32_t>());
  return event;
}

Vector VectorOf(const Json& json) {
  Vector vector;
  vector.name = json.at("name");
  vector.payload = FromHex(json.at("hex"));
  vector.valid = json.at("valid");
  const Json& expect = json.at("expect");
  const Json& context = expect.at("context");
  vector.options.dialect = DialectNamed(json.at("dialect"));
  vector.options.dp_rank = context.at("dp_rank");
  vector.options.block_size = context.at("block_size");
  vector.options.strict = context.at("mode") == "strict";
  if (!vector.valid) {
    vector.error = expect.at("error");
    return vector;
  }
  vector.timestamp = expect.at("ts");
  if (!expect.at("dp_rank").is_null()) vector.dp_rank = expect["dp_rank"];
  for (const Json& event : expect.at("events")) vector.events.push_back(EventOf(event));
  return vector;
}

std::string ScopeName(EventScope scope) {
  switch (scope) {
    case EventScope::kDevice:
      return "device";
    case EventScope::kHost:
      return "host";
    case EventScope::kUnknown:
      return "unknown";
    case EventScope::kAll:
      break;
  }
  return "";
}

std::string ReasonName(IgnoreReason reason) {
  switch (reason) {
    case IgnoreReason::kNone:
      return "none";
    case IgnoreReason::kUnknownType:
      return "unknown_type";
    case IgnoreReason::kUnknownMedium:
      return "unknown_medium";
    case IgnoreReason::kContext:
      return "context";
    case IgnoreReason::kCacheGroup:
      return "cache_group";
    case IgnoreReason::kGeometry:
      return "geometry";
    case IgnoreReason::kEmptyStore:
      return "empty_store";
  }
  return "?";
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const PlainEvent& event) {
  out << event.op << " " << event.tier << " " << event.reason << " hashes" << std::hex;
  for (const std::uint64_t hash : event.hashes) out << " " << hash;
  if (event.parent) out << " under " << *event.parent;
  out << std::dec << " tokens";
  for (const std::uint32_t token : event.tokens) out << " " << token;
  return out;
}

const std::vector<Vector>& AllVectors() {
  static const std::vector<Vector> all = [] {
    std::vector<Vector> vectors;
    std::ifstream file(XMS_TEST_DATA_DIR "/kv-event-vectors.json");
    for (const Json& json : Json::parse(file)) vectors.push_back(VectorOf(json));
    return vectors;
  }();
  return all;
}

const Vector& VectorNamed(const std::string& name) {
  for (const Vector& vector : AllVectors()) {
    if (vector.name == name) return vector;
  }
  throw std::invalid_argument("no vector " + name);
}

std::vector<PlainEvent> Plain(const KvBatch& batch) {
  std::vector<PlainEvent> events;
  for (const KvEvent& event : batch.events) {
    PlainEvent plain;
    for (const model::WireHash hash : batch.HashesOf(event)) plain.hashes.push_back(hash.value);
    const auto tokens = batch.TokensOf(event);
    plain.tokens.assign(tokens.begin(), tokens.end());
    plain.tier = ScopeName(event.scope);
    switch (event.kind) {
      case EventKind::kStore:
        plain.op = "store";
        if (event.has_parent) plain.parent = event.parent.value;
        break;
      case EventKind::kReplica:
        plain.op = "replica";
        break;
      case EventKind::kRemove:
        plain.op = "remove";
        break;
      case EventKind::kClear:
        plain.op = "clear";
        break;
      case EventKind::kIgnored:
        plain.op = "ignore";
        plain.reason = ReasonName(event.reason);
        plain.tier.clear();
        break;
    }
    events.insert(events.end(), 1 + std::size_t{event.repeats}, plain);
  }
  return events;
}

std::string BatchFault(const KvBatch& batch, const DecoderOptions& options) {
  if (batch.dp_rank != options.dp_rank) return "rank is not the stream's";
  if (!(batch.timestamp >= 0)) return "timestamp is negative or not a number";
  std::size_t hashes = 0;
  std::size_t tokens = 0;
  for (const KvEvent& event : batch.events) {
    if (event.first_hash != hashes || event.first_token != tokens) {
      return "events do not lie one after the other";
    }
    hashes += event.hash_count;
    tokens += event.token_count;
    if (event.repeats != 0 &&
        (event.kind != EventKind::kIgnored || event.hash_count != 0 || event.has_parent)) {
      return "an event that says something stands for several";
    }
    const bool store = event.kind == EventKind::kStore;
    const std::size_t due = store ? std::size_t{event.hash_count} * options.block_size : 0;
    if (event.token_count != due) return "token count is not hashes times block size";
    if ((store || event.kind == EventKind::kReplica) && event.hash_count == 0) {
      return "store without hashes";
    }
    if ((event.kind == EventKind::kIgnored) != (event.reason != IgnoreReason::kNone)) {
      return "reason given without being ignored, or the reverse";
    }
    if (event.kind == EventKind::kClear && event.hash_count != 0) return "clear with hashes";
    if (event.kind != EventKind::kClear && event.scope == EventScope::kAll) {
      return "scope of all tiers without a clear";
    }
  }
  if (hashes != batch.hashes.size()) return "hashes without an event";
  if (tokens != batch.tokens.size()) return "tokens without an event";
  return "";
}

bool ReferenceAccepts(const std::byte* data, std::size_t size) {
  msgpack::null_visitor visitor;
  std::size_t offset = 0;
  const bool parsed = msgpack::parse(reinterpret_cast<const char*>(data), size, offset, visitor);
  return parsed && offset == size;
}

GuardedBuffer::GuardedBuffer(std::size_t capacity) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  readable_ = (capacity + page - 1) / page * page;
  mapped_ = readable_ + page;
  void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(memory);
  if (mprotect(base_ + readable_, page, PROT_NONE) != 0) throw std::bad_alloc();
}

GuardedBuffer::~GuardedBuffer() { munmap(base_, mapped_); }

std::span<const std::byte> GuardedBuffer::Place(std::span<const std::byte> payload) {
  std::byte* start = base_ + readable_ - payload.size();
  std::copy(payload.begin(), payload.end(), start);
  return {start, payload.size()};
}

}  // namespace xms::kv_events::test
