#include "gateway/usage_scanner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace xms::gateway {
namespace {

std::string Usage(int cached) {
  return R"({"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":)" +
         std::to_string(cached) + "}}}";
}

// What the client gets when these pieces arrive and the stream ends well.
struct Relayed {
  std::string bytes;
  std::optional<std::uint64_t> cached;
};

Relayed Relay(const std::vector<std::string>& pieces) {
  SseStream stream;
  Relayed out;
  for (std::string piece : pieces) {
    stream.Feed(piece);
    out.bytes += piece;
  }
  out.bytes += stream.TakeRest();
  out.cached = stream.cached_tokens();
  return out;
}

TEST(GatewayUsage, ReadsTheFigureOfAJsonAnswer) {
  EXPECT_EQ(CachedTokens(Usage(128)), 128u);
  EXPECT_EQ(CachedTokens(Usage(0)), 0u);
  EXPECT_EQ(CachedTokens(R"({"usage":null})"), std::nullopt);
  EXPECT_EQ(CachedTokens(R"({"usage":{"prompt_tokens":3}})"), std::nullopt);
  EXPECT_EQ(CachedTokens(R"({"usage":{"prompt_tokens_details":null}})"), std::nullopt);
  EXPECT_EQ(CachedTokens(R"({"usage":{"prompt_tokens_details":{"cached_tokens":-1}}})"),
            std::nullopt);
  EXPECT_EQ(CachedTokens(R"({"usage":{"prompt_tokens_details":{"cached_tokens":1.5}}})"),
            std::nullopt);
  EXPECT_EQ(CachedTokens(R"({"usage":)"), std::nullopt);
  EXPECT_EQ(CachedTokens("\"usage\""), std::nullopt);
  EXPECT_EQ(CachedTokens(""), std::nullopt);
}

TEST(GatewayUsage, EverySplitOfAStreamGivesTheSameBytesAndFigure) {
  const std::string text =
      "data: {\"choices\":[{\"text\":\"hi\"}],\"usage\":null}\n\n: comment\n\ndata: " + Usage(42) +
      "\n\ndata: [DONE]\n\n";
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); second += 7) {
      const Relayed relayed =
          Relay({text.substr(0, first), text.substr(first, second - first), text.substr(second)});
      ASSERT_EQ(relayed.bytes, text) << first << ", " << second;
      ASSERT_EQ(relayed.cached, 42u) << first << ", " << second;
    }
  }
}

TEST(GatewayUsage, EachByteByItselfIsTheSameStream) {
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    const std::string text = "data:" + Usage(7) + end + end + "data: {}" + end + end;
    std::vector<std::string> pieces;
    for (const char c : text) pieces.emplace_back(1, c);
    const Relayed relayed = Relay(pieces);
    EXPECT_EQ(relayed.bytes, text);
    EXPECT_EQ(relayed.cached, 7u);
  }
}

TEST(GatewayUsage, TheLastEventThatCarriesItWins) {
  EXPECT_EQ(
      Relay({"data: " + Usage(1) + "\n\ndata: " + Usage(2) + "\n\ndata: {\"usage\":null}\n\n"})
          .cached,
      2u);
}

TEST(GatewayUsage, OnlyDataFieldsCount) {
  EXPECT_EQ(Relay({": " + Usage(1) + "\n\nevent: " + Usage(2) + "\n\n"}).cached, std::nullopt);
}

TEST(GatewayUsage, AnEmptyUsageBesideTheRealOneDoesNotHideIt) {
  EXPECT_EQ(Relay({"data: {\"delta\":{\"usage\":null},\"usage\" : "
                   "{\"prompt_tokens_details\":{\"cached_tokens\":6}}}\n\n"})
                .cached,
            6u);
}

TEST(GatewayUsage, TextAboutUsageIsNotUsage) {
  const std::string text =
      R"(data: {"choices":[{"text":"say \"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":5}}"}]})"
      "\n\n";
  EXPECT_EQ(Relay({text}).cached, std::nullopt);
}

TEST(GatewayUsage, AWholeEventIsNotHeldBack) {
  SseStream stream;
  std::string bytes = "data: {\"a\":1}\n\n";
  stream.Feed(bytes);
  EXPECT_EQ(bytes, "data: {\"a\":1}\n\n");
}

TEST(GatewayUsage, HalfALineIsHeldUntilItIsWhole) {
  SseStream stream;
  std::string bytes = "data: one\n\ndata: t";
  stream.Feed(bytes);
  EXPECT_EQ(bytes, "data: one\n\n");
  bytes = "wo";
  stream.Feed(bytes);
  EXPECT_EQ(bytes, "");
  bytes = "\n";
  stream.Feed(bytes);
  EXPECT_EQ(bytes, "data: two\n");
}

TEST(GatewayUsage, ALastLineWithoutAnEndIsReadAndRelayed) {
  const Relayed relayed = Relay({"data: " + Usage(3)});
  EXPECT_EQ(relayed.bytes, "data: " + Usage(3));
  EXPECT_EQ(relayed.cached, 3u);
}

TEST(GatewayUsage, AnEndlessLineIsNotCollected) {
  SseStream stream;
  std::size_t relayed = 0;
  std::size_t fed = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes(1000, 'x');
    fed += bytes.size();
    stream.Feed(bytes);
    relayed += bytes.size();
    ASSERT_LE(fed - relayed, SseStream::kMaxHeldLine);
  }
  // The next line is read again.
  std::string bytes = "\"usage\"\ndata: " + Usage(9) + "\n";
  stream.Feed(bytes);
  EXPECT_EQ(stream.cached_tokens(), 9u);
  EXPECT_EQ(stream.TakeRest(), "");
}

TEST(GatewayUsage, ABrokenStreamLosesItsHalfLineAndNothingElse) {
  SseStream stream;
  std::string bytes = "data: whole\ndata: hal";
  stream.Feed(bytes);
  EXPECT_EQ(bytes, "data: whole\n");
  EXPECT_EQ(stream.Separator(), "\n");
  EXPECT_EQ(stream.TakeRest(), "");
}

// What is already with the client must be ended as a line and as an event.
TEST(GatewayUsage, ABreakInsideALongLineEndsTheLine) {
  SseStream stream;
  std::string bytes = "data: " + std::string(SseStream::kMaxHeldLine, 'x');
  const std::size_t size = bytes.size();
  stream.Feed(bytes);
  EXPECT_EQ(bytes.size(), size);
  EXPECT_EQ(stream.Separator(), "\n\n");
}

}  // namespace
}  // namespace xms::gateway
