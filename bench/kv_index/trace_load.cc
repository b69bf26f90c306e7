#include "bench/kv_index/trace_load.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <unordered_map>

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

std::uint32_t TokenOf(std::uint32_t id, std::uint32_t copy) { return id == 0 ? 0 : id * 8 + copy; }

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

model::WireHash RootHash() {
  const std::uint32_t token = RootToken();
  const model::BlockHasher hasher(kTraceSeed, 1);
  return {Mix(hasher.Child(model::kRootKey, std::span(&token, 1)).low)};
}

std::uint32_t RootToken() { return TokenOf(0, 0); }

TraceLoad BuildLoad(const Trace& trace, std::uint32_t copies, std::uint32_t workers,
                    std::uint32_t blocks_per_worker) {
  using Holders = std::pair<std::uint64_t, std::uint64_t>;  // a bit per worker
  const model::BlockHasher hasher(kTraceSeed, 1);
  std::vector<Engine> engines(workers);
  std::vector<std::uint64_t> assigned(workers, 0);
  std::unordered_map<std::uint64_t, Holders> holders;
  std::uint64_t clock = 0;
  const model::WireHash root = RootHash();
  for (std::uint32_t w = 0; w < workers; ++w) {
    engines[w].Touch(std::span(&root, 1), clock);
    (w < 64 ? holders[root.value].first : holders[root.value].second) |= std::uint64_t{1}
                                                                         << (w & 63);
  }
  TraceLoad load;
  for (std::uint32_t copy = 0; copy < copies; ++copy) {
    for (const auto& ids : trace) {
      TraceOp op;
      for (const std::uint32_t id : ids) op.tokens.push_back(TokenOf(id, copy));
      hasher.Chain(op.tokens, op.keys);
      for (const model::ContentKey& key : op.keys) op.hashes.push_back({Mix(key.low)});

      op.lengths.assign(workers, 0);
      Holders alive = {workers >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << workers) - 1,
                       workers <= 64    ? 0
                       : workers == 128 ? ~std::uint64_t{0}
                                        : (std::uint64_t{1} << (workers - 64)) - 1};
      for (std::size_t b = 0; b <= op.hashes.size(); ++b) {
        Holders next = {0, 0};
        if (b < op.hashes.size()) {
          if (const auto at = holders.find(op.hashes[b].value); at != holders.end()) {
            next = {at->second.first & alive.first, at->second.second & alive.second};
          }
        }
        for (std::uint64_t left = alive.first & ~next.first; left != 0; left &= left - 1) {
          op.lengths[static_cast<std::size_t>(std::countr_zero(left))] =
              static_cast<std::uint16_t>(b);
        }
        for (std::uint64_t left = alive.second & ~next.second; left != 0; left &= left - 1) {
          op.lengths[64 + static_cast<std::size_t>(std::countr_zero(left))] =
              static_cast<std::uint16_t>(b);
        }
        alive = next;
      }
      op.held = *std::max_element(op.lengths.begin(), op.lengths.end());
      for (std::uint32_t w = 0; w < workers; ++w) {
        if (op.lengths[w] != op.held) continue;
        if (op.lengths[op.worker] != op.held || assigned[w] < assigned[op.worker]) op.worker = w;
      }
      ++assigned[op.worker];

      const auto bit_of = [&](std::uint64_t hash) -> std::uint64_t& {
        Holders& of = holders[hash];
        return op.worker < 64 ? of.first : of.second;
      };
      const std::uint64_t bit = std::uint64_t{1} << (op.worker & 63);
      engines[op.worker].Touch(op.hashes, clock);
      engines[op.worker].EvictTo(blocks_per_worker, op.evicted);
      for (const model::WireHash hash : op.evicted) {
        bit_of(hash.value) &= ~bit;
        if (holders[hash.value] == Holders{0, 0}) holders.erase(hash.value);
      }
      for (std::size_t b = op.held; b < op.hashes.size(); ++b) bit_of(op.hashes[b].value) |= bit;
      load.asked += op.keys.size();
      load.stored += op.keys.size() - op.held;
      load.removed += op.evicted.size();
      load.ops.push_back(std::move(op));
    }
  }
  return load;
}

}  // namespace xms::bench
