#include "tests/unit/kv_directory/model/engine.h"

#include <algorithm>
#include <utility>

#include "base/str_cat.h"
#include "tests/unit/kv_directory/model/machine_probe.h"
#include "tests/unit/kv_directory/mutation.h"

namespace xms::kv_directory::proof {
namespace {

using base::StrAppend;
using base::StrCat;
using model::Tier;
using Kind = Event::Kind;
using std::chrono::milliseconds;

const std::string kTopic = "t";

StreamSpec SpecOf(int rank) {
  return {.key = {{"engine:8000"}, {rank}},
          .block_size = kBlockSize,
          .endpoint = "tcp://engine:18000",
          .replay_endpoint = "tcp://engine:38000",
          .topic = kTopic};
}

std::vector<Frame> Spans(const testing::Frames& frames) {
  std::vector<Frame> spans;
  for (const std::string& frame : frames) spans.push_back(std::as_bytes(std::span(frame)));
  return spans;
}

// A few choices out of one number.
class Choices {
 public:
  explicit Choices(std::uint64_t argument) : state_(argument * 0x9e3779b97f4a7c15u + 1) {}
  std::uint64_t Below(std::uint64_t bound) {
    state_ ^= state_ >> 31;
    state_ *= 0xbf58476d1ce4e5b9u;
    state_ ^= state_ >> 29;
    return (state_ >> 8) % bound;
  }

 private:
  std::uint64_t state_;
};

}  // namespace

Engine::Engine(World& world, int rank, std::uint64_t seed, std::uint64_t first_sequence)
    : world_(world),
      rank_(rank),
      spec_(SpecOf(rank)),
      seeds_(seed),
      first_sequence_(first_sequence),
      next_sequence_(first_sequence) {
  Record();
  Open();
}

void Engine::Open() {
  const model::ProcessIdentity identity{.incarnation_id = StrCat("life ", life_)};
  ledger_ =
      world_.index()
          .OpenStream({.key = spec_.key, .block_size = kBlockSize, .identity = identity}, "new")
          .value();
  reference_ = Reference{};
  machine_.emplace(spec_, world_.limits(), *ledger_, *this, metrics_, seeds_());
  machine_->Start(world_.now());
}

// --- the publisher

void Engine::Record() { records_[life_][next_sequence_] = truth_; }

void Engine::Publish(Batch batch) {
  truth_.Apply(batch, Told::Orphans::kRemember);
  const std::uint64_t sequence = next_sequence_++;
  Record();
  world_.Trace(StrCat("  batch ", sequence, " of life ", life_, ": ", Print(batch)));
  if (linked_ && !broken_) {
    wire_.push_back({.life = life_, .sequence = sequence, .batch = std::move(batch)});
  }
}

Batch Engine::RandomBatch(std::uint16_t argument) const {
  Choices choose(argument);
  Told told = truth_;
  Batch batch;
  const auto add = [&](Event event) {
    batch.push_back(std::move(event));
    told.Apply(std::span(batch).last(1), Told::Orphans::kRemember);
  };
  if (choose.Below(16) == 0) add({Kind::kClear});
  for (std::uint64_t events = choose.Below(4); events > 0; --events) {
    const Tier tier = choose.Below(10) < 7 ? Tier::kDevice : Tier::kHost;
    const std::vector<int>& chain = Prompts()[choose.Below(3)].blocks;
    const std::size_t first = choose.Below(chain.size());
    const std::size_t count = 1 + choose.Below(chain.size() - first);
    const auto part = [&](std::size_t from, std::size_t length) {
      return std::vector<int>(chain.begin() + static_cast<std::ptrdiff_t>(from),
                              chain.begin() + static_cast<std::ptrdiff_t>(from + length));
    };
    switch (choose.Below(16)) {
      case 0:
      case 1:
      case 2:
        add({Kind::kStore, tier, part(0, first + 1)});
        break;
      case 3:
      case 4:  // under a block that is there
        if (first > 0 && ((told.device | told.host) & Bit(chain[first - 1])) != 0) {
          add({Kind::kStore, tier, part(first, count)});
        }
        break;
      case 5:
      case 6:  // a copy to the other tier, announced without tokens
        if (((told.device | told.host) & Bit(chain[first])) != 0) {
          add({Kind::kReplica, tier, {chain[first]}});
        }
        break;
      case 7:  // a demotion may name a block that has left both tiers
        if ((told.named & Bit(chain[first])) != 0)
          add({Kind::kReplica, Tier::kHost, {chain[first]}});
        break;
      case 8:
      case 9:
      case 10:
        add({Kind::kRemove, tier, part(first, count)});
        break;
      case 11:
        if (choose.Below(4) == 0) add({Kind::kClearTier, tier});
        break;
      case 12:
        add({Kind::kStore, tier, {kAdapter}});
        add({Kind::kStore, tier, {choose.Below(2) == 0 ? kAdapterChild : kUnderAdapter}});
        break;
      case 13:
        if ((told.named & Bit(0)) != 0) add({Kind::kStore, tier, {kOtherGroup}});
        break;
      case 14:
        add({Kind::kElsewhere, tier, {chain[first]}});
        break;
      default:
        switch (choose.Below(12)) {
          case 0:
            add({Kind::kClearOther});
            break;
          case 1:
            add({Kind::kTooMany});
            break;
          case 2:
          case 3:
            add({Kind::kStore, tier, {kUnderStranger}});
            break;
          default:
            add({Kind::kNovelty});
            break;
        }
        break;
    }
  }
  return batch;
}

Batch Engine::Scripted(Script script) const {
  switch (script) {
    case Script::kRoot:
      return {{Kind::kStore, Tier::kDevice, {0, 1}}};
    case Script::kChild:
      return {{Kind::kStore, Tier::kDevice, {0, 1}}, {Kind::kStore, Tier::kDevice, {2}}};
    case Script::kDropRoot:
      return {{Kind::kRemove, Tier::kDevice, {0}}, {Kind::kRemove, Tier::kHost, {0}}};
    case Script::kOrphanChild:
      if (((truth_.device | truth_.host) & Bit(1)) == 0) return {};
      return {{Kind::kStore, Tier::kDevice, {2}}};
    case Script::kDemote:
      return {{Kind::kReplica, Tier::kHost, {1}}, {Kind::kRemove, Tier::kDevice, {1}}};
    case Script::kClear:
      return {{Kind::kClear}};
    case Script::kClearAndStore:
      return {{Kind::kClear}, {Kind::kStore, Tier::kHost, {0}}};
    case Script::kUnknownParent:
      return {{Kind::kStore, Tier::kDevice, {kUnderStranger}}};
    case Script::kTooMany:
      return {{Kind::kTooMany}};
    case Script::kAdapter:
      return {{Kind::kStore, Tier::kDevice, {kAdapter}},
              {Kind::kStore, Tier::kDevice, {kUnderAdapter}}};
  }
  return {};
}

void Engine::BeginLife(bool continuing) {
  truth_ = Told{};
  ++life_;
  if (!continuing) next_sequence_ = first_sequence_;
  Record();
}

void Engine::ReplaceStream() {
  broken_ = linked_;
  dead_ = asked_;
  if (Mutant(Mutation::kNoIdentityCheck)) {
    reference_ = Reference{};
    return;
  }
  const auto slots = world_.index().Slots();
  for (const auto& entry : slots->entries) {
    if (entry.info->key == spec_.key) world_.Retire(entry.slot, entry.life);
  }
  machine_.reset();
  ledger_.reset();
  subscribing_ = linked_ = broken_ = unheard_ = false;
  exchange_ = asked_ = dead_ = false;
  wire_.clear();
  replies_.clear();
  Open();
}

// --- the live wire

void Engine::Deliver() {
  if (wire_.empty()) return;
  const LiveMessage message = std::move(wire_.front());
  wire_.pop_front();
  Frames frames = {kTopic, testing::BigEndian64(message.sequence), Encode(message.batch, rank_)};
  if (message.spoiled == Spoiled::kPayload) frames[2].pop_back();
  if (message.spoiled == Spoiled::kFrames) frames.pop_back();
  if (message.life == life_ && message.spoiled == Spoiled::kNo) unheard_ = false;
  reference_.Hear(message);
  const auto spans = Spans(frames);
  Feed("a batch arrives", [&] { machine_->OnLive(spans, world_.now()); });
}

void Engine::Twist(std::uint16_t argument) {
  if (wire_.empty() || wire_.front().batch.empty()) return;
  LiveMessage& message = wire_.front();
  if (message.spoiled != Spoiled::kNo) return;
  Event& first = message.batch.front();
  switch (argument % 3) {
    case 0:
      message.batch.pop_back();
      break;
    case 1:
      first.tier = first.tier == Tier::kDevice ? Tier::kHost : Tier::kDevice;
      break;
    default:
      if (first.kind != Kind::kStore) return;
      first.kind = Kind::kRemove;
      break;
  }
  liars_.insert(message.life);
}

// --- the connection

void Engine::Connect() {
  linked_ = true;
  wire_.clear();
  reference_.Connected();
  Feed("connected", [&] { machine_->OnSubscribed(world_.now()); });
}

void Engine::Break(bool announced) {
  closing_ = true;
  reference_.Broken();
  if (announced) {
    Feed("interrupted", [&] { machine_->OnSubscriptionInterrupted(world_.now()); });
  }
  Feed("disconnected", [&] { machine_->OnSubscriptionLost(LossCause::kClosed, world_.now()); });
  closing_ = false;
}

void Engine::OpenSubscription() { subscribing_ = true; }

void Engine::CloseSubscription() {
  if (linked_ && !closing_) reference_.SelfClosed();
  subscribing_ = linked_ = broken_ = false;
  // A life that is not heard from here on has a connection on which nothing else can come.
  wire_.clear();
}

// --- the exchange

void Engine::OpenExchange() {
  exchange_ = true;
  asked_ = dead_ = false;
  answer_.reset();
  replies_.clear();
  if (ledger_->synchronized()) ++exchanges_in_synchrony_;
  Probe("while a question is put");
}

void Engine::CloseExchange() {
  exchange_ = asked_ = false;
  reference_.ExchangeEnded();
}

void Engine::Ask() {
  if (!exchange_ || asked_) return;
  if (broken_) return Break(false);
  asked_ = true;
  intact_ = true;
  reference_.Requested();
  Feed("asked", [&] {
    machine_->OnExchangeConnected();
    machine_->OnExchangeStarted(world_.now());
  });
}

void Engine::MakeAnswer(std::size_t parts) {
  if (!asked_ || answer_ || dead_) return;
  // Before anything was published, publishers say 0 or −1; those that count from 0 say −1.
  answer_ = Answer{.life = life_, .next = next_sequence_, .content = truth_.Snapshot()};
  const std::string watermark = testing::BigEndian64(next_sequence_ - 1);
  const std::span<const Event> content = answer_->content;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t from = content.size() * part / parts;
    const std::size_t to = content.size() * (part + 1) / parts;
    replies_.push_back({"", watermark, Encode(content.subspan(from, to - from), rank_)});
  }
  replies_.push_back({"", testing::BigEndian64(UINT64_MAX), ""});
  world_.Trace(StrCat("  answer of life ", life_, " up to ",
                      static_cast<std::int64_t>(next_sequence_) - 1, ": ",
                      Print(answer_->content)));
}

void Engine::Reply() {
  if (!asked_ || replies_.empty()) return;
  const Frames frames = std::move(replies_.front());
  replies_.pop_front();
  if (replies_.empty() && intact_ && frames[2].empty()) {
    reference_.HearWhole(*answer_, world_.now());
  } else {
    reference_.Nothing();
  }
  const auto spans = Spans(frames);
  Feed("a reply arrives", [&] { machine_->OnReply(spans, world_.now()); });
}

// --- steps

void Engine::Act(const Step& step) {
  const bool odd = step.argument % 2 == 1;
  switch (step.action) {
    case Action::kPublish:
      return Publish(RandomBatch(step.argument));
    case Action::kScript:
      return Publish(Scripted(static_cast<Script>(step.argument)));
    case Action::kEmpty:
      truth_ = Told{};
      liars_.insert(life_);
      return Record();
    case Action::kDeliver:
      return Deliver();
    case Action::kLose:
      if (!wire_.empty()) wire_.pop_front();
      return;
    case Action::kDuplicate:
      if (!wire_.empty()) wire_.push_front(wire_.front());
      return;
    case Action::kSwap:
      if (wire_.size() > 1) std::swap(wire_[0], wire_[1]);
      return;
    case Action::kTruncate:
    case Action::kSpoil:
      if (wire_.empty()) return;
      wire_.front().spoiled = step.action == Action::kSpoil ? Spoiled::kFrames : Spoiled::kPayload;
      return;
    case Action::kTwist:
      return Twist(step.argument);
    case Action::kConnect:
      if (subscribing_ && !linked_) Connect();
      return;
    case Action::kUnreachable:
      if (!subscribing_ || linked_) return;
      closing_ = true;
      reference_.Broken();
      Feed("unreachable",
           [&] { machine_->OnSubscriptionLost(LossCause::kUnreachable, world_.now()); });
      closing_ = false;
      return;
    case Action::kBreak:
      if (linked_) Break(odd);
      return;
    case Action::kAsk:
      return Ask();
    case Action::kAnswer:
      return MakeAnswer(1 + step.argument % 3);
    case Action::kReply:
      return Reply();
    case Action::kReplyAll:
      while (asked_ && !replies_.empty()) Reply();
      return;
    case Action::kCut:
      if (answer_ && !replies_.empty()) replies_.clear();
      return;
    case Action::kDamageAnswer:
      if (replies_.empty() || replies_.front()[2].empty()) return;
      replies_.front()[2].pop_back();
      intact_ = false;
      return;
    case Action::kLoseExchange:
      if (!exchange_) return;
      reference_.Nothing();
      Feed("the exchange is lost", [&] {
        machine_->OnExchangeLost(odd ? LossCause::kUnreachable : LossCause::kClosed, world_.now());
      });
      return;
    case Action::kNewProcess:
      BeginLife(odd);
      broken_ = linked_;
      dead_ = asked_;
      unheard_ = false;
      return;
    case Action::kBeginAnew:
      BeginLife(odd);
      unheard_ = true;
      return;
    case Action::kNewIdentity:
      BeginLife(odd);
      return ReplaceStream();
    case Action::kWait:
      return world_.Pass(milliseconds(step.argument));
    case Action::kTick:
      if (machine_->NextTick() != base::SteadyTime::max()) world_.PassUntil(machine_->NextTick());
      return;
  }
}

void Engine::Tick() {
  if (world_.now() < machine_->NextTick()) return;
  reference_.TimePasses();
  Feed("time", [&] { machine_->OnTick(world_.now()); });
}

template <typename Call>
void Engine::Feed(std::string_view what, Call call) {
  const bool was = ledger_->synchronized();
  call();
  const bool is = ledger_->synchronized();
  if (is && !was) {
    ++synchronizations_;
    exchanges_in_synchrony_ = 0;
  }
  world_.Trace(StrCat("  ", what, ": ", is ? "synchronized" : "not synchronized"));
  Judge();
}

// --- what readers see

Shown Engine::Look() const {
  Shown shown;
  shown.credits.resize(Prompts().size());
  // On a way that has been judged before, an unsynchronized stream was seen to show nothing.
  if (world_.redoing() && !ledger_->synchronized()) return shown;
  kv_index::MatchResult result;
  for (const auto& status : world_.index().Streams()) {
    if (status.info->key != spec_.key) continue;
    shown.synchronized = status.synchronized;
    shown.next = status.sequence_valid ? status.sequence.value + 1 : 0;
    shown.device_blocks = status.device_blocks;
    shown.host_blocks = status.host_blocks;
    for (std::size_t i = 0; i < Prompts().size(); ++i) {
      world_.index().Match(Prompts()[i].tokens, result);
      const auto& slot = result.slots[status.slot];
      shown.credits[i] = {slot.device_hit_tokens, slot.host_only_hit_tokens};
    }
  }
  return shown;
}

void Engine::Probe(std::string_view where) const {
  if (world_.redoing()) return;
  if (!reference_.MayShow(Look())) {
    world_.Broke(StrCat("I5: rank ", rank_, " shows a part of something ", where));
  }
}

void Engine::StateChanged(bool, const std::string& line) {
  world_.Trace(StrCat("  says: ", line));
  Probe("while its state changes");
}

void Engine::Judge() {
  const Shown shown = Look();
  if (std::string wrong = reference_.Judge(shown); !wrong.empty()) {
    return world_.Broke(StrCat("rank ", rank_, ": ", wrong));
  }
  reference_.Nothing();
  if (ledger_->mappings() > kMaxMappings) world_.Broke("I6: more mappings than allowed");
  if (!shown.synchronized) return;
  // Whatever the reference believes: a life that told the truth held what is credited.
  for (const Reference::Picture& picture : reference_.pictures()) {
    if (picture.mixed || liars_.contains(picture.life)) continue;
    const auto life = records_.find(picture.life);
    const auto held = life->second.find(picture.next);
    for (std::size_t i = 0; i < Prompts().size(); ++i) {
      const Credit credit = shown.credits[i];
      if (held == life->second.end() || !held->second.CouldHold(Prompts()[i], credit)) {
        return world_.Broke(StrCat("I1: rank ", rank_, " credits what life ", picture.life,
                                   " did not hold as of ", picture.next));
      }
    }
  }
}

// --- when faults have stopped

void Engine::Settle() {
  for (int turns = 0; turns < 8; ++turns) {
    if (broken_) Break(false);
    if (subscribing_ && !linked_) Connect();
    while (!wire_.empty()) Deliver();
    if (!exchange_) return;
    Ask();
    if (answer_ && replies_.empty()) return;  // it was cut; the time-out ends it
    MakeAnswer(1);
    while (asked_ && !replies_.empty()) Reply();
    if (dead_) return;
  }
}

bool Engine::WaitsForAWord() const { return unheard_ || reference_.waits_for_a_word(); }

void Engine::SayAWord() { Publish({}); }

bool Engine::UpToDate() const {
  const Shown shown = Look();
  if (!shown.synchronized) return false;
  if (next_sequence_ != first_sequence_ && shown.next != next_sequence_) return false;
  for (std::size_t i = 0; i < Prompts().size(); ++i) {
    if (shown.credits[i] != truth_.HeldOf(Prompts()[i])) return false;
  }
  return true;
}

bool Engine::SecondSnapshotIsDue() const {
  return ledger_->synchronized() && reference_.snapshots_taken() == 1 &&
         exchanges_in_synchrony_ == 0 && !broken_;
}

std::string Engine::Describe() const {
  const Shown shown = Look();
  std::string text = StrCat("rank ", rank_, ": life ", life_, ", published up to ",
                            static_cast<std::int64_t>(next_sequence_) - 1, ", shown ",
                            shown.synchronized ? "" : "un", "synchronized up to ",
                            static_cast<std::int64_t>(shown.next) - 1, "; hits");
  for (std::size_t i = 0; i < Prompts().size(); ++i) {
    const Credit held = truth_.HeldOf(Prompts()[i]);
    StrAppend(text, " ", shown.credits[i].device_tokens, "+", shown.credits[i].host_only_tokens,
              " of ", held.device_tokens, "+", held.host_only_tokens);
  }
  for (const auto& status : world_.index().Streams()) {
    if (status.info->key == spec_.key) StrAppend(text, "; ", status.error);
  }
  return text;
}

void Engine::AddTo(Fingerprint& fingerprint) const {
  reference_.AddTo(fingerprint, world_.now());
  MachineProbe::AddTo(*machine_, world_.now(), fingerprint);
  for (const Block& block : AllBlocks()) {
    const auto statement = ledger_->Lookup(block.hash);
    fingerprint.Add((statement.mapped ? 1u : 0u) + (statement.indexed ? 2u : 0u) +
                    (statement.device ? 4u : 0u) + (statement.host ? 8u : 0u));
  }
  fingerprint.Add(std::uint64_t{truth_.device} << 32 | truth_.host);
  fingerprint.Add((subscribing_ ? 1u : 0u) + (linked_ ? 2u : 0u) + (broken_ ? 4u : 0u) +
                  (unheard_ ? 8u : 0u) + (exchange_ ? 16u : 0u) + (asked_ ? 32u : 0u) +
                  (intact_ ? 64u : 0u) + (dead_ ? 128u : 0u));
  fingerprint.AddNext(next_sequence_);
  const auto add = [&](const Batch& batch) {
    for (const Event& event : batch) {
      std::uint64_t word =
          static_cast<std::uint64_t>(event.kind) * 2 + static_cast<std::uint64_t>(event.tier);
      for (const int block : event.blocks) word = word * 31 + static_cast<std::uint64_t>(block);
      fingerprint.Add(word);
    }
  };
  fingerprint.Add(wire_.size());
  for (const LiveMessage& message : wire_) {
    fingerprint.AddNext(message.sequence + 1);
    fingerprint.Add((message.life == life_ ? 1u : 0u) + static_cast<unsigned>(message.spoiled) * 2);
    add(message.batch);
  }
  fingerprint.Add(asked_ && answer_ ? 1 + replies_.size() : 0);
  if (asked_ && answer_) {
    fingerprint.AddNext(answer_->next);
    fingerprint.Add(answer_->life == life_ ? 1 : 0);
    add(answer_->content);
  }
}

}  // namespace xms::kv_directory::proof
