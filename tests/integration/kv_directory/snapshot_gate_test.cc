#include "kv_directory/streams/snapshot_gate.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <memory>
#include <set>
#include <vector>

namespace xms::kv_directory {
namespace {

using std::chrono::microseconds;
using Ticket = SnapshotGate::Ticket;

class KVDirectorySnapshotGate : public ::testing::Test {
 protected:
  struct Stream {
    explicit Stream(SnapshotGate& gate) : ticket(gate) {}
    Ticket ticket;
    std::shared_ptr<Wakeup> wakeup = Wakeup::Make();
    bool woken() const {
      pollfd fd{wakeup->fd(), POLLIN, 0};
      return poll(&fd, 1, 0) == 1;
    }
  };
  std::vector<std::unique_ptr<Stream>> Streams(std::size_t count) {
    std::vector<std::unique_ptr<Stream>> streams;
    for (std::size_t i = 0; i < count; ++i) streams.push_back(std::make_unique<Stream>(gate_));
    return streams;
  }

  SnapshotGate gate_{{.at_once = 4, .spacing = microseconds(2000)}, /*seed=*/7};
  const base::SteadyTime now_{std::chrono::hours(1)};
};

// D11
TEST_F(KVDirectorySnapshotGate, AtMostSoManyAreOnTheirWayAndOthersFollowInOrder) {
  auto streams = Streams(7);
  for (auto& stream : streams) stream->ticket.Enter(stream->wakeup, {}, now_);
  EXPECT_EQ(gate_.granted(), 4u);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(streams[i]->ticket.start().has_value(), i < 4) << i;
  EXPECT_FALSE(streams[4]->woken());
  streams[1]->ticket.Leave();
  EXPECT_TRUE(streams[4]->ticket.start().has_value());
  EXPECT_TRUE(streams[4]->woken());
  EXPECT_FALSE(streams[5]->ticket.start().has_value());
  streams[5]->ticket.Leave();  // gave up waiting
  streams[0].reset();          // gone without a word
  EXPECT_TRUE(streams[6]->ticket.start().has_value());
  EXPECT_EQ(gate_.granted(), 4u);
}

// D11
TEST_F(KVDirectorySnapshotGate, StartsAreSpacedAndNeverTheSame) {
  auto streams = Streams(4);
  std::vector<base::SteadyTime> starts;
  for (int round = 0; round < 25; ++round) {
    for (auto& stream : streams) stream->ticket.Enter(stream->wakeup, {}, now_);
    for (auto& stream : streams) {
      starts.push_back(*stream->ticket.start());
      stream->ticket.Leave();
    }
  }
  EXPECT_EQ(starts.front(), now_) << "the first does not wait";
  std::set<base::Duration> distances;
  for (std::size_t i = 1; i < starts.size(); ++i) {
    EXPECT_GE(starts[i] - starts[i - 1], microseconds(1000));
    EXPECT_LE(starts[i] - starts[i - 1], microseconds(3000));
    distances.insert(starts[i] - starts[i - 1]);
  }
  EXPECT_GT(distances.size(), 50u) << "by chance, not in step";
}

TEST_F(KVDirectorySnapshotGate, HangingEndpointsTakeHalfOfThePlacesAtMost) {
  auto slow = Streams(6);
  for (auto& stream : slow) stream->ticket.Enter(stream->wakeup, {.slow = true}, now_);
  EXPECT_EQ(gate_.granted(), 2u);
  auto quick = Streams(3);
  for (auto& stream : quick) stream->ticket.Enter(stream->wakeup, {}, now_);
  EXPECT_TRUE(quick[0]->ticket.start().has_value()) << "past the slow ones in the queue";
  EXPECT_TRUE(quick[1]->ticket.start().has_value());
  EXPECT_FALSE(quick[2]->ticket.start().has_value());
  slow[0]->ticket.Leave();
  EXPECT_TRUE(slow[2]->ticket.start().has_value()) << "first come, first served";
}

// D11: after a restart of the service, second snapshots do not hold up first ones.
TEST_F(KVDirectorySnapshotGate, StreamsWithoutCreditGoFirstButForOnePlace) {
  auto running = Streams(4);
  for (auto& stream : running) stream->ticket.Enter(stream->wakeup, {}, now_);
  auto credited = Streams(3);
  for (auto& stream : credited) stream->ticket.Enter(stream->wakeup, {.credited = true}, now_);
  auto recovering = Streams(4);
  for (auto& stream : recovering) stream->ticket.Enter(stream->wakeup, {}, now_);
  running[0]->ticket.Leave();
  EXPECT_TRUE(credited[0]->ticket.start().has_value()) << "the last place, and none had any";
  running[1]->ticket.Leave();
  EXPECT_TRUE(recovering[0]->ticket.start().has_value());
  running[2]->ticket.Leave();
  EXPECT_TRUE(recovering[1]->ticket.start().has_value());
  running[3]->ticket.Leave();
  recovering[0]->ticket.Leave();
  EXPECT_TRUE(recovering[2]->ticket.start().has_value());
  EXPECT_TRUE(recovering[3]->ticket.start().has_value());
  EXPECT_FALSE(credited[1]->ticket.start().has_value());
  credited[0]->ticket.Leave();
  EXPECT_TRUE(credited[1]->ticket.start().has_value());
  recovering[1]->ticket.Leave();
  EXPECT_TRUE(credited[2]->ticket.start().has_value()) << "nobody without credit waits";
}

}  // namespace
}  // namespace xms::kv_directory
