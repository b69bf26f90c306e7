// Link: one connection to an engine, from the attempt to its end, and what became of it.
//
// Place       StreamThread has two: the subscription (SUB), and the exchange of the moment (DEALER).
// Threads     The stream's.
// Ownership   Owns the socket and its monitor. Borrows the context.
// Invariants  A Link is one connection: libzmq never renews it by itself, so that what is read from
//             it comes from one process, and a replacement on the same address cannot continue
//             where the old one was.
// How         Renewal is put off for longer than any link lives, not switched off: then the monitor
//             still says "will retry" after an ordinary end. After a message over ZMQ_MAXMSGSIZE or
//             a peer that speaks something else it says only "disconnected". That silence is the one
//             way to tell the two apart (libzmq 4.3.4, observed; kept true by KVDirectoryLink*).
// Failure     Whatever goes wrong becomes a cause and an event.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "kv_directory/recovery/stream_machine.h"
#include "kv_directory/streams/internal/zmq.h"
#include "kv_directory/streams/resolver.h"
#include "kv_directory/streams/wakeup.h"

namespace xms::kv_directory::internal {

class Link {
 public:
  enum class Kind : std::uint8_t { kSubscription, kExchange };
  enum class Event : std::uint8_t {
    kNone,
    kUp,      // the handshake is done
    kBroken,  // it was up, and is not any more; kLost with the cause follows
    kLost,    // see cause()
  };
  struct Options {
    Kind kind = Kind::kSubscription;
    std::string url;    // tcp://host:port
    std::string topic;  // kSubscription; until HearOnlyTopic the link hears all others too
    std::int64_t max_frame_bytes = 0;
  };

  Link() = default;

  // Closes what there was. Of a host with several addresses, number `address` (round and round) is
  // tried. Returns at once: while `resolver` looks for a name, Next has nothing to say, and `wakeup`
  // tells when it has.
  void Open(void* context, const Options& options, unsigned address, Resolver& resolver,
            const std::shared_ptr<Wakeup>& wakeup);
  void Close();
  // The topic exists: whatever else is published need not come any more. Until then it does, so that
  // a wrong topic can be told from a silent publisher, with the names of those that there are.
  void HearOnlyTopic();

  bool open() const { return state_ != State::kClosed; }
  bool up() const { return state_ == State::kUp; }
  const ZmqSocket& socket() const { return socket_; }
  const ZmqSocket& monitor() const { return monitor_; }

  // What has happened since the last call, one thing at a time.
  Event Next(base::SteadyTime now);
  LossCause cause() const { return cause_; }
  // Next has something to say at this time even if no socket is readable.
  base::SteadyTime deadline() const {
    if (state_ == State::kFailed) return {};
    return state_ == State::kEnding ? decide_at_ : base::SteadyTime::max();
  }

 private:
  enum class State : std::uint8_t {
    kClosed,
    kResolving,
    kFailed,  // could not even be attempted; Next says so
    kConnecting,
    kUp,
    kEnding,  // disconnected; the cause is open
    kOver,    // lost, and said so
  };

  void Connect();  // the lookup is done
  bool Configure(void* context, const Options& options, bool ipv6);
  Event Lose(LossCause cause);

  void* context_ = nullptr;
  Options options_;
  unsigned number_ = 0;
  std::uint16_t port_ = 0;
  std::shared_ptr<const Resolver::Lookup> lookup_;  // kResolving
  ZmqSocket socket_;
  ZmqSocket monitor_;
  State state_ = State::kClosed;
  bool was_up_ = false;
  bool hears_all_ = false;
  base::SteadyTime decide_at_{};
  LossCause cause_ = LossCause::kUnreachable;
};

}  // namespace xms::kv_directory::internal
