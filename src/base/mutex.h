// Mutex, MutexLock, CondVar: std::mutex with the annotations that Clang's -Wthread-safety checks.
//
// Place       Every shared mutable thing off the request path. Keep a mutex beside its data:
//               base::Mutex mu_;
//               std::map<…> entries_ XMS_GUARDED_BY(mu_);
// Rules       Under a lock: no I/O, no logging, no callback, no call into another module
//             (docs/threading.md).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define XMS_ANNOTATE(x) __attribute__((x))
#else
#define XMS_ANNOTATE(x)
#endif
#define XMS_CAPABILITY(name) XMS_ANNOTATE(capability(name))
#define XMS_SCOPED_CAPABILITY XMS_ANNOTATE(scoped_lockable)
#define XMS_GUARDED_BY(mu) XMS_ANNOTATE(guarded_by(mu))
#define XMS_PT_GUARDED_BY(mu) XMS_ANNOTATE(pt_guarded_by(mu))
#define XMS_REQUIRES(...) XMS_ANNOTATE(requires_capability(__VA_ARGS__))
#define XMS_EXCLUDES(...) XMS_ANNOTATE(locks_excluded(__VA_ARGS__))
#define XMS_ACQUIRE(...) XMS_ANNOTATE(acquire_capability(__VA_ARGS__))
#define XMS_RELEASE(...) XMS_ANNOTATE(release_capability(__VA_ARGS__))
#define XMS_TRY_ACQUIRE(...) XMS_ANNOTATE(try_acquire_capability(__VA_ARGS__))
#define XMS_NO_THREAD_SAFETY_ANALYSIS XMS_ANNOTATE(no_thread_safety_analysis)

namespace xms::base {

class XMS_CAPABILITY("mutex") Mutex {
 public:
  void lock() XMS_ACQUIRE() { mu_.lock(); }
  void unlock() XMS_RELEASE() { mu_.unlock(); }
  bool try_lock() XMS_TRY_ACQUIRE(true) { return mu_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

class XMS_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mu) XMS_ACQUIRE(mu) : mu_(mu) { mu_.lock(); }
  ~MutexLock() XMS_RELEASE() { mu_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

// Waits are on conditions, so every call takes one: `while (!ready_) cond_.Wait(mu_);`.
class CondVar {
 public:
  void Wait(Mutex& mu) XMS_REQUIRES(mu) {
    std::unique_lock<std::mutex> held(mu.mu_, std::adopt_lock);
    cond_.wait(held);
    held.release();
  }
  // False when the time ran out first.
  bool WaitFor(Mutex& mu, std::chrono::milliseconds timeout) XMS_REQUIRES(mu) {
    std::unique_lock<std::mutex> held(mu.mu_, std::adopt_lock);
    const bool notified = cond_.wait_for(held, timeout) == std::cv_status::no_timeout;
    held.release();
    return notified;
  }
  void NotifyAll() { cond_.notify_all(); }

 private:
  std::condition_variable cond_;
};

}  // namespace xms::base
