// Fingerprint: a state in words, the same for states that differ only in how far their numbers are.
//
// Place       The explorer's memo.
// Threads     Externally synchronised.
// Numbers     What matters of sequences is their order and who follows whom. Distances over `kFar` count
//             as kFar: an order of faults that publishes as many batches could tell them apart, which is
//             what an exact exploration (0: distances stay) is for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace xms::kv_directory::proof {

class Fingerprint {
 public:
  static constexpr std::uint64_t kFar = 3;

  void Add(std::uint64_t word) { words_.push_back(word); }
  // As "the next one", so that 0 is none.
  void AddNext(std::uint64_t next) {
    numbers_.push_back(words_.size());
    words_.push_back(next);
  }

  std::uint64_t Digest(bool exact) {
    if (!exact) Compress();
    std::uint64_t digest = 0;
    for (const std::uint64_t word : words_) {
      digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
      digest ^= digest >> 29;
    }
    return digest;
  }

 private:
  void Compress() {
    std::vector<std::uint64_t> axis = {0, 1};
    for (const std::size_t at : numbers_) axis.push_back(words_[at]);
    std::sort(axis.begin(), axis.end());
    axis.erase(std::unique(axis.begin(), axis.end()), axis.end());
    std::vector<std::uint64_t> places = {0};
    for (std::size_t i = 1; i < axis.size(); ++i) {
      places.push_back(places.back() + std::min(axis[i] - axis[i - 1], kFar));
    }
    for (const std::size_t at : numbers_) {
      const auto found = std::lower_bound(axis.begin(), axis.end(), words_[at]);
      words_[at] = places[static_cast<std::size_t>(found - axis.begin())];
    }
  }

  std::vector<std::uint64_t> words_;
  std::vector<std::size_t> numbers_;  // which of them are sequences
};

}  // namespace xms::kv_directory::proof
