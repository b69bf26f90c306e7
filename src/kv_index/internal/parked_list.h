// ParkedList: mappings that have outlived their residency, oldest first (requirement C2).
//
// Place       StreamLedger alone.
// Shape       A doubly linked list in one array, so that a mapping that comes back leaves from the
//             middle. A node's number is what its Mapping refers to.
// Threads     One at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/content_key.h"
#include "model/ids.h"

namespace xms::kv_index::internal {

class ParkedList {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::size_t size() const { return size_; }
  std::size_t bytes() const { return nodes_.capacity() * sizeof(Node); }
  std::uint32_t oldest() const { return first_; }  // kNone when empty
  model::WireHash wire(std::uint32_t number) const { return nodes_[number].wire; }
  // A guess at one that will be the oldest a few drops from now, worth a prefetch: places are mostly
  // reused in the order of the queue. Not when empty.
  model::WireHash SoonOldest() const {
    const std::size_t ahead = std::size_t{first_} + 6;
    return nodes_[ahead < nodes_.size() ? ahead : ahead % nodes_.size()].wire;
  }
  // Meaningless for an opaque one.
  const model::ContentKey& key(std::uint32_t number) const { return nodes_[number].key; }

  std::uint32_t Append(model::WireHash wire, const model::ContentKey& key) {
    std::uint32_t number = free_;
    if (number != kNone) {
      free_ = nodes_[number].next;
    } else {
      number = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
    }
    nodes_[number] = {wire, last_, kNone, key};
    (last_ == kNone ? first_ : nodes_[last_].next) = number;
    last_ = number;
    ++size_;
    return number;
  }

  void Remove(std::uint32_t number) {
    const Node& node = nodes_[number];
    (node.previous == kNone ? first_ : nodes_[node.previous].next) = node.next;
    (node.next == kNone ? last_ : nodes_[node.next].previous) = node.previous;
    nodes_[number].next = free_;
    free_ = number;
    --size_;
  }

  // Much larger than what is in it: worth a Repack.
  bool IsSparse() const { return nodes_.size() > 2048 && size_ * 4 < nodes_.size(); }
  // Renumbers all nodes, telling each: moved(wire, number).
  template <typename Moved>
  void Repack(Moved&& moved) {
    std::vector<Node> packed;
    packed.reserve(size_);
    for (std::uint32_t at = first_; at != kNone; at = nodes_[at].next) {
      const auto number = static_cast<std::uint32_t>(packed.size());
      packed.push_back({nodes_[at].wire, number == 0 ? kNone : number - 1,
                        number + 1 == size_ ? kNone : number + 1, nodes_[at].key});
      moved(packed.back().wire, number);
    }
    nodes_ = std::move(packed);
    first_ = size_ == 0 ? kNone : 0;
    last_ = size_ == 0 ? kNone : static_cast<std::uint32_t>(size_ - 1);
    free_ = kNone;
  }

  void Clear() { *this = ParkedList(); }

 private:
  struct Node {
    model::WireHash wire;
    std::uint32_t previous = kNone;
    std::uint32_t next = kNone;
    model::ContentKey key;
  };

  std::vector<Node> nodes_;
  std::size_t size_ = 0;
  std::uint32_t first_ = kNone;
  std::uint32_t last_ = kNone;
  std::uint32_t free_ = kNone;
};

}  // namespace xms::kv_index::internal
