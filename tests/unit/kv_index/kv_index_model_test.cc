// Random events against a slow, obvious model: every kind of event, several streams and geometries, prompts and
// counts compared after each step. A failure names the seed and the step; both are all it takes to repeat it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kv_index/kv_index.h"
#include "kv_index/stream_ledger.h"
#include "tests/unit/kv_index/index_fixture.h"
#include "tests/unit/kv_index/twin_tokens.h"

namespace xms::kv_index {
namespace {

using Content = StreamLedger::Content;
using Tokens = std::vector<std::uint32_t>;

// A block's content is written out: all tokens from the beginning of the prompt.
struct ModelMapping {
  std::optional<Tokens> content;  // none: opaque
  std::array<bool, 2> tier = {false, false};
  bool resident() const { return tier[0] || tier[1]; }
};

class ModelStream {
 public:
  ModelStream(std::uint32_t block_size, std::uint64_t limit)
      : block_size_(block_size), limit_(limit) {}

  ApplyCode Store(Tier tier, const std::vector<WireHash>& hashes, std::optional<WireHash> parent,
                  const Tokens& tokens, bool remember_orphans) {
    Tokens content;
    if (parent.has_value()) {
      if (!mappings_.contains(parent->value)) {
        if (remember_orphans) {
          StoreOpaque(std::nullopt, {*parent}, Content::kUnsaid);
        } else if (!dropped_.contains(parent->value)) {
          return ApplyCode::kUnknownParent;
        }
      }
      const auto known = mappings_.find(parent->value);
      if (known == mappings_.end() || !known->second.content.has_value()) {
        return StoreOpaque(tier, hashes, Content::kUnsaid);
      }
      content = *known->second.content;
    }
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      for (std::uint32_t t = 0; t < block_size_; ++t)
        content.push_back(tokens[i * block_size_ + t]);
      const auto known = mappings_.find(hashes[i].value);
      if (known == mappings_.end()) {
        if (!MakeRoom()) return ApplyCode::kOverLimit;
      } else if (known->second.content.has_value() && *known->second.content != content) {
        return ApplyCode::kConflict;
      }
      mappings_[hashes[i].value].content = content;
      Gain(hashes[i].value, tier);
    }
    return ApplyCode::kApplied;
  }

  std::uint32_t StoreKnown(Tier tier, const std::vector<WireHash>& hashes) {
    std::uint32_t unknown = 0;
    for (const WireHash hash : hashes) {
      if (mappings_.contains(hash.value)) {
        Gain(hash.value, tier);
      } else {
        ++unknown;
      }
    }
    return unknown;
  }

  ApplyCode StoreOpaque(std::optional<Tier> tier, const std::vector<WireHash>& hashes,
                        Content content) {
    for (const WireHash hash : hashes) {
      if (mappings_.contains(hash.value)) {
        if (content == Content::kOther) mappings_[hash.value].content.reset();
      } else {
        if (!MakeRoom()) {
          if (!tier.has_value()) {
            dropped_.insert(hash.value);
            continue;
          }
          return ApplyCode::kOverLimit;
        }
        mappings_[hash.value] = {};
        parked_.push_back(hash.value);
      }
      if (tier.has_value()) Gain(hash.value, *tier);
      Trim();
    }
    return ApplyCode::kApplied;
  }

  std::uint32_t Remove(Tier tier, const std::vector<WireHash>& hashes) {
    std::uint32_t unknown = 0;
    for (const WireHash hash : hashes) {
      const auto known = mappings_.find(hash.value);
      if (known == mappings_.end()) {
        ++unknown;
      } else {
        Lose(hash.value, tier);
        Trim();
      }
    }
    return unknown;
  }

  void ClearTier(Tier tier) {
    for (auto& [hash, mapping] : mappings_) Lose(hash, tier);
    Trim();
  }

  void ForgetResidency() {
    for (auto& [hash, mapping] : mappings_) {
      Lose(hash, Tier::kDevice);
      Lose(hash, Tier::kHost);
    }
  }

  void ClearAll() {
    dropped_.clear();
    mappings_.clear();
    parked_.clear();
  }

  Hits Match(const Tokens& prompt) const {
    Hits hits;
    for (std::size_t end = block_size_; end <= prompt.size(); end += block_size_) {
      const Tokens content(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(end));
      std::array<bool, 2> tier = {false, false};
      for (const auto& [hash, mapping] : mappings_) {
        if (mapping.content != content) continue;
        tier[0] |= mapping.tier[0];
        tier[1] |= mapping.tier[1];
      }
      if (!tier[0] && !tier[1]) break;
      (tier[0] ? hits.device : hits.host_only) += block_size_;
    }
    return hits;
  }

  std::uint64_t Blocks(Tier tier) const {
    std::uint64_t count = 0;
    for (const auto& [hash, mapping] : mappings_) {
      count += mapping.content.has_value() && mapping.tier[static_cast<int>(tier)] ? 1 : 0;
    }
    return count;
  }
  std::uint64_t Opaque() const {
    std::uint64_t count = 0;
    for (const auto& [hash, mapping] : mappings_) count += mapping.content.has_value() ? 0 : 1;
    return count;
  }
  std::uint64_t Digest() const {
    std::uint64_t sum = 0;
    for (const auto& [hash, mapping] : mappings_) {
      for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
        if (mapping.tier[static_cast<int>(tier)]) sum += StreamLedger::DigestTerm({hash}, tier);
      }
    }
    return sum;
  }
  StreamLedger::Statement Lookup(WireHash hash) const {
    const auto known = mappings_.find(hash.value);
    if (known == mappings_.end()) return {};
    const ModelMapping& mapping = known->second;
    StreamLedger::Statement statement{.mapped = true,
                                      .indexed = mapping.content.has_value(),
                                      .device = mapping.tier[0],
                                      .host = mapping.tier[1],
                                      .key = {}};
    if (!statement.indexed) return statement;
    const model::BlockHasher hasher(1024, block_size_);
    for (std::size_t at = 0; at < mapping.content->size(); at += block_size_) {
      statement.key =
          hasher.Child(statement.key, std::span(*mapping.content).subspan(at, block_size_));
    }
    return statement;
  }
  const std::map<std::uint64_t, ModelMapping>& mappings() const { return mappings_; }
  std::uint32_t block_size() const { return block_size_; }

 private:
  void Gain(std::uint64_t hash, Tier tier) {
    std::erase(parked_, hash);
    mappings_[hash].tier[static_cast<int>(tier)] = true;
  }
  void Lose(std::uint64_t hash, Tier tier) {
    ModelMapping& mapping = mappings_[hash];
    if (!mapping.tier[static_cast<int>(tier)]) return;
    mapping.tier[static_cast<int>(tier)] = false;
    if (!mapping.resident()) parked_.push_back(hash);
  }
  void Trim() {
    std::uint64_t resident = 0;
    for (const auto& [hash, mapping] : mappings_) resident += mapping.resident() ? 1 : 0;
    while (parked_.size() > std::max<std::uint64_t>(1024, resident / 8)) DropOldest();
  }
  void DropOldest() {
    dropped_.insert(parked_.front());
    mappings_.erase(parked_.front());
    parked_.pop_front();
  }
  bool MakeRoom() {
    if (mappings_.size() < limit_) return true;
    if (parked_.empty()) return false;
    DropOldest();
    return true;
  }

  std::uint32_t block_size_;
  std::uint64_t limit_;
  std::map<std::uint64_t, ModelMapping> mappings_;
  std::deque<std::uint64_t> parked_;
  std::set<std::uint64_t> dropped_;  // there are fewer names than the ledger remembers
};

// The world of one run: a tree of prompts, and engines that name its nodes by hashes of their own. Two hashes name
// each node, so that doubles are common.
struct World {
  std::uint32_t block_size;
  std::vector<Tokens> nodes;       // whole prefixes
  std::vector<std::size_t> above;  // the node before, or SIZE_MAX

  std::vector<std::size_t> PathTo(std::size_t node) const {
    std::vector<std::size_t> path;
    for (; node != SIZE_MAX; node = above[node]) path.insert(path.begin(), node);
    return path;
  }
};

World MakeWorld(std::mt19937_64& random, std::uint32_t block_size, std::size_t size) {
  World world{block_size, {}, {}};
  while (world.nodes.size() < size) {
    const bool root = world.nodes.empty() || random() % 8 == 0;
    const std::size_t above = root ? SIZE_MAX : random() % world.nodes.size();
    Tokens tokens = root ? Tokens{} : world.nodes[above];
    for (std::uint32_t t = 0; t < block_size; ++t) {
      tokens.push_back(static_cast<std::uint32_t>(random() % 3));
    }
    if (std::find(world.nodes.begin(), world.nodes.end(), tokens) != world.nodes.end()) continue;
    world.nodes.push_back(std::move(tokens));
    world.above.push_back(above);
  }
  return world;
}

// Root blocks of one token whose short names collide in pairs, each with one child.
World MakeTwinWorld() {
  World world{1, {}, {}};
  for (const auto& [a, b] : TwinTokens(6)) {
    for (const std::uint32_t token : {a, b}) {
      world.nodes.push_back({token});
      world.above.push_back(SIZE_MAX);
      world.nodes.push_back({token, 1});
      world.above.push_back(world.nodes.size() - 2);
    }
  }
  return world;
}

struct Subject {
  std::unique_ptr<StreamLedger> ledger;
  ModelStream model;
  const World* world;
  bool synchronized = false;
};

class Run {
 public:
  enum class Kind { kTree, kTwins, kLimited };

  Run(std::uint64_t seed, Kind kind)
      : random_(seed),
        kind_(kind),
        limit_(kind == Kind::kLimited ? 12 : 262144),
        index_(Options{.max_blocks_per_stream = limit_, .salt = kind == Kind::kTwins ? 0 : seed}) {
    if (kind == Kind::kTwins) {
      worlds_.push_back(MakeTwinWorld());
      worlds_.push_back(MakeTwinWorld());
    } else {
      worlds_.push_back(MakeWorld(random_, 1, 30));
      worlds_.push_back(MakeWorld(random_, 3, 20));
    }
    for (std::size_t i = 0; i < 5; ++i) OpenOne(i);
  }

  void Step() {
    Subject& subject = subjects_[Below(subjects_.size())];
    const std::uint64_t choice = Below(100);
    if (choice < 40) {
      Store(subject);
    } else if (choice < 50) {
      const auto hashes = SomeHashes(subject);
      const Tier tier = AnyTier();
      EXPECT_EQ(subject.ledger->StoreKnown(tier, hashes).unknown_hashes,
                subject.model.StoreKnown(tier, hashes));
    } else if (choice < 56) {
      const auto hashes = SomeHashes(subject);
      const auto tier = Below(3) == 0 ? std::nullopt : std::optional(AnyTier());
      const auto content = Below(3) == 0 ? Content::kOther : Content::kUnsaid;
      Judge(subject, subject.ledger->StoreOpaque(tier, hashes, content).code,
            subject.model.StoreOpaque(tier, hashes, content));
    } else if (choice < 90) {
      const auto hashes = SomeHashes(subject);
      const Tier tier = AnyTier();
      EXPECT_EQ(subject.ledger->Remove(tier, hashes), subject.model.Remove(tier, hashes));
    } else if (choice < 92 && kind_ != Kind::kLimited) {
      // Which of the mappings that it parks is the oldest is open, and shows where they give way.
      const Tier tier = AnyTier();
      subject.ledger->ClearTier(tier);
      subject.model.ClearTier(tier);
    } else if (choice < 93) {
      if (Below(2) == 0 || kind_ == Kind::kLimited) {
        subject.ledger->ClearAll();
        subject.model.ClearAll();
      } else {
        subject.ledger->ForgetResidency();
        subject.model.ForgetResidency();
      }
    } else if (choice < 95) {
      subject.ledger->Unsynchronize("random");
      subject.synchronized = false;
    } else if (choice < 99) {
      subject.ledger->Synchronize({++sequence_});
      subject.synchronized = true;
    } else {
      const auto at = static_cast<std::size_t>(&subject - subjects_.data());
      subjects_.erase(subjects_.begin() + static_cast<std::ptrdiff_t>(at));
      OpenOne(at);
    }
  }

  void Compare() {
    MatchResult result;
    const World& world = worlds_[Below(worlds_.size())];
    Tokens prompt = world.nodes[Below(world.nodes.size())];
    for (std::uint64_t more = Below(4); more > 0; --more) prompt.push_back(0);
    index_.Match(prompt, result);
    for (Subject& subject : subjects_) {
      if (subject.synchronized) subject.ledger->Advance({++sequence_});
      const StreamStatus status = StatusOf(index_, *subject.ledger);
      const SlotMatch& match = result.slots[status.slot];
      EXPECT_EQ(match.synchronized, subject.synchronized);
      EXPECT_EQ((Hits{match.device_hit_tokens, match.host_only_hit_tokens}),
                subject.synchronized ? subject.model.Match(prompt) : Hits{});
      EXPECT_EQ(status.device_blocks,
                subject.synchronized ? subject.model.Blocks(Tier::kDevice) : 0);
      EXPECT_EQ(status.host_blocks, subject.synchronized ? subject.model.Blocks(Tier::kHost) : 0);
      EXPECT_EQ(subject.ledger->mappings(), subject.model.mappings().size());
      EXPECT_EQ(subject.ledger->opaque_mappings(), subject.model.Opaque());
      EXPECT_EQ(subject.ledger->digest(), subject.model.Digest());
      const WireHash any = SomeHashes(subject).front();
      EXPECT_EQ(subject.ledger->Lookup(any), subject.model.Lookup(any)) << any.value;
    }
  }

  // The view holds what the streams hold together, and nothing else.
  void CompareEntries() {
    std::map<std::uint32_t, std::map<Tokens, bool>> contents;
    for (const Subject& subject : subjects_) {
      for (const auto& [hash, mapping] : subject.model.mappings()) {
        if (mapping.content.has_value() && mapping.resident()) {
          contents[subject.model.block_size()][*mapping.content] = true;
        }
      }
    }
    std::uint64_t distinct = 0;
    for (const auto& [block_size, of_size] : contents) distinct += of_size.size();
    EXPECT_EQ(index_.Memory().view_entries, distinct);
  }

 private:
  std::uint64_t Below(std::uint64_t bound) { return random_() % bound; }
  Tier AnyTier() { return Below(3) == 0 ? Tier::kHost : Tier::kDevice; }

  void OpenOne(std::size_t at) {
    const World& world = worlds_[at % worlds_.size()];
    auto ledger = Open(index_, Info("e" + std::to_string(at), 0, world.block_size));
    subjects_.insert(subjects_.begin() + static_cast<std::ptrdiff_t>(at),
                     Subject{std::move(ledger), ModelStream(world.block_size, limit_), &world});
  }

  // Two names a node: node n is wire n and wire n + 1000.
  std::vector<WireHash> SomeHashes(const Subject& subject) {
    std::vector<WireHash> hashes;
    for (std::uint64_t left = 1 + Below(4); left > 0; --left) {
      hashes.push_back({Below(subject.world->nodes.size() + 2) + 1000 * Below(2)});
    }
    return hashes;
  }

  void Store(Subject& subject) {
    const World& world = *subject.world;
    auto path = world.PathTo(Below(world.nodes.size()));
    const std::size_t first = Below(path.size());
    std::vector<WireHash> hashes;
    Tokens tokens;
    for (std::size_t i = first; i < path.size(); ++i) {
      hashes.push_back({path[i] + 1000 * Below(2)});
      const Tokens& whole = world.nodes[path[i]];
      tokens.insert(tokens.end(), whole.end() - world.block_size, whole.end());
    }
    std::optional<WireHash> parent;
    if (first > 0) parent = WireHash{path[first - 1] + 1000 * Below(2)};
    if (Below(60) == 0) tokens[Below(tokens.size())] += 17;  // another content
    if (Below(60) == 0) parent = WireHash{5000 + Below(3)};  // never named
    const Tier tier = AnyTier();
    const bool remember = Below(4) == 0;
    Judge(subject,
          subject.ledger
              ->Store(tier, hashes, parent, tokens,
                      remember ? StreamLedger::Orphans::kRemember : StreamLedger::Orphans::kRefuse)
              .code,
          subject.model.Store(tier, hashes, parent, tokens, remember));
  }

  // After what is no plain application, a stream starts anew.
  void Judge(Subject& subject, ApplyCode code, ApplyCode expected) {
    EXPECT_EQ(code, expected);
    if (code == ApplyCode::kApplied) return;
    subject.ledger->Unsynchronize("damage");
    subject.ledger->ClearAll();
    subject.model.ClearAll();
    subject.synchronized = false;
  }

  std::mt19937_64 random_;
  const Kind kind_;
  const std::uint64_t limit_;
  std::vector<World> worlds_;
  KvIndex index_;
  std::vector<Subject> subjects_;
  std::uint64_t sequence_ = 0;
};

void Play(Run::Kind kind, std::uint64_t first_seed, std::uint64_t seeds, int steps) {
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    Run run(seed, kind);
    for (int step = 0; step < steps; ++step) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
      run.Step();
      run.Compare();
      if (step % 50 == 0) run.CompareEntries();
      if (testing::Test::HasFailure()) return;  // the first difference is the one to look at
    }
  }
}

TEST(KVIndexModel, AgreesOnTreesOfPrompts) { Play(Run::Kind::kTree, 1, 12, 1500); }

TEST(KVIndexModel, AgreesWhereShortNamesCollide) { Play(Run::Kind::kTwins, 100, 12, 1500); }

TEST(KVIndexModel, AgreesUnderATightLimit) { Play(Run::Kind::kLimited, 200, 12, 1500); }

// Thousands of blocks of every kind, then clears. Which of the mappings that a clear itself has parked give way
// is open; everything else is not.
TEST(KVIndexModel, AgreesAfterBigClears) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    KvIndex index(Options{.salt = random()});
    auto ledger = OpenSynchronized(index, Info("a:1", 0, 1));
    const std::uint64_t count = 4000 + random() % 12'000;
    std::map<std::uint64_t, ModelMapping> model;
    for (std::uint64_t wire = 0; wire < count; ++wire) {
      ModelMapping& mapping = model[wire];
      mapping.tier = {random() % 4 != 0, random() % 4 != 0};
      if (!mapping.resident()) mapping.tier[0] = true;
      const auto token = static_cast<std::uint32_t>(wire);
      if (random() % 4 != 0) mapping.content = Tokens{token};
      for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
        if (!mapping.tier[static_cast<int>(tier)]) continue;
        if (mapping.content.has_value()) {
          ASSERT_TRUE(ledger
                          ->Store(tier, Wires(wire, 1), {}, *mapping.content,
                                  StreamLedger::Orphans::kRefuse)
                          .ok());
        } else {
          ASSERT_TRUE(ledger->StoreOpaque(tier, Wires(wire, 1), Content::kOther).ok());
        }
      }
    }
    std::deque<std::uint64_t> parked;
    for (std::uint64_t left = random() % 1000; left > 0; --left) {
      const std::uint64_t wire = random() % count;
      if (!model[wire].resident()) continue;
      for (const Tier tier : {Tier::kDevice, Tier::kHost}) ledger->Remove(tier, Wires(wire, 1));
      model[wire].tier = {false, false};
      parked.push_back(wire);
    }
    const Tier first = random() % 2 == 0 ? Tier::kDevice : Tier::kHost;
    for (const Tier tier : {first, first == Tier::kDevice ? Tier::kHost : Tier::kDevice}) {
      std::set<std::uint64_t> fresh;
      std::uint64_t resident = 0;
      for (auto& [wire, mapping] : model) {
        if (!mapping.resident()) continue;
        mapping.tier[static_cast<int>(tier)] = false;
        if (mapping.resident()) {
          ++resident;
        } else {
          fresh.insert(wire);
        }
      }
      const std::uint64_t most = std::max<std::uint64_t>(1024, resident / 8);
      for (; !parked.empty() && parked.size() + fresh.size() > most; parked.pop_front()) {
        model.erase(parked.front());
      }
      ledger->ClearTier(tier);
      std::uint64_t kept = 0;
      for (const std::uint64_t wire : fresh) {
        if (ledger->Lookup({wire}).mapped) {
          ++kept;
        } else {
          model.erase(wire);
        }
      }
      EXPECT_EQ(kept, std::min<std::uint64_t>(fresh.size(), most - parked.size()));
      parked.insert(parked.end(), fresh.begin(), fresh.end());
      std::erase_if(parked, [&](std::uint64_t wire) { return !model.contains(wire); });

      std::uint64_t opaque = 0;
      std::uint64_t digest = 0;
      std::uint64_t entries = 0;
      for (const auto& [wire, mapping] : model) {
        const auto statement = ledger->Lookup({wire});
        ASSERT_TRUE(statement.mapped) << wire;
        ASSERT_EQ(statement.indexed, mapping.content.has_value()) << wire;
        ASSERT_EQ(statement.device, mapping.tier[0]) << wire;
        ASSERT_EQ(statement.host, mapping.tier[1]) << wire;
        opaque += mapping.content.has_value() ? 0 : 1;
        entries += mapping.content.has_value() && mapping.resident() ? 1 : 0;
        for (const Tier each : {Tier::kDevice, Tier::kHost}) {
          if (mapping.tier[static_cast<int>(each)]) {
            digest += StreamLedger::DigestTerm({wire}, each);
          }
        }
      }
      EXPECT_EQ(ledger->mappings(), model.size());
      EXPECT_EQ(ledger->opaque_mappings(), opaque);
      EXPECT_EQ(ledger->digest(), digest);
      EXPECT_EQ(index.Memory().view_entries, entries);
      for (std::uint64_t wire = 0; wire < count; wire += 97) {
        const auto known = model.find(wire);
        const auto token = static_cast<std::uint32_t>(wire);
        const bool hit = known != model.end() && known->second.content.has_value();
        const Hits expected{hit && known->second.tier[0],
                            hit && !known->second.tier[0] && known->second.tier[1]};
        ASSERT_EQ(Match(index, *ledger, std::span(&token, 1)), expected) << wire;
      }
    }
    const std::uint32_t any = 1;
    for (std::uint64_t wire = 0; wire < count; wire += 16) {
      ASSERT_TRUE(ledger
                      ->Store(Tier::kDevice, Wires(count + wire, 1), WireHash{wire},
                              std::span(&any, 1), StreamLedger::Orphans::kRefuse)
                      .ok())
          << "every name is left, " << wire;
    }
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace xms::kv_index
