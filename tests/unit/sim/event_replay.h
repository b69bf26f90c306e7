// EventReplay: what a perfect subscriber would believe after a series of batches.
//
// Place       Tests of the simulator. Slow and obvious on purpose; complains about events that a real subscriber
//             could not place: a store whose parent is not resident, a replica of an unknown block.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "kv_events/kv_batch.h"
#include "sim/block_manager.h"

namespace xms::sim {

class EventReplay {
 public:
  struct Block {
    std::optional<std::uint64_t> parent;
    std::vector<std::uint32_t> tokens;
    bool operator==(const Block&) const = default;
  };

  explicit EventReplay(std::uint32_t block_size) : block_size_(block_size) {}

  // A snapshot may hold blocks whose parents have left.
  void Apply(const kv_events::KvBatch& batch, bool is_snapshot = false) {
    for (const kv_events::KvEvent& event : batch.events) {
      std::set<std::uint64_t>& tier =
          event.scope == kv_events::EventScope::kDevice ? device_ : host_;
      std::optional<std::uint64_t> parent;
      if (event.has_parent) parent = event.parent.value;
      std::size_t at = 0;
      for (const model::WireHash hash : batch.HashesOf(event)) {
        switch (event.kind) {
          case kv_events::EventKind::kStore: {
            if (parent && !is_snapshot && !Resident(*parent)) {
              Complain("store of ", hash.value, " without its parent");
            }
            const auto tokens = batch.TokensOf(event).subspan(at, block_size_);
            const Block block{parent, {tokens.begin(), tokens.end()}};
            const auto [known, is_new] = blocks_.try_emplace(hash.value, block);
            if (!is_new && known->second != block) Complain("other content of ", hash.value);
            if (!tier.insert(hash.value).second) Complain("second store of ", hash.value);
            parent = hash.value;
            at += block_size_;
            break;
          }
          case kv_events::EventKind::kReplica:
            if (!Resident(hash.value)) Complain("replica of unknown ", hash.value);
            if (!tier.insert(hash.value).second) Complain("second replica of ", hash.value);
            break;
          case kv_events::EventKind::kRemove:
            if (tier.erase(hash.value) == 0) Complain("removal of absent ", hash.value);
            break;
          case kv_events::EventKind::kClear:
          case kv_events::EventKind::kIgnored:
            Complain("unexpected event, kind ", static_cast<int>(event.kind));
            break;
        }
      }
    }
  }

  BlockManager::Residents Residents() const {
    BlockManager::Residents residents;
    for (const std::uint64_t hash : device_) residents.device.push_back({hash});
    for (const std::uint64_t hash : host_) residents.host.push_back({hash});
    return residents;
  }
  // All tokens from the root to this block.
  std::vector<std::uint32_t> Content(std::uint64_t hash) const {
    const Block& block = blocks_.at(hash);
    std::vector<std::uint32_t> content;
    if (block.parent) content = Content(*block.parent);
    content.insert(content.end(), block.tokens.begin(), block.tokens.end());
    return content;
  }
  bool Resident(std::uint64_t hash) const { return device_.contains(hash) || host_.contains(hash); }
  const std::map<std::uint64_t, Block>& blocks() const { return blocks_; }
  // Empty while every event made sense.
  const std::string& complaint() const { return complaint_; }

 private:
  template <typename... Pieces>
  void Complain(const Pieces&... pieces) {
    if (complaint_.empty()) complaint_ = base::StrCat(pieces...);
  }

  std::uint32_t block_size_;
  std::map<std::uint64_t, Block> blocks_;  // every block ever named
  std::set<std::uint64_t> device_;
  std::set<std::uint64_t> host_;
  std::string complaint_;
};

}  // namespace xms::sim
