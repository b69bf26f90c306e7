#include "tests/integration/sim/raw_subscriber.h"

#include <gtest/gtest.h>

#include <span>
#include <zmq.hpp>

#include "base/str_cat.h"
#include "kv_events/decoder.h"

namespace xms::sim {

struct RawSubscriber::Impl {
  zmq::context_t context;
  zmq::socket_t live{context, zmq::socket_type::sub};
  std::string replay_endpoint;

  static std::optional<Frames> Receive(zmq::socket_t& socket, int timeout_ms) {
    socket.set(zmq::sockopt::rcvtimeo, timeout_ms);
    Frames frames;
    bool more = true;
    while (more) {
      zmq::message_t frame;
      if (!socket.recv(frame)) return std::nullopt;
      more = frame.more();
      frames.push_back(frame.to_string());
    }
    return frames;
  }
};

RawSubscriber::RawSubscriber(std::uint16_t event_port, std::uint16_t replay_port,
                             const std::string& topic)
    : impl_(new Impl) {
  impl_->live.set(zmq::sockopt::subscribe, topic);
  impl_->live.set(zmq::sockopt::reconnect_ivl, 10);
  impl_->live.connect(base::StrCat("tcp://127.0.0.1:", event_port));
  impl_->replay_endpoint = base::StrCat("tcp://127.0.0.1:", replay_port);
}

RawSubscriber::~RawSubscriber() { delete impl_; }

std::optional<Frames> RawSubscriber::Next(int timeout_ms) {
  return Impl::Receive(impl_->live, timeout_ms);
}

std::vector<Frames> RawSubscriber::AskForSnapshot(int timeout_ms) {
  zmq::socket_t dealer(impl_->context, zmq::socket_type::dealer);
  dealer.set(zmq::sockopt::linger, 0);
  dealer.connect(impl_->replay_endpoint);
  dealer.send(zmq::str_buffer(""), zmq::send_flags::sndmore);
  dealer.send(zmq::buffer(std::string(8, '\0')), zmq::send_flags::none);
  std::vector<Frames> replies;
  while (auto frames = Impl::Receive(dealer, timeout_ms)) {
    replies.push_back(*std::move(frames));
    if (IsTerminator(replies.back())) break;
  }
  return replies;
}

std::uint64_t FromBigEndian(const std::string& bytes) {
  EXPECT_EQ(bytes.size(), 8U);
  std::uint64_t value = 0;
  for (const char byte : bytes) value = value << 8U | static_cast<unsigned char>(byte);
  return value;
}

bool IsTerminator(const Frames& reply) { return reply == Frames{"", std::string(8, '\xff'), ""}; }

kv_events::KvBatch Decoded(const std::string& payload, std::uint32_t block_size,
                           std::int32_t dp_rank) {
  kv_events::KvBatch batch;
  const kv_events::DecoderOptions options{.dp_rank = dp_rank, .block_size = block_size};
  const auto outcome = kv_events::DecodeBatch(std::as_bytes(std::span(payload)), options, batch);
  EXPECT_TRUE(outcome.ok()) << kv_events::Describe(outcome, options, payload.size());
  return batch;
}

}  // namespace xms::sim
