// kv_publisher_process: KvPublisher as a process of its own, told what to do line by line.
//
//   kv_publisher_process [EVENT_PORT REPLAY_PORT]     0 or nothing: free ports
//
// It says "ok EVENT_PORT REPLAY_PORT" when it listens. TIER is device or host, SEED and BLOCKS name a
// prompt (MakePrompt), FIRST and COUNT a range of its blocks. Every change answers with its sequence.
//   store|replicate|remove TIER SEED BLOCKS [FIRST [COUNT]]      clear [TIER]      heartbeat
//   storm BATCHES SEED    each of them stores the blocks of a new prompt and removes those before
//   lose BATCHES | forget | restart | seq NEXT | hold | release | answering 0|1
//   expected SEED BLOCKS → DEVICE_TOKENS HOST_ONLY_TOKENS
//   last → SEQUENCE       requests → COUNT       subscriptions → COUNT
#include <sstream>
#include <stdexcept>
#include <string>

#include "tests/support/child_process.h"
#include "tests/support/kv_publisher.h"

namespace {

using xms::model::Tier;
using xms::testing::KvPublisher;
using xms::testing::MakePrompt;
using xms::testing::Tokens;

constexpr std::size_t kStormBlocks = 100;

template <typename T>
T Next(std::istringstream& words) {
  T value{};
  if (!(words >> value)) throw std::invalid_argument("a word is missing or wrong");
  return value;
}

template <typename T>
T NextOr(std::istringstream& words, T other) {
  T value{};
  return words >> value ? value : other;
}

Tier NextTier(std::istringstream& words) {
  const auto word = Next<std::string>(words);
  if (word == "device") return Tier::kDevice;
  if (word == "host") return Tier::kHost;
  throw std::invalid_argument("no tier");
}

std::uint64_t Storm(KvPublisher& publisher, std::size_t batches, std::uint32_t seed) {
  Tokens before;
  for (std::size_t i = 0; i < batches; ++i) {
    Tokens prompt = MakePrompt(seed + static_cast<std::uint32_t>(i), kStormBlocks);
    auto batch = publisher.NewBatch().Store(Tier::kDevice, prompt);
    if (!before.empty()) batch.Remove(Tier::kDevice, before);
    publisher.Publish(batch);
    before = std::move(prompt);
  }
  return publisher.last_sequence();
}

std::string Do(KvPublisher& publisher, const std::string& line) {
  std::istringstream words(line);
  const auto what = Next<std::string>(words);
  std::uint64_t answer = 0;
  if (what == "store" || what == "replicate" || what == "remove") {
    const Tier tier = NextTier(words);
    const auto seed = Next<std::uint32_t>(words);
    const Tokens prompt = MakePrompt(seed, Next<std::size_t>(words));
    const auto first = NextOr<std::size_t>(words, 0);
    const auto count = NextOr<std::size_t>(words, xms::testing::KvBatchBuilder::kAll);
    auto batch = publisher.NewBatch();
    if (what == "store") batch.Store(tier, prompt, first, count);
    if (what == "replicate") batch.Replicate(tier, prompt, first, count);
    if (what == "remove") batch.Remove(tier, prompt, first, count);
    answer = publisher.Publish(batch);
  } else if (what == "clear") {
    auto batch = publisher.NewBatch();
    if (line == what) {
      batch.Clear();
    } else {
      batch.Clear(NextTier(words));
    }
    answer = publisher.Publish(batch);
  } else if (what == "storm") {
    const auto batches = Next<std::size_t>(words);
    answer = Storm(publisher, batches, Next<std::uint32_t>(words));
  } else if (what == "heartbeat") {
    answer = publisher.Heartbeat();
  } else if (what == "lose") {
    publisher.LoseNext(Next<std::size_t>(words));
  } else if (what == "forget") {
    publisher.ForgetSilently();
  } else if (what == "restart") {
    publisher.RestartInPlace();
  } else if (what == "seq") {
    publisher.SetNextSequence(Next<std::uint64_t>(words));
  } else if (what == "hold") {
    publisher.HoldSnapshots();
  } else if (what == "release") {
    publisher.ReleaseSnapshots();
  } else if (what == "answering") {
    publisher.SetAnswering(Next<bool>(words));
  } else if (what == "expected") {
    const auto seed = Next<std::uint32_t>(words);
    const auto expected = publisher.Expected(MakePrompt(seed, Next<std::size_t>(words)));
    return std::to_string(expected.device_tokens) + " " + std::to_string(expected.host_only_tokens);
  } else if (what == "last") {
    answer = publisher.last_sequence();
  } else if (what == "requests") {
    answer = publisher.snapshot_requests();
  } else if (what == "subscriptions") {
    answer = publisher.subscriptions();
  } else {
    throw std::invalid_argument("unknown");
  }
  return std::to_string(answer);
}

}  // namespace

int main(int argc, char** argv) {
  KvPublisher::Options options;
  if (argc == 3) {
    options.event_port = static_cast<std::uint16_t>(std::stoi(argv[1]));
    options.replay_port = static_cast<std::uint16_t>(std::stoi(argv[2]));
  }
  KvPublisher publisher(options);
  return xms::testing::ServeLines(
      std::to_string(publisher.event_port()) + " " + std::to_string(publisher.replay_port()),
      [&](const std::string& line) { return Do(publisher, line); });
}
