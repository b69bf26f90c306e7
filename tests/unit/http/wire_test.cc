#include "http/internal/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace xms::http::internal {
namespace {

TEST(HttpWire, WritesOnlyTheFramingThatIsAskedFor) {
  Headers headers;
  headers.Add("Content-Length", "7");
  headers.Add("transfer-encoding", "gzip");
  headers.Add("Connection", "upgrade");
  headers.Add("X-A", "1");
  const std::string head =
      ResponseHead(200, headers, {.content_length = 12, .connection = "close"});
  EXPECT_EQ(head.substr(0, 17), "HTTP/1.1 200 OK\r\n");
  EXPECT_NE(head.find("X-A: 1\r\n"), std::string::npos);
  EXPECT_NE(head.find("Content-Length: 12\r\nConnection: close\r\n\r\n"), std::string::npos)
      << head;
  EXPECT_EQ(head.find("gzip"), std::string::npos);
  EXPECT_EQ(head.find("upgrade"), std::string::npos);
  EXPECT_EQ(head.find(": 7"), std::string::npos);
  const std::string chunked = ResponseHead(200, {}, {.chunked = true});
  EXPECT_NE(chunked.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_EQ(chunked.find("Content-Length"), std::string::npos);
}

// What a client sent may be echoed in a header; it must not become a second header or a second
// answer.
TEST(HttpWire, LeavesOutHeadersThatWouldBreakTheBlock) {
  Headers headers;
  headers.Add("X-Good", "fine\twith tab and \xc3\xa4");
  headers.Add("X-Split", "a\r\nSet-Cookie: stolen=1");
  headers.Add("X-Bare", "a\nb");
  headers.Add("X-Zero", std::string("a\0b", 3));
  headers.Add("X Name", "space");
  headers.Add("X-Name\r\nX-Other", "v");
  headers.Add("X:Y", "v");
  headers.Add("", "v");
  const std::string head = ResponseHead(200, headers, {.content_length = 0});
  EXPECT_NE(head.find("X-Good: fine\twith tab and \xc3\xa4\r\n"), std::string::npos);
  EXPECT_EQ(std::count(head.begin(), head.end(), '\n'), 5)  // status, Date, X-Good, length, end
      << head;
  EXPECT_EQ(head.find("stolen"), std::string::npos);
}

TEST(HttpWire, KeepsADateThatIsThereAndAddsOneElse) {
  Headers headers;
  headers.Add("date", "yesterday");
  EXPECT_EQ(ResponseHead(200, headers, {}), "HTTP/1.1 200 OK\r\ndate: yesterday\r\n\r\n");
  const std::string head = ResponseHead(200, {}, {});
  const auto at = head.find("Date: ");
  ASSERT_NE(at, std::string::npos);
  // Sun, 06 Nov 1994 08:49:37 GMT
  EXPECT_EQ(head.substr(at + 6).find(" GMT\r\n"), 25u) << head;
}

TEST(HttpWire, GivesAnUnknownStatusAnEmptyPhrase) {
  EXPECT_EQ(ResponseHead(799, {}, {}).substr(0, 15), "HTTP/1.1 799 \r\n");
}

TEST(HttpWire, AddsHostOnlyWhenTheRequestHasNone) {
  Request request;
  request.target = "/v1/models?x";
  EXPECT_EQ(RequestHead(request, "engine:80", {}),
            "GET /v1/models?x HTTP/1.1\r\nHost: engine:80\r\n\r\n");
  request.headers.Add("host", "other");
  EXPECT_EQ(RequestHead(request, "engine:80", {}),
            "GET /v1/models?x HTTP/1.1\r\nhost: other\r\n\r\n");
}

TEST(HttpWire, TellsRequestLinesThatWouldSplit) {
  EXPECT_TRUE(IsSafeRequestLine("GET", "/a?b=%20"));
  EXPECT_FALSE(IsSafeRequestLine("GET", "/a HTTP/1.1\r\nX: y"));
  EXPECT_FALSE(IsSafeRequestLine("GET", "/a b"));
  EXPECT_FALSE(IsSafeRequestLine("GE T", "/"));
  EXPECT_FALSE(IsSafeRequestLine("", "/"));
  EXPECT_FALSE(IsSafeRequestLine("GET", ""));
}

}  // namespace
}  // namespace xms::http::internal
