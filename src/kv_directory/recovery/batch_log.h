// BatchLog: live batches kept in order, within a budget of bytes.
//
// Place       StreamMachine: what arrives while a snapshot is on its way, and what was applied while
//             one is being compared.
// Threads     Externally synchronised; belongs to one stream.
// Invariants  Sequences ascend. The sum of wire bytes, decoded records and this log's own entries
//             stays within the budget (D2).
// Failure     Add is false when the budget would be passed; nothing is kept then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kv_events/kv_batch.h"

namespace xms::kv_directory {

class BatchLog {
 public:
  struct Entry {
    std::uint64_t sequence = 0;
    kv_events::KvBatch batch;
    std::string damage;  // not "": the batch could not be read, for this reason
  };

  explicit BatchLog(std::uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  [[nodiscard]] bool Add(std::uint64_t sequence, const kv_events::KvBatch& batch,
                         std::size_t wire_bytes) {
    if (!Charge(wire_bytes + batch.decoded_bytes())) return false;
    entries_.push_back({sequence, batch, {}});
    return true;
  }
  [[nodiscard]] bool AddDamaged(std::uint64_t sequence, std::string damage) {
    if (!Charge(damage.size())) return false;
    entries_.push_back({sequence, {}, std::move(damage)});
    return true;
  }
  // Gives the memory back.
  void Clear() {
    entries_ = {};
    bytes_ = 0;
  }

  const std::vector<Entry>& entries() const { return entries_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  bool Charge(std::size_t bytes) {
    // Twice the entry: the vector grows by doubling.
    const std::uint64_t charge = bytes + 2 * sizeof(Entry);
    if (charge > budget_bytes_ - bytes_) return false;
    bytes_ += charge;
    return true;
  }

  std::uint64_t budget_bytes_;
  std::uint64_t bytes_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace xms::kv_directory
