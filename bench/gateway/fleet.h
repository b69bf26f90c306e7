// Fleet: registered instances with a synchronized stream each, which hold from a part to all of one long
// prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "bench/support/measure.h"
#include "instances/instance_manager.h"
#include "kv_index/kv_index.h"
#include "kv_index/stream_ledger.h"

namespace xms::gateway {

inline constexpr std::uint32_t kBlock = 128;
inline constexpr std::size_t kLongPrompt = 12000;  // tokens

inline std::vector<std::uint32_t> Tokens(std::size_t count) {
  std::mt19937 random(1);
  std::vector<std::uint32_t> tokens(count);
  for (std::uint32_t& token : tokens) token = random() % 150000;
  return tokens;
}

class Fleet {
 public:
  explicit Fleet(const std::vector<std::string>& names) {
    base::SetLogLevel(base::LogLevel::kWarning);
    const auto tokens = Tokens(kLongPrompt);
    const std::size_t blocks = tokens.size() / kBlock;
    for (std::size_t i = 0; i < names.size(); ++i) {
      model::InstanceRecord record;
      record.id.name = names[i];
      record.identity.incarnation_id = "x";
      record.data_plane = model::DataPlane::kHttp;
      manager_.Put(record);
      bench::Require(manager_.OnHeartbeat({{names[i]}, "x", model::LoadSample{1, 0.5}}).ok(),
                     "heartbeat");
      kv_index::StreamInfo info;
      info.key = {{names[i]}, {0}};
      info.block_size = kBlock;
      info.identity.incarnation_id = "x";
      auto ledger = std::move(index_.OpenStream(info, "new")).value();
      std::vector<model::WireHash> hashes(blocks * (i + 1) / names.size());
      for (std::size_t block = 0; block < hashes.size(); ++block) hashes[block] = {block + 1};
      bench::Require(ledger
                         ->Store(model::Tier::kDevice, hashes, std::nullopt,
                                 std::span(tokens).first(hashes.size() * kBlock),
                                 kv_index::StreamLedger::Orphans::kRefuse)
                         .ok(),
                     "store");
      ledger->Synchronize({1});
      ledgers_.push_back(std::move(ledger));
    }
  }
  const kv_index::KvIndex& index() const { return index_; }
  instances::InstanceManager& manager() { return manager_; }

 private:
  class NoProbe final : public instances::HealthProbe {
   public:
    void Probe(const model::InstanceId& /*id*/, std::function<void(bool)> done) override {
      done(true);
    }
  };
  base::SystemClock clock_;
  NoProbe probe_;
  instances::InstanceManager manager_{{}, clock_, probe_};
  kv_index::KvIndex index_{kv_index::Options{}};
  std::vector<std::unique_ptr<kv_index::StreamLedger>> ledgers_;
};

}  // namespace xms::gateway
