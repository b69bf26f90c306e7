#include "gateway/completion_request.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace xms::gateway {
namespace {

using Json = nlohmann::json;

class GatewayCompletionRequest : public ::testing::Test {
 protected:
  bool Accepts(const std::string& body, CompletionApi api = CompletionApi::kCompletions) {
    error_ = parser_.Parse(api, body, parsed_);
    return !error_.has_value();
  }
  bool AcceptsChat(const std::string& body) {
    return Accepts(body, CompletionApi::kChatCompletions);
  }
  std::vector<std::uint32_t> Tokens() const {
    return {parsed_.tokens.begin(), parsed_.tokens.end()};
  }

  CompletionParser parser_;
  CompletionRequest parsed_;
  std::optional<GatewayError> error_;
};

TEST_F(GatewayCompletionRequest, AnArrayOfTokenIdsIsTokenized) {
  ASSERT_TRUE(Accepts(R"({"model":"m","prompt":[0, 1,4294967295],"max_tokens":5})"));
  EXPECT_TRUE(parsed_.tokenized);
  EXPECT_EQ(Tokens(), (std::vector<std::uint32_t>{0, 1, 4294967295}));
  EXPECT_EQ(parsed_.body, R"({"model":"m","prompt":[0,1,4294967295],"max_tokens":5})");
}

TEST_F(GatewayCompletionRequest, AnEmptyArrayIsATokenizedPromptOfNothing) {
  ASSERT_TRUE(Accepts(R"({"prompt":[]})"));
  EXPECT_TRUE(parsed_.tokenized);
  EXPECT_TRUE(parsed_.tokens.empty());
  EXPECT_EQ(parsed_.body, R"({"prompt":[]})");
}

TEST_F(GatewayCompletionRequest, ASingleInnerArrayIsTokenized) {
  ASSERT_TRUE(Accepts(R"({"prompt":[[7,8]]})"));
  EXPECT_TRUE(parsed_.tokenized);
  EXPECT_EQ(Tokens(), (std::vector<std::uint32_t>{7, 8}));
  EXPECT_EQ(parsed_.body, R"({"prompt":[[7,8]]})");
}

TEST_F(GatewayCompletionRequest, SeveralPromptsAreRelayedAndNotTokenized) {
  ASSERT_TRUE(Accepts(R"({"prompt":[[1,2],[],[3]]})"));
  EXPECT_FALSE(parsed_.tokenized);
  EXPECT_TRUE(parsed_.tokens.empty());
  EXPECT_EQ(parsed_.body, R"({"prompt":[[1,2],[],[3]]})");
  ASSERT_TRUE(Accepts(R"({"prompt":["a","b"]})"));
  EXPECT_FALSE(parsed_.tokenized);
  EXPECT_EQ(parsed_.body, R"({"prompt":["a","b"]})");
}

TEST_F(GatewayCompletionRequest, TextAndChatAreNotTokenized) {
  ASSERT_TRUE(Accepts(R"({"prompt":"hello"})"));
  EXPECT_FALSE(parsed_.tokenized);
  ASSERT_TRUE(AcceptsChat(R"({"messages":[{"role":"user","content":"hi"}]})"));
  EXPECT_FALSE(parsed_.tokenized);
  EXPECT_TRUE(parsed_.tokens.empty());
}

TEST_F(GatewayCompletionRequest, PromptEmbedsStandInForThePrompt) {
  EXPECT_TRUE(Accepts(R"({"prompt":null,"prompt_embeds":"AAAA"})"));
  EXPECT_FALSE(parsed_.tokenized);
  EXPECT_FALSE(Accepts(R"({"prompt":null,"prompt_embeds":null})"));
}

TEST_F(GatewayCompletionRequest, UnknownFieldsStayInOrderWithRepetitions) {
  const std::string body =
      R"({"zzz":{"a":[1,null,true,false,{"b":{}}]},"prompt":"x","guided_json":{"type":"object"},)"
      R"("zzz":2,"":""})";
  ASSERT_TRUE(Accepts(body));
  EXPECT_EQ(parsed_.body, body);
}

// `messages` in a completion and `prompt` in a chat are not read, so they are not judged.
TEST_F(GatewayCompletionRequest, FieldsOfTheOtherApiAreUnknownFields) {
  EXPECT_TRUE(Accepts(R"({"prompt":"x","messages":7,"messages":8})"));
  EXPECT_TRUE(AcceptsChat(R"({"messages":[{}],"prompt":7,"prompt":8})"));
}

TEST_F(GatewayCompletionRequest, NumbersSurviveExactly) {
  const std::string body =
      R"({"prompt":"x","a":18446744073709551615,"b":-9223372036854775808,"c":1.0,"d":-0.0,)"
      R"("e":0.30000000000000004,"f":1e+300,"g":5e-324,"h":9007199254740993})";
  ASSERT_TRUE(Accepts(body));
  EXPECT_EQ(parsed_.body, body);
}

// What we do not read we need not be able to hold either: it is the engine's to judge.
TEST_F(GatewayCompletionRequest, NumbersOfAnySizeAndSpellingArePassedOn) {
  const std::string body =
      R"({"prompt":"x","a":18446744073709551616,"b":-9223372036854775809,"c":1e999,"d":-1E-999,)"
      R"("e":1.10,"f":1E+5,"g":{"h":[0.1000000000000000055511151231257827,1e-400,-0]},)"
      R"("prompt_embeds":123456789012345678901234567890})";
  ASSERT_TRUE(Accepts(body)) << error_->message;
  EXPECT_EQ(parsed_.body, body);
  const std::string chat =
      R"({"messages":[{"content":"hi","seed":1e999}],"stream_options":{"x":99999999999999999999}})";
  ASSERT_TRUE(AcceptsChat(chat)) << error_->message;
  EXPECT_EQ(parsed_.body, chat);
}

TEST_F(GatewayCompletionRequest, StringsSurviveWhateverTheirSpelling) {
  ASSERT_TRUE(Accepts(R"({"prompt":"\u00e9\ud83d\ude00\/\u0000\t\u001f\u2028","\u0070":1})"));
  const Json written = Json::parse(parsed_.body);
  EXPECT_EQ(written["prompt"].get<std::string>(),
            std::string("\xc3\xa9\xf0\x9f\x98\x80/") + '\0' + "\t\x1f\xe2\x80\xa8");
  EXPECT_EQ(written["p"], 1);
}

// A key is the same however it is spelt: an escaped one must not slip past the check.
TEST_F(GatewayCompletionRequest, AnEscapedKeyIsTheSameKey) {
  ASSERT_FALSE(Accepts(R"({"prompt":[1],"\u0070rompt":[2]})"));
  EXPECT_EQ(error_->kind, ErrorKind::kDuplicateField);
  EXPECT_EQ(error_->param, "prompt");
}

TEST_F(GatewayCompletionRequest, WhatItReadsMayOccurOnce) {
  for (const std::string field : {"model", "stream", "stream_options", "prompt", "prompt_embeds"}) {
    ASSERT_FALSE(Accepts("{\"" + field + "\":null,\"prompt\":\"x\",\"" + field + "\":null}"))
        << field;
    EXPECT_EQ(error_->kind, ErrorKind::kDuplicateField) << field;
    EXPECT_EQ(error_->param, field);
  }
  ASSERT_FALSE(AcceptsChat(R"({"messages":[{}],"messages":[{}]})"));
  EXPECT_EQ(error_->param, "messages");
}

struct Refusal {
  const char* body;
  const char* param;
  const char* message_part;
};

TEST_F(GatewayCompletionRequest, WrongTypesAreNamedWithWhatIsAllowed) {
  const Refusal refusals[] = {
      {R"({"prompt":"x","model":5})", "model", "`model` is a number; allowed: a string"},
      {R"({"prompt":"x","stream":"yes"})", "stream", "`stream` is a string; allowed: true, false"},
      {R"({"prompt":"x","stream_options":true})", "stream_options", "is a boolean"},
      {R"({"prompt":7})", "prompt", "`prompt` is a number; allowed: a string, an array"},
      {R"({"prompt":{}})", "prompt", "`prompt` is an object"},
      {R"({"prompt":[true]})", "prompt", "`prompt[0]` is not a number"},
      {R"({"prompt":[{}]})", "prompt", "`prompt[0]` is not a number"},
      {R"({"prompt":[null]})", "prompt", "`prompt[0]` is not a number"},
      {R"({"prompt":[1,-2]})", "prompt", "`prompt[1]` is negative"},
      {R"({"prompt":[1,2,4294967296]})", "prompt", "`prompt[2]` is above 4294967295"},
      {R"({"prompt":[18446744073709551615]})", "prompt", "`prompt[0]` is above 4294967295"},
      {R"({"prompt":[1,18446744073709551616]})", "prompt", "`prompt[1]` is above 4294967295"},
      {R"({"prompt":[[1,99999999999999999999]]})", "prompt", "`prompt[0][1]` is above 4294967295"},
      {R"({"prompt":[-9223372036854775809]})", "prompt", "`prompt[0]` is negative"},
      {R"({"prompt":[1e999]})", "prompt", "`prompt[0]` is written as a fraction"},
      {R"({"prompt":[1.0]})", "prompt", "`prompt[0]` is written as a fraction"},
      {R"({"prompt":[1,1e3]})", "prompt", "`prompt[1]` is written as a fraction"},
      {R"({"prompt":[1,"a"]})", "prompt", "`prompt[1]` is not a number"},
      {R"({"prompt":["a",1]})", "prompt", "`prompt[1]` is a number among strings"},
      {R"({"prompt":[[1],2]})", "prompt", "`prompt[1]` is a number among arrays"},
      {R"({"prompt":[[1],[2,-3]]})", "prompt", "`prompt[1][1]` is negative"},
      {R"({"prompt":[["a"]]})", "prompt", "`prompt[0][0]` is not a number"},
      {R"({"model":"m"})", "prompt", "`prompt` is missing"},
      {R"({"prompt":null})", "prompt", "`prompt` is missing"},
  };
  for (const Refusal& refusal : refusals) {
    ASSERT_FALSE(Accepts(refusal.body)) << refusal.body;
    EXPECT_EQ(error_->param, refusal.param) << refusal.body;
    EXPECT_NE(error_->message.find(refusal.message_part), std::string::npos)
        << refusal.body << " -> " << error_->message;
    EXPECT_EQ(RowOf(error_->kind).status, 400);
  }
}

TEST_F(GatewayCompletionRequest, ChatNeedsAtLeastOneMessage) {
  for (const char* body : {R"({"model":"m"})", R"({"messages":null})", R"({"messages":[]})",
                           R"({"messages":"x"})", R"({"messages":{}})"}) {
    ASSERT_FALSE(AcceptsChat(body)) << body;
    EXPECT_EQ(error_->param, "messages");
  }
}

TEST_F(GatewayCompletionRequest, BadJsonIsExplainedWithoutQuotingIt) {
  const Refusal refusals[] = {
      {"", "", "it is empty"},
      {"   ", "", "it is empty"},
      {"{bad", "", "missing or superfluous"},
      {"{\"prompt\":\"x\"", "", "missing or superfluous"},
      {"{\"prompt\":\"x\"} {}", "", "missing or superfluous"},
      {"{\"prompt\":\"secret", "", "not closed"},
      {"{\"prompt\":\"\xff\"}", "", "not valid UTF-8"},
      {"{\"prompt\":\"\\ud800\"}", "", "escape"},
      {"{\"prompt\":\"\\udc00\"}", "", "escape"},
      {"{\"prompt\":\"a\nb\"}", "", "control character"},
      {"{\"prompt\":\"x\",\"n\":1e}", "", "a number"},
      {"{\"prompt\":\"x\",\"n\":[1,{\"m\":1.}]}", "", "a number"},
      {"{\"prompt\":\"x\",\"n\":01}", "", "a number"},
      {"{\"prompt\":\"x\",\"n\":NaN}", "", "missing or superfluous"},
      {"{\"prompt\":\"x\",\"n\":nil}", "", "neither true, false nor null"},
      {"\xef\xbb\xbf{\"prompt\":\"x\"}", "", "missing or superfluous"},
      {"[]", "", "is an array; allowed: a JSON object"},
      {"null", "", "is null; allowed: a JSON object"},
      {"\"secret\"", "", "is a string; allowed: a JSON object"},
  };
  for (const Refusal& refusal : refusals) {
    ASSERT_FALSE(Accepts(refusal.body)) << refusal.body;
    EXPECT_EQ(error_->kind, ErrorKind::kInvalidJson) << refusal.body;
    EXPECT_NE(error_->message.find(refusal.message_part), std::string::npos)
        << refusal.body << " -> " << error_->message;
    EXPECT_EQ(error_->message.find("secret"), std::string::npos);
  }
}

// No token id and no text may come back in a message: messages are logged and shown.
TEST_F(GatewayCompletionRequest, MessagesNeverQuoteThePrompt) {
  for (const char* body :
       {R"({"prompt":[-31337]})", R"({"prompt":[31337.5]})", R"({"prompt":[99999931337]})",
        R"({"prompt":["31337",1]})", R"({"prompt":[1,"31337"]})"}) {
    ASSERT_FALSE(Accepts(body)) << body;
    EXPECT_EQ(error_->message.find("31337"), std::string::npos) << error_->message;
  }
}

TEST_F(GatewayCompletionRequest, NestingIsBounded) {
  const auto nested = [](std::size_t levels) {
    return R"({"prompt":"x","deep":)" + std::string(levels, '[') + std::string(levels, ']') + "}";
  };
  EXPECT_TRUE(Accepts(nested(120)));
  ASSERT_FALSE(Accepts(nested(130)));
  EXPECT_NE(error_->message.find("nested deeper"), std::string::npos) << error_->message;
  EXPECT_FALSE(Accepts(nested(200000)));
}

// Its buffers are given back after a large one and grow again; the depth limit must survive that.
TEST_F(GatewayCompletionRequest, ServesSmallAfterLargeAfterSmall) {
  const std::string large =
      R"({"prompt":")" + std::string(3 * 1024 * 1024, 'a') + R"(","tail":[1,2,3]})";
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(Accepts(large));
    EXPECT_EQ(parsed_.body, large);
    ASSERT_TRUE(Accepts(R"({"prompt":[1,2]})"));
    EXPECT_EQ(Tokens(), (std::vector<std::uint32_t>{1, 2}));
    EXPECT_FALSE(
        Accepts(R"({"prompt":"x","deep":)" + std::string(150, '[') + std::string(150, ']') + "}"));
  }
}

TEST_F(GatewayCompletionRequest, LongTokenArraysComeThroughWhole) {
  std::mt19937 random(7);
  for (const std::size_t count : {1u, 371u, 372u, 373u, 409u, 410u, 12000u, 131072u}) {
    std::vector<std::uint32_t> tokens(count);
    std::string text;
    for (std::uint32_t& token : tokens) {
      token = random() >> (random() % 32);
      text += (text.empty() ? "" : ", ") + std::to_string(token);
    }
    ASSERT_TRUE(Accepts(R"({"prompt":[)" + text + R"(],"n":1})"));
    ASSERT_EQ(Tokens(), tokens) << "seed 7, " << count << " tokens";
    ASSERT_EQ(Json::parse(parsed_.body)["prompt"].get<std::vector<std::uint32_t>>(), tokens);
  }
}

// Whatever is accepted means the same before and after, for another parser too.
TEST_F(GatewayCompletionRequest, RandomDocumentsMeanTheSameAfterwards) {
  std::mt19937_64 random(11);
  const std::function<Json(int)> make = [&](int depth) -> Json {
    switch (random() % (depth > 4 ? 6 : 8)) {
      case 0:
        return nullptr;
      case 1:
        return random() % 2 == 0;
      case 2:
        return static_cast<std::int64_t>(random());
      case 3:
        return random();
      case 4:
        return std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 128) - 64);
      case 5: {
        std::string text;
        for (std::size_t left = random() % 20; left > 0; --left) {
          text += random() % 8 == 0 ? "\xf0\x9f\x98\x80"
                                    : std::string(1, static_cast<char>(random() % 0x80));
        }
        return text;
      }
      case 6: {
        Json array = Json::array();
        for (std::size_t left = random() % 5; left > 0; --left) array.push_back(make(depth + 1));
        return array;
      }
      default: {
        Json object = Json::object();
        for (std::size_t left = random() % 5; left > 0; --left) {
          object["k" + std::to_string(random() % 100)] = make(depth + 1);
        }
        return object;
      }
    }
  };
  for (int round = 0; round < 2000; ++round) {
    Json document = Json::object();
    document["prompt"] = "x";
    for (int i = 0; i < 4; ++i) document["f" + std::to_string(i)] = make(0);
    const std::string spelt =
        document.dump(static_cast<int>(random() % 3) - 1, ' ', random() % 2 == 0);
    ASSERT_TRUE(Accepts(spelt)) << "seed 11, round " << round;
    ASSERT_EQ(Json::parse(parsed_.body), document) << "seed 11, round " << round;
  }
}

}  // namespace
}  // namespace xms::gateway
