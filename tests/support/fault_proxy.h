// FaultProxy: a TCP hop between a publisher and a directory that misbehaves on demand.
//
// Place       Tests with real sockets. Downstream is from the publisher (the target) to whoever
//             connected. Knows of ZeroMQ only where its messages begin and end (ZMTP 3), so that whole
//             messages can be lost, repeated and swapped; what is not ZMTP passes as it comes.
// Threads     Every public function: any thread. Bytes move on a thread of its own.
// Faults      Those that last are in force for every connection, old and new, until they are changed.
//             Bytes that are on their way inside the proxy when a fault begins are subject to it.
// Bounds      kMaxQueued bytes a direction and connection, or one message if that is more; then the
//             sender is not read from.
// Failure     What cannot happen in a healthy test environment (no port, no thread) aborts with a
//             message. A target that refuses resets the connection to it.
// Proof       Tests that use a fault also assert what it did: KVDirectoryFaults*.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace xms::testing {

class FaultProxy {
 public:
  static constexpr std::size_t kMaxQueued = 64 << 10;
  enum class Cut : std::uint8_t { kClose, kReset };  // an orderly end, or RST

  // Between 127.0.0.1:port(), a free port, and 127.0.0.1:target_port.
  explicit FaultProxy(std::uint16_t target_port);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  std::uint16_t port() const;
  std::string endpoint() const;  // tcp://127.0.0.1:port

  // --- faults that last; downstream but for the first and the last
  void Stall(bool on);                        // half-open: nothing moves, and no end is noticed
  void Delay(std::chrono::milliseconds by);   // 0: off
  void Throttle(std::size_t bytes_a_second);  // 0: off
  void Swallow(bool on);                      // bytes are taken and lost
  // Every connection is cut after so many more bytes; one already under way too.
  void CutAfter(std::size_t bytes, Cut how);
  void CutNoMore();
  // New connections are accepted and left alone. Released, they are served newest first.
  void HoldNew(bool on);

  // --- faults that happen once
  void CutAll(Cut how);
  void SwallowBytes(std::size_t bytes);       // the next of each connection
  void LoseMessages(std::size_t messages);    // the next of all connections together
  void RepeatMessages(std::size_t messages);  // each of the next comes twice
  void SwapMessages();                        // the next one comes after its successor

  // --- what happened
  std::size_t connections() const;   // joined to the target now
  std::size_t held() const;          // by HoldNew
  std::size_t accepted() const;      // ever joined to the target
  std::uint64_t bytes_down() const;  // delivered downstream, ever
  std::size_t messages_lost() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace xms::testing
