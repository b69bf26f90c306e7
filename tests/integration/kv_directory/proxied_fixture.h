// KVDirectoryFaults: a directory, a publisher that is a process of its own, and a fault proxy on each of
// their two connections.
#pragma once

#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

#include "tests/integration/kv_directory/directory_fixture.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/publisher_process.h"

namespace xms::kv_directory {

class KVDirectoryFaults : public KVDirectory {
 protected:
  static constexpr std::chrono::milliseconds kResync{200};

  StreamSpec ProxiedSpec() const {
    return {.key = {{"a"}, {0}},
            .block_size = 4,
            .endpoint = events_.endpoint(),
            .replay_endpoint = snapshots_.endpoint(),
            .topic = "xllm-kv"};
  }
  // prompt_ is held when it begins; live batches arrive when it returns.
  void StartSynchronized() {
    publisher_.Do("store device 1 8");
    StartUnsynchronized();
    ASSERT_TRUE(WaitSynchronized("a"));
    ASSERT_TRUE(testing::WaitFor("the subscription arrives",
                                 [&] { return publisher_.Do("subscriptions") == 1; }));
    publisher_.Do("heartbeat");
    ASSERT_TRUE(WaitTrue());
    ASSERT_EQ(HitsOf("a", prompt_), Expectation({32, 0}));
  }
  void StartUnsynchronized() {
    DirectoryConfig config = ConfigOf({ProxiedSpec()});
    config.limits.resync_interval = kResync;
    StartWith(config);
  }
  // The second half of prompt_ goes, another prompt comes.
  void Change() {
    publisher_.Do("remove device 1 8 4");
    publisher_.Do("store device 2 4");
  }

  // Waits, and looks all the while that no more is credited than the publisher holds.
  ::testing::AssertionResult WaitNeverStale(const std::string& what,
                                            const std::function<bool()>& condition) {
    std::optional<Expectation> stale;
    auto result = testing::WaitFor(what, [&] {
      for (const auto& [prompt, seed, blocks] :
           {std::tuple{&prompt_, 1u, 8u}, std::tuple{&other_, 2u, 4u}}) {
        const Expectation truth = publisher_.Expected(seed, blocks);
        const Expectation hits = HitsOf("a", *prompt);
        if (Sum(hits) > Sum(truth)) stale = hits;
      }
      return condition();
    });
    if (stale) {
      return ::testing::AssertionFailure() << "while waiting for: " << what << ": " << Sum(*stale)
                                           << " tokens credited, fewer are held";
    }
    if (!result) result << ", error: " << ErrorOf("a");
    return result;
  }
  // The doubt is seen, and from then on nothing stale until the truth is there.
  ::testing::AssertionResult WaitNeverStaleAfter(const std::function<bool()>& seen) {
    auto result = testing::WaitFor("the doubt is seen", seen);
    return result ? WaitTrue() : result;
  }
  // Synchronized at the publisher's last sequence, with exactly what it holds.
  ::testing::AssertionResult WaitTrue() {
    const std::uint64_t last = publisher_.Do("last");
    return WaitNeverStale("the truth, all of it", [&] {
      const auto status = StatusOf("a");
      return status && status->synchronized && status->sequence.value == last &&
             HitsOf("a", prompt_) == publisher_.Expected(1, 8) &&
             HitsOf("a", other_) == publisher_.Expected(2, 4);
    });
  }
  // It goes on from there: a batch that comes now is applied as it comes.
  ::testing::AssertionResult WaitFollowing() {
    publisher_.Do("store device 1 8");
    return WaitTrue();
  }

  static std::uint32_t Sum(const Expectation& hits) {
    return hits.device_tokens + hits.host_only_tokens;
  }
  // All series of a name whose labels contain `label`.
  double Total(const std::string& name, const std::string& label = "") const {
    std::istringstream lines(metrics_.Exposition());
    double total = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.compare(0, name.size(), name) != 0) continue;
      const char next = line[name.size()];
      if ((next != '{' && next != ' ') || line.find(label) == std::string::npos) continue;
      total += std::stod(line.substr(line.rfind(' ')));
    }
    return total;
  }
  double Recoveries() const {
    return Total("xms_kv_stream_recoveries_total", "outcome=\"completed\"");
  }
  double Reconciled(const std::string& outcome) const {
    return Total("xms_kv_stream_reconciliations_total", "outcome=\"" + outcome + "\"");
  }

  const Tokens other_ = testing::MakePrompt(2, 4);
  testing::PublisherProcess publisher_;
  testing::FaultProxy events_{publisher_.event_port()};
  testing::FaultProxy snapshots_{publisher_.replay_port()};
};

}  // namespace xms::kv_directory
