#include "http/message.h"

#include <gtest/gtest.h>

namespace xms::http {
namespace {

TEST(HttpMessage, FindsHeadersWithoutRegardToCase) {
  Headers headers;
  headers.Add("X-Request-Id", "a");
  headers.Add("x-request-id", "b");
  ASSERT_NE(headers.Find("X-REQUEST-ID"), nullptr);
  EXPECT_EQ(*headers.Find("X-REQUEST-ID"), "a");
  EXPECT_EQ(headers.Find("x-request"), nullptr);
  EXPECT_EQ(headers.entries().size(), 2u) << "repeated names stay apart";
}

TEST(HttpMessage, SetReplacesEveryEntryOfTheName) {
  Headers headers;
  headers.Add("Accept", "a");
  headers.Add("Host", "h");
  headers.Add("accept", "b");
  headers.Set("ACCEPT", "c");
  ASSERT_EQ(headers.entries().size(), 2u);
  EXPECT_EQ(*headers.Find("accept"), "c");
  // The name may be the one that is stored.
  headers.Set(headers.entries().front().first, "new");
  EXPECT_EQ(*headers.Find("host"), "new");
}

TEST(HttpMessage, KeepsOnlyEndToEndHeaders) {
  Headers headers;
  for (const char* name :
       {"Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
        "Proxy-Authorization", "proxy-connection", "Content-Length", "Host", "Expect"}) {
    headers.Add(name, name == std::string_view("Connection") ? "keep-alive,  X-Mine ,," : "v");
  }
  headers.Add("x-mine", "hop by hop because Connection says so");
  headers.Add("X-Mine-Too", "1");
  headers.Add("Authorization", "Bearer t");
  headers.Add("Set-Cookie", "a");
  headers.Add("Set-Cookie", "b");
  const Headers kept = EndToEndHeaders(headers);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"X-Mine-Too", "1"}, {"Authorization", "Bearer t"}, {"Set-Cookie", "a"}, {"Set-Cookie", "b"}};
  EXPECT_EQ(kept.entries(), expected);
}

TEST(HttpMessage, PathEndsWhereTheQueryBegins) {
  Request request;
  request.target = "/v1/models?limit=3?4";
  EXPECT_EQ(request.path(), "/v1/models");
  request.target = "/v1/models";
  EXPECT_EQ(request.path(), "/v1/models");
}

TEST(HttpMessage, DecodesQueryParameters) {
  Request request;
  request.target = "/x?limit=20&name=a%2Fb+c%&flag&limit=30&%6Eick=%e4%BD%a0&empty=";
  std::string value;
  EXPECT_TRUE(request.QueryParameter("limit", value));
  EXPECT_EQ(value, "20") << "the first one counts";
  EXPECT_TRUE(request.QueryParameter("name", value));
  EXPECT_EQ(value, "a/b c%") << "a broken escape stands for itself";
  EXPECT_TRUE(request.QueryParameter("flag", value));
  EXPECT_EQ(value, "");
  EXPECT_TRUE(request.QueryParameter("empty", value));
  EXPECT_EQ(value, "");
  EXPECT_TRUE(request.QueryParameter("nick", value));
  EXPECT_EQ(value, "\xe4\xbd\xa0");
  value = "untouched";
  EXPECT_FALSE(request.QueryParameter("lim", value));
  request.target = "/x";
  EXPECT_FALSE(request.QueryParameter("limit", value));
  EXPECT_EQ(value, "untouched");
}

TEST(HttpMessage, JsonResponseSaysItsType) {
  const Response response = JsonResponse(503, "{}");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.body, "{}");
  ASSERT_NE(response.headers.Find("content-type"), nullptr);
  EXPECT_EQ(*response.headers.Find("content-type"), "application/json");
}

}  // namespace
}  // namespace xms::http
