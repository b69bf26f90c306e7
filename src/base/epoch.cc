#include "base/epoch.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace xms::base {
namespace {

// One per thread that ever read; given back when the thread ends, reused, never freed. Alone on its
// cache line, so that two readers do not slow each other.
struct alignas(64) Reader {
  std::atomic<std::uint64_t> announced{0};  // 0: not reading
  std::atomic<bool> taken{true};
  Reader* next = nullptr;  // set before the record is published, constant afterwards
};

struct Retired {
  std::uint64_t epoch;
  std::function<void()> free;
};

// What every guard reads is apart from what every retirement writes.
struct Domain {
  alignas(64) std::atomic<std::uint64_t> epoch{1};
  std::atomic<Reader*> readers{nullptr};
  alignas(64) std::atomic<std::size_t> waiting{0};  // retired.size(), readable without the lock
  Mutex mu;
  std::vector<Retired> retired XMS_GUARDED_BY(mu);
};

// Never destroyed: threads may read while static destructors run.
Domain& TheDomain() {
  static Domain* const domain = new Domain;
  return *domain;
}

Reader* TakeReader() {
  Domain& domain = TheDomain();
  for (Reader* reader = domain.readers.load(); reader != nullptr; reader = reader->next) {
    bool free = false;
    if (!reader->taken.load() && reader->taken.compare_exchange_strong(free, true)) return reader;
  }
  auto* made = new Reader;
  Reader* head = domain.readers.load();
  do {
    made->next = head;
  } while (!domain.readers.compare_exchange_weak(head, made));
  return made;
}

struct ThreadReader {
  Reader* reader = TakeReader();
  std::uint32_t depth = 0;
  ~ThreadReader() { reader->taken.store(false); }
};

ThreadReader& ThisThread() {
  thread_local ThreadReader reader;
  return reader;
}

// The oldest epoch that some reader announces; UINT64_MAX when nobody reads.
std::uint64_t OldestAnnounced(const Domain& domain) {
  std::uint64_t oldest = UINT64_MAX;
  for (Reader* reader = domain.readers.load(); reader != nullptr; reader = reader->next) {
    const std::uint64_t announced = reader->announced.load();
    if (announced != 0 && announced < oldest) oldest = announced;
  }
  return oldest;
}

}  // namespace

EpochGuard::EpochGuard() {
  ThreadReader& mine = ThisThread();
  if (mine.depth++ == 0) mine.reader->announced.store(TheDomain().epoch.load());
}

EpochGuard::~EpochGuard() {
  ThreadReader& mine = ThisThread();
  // R4. Nothing that comes later may be seen before R1 to R3 of this guard; what the next guard
  // announces is ordered after it by being of the same object.
  if (--mine.depth == 0) mine.reader->announced.store(0, std::memory_order_release);
}

void EpochRetire(std::function<void()> free) {
  Domain& domain = TheDomain();
  {
    MutexLock lock(domain.mu);
    domain.retired.push_back({domain.epoch.fetch_add(1), std::move(free)});
    domain.waiting.store(domain.retired.size());
  }
  EpochCollect();
}

std::size_t EpochCollect() {
  Domain& domain = TheDomain();
  if (domain.waiting.load() == 0) return 0;
  std::vector<Retired> ready;
  std::size_t waiting = 0;
  {
    MutexLock lock(domain.mu);
    const std::uint64_t oldest = OldestAnnounced(domain);
    std::vector<Retired> kept;
    for (Retired& entry : domain.retired) {
      (entry.epoch < oldest ? ready : kept).push_back(std::move(entry));
    }
    domain.retired = std::move(kept);
    waiting = domain.retired.size();
    domain.waiting.store(waiting);
  }
  for (Retired& entry : ready) entry.free();
  return waiting;
}

std::uint64_t EpochStamp() { return TheDomain().epoch.load(); }

std::uint64_t EpochAdvance() {
  Domain& domain = TheDomain();
  const std::uint64_t next = domain.epoch.fetch_add(1) + 1;
  return std::min(next, OldestAnnounced(domain));
}

}  // namespace xms::base
