#include "kv_index/internal/index_state.h"

#include <algorithm>
#include <atomic>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace xms::kv_index::internal {

IndexState::IndexState(const Options& options_in)
    : options(options_in),
      views(std::make_unique<const std::vector<View*>>()),
      slots(std::make_unique<const std::shared_ptr<const SlotTable>>(
          std::make_shared<const SlotTable>())) {
  for (auto& word : generation) word.store(0);
  Restamp();
}

void IndexState::Restamp() {
  static std::atomic<std::uint64_t> next{1};
  stamp.exchange(next.fetch_add(1), std::memory_order_acq_rel);  // S1
}

base::Result<IndexState::Opened> IndexState::Open(StreamInfo info, std::string reason) {
  base::MutexLock lock(mu_);
  std::uint32_t slot = 0;
  while (slot < kMaxSlots && taken_.Has(slot)) ++slot;
  if (slot == kMaxSlots) {
    return base::Error{base::ErrorCode::kResourceExhausted, "all 128 stream slots are in use"};
  }
  View* view = ViewFor(info);
  taken_.Add(slot);
  view->slots[slot >> 6].fetch_or(std::uint64_t{1} << (slot & 63));

  const SlotEntry entry{slot, next_life_++, std::make_shared<const StreamInfo>(std::move(info))};
  {
    SlotStatus& state = status[slot];
    base::MutexLock status_lock(state.mu);
    state.sequence = {};
    state.sequence_valid = false;
    state.device_blocks = 0;
    state.host_blocks = 0;
    state.digest = 0;
    state.opaque_mappings = 0;
    state.snapshot_at.store({}, std::memory_order_relaxed);
    state.live_at.store({}, std::memory_order_relaxed);
    state.error = std::move(reason);
    generation[slot].store(entry.life << 32, std::memory_order_release);  // even: G1
  }
  slot_count.store(std::max<std::size_t>(slot_count.load(), slot + 1));
  Restamp();
  const auto after = std::upper_bound(
      entries_.begin(), entries_.end(), entry, [](const SlotEntry& a, const SlotEntry& b) {
        return std::tie(a.info->key, a.slot) < std::tie(b.info->key, b.slot);
      });
  entries_.insert(after, entry);
  PublishSlots();
  return Opened{entry, view};
}

void IndexState::Withdraw(std::uint32_t slot) {
  base::MutexLock lock(mu_);
  std::erase_if(entries_, [slot](const SlotEntry& entry) { return entry.slot == slot; });
  PublishSlots();
}

void IndexState::Free(std::uint32_t slot, View* view) {
  base::MutexLock lock(mu_);
  status[slot].ledger_bytes.store(0);
  generation[slot].store(0, std::memory_order_release);  // G1
  const std::uint64_t bit = std::uint64_t{1} << (slot & 63);
  view->slots[slot >> 6].fetch_and(~bit);
  taken_.Remove(slot);
  std::size_t count = slot_count.load();
  while (count > 0 && !taken_.Has(static_cast<std::uint32_t>(count - 1))) --count;
  slot_count.store(count);
  Restamp();
  if (view->Slots().Any()) return;
  const auto gone = std::find_if(owned_views_.begin(), owned_views_.end(),
                                 [view](const auto& owned) { return owned.get() == view; });
  View* const last = gone->release();
  owned_views_.erase(gone);
  PublishViews();
  base::EpochRetire([last] { delete last; });
}

View* IndexState::ViewFor(const StreamInfo& info) {
  for (const auto& view : owned_views_) {
    if (view->hasher.hash_seed() == info.hash_seed &&
        view->hasher.block_size() == info.block_size) {
      return view.get();
    }
  }
  owned_views_.push_back(std::make_unique<View>(info.hash_seed, info.block_size, options.salt));
  PublishViews();
  return owned_views_.back().get();
}

void IndexState::PublishViews() {
  auto list = std::make_unique<std::vector<View*>>();
  for (const auto& view : owned_views_) list->push_back(view.get());
  views.Set(std::move(list));
}

void IndexState::PublishSlots() {
  auto table = std::make_shared<SlotTable>();
  table->entries = entries_;
  slots.Set(std::make_unique<const std::shared_ptr<const SlotTable>>(std::move(table)));
}

std::vector<StreamStatus> IndexState::Streams() const {
  base::MutexLock lock(mu_);
  std::vector<StreamStatus> streams;
  streams.reserve(entries_.size());
  for (const SlotEntry& entry : entries_) {
    SlotStatus& state = status[entry.slot];
    base::MutexLock status_lock(state.mu);
    StreamStatus& out = streams.emplace_back();
    out.slot = entry.slot;
    out.generation = generation[entry.slot].load(std::memory_order_acquire);
    out.info = entry.info;
    out.synchronized = (out.generation & 1) != 0;
    out.sequence = state.sequence;
    out.sequence_valid = state.sequence_valid;
    out.device_blocks = out.synchronized ? state.device_blocks : 0;
    out.host_blocks = out.synchronized ? state.host_blocks : 0;
    out.digest = out.synchronized ? state.digest : 0;
    out.opaque_mappings = out.synchronized ? state.opaque_mappings : 0;
    out.snapshot_at = state.snapshot_at.load(std::memory_order_relaxed);
    out.live_at = state.live_at.load(std::memory_order_relaxed);
    out.error = state.error;
  }
  return streams;
}

KvIndex::MemoryUse IndexState::Memory() const {
  base::EpochCollect();
  base::MutexLock lock(mu_);
  KvIndex::MemoryUse use;
  for (const auto& view : owned_views_) {
    use.view_bytes += view->blocks.bytes();
    use.view_entries += view->blocks.entries();
  }
  for (const SlotStatus& state : status) use.ledger_bytes += state.ledger_bytes.load();
  return use;
}

}  // namespace xms::kv_index::internal
