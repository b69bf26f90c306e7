#include "tests/unit/kv_directory/model/reference.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "base/str_cat.h"

namespace xms::kv_directory::proof {
namespace {

using base::StrAppend;
using base::StrCat;
using Verdict = Told::Verdict;
using Orphans = Told::Orphans;

// A quiet publisher that gives the same old snapshot for so long has begun anew.
constexpr std::chrono::seconds kQuietForSure{5};

bool Shows(const Reference::Picture& picture, const Shown& shown) {
  if (picture.next != shown.next) return false;
  const auto count = [&](Blocks tier) {
    return static_cast<std::uint64_t>(std::popcount(tier & picture.told.indexed));
  };
  if (count(picture.told.device) != shown.device_blocks) return false;
  if (count(picture.told.host) != shown.host_blocks) return false;
  for (std::size_t i = 0; i < Prompts().size(); ++i) {
    if (picture.told.CreditFor(Prompts()[i]) != shown.credits[i]) return false;
  }
  return true;
}

bool ZeroIsNews(const Reference::Picture& picture, std::uint64_t sequence) {
  return picture.zero_may_come && sequence == 0;
}

// Empty at watermark 0 may mean that nothing has been published yet (4.3).
Reference::Picture PictureOf(const Answer& answer) {
  const bool zero = answer.next == 1 && answer.content.empty();
  return {.base = zero ? 0 : answer.next,
          .next = answer.next,
          .zero_may_come = zero,
          .life = answer.life};
}

}  // namespace

std::uint64_t Reference::LiveFloor() const {
  return std::max(inherited_floor_, heard_ ? *heard_ + 1 : 0);
}

void Reference::Connected() {
  Expect(Must::kUnsynchronize, "a connection has just begun");
  heard_.reset();
  snapshot_floor_ = 0;
  snapshot_applied_ = topic_seen_ = muted_ = false;
  renewed_ = inherited_floor_ != 0;
  refused_next_.reset();
  snapshots_ = 0;
}

void Reference::Broken() {
  inherited_floor_ = 0;
  Doubt("a broken connection");
}

void Reference::SelfClosed() {
  // After a snapshot that was too old.
  inherited_floor_ = std::max(snapshot_floor_, LiveFloor());
}

void Reference::Requested() {
  asked_ = true;
  since_request_.clear();
  ahead_.reset();
  floor_at_request_ = std::max(snapshot_floor_, LiveFloor());
  Nothing();
}

void Reference::ExchangeEnded() {
  asked_ = false;
  since_request_.clear();
}

void Reference::Nothing() { Expect(Must::kStay, "nothing has happened to it"); }

void Reference::TimePasses() {
  // Twice a snapshot was ahead while no live batch has ever come: a wrong topic or port (D7).
  Expect(synchronized_ && !topic_seen_ ? Must::kMayMute : Must::kStay, "only time has passed");
}

void Reference::Doubt(std::string why) {
  Expect(Must::kUnsynchronize, std::move(why));
  ExchangeEnded();
}

Verdict Reference::Extend(Picture& picture, const LiveMessage& message, Orphans orphans) {
  picture.next = message.sequence + 1;
  picture.zero_may_come = false;
  if (BeginsWithClear(message.batch)) {
    picture.life = message.life;
    picture.mixed = false;
  }
  picture.mixed |= picture.life != message.life;
  return picture.told.Apply(message.batch, orphans);
}

void Reference::Hear(const LiveMessage& message) {
  before_ = pictures_;
  muted_ = false;
  topic_seen_ = true;
  if (message.spoiled == Spoiled::kFrames) {
    return Doubt("frames that are no live message");
  }
  const bool back = message.sequence < LiveFloor();
  heard_ = message.sequence;
  if (back) {
    snapshot_floor_ = inherited_floor_ = 0;
    snapshot_applied_ = false;
    snapshots_ = 0;
    return Doubt("a sequence that went back");
  }
  if (synchronized_) return HearInSynchrony(message);
  if (asked_) since_request_.push_back(message);
  if (message.spoiled == Spoiled::kNo && BeginsWithClear(message.batch) && snapshot_applied_ &&
      message.sequence >= snapshot_floor_) {
    return HearFull(message, Must::kMaySynchronize);
  }
  Expect(Must::kUnsynchronize, "a live batch alone recovers nothing");
}

void Reference::HearFull(const LiveMessage& message, Must must) {
  Picture picture{.next = message.sequence, .life = message.life};
  if (Extend(picture, message, Orphans::kRefuse) != Verdict::kFine) {
    return Doubt("a full batch that cannot stand");
  }
  pictures_ = {picture};
  ahead_.reset();
  ++snapshots_;
  Expect(must, "a full batch");
}

void Reference::HearInSynchrony(const LiveMessage& message) {
  const Picture& shown = pictures_.front();
  const std::uint64_t next = shown.next;
  const bool zero = ZeroIsNews(shown, message.sequence);
  if (message.sequence < next && !zero) return Expect(Must::kStay, "a snapshot covered this batch");
  if (message.spoiled != Spoiled::kNo) return Doubt("a damaged batch");
  if (message.sequence > next) {
    if (BeginsWithClear(message.batch) && snapshot_applied_) {
      return HearFull(message, Must::kSynchronize);
    }
    return Doubt("a gap");
  }
  if (asked_) since_request_.push_back(message);
  if (ahead_) behind_.push_back(message);
  // Where it is open whether a snapshot that agreed was applied, they may know different parents.
  Verdict worst = Verdict::kFine;
  std::erase_if(pictures_, [&](Picture& picture) {
    const Verdict verdict = Extend(picture, message, Orphans::kRefuse);
    if (verdict != Verdict::kFine) worst = verdict;
    return verdict != Verdict::kFine;
  });
  if (worst != Verdict::kFine && !pictures_.empty()) {
    return Expect(Must::kEither, "a batch that one of two pictures cannot take");
  }
  switch (worst) {
    case Verdict::kFine:
      return Expect(Must::kStay, "the next batch came, and every parent in it has been named");
    case Verdict::kUnknownParent:
      return Doubt("a parent that nothing has named");
    case Verdict::kUnknownClear:
      return Doubt("a clear of a medium that is neither tier");
    case Verdict::kTooMany:
      return Doubt("more blocks than allowed");
  }
}

void Reference::HearWhole(const Answer& answer, base::SteadyTime now) {
  before_ = pictures_;
  const bool old = answer.next < floor_at_request_;
  const bool alone = renewed_ && !heard_;
  if (old && alone && refused_next_ == answer.next && now - refused_since_ >= kQuietForSure) {
    // Nothing late can be on a connection that was renewed for this: the publisher has begun anew.
    snapshot_floor_ = inherited_floor_ = 0;
  } else if (old) {
    if (alone) {
      if (refused_next_ != answer.next) refused_since_ = now;
      refused_next_ = answer.next;
    }
    snapshot_applied_ = false;
    snapshots_ = 0;
    return Doubt("a snapshot older than what was known before it was asked for");
  }
  if (!synchronized_) return Recover(answer);
  ahead_ = answer;
  behind_ = since_request_;
  ExchangeEnded();
  ++snapshots_;
  Expect(Must::kStay, "a snapshot takes no credit");
}

std::optional<Reference::Picture> Reference::Ahead(const Picture& shown) const {
  Picture picture = PictureOf(*ahead_);
  // What was lost may have given blocks another meaning.
  if (ahead_->next <= shown.next) picture.told = shown.told.MerelyKnown();
  bool fine = picture.told.Apply(ahead_->content, Orphans::kRemember) == Verdict::kFine;
  for (const LiveMessage& message : behind_) {
    if (message.sequence < picture.next && !ZeroIsNews(picture, message.sequence)) continue;
    fine = fine && Extend(picture, message, Orphans::kRemember) == Verdict::kFine;
  }
  if (!fine) return std::nullopt;
  return picture;
}

void Reference::Recover(const Answer& answer) {
  Picture picture = PictureOf(answer);
  const bool empty = picture.zero_may_come;
  picture.told.Apply(answer.content, Orphans::kRemember);
  const auto covered = [&](const LiveMessage& message) {
    return message.sequence < answer.next && !(empty && message.sequence == 0);
  };
  std::uint64_t last_full = 0;
  for (const LiveMessage& message : since_request_) {
    if (covered(message)) continue;
    if (message.spoiled != Spoiled::kNo) return Doubt("a damaged batch behind the snapshot");
    if (message.sequence > picture.next && !(empty && message.sequence == 0)) {
      return Doubt("a gap behind the snapshot");
    }
    picture.next = message.sequence + 1;
    if (BeginsWithClear(message.batch)) last_full = message.sequence;
  }
  picture.next = answer.next;
  for (const LiveMessage& message : since_request_) {
    if (covered(message)) continue;
    if (message.sequence < last_full) {
      picture.next = message.sequence + 1;
      continue;
    }
    if (Extend(picture, message, Orphans::kRefuse) != Verdict::kFine) {
      return Doubt("a batch behind the snapshot that cannot stand");
    }
  }
  ExchangeEnded();
  pictures_ = {picture};
  snapshot_applied_ = true;
  ++snapshots_;
  snapshot_floor_ = std::max(snapshot_floor_, picture.base);
  Expect(Must::kSynchronize, "a whole snapshot, and what came behind it without a gap");
}

bool Reference::MayShow(const Shown& shown) const {
  if (!shown.synchronized) {
    return std::all_of(shown.credits.begin(), shown.credits.end(),
                       [](const Credit& credit) { return credit == Credit(); });
  }
  const auto shows = [&](const Picture& picture) { return Shows(picture, shown); };
  const auto leads_to_it = [&](const Picture& picture) {
    const std::optional<Picture> ahead = ahead_ ? Ahead(picture) : std::nullopt;
    return shows(picture) || (ahead && shows(*ahead));
  };
  return std::any_of(pictures_.begin(), pictures_.end(), leads_to_it) ||
         std::any_of(before_.begin(), before_.end(), leads_to_it);
}

std::string Reference::Judge(const Shown& shown) {
  const bool was = synchronized_;
  synchronized_ = shown.synchronized;
  before_.clear();
  const auto broken = [&](const char* invariant, const char* how) {
    return StrCat(invariant, ": ", how, " after ", why_);
  };
  switch (must_) {
    case Must::kSynchronize:
      if (!shown.synchronized) return broken("I3", "not synchronized");
      break;
    case Must::kUnsynchronize:
      if (shown.synchronized) return broken("I2", "synchronized");
      break;
    case Must::kStay:
      if (was && !shown.synchronized) return broken("I3", "credit lost");
      if (!was && shown.synchronized) return broken("I2", "synchronized");
      break;
    case Must::kMayMute:
      muted_ = was && !shown.synchronized;
      break;
    case Must::kMaySynchronize:
    case Must::kEither:
      break;
  }
  if (!shown.synchronized) {
    pictures_.clear();
    ahead_.reset();
    if (!MayShow(shown)) return broken("I2", "hits while unsynchronized");
    return "";
  }
  renewed_ = false;
  if (ahead_) {
    const std::vector<Picture> shown_before = pictures_;
    for (const Picture& picture : shown_before) {
      if (const std::optional<Picture> ahead = Ahead(picture)) pictures_.push_back(*ahead);
    }
    if (ahead_->next <= shown.next && !asked_) ahead_.reset();  // it has been judged
  }
  std::erase_if(pictures_, [&](const Picture& picture) { return !Shows(picture, shown); });
  if (pictures_.empty()) {
    std::string text = broken("I1", "shows what nobody has told it");
    StrAppend(text, "\n  up to ", static_cast<std::int64_t>(shown.next) - 1, ", blocks ",
              shown.device_blocks, "+", shown.host_blocks, ", hits");
    for (const Credit& credit : shown.credits) {
      StrAppend(text, " ", credit.device_tokens, "+", credit.host_only_tokens);
    }
    return text;
  }
  // Equal ones once.
  for (auto at = pictures_.begin(); at != pictures_.end(); ++at) {
    pictures_.erase(std::remove(at + 1, pictures_.end(), *at), pictures_.end());
  }
  mixed_pictures_ += pictures_.front().mixed ? 1 : 0;
  for (const Picture& picture : pictures_)
    snapshot_floor_ = std::max(snapshot_floor_, picture.base);
  return "";
}

void Reference::AddTo(Fingerprint& fingerprint, base::SteadyTime now) const {
  const auto add = [&](const Picture& picture) {
    fingerprint.Add(std::uint64_t{picture.told.device} << 32 | picture.told.host);
    fingerprint.Add(std::uint64_t{picture.told.named} << 32 | picture.told.indexed);
    fingerprint.Add((picture.zero_may_come ? 1u : 0u) + (picture.mixed ? 2u : 0u));
    fingerprint.AddNext(picture.next);
  };
  fingerprint.Add(pictures_.size());
  for (const Picture& picture : pictures_) add(picture);
  fingerprint.Add(ahead_ ? 1 : 0);
  if (ahead_) {
    for (const Picture& picture : pictures_) {
      const std::optional<Picture> ahead = Ahead(picture);
      fingerprint.Add(ahead ? 1 : 0);
      if (ahead) add(*ahead);
    }
  }
  fingerprint.Add((synchronized_ ? 1u : 0u) + (snapshot_applied_ ? 2u : 0u) +
                  (topic_seen_ ? 4u : 0u) + (asked_ ? 8u : 0u) + (muted_ ? 16u : 0u) +
                  (renewed_ ? 64u : 0u) + (refused_next_ ? 128u : 0u) +
                  (refused_next_ && now - refused_since_ >= kQuietForSure ? 256u : 0u));
  fingerprint.AddNext(heard_ ? *heard_ + 1 : 0);
  fingerprint.AddNext(snapshot_floor_);
  fingerprint.AddNext(inherited_floor_);
  if (!asked_) return;
  fingerprint.AddNext(floor_at_request_);
  for (const LiveMessage& message : since_request_) fingerprint.AddNext(message.sequence + 1);
}

}  // namespace xms::kv_directory::proof
