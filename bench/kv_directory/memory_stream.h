// MemoryStream: a stream's real machine and ledger, whose messages come from memory instead of sockets.
//
// Threads     Confined.
// Ownership   Borrows the index, which outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "bench/kv_directory/feed.h"
#include "kv_directory/config.h"
#include "kv_directory/recovery/stream_machine.h"
#include "kv_directory/recovery/stream_metrics.h"
#include "kv_index/kv_index.h"
#include "kv_index/stream_ledger.h"

namespace xms::bench {

class MemoryStream final : private kv_directory::StreamMachine::Actions {
 public:
  MemoryStream(kv_index::KvIndex& index, const std::string& name);

  // Connects, and asks for a snapshot.
  void Begin();
  // The answer to it: all of the parts, then the terminator. The stream is synchronized after it.
  void Answer(const Payloads& parts, std::uint64_t watermark);
  // Begin and an answer without blocks.
  void SynchronizeEmpty();
  // The next live batch.
  void Live(kv_directory::Frame payload, base::SteadyTime now);

  bool synchronized() const { return machine_.synchronized(); }
  const kv_index::StreamLedger& ledger() const { return *ledger_; }
  std::uint32_t slot() const { return slot_; }

 private:
  void OpenSubscription() override {}
  void CloseSubscription() override {}
  void OpenExchange() override {}
  void CloseExchange() override {}
  void StateChanged(bool synchronized, const std::string& line) override;

  const kv_directory::StreamSpec spec_;
  const kv_directory::Limits limits_;
  const kv_directory::StreamMetrics metrics_;
  std::unique_ptr<kv_index::StreamLedger> ledger_;
  kv_directory::StreamMachine machine_;
  std::uint64_t next_sequence_ = 0;
  std::uint32_t slot_ = 0;
  std::string last_line_;
};

}  // namespace xms::bench
