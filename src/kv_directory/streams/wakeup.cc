#include "kv_directory/streams/wakeup.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace xms::kv_directory {

std::shared_ptr<Wakeup> Wakeup::Make() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return nullptr;
  return std::shared_ptr<Wakeup>(new Wakeup(fd));
}

Wakeup::~Wakeup() { close(fd_); }

void Wakeup::Signal() {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the fd is readable already.
  [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);
}

void Wakeup::Drain() {
  std::uint64_t count = 0;
  // Fails only when there is nothing to drain.
  [[maybe_unused]] const auto got = read(fd_, &count, sizeof count);
}

}  // namespace xms::kv_directory
