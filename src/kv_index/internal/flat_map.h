// FlatMap: a small open-addressing map for the ledger's rare cases; no node is ever allocated.
//
// Place       StreamLedger alone.
// Threads     One at a time.
// Cost        At most half full; memory follows the size in both directions, but for the last eight
//             places, which only Clear gives back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace xms::kv_index::internal {

// Hash: std::uint64_t operator()(const Key&), well mixed in its upper bits.
template <typename Key, typename Value, typename Hash>
class FlatMap {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return places_.capacity() * sizeof(Place); }

  Value* Find(const Key& key) {
    if (size_ == 0) return nullptr;
    for (std::size_t at = Home(key); places_[at].used; at = Next(at)) {
      if (places_[at].key == key) return &places_[at].value;
    }
    return nullptr;
  }

  // `key` is not there yet. The pointer is good until the next Insert or Erase.
  Value* Insert(const Key& key, Value value) {
    if ((size_ + 1) * 2 > places_.size()) Rehash(places_.empty() ? 8 : places_.size() * 2);
    ++size_;
    return Put(key, std::move(value));
  }

  void Erase(const Key& key) {
    if (size_ == 0) return;
    std::size_t gap = Home(key);
    while (places_[gap].used && !(places_[gap].key == key)) gap = Next(gap);
    if (!places_[gap].used) return;
    for (std::size_t at = Next(gap); places_[at].used; at = Next(at)) {
      // What had to pass the gap to get here moves into it.
      if (Distance(Home(places_[at].key), at) < Distance(gap, at)) continue;
      places_[gap] = std::move(places_[at]);
      gap = at;
    }
    places_[gap] = Place{};
    --size_;
    // The smallest size is kept: whoever holds one entry now and then does not allocate each time.
    if (places_.size() > 8 && size_ * 8 < places_.size()) {
      Rehash(size_ == 0 ? 8 : places_.size() / 2);
    }
  }

  void Clear() {
    places_ = std::vector<Place>();
    size_ = 0;
  }

 private:
  struct Place {
    Key key{};
    Value value{};
    bool used = false;
  };

  // The size is a power of two.
  std::size_t Home(const Key& key) const {
    return static_cast<std::size_t>(Hash()(key) >> 32) & (places_.size() - 1);
  }
  std::size_t Next(std::size_t at) const { return (at + 1) & (places_.size() - 1); }
  std::size_t Distance(std::size_t from, std::size_t to) const {
    return (to - from) & (places_.size() - 1);
  }
  Value* Put(const Key& key, Value value) {
    std::size_t at = Home(key);
    while (places_[at].used) at = Next(at);
    places_[at] = {key, std::move(value), true};
    return &places_[at].value;
  }
  void Rehash(std::size_t size) {
    std::vector<Place> old = std::exchange(places_, std::vector<Place>(size));
    for (Place& place : old) {
      if (place.used) Put(place.key, std::move(place.value));
    }
  }

  std::vector<Place> places_;
  std::size_t size_ = 0;
};

}  // namespace xms::kv_index::internal
