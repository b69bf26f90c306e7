// Resolver: host names to addresses, on threads that nobody waits for.
//
// Place       Shared by all streams of a directory; Link asks it before it connects. libzmq would
//             resolve on the one thread that serves all streams.
// Threads     Find: any thread, returns at once. One thread per name that is being looked up, however
//             many streams ask for it.
// Ownership   Borrows nothing. The destructor joins: it takes as long as the system's resolver does.
// Failure     A name that nobody knows has no addresses.
// Proof       KVDirectoryResolver* over a getaddrinfo that hangs.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "kv_directory/streams/wakeup.h"

namespace xms::kv_directory {

class Resolver {
 public:
  struct Address {
    std::string host;  // a numeric literal
    bool ipv6 = false;
  };

  // One name being looked up, perhaps for several at once.
  class Lookup {
   public:
    bool done() const { return done_.load(std::memory_order_acquire); }
    const std::vector<Address>& addresses() const { return addresses_; }  // once done

   private:
    friend class Resolver;
    std::vector<Address> addresses_;  // written before done_
    std::atomic<bool> done_{false};
    std::vector<std::shared_ptr<Wakeup>> waiting_;  // guarded by the resolver's mutex
  };

  Resolver() = default;
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // Done already when `host` is a literal; otherwise `wakeup` is signalled when it is.
  std::shared_ptr<const Lookup> Find(const std::string& host, std::shared_ptr<Wakeup> wakeup);

 private:
  struct Running {
    std::string host;
    std::shared_ptr<Lookup> lookup;
    std::jthread thread;
  };

  void Run(const std::string& host, Lookup& lookup);

  base::Mutex mu_;
  // Last: its threads use the mutex. Those that are done are joined by the next Find.
  std::list<Running> running_ XMS_GUARDED_BY(mu_);
};

}  // namespace xms::kv_directory
