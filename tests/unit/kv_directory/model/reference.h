// Reference: one subscriber by the book. It hears what the stream hears, and says what the stream
// may show afterwards: nothing, or one of a few pictures, each whole and up to a sequence.
//
// Place       The reference model; World feeds it beside a StreamMachine. It never looks into the
//             machine, only at what readers see of it.
// Threads     Externally synchronised; belongs to one stream.
// Use         One input at a time: tell it, feed the machine, Judge what readers see.
// Meaning     A picture is a whole snapshot, or a full batch, of one connection, and each batch after it
//             in order. Only where the rules leave the stream a choice (a snapshot that agrees or not
//             need not be applied) is there more than one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/unit/kv_directory/model/fingerprint.h"
#include "tests/unit/kv_directory/model/told.h"

namespace xms::kv_directory::proof {

enum class Spoiled : std::uint8_t { kNo, kPayload, kFrames };

struct LiveMessage {
  int life = 0;  // of the publisher; what the stream cannot see
  std::uint64_t sequence = 0;
  Batch batch{};
  Spoiled spoiled = Spoiled::kNo;
};

struct Answer {
  int life = 0;
  std::uint64_t next = 0;  // watermark + 1
  Batch content{};
};

// What readers see of a stream.
struct Shown {
  bool synchronized = false;
  std::uint64_t next = 0;  // the last indexed sequence + 1; 0: none
  std::uint64_t device_blocks = 0;
  std::uint64_t host_blocks = 0;
  std::vector<Credit> credits{};  // by prompt
};

class Reference {
 public:
  struct Picture {
    Told told{};
    std::uint64_t base = 0;  // the snapshot's next
    std::uint64_t next = 0;
    bool zero_may_come = false;  // empty at watermark 0: perhaps nothing had been published (4.3)
    int life = 0;
    bool mixed = false;  // of two lives, which nobody who hears this can know
    bool operator==(const Picture&) const = default;
  };

  // --- what the stream hears
  void Connected();
  void Broken();      // by the peer, also refused
  void SelfClosed();  // by the stream itself
  void Requested();
  void ExchangeEnded();
  void Hear(const LiveMessage& message);
  void HearWhole(const Answer& answer, base::SteadyTime now);  // the exchange's terminator
  void TimePasses();
  void Nothing();  // any other input: nothing may change

  // "" or which invariant `shown` breaks. Keeps the pictures that were shown.
  std::string Judge(const Shown& shown);
  // Within an input: what was, or what is going to be.
  bool MayShow(const Shown& shown) const;

  bool synchronized() const { return synchronized_; }
  const std::vector<Picture>& pictures() const { return pictures_; }
  // No snapshot will do: the subscription seems wrong (D7).
  bool waits_for_a_word() const { return muted_; }
  // Whole ones on this connection, full batches included.
  int snapshots_taken() const { return snapshots_; }
  std::uint64_t mixed_pictures() const { return mixed_pictures_; }
  void AddTo(Fingerprint& fingerprint, base::SteadyTime now) const;

 private:
  enum class Must : std::uint8_t {
    kStay,
    kSynchronize,
    kUnsynchronize,
    kMaySynchronize,
    kMayMute,
    kEither
  };
  std::uint64_t LiveFloor() const;
  void Expect(Must must, std::string why) {
    must_ = must;
    why_ = std::move(why);
  }
  void Doubt(std::string why);
  void HearInSynchrony(const LiveMessage& message);
  void HearFull(const LiveMessage& message, Must must);
  void Recover(const Answer& answer);
  static Told::Verdict Extend(Picture& picture, const LiveMessage& message, Told::Orphans orphans);
  // What the reconciliation's snapshot makes of a picture: all of it anew, but for what blocks
  // stand for (C2) if nothing was lost. Nothing when it cannot stand.
  std::optional<Picture> Ahead(const Picture& shown) const;

  bool synchronized_ = false;          // as of the last Judge
  std::vector<Picture> pictures_;      // what it showed then
  std::vector<Picture> before_;        // during an input: the pictures before it
  std::optional<Answer> ahead_;        // of a reconciliation; may be applied
  std::vector<LiveMessage> behind_{};  // what came since it was asked for
  Must must_ = Must::kStay;
  std::string why_;

  // This connection, and this life as far as it can be told.
  std::optional<std::uint64_t> heard_;
  std::uint64_t snapshot_floor_ = 0;
  std::uint64_t inherited_floor_ = 0;
  bool snapshot_applied_ = false;  // D5's condition
  bool topic_seen_ = false;
  bool muted_ = false;
  bool renewed_ = false;  // this connection, after an old snapshot, and not synchronized since
  std::optional<std::uint64_t> refused_next_{};  // the last one's, on the renewed connection
  base::SteadyTime refused_since_{};             // the first of those that agree
  int snapshots_ = 0;

  bool asked_ = false;
  std::uint64_t floor_at_request_ = 0;
  std::vector<LiveMessage> since_request_;
  std::uint64_t mixed_pictures_ = 0;
};

}  // namespace xms::kv_directory::proof
