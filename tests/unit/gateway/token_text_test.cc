#include "gateway/internal/token_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "gateway/completion_request.h"

namespace xms::gateway::internal {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::uint32_t>;

struct Result {
  bool plain = false;
  Ids tokens;
  std::string text;
  std::string rest;
};

Result Read(const std::string& json) {
  Result result;
  const std::size_t end = ReadTokenArray(json, 0, result.tokens, result.text);
  result.plain = end != kNotFound;
  if (result.plain) result.rest = json.substr(end);
  return result;
}

TEST(GatewayTokenText, ReadsPlainArraysOfEachLengthOfNumber) {
  for (const std::string& number :
       {std::string("0"), std::string("9"), std::string("10"), std::string("999"),
        std::string("1234"), std::string("12345"), std::string("999999"), std::string("1234567"),
        std::string("12345678"), std::string("123456789"), std::string("1234567890"),
        std::string("4294967295")}) {
    const Result result = Read("[" + number + "," + number + "]}");
    ASSERT_TRUE(result.plain) << number;
    EXPECT_EQ(result.tokens, Ids(2, static_cast<std::uint32_t>(std::stoull(number))));
    EXPECT_EQ(result.text, "[" + number + "," + number + "]");
    EXPECT_EQ(result.rest, "}");
  }
}

// Near its end the text is read byte by byte: each distance must give the same.
TEST(GatewayTokenText, ReadsTheSameAtEachDistanceFromTheEnd) {
  for (std::size_t left = 0; left < 40; ++left) {
    const Result result = Read("[1,22,333]" + std::string(left, ' '));
    ASSERT_TRUE(result.plain) << left;
    EXPECT_EQ(result.tokens, (Ids{1, 22, 333}));
    EXPECT_EQ(result.text, "[1,22,333]");
  }
}

TEST(GatewayTokenText, WhiteSpaceIsNotCopied) {
  const Result result = Read("[ 1 ,\t2\r\n,\n\n3 ] ,");
  ASSERT_TRUE(result.plain);
  EXPECT_EQ(result.tokens, (Ids{1, 2, 3}));
  EXPECT_EQ(result.text, "[1,2,3]");
  EXPECT_EQ(result.rest, " ,");
}

TEST(GatewayTokenText, EverythingElseIsLeftToTheParser) {
  for (const std::string& json : {std::string("["),
                                  std::string("[]"),
                                  std::string("[1"),
                                  std::string("[1,"),
                                  std::string("[1,]"),
                                  std::string("[,1]"),
                                  std::string("[1 2]"),
                                  std::string("[-1]"),
                                  std::string("[-0]"),
                                  std::string("[01]"),
                                  std::string("[00]"),
                                  std::string("[1.0]"),
                                  std::string("[1e3]"),
                                  std::string("[4294967296]"),
                                  std::string("[9999999999]"),
                                  std::string("[12345678901]"),
                                  std::string("[18446744073709551617]"),
                                  std::string("[\"1\"]"),
                                  std::string("[null]"),
                                  std::string("[[1]]"),
                                  std::string("[1}"),
                                  std::string("[0x1]"),
                                  std::string("[1\v]"),
                                  std::string("[1\0]", 4),
                                  std::string("[+1]"),
                                  std::string("[1;2]")}) {
    EXPECT_FALSE(Read(json).plain) << json;
    // The same with text behind, where numbers are read eight bytes at a time.
    EXPECT_FALSE(Read(json + ",\"key\":\"0123456789\"}").plain) << json;
  }
}

TEST(GatewayTokenText, FindsTheKeyAtTheTopOnly) {
  const auto found = [](const std::string& json) {
    const std::size_t at = FindTopArray(json, "prompt");
    return at == kNotFound ? std::string("-") : json.substr(at, 3);
  };
  EXPECT_EQ(found(R"({"prompt":[1]})"), "[1]");
  EXPECT_EQ(found(R"( { "model" : "m" , "prompt" : [2]})"), "[2]");
  EXPECT_EQ(found(R"({"a":{"prompt":[1]},"prompt":[2]})"), "[2]");
  EXPECT_EQ(found(R"({"a":[{"prompt":[1]}],"prompt":[2]})"), "[2]");
  EXPECT_EQ(found(R"({"a":"\"prompt\":[1]","prompt":[2]})"), "[2]");
  EXPECT_EQ(found(R"({"a":"\\","prompt":[2]})"), "[2]");
  EXPECT_EQ(found(R"({"a":"}],","b":-1.5e3,"c":true,"d":[],"e":{},"prompt":[2]})"), "[2]");
  EXPECT_EQ(found(R"({"prompts":[1],"prompt":[2]})"), "[2]");
  for (const char* json :
       {"", "{", "{}", "[1]", R"({"prompt")", R"({"prompt":)", R"({"prompt":"x"})", R"({"a":1})",
        R"({"a":1)", R"({"a":"x)", R"({"a":"x\)", R"({"a":[1})", R"({"a":{"prompt":[1]}})",
        R"({"\u0070rompt":[1]})", R"({"a" "prompt":[1]})", R"({"x":"prompt":[1]})",
        R"([{"prompt":[1]}])"}) {
    EXPECT_EQ(found(json), "-") << json;
  }
}

TEST(GatewayTokenText, LooksOnlySoFar) {
  const std::string far = R"({"a":")" + std::string(10000, 'x') + R"(","prompt":[1]})";
  EXPECT_EQ(FindTopArray(far, "prompt"), kNotFound);
}

// A document is accepted or refused, and means the same, whether its prompt is read ahead or (behind
// a long field) by the parser: mutated at random, so that most are broken in some way.
TEST(GatewayTokenText, BothWaysAgreeOnMutatedDocuments) {
  const std::string far = R"("far":")" + std::string(10000, 'x') + R"(",)";
  std::mt19937 random(5);
  CompletionParser parser;
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string inside =
        R"("m":"a\"b","prompt":[1, 23,456 ,78901234,4294967295],"n":[{"prompt":[7]}],"e":{}})";
    for (unsigned changes = random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % inside.size();
      static constexpr std::string_view kBytes = "[]{},:\"\\0123456789.-e \npromtx";
      const char byte = kBytes[random() % kBytes.size()];
      switch (random() % 3) {
        case 0:
          inside[at] = byte;
          break;
        case 1:
          inside.insert(at, 1, byte);
          break;
        default:
          inside.erase(at, 1);
      }
    }
    CompletionRequest ahead;
    CompletionRequest behind;
    const auto ahead_error = parser.Parse(CompletionApi::kCompletions, "{" + inside, ahead);
    const Ids ahead_tokens(ahead.tokens.begin(), ahead.tokens.end());
    const auto behind_error = parser.Parse(CompletionApi::kCompletions, "{" + far + inside, behind);
    ASSERT_EQ(ahead_error.has_value(), behind_error.has_value())
        << "seed 5, round " << round << ": {" << inside;
    if (ahead_error.has_value()) {
      ASSERT_EQ(ahead_error->message, behind_error->message) << inside;
      continue;
    }
    ++accepted;
    ASSERT_EQ(ahead.tokenized, behind.tokenized) << inside;
    ASSERT_EQ(ahead_tokens, Ids(behind.tokens.begin(), behind.tokens.end())) << inside;
    ASSERT_EQ("{" + far + ahead.body.substr(1), behind.body) << inside;
  }
  EXPECT_GT(accepted, 2000);
}

}  // namespace
}  // namespace xms::gateway::internal
