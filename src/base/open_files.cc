#include "base/open_files.h"

#include <sys/resource.h>

#include "base/str_cat.h"

namespace xms::base {

std::string OpenFileLimit::Describe() const {
  if (now == before) return StrCat("open files: limit ", now);
  return StrCat("open files: limit raised from ", before, " to ", now);
}

OpenFileLimit RaiseOpenFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  OpenFileLimit out{.before = limit.rlim_cur, .now = limit.rlim_cur, .most = limit.rlim_max};
  limit.rlim_cur = limit.rlim_max;
  if (out.now < out.most && setrlimit(RLIMIT_NOFILE, &limit) == 0) out.now = out.most;
  return out;
}

}  // namespace xms::base
