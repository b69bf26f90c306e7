// EventPublisher: one rank's sockets: XPUB for live batches, ROUTER for snapshots.
//
// Place       Engine owns one per rank. ZeroMQ stays inside event_publisher.cc.
// Wire        Live: topic | 8-byte big-endian sequence | payload. Request on the ROUTER: identity | "" | 8-byte
//             start sequence (ignored). Reply: identity | "" | watermark | payload, then the
//             terminator identity | "" | 2^64 − 1 | "".
// Threads     Publish, Reply: any thread. A thread of its own owns the sockets, sends in the order of the calls,
//             snapshots and live batches alike, and calls on_request.
// Ownership   Closing joins the thread and frees both ports: they can be bound again when the destructor
//             returns. What is still queued then is dropped.
// Bounds      kMaxQueued messages wait for the thread; one that finds no place is dropped and counted, so that
//             subscribers see a gap. kMaxRequests snapshots are asked for at a time; more are ignored. A
//             slow subscriber loses messages at its high-water mark.
// Snapshots   Of one that is larger than services take by default the log says so, and which of the
//             service's settings to raise; again when it has grown by a quarter.
// Failure     Open: kUnavailable naming the port that cannot be bound.
// Proof       SimEventPublisher*, SimEngine*.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace xms::sim {

class EventPublisher {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // numeric address to bind; "*": all interfaces
    std::uint16_t event_port = 0;    // 0: any free one
    std::uint16_t replay_port = 0;
    std::string topic;
  };
  static constexpr std::size_t kMaxQueued = 100'000;
  static constexpr std::size_t kMaxRequests = 16;

  // Who asked; opaque.
  struct SnapshotRequest {
    std::string identity;
  };
  // What is missing from an answer that is cut.
  enum class Cut : std::uint8_t {
    kNone,
    kTerminator,
    kPayload,  // its second half; the terminator follows
    kAll,
  };

  // `on_request` runs on the publisher's thread. Each request must get one Reply.
  static base::Result<std::unique_ptr<EventPublisher>> Open(
      Options options, std::function<void(SnapshotRequest)> on_request);
  ~EventPublisher();
  EventPublisher(const EventPublisher&) = delete;
  EventPublisher& operator=(const EventPublisher&) = delete;

  void Publish(std::uint64_t sequence, std::vector<std::byte> payload);
  void Reply(SnapshotRequest request, std::uint64_t watermark, std::vector<std::byte> payload,
             Cut cut);

  std::uint16_t event_port() const;
  std::uint16_t replay_port() const;
  std::uint64_t dropped() const;

 private:
  struct Impl;
  explicit EventPublisher(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace xms::sim
