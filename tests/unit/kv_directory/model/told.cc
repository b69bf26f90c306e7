#include "tests/unit/kv_directory/model/told.h"

#include <algorithm>
#include <bit>

#include "base/str_cat.h"
#include "tests/support/kv_truth.h"

namespace xms::kv_directory::proof {
namespace {

using model::Tier;
using Kind = Event::Kind;

constexpr std::array<int, kBlocks> kParents = {-1, 0, 1,  2,  3,  4,  1, 6,  7,
                                               8,  3, 10, -1, 12, 12, 0, -1, 16};

Blocks MaskOf(const std::vector<int>& blocks) {
  Blocks mask = 0;
  for (const int block : blocks) mask |= Bit(block);
  return mask;
}

bool OtherContent(int block) {
  return block == kAdapter || block == kAdapterChild || block == kOtherGroup;
}

// --- MessagePack, in its long forms where that is shorter to write

void Uint(std::string& out, std::uint64_t value) {
  out +=
      value < 128 ? std::string(1, static_cast<char>(value)) : '\xcf' + testing::BigEndian64(value);
}
void Str(std::string& out, std::string_view text) {
  out += static_cast<char>(0xa0 | text.size());
  out += text;
}
void Array(std::string& out, std::size_t size) {
  out += '\xdc';
  out += testing::BigEndian64(size).substr(6);
}

// A map's fields, counted while they are written.
class Map {
 public:
  explicit Map(std::string_view type) { Str(Key("type"), type); }
  std::string& Key(std::string_view name) {
    ++fields_;
    Str(bytes_, name);
    return bytes_;
  }
  void AppendTo(std::string& out) const {
    out += static_cast<char>(0x80 | fields_);
    out += bytes_;
  }

 private:
  std::string bytes_;
  int fields_ = 0;
};

void Hashes(std::string& out, const std::vector<int>& blocks) {
  Array(out, blocks.size());
  for (const int block : blocks) Uint(out, AllBlocks()[static_cast<std::size_t>(block)].hash.value);
}

void StoreFields(Map& map, const std::vector<int>& blocks) {
  Hashes(map.Key("block_hashes"), blocks);
  const int parent = AllBlocks()[static_cast<std::size_t>(blocks[0])].parent;
  if (parent >= 0) {
    Uint(map.Key("parent_block_hash"), AllBlocks()[static_cast<std::size_t>(parent)].hash.value);
  }
  std::string& tokens = map.Key("token_ids");
  Array(tokens, blocks.size() * kBlockSize);
  for (const int block : blocks) {
    for (const std::uint32_t token : AllBlocks()[static_cast<std::size_t>(block)].tokens) {
      Uint(tokens, token);
    }
  }
  Uint(map.Key("block_size"), kBlockSize);
  if (blocks[0] == kAdapter || blocks[0] == kAdapterChild) Uint(map.Key("lora_id"), 7);
  if (blocks[0] == kOtherGroup) Uint(map.Key("group_idx"), 1);
}

void TooMany(Map& map) {
  std::string& hashes = map.Key("block_hashes");
  Array(hashes, kMaxMappings + 1);
  for (std::uint64_t i = 0; i <= kMaxMappings; ++i) Uint(hashes, 1000 + i);
  std::string& tokens = map.Key("token_ids");
  Array(tokens, (kMaxMappings + 1) * kBlockSize);
  for (std::uint64_t i = 0; i < (kMaxMappings + 1) * kBlockSize; ++i) Uint(tokens, i & 63);
  Uint(map.Key("block_size"), kBlockSize);
}

void Encode(std::string& out, const Event& event) {
  const std::string_view medium = event.tier == Tier::kDevice ? "gpu" : "cpu";
  switch (event.kind) {
    case Kind::kStore:
    case Kind::kElsewhere: {
      Map map("BlockStored");
      StoreFields(map, event.blocks);
      Str(map.Key("medium"), event.kind == Kind::kStore ? medium : "disk");
      return map.AppendTo(out);
    }
    case Kind::kReplica: {
      Map map("BlockStored");
      Hashes(map.Key("block_hashes"), event.blocks);
      Str(map.Key("medium"), medium);
      return map.AppendTo(out);
    }
    case Kind::kRemove: {
      Map map("BlockRemoved");
      Hashes(map.Key("block_hashes"), event.blocks);
      Str(map.Key("medium"), medium);
      return map.AppendTo(out);
    }
    case Kind::kClear:
      return Map("AllBlocksCleared").AppendTo(out);
    case Kind::kClearTier:
    case Kind::kClearOther: {
      Map map("AllBlocksCleared");
      Str(map.Key("medium"), event.kind == Kind::kClearTier ? medium : "disk");
      return map.AppendTo(out);
    }
    case Kind::kTooMany: {
      Map map("BlockStored");
      TooMany(map);
      return map.AppendTo(out);
    }
    case Kind::kNovelty:
      return Map("BlockPondered").AppendTo(out);
  }
}

}  // namespace

const std::array<Block, kBlocks>& AllBlocks() {
  static const std::array<Block, kBlocks> world = [] {
    std::array<Block, kBlocks> blocks;
    for (int i = 0; i < kBlocks; ++i) {
      Block& block = blocks[static_cast<std::size_t>(i)];
      block.parent = kParents[static_cast<std::size_t>(i)];
      // Steps of the golden ratio: what engines may well use, and what mixers add by themselves.
      block.hash = {0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(i + 1)};
      // What must not be credited has the tokens of what may be.
      const int content = i == kAdapter ? 0 : (i > kAdapter && i < kStranger) ? 1 : i;
      for (int k = 0; k < kBlockSize; ++k) {
        block.tokens[static_cast<std::size_t>(k)] =
            static_cast<std::uint32_t>(1000 * (content + 1) + k);
      }
    }
    return blocks;
  }();
  return world;
}

const std::vector<Prompt>& Prompts() {
  static const std::vector<Prompt> prompts = [] {
    std::vector<Prompt> made;
    for (const std::vector<int>& blocks : std::vector<std::vector<int>>{
             {0, 1, 2, 3, 4, 5}, {0, 1, 6, 7, 8, 9}, {0, 1, 2, 3, 10, 11}, {kUnderStranger}}) {
      Prompt& prompt = made.emplace_back();
      for (const int block : blocks) {
        const auto& tokens = AllBlocks()[static_cast<std::size_t>(block)].tokens;
        prompt.tokens.insert(prompt.tokens.end(), tokens.begin(), tokens.end());
        if (block < kPlain) prompt.blocks.push_back(block);
      }
    }
    return made;
  }();
  return prompts;
}

bool BeginsWithClear(const Batch& batch) { return !batch.empty() && batch[0].kind == Kind::kClear; }

std::string Encode(std::span<const Event> batch, std::int32_t rank) {
  std::string out("\x93\xcb\x41\xda\x39\xde\x00\x10\x00\x00", 10);
  Array(out, batch.size());
  for (const Event& event : batch) Encode(out, event);
  Uint(out, static_cast<std::uint64_t>(rank));
  return out;
}

std::string Print(const Batch& batch) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "store",      "replica",     "remove",   "elsewhere", "clear",
      "clear-tier", "clear-other", "too-many", "novelty"};
  std::string text;
  for (const Event& event : batch) {
    base::StrAppend(text, text.empty() ? "" : ", ", kNames[static_cast<std::size_t>(event.kind)],
                    event.tier == Tier::kDevice ? "" : " host");
    for (const int block : event.blocks) base::StrAppend(text, " ", block);
  }
  return text.empty() ? "nothing" : text;
}

void Told::Hold(Tier tier, Blocks blocks) { (tier == Tier::kDevice ? device : host) |= blocks; }

Told::Verdict Told::Store(const Event& event, Orphans orphans) {
  const Blocks blocks = MaskOf(event.blocks);
  const int parent = AllBlocks()[static_cast<std::size_t>(event.blocks[0])].parent;
  if (OtherContent(event.blocks[0])) {
    if (parent >= 0) named |= Bit(parent);
    indexed &= ~blocks;
  } else if (parent < 0) {
    indexed |= blocks;
  } else if ((named & Bit(parent)) == 0) {
    if (orphans == Orphans::kRefuse) return Verdict::kUnknownParent;
    named |= Bit(parent);
  } else if ((indexed & Bit(parent)) != 0) {
    indexed |= blocks;
  }
  named |= blocks;
  Hold(event.tier, blocks);
  return Verdict::kFine;
}

Told::Verdict Told::Apply(std::span<const Event> batch, Orphans orphans) {
  for (const Event& event : batch) {
    const Blocks blocks = MaskOf(event.blocks);
    switch (event.kind) {
      case Kind::kStore:
        if (const Verdict verdict = Store(event, orphans); verdict != Verdict::kFine) {
          return verdict;
        }
        break;
      case Kind::kElsewhere:
        if (const int parent = AllBlocks()[static_cast<std::size_t>(event.blocks[0])].parent;
            parent >= 0) {
          named |= Bit(parent);
        }
        named |= blocks;
        break;
      case Kind::kReplica:
        Hold(event.tier, blocks & named);
        break;
      case Kind::kRemove:
        (event.tier == Tier::kDevice ? device : host) &= ~blocks;
        break;
      case Kind::kClear:
        *this = Told{};
        break;
      case Kind::kClearTier:
        (event.tier == Tier::kDevice ? device : host) = 0;
        break;
      case Kind::kClearOther:
        return Verdict::kUnknownClear;
      case Kind::kTooMany:
        return Verdict::kTooMany;
      case Kind::kNovelty:
        break;
    }
  }
  return Verdict::kFine;
}

Batch Told::Snapshot() const {
  Batch batch;
  for (int block = 0; block < kBlocks; ++block) {
    const bool on_device = (device & Bit(block)) != 0;
    const bool on_host = (host & Bit(block)) != 0;
    if (!on_device && !on_host) continue;
    batch.push_back({Kind::kStore, on_device ? Tier::kDevice : Tier::kHost, {block}});
    if (on_device && on_host) batch.push_back({Kind::kReplica, Tier::kHost, {block}});
  }
  return batch;
}

bool Told::CouldHold(const Prompt& prompt, const Credit& credit) const {
  const std::size_t run = (credit.device_tokens + credit.host_only_tokens) / kBlockSize;
  if (run > prompt.blocks.size()) return false;
  std::uint32_t on_device = 0;
  std::uint32_t on_host = 0;
  for (std::size_t i = 0; i < run; ++i) {
    const Blocks block = Bit(prompt.blocks[i]);
    if (((device | host) & block) == 0) return false;
    if ((device & block) != 0) on_device += kBlockSize;
    if ((host & block) != 0) on_host += kBlockSize;
  }
  return credit.device_tokens <= on_device && credit.host_only_tokens <= on_host;
}

Credit Told::Run(const Prompt& prompt, Blocks usable) const {
  Credit credit;
  for (const int block : prompt.blocks) {
    if ((usable & Bit(block)) == 0) break;
    ((device & Bit(block)) != 0 ? credit.device_tokens : credit.host_only_tokens) += kBlockSize;
  }
  return credit;
}

}  // namespace xms::kv_directory::proof
