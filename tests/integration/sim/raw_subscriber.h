// RawSubscriber: a rank's events and snapshots as bare ZeroMQ frames, for tests.
//
// Place       Tests of the simulator; knows the wire and nothing of whoever speaks it.
// Threads     The test's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kv_events/kv_batch.h"

namespace xms::sim {

using Frames = std::vector<std::string>;

class RawSubscriber {
 public:
  RawSubscriber(std::uint16_t event_port, std::uint16_t replay_port, const std::string& topic);
  ~RawSubscriber();
  RawSubscriber(const RawSubscriber&) = delete;
  RawSubscriber& operator=(const RawSubscriber&) = delete;

  // The next live message; nothing after `timeout_ms`.
  std::optional<Frames> Next(int timeout_ms);
  // Everything that the ROUTER answers to one request: up to the terminator, else what came within
  // `timeout_ms`. Each with a DEALER of its own.
  std::vector<Frames> AskForSnapshot(int timeout_ms);

 private:
  struct Impl;
  Impl* impl_;
};

std::uint64_t FromBigEndian(const std::string& bytes);
bool IsTerminator(const Frames& reply);
// Fails the test when the payload is not a batch of this rank and block size.
kv_events::KvBatch Decoded(const std::string& payload, std::uint32_t block_size,
                           std::int32_t dp_rank = 0);

}  // namespace xms::sim
