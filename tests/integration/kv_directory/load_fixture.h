// Directories that listen to a kv_load_process: many streams whose content is a formula.
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "kv_directory/config.h"
#include "tests/support/child_process.h"
#include "tests/support/load_publisher.h"

namespace xms::kv_directory {

class LoadProcess {
 public:
  // Options that are not the default are passed on; ports are free ones.
  explicit LoadProcess(const testing::LoadPublisher::Options& options)
      : options_(options),
        process_(
            "kv_load_process",
            {"streams=" + std::to_string(options.streams),
             "chains=" + std::to_string(options.chains), "chain=" + std::to_string(options.chain),
             "block_size=" + std::to_string(options.block_size),
             "seed=" + std::to_string(options.seed),
             "batches_a_second=" + std::to_string(options.batches_a_second),
             "answer_after_ms=" + std::to_string(options.answer_after.count()),
             "part_bytes=" + std::to_string(options.part_bytes),
             "high_water_mark=" + std::to_string(options.high_water_mark)}) {
    std::istringstream words(process_.greeting());
    for (std::uint16_t port = 0; words >> port;) ports_.push_back(port);
  }

  const testing::LoadPublisher::Options& options() const { return options_; }
  std::uint16_t event_port(std::size_t stream) const { return ports_.at(2 * stream); }
  std::uint16_t replay_port(std::size_t stream) const { return ports_.at(2 * stream + 1); }
  static std::string NameOf(std::size_t stream) { return "e" + std::to_string(stream); }
  // Straight, without a proxy.
  StreamSpec SpecOf(std::size_t stream) const {
    return {.key = {{NameOf(stream)}, {0}},
            .block_size = options_.block_size,
            .endpoint = "tcp://127.0.0.1:" + std::to_string(event_port(stream)),
            .replay_endpoint = "tcp://127.0.0.1:" + std::to_string(replay_port(stream)),
            .topic = options_.topic};
  }
  std::vector<StreamSpec> Specs() const {
    std::vector<StreamSpec> specs;
    for (std::size_t i = 0; i < options_.streams; ++i) specs.push_back(SpecOf(i));
    return specs;
  }

  struct Held {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    std::uint64_t last_sequence = 0;
  };
  Held HeldBy(std::size_t stream) {
    std::istringstream words(process_.Ask("held " + std::to_string(stream)));
    Held held;
    words >> held.first >> held.count >> held.last_sequence;
    return held;
  }
  testing::LoadPublisher::Statistics statistics() {
    std::istringstream words(process_.Ask("statistics"));
    testing::LoadPublisher::Statistics s;
    words >> s.batches >> s.unsent >> s.snapshot_requests >> s.snapshots >>
        s.most_snapshots_at_once >> s.least_spacing_us >> s.snapshot_bytes;
    return s;
  }
  void Tell(const std::string& line) { process_.Ask(line); }
  void SetRate(std::size_t batches_a_second) { Tell("rate " + std::to_string(batches_a_second)); }
  void Publish(std::size_t stream, std::size_t batches) {
    Tell("publish " + std::to_string(stream) + " " + std::to_string(batches));
  }
  testing::ChildProcess& process() { return process_; }

  std::vector<std::uint32_t> Prompt(std::size_t stream, std::uint64_t chain) const {
    return testing::LoadPublisher::Prompt(options_, stream, chain);
  }

 private:
  const testing::LoadPublisher::Options options_;
  testing::ChildProcess process_;
  std::vector<std::uint16_t> ports_;
};

}  // namespace xms::kv_directory
