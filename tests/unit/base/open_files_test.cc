#include "base/open_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace xms::base {
namespace {

TEST(BaseOpenFiles, TheSoftLimitBecomesTheHardOne) {
  rlimit original{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &original), 0);
  rlimit low = original;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const OpenFileLimit raised = RaiseOpenFileLimit();
  rlimit now{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, original.rlim_max);
  EXPECT_EQ(raised.before, 64u);
  EXPECT_EQ(raised.now, original.rlim_max);
  EXPECT_NE(raised.Describe().find("raised from 64 to "), std::string::npos) << raised.Describe();
  const OpenFileLimit again = RaiseOpenFileLimit();
  EXPECT_EQ(again.before, again.now);
  EXPECT_EQ(again.Describe().find("raised"), std::string::npos);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &original), 0);
}

}  // namespace
}  // namespace xms::base
