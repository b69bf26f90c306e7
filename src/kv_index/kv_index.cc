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
    const std::size_t size = hasher_.block_size();
    const auto piece = std::span(pieces_[turn_ ^= 1]).first(std::min(most, left_.size() / size));
    if (piece.empty()) return piece;
    hasher_.Chain(parent_, left_.first(piece.size() * size), piece);
    left_ = left_.subspan(piece.size() * size);
    parent_ = piece.back();
    return piece;
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

template <typename Keys>
void Walk(const View& view, const SlotSet& synchronized, Keys&& keys, SlotHits& hits) {
  const SlotSet own = view.Slots();
  const SlotSet slots{{own.word[0] & synchronized.word[0], own.word[1] & synchronized.word[1]}};
  if (!slots.Any()) return;
  PrefixRun run(slots, view.hasher.block_size(), hits);
  view.blocks.Run(keys, run);
  run.Finish();
}

}  // namespace

struct KvIndex::Impl : internal::IndexState {
  using IndexState::IndexState;

  // Before the walk: every slot's generation, and who is synchronized. Hits of those are written by
  // the walk, hits of others are none.
  SlotSet Begin(const void* scope, MatchResult& out) const {
    SlotMatches& slots = out.slots;
    const std::uint64_t now = stamp.load(std::memory_order_acquire);  // S2
    if (now != out.stamp_ || scope != out.scope_) {
      SlotSet synchronized;
      out.slot_count = slot_count.load(std::memory_order_acquire);
      for (std::uint32_t slot = 0; slot < out.slot_count; ++slot) {
        const std::uint64_t value = generation[slot].load(std::memory_order_acquire);  // G2
        slots.generation_[slot] = value;
        if ((value & 1) != 0) synchronized.Add(slot);
      }
      slots.hits_ = SlotHits{};
      slots.synchronized_[0] = synchronized.word[0];
      slots.synchronized_[1] = synchronized.word[1];
      out.stamp_ = now;
      out.scope_ = scope;
    }
    return {{slots.synchronized_[0], slots.synchronized_[1]}};
  }

  // After it: whoever changed generation meanwhile has told us nothing.
  void End(MatchResult& out) const {
    if (stamp.load(std::memory_order_acquire) == out.stamp_) return;  // S3
    out.stamp_ = 0;
    SlotMatches& slots = out.slots;
    for (std::uint32_t slot = 0; slot < out.slot_count; ++slot) {
      if (generation[slot].load(std::memory_order_acquire) == slots.generation_[slot]) {  // G3
        continue;
      }
      slots.synchronized_[slot >> 6] &= ~(std::uint64_t{1} << (slot & 63));
      slots.hits_.device_tokens[slot] = slots.hits_.host_only_tokens[slot] = 0;
    }
  }
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
  const SlotSet synchronized = impl_->Begin(nullptr, out);
  for (const View* view : *impl_->views.Get()) {
    Walk(*view, synchronized, ChainKeys(view->hasher, tokens), out.slots.hits_);
  }
  impl_->End(out);
}

void KvIndex::MatchKeys(std::uint64_t hash_seed, std::uint32_t block_size,
                        std::span<const model::ContentKey> keys, MatchResult& out) const {
  base::EpochGuard guard;
  for (const View* view : *impl_->views.Get()) {
    if (view->hasher.hash_seed() != hash_seed || view->hasher.block_size() != block_size) continue;
    const SlotSet synchronized = impl_->Begin(view, out);
    Walk(*view, synchronized, ReadyKeys(keys), out.slots.hits_);
    impl_->End(out);
    return;
  }
  out.stamp_ = 0;
  impl_->Begin(nullptr, out);  // no such geometry: nobody has hits
  impl_->End(out);
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
