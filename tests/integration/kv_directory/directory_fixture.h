// KVDirectory: a Directory over real TCP, its index, and the publishers it listens to.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "kv_directory/directory.h"
#include "kv_index/kv_index.h"
#include "observability/metrics.h"
#include "tests/support/kv_publisher.h"
#include "tests/support/wait_for.h"

namespace xms::kv_directory {

// Instances as a test says they are.
class ScriptedInstances final : public InstanceSource {
 public:
  std::vector<SourceInstance> Instances() const override {
    base::MutexLock lock(mu_);
    return instances_;
  }
  void Set(std::vector<SourceInstance> instances) {
    base::MutexLock lock(mu_);
    instances_ = std::move(instances);
  }

 private:
  mutable base::Mutex mu_;
  std::vector<SourceInstance> instances_ XMS_GUARDED_BY(mu_);
};

class KVDirectory : public ::testing::Test {
 protected:
  using Tier = model::Tier;
  using Expectation = testing::Expectation;
  using Tokens = testing::Tokens;

  static StreamSpec SpecOf(const testing::KvPublisher& publisher, const std::string& name,
                           std::int32_t rank = 0) {
    return {.key = {{name}, {rank}},
            .block_size = 4,
            .endpoint = publisher.endpoint(),
            .replay_endpoint = publisher.replay_endpoint(),
            .topic = "xllm-kv"};
  }
  static DirectoryConfig ConfigOf(std::vector<StreamSpec> streams) {
    DirectoryConfig config;
    config.streams = std::move(streams);
    config.limits.replay_timeout = std::chrono::milliseconds(500);
    return config;
  }

  void StartWith(DirectoryConfig config) {
    index_.emplace(kv_index::Options{.max_blocks_per_stream = config.limits.max_blocks_per_stream});
    directory_.emplace(std::move(config), *index_, clock_, &instances_, metrics_);
    directory_->Start();
  }
  void StartWith(const testing::KvPublisher& publisher) {
    StartWith(ConfigOf({SpecOf(publisher, "a")}));
  }
  void TearDown() override {
    if (directory_) directory_->Stop();
  }

  std::optional<kv_index::StreamStatus> StatusOf(const std::string& name,
                                                 std::int32_t rank = 0) const {
    for (kv_index::StreamStatus& status : index_->Streams()) {
      if (status.info->key == model::StreamKey{{name}, {rank}}) return std::move(status);
    }
    return std::nullopt;
  }
  Expectation HitsOf(const std::string& name, const Tokens& prompt, std::int32_t rank = 0) const {
    const auto slots = index_->Slots();
    kv_index::MatchResult result;
    index_->Match(prompt, result);
    for (const auto& entry : slots->Of({name})) {
      if (entry.info->key.rank.value != rank) continue;
      const kv_index::SlotMatch& match = result.slots[entry.slot];
      if (kv_index::KvIndex::LifeOf(match.generation) != entry.life) break;
      return {match.device_hit_tokens, match.host_only_hit_tokens};
    }
    return {};
  }
  ::testing::AssertionResult WaitSynchronized(const std::string& name,
                                              std::int32_t rank = 0) const {
    auto result = testing::WaitFor(name + " is synchronized", [&] {
      const auto status = StatusOf(name, rank);
      return status && status->synchronized;
    });
    if (!result) result << ", error: " << ErrorOf(name, rank);
    return result;
  }
  ::testing::AssertionResult WaitUnsynchronized(const std::string& name) const {
    return testing::WaitFor(name + " is unsynchronized", [&] {
      const auto status = StatusOf(name);
      return status && !status->synchronized;
    });
  }
  // The stream has applied everything that its publisher has said.
  ::testing::AssertionResult WaitCaughtUp(const testing::KvPublisher& publisher,
                                          const std::string& name, std::int32_t rank = 0) const {
    auto result = testing::WaitFor(name + " has caught up", [&] {
      const auto status = StatusOf(name, rank);
      return status && status->synchronized && status->sequence_valid &&
             status->sequence.value == publisher.last_sequence();
    });
    if (!result) result << ", error: " << ErrorOf(name, rank);
    return result;
  }
  ::testing::AssertionResult WaitError(const std::string& name, const std::string& part) const {
    auto result = testing::WaitFor("error of " + name + " names '" + part + "'",
                                   [&] { return ErrorOf(name).find(part) != std::string::npos; });
    if (!result) result << ", error: " << ErrorOf(name);
    return result;
  }
  std::string ErrorOf(const std::string& name, std::int32_t rank = 0) const {
    const auto status = StatusOf(name, rank);
    return status ? status->error : "(no such stream)";
  }
  double Metric(const std::string& name_and_labels) const {
    const std::string text = metrics_.Exposition();
    const std::size_t at = text.find("\n" + name_and_labels + " ");
    if (at == std::string::npos) return -1;
    return std::stod(text.substr(at + name_and_labels.size() + 2));
  }

  // A series of one stream; 0 while it has none. `cause`: label and value.
  double StreamMetric(const std::string& name, const std::string& instance,
                      const std::pair<std::string, std::string>& cause = {},
                      std::int32_t rank = 0) const {
    observability::Labels labels = {{"instance", instance}, {"rank", std::to_string(rank)}};
    if (!cause.first.empty()) labels.insert(cause);
    std::string shown;
    for (const auto& [label, value] : labels) {
      shown += (shown.empty() ? "{" : ",") + label + "=\"" + value + "\"";
    }
    return std::max(Metric(name + shown + "}"), 0.0);
  }

  const Tokens prompt_ = testing::MakePrompt(1, 8);
  base::SystemClock clock_;
  observability::MetricRegistry metrics_;
  ScriptedInstances instances_;
  std::optional<kv_index::KvIndex> index_;
  std::optional<Directory> directory_;
};

}  // namespace xms::kv_directory
