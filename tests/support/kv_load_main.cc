// kv_load_process: LoadPublisher as a process of its own, told what to do line by line.
//
//   kv_load_process [NAME=VALUE]…
// Names: streams chains chain block_size seed batches_a_second answer_after_ms part_bytes
// high_water_mark. It says "ok PORT PORT …" (event, snapshot, event, …) when it listens.
//   rate BATCHES_A_SECOND | publish STREAM BATCHES | resize STREAM CHAINS | answer_after MS
//   held STREAM → FIRST COUNT LAST_SEQUENCE
//   statistics → BATCHES UNSENT REQUESTS SNAPSHOTS MOST_AT_ONCE LEAST_SPACING_US SNAPSHOT_BYTES
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

#include "tests/support/child_process.h"
#include "tests/support/load_publisher.h"

namespace {

using xms::testing::LoadPublisher;

std::uint64_t Next(std::istringstream& words) {
  std::uint64_t value = 0;
  if (!(words >> value)) throw std::invalid_argument("a number is missing or wrong");
  return value;
}

std::string Do(LoadPublisher& load, const std::string& line) {
  std::istringstream words(line);
  std::string what;
  words >> what;
  std::ostringstream answer;
  if (what == "rate") {
    load.SetRate(Next(words));
  } else if (what == "publish") {
    const std::uint64_t stream = Next(words);
    load.Publish(stream, Next(words));
  } else if (what == "resize") {
    const std::uint64_t stream = Next(words);
    load.Resize(stream, Next(words));
  } else if (what == "answer_after") {
    load.SetAnswerAfter(std::chrono::milliseconds(Next(words)));
  } else if (what == "held") {
    const std::uint64_t stream = Next(words);
    const LoadPublisher::Span held = load.Held(stream);
    answer << held.first << " " << held.count << " " << load.last_sequence(stream);
  } else if (what == "statistics") {
    const LoadPublisher::Statistics s = load.statistics();
    answer << s.batches << " " << s.unsent << " " << s.snapshot_requests << " " << s.snapshots
           << " " << s.most_snapshots_at_once << " " << s.least_spacing_us << " "
           << s.snapshot_bytes;
  } else {
    throw std::invalid_argument("unknown");
  }
  return answer.str();
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::uint64_t> given;
  for (int i = 1; i < argc; ++i) {
    const std::string word(argv[i]);
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      std::fprintf(stderr, "kv_load_process: %s is not NAME=VALUE\n", argv[i]);
      return 2;
    }
    given[word.substr(0, equals)] = std::stoull(word.substr(equals + 1));
  }
  LoadPublisher::Options options;
  const auto take = [&](const char* name, auto& value) {
    if (const auto node = given.extract(name)) {
      value = static_cast<std::remove_reference_t<decltype(value)>>(node.mapped());
    }
  };
  std::uint64_t answer_after_ms = 0;
  take("streams", options.streams);
  take("chains", options.chains);
  take("chain", options.chain);
  take("block_size", options.block_size);
  take("seed", options.seed);
  take("batches_a_second", options.batches_a_second);
  take("answer_after_ms", answer_after_ms);
  take("part_bytes", options.part_bytes);
  take("high_water_mark", options.high_water_mark);
  options.answer_after = std::chrono::milliseconds(answer_after_ms);
  if (!given.empty()) {
    std::fprintf(stderr, "kv_load_process: unknown %s\n", given.begin()->first.c_str());
    return 2;
  }
  LoadPublisher load(options);
  std::string ports;
  for (const std::uint16_t port : load.ports()) ports += std::to_string(port) + " ";
  return xms::testing::ServeLines(ports, [&](const std::string& line) { return Do(load, line); });
}
