#include "bench/support/trace_load.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <unordered_map>
#include <utility>

#include "bench/support/streams.h"

namespace xms::bench {
namespace {

std::string TracePath() {
  const char* shared = std::getenv("XMS_SHARED");
  return shared == nullptr ? "" : std::string(shared) + "/traces/mooncake_conversation.jsonl";
}

std::vector<std::uint32_t> ParseIds(const std::string& line) {
  std::vector<std::uint32_t> ids;
  const std::size_t key = line.find("\"hash_ids\"");
  if (key == std::string::npos) return ids;
  const char* at = line.data() + line.find('[', key) + 1;
  const char* const end = line.data() + line.size();
  while (at < end && *at != ']') {
    std::uint32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error == std::errc()) ids.push_back(id);
    at = next == at ? at + 1 : next;
  }
  return ids;
}

// Conversations that grow by a few blocks a turn and come back for some turns.
Trace SyntheticTrace() {
  std::mt19937_64 random(1);
  Trace trace;
  Trace open;
  std::uint32_t next = 1;
  while (trace.size() < 12'031) {
    const bool fresh = open.empty() || random() % 10 < 6;
    const std::size_t at = fresh ? open.size() : random() % open.size();
    if (fresh) open.push_back({0});
    auto& ids = open[at];
    for (std::uint64_t more = 1 + random() % (fresh ? 40 : 6); more > 0; --more) {
      ids.push_back(next++);
    }
    trace.push_back(ids);
    if (open.size() > 400 || ids.size() > 200) {
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(random() % open.size()));
    }
  }
  return trace;
}

std::uint64_t Mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The block of an id: its first token says which.
void AppendBlock(std::uint32_t id, std::uint32_t copy, std::uint32_t block_size,
                 std::vector<std::uint32_t>& tokens) {
  tokens.push_back(id == 0 ? 0 : id * 8 + copy);
  for (std::uint32_t i = 1; i < block_size; ++i) tokens.push_back(1000 + i);
}

model::WireHash HashOf(const model::ContentKey& key) { return {Mix(key.low)}; }

class Engine {
 public:
  void Touch(std::span<const model::WireHash> chain, std::uint64_t& clock) {
    for (std::size_t i = chain.size(); i-- > 0;) {
      const auto [place, fresh] = stamp_of_.try_emplace(chain[i].value, 0);
      if (!fresh) by_stamp_.erase(place->second);
      place->second = ++clock;
      by_stamp_[clock] = chain[i].value;
    }
  }
  void EvictTo(std::size_t capacity, std::vector<model::WireHash>& evicted) {
    while (by_stamp_.size() > capacity) {
      evicted.push_back({by_stamp_.begin()->second});
      stamp_of_.erase(by_stamp_.begin()->second);
      by_stamp_.erase(by_stamp_.begin());
    }
  }

 private:
  std::unordered_map<std::uint64_t, std::uint64_t> stamp_of_;
  std::map<std::uint64_t, std::uint64_t> by_stamp_;
};

// Which workers hold which block.
class Holders {
 public:
  explicit Holders(std::uint32_t workers) : workers_(workers) {}

  void Add(std::uint32_t worker, model::WireHash hash) {
    Word(of_[hash.value], worker) |= std::uint64_t{1} << (worker & 63);
  }
  void Remove(std::uint32_t worker, model::WireHash hash) {
    const auto at = of_.find(hash.value);
    Word(at->second, worker) &= ~(std::uint64_t{1} << (worker & 63));
    if (at->second == Set{0, 0}) of_.erase(at);
  }
  Lengths LengthsOf(std::span<const model::WireHash> hashes) const {
    Lengths lengths(workers_, 0);
    Set alive = {~std::uint64_t{0}, ~std::uint64_t{0}};
    for (std::size_t b = 0; b <= hashes.size() && alive != Set{0, 0}; ++b) {
      Set next = {0, 0};
      if (b < hashes.size()) {
        const auto at = of_.find(hashes[b].value);
        if (at != of_.end()) next = {at->second[0] & alive[0], at->second[1] & alive[1]};
      }
      for (std::size_t word = 0; word < 2; ++word) {
        for (std::uint64_t left = alive[word] & ~next[word]; left != 0; left &= left - 1) {
          const std::size_t worker = word * 64 + static_cast<std::size_t>(std::countr_zero(left));
          if (worker < workers_) lengths[worker] = static_cast<std::uint16_t>(b);
        }
      }
      alive = next;
    }
    return lengths;
  }

 private:
  using Set = std::array<std::uint64_t, 2>;  // a bit per worker
  static std::uint64_t& Word(Set& set, std::uint32_t worker) { return set[worker / 64]; }

  const std::uint32_t workers_;
  std::unordered_map<std::uint64_t, Set> of_;
};

}  // namespace

std::string TraceName() {
  return std::ifstream(TracePath()).good() ? "mooncake_conversation" : "synthetic";
}

Trace ReadTrace() {
  std::ifstream file(TracePath());
  if (!file.good()) return SyntheticTrace();
  Trace trace;
  for (std::string line; std::getline(file, line);) {
    if (auto ids = ParseIds(line); !ids.empty()) trace.push_back(std::move(ids));
  }
  return trace;
}

TraceLoad BuildLoad(const Trace& trace, std::uint32_t copies, std::uint32_t workers,
                    std::uint32_t blocks_per_worker, std::uint32_t block_size) {
  const model::BlockHasher hasher(kHashSeed, block_size);
  std::vector<Engine> engines(workers);
  std::vector<std::uint64_t> assigned(workers, 0);
  Holders holders(workers);
  std::uint64_t clock = 0;

  TraceLoad load;
  load.block_size = block_size;
  load.workers = workers;
  AppendBlock(0, 0, block_size, load.root_tokens);
  load.root_hash = HashOf(hasher.Child(model::kRootKey, load.root_tokens));
  for (std::uint32_t w = 0; w < workers; ++w) {
    engines[w].Touch(std::span(&load.root_hash, 1), clock);
    holders.Add(w, load.root_hash);
  }
  for (std::uint32_t copy = 0; copy < copies; ++copy) {
    for (const auto& ids : trace) {
      TraceOp& op = load.ops.emplace_back();
      for (const std::uint32_t id : ids) AppendBlock(id, copy, block_size, op.tokens);
      hasher.Chain(op.tokens, op.keys);
      for (const model::ContentKey& key : op.keys) op.hashes.push_back(HashOf(key));
    }
  }

  for (std::size_t i = 0; i < load.ops.size(); ++i) {
    if (i % kGroup == 0) {
      for (std::size_t k = i; k < std::min(i + kGroup, load.ops.size()); ++k) {
        load.ops[k].group_lengths = holders.LengthsOf(load.ops[k].hashes);
      }
    }
    TraceOp& op = load.ops[i];
    op.lengths = holders.LengthsOf(op.hashes);
    op.held = *std::max_element(op.lengths.begin(), op.lengths.end());
    for (std::uint32_t w = 0; w < workers; ++w) {
      if (op.lengths[w] != op.held) continue;
      if (op.lengths[op.worker] != op.held || assigned[w] < assigned[op.worker]) op.worker = w;
    }
    ++assigned[op.worker];

    engines[op.worker].Touch(op.hashes, clock);
    engines[op.worker].EvictTo(blocks_per_worker, op.evicted);
    for (const model::WireHash hash : op.evicted) holders.Remove(op.worker, hash);
    for (std::size_t b = op.held; b < op.hashes.size(); ++b) holders.Add(op.worker, op.hashes[b]);
    load.asked += op.keys.size();
    load.stored += op.keys.size() - op.held;
    load.removed += op.evicted.size();
  }
  for (std::size_t i = 0; i < load.ops.size(); i += 16) {
    load.finals.push_back({i, holders.LengthsOf(load.ops[i].hashes)});
  }
  return load;
}

}  // namespace xms::bench
