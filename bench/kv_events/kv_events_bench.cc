// What decoding costs: `per_block` is the time for one block (a hash, and its tokens where it has any).
//
// Payloads are those of EncodeBatch. A batch is one of many that are taken in turn, so that the branch
// predictor cannot learn its tokens by heart. What tokens look like matters most: their encodings are 1, 2,
// 3 or 5 bytes long.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <msgpack.hpp>
#include <random>
#include <string>
#include <vector>

#include "kv_events/decoder.h"
#include "kv_events/encoder.h"

namespace xms::kv_events {
namespace {

using Random = std::mt19937_64;

constexpr std::uint32_t kBlockSize = 128;

enum Tokens : std::int64_t {
  kUniform32k,   // nearly all of 3 bytes
  kUniform152k,  // 43 % of 3 bytes, 57 % of 5, without order
  kZipf152k,     // rank r with probability ~ 1/r: 40 % of 1 byte, 6 % of 2, 47 % of 3, 7 % of 5
};

std::string NameOf(std::int64_t tokens) {
  switch (tokens) {
    case kUniform32k:
      return "uniform below 32,000";
    case kUniform152k:
      return "uniform below 151,936";
    default:
      return "Zipf below 151,936";
  }
}

std::uint32_t RandomToken(std::int64_t tokens, Random& random) {
  switch (tokens) {
    case kUniform32k:
      return static_cast<std::uint32_t>(random() % 32'000);
    case kUniform152k:
      return static_cast<std::uint32_t>(random() % 151'936);
    default: {
      const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
      return static_cast<std::uint32_t>(std::exp(uniform * std::log(151'936.0)));
    }
  }
}

void AddStore(std::uint32_t blocks, std::int64_t tokens, Random& random, KvBatch& batch) {
  KvEvent event{.kind = EventKind::kStore,
                .has_parent = true,
                .parent = {random()},
                .first_hash = static_cast<std::uint32_t>(batch.hashes.size()),
                .hash_count = blocks,
                .first_token = static_cast<std::uint32_t>(batch.tokens.size()),
                .token_count = blocks * kBlockSize};
  for (std::uint32_t i = 0; i < event.hash_count; ++i) batch.hashes.push_back({random()});
  for (std::uint32_t i = 0; i < event.token_count; ++i) {
    batch.tokens.push_back(RandomToken(tokens, random));
  }
  batch.events.push_back(event);
}

std::vector<std::byte> Encoded(const KvBatch& batch) {
  std::vector<std::byte> payload;
  EncodeBatch(batch, kBlockSize, payload);
  return payload;
}

std::vector<std::vector<std::byte>> Stores(std::size_t payloads, std::uint32_t events,
                                           std::uint32_t blocks, std::int64_t tokens) {
  Random random(1);
  std::vector<std::vector<std::byte>> result;
  for (std::size_t i = 0; i < payloads; ++i) {
    KvBatch batch;
    for (std::uint32_t k = 0; k < events; ++k) AddStore(blocks, tokens, random, batch);
    result.push_back(Encoded(batch));
  }
  return result;
}

void Report(benchmark::State& state, std::size_t blocks, std::size_t bytes) {
  state.counters["per_block"] = benchmark::Counter(
      static_cast<double>(blocks),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

void Decode(benchmark::State& state, const std::vector<std::vector<std::byte>>& payloads,
            std::size_t blocks) {
  const DecoderOptions options{.block_size = kBlockSize};
  KvBatch batch;
  std::size_t next = 0;
  for (auto _ : state) {
    if (!DecodeBatch(payloads[next], options, batch).ok()) std::abort();
    benchmark::DoNotOptimize(batch.tokens.data());
    benchmark::ClobberMemory();
    next = next + 1 == payloads.size() ? 0 : next + 1;
  }
  Report(state, blocks, payloads.front().size());
}

void StoreBatch(benchmark::State& state) {
  Decode(state, Stores(64, 1, 16, state.range(0)), 16);
  state.SetLabel("1 event of 16 blocks, tokens " + NameOf(state.range(0)));
}
BENCHMARK(StoreBatch)->Arg(kUniform32k)->Arg(kUniform152k)->Arg(kZipf152k);

void StoreBatchOfSingleBlocks(benchmark::State& state) {
  Decode(state, Stores(64, 16, 1, state.range(0)), 16);
  state.SetLabel("16 events of 1 block, tokens " + NameOf(state.range(0)));
}
BENCHMARK(StoreBatchOfSingleBlocks)->Arg(kUniform32k)->Arg(kUniform152k)->Arg(kZipf152k);

void RemovalBatch(benchmark::State& state) {
  const auto events = static_cast<std::uint32_t>(state.range(0));
  const std::uint32_t hashes = 256 / events;
  Random random(2);
  std::vector<std::vector<std::byte>> payloads;
  for (int i = 0; i < 16; ++i) {
    KvBatch batch;
    for (std::uint32_t k = 0; k < events; ++k) {
      batch.events.push_back({.kind = EventKind::kRemove,
                              .first_hash = static_cast<std::uint32_t>(batch.hashes.size()),
                              .hash_count = hashes});
      for (std::uint32_t h = 0; h < hashes; ++h) batch.hashes.push_back({random()});
    }
    payloads.push_back(Encoded(batch));
  }
  Decode(state, payloads, 256);
  state.SetLabel("256 removals in " + std::to_string(events) + " events");
}
BENCHMARK(RemovalBatch)->Arg(1)->Arg(256);

// 500 chains of 20 blocks: 4 to 5 MB.
void Snapshot(benchmark::State& state) {
  Decode(state, Stores(1, 500, 20, state.range(0)), 10'000);
  state.SetLabel("10,000 blocks in 500 events, tokens " + NameOf(state.range(0)));
}
BENCHMARK(Snapshot)
    ->Arg(kUniform32k)
    ->Arg(kUniform152k)
    ->Arg(kZipf152k)
    ->Unit(benchmark::kMillisecond);

// The reference, on the payloads of StoreBatch: walks the items and keeps nothing.
void ReferenceWalk(benchmark::State& state) {
  const auto payloads = Stores(64, 1, 16, state.range(0));
  std::size_t next = 0;
  for (auto _ : state) {
    const std::vector<std::byte>& payload = payloads[next];
    msgpack::null_visitor visitor;
    std::size_t offset = 0;
    if (!msgpack::parse(reinterpret_cast<const char*>(payload.data()), payload.size(), offset,
                        visitor)) {
      std::abort();
    }
    next = next + 1 == payloads.size() ? 0 : next + 1;
  }
  Report(state, 16, payloads.front().size());
  state.SetLabel("msgpack-cxx, visitor that does nothing, tokens " + NameOf(state.range(0)));
}
BENCHMARK(ReferenceWalk)->Arg(kUniform32k)->Arg(kUniform152k)->Arg(kZipf152k);

}  // namespace
}  // namespace xms::kv_events
