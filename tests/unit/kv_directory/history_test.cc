// Random histories of publishers, wires and time against StreamMachine, held against the truth.
//
// What has to be true after every step, for every prompt that is asked:
//   I1  the run of blocks that a synchronized stream is credited with was held, tier by tier, by the
//       life that the stream believes in, as of the sequence that it says it has indexed;
//   I2  an unsynchronized stream has no hits, and a stream is unsynchronized as soon as it has met a
//       doubt that it can see: a gap, a sequence that goes back, damage, a broken connection, a
//       snapshot that is older than what came before its request;
//   I4  no stream's events show in another's answers (streams share one index and all prompts);
//   I6  mappings stay within their limit;
// and once faults have stopped:
//   I3  every stream is synchronized and equal to the truth within a bounded time.
// One case is left out by design (D2): a publisher that begins anew on a connection on which it had
// not been heard yet, and whose new numbers run past the old watermark. Its batches cannot be told from
// late ones; reconciliation finds out, so it is I3's business.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "kv_directory/recovery/stream_machine.h"
#include "kv_index/kv_index.h"
#include "kv_index/stream_ledger.h"
#include "tests/support/kv_truth.h"

namespace xms::kv_directory {
namespace {

using base::SteadyTime;
using base::StrAppend;
using base::StrCat;
using model::Tier;
using std::chrono::milliseconds;
using testing::Expectation;
using testing::Frames;
using testing::KvBatchBuilder;
using testing::KvTruth;
using testing::Tokens;

constexpr std::size_t kBlocks = 6;
constexpr std::uint64_t kMaxMappings = 64;

// Three prompts that part from each other after two and four blocks.
const std::vector<Tokens>& Prompts() {
  static const std::vector<Tokens> prompts = [] {
    const Tokens a = testing::MakePrompt(1, kBlocks);
    Tokens b = testing::MakePrompt(2, kBlocks);
    Tokens c = testing::MakePrompt(3, kBlocks);
    std::copy(a.begin(), a.begin() + 8, b.begin());
    std::copy(a.begin(), a.begin() + 16, c.begin());
    return std::vector<Tokens>{a, b, c};
  }();
  return prompts;
}

// Per prompt, per block: held on Device, held on Host.
struct Held {
  bool device[3][kBlocks] = {};
  bool host[3][kBlocks] = {};
};

// The stream may say this of prompt `p`.
bool MayBe(const Held& held, std::size_t p, const Expectation& hits) {
  const std::size_t run = (hits.device_tokens + hits.host_only_tokens) / 4;
  std::uint32_t device = 0;
  for (std::size_t block = 0; block < run; ++block) {
    if (!held.device[p][block] && !held.host[p][block]) return false;
    if (held.device[p][block]) device += 4;
  }
  return device == hits.device_tokens;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t Below(std::uint64_t bound) { return engine_() % bound; }
  bool Chance(int percent) { return Below(100) < static_cast<std::uint64_t>(percent); }
  std::uint64_t Seed() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

// One publisher, its wires, and the stream that listens to it.
class Engine final : public StreamMachine::Actions {
 public:
  Engine(kv_index::KvIndex& index, const Limits& limits, int rank, Random& random, SteadyTime& now,
         std::string& trace)
      : index_(index),
        random_(random),
        now_(now),
        trace_(trace),
        spec_{.key = {{"engine:8000"}, {rank}},
              .block_size = 4,
              .endpoint = "tcp://engine:18000",
              .replay_endpoint = "tcp://engine:38000",
              .topic = "t"},
        truth_(4, rank),
        first_sequence_(random.Below(2)),
        next_sequence_(first_sequence_),
        ledger_(index.OpenStream({.key = spec_.key, .block_size = 4}, "new").value().release()),
        machine_(spec_, limits, *ledger_, *this, metrics_, random.Seed()) {
    Record();
    machine_.Start(now_);
  }

  // --- one random step
  void Step() {
    const std::uint64_t choice = random_.Below(100);
    if (choice < 25) {
      Publish();
    } else if (choice < 28) {
      LoseOrMixUp();
    } else if (choice < 36) {
      Connection();
    } else if (choice < 39) {
      Process();
    } else if (choice < 65) {
      Exchange(/*faults=*/true);
    } else if (choice < 70) {
      Pass(milliseconds(random_.Chance(20) ? random_.Below(32000) : random_.Below(300)));
    } else {
      DeliverNext();
    }
  }

  // Everything works from here. A life that began in place and has not been heard can be told from
  // late batches by nothing but a new connection.
  void FaultsStop() {
    if (linked_ && in_place_) Break();
  }
  void Calm() {
    if (subscribing_ && !linked_) Link();
    if (broken_) Break();
    while (!wire_.empty()) DeliverNext();
    Exchange(/*faults=*/false);
  }

  void Tick() {
    if (now_ >= machine_.NextTick()) Input("tick", 0, false, [&] { machine_.OnTick(now_); });
  }

  bool UpToDate() const {
    const auto status = Status();
    if (!status.synchronized) return false;
    if (next_sequence_ != first_sequence_ &&
        (!status.sequence_valid || status.sequence.value != next_sequence_ - 1)) {
      return false;
    }
    for (const Tokens& prompt : Prompts()) {
      if (Hits(prompt) != truth_.Expected(prompt)) return false;
    }
    return true;
  }
  std::string Describe() const {
    const auto status = Status();
    std::string text =
        StrCat("rank ", spec_.key.rank.value, ": synchronized ", status.synchronized, ", sequence ",
               status.sequence.value, " of ", next_sequence_ - 1, ", error '", status.error, "'");
    for (const Tokens& prompt : Prompts()) {
      const Expectation hits = Hits(prompt);
      const Expectation truth = truth_.Expected(prompt);
      StrAppend(text, "\n  hits ", hits.device_tokens, "+", hits.host_only_tokens, ", truth ",
                truth.device_tokens, "+", truth.host_only_tokens);
    }
    return text;
  }

  // "" when I1, I2 and I6 hold.
  std::string Check() const {
    if (!overlooked_.empty()) return StrCat("I2: ", overlooked_);
    if (ledger_->mappings() > kMaxMappings) return "I6: more mappings than allowed";
    const auto status = Status();
    for (std::size_t p = 0; p < Prompts().size(); ++p) {
      const Expectation hits = Hits(Prompts()[p]);
      if (!status.synchronized) {
        if (hits != Expectation()) return "I2: hits while unsynchronized";
        continue;
      }
      if (mixed_) continue;
      const std::uint64_t next = status.sequence_valid ? status.sequence.value + 1 : 0;
      const auto life = records_.find(believed_life_);
      const auto versions = life->second.find(next);
      bool possible = false;
      if (versions != life->second.end()) {
        for (const Held& held : versions->second) possible |= MayBe(held, p, hits);
      }
      if (!possible) {
        return StrCat("I1: prompt ", p, " is credited with ", hits.device_tokens, "+",
                      hits.host_only_tokens, " as of sequence ", status.sequence.value, " of life ",
                      believed_life_);
      }
    }
    return "";
  }
  int mixed_lives() const { return mixed_lives_; }
  int synchronizations() const { return synchronizations_; }

  // --- StreamMachine::Actions
  void OpenSubscription() override { subscribing_ = true; }
  void CloseSubscription() override {
    subscribing_ = linked_ = broken_ = false;
    wire_.clear();
  }
  void OpenExchange() override {
    exchange_ = true;
    asked_ = false;
    replies_.clear();
  }
  void CloseExchange() override { exchange_ = asked_ = false; }
  void StateChanged(bool synchronized, const std::string&) override {
    synchronizations_ += synchronized ? 1 : 0;
  }

 private:
  enum class Spoiled { kNo, kPayload, kFrames };
  struct Live {
    int life = 0;
    std::uint64_t sequence = 0;
    bool full = false;  // begins with a full clear
    Frames frames;
    Spoiled spoiled = Spoiled::kNo;
  };

  kv_index::StreamStatus Status() const {
    for (auto& status : index_.Streams()) {
      if (status.info->key == spec_.key) return status;
    }
    std::abort();
  }
  Expectation Hits(const Tokens& prompt) const {
    kv_index::MatchResult result;
    index_.Match(prompt, result);
    for (const auto& entry : index_.Slots()->entries) {
      if (entry.info->key != spec_.key) continue;
      return {result.slots[entry.slot].device_hit_tokens,
              result.slots[entry.slot].host_only_hit_tokens};
    }
    std::abort();
  }

  // What is held now, as of the last sequence.
  void Record() {
    Note(truth_);
    for (const KvTruth& world : unforgotten_) Note(world);
  }
  void Note(const KvTruth& world) {
    Held held;
    for (std::size_t p = 0; p < Prompts().size(); ++p) {
      for (std::size_t block = 0; block < kBlocks; ++block) {
        held.device[p][block] = world.Holds(Prompts()[p], block, Tier::kDevice);
        held.host[p][block] = world.Holds(Prompts()[p], block, Tier::kHost);
      }
    }
    records_[life_][next_sequence_].push_back(held);
  }
  void NewLife() {
    truth_.Forget();
    unforgotten_.clear();
    ++life_;
  }

  void Publish() {
    KvBatchBuilder batch = truth_.NewBatch();
    bool full = false;
    if (random_.Chance(6)) {
      batch.Clear();
      full = true;
    }
    for (std::uint64_t events = random_.Below(3) + (full ? 0 : 1); events > 0; --events) {
      const Tokens& prompt = Prompts()[random_.Below(Prompts().size())];
      const Tier tier = random_.Chance(70) ? Tier::kDevice : Tier::kHost;
      const std::size_t first = random_.Below(kBlocks);
      const std::size_t count = 1 + random_.Below(kBlocks - first);
      switch (random_.Below(8)) {
        case 0:
        case 1:
          batch.Store(tier, prompt, 0, first + 1);
          break;
        case 2:  // under a block that is there
          if (first > 0 && !full &&
              (truth_.Holds(prompt, first - 1, Tier::kDevice) ||
               truth_.Holds(prompt, first - 1, Tier::kHost))) {
            batch.Store(tier, prompt, first, count);
          }
          break;
        case 3:
          if (!full && truth_.Holds(prompt, first, Tier::kDevice)) {
            batch.Replicate(Tier::kHost, prompt, first, 1);
          }
          break;
        case 4:
        case 5:
          batch.Remove(tier, prompt, first, count);
          break;
        case 6:
          if (random_.Chance(20)) batch.Clear(tier);
          break;
        default:
          break;
      }
      // Later events of the batch are chosen by what the batch has done so far.
      if (events > 1) {
        full |= batch.batch().BeginsWithFullClear();
        break;
      }
    }
    const bool begins_full = batch.batch().BeginsWithFullClear();
    truth_.Apply(batch.batch());
    for (KvTruth& world : unforgotten_) world.Apply(batch.batch());
    const std::uint64_t sequence = next_sequence_++;
    Record();
    StrAppend(trace_, "\n", Name(), "publish ", sequence, begins_full ? " full" : "");
    if (!linked_ || broken_) return;
    wire_.push_back({life_,
                     sequence,
                     begins_full,
                     {"t", testing::BigEndian64(sequence), testing::Encode(batch)}});
  }

  void LoseOrMixUp() {
    if (wire_.empty() || wire_.front().spoiled != Spoiled::kNo) return;
    switch (random_.Below(5)) {
      case 0:
        StrAppend(trace_, "\n", Name(), "lose");
        wire_.pop_front();
        break;
      case 1:
        StrAppend(trace_, "\n", Name(), "duplicate");
        wire_.insert(wire_.begin(), wire_.front());
        break;
      case 2:
        StrAppend(trace_, "\n", Name(), "swap");
        if (wire_.size() > 1) std::swap(wire_[0], wire_[1]);
        break;
      case 3:
        StrAppend(trace_, "\n", Name(), "truncate");
        wire_.front().frames[2].pop_back();
        wire_.front().spoiled = Spoiled::kPayload;
        break;
      default:
        StrAppend(trace_, "\n", Name(), "spoil frames");
        wire_.front().frames.pop_back();
        wire_.front().spoiled = Spoiled::kFrames;
        break;
    }
  }

  void DeliverNext() {
    if (wire_.empty()) return;
    const Live live = std::move(wire_.front());
    wire_.pop_front();
    const auto before = Status();
    Input("deliver", live.life, live.full, [&] {
      const std::vector<Frame> frames = Spans(live.frames);
      machine_.OnLive(frames, now_);
    });
    const auto after = Status();
    const std::uint64_t next = before.sequence_valid ? before.sequence.value + 1 : 0;
    const bool back = live.spoiled != Spoiled::kFrames && heard_ && live.sequence <= *heard_;
    const bool covered = before.synchronized && live.sequence < next;
    if (after.synchronized) {
      if (back) overlooked_ = "a sequence that went back";
      if (live.spoiled == Spoiled::kFrames) overlooked_ = "spoiled frames";
      if (live.spoiled == Spoiled::kPayload && !covered) overlooked_ = "a truncated batch";
      if (before.synchronized && live.sequence > next && !live.full) overlooked_ = "a gap";
      if (!before.synchronized && !snapshot_heard_) overlooked_ = "that no snapshot came first";
    }
    if (live.spoiled != Spoiled::kFrames) heard_ = live.sequence;
    if (back) snapshot_heard_ = false;
  }

  void Connection() {
    if (subscribing_ && !linked_) {
      if (random_.Chance(80)) {
        Link();
      } else {
        Input("unreachable", 0, false,
              [&] { machine_.OnSubscriptionLost(LossCause::kUnreachable, now_); });
      }
    } else if (linked_ && random_.Chance(8)) {
      Break();
    }
  }
  void Link() {
    linked_ = true;
    in_place_ = false;
    wire_.clear();
    heard_.reset();
    snapshot_heard_ = false;
    Input("connected", 0, false, [&] { machine_.OnSubscribed(now_); });
  }
  void Break() {
    Input("disconnected", 0, false, [&] {
      if (random_.Chance(50)) machine_.OnSubscriptionInterrupted(now_);
      machine_.OnSubscriptionLost(LossCause::kClosed, now_);
    });
    if (Status().synchronized) overlooked_ = "a broken connection";
  }

  void Process() {
    switch (random_.Below(4)) {
      case 0:  // a new process; it may happen to continue the numbers
        NewLife();
        if (random_.Chance(50)) next_sequence_ = first_sequence_;
        Record();
        StrAppend(trace_, "\n", Name(), "new process, next ", next_sequence_);
        broken_ = linked_;
        asked_ = false;
        break;
      case 1:  // in place: connections stay
        NewLife();
        next_sequence_ = first_sequence_;
        Record();
        in_place_ = true;
        StrAppend(trace_, "\n", Name(), "new life in place");
        break;
      case 2:
        unforgotten_.push_back(truth_);
        truth_.Forget();
        Record();
        StrAppend(trace_, "\n", Name(), "emptied in silence");
        break;
      default:
        break;
    }
  }

  void Exchange(bool faults) {
    if (!exchange_) return;
    if (faults && random_.Chance(2)) {
      Input("exchange lost", 0, false, [&] {
        machine_.OnExchangeLost(random_.Chance(50) ? LossCause::kUnreachable : LossCause::kClosed,
                                now_);
      });
      return;
    }
    // Whoever answers in a new process's place, its predecessor's connections have ended.
    if (broken_) {
      Break();
      return;
    }
    if (!asked_) {
      Input("ask", 0, false, [&] {
        machine_.OnExchangeConnected();
        machine_.OnExchangeStarted(now_);
      });
      asked_ = true;
      replies_.clear();
      heard_at_request_ = heard_;
      const auto status = Status();
      next_at_request_ =
          status.synchronized && status.sequence_valid ? status.sequence.value + 1 : 0;
      return;
    }
    if (replies_.empty()) {
      // Before anything was published, publishers say 0 or −1.
      const std::uint64_t watermark = next_sequence_ - 1;
      for (const Frames& frames : truth_.SnapshotAnswer(watermark, 1 + random_.Below(2))) {
        replies_.push_back(frames);
      }
      answer_life_ = life_;
      answer_next_ = watermark + 1;
      StrAppend(trace_, "\n", Name(), "answer up to ", static_cast<std::int64_t>(watermark));
      if (faults && random_.Chance(6)) replies_.pop_back();  // cut
      if (faults && random_.Chance(3)) replies_.front()[2].pop_back();
      return;
    }
    do {
      const Frames frames = std::move(replies_.front());
      replies_.pop_front();
      const bool was_synchronized = Status().synchronized;
      Input("reply", 0, false, [&] {
        const std::vector<Frame> spans = Spans(frames);
        machine_.OnReply(spans, now_);
      });
      const bool whole = !exchange_ && frames[1] == testing::BigEndian64(UINT64_MAX);
      if (whole && Status().synchronized) {
        snapshot_heard_ = true;
        if (was_synchronized ? answer_next_ < next_at_request_
                             : heard_at_request_ && *heard_at_request_ >= answer_next_) {
          overlooked_ = "a snapshot older than what came before its request";
        }
      } else if (whole && was_synchronized) {
        heard_.reset();  // the stream has noticed a new life; nothing of the old one counts
        snapshot_heard_ = false;
      } else if (whole && heard_at_request_ && *heard_at_request_ >= answer_next_) {
        heard_.reset();
        snapshot_heard_ = false;
      }
    } while (!faults && exchange_ && !replies_.empty());
    // A cut answer stays as it is until the time-out.
    if (replies_.empty() && exchange_) replies_.push_back({"", "", ""});
  }

  void Pass(milliseconds time) {
    StrAppend(trace_, "\n", time.count(), " ms pass");
    now_ += time;
  }

  // Feeds the machine, and keeps track of whose word it takes.
  template <typename Call>
  void Input(std::string_view what, int life, bool full, Call call) {
    const auto before = Status();
    if (what == "ask") lives_since_request_.clear();
    if (what == "deliver") lives_since_request_.insert(life);
    call();
    const auto after = Status();
    StrAppend(trace_, "\n", Name(), what, " → ",
              after.synchronized ? StrCat("synchronized at ", after.sequence.value)
                                 : StrCat("error '", after.error, "'"));
    if (!after.synchronized) return;
    const bool advanced = before.synchronized && (before.sequence != after.sequence ||
                                                  before.sequence_valid != after.sequence_valid);
    const bool same_belief = before.synchronized && (before.generation == after.generation ||
                                                     (what == "deliver" && !full && advanced));
    if (same_belief) {  // a clear of one tier is a new generation of the same belief
      // Batch 0 may be news at sequence 0 (4.3).
      const bool applied = advanced || after.sequence.value == 0;
      if (applied && what == "deliver" && life != believed_life_) Mix();
      return;
    }
    mixed_ = false;
    believed_life_ = what == "deliver" && full ? life : answer_life_;
    // A snapshot of one life, and batches of another that happen to continue its numbers.
    lives_since_request_.erase(answer_life_);
    if (believed_life_ == answer_life_ && !lives_since_request_.empty()) Mix();
  }
  void Mix() {
    mixed_ = true;
    ++mixed_lives_;
  }

  static std::vector<Frame> Spans(const Frames& frames) {
    std::vector<Frame> spans;
    for (const std::string& frame : frames) spans.push_back(std::as_bytes(std::span(frame)));
    return spans;
  }
  std::string Name() const { return StrCat("rank ", spec_.key.rank.value, ": "); }

  kv_index::KvIndex& index_;
  Random& random_;
  SteadyTime& now_;
  std::string& trace_;
  const StreamSpec spec_;
  const StreamMetrics metrics_;

  KvTruth truth_;
  // What this life would hold had it not been emptied in silence; nobody has been told, so it may
  // still be believed.
  std::vector<KvTruth> unforgotten_;
  int life_ = 1;
  const std::uint64_t first_sequence_;
  std::uint64_t next_sequence_;
  // By life, then by the sequence to come: what was held; more than one when it changed in silence.
  std::map<int, std::map<std::uint64_t, std::vector<Held>>> records_;

  bool subscribing_ = false;
  bool linked_ = false;
  bool broken_ = false;    // the process behind the link is gone, and the stream has not been told
  bool in_place_ = false;  // a new life has begun on this connection
  std::deque<Live> wire_;
  bool exchange_ = false;
  bool asked_ = false;
  std::deque<Frames> replies_;
  int answer_life_ = 1;
  std::uint64_t answer_next_ = 0;
  std::set<int> lives_since_request_;
  std::optional<std::uint64_t> heard_;  // the last sequence that was delivered on this connection
  std::optional<std::uint64_t> heard_at_request_;
  std::uint64_t next_at_request_ = 0;
  bool snapshot_heard_ = false;  // on this connection and in this life
  std::string overlooked_;       // a doubt that did not unsynchronize the stream

  int believed_life_ = 1;
  bool mixed_ = false;
  int mixed_lives_ = 0;
  int synchronizations_ = 0;

  std::unique_ptr<kv_index::StreamLedger> ledger_;
  StreamMachine machine_;
};

struct Totals {
  int synchronizations = 0;
  int mixed_lives = 0;
};

// "" or what was wrong, with the history that led to it.
std::string RunHistory(std::uint64_t seed, Totals& totals) {
  Random random(seed);
  std::string trace;
  SteadyTime now{std::chrono::hours(1)};
  Limits limits;
  limits.max_blocks_per_stream = kMaxMappings;
  kv_index::KvIndex index({.max_blocks_per_stream = kMaxMappings});
  std::vector<std::unique_ptr<Engine>> engines;
  for (int rank = 0; rank < 2; ++rank) {
    engines.push_back(std::make_unique<Engine>(index, limits, rank, random, now, trace));
  }
  const auto check = [&]() -> std::string {
    for (const auto& engine : engines) {
      engine->Tick();
      if (std::string wrong = engine->Check(); !wrong.empty()) {
        return StrCat(wrong, "\n", engine->Describe(), "\nhistory:", trace);
      }
    }
    return "";
  };
  const std::uint64_t steps = 60 + random.Below(200);
  for (std::uint64_t step = 0; step < steps; ++step) {
    engines[random.Below(engines.size())]->Step();
    if (std::string wrong = check(); !wrong.empty()) return wrong;
  }
  StrAppend(trace, "\nfaults stop");
  for (const auto& engine : engines) engine->FaultsStop();
  // A reconciliation may have just begun, and one comparison may be undecided.
  const SteadyTime limit = now + 4 * limits.resync_interval;
  const auto up_to_date = [&] {
    return std::all_of(engines.begin(), engines.end(),
                       [](const auto& engine) { return engine->UpToDate(); });
  };
  while (!up_to_date() && now < limit) {
    now += milliseconds(20);
    for (const auto& engine : engines) engine->Calm();
    if (std::string wrong = check(); !wrong.empty()) return wrong;
  }
  for (const auto& engine : engines) {
    totals.synchronizations += engine->synchronizations();
    totals.mixed_lives += engine->mixed_lives();
    if (!engine->UpToDate()) {
      return StrCat("I3: not up to date ", base::MillisBetween(limit, now) + 4 * 30000,
                    " ms after the last fault\n", engine->Describe(), "\nhistory:", trace);
    }
  }
  return "";
}

// XMS_HISTORY_SEED=n runs that one; XMS_HISTORIES=n runs so many.
TEST(KVDirectoryHistory, RandomHistoriesNeverBelieveAnythingStaleAndAlwaysRecover) {
  Totals totals;
  if (const char* seed = std::getenv("XMS_HISTORY_SEED")) {
    EXPECT_EQ(RunHistory(std::strtoull(seed, nullptr, 10), totals), "");
    return;
  }
  const char* wanted = std::getenv("XMS_HISTORIES");
  const std::uint64_t histories = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 1500;
  for (std::uint64_t seed = 1; seed <= histories; ++seed) {
    const std::string wrong = RunHistory(seed, totals);
    ASSERT_EQ(wrong, "") << "XMS_HISTORY_SEED=" << seed;
  }
  std::printf("%llu histories, %d synchronizations, %d beliefs of two lives (left out)\n",
              static_cast<unsigned long long>(histories), totals.synchronizations,
              totals.mixed_lives);
  EXPECT_GT(totals.synchronizations, static_cast<int>(2 * histories))
      << "histories that never synchronize prove nothing";
}

}  // namespace
}  // namespace xms::kv_directory
