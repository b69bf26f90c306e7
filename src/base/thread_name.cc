#include "base/thread_name.h"

#include <pthread.h>

#include <string>

namespace xms::base {

void NameThisThread(std::string_view name) {
  constexpr std::size_t kMostBytes = 15;
  pthread_setname_np(pthread_self(), std::string(name.substr(0, kMostBytes)).c_str());
}

}  // namespace xms::base
