// SegmentLock: excludes the writers of one segment of a view for one bounded operation.
//
// Place       PrefixView. Readers never touch it.
// Threads     Any. Spins for about a microsecond, then sleeps: its holder may have lost the processor.
// Orders      L1 the winning exchange (acquire) reads what L2, the unlocking exchange (release), wrote:
//             everything done under the lock happens before everything done under the next one.
// Cost        Two exchanges when nobody else wants it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/mutex.h"

namespace xms::kv_index::internal {

template <typename Hooks>
class XMS_CAPABILITY("mutex") alignas(64) SegmentLock {
 public:
  void lock() XMS_ACQUIRE() {
    std::uint32_t free = kFree;
    if (state_.compare_exchange_strong(free, kHeld, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
      return;
    }
    LockSlowly();
  }

  void unlock() XMS_RELEASE() {
    if (state_.exchange(kFree, std::memory_order_release) == kWanted) state_.notify_one();
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kWanted = 2;  // held, and somebody may be asleep

  void LockSlowly() {
    Hooks::At(Hooks::kLockIsWanted);
    for (int spin = 0; spin < 200; ++spin) {
      std::uint32_t free = kFree;
      if (state_.load(std::memory_order_relaxed) == kFree &&
          state_.compare_exchange_strong(free, kHeld, std::memory_order_acquire,
                                         std::memory_order_relaxed)) {
        return;
      }
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    while (state_.exchange(kWanted, std::memory_order_acquire) != kFree) {
      state_.wait(kWanted, std::memory_order_relaxed);
    }
  }

  std::atomic<std::uint32_t> state_{kFree};
};

template <typename Hooks>
class XMS_SCOPED_CAPABILITY SegmentLockHold {
 public:
  explicit SegmentLockHold(SegmentLock<Hooks>& lock) XMS_ACQUIRE(lock) : lock_(lock) {
    lock_.lock();
  }
  ~SegmentLockHold() XMS_RELEASE() { lock_.unlock(); }
  SegmentLockHold(const SegmentLockHold&) = delete;
  SegmentLockHold& operator=(const SegmentLockHold&) = delete;

 private:
  SegmentLock<Hooks>& lock_;
};

}  // namespace xms::kv_index::internal
