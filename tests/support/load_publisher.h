// LoadPublisher: many engine ranks in one object, with as much cache and as many events as asked for.
//
// Place       Soak runs, benchmarks and tests of amounts; kv_load_process is this as a process of its
//             own. Content is a formula: stream s holds whole chains (prompts) of `chain` blocks,
//             numbers first … first + chains − 1, so truth needs no memory and anybody can compute it.
// Threads     Every public function: any thread. One thread of its own has all sockets.
// Truth       `Held` at the moment of the call. A batch stores one new chain and removes the oldest;
//             a snapshot is one store a chain.
// Bounds      One chain in flight per batch; a subscriber's queue is `high_water_mark` messages.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace xms::testing {

class LoadPublisher {
 public:
  struct Options {
    std::size_t streams = 1;
    std::size_t chains = 16;  // resident a stream
    std::size_t chain = 64;   // blocks
    std::uint32_t block_size = 16;
    std::uint64_t seed = 1;  // of another process: other content
    std::string topic = "xllm-kv";
    std::size_t batches_a_second = 0;           // a stream
    std::chrono::milliseconds answer_after{0};  // how long a snapshot takes to be made
    std::size_t part_bytes = 4 << 20;           // a snapshot's replies are about as large at most
    int high_water_mark = 10'000;
    std::vector<std::uint16_t> ports;  // event and snapshot port of each stream; empty: free ones
  };
  struct Span {
    std::uint64_t first = 0;  // oldest chain that is held
    std::uint64_t count = 0;
  };
  struct Statistics {
    std::uint64_t batches = 0;
    std::uint64_t unsent = 0;  // of these, those that found no room
    std::uint64_t snapshot_requests = 0;
    std::uint64_t snapshots = 0;
    std::uint64_t most_snapshots_at_once = 0;     // asked for and not answered
    std::uint64_t least_spacing_us = UINT64_MAX;  // between two requests
    std::uint64_t snapshot_bytes = 0;             // of the last one
  };

  explicit LoadPublisher(Options options);
  ~LoadPublisher();
  LoadPublisher(const LoadPublisher&) = delete;
  LoadPublisher& operator=(const LoadPublisher&) = delete;

  // The tokens of a chain.
  static std::vector<std::uint32_t> Prompt(const Options& options, std::size_t stream,
                                           std::uint64_t chain);

  std::vector<std::uint16_t> ports() const;  // event, snapshot, event, snapshot, …
  void SetRate(std::size_t batches_a_second);
  // At once, on one stream.
  void Publish(std::size_t stream, std::size_t batches);
  // How many chains shall be resident: a stream grows by one a batch, and shrinks at once.
  void Resize(std::size_t stream, std::size_t chains);
  void SetAnswerAfter(std::chrono::milliseconds delay);
  Span Held(std::size_t stream) const;
  std::uint64_t last_sequence(std::size_t stream) const;
  Statistics statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace xms::testing
