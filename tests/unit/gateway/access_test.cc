#include "gateway/access.h"

#include <gtest/gtest.h>

#include <string>

namespace xms::gateway {
namespace {

http::Request With(const char* token) {
  http::Request request;
  if (token != nullptr) request.headers.Add("x-internal-token", token);
  return request;
}

// F2
TEST(GatewayAccess, EqualityIsOfAllBytesAndOfLength) {
  EXPECT_TRUE(EqualsInConstantTime("secret", "secret"));
  EXPECT_FALSE(EqualsInConstantTime("", "secret"));
  EXPECT_FALSE(EqualsInConstantTime("secre", "secret"));
  EXPECT_FALSE(EqualsInConstantTime("secretsecret", "secret"));
  EXPECT_FALSE(EqualsInConstantTime("Secret", "secret"));
  EXPECT_FALSE(EqualsInConstantTime("secreT", "secret"));
  EXPECT_TRUE(EqualsInConstantTime("", ""));
  EXPECT_FALSE(EqualsInConstantTime("x", ""));
  // A difference of 256 in length must not vanish in a byte.
  EXPECT_FALSE(EqualsInConstantTime(std::string(257, 'a'), "a"));
}

// F2
TEST(GatewayAccess, MissingAndWrongTokensDiffer) {
  EXPECT_FALSE(CheckToken(With(nullptr), "").has_value());
  EXPECT_FALSE(CheckToken(With("anything"), "").has_value());
  EXPECT_FALSE(CheckToken(With("t0k"), "t0k").has_value());
  EXPECT_EQ(CheckToken(With(nullptr), "t0k")->kind, ErrorKind::kTokenMissing);
  EXPECT_EQ(CheckToken(With("T0K"), "t0k")->kind, ErrorKind::kTokenWrong);
  EXPECT_EQ(CheckToken(With(""), "t0k")->kind, ErrorKind::kTokenWrong);
}

TEST(GatewayAccess, MessagesDoNotGiveTheTokenAway) {
  EXPECT_EQ(CheckToken(With("guess"), "t0k")->message.find("t0k"), std::string::npos);
  EXPECT_EQ(CheckToken(With(nullptr), "t0k")->message.find("t0k"), std::string::npos);
}

TEST(GatewayAccess, WithoutATokenTheRegistryIsWrittenFromLoopback) {
  http::Request request;
  EXPECT_EQ(CheckRegistryWrite(request, "")->kind, ErrorKind::kLoopbackOnly);
  EXPECT_FALSE(CheckRegistryWrite(request, "t0k").has_value());
  request.peer_is_loopback = true;
  EXPECT_FALSE(CheckRegistryWrite(request, "").has_value());
}

}  // namespace
}  // namespace xms::gateway
