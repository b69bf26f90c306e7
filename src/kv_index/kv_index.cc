#include "kv_index/kv_index.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/assert.h"
#include "base/epoch.h"
#include "kv_index/internal/index_state.h"
#include "kv_index/internal/prefix_run.h"
#include "kv_index/internal/stream_ledger_impl.h"
#include "kv_index/stream_ledger.h"

namespace xms::kv_index {
namespace {

using internal::PrefixRun;
using internal::SlotSet;
using internal::View;

// Hashes a prompt piece by piece, for as long as the walk asks.
class ChainKeys {
 public:
  ChainKeys(const model::BlockHasher& hasher, std::span<const std::uint32_t> tokens)
      : hasher_(hasher), left_(tokens) {}

  std::span<const model::ContentKey> operator()(std::size_t most) {
    auto& piece = pieces_[turn_ ^= 1];
    const std::uint32_t size = hasher_.block_size();
    std::size_t count = 0;
    for (; count < most && left_.size() >= size; ++count) {
      parent_ = hasher_.Child(parent_, left_.first(size));
      left_ = left_.subspan(size);
      piece[count] = parent_;
    }
    return std::span(piece).first(count);
  }

 private:
  const model::BlockHasher& hasher_;
  std::span<const std::uint32_t> left_;
  model::ContentKey parent_ = model::kRootKey;
  // The walk still reads the piece before.
  std::array<model::ContentKey, internal::PrefixView::kPiece> pieces_[2];
  std::size_t turn_ = 0;
};

class ReadyKeys {
 public:
  explicit ReadyKeys(std::span<const model::ContentKey> keys) : left_(keys) {}

  std::span<const model::ContentKey> operator()(std::size_t most) {
    const auto piece = left_.first(std::min(most, left_.size()));
    left_ = left_.subspan(piece.size());
    return piece;
  }

 private:
  std::span<const model::ContentKey> left_;
};

// The first half of a match: every slot's generation, and who is synchronized.
SlotSet Begin(const internal::IndexState& state, MatchResult& out) {
  SlotSet synchronized;
  out.slot_count = state.slot_count.load(std::memory_order_acquire);
  for (std::uint32_t slot = 0; slot < out.slot_count; ++slot) {
    const std::uint64_t generation = state.generation[slot].load(std::memory_order_acquire);  // G2
    out.slots[slot] = {generation, (generation & 1) != 0, 0, 0};
    synchronized.word[slot >> 6] |= (generation & 1) << (slot & 63);
  }
  return synchronized;
}

template <typename Keys>
void Walk(const View& view, const SlotSet& synchronized, Keys&& keys, MatchResult& out) {
  const SlotSet own = view.Slots();
  const SlotSet slots{{own.word[0] & synchronized.word[0], own.word[1] & synchronized.word[1]}};
  if (!slots.Any()) return;
  PrefixRun run(slots);
  view.blocks.Run(keys, run);
  run.Finish();
  const std::uint32_t block_size = view.hasher.block_size();
  const bool any_host = run.AnyHostOnly();
  for (std::uint32_t slot = 0; slot < out.slot_count; ++slot) {
    if (!slots.Has(slot)) continue;
    const std::uint32_t host_only = any_host ? run.HostOnly(slot) : 0;
    out.slots[slot].device_hit_tokens = (run.Length(slot) - host_only) * block_size;
    out.slots[slot].host_only_hit_tokens = host_only * block_size;
  }
}

// The last half: whoever changed generation meanwhile has told us nothing.
void End(const internal::IndexState& state, MatchResult& out) {
  for (std::uint32_t slot = 0; slot < out.slot_count; ++slot) {
    SlotMatch& match = out.slots[slot];
    if (state.generation[slot].load(std::memory_order_acquire) == match.generation) continue;  // G3
    match = {match.generation, false, 0, 0};
  }
}

}  // namespace

struct KvIndex::Impl : internal::IndexState {
  using IndexState::IndexState;
};

KvIndex::KvIndex(Options options) : impl_(std::make_unique<Impl>(options)) {}
KvIndex::~KvIndex() = default;

base::Result<std::unique_ptr<StreamLedger>> KvIndex::OpenStream(StreamInfo info,
                                                                std::string reason) {
  base::Result<internal::IndexState::Opened> opened =
      impl_->Open(std::move(info), std::move(reason));
  if (!opened.ok()) return std::move(opened).error();
  return std::unique_ptr<StreamLedger>(
      new StreamLedger(std::make_unique<StreamLedger::Impl>(*impl_, std::move(opened).value())));
}

void KvIndex::Match(std::span<const std::uint32_t> tokens, MatchResult& out) const {
  base::EpochGuard guard;
  const SlotSet synchronized = Begin(*impl_, out);
  if (!tokens.empty() && synchronized.Any()) {
    for (const View* view : *impl_->views.Get()) {
      Walk(*view, synchronized, ChainKeys(view->hasher, tokens), out);
    }
  }
  End(*impl_, out);
}

void KvIndex::MatchKeys(std::uint64_t hash_seed, std::uint32_t block_size,
                        std::span<const model::ContentKey> keys, MatchResult& out) const {
  base::EpochGuard guard;
  const SlotSet synchronized = Begin(*impl_, out);
  if (!keys.empty() && synchronized.Any()) {
    for (const View* view : *impl_->views.Get()) {
      if (view->hasher.hash_seed() == hash_seed && view->hasher.block_size() == block_size) {
        Walk(*view, synchronized, ReadyKeys(keys), out);
      }
    }
  }
  End(*impl_, out);
}

std::vector<StreamStatus> KvIndex::Streams() const { return impl_->Streams(); }

std::span<const KvIndex::SlotEntry> KvIndex::SlotTable::Of(
    const model::InstanceId& instance) const {
  const auto name_less = [](const SlotEntry& entry, const model::InstanceId& id) {
    return entry.info->key.instance < id;
  };
  const auto less_name = [](const model::InstanceId& id, const SlotEntry& entry) {
    return id < entry.info->key.instance;
  };
  const auto first = std::lower_bound(entries.begin(), entries.end(), instance, name_less);
  const auto last = std::upper_bound(first, entries.end(), instance, less_name);
  return {first, last};
}

std::shared_ptr<const KvIndex::SlotTable> KvIndex::Slots() const {
  base::EpochGuard guard;
  return *impl_->slots.Get();
}

KvIndex::MemoryUse KvIndex::Memory() const { return impl_->Memory(); }

}  // namespace xms::kv_index
