// The little of ZeroMQ's C interface that streams need, with owners for what must be closed.
//
// Place       Only .cc files of streams/ include this: zmq.h stays behind it.
// Threads     A socket belongs to one thread. A context may be used by all.
#pragma once

#include <zmq.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "kv_directory/recovery/frames.h"

namespace xms::kv_directory::internal {

class ZmqSocket {
 public:
  ZmqSocket() = default;
  // Invalid when the context has no socket left; zmq_errno() says why.
  ZmqSocket(void* context, int type) : socket_(zmq_socket(context, type)) {}
  ~ZmqSocket() { Close(); }
  ZmqSocket(ZmqSocket&& other) noexcept : socket_(std::exchange(other.socket_, nullptr)) {}
  ZmqSocket& operator=(ZmqSocket&& other) noexcept {
    if (this != &other) {
      Close();
      socket_ = std::exchange(other.socket_, nullptr);
    }
    return *this;
  }

  bool valid() const { return socket_ != nullptr; }
  void* get() const { return socket_; }
  void Close() {
    if (socket_ != nullptr) zmq_close(socket_);
    socket_ = nullptr;
  }
  bool SetInt(int option, int value) {
    return zmq_setsockopt(socket_, option, &value, sizeof value) == 0;
  }
  bool SetInt64(int option, std::int64_t value) {
    return zmq_setsockopt(socket_, option, &value, sizeof value) == 0;
  }
  bool SetBytes(int option, std::string_view value) {
    return zmq_setsockopt(socket_, option, value.data(), value.size()) == 0;
  }

 private:
  void* socket_ = nullptr;
};

// One whole message. Frames stay valid until the next Receive.
class ZmqMessage {
 public:
  ZmqMessage() = default;
  ~ZmqMessage() { Clear(); }
  ZmqMessage(const ZmqMessage&) = delete;
  ZmqMessage& operator=(const ZmqMessage&) = delete;

  // False when none is there. Of more than kMaxFrames frames the first and the last are kept.
  bool Receive(const ZmqSocket& socket) {
    Clear();
    for (bool more = true; more;) {
      // The last place is used again for frames that nobody will look at.
      if (count_ == kMaxFrames) zmq_msg_close(&parts_[--count_]);
      zmq_msg_t& part = parts_[count_++];
      zmq_msg_init(&part);
      if (zmq_msg_recv(&part, socket.get(), ZMQ_DONTWAIT) < 0) {
        Clear();
        return false;
      }
      more = zmq_msg_more(&part) != 0;
    }
    for (std::size_t i = 0; i < count_; ++i) {
      frames_[i] = {static_cast<const std::byte*>(zmq_msg_data(&parts_[i])),
                    zmq_msg_size(&parts_[i])};
    }
    return true;
  }
  Message frames() const { return Message(frames_).first(count_); }

 private:
  static constexpr std::size_t kMaxFrames = 16;

  void Clear() {
    while (count_ > 0) zmq_msg_close(&parts_[--count_]);
  }

  std::array<zmq_msg_t, kMaxFrames> parts_;
  std::array<Frame, kMaxFrames> frames_;
  std::size_t count_ = 0;
};

}  // namespace xms::kv_directory::internal
