// Readers and writers at full speed. Each test has an oracle: credits that are impossible whatever the order of
// events, and credits that are certain. ThreadSanitizer watches the rest.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kv_index/kv_index.h"
#include "kv_index/stream_ledger.h"
#include "tests/unit/kv_index/index_fixture.h"

namespace xms::kv_index {
namespace {

// Work is counted, not timed: everybody goes on until each has done its share.
class Workload {
 public:
  explicit Workload(std::size_t workers) : workers_(workers) {}

  template <typename Work>  // work(round)
  void Start(std::uint64_t share, Work work) {
    threads_.emplace_back([this, share, work = std::move(work)]() mutable {
      for (std::uint64_t round = 0; done_.load() < workers_; ++round) {
        work(round);
        if (round + 1 == share) done_.fetch_add(1);
      }
    });
  }
  void Join() {
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  const std::size_t workers_;
  std::atomic<std::size_t> done_{0};
  std::vector<std::thread> threads_;
};

constexpr std::uint32_t kBlocks = 48;
constexpr std::uint32_t kStable = 7;

// C8
// Stream s keeps the first blocks of prompt s for good and stores and removes the rest, tail first; it never holds a
// block of another prompt. What one stream gives up others take at once, so entries are reused all the time.
TEST(KVIndexStress, NobodyIsCreditedWithAnotherStreamsBlocksAndNobodyLosesWhatItKeeps) {
  constexpr std::uint32_t kStreams = 4;
  KvIndex index{Options{}};
  std::vector<std::unique_ptr<StreamLedger>> ledgers;
  for (std::uint32_t s = 0; s < kStreams; ++s) {
    ledgers.push_back(OpenSynchronized(index, Info("e" + std::to_string(s), 0, 1)));
    ASSERT_TRUE(StoreBlocks(*ledgers[s], s + 1, 0, kStable).ok());
    ASSERT_TRUE(ledgers[s]->StoreKnown(Tier::kHost, Wires(1000 * (s + 1), 2)).ok());
  }
  Workload workload(4);
  for (std::uint32_t half = 0; half < 2; ++half) {
    workload.Start(60, [&, half](std::uint64_t round) {
      for (std::uint32_t s = half; s < kStreams; s += 2) {
        ASSERT_TRUE(StoreBlocks(*ledgers[s], s + 1, kStable, kBlocks).ok());
        // And a short-lived crowd, so that tables grow and shrink.
        const auto name = static_cast<std::uint32_t>(100 + 10 * s + round % 7);
        ASSERT_TRUE(StoreBlocks(*ledgers[s], name, 0, 400).ok());
        for (std::uint32_t b = kBlocks; b-- > kStable;) {
          EXPECT_EQ(RemoveBlocks(*ledgers[s], s + 1, b, b + 1), 0u);
        }
        EXPECT_EQ(RemoveBlocks(*ledgers[s], name, 0, 400), 0u);
        ledgers[s]->Advance({round});
      }
    });
  }
  for (std::uint32_t reader = 0; reader < 2; ++reader) {
    workload.Start(4000, [&, reader](std::uint64_t round) {
      thread_local MatchResult result;
      const auto asked = static_cast<std::uint32_t>((round + reader) % kStreams);
      index.Match(Prompt(asked + 1, kBlocks + 3, 1), result);
      for (std::uint32_t s = 0; s < kStreams; ++s) {
        const SlotMatch& slot = result.slots[s];
        const std::uint32_t length = slot.device_hit_tokens + slot.host_only_hit_tokens;
        ASSERT_TRUE(slot.synchronized);
        if (s == asked) {
          ASSERT_GE(length, kStable) << "round " << round;
          ASSERT_LE(length, kBlocks) << "round " << round;
          ASSERT_EQ(slot.host_only_hit_tokens, 0u) << "round " << round;
        } else {
          ASSERT_EQ(length, 0u) << "stream " << s << " never held prompt " << asked;
        }
      }
    });
  }
  workload.Join();
}

// All streams hold the same prompt, each up to a limit of its own that it never passes, so that every block's bit
// set is under constant change by others.
TEST(KVIndexStress, BitsOfOneEntryDoNotDisturbEachOther) {
  constexpr std::uint32_t kStreams = 6;
  KvIndex index{Options{}};
  std::vector<std::unique_ptr<StreamLedger>> ledgers;
  for (std::uint32_t s = 0; s < kStreams; ++s) {
    ledgers.push_back(OpenSynchronized(index, Info("e" + std::to_string(s), 0, 2)));
    ASSERT_TRUE(StoreBlocks(*ledgers[s], 1, 0, s + 1, Tier::kHost).ok());
  }
  const auto prompt = Prompt(1, kBlocks, 2);
  Workload workload(4);
  for (std::uint32_t half = 0; half < 2; ++half) {
    workload.Start(1500, [&, half](std::uint64_t) {
      for (std::uint32_t s = half; s < kStreams; s += 2) {
        const std::uint32_t most = 20 + 4 * s;
        ASSERT_TRUE(StoreBlocks(*ledgers[s], 1, s + 1, most).ok());
        RemoveBlocks(*ledgers[s], 1, s + 1, most);
      }
    });
  }
  for (std::uint32_t reader = 0; reader < 2; ++reader) {
    workload.Start(8000, [&](std::uint64_t round) {
      thread_local MatchResult result;
      index.Match(prompt, result);
      for (std::uint32_t s = 0; s < kStreams; ++s) {
        const SlotMatch& slot = result.slots[s];
        ASSERT_EQ(slot.host_only_hit_tokens, 2 * (s + 1)) << "round " << round;
        ASSERT_LE(slot.device_hit_tokens, 2 * (20 + 4 * s - (s + 1))) << "round " << round;
      }
    });
  }
  workload.Join();
}

// C8
// A recovery fills a new version of the content while unsynchronized. A match sees a version whole or not at all.
TEST(KVIndexStress, ARecoveredViewIsSeenWholeOrNotAtAll) {
  KvIndex index{Options{}};
  auto ledger = OpenSynchronized(index, Info("a:1", 0, 1));
  auto neighbour = OpenSynchronized(index, Info("b:1", 0, 1));
  constexpr std::uint32_t kVersions = 3;
  std::atomic<std::uint64_t> whole{0};
  Workload workload(4);
  workload.Start(1500, [&](std::uint64_t round) {
    ledger->Unsynchronize("recovery");
    ledger->ClearAll();
    const auto version = static_cast<std::uint32_t>(1 + round % kVersions);
    ASSERT_TRUE(StoreBlocks(*ledger, version, 0, kBlocks).ok());
    ledger->Synchronize({round});
  });
  workload.Start(1500, [&](std::uint64_t round) {
    // Shares the entries, keeps the first block of version 1.
    ASSERT_TRUE(StoreBlocks(*neighbour, 1, 0, kBlocks).ok());
    ASSERT_TRUE(StoreBlocks(*neighbour, 2, 0, kBlocks).ok());
    RemoveBlocks(*neighbour, 1, 1, kBlocks);
    RemoveBlocks(*neighbour, 2, 0, kBlocks);
    neighbour->Advance({round});
  });
  for (std::uint32_t reader = 0; reader < 2; ++reader) {
    workload.Start(6000, [&, reader](std::uint64_t round) {
      thread_local MatchResult result;
      const auto version = static_cast<std::uint32_t>(1 + (round + reader) % kVersions);
      index.Match(Prompt(version, kBlocks, 1), result);
      const SlotMatch& slot = result.slots[0];
      ASSERT_EQ(slot.host_only_hit_tokens, 0u);
      ASSERT_TRUE(slot.device_hit_tokens == 0 || slot.device_hit_tokens == kBlocks)
          << slot.device_hit_tokens << " of " << kBlocks << " blocks, round " << round;
      if (slot.device_hit_tokens != 0) {
        ASSERT_TRUE(slot.synchronized);
        whole.fetch_add(1);
      }
    });
  }
  workload.Join();
  EXPECT_GT(whole.load(), 0u) << "no reader ever met a recovered view";
}

// C8
// The same for clears of a synchronized stream, which take long where much is held.
TEST(KVIndexStress, AClearIsSeenWholeOrNotAtAll) {
  KvIndex index{Options{}};
  auto ledger = OpenSynchronized(index, Info("a:1", 0, 1));
  std::atomic<std::uint64_t> whole{0};
  std::atomic<std::uint64_t> none{0};
  Workload workload(3);
  workload.Start(12, [&](std::uint64_t round) {
    ledger->Unsynchronize("recovery");
    for (std::uint32_t name = 1; name <= 40; ++name) {
      ASSERT_TRUE(StoreBlocks(*ledger, name, 0, 500).ok());
    }
    ledger->Synchronize({round});
    const std::uint64_t met = whole.load();
    while (whole.load() == met) std::this_thread::yield();  // the readers are there
    if (round % 2 == 0) {
      ledger->ClearTier(Tier::kDevice);
    } else {
      ledger->ClearAll();
    }
  });
  for (std::uint32_t reader = 0; reader < 2; ++reader) {
    workload.Start(100, [&](std::uint64_t round) {
      thread_local MatchResult result;
      index.Match(Prompt(1, kBlocks, 1), result);
      const SlotMatch& slot = result.slots[0];
      ASSERT_TRUE(slot.device_hit_tokens == 0 || slot.device_hit_tokens == kBlocks)
          << slot.device_hit_tokens << " of " << kBlocks << " blocks, round " << round;
      (slot.device_hit_tokens == 0 ? none : whole).fetch_add(1);
    });
  }
  workload.Join();
  EXPECT_GT(whole.load(), 0u);
  EXPECT_GT(none.load(), 0u);
}

// Streams come and go and take over each other's slots. A table taken before the match tells whose credit it is.
TEST(KVIndexStress, ASlotThatChangedHandsIsNeverTakenForItsOldStream) {
  KvIndex index{Options{}};
  constexpr std::uint32_t kPrompts = 5;
  // Two that stay and hold nothing, so that the views stay too, with whatever a stream leaves behind.
  auto first = OpenSynchronized(index, Info("stays", 100, 1));
  auto second = OpenSynchronized(index, Info("stays", 101, 2));
  Workload workload(4);
  for (std::uint32_t writer = 0; writer < 2; ++writer) {
    workload.Start(300, [&, writer](std::uint64_t round) {
      // The rank says which prompt the stream holds.
      const auto name = static_cast<std::uint32_t>((round * 2 + writer) % kPrompts);
      const std::uint32_t block_size = name % 2 == 0 ? 1 : 2;
      auto ledger = Open(
          index, Info("w" + std::to_string(writer), static_cast<std::int32_t>(name), block_size));
      ASSERT_NE(ledger, nullptr);
      ASSERT_TRUE(StoreBlocks(*ledger, name, 0, 20).ok());
      ledger->Synchronize({round});
      // Alive for much longer than it takes to begin and to end.
      for (std::uint64_t more = 0; more < 100; ++more) {
        ASSERT_TRUE(StoreBlocks(*ledger, name, 0, 20).ok());
        ledger->Advance({round + more});
      }
    });
  }
  std::atomic<std::uint64_t> credited{0};
  for (std::uint32_t reader = 0; reader < 2; ++reader) {
    workload.Start(4000, [&, reader](std::uint64_t round) {
      thread_local MatchResult result;
      const auto asked = static_cast<std::uint32_t>((round + reader) % kPrompts);
      const auto table = index.Slots();
      index.Match(Prompt(asked, 20, 2), result);
      for (const KvIndex::SlotEntry& entry : table->entries) {
        if (entry.slot >= result.slot_count) continue;
        const SlotMatch& slot = result.slots[entry.slot];
        if (KvIndex::LifeOf(slot.generation) != entry.life || !slot.synchronized) continue;
        const auto holds = static_cast<std::uint32_t>(entry.info->key.rank.value);
        if (holds != asked) {
          ASSERT_EQ(slot.device_hit_tokens, 0u) << "it holds " << holds << ", asked " << asked;
        } else {
          ASSERT_TRUE(slot.device_hit_tokens == 0 ||
                      slot.device_hit_tokens == 20 * entry.info->block_size);
          credited.fetch_add(1);
        }
      }
    });
  }
  workload.Join();
  EXPECT_EQ(index.Streams().size(), 2u);
  EXPECT_EQ(index.Memory().view_entries, 0u);
  first.reset();
  second.reset();
  EXPECT_TRUE(index.Streams().empty());
  EXPECT_GT(credited.load(), 0u) << "no reader ever met a stream alive";
  EXPECT_EQ(index.Memory().view_bytes, 0u);
}

// Clears of a synchronized stream are changes of state.
TEST(KVIndexStress, ListsAndMatchesOfTheSameGenerationAgree) {
  KvIndex index{Options{}};
  auto ledger = OpenSynchronized(index, Info("a:1", 0, 1));
  Workload workload(3);
  workload.Start(2000, [&](std::uint64_t round) {
    ASSERT_TRUE(StoreBlocks(*ledger, 1, 0, kBlocks).ok());
    ledger->Advance({round});
    if (round % 3 == 0) {
      ledger->ClearTier(Tier::kDevice);
    } else {
      ledger->ClearAll();
    }
    if (round % 5 == 0) ledger->Unsynchronize("gap");
    ledger->Synchronize({round});
  });
  for (std::uint32_t reader = 0; reader < 2; ++reader) {
    workload.Start(6000, [&](std::uint64_t round) {
      thread_local MatchResult result;
      index.Match(Prompt(1, kBlocks, 1), result);
      const std::vector<StreamStatus> streams = index.Streams();
      ASSERT_EQ(streams.size(), 1u);
      const SlotMatch& slot = result.slots[streams[0].slot];
      ASSERT_EQ(streams[0].error.empty(), streams[0].synchronized);
      ASSERT_TRUE(streams[0].synchronized || streams[0].device_blocks == 0);
      if (slot.generation == streams[0].generation && slot.synchronized) {
        ASSERT_TRUE(streams[0].synchronized) << "round " << round;
      }
      ASSERT_LE(slot.device_hit_tokens, kBlocks);
      ASSERT_TRUE(slot.synchronized || slot.device_hit_tokens == 0);
    });
  }
  workload.Join();
}

// What a status says of blocks and digest is true as of the sequence beside them, whatever is being
// applied meanwhile (F4).
TEST(KVIndexStress, BlockCountsAndDigestBelongToTheSequenceBesideThem) {
  constexpr std::uint64_t kBatches = 500;
  constexpr std::uint32_t kPerBatch = 3;
  // What each sequence leaves behind: three more blocks on Device, the first of them on Host too.
  std::vector<std::uint64_t> digests = {0};
  for (std::uint64_t sequence = 1; sequence <= kBatches; ++sequence) {
    std::uint64_t digest = digests.back();
    for (const WireHash wire : Wires(kPerBatch * sequence, kPerBatch)) {
      digest += StreamLedger::DigestTerm(wire, Tier::kDevice);
    }
    digest += StreamLedger::DigestTerm({kPerBatch * sequence}, Tier::kHost);
    digests.push_back(digest);
  }
  KvIndex index{Options{}};
  const auto ledger = OpenSynchronized(index, Info("e", 0, 1));
  Workload workload(2);
  workload.Start(20 * kBatches, [&](std::uint64_t round) {
    const std::uint64_t sequence = round % (kBatches + 1);
    if (sequence == 0) {
      ledger->Unsynchronize("again");
      ledger->ClearAll();
      ledger->Synchronize({0});
      return;
    }
    const auto wires = Wires(kPerBatch * sequence, kPerBatch);
    const auto tokens = Prompt(static_cast<std::uint32_t>(sequence), kPerBatch, 1);
    ASSERT_TRUE(
        ledger->Store(Tier::kDevice, wires, {}, tokens, StreamLedger::Orphans::kRefuse).ok());
    ASSERT_TRUE(ledger->StoreKnown(Tier::kHost, std::span(wires).first(1)).ok());
    ledger->Advance({sequence});
  });
  workload.Start(20'000, [&](std::uint64_t) {
    const StreamStatus status = index.Streams().at(0);
    if (!status.synchronized) {
      EXPECT_EQ(status.digest, 0u);
      EXPECT_EQ(status.device_blocks + status.host_blocks, 0u);
      return;
    }
    const std::uint64_t sequence = status.sequence.value;
    EXPECT_EQ(status.device_blocks, kPerBatch * sequence);
    EXPECT_EQ(status.host_blocks, sequence);
    EXPECT_EQ(status.digest, digests.at(sequence));
  });
  workload.Join();
}

}  // namespace
}  // namespace xms::kv_index
