// PublisherProcess: a KvPublisher that is a process of its own and can be killed, stopped, continued
// and started again on its ports.
//
// Place       Tests of kv_directory. Prompts are named by their seed (MakePrompt).
// Threads     Externally synchronised.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/support/child_process.h"
#include "tests/support/kv_truth.h"

namespace xms::testing {

class PublisherProcess {
 public:
  PublisherProcess() { Start(); }

  std::uint16_t event_port() const { return event_port_; }
  std::uint16_t replay_port() const { return replay_port_; }

  // One line of kv_publisher_main.cc; the number that it answers with.
  std::uint64_t Do(const std::string& line) { return std::stoull(process_->Ask(line)); }
  Expectation Expected(std::uint32_t seed, std::size_t blocks) {
    std::istringstream words(
        process_->Ask("expected " + std::to_string(seed) + " " + std::to_string(blocks)));
    Expectation out;
    words >> out.device_tokens >> out.host_only_tokens;
    return out;
  }

  void Kill() { process_.reset(); }
  // Another life, with nothing in it, on the same ports.
  void Start() {
    process_.emplace(
        "kv_publisher_process",
        std::vector<std::string>{std::to_string(event_port_), std::to_string(replay_port_)});
    std::istringstream ports(process_->greeting());
    ports >> event_port_ >> replay_port_;
  }
  void Freeze() const { process_->Signal(SIGSTOP); }
  void Thaw() const { process_->Signal(SIGCONT); }

 private:
  std::uint16_t event_port_ = 0;
  std::uint16_t replay_port_ = 0;
  std::optional<ChildProcess> process_;
};

}  // namespace xms::testing
