// Epochs: memory that readers may still be looking at is freed only after they have left.
//
// Place       kv_index (tables swapped whole, entries reused in place) and SnapshotCell below;
//             one set of epochs per process.
// Threads     Everything here: any thread. EpochGuard may nest; it ends on the thread it began
//             on.
// Rules       An EpochGuard never spans a suspension point, an I/O call or a wait for a lock: one
//             sleeping reader keeps every retired object alive.
// Argument    All operations involved but R4 are sequentially consistent; there are no fences
//             (ThreadSanitizer cannot follow them). Writer: W1 unlink the object (its pointer is
//             replaced), W2 e = epoch++, W3 free once every announced epoch is > e. Reader: R1
//             read the epoch, R2 announce it, R3 load the pointer. If W3's scan misses R2, R2
//             follows the scan in the single total order, so R3 follows W1 and finds the new
//             object. If the scan sees an epoch > e, R1 followed W2, hence R3 followed W1.
//             Otherwise the object is kept. A reader leaves by storing 0 (R4, release): a scan
//             that sees it follows the reader's last look. One that sees what a later guard announces
//             sees no less, and that the store is not sequentially consistent can only make an object
//             be kept longer: until it is seen, the scan reads what R2 announced. For memory reused
//             in place (EpochStamp, EpochAdvance) W2 is only a load of e, and a later epoch++, before
//             the scan, takes its part: R1 reading more than e followed that increment, which
//             followed the load, which followed W1.
// Proof       BaseEpoch*, BaseEpochStress* under tsan.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace xms::base {

class EpochGuard {
 public:
  EpochGuard();
  ~EpochGuard();
  EpochGuard(const EpochGuard&) = delete;
  EpochGuard& operator=(const EpochGuard&) = delete;
};

// Call after the object was unlinked. `free` runs now or later, without a lock of this module held,
// on a thread that calls EpochRetire or EpochCollect. The last one retired may wait until somebody
// collects.
void EpochRetire(std::function<void()> free);

// Frees what can be freed now. Returns how many retired objects still wait for a reader. Costs one
// load when nothing is retired.
std::size_t EpochCollect();

// For owners that reuse memory in place instead of freeing it. After the store that unlinked it
// (sequentially consistent), remember EpochStamp(); reuse it once the stamp is below a bound that
// EpochAdvance() returned. Bounds stay true for ever. EpochAdvance looks at every reader and makes
// their next guards a little dearer: call it for many pieces at once.
std::uint64_t EpochStamp();
std::uint64_t EpochAdvance();

// SnapshotCell: the current immutable T, replaced whole. Readers neither lock nor wait.
//
//   EpochGuard guard;
//   const View* view = cell.Get();   // valid until the guard ends
template <typename T>
class SnapshotCell {
 public:
  explicit SnapshotCell(std::unique_ptr<const T> first) : current_(first.release()) {}
  ~SnapshotCell() { delete current_.load(); }
  SnapshotCell(const SnapshotCell&) = delete;
  SnapshotCell& operator=(const SnapshotCell&) = delete;

  // Only under an EpochGuard. Never null.
  const T* Get() const { return current_.load(); }

  void Set(std::unique_ptr<const T> next) {
    const T* old = current_.exchange(next.release());
    EpochRetire([old] { delete old; });
  }

 private:
  std::atomic<const T*> current_;
};

}  // namespace xms::base
