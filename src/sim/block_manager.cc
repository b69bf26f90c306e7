#include "sim/block_manager.h"

#include <algorithm>
#include <ranges>
#include <tuple>
#include <utility>

#include "base/assert.h"

namespace xms::sim {

using kv_events::EventScope;
using kv_events::KvBatch;
using model::ContentKey;
using model::WireHash;

BlockManager::BlockManager(const BlockManagerOptions& options)
    : options_(options),
      hasher_(options.hash_seed, options.block_size),
      device_free_(options.device_blocks),
      host_free_(options.host_blocks) {}

void BlockManager::ExtendKeys(std::vector<ContentKey>& keys, std::span<const std::uint32_t> tokens,
                              std::size_t count) const {
  for (std::size_t i = keys.size(); i < count; ++i) {
    keys.push_back(hasher_.Child(i == 0 ? model::kRootKey : keys[i - 1], BlockTokens(tokens, i)));
  }
}

const BlockManager::Entry* BlockManager::Find(const std::vector<ContentKey>& keys,
                                              std::size_t index,
                                              std::span<const std::uint32_t> tokens) const {
  const auto found = entries_.find(NameOf(keys[index]));
  if (found == entries_.end()) return nullptr;
  const Entry& entry = found->second;
  // Names are 64 bits of a longer key: two contents may share one, and then only the first is
  // cached.
  const bool same_parent =
      index == 0 ? !entry.has_parent : entry.has_parent && entry.parent == NameOf(keys[index - 1]);
  if (!same_parent || !std::ranges::equal(entry.tokens, BlockTokens(tokens, index))) return nullptr;
  return &entry;
}

BlockManager::Entry* BlockManager::Find(const std::vector<ContentKey>& keys, std::size_t index,
                                        std::span<const std::uint32_t> tokens) {
  return const_cast<Entry*>(std::as_const(*this).Find(keys, index, tokens));
}

BlockManager::Hold& BlockManager::HoldOf(HoldId id) {
  const auto found = holds_.find(id);
  XMS_ASSERT(found != holds_.end());
  return found->second;
}

PrefixHit BlockManager::LongestPrefix(std::span<const std::uint32_t> tokens) const {
  PrefixHit hit;
  std::vector<ContentKey> keys;
  for (std::size_t i = 0; i < tokens.size() / options_.block_size; ++i) {
    ExtendKeys(keys, tokens, i + 1);
    const Entry* entry = Find(keys, i, tokens);
    if (entry == nullptr || !(entry->on_device || entry->on_host)) break;
    ++(entry->on_device ? hit.device_blocks : hit.host_blocks);
  }
  return hit;
}

void BlockManager::Unlist(Entry& entry) {
  // Stamps are unique and mean nothing else, so erasing what is not listed does nothing.
  device_lru_.erase(entry.stamp);
  host_lru_.erase(entry.stamp);
}

void BlockManager::List(Entry& entry) {
  if (entry.on_device && entry.device_users == 0 && !entry.copying) {
    device_lru_.emplace(entry.stamp, &entry);
  }
  if (entry.on_host && entry.host_users == 0) host_lru_.emplace(entry.stamp, &entry);
}

void BlockManager::Touch(Entry& entry) {
  Unlist(entry);
  entry.stamp = ++clock_;
  List(entry);
}

void BlockManager::EraseIfGone(Entry& entry) {
  if (!entry.on_device && !entry.on_host) {
    entries_.erase(WireHash(entry.hash));  // a copy: the key lives in what is erased
  }
}

void BlockManager::EvictFromDevice(Entry& entry) {
  Unlist(entry);
  entry.on_device = false;
  --device_resident_;
  recorder_.Remove(EventScope::kDevice, entry.hash);
  List(entry);
  EraseIfGone(entry);
}

void BlockManager::EvictFromHost(Entry& entry) {
  Unlist(entry);
  entry.on_host = false;
  --host_resident_;
  recorder_.Remove(EventScope::kHost, entry.hash);
  List(entry);
  EraseIfGone(entry);
}

void BlockManager::TakeDeviceBlock() {
  if (device_free_ > 0) {
    --device_free_;
    return;
  }
  XMS_ASSERT(!device_lru_.empty());
  EvictFromDevice(*device_lru_.begin()->second);
}

std::optional<PrefixHit> BlockManager::Admit(HoldId id, std::span<const std::uint32_t> tokens) {
  XMS_ASSERT(!tokens.empty() && !holds_.contains(id));
  Hold hold;
  PrefixHit hit;
  for (std::size_t i = 0; i < (tokens.size() - 1) / options_.block_size; ++i) {
    ExtendKeys(hold.keys, tokens, i + 1);
    Entry* entry = Find(hold.keys, i, tokens);
    if (entry == nullptr || !(entry->on_device || entry->on_host)) break;
    ++(entry->on_device ? hit.device_blocks : hit.host_blocks);
    Unlist(*entry);
    ++(entry->on_device ? entry->device_users : entry->host_users);
    List(*entry);
    hold.slots.push_back({entry->on_device ? SlotKind::kShared : SlotKind::kLoading, entry});
  }
  const auto undo = [&] {
    for (const Slot& slot : hold.slots) {
      Unlist(*slot.entry);
      --(slot.kind == SlotKind::kShared ? slot.entry->device_users : slot.entry->host_users);
      List(*slot.entry);
    }
  };
  const std::size_t wanted = SlotsFor(tokens.size());
  const std::size_t fresh = wanted - hit.device_blocks;
  if (fresh > available()) {
    undo();
    return std::nullopt;
  }
  for (std::size_t i = 0; i < fresh; ++i) TakeDeviceBlock();
  // From the last to the first, so that of one chain the last block is the first to go.
  for (auto slot = hold.slots.rbegin(); slot != hold.slots.rend(); ++slot) Touch(*slot->entry);
  hold.slots.resize(wanted);
  holds_.emplace(id, std::move(hold));
  return hit;
}

bool BlockManager::Grow(HoldId id, std::size_t tokens) {
  Hold& hold = HoldOf(id);
  const std::size_t wanted = SlotsFor(tokens);
  if (wanted <= hold.slots.size()) return true;
  if (wanted - hold.slots.size() > available()) return false;
  while (hold.slots.size() < wanted) {
    TakeDeviceBlock();
    hold.slots.emplace_back();
  }
  return true;
}

void BlockManager::PutOnDevice(Entry& entry) {
  Unlist(entry);
  entry.on_device = true;
  ++device_resident_;
  entry.device_users = 1;
  entry.stamp = ++clock_;
  List(entry);
  recorder_.Store(EventScope::kDevice, entry.has_parent ? &entry.parent : nullptr, entry.hash,
                  entry.tokens);
}

BlockManager::Entry* BlockManager::CommitBlock(Hold& hold, std::size_t index,
                                               std::span<const std::uint32_t> tokens) {
  Slot& slot = hold.slots[index];
  if (slot.kind == SlotKind::kShared) return nullptr;
  Entry* entry = slot.entry;
  if (slot.kind == SlotKind::kLoading) {
    Unlist(*entry);
    --entry->host_users;
    List(*entry);
  } else {
    entry = Find(hold.keys, index, tokens);
  }
  slot = Slot{};
  if (entry == nullptr) {
    const auto [place, created] = entries_.try_emplace(NameOf(hold.keys[index]));
    if (!created) return nullptr;  // the name belongs to other content
    entry = &place->second;
    entry->hash = place->first;
    entry->has_parent = index > 0;
    if (entry->has_parent) entry->parent = NameOf(hold.keys[index - 1]);
    const auto block = BlockTokens(tokens, index);
    entry->tokens.assign(block.begin(), block.end());
    entry->serial = ++serial_;
  }
  if (entry->on_device) return entry;
  PutOnDevice(*entry);
  slot = {SlotKind::kShared, entry};
  return nullptr;
}

void BlockManager::Commit(HoldId id, std::span<const std::uint32_t> computed) {
  Hold& hold = HoldOf(id);
  const std::size_t complete = computed.size() / options_.block_size;
  if (complete <= hold.committed) return;
  XMS_ASSERT(complete <= hold.slots.size());
  hold.committed = complete;
  ExtendKeys(hold.keys, computed, complete);
  // From the start: a block that another sequence had cached, so that this one's copy stayed
  // private, may have been evicted since, and a child must not be stored without its parent.
  std::vector<Entry*> used;
  for (std::size_t i = 0; i < complete; ++i) {
    if (Entry* entry = CommitBlock(hold, i, computed)) used.push_back(entry);
  }
  for (Entry* entry : used | std::views::reverse) Touch(*entry);
}

void BlockManager::PlanCopy(Entry& entry) {
  if (!entry.on_device || entry.on_host || entry.copying || entry.device_users > 0) return;
  if (host_free_ > 0) {
    --host_free_;
  } else if (!host_lru_.empty()) {
    EvictFromHost(*host_lru_.begin()->second);
  } else {
    return;  // every Host block is being filled or read
  }
  Unlist(entry);
  entry.copying = true;
  List(entry);
  copies_waiting_.push_back(&entry);
}

void BlockManager::Release(HoldId id) {
  Hold& hold = HoldOf(id);
  for (auto slot = hold.slots.rbegin(); slot != hold.slots.rend(); ++slot) {
    if (slot->kind != SlotKind::kShared) ++device_free_;
    if (slot->kind == SlotKind::kPrivate) continue;
    Unlist(*slot->entry);
    --(slot->kind == SlotKind::kShared ? slot->entry->device_users : slot->entry->host_users);
    slot->entry->stamp = ++clock_;
    List(*slot->entry);
  }
  if (options_.host_blocks > 0) {
    for (const Slot& slot : hold.slots) {
      if (slot.kind == SlotKind::kShared) PlanCopy(*slot.entry);
    }
  }
  holds_.erase(id);
}

std::uint32_t BlockManager::StartCopies(std::uint32_t limit) {
  XMS_ASSERT(copies_running_.empty());
  while (copies_running_.size() < limit && !copies_waiting_.empty()) {
    copies_running_.push_back(copies_waiting_.front());
    copies_waiting_.pop_front();
  }
  return static_cast<std::uint32_t>(copies_running_.size());
}

void BlockManager::FinishCopies() {
  for (Entry* entry : copies_running_) {
    Unlist(*entry);
    entry->copying = false;
    entry->on_host = true;
    ++host_resident_;
    List(*entry);
    recorder_.Replica(entry->hash);
  }
  copies_running_.clear();
}

KvBatch BlockManager::Snapshot() const {
  // Siblings side by side: first roots and blocks whose parent has left, then by resident parent.
  struct Node {
    std::tuple<bool, std::uint64_t> parent;
    const Entry* entry;
  };
  std::vector<Node> nodes;
  nodes.reserve(entries_.size());
  for (const auto& [hash, entry] : entries_) {
    const bool has_resident_parent = entry.has_parent && entries_.contains(entry.parent);
    nodes.push_back({{has_resident_parent, has_resident_parent ? entry.parent.value : 0}, &entry});
  }
  std::ranges::sort(nodes, {},
                    [](const Node& node) { return std::pair(node.parent, node.entry->serial); });

  KvEventRecorder recorder;
  std::vector<WireHash> replicas;
  std::vector<const Entry*> to_visit;
  const auto visit_later = [&](std::tuple<bool, std::uint64_t> parent) {
    for (const Node& node :
         std::ranges::equal_range(nodes, parent, {}, &Node::parent) | std::views::reverse) {
      to_visit.push_back(node.entry);
    }
  };
  visit_later({false, 0});
  while (!to_visit.empty()) {
    const Entry* entry = to_visit.back();
    to_visit.pop_back();
    recorder.Store(entry->on_device ? EventScope::kDevice : EventScope::kHost,
                   entry->has_parent ? &entry->parent : nullptr, entry->hash, entry->tokens);
    if (entry->on_device && entry->on_host) replicas.push_back(entry->hash);
    visit_later({true, entry->hash.value});
  }
  for (const WireHash hash : replicas) recorder.Replica(hash);
  return recorder.Take();
}

BlockManager::Residents BlockManager::ResidentHashes() const {
  Residents residents;
  for (const auto& [hash, entry] : entries_) {
    if (entry.on_device) residents.device.push_back(hash);
    if (entry.on_host) residents.host.push_back(hash);
  }
  std::ranges::sort(residents.device);
  std::ranges::sort(residents.host);
  return residents;
}

}  // namespace xms::sim
