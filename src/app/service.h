// Service: the whole of xllm_master_serving in one object: makes every part, connects them, starts
// and stops them in order.
//
// Place       Used by main.cc; the only place that knows concrete classes.
// Threads     Start, Stop, and the getters: the owner's thread. EndDrain: any. Inside: the event
//             loops, one control thread (leases, states, readiness), and the directory's own.
// Order       Start: loops, RPC port, directory, control thread; the client port opens with
//             readiness. Stop: client port closes to new connections, requests in flight get
//             drain_timeout, then listeners, directory, loops.
// Failure     Start: what cannot be opened, with port and remedy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/flags.h"
#include "base/result.h"
#include "kv_directory/config.h"

namespace xms::app {

class Service {
 public:
  // `warnings` are logged after the first line.
  Service(Settings settings, kv_directory::DirectoryConfig directory,
          std::vector<std::string> warnings);
  ~Service();  // Stop()
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  base::Status Start();
  void Stop();
  // Ends the drain of a Stop that is running or comes: what is in flight is cut off. Any thread.
  void EndDrain();

  std::uint16_t rpc_port() const;
  std::uint16_t http_port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace xms::app
