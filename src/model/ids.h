// Identifiers that two modules share: own types, so that a rank is never taken for a sequence.
//
// Place       Every module above base. Plain values; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace xms::model {

// An instance's registered name, `host:http_port`; also the address that is dialled.
struct InstanceId {
  std::string name;
  auto operator<=>(const InstanceId&) const = default;
};

// Data-parallel rank inside an instance, 0 … dp_size − 1.
struct DpRank {
  std::int32_t value = 0;
  auto operator<=>(const DpRank&) const = default;
};

// One event stream: an instance's rank.
struct StreamKey {
  InstanceId instance;
  DpRank rank;
  auto operator<=>(const StreamKey&) const = default;
};

// The engine's own 64-bit name for a block; means something inside one stream only.
struct WireHash {
  std::uint64_t value = 0;
  auto operator<=>(const WireHash&) const = default;
};

// Event sequence of a stream, as published.
struct StreamSeq {
  std::uint64_t value = 0;
  auto operator<=>(const StreamSeq&) const = default;
};

// Which process stands behind a name (requirements E5, G6). The incarnation decides; a registration time
// stands in where there is none; with neither, nothing can be told apart.
struct ProcessIdentity {
  std::string incarnation_id;
  std::uint64_t register_ts_ms = 0;  // 0: not given

  bool known() const { return !incarnation_id.empty() || register_ts_ms != 0; }
  // True when both are known to name the same process.
  bool SameProcess(const ProcessIdentity& other) const {
    if (!incarnation_id.empty() || !other.incarnation_id.empty()) {
      return incarnation_id == other.incarnation_id;
    }
    return register_ts_ms != 0 && register_ts_ms == other.register_ts_ms;
  }
  auto operator<=>(const ProcessIdentity&) const = default;
};

enum class Tier : std::uint8_t { kDevice = 0, kHost = 1 };

}  // namespace xms::model

template <>
struct std::hash<xms::model::WireHash> {
  std::size_t operator()(const xms::model::WireHash& hash) const noexcept {
    return static_cast<std::size_t>(hash.value);
  }
};
