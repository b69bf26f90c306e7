#include "http/internal/parser.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace xms::http::internal {
namespace {

constexpr std::size_t kMaxHeader = 1024;
constexpr std::size_t kMaxBody = 4096;

// What came of offering `pieces` one after another, as a connection does.
struct Outcome {
  Progress progress = Progress::kNeedMore;
  int headers_reported = 0;
  std::string left;  // not consumed
};

template <typename Parser>
Outcome FeedAll(Parser& parser, const std::vector<std::string>& pieces) {
  Outcome outcome;
  for (const std::string& piece : pieces) {
    outcome.left += piece;
    bool more = outcome.progress != Progress::kDone && outcome.progress != Progress::kFailed;
    while (more) {
      std::size_t used = 0;
      outcome.progress = parser.Feed(outcome.left, used);
      outcome.left.erase(0, used);
      if (outcome.progress == Progress::kHeaders) ++outcome.headers_reported;
      more = outcome.progress == Progress::kHeaders;
    }
  }
  return outcome;
}

std::vector<std::string> ByteByByte(std::string_view text) {
  std::vector<std::string> pieces;
  for (const char c : text) pieces.emplace_back(1, c);
  return pieces;
}

struct RefusedRequest {
  const char* name;
  const char* bytes;
  int status;
};

void PrintTo(const RefusedRequest& refused, std::ostream* out) { *out << refused.name; }

class HttpParserRefuses : public ::testing::TestWithParam<RefusedRequest> {};

TEST_P(HttpParserRefuses, InOnePieceAndByteByByte) {
  for (const bool whole : {true, false}) {
    RequestParser parser(kMaxHeader, kMaxBody);
    const Outcome outcome = FeedAll(
        parser, whole ? std::vector<std::string>{GetParam().bytes} : ByteByByte(GetParam().bytes));
    ASSERT_EQ(outcome.progress, Progress::kFailed) << (whole ? "whole" : "byte by byte");
    EXPECT_EQ(parser.failure().status, GetParam().status) << parser.failure().message;
    EXPECT_FALSE(parser.failure().message.empty());
  }
}

// Whatever two readers of the same bytes could understand differently.
INSTANTIATE_TEST_SUITE_P(
    HttpParserRefuses, HttpParserRefuses,
    ::testing::Values(
        RefusedRequest{"LengthBesideChunked",
                       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
                       "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                       400},
        RefusedRequest{"ChunkedBesideLength",
                       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
                       "Content-Length: 5\r\n\r\n0\r\n\r\n",
                       400},
        RefusedRequest{"TwoLengths",
                       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: "
                       "6\r\n\r\nhello!",
                       400},
        RefusedRequest{"TheSameLengthTwice",
                       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: "
                       "5\r\n\r\nhello",
                       400},
        RefusedRequest{"ListedLength",
                       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello", 400},
        RefusedRequest{"NegativeLength",
                       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello", 400},
        RefusedRequest{"SignedLength",
                       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello", 400},
        RefusedRequest{"HexLength",
                       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello", 400},
        RefusedRequest{"EmptyLength", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nhello",
                       400},
        RefusedRequest{"LengthBeyond64Bits",
                       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: "
                       "18446744073709551621\r\n\r\nhello",
                       400},
        RefusedRequest{"OtherCoding",
                       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
        RefusedRequest{"CodingBeforeChunked",
                       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, "
                       "chunked\r\n\r\n0\r\n\r\n",
                       501},
        RefusedRequest{"ChunkedTwice",
                       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
                       "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                       400},
        RefusedRequest{"AlmostChunked",
                       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 501},
        RefusedRequest{"QuotedChunked",
                       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n", 501},
        RefusedRequest{"ChunkedInHttp10",
                       "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        RefusedRequest{"FoldedLine",
                       "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n Content-Length: 5\r\n\r\n", 400},
        RefusedRequest{"FoldedLineWithTab", "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n\tc\r\n\r\n",
                       400},
        RefusedRequest{"FoldedFirstLine", "GET / HTTP/1.1\r\n Host: a\r\nHost: b\r\n\r\n", 400},
        RefusedRequest{"SpaceBeforeColon",
                       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello", 400},
        RefusedRequest{"NoColon", "GET / HTTP/1.1\r\nHost: a\r\nX-A\r\n\r\n", 400},
        RefusedRequest{"EmptyName", "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400},
        RefusedRequest{"BareLineFeeds", "GET / HTTP/1.1\nHost: a\n\n", 400},
        RefusedRequest{"BareLineFeedInHeader",
                       "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\nX-C: d\r\n\r\n", 400},
        RefusedRequest{"BareCarriageReturn", "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\rc\r\n\r\n", 400},
        RefusedRequest{"ControlInValue", "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\x01\r\n\r\n", 400},
        RefusedRequest{"NoHost", "GET / HTTP/1.1\r\nX-A: b\r\n\r\n", 400},
        RefusedRequest{"TwoHosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
        RefusedRequest{"Http2", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 400},
        RefusedRequest{"Http2Preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
        RefusedRequest{"NoVersion", "GET /\r\nHost: a\r\n\r\n", 400},
        RefusedRequest{"SpaceInTarget", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        RefusedRequest{"TlsHello", "\x16\x03\x01\x02", 400},
        RefusedRequest{"ChunkSizeNotHex",
                       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "xyz\r\n",
                       400},
        RefusedRequest{"ChunkSizeWithPrefix",
                       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "0x5\r\nhello\r\n0\r\n\r\n",
                       400},
        RefusedRequest{"ChunkSizeBeyond64Bits",
                       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "10000000000000005\r\nhello\r\n0\r\n\r\n",
                       400},
        RefusedRequest{"ChunkLongerThanItsSize",
                       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "3\r\nhello\r\n0\r\n\r\n",
                       400},
        RefusedRequest{"ChunkEndsWithBareLineFeed",
                       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "5\nhello\r\n0\r\n\r\n",
                       400},
        RefusedRequest{"BodyDeclaredTooLong",
                       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4097\r\n\r\n", 413},
        RefusedRequest{"ChunkDeclaredTooLong",
                       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1001\r\n",
                       413},
        RefusedRequest{"UnknownExpectation", "POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n",
                       417}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(HttpParser, ReadsARequestWithoutBody) {
  RequestParser parser(kMaxHeader, kMaxBody);
  const Outcome outcome = FeedAll(
      parser,
      {"GET /v1/models?x=1 HTTP/1.1\r\nHost: a\r\nX-A:  b c \r\nX-Empty:\r\n\r\nGET /next"});
  ASSERT_EQ(outcome.progress, Progress::kDone) << parser.failure().message;
  EXPECT_EQ(outcome.headers_reported, 1);
  EXPECT_EQ(outcome.left, "GET /next");
  EXPECT_EQ(parser.request().method, "GET");
  EXPECT_EQ(parser.request().target, "/v1/models?x=1");
  EXPECT_EQ(*parser.request().headers.Find("x-a"), "b c");
  EXPECT_EQ(*parser.request().headers.Find("x-empty"), "");
  EXPECT_TRUE(parser.keep_alive());
  EXPECT_FALSE(parser.has_body());
}

TEST(HttpParser, AbsoluteTargetBecomesAPath) {
  const std::pair<const char*, const char*> cases[] = {
      {"http://host:8888/a?b", "/a?b"}, {"HTTP://host", "/"}, {"http://host?q", "/?q"}, {"*", "*"}};
  for (const auto& [sent, seen] : cases) {
    RequestParser parser(kMaxHeader, kMaxBody);
    ASSERT_EQ(
        FeedAll(parser, {std::string("GET ") + sent + " HTTP/1.1\r\nHost: a\r\n\r\n"}).progress,
        Progress::kDone);
    EXPECT_EQ(parser.request().target, seen);
  }
}

TEST(HttpParser, KnowsWhetherTheConnectionGoesOn) {
  const std::pair<const char*, bool> cases[] = {
      {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true},
      {"GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n", false},
      {"GET / HTTP/1.0\r\n\r\n", false},
      {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true}};
  for (const auto& [bytes, kept] : cases) {
    RequestParser parser(kMaxHeader, kMaxBody);
    ASSERT_EQ(FeedAll(parser, {bytes}).progress, Progress::kDone);
    EXPECT_EQ(parser.keep_alive(), kept) << bytes;
  }
}

// Trailers come after the handler's view of the headers is settled; a Host or token there means
// nothing.
TEST(HttpParser, DropsTrailers) {
  RequestParser parser(kMaxHeader, kMaxBody);
  const Outcome outcome = FeedAll(
      parser, {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
               "5;ext=\"1\"\r\nhello\r\n1\r\n!\r\n0\r\nX-Internal-Token: t\r\nHost: b\r\n\r\n"});
  ASSERT_EQ(outcome.progress, Progress::kDone) << parser.failure().message;
  EXPECT_EQ(parser.request().body, "hello!");
  EXPECT_EQ(parser.request().headers.Find("x-internal-token"), nullptr);
  EXPECT_EQ(*parser.request().headers.Find("host"), "a");
}

TEST(HttpParser, BodyMayBeExactlyAsLongAsAllowed) {
  RequestParser parser(kMaxHeader, kMaxBody);
  const std::string body(kMaxBody, 'x');
  ASSERT_EQ(FeedAll(parser, {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4096\r\n\r\n" + body})
                .progress,
            Progress::kDone);
  EXPECT_EQ(parser.request().body, body);
}

TEST(HttpParser, ChunksMayNotAddUpBeyondTheLimit) {
  RequestParser parser(kMaxHeader, kMaxBody);
  const std::string chunk = "800\r\n" + std::string(0x800, 'x') + "\r\n";
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  ASSERT_EQ(FeedAll(parser, {head, chunk, chunk, "0\r\n\r\n"}).progress, Progress::kDone);
  parser.Reset();
  ASSERT_EQ(FeedAll(parser, {head, chunk, chunk, "1\r\n"}).progress, Progress::kFailed);
  EXPECT_EQ(parser.failure().status, 413);
}

// Beast's limit is for one buffer; fields that it has taken already must count too.
TEST(HttpParser, CountsHeaderBytesAcrossPieces) {
  for (const std::size_t piece_size : {std::size_t{1}, std::size_t{100}, std::size_t{100000}}) {
    RequestParser parser(kMaxHeader, kMaxBody);
    std::string bytes = "GET / HTTP/1.1\r\nHost: a\r\n";
    while (bytes.size() <= kMaxHeader) bytes += "X-Filler: abcdefghijklmnopqrstuvwxyz\r\n";
    bytes += "\r\n";
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < bytes.size(); at += piece_size) {
      pieces.push_back(bytes.substr(at, piece_size));
    }
    ASSERT_EQ(FeedAll(parser, pieces).progress, Progress::kFailed) << piece_size;
    EXPECT_EQ(parser.failure().status, 431) << piece_size;
  }
  RequestParser parser(kMaxHeader, kMaxBody);
  std::string fits = "GET / HTTP/1.1\r\nHost: a\r\nX-Filler: ";
  fits += std::string(kMaxHeader - fits.size() - 4, 'x') + "\r\n\r\n";
  EXPECT_EQ(FeedAll(parser, ByteByByte(fits)).progress, Progress::kDone);
}

// The same bytes mean the same, however TCP cuts them.
TEST(HttpParser, RandomCutsChangeNothing) {
  const std::string bytes =
      "POST /v1/completions?a=b HTTP/1.1\r\nHost: engine:1\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\nX-Long: " +
      std::string(200, 'y') +
      "\r\n\r\n1a\r\nabcdefghijklmnopqrstuvwxyz\r\n3;x=y\r\n\r\n\r\r\n5\r\nhello\r\n0\r\nT: "
      "v\r\n\r\nREST";
  std::random_device device;
  const auto seed = device();
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = 1 + random() % (random() % 4 == 0 ? 100 : 6);
      pieces.push_back(bytes.substr(at, size));
      at += size;
    }
    RequestParser parser(kMaxHeader, kMaxBody);
    const Outcome outcome = FeedAll(parser, pieces);
    ASSERT_EQ(outcome.progress, Progress::kDone)
        << "seed " << seed << " round " << round << ": " << parser.failure().message;
    EXPECT_EQ(outcome.headers_reported, 1) << "seed " << seed << " round " << round;
    EXPECT_EQ(parser.request().body, "abcdefghijklmnopqrstuvwxyz\r\n\rhello")
        << "seed " << seed << " round " << round;
    EXPECT_EQ(outcome.left, "REST") << "seed " << seed << " round " << round;
  }
}

TEST(HttpParser, EveryStrictPrefixNeedsMore) {
  const std::string bytes =
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    RequestParser parser(kMaxHeader, kMaxBody);
    const Progress progress = FeedAll(parser, {bytes.substr(0, size)}).progress;
    EXPECT_EQ(progress, Progress::kNeedMore) << size << " bytes";
  }
}

TEST(HttpParser, ReadsResponsesByTheirFraming) {
  struct Case {
    const char* bytes;
    bool to_head;
    bool ends_with_connection;
    int status;
    const char* body;
    bool keep_alive;
  };
  const Case cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false, false, 200, "hello", true},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false, false,
       200, "hello", true},
      {"HTTP/1.1 404 \r\nConnection: close\r\n\r\nhello", false, true, 404, "hello", false},
      {"HTTP/1.0 200 OK\r\n\r\nhello", false, true, 200, "hello", false},
      {"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", false, false, 200, "hello", true},
      {"HTTP/1.1 204\r\n\r\n", false, false, 204, "", true},
      {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", false, false, 200,
       "", true},
      {"HTTP/1.1 204 No Content\r\n\r\n", false, false, 204, "", true},
      {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", false, false, 304, "", true},
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, false, 200, "", true},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true, false, 200, "", true}};
  for (const Case& c : cases) {
    for (const bool whole : {true, false}) {
      ResponseParser parser(kMaxHeader);
      parser.Reset(c.to_head);
      const Outcome outcome =
          FeedAll(parser, whole ? std::vector<std::string>{c.bytes} : ByteByByte(c.bytes));
      if (c.ends_with_connection) {
        ASSERT_EQ(outcome.progress, Progress::kNeedMore) << c.bytes;
        ASSERT_EQ(parser.FeedEnd(), Progress::kDone) << c.bytes;
      } else {
        ASSERT_EQ(outcome.progress, Progress::kDone) << c.bytes << parser.failure().message;
      }
      EXPECT_EQ(parser.status(), c.status) << c.bytes;
      EXPECT_EQ(parser.TakeBody(), c.body) << c.bytes;
      EXPECT_EQ(parser.keep_alive(), c.keep_alive) << c.bytes;
      EXPECT_EQ(outcome.left, "") << c.bytes;
    }
  }
}

TEST(HttpParser, ResponsesThatEndEarlyAreNotComplete) {
  for (const char* bytes :
       {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"}) {
    ResponseParser parser(kMaxHeader);
    ASSERT_EQ(FeedAll(parser, {bytes}).progress, Progress::kNeedMore) << bytes;
    EXPECT_EQ(parser.FeedEnd(), Progress::kFailed) << bytes;
  }
}

TEST(HttpParser, RefusesResponsesWithTwoReadings) {
  for (const char* bytes :
       {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n"}) {
    ResponseParser parser(kMaxHeader);
    EXPECT_EQ(FeedAll(parser, {bytes}).progress, Progress::kFailed) << bytes;
    EXPECT_FALSE(parser.failed_on_size()) << bytes;
  }
}

TEST(HttpParser, TellsAResponseHeaderThatIsTooLarge) {
  ResponseParser parser(kMaxHeader);
  EXPECT_EQ(FeedAll(parser, {"HTTP/1.1 200 OK\r\nX-A: " + std::string(kMaxHeader, 'x')}).progress,
            Progress::kFailed);
  EXPECT_TRUE(parser.failed_on_size());
  EXPECT_EQ(parser.failure().message,
            "the header is larger than " + std::to_string(kMaxHeader) + " bytes");
}

// Whoever runs the engine has to find out which of its bytes were wrong.
TEST(HttpParser, SaysWhatIsWrongWithAResponse) {
  struct Case {
    const char* bytes;
    const char* message;
  };
  const Case cases[] = {
      {"HTTP/1.1 099 Weird\r\n\r\n", "status code below 100"},
      {"HTTP/1.1 000\r\n\r\n", "status code below 100"},
      {"junk\r\n\r\n", "malformed status line"},
      {"ICY 200 OK\r\n\r\n", "malformed status line"},
      {"HTTP/1.1 2x0 OK\r\n\r\n", "malformed status line"},
      {"HTTP/1.1 2x0\r\n\r\n", "malformed status line"},
      {"HTTP/1.1 200\rOK\r\n\r\n", "malformed status line"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "malformed HTTP: bad chunk"},
      {"HTTP/1.1 200\r\n folded\r\n\r\n", "malformed HTTP: bad field"},
  };
  for (const Case& c : cases) {
    for (const bool whole : {true, false}) {
      ResponseParser parser(kMaxHeader);
      const Outcome outcome =
          FeedAll(parser, whole ? std::vector<std::string>{c.bytes} : ByteByByte(c.bytes));
      EXPECT_EQ(outcome.progress, Progress::kFailed) << c.bytes;
      EXPECT_EQ(parser.failure().message, c.message) << c.bytes << (whole ? "" : " byte by byte");
    }
  }
}

}  // namespace
}  // namespace xms::http::internal
