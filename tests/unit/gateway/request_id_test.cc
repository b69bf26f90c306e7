#include "gateway/request_id.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace xms::gateway {
namespace {

TEST(GatewayRequestId, VisibleAsciiOfModestLengthIsFit) {
  EXPECT_TRUE(IsFitRequestId("a"));
  EXPECT_TRUE(IsFitRequestId("6f2c-4711_{x}"));
  EXPECT_TRUE(IsFitRequestId(std::string(kMaxRequestIdBytes, 'x')));
  EXPECT_FALSE(IsFitRequestId(""));
  EXPECT_FALSE(IsFitRequestId(std::string(kMaxRequestIdBytes + 1, 'x')));
  EXPECT_FALSE(IsFitRequestId("a b"));
  EXPECT_FALSE(IsFitRequestId("a\r\nx: y"));
  EXPECT_FALSE(IsFitRequestId("\xc3\xa9"));
  EXPECT_FALSE(IsFitRequestId("\x7f"));
  EXPECT_FALSE(IsFitRequestId(std::string(1, '\0')));
}

TEST(GatewayRequestId, GeneratedOnesAreFitAndDiffer) {
  RequestIds ids(1);
  RequestIds others(2);
  std::set<std::string> seen;
  for (int i = 0; i < 10000; ++i) {
    const std::string id = ids.Next();
    EXPECT_TRUE(IsFitRequestId(id));
    EXPECT_EQ(id.size(), 32u);
    EXPECT_TRUE(seen.insert(id).second) << "after " << i;
    EXPECT_TRUE(seen.insert(others.Next()).second) << "after " << i;
  }
}

}  // namespace
}  // namespace xms::gateway
