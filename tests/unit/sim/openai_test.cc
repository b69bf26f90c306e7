#include "sim/openai.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "sim/tokens.h"

namespace xms::sim {
namespace {

using Json = nlohmann::json;
using Tokens = std::vector<std::uint32_t>;

ApiRequest Parsed(ApiKind kind, std::string_view body) {
  auto parsed = ParseApiRequest(kind, body);
  const auto* error = std::get_if<ApiError>(&parsed);
  EXPECT_EQ(error, nullptr) << (error ? error->message : "");
  return error ? ApiRequest{} : std::get<ApiRequest>(parsed);
}
ApiError Refused(ApiKind kind, std::string_view body) {
  auto parsed = ParseApiRequest(kind, body);
  EXPECT_TRUE(std::holds_alternative<ApiError>(parsed)) << body;
  const auto* error = std::get_if<ApiError>(&parsed);
  return error ? *error : ApiError{.status = 0};
}

TEST(SimOpenAi, TakesEveryFormOfPrompt) {
  EXPECT_EQ(Parsed(ApiKind::kCompletion, R"({"prompt":"Hi!"})").prompt, (Tokens{'H', 'i', '!'}));
  EXPECT_EQ(Parsed(ApiKind::kCompletion, R"({"prompt":["Hi!"]})").prompt, (Tokens{'H', 'i', '!'}));
  EXPECT_EQ(Parsed(ApiKind::kCompletion, R"({"prompt":[0,4294967295,7]})").prompt,
            (Tokens{0, 4294967295U, 7}));
  EXPECT_EQ(Parsed(ApiKind::kCompletion, R"({"prompt":[[5,6]]})").prompt, (Tokens{5, 6}));
  EXPECT_EQ(Parsed(ApiKind::kCompletion, R"({"prompt":"\u00e9"})").prompt, (Tokens{0xc3, 0xa9}));
}

TEST(SimOpenAi, ReadsWhatItServesAndIgnoresTheRest) {
  const ApiRequest plain = Parsed(ApiKind::kCompletion, R"({"prompt":[1]})");
  EXPECT_EQ(plain.max_tokens, kDefaultCompletionTokens);
  EXPECT_FALSE(plain.stream);
  EXPECT_FALSE(plain.include_usage);
  const ApiRequest full =
      Parsed(ApiKind::kCompletion,
             R"({"model":"m","prompt":[1],"max_tokens":3,"n":1,"stream":true,"temperature":0.5,
          "stream_options":{"include_usage":true,"x":1},"unknown":{"deep":[1]},"stop":null})");
  EXPECT_EQ(full.model, "m");
  EXPECT_EQ(full.max_tokens, 3U);
  EXPECT_TRUE(full.stream);
  EXPECT_TRUE(full.include_usage);
  EXPECT_EQ(Parsed(ApiKind::kCompletion, R"({"prompt":[1],"max_tokens":null})").max_tokens,
            kDefaultCompletionTokens);
  EXPECT_EQ(Parsed(ApiKind::kChat,
                   R"({"messages":[{"role":"user","content":"x"}],"max_completion_tokens":9})")
                .max_tokens,
            9U);
}

// So that a conversation's next turn finds everything said before in the cache, the answer included.
TEST(SimOpenAi, AChatThatGoesOnBeginsWithAllThatWasSaidBefore) {
  const Tokens first =
      Parsed(ApiKind::kChat,
             R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"Hello"}]})")
          .prompt;
  Tokens said = first;
  std::string answer;
  for (std::uint32_t i = 0; i < 20; ++i) {
    said.push_back(GeneratedToken(PromptDigest(first), i));
    AppendTokenText(said.back(), answer);
  }
  const Json next{{"messages",
                   {{{"role", "system"}, {"content", "S"}},
                    {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Hello"}}}}},
                    {{"role", "assistant"}, {"content", answer}},
                    {{"role", "user"}, {"content", "And then?"}}}}};
  Tokens second = Parsed(ApiKind::kChat, next.dump()).prompt;
  ASSERT_GT(second.size(), said.size());
  second.resize(said.size());
  EXPECT_EQ(second, said);
}

TEST(SimOpenAi, RefusesWithTheMemberThatIsWrong) {
  const auto completion = [](std::string_view body) {
    return Refused(ApiKind::kCompletion, body).param;
  };
  EXPECT_EQ(completion(R"({"prompt":[-1]})"), "prompt");
  EXPECT_EQ(completion(R"({"prompt":[1,4294967296]})"), "prompt");
  EXPECT_EQ(completion(R"({"prompt":[1.5]})"), "prompt");
  EXPECT_EQ(completion(R"({"prompt":[1,"a"]})"), "prompt");
  EXPECT_EQ(completion(R"({"prompt":["a","b"]})"), "prompt");
  EXPECT_EQ(completion(R"({"prompt":[]})"), "prompt");
  EXPECT_EQ(completion(R"({"prompt":""})"), "prompt");
  EXPECT_EQ(completion(R"({"prompt":{}})"), "prompt");
  EXPECT_EQ(completion(R"({})"), "prompt");
  EXPECT_EQ(completion(R"({"prompt":[1],"model":5})"), "model");
  EXPECT_EQ(completion(R"({"prompt":[1],"max_tokens":0})"), "max_tokens");
  EXPECT_EQ(completion(R"({"prompt":[1],"max_tokens":-3})"), "max_tokens");
  EXPECT_EQ(completion(R"({"prompt":[1],"max_tokens":"3"})"), "max_tokens");
  EXPECT_EQ(completion(R"({"prompt":[1],"n":2})"), "n");
  EXPECT_EQ(completion(R"({"prompt":[1],"stream":1})"), "stream");
  EXPECT_EQ(completion(R"({"prompt":[1],"stream_options":[]})"), "stream_options");
  const auto chat = [](std::string_view body) { return Refused(ApiKind::kChat, body).param; };
  EXPECT_EQ(chat(R"({"messages":[]})"), "messages");
  EXPECT_EQ(chat(R"({"messages":"hi"})"), "messages");
  EXPECT_EQ(chat(R"({"messages":[{"content":"hi"}]})"), "messages");
  EXPECT_EQ(chat(R"({"messages":[{"role":"user","content":5}]})"), "messages");
  EXPECT_EQ(chat(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})"), "messages");
  for (const std::string_view body : {"", "{", "[]", "null", "{\"prompt\":[1]}x"}) {
    const ApiError error = Refused(ApiKind::kCompletion, body);
    EXPECT_EQ(error.status, 400) << body;
    EXPECT_EQ(error.type, "invalid_request_error");
  }
}

TEST(SimOpenAi, ErrorsAreOpenAiObjects) {
  const Json error = Json::parse(ApiErrorJson({.message = "a \"quoted\"\nline", .param = "n"}));
  EXPECT_EQ(error, (Json{{"error",
                          {{"message", "a \"quoted\"\nline"},
                           {"type", "invalid_request_error"},
                           {"param", "n"},
                           {"code", nullptr}}}}));
}

const AnswerHead kCompletionHead{ApiKind::kCompletion, "cmpl-1", 1760000000, "m\"1\""};
const AnswerHead kChatHead{ApiKind::kChat, "chatcmpl-1", 1760000000, "m"};
const Usage kUsage{.prompt_tokens = 10, .completion_tokens = 2, .cached_tokens = 8};

TEST(SimOpenAi, WholeAnswersHaveTheShapeOfTheirKind) {
  const Json completion = Json::parse(WholeAnswer(kCompletionHead, "ab", kUsage));
  EXPECT_EQ(completion["object"], "text_completion");
  EXPECT_EQ(completion["model"], "m\"1\"");
  EXPECT_EQ(completion["choices"][0]["text"], "ab");
  EXPECT_EQ(completion["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(completion["usage"], (Json{{"prompt_tokens", 10},
                                       {"completion_tokens", 2},
                                       {"total_tokens", 12},
                                       {"prompt_tokens_details", {{"cached_tokens", 8}}}}));
  const Json chat = Json::parse(WholeAnswer(kChatHead, "ab", kUsage));
  EXPECT_EQ(chat["object"], "chat.completion");
  EXPECT_EQ(chat["choices"][0]["message"], (Json{{"role", "assistant"}, {"content", "ab"}}));
}

Json EventJson(const std::string& event) {
  EXPECT_TRUE(event.starts_with("data: ") && event.ends_with("\n\n")) << event;
  return Json::parse(event.substr(6));
}

TEST(SimOpenAi, EventsHaveTheShapeOfTheirKindAndUsageOnlyWhenAsked) {
  EXPECT_EQ(EventJson(RoleEvent(kChatHead, false))["choices"][0]["delta"],
            (Json{{"role", "assistant"}, {"content", ""}}));
  const Json text = EventJson(TextEvent(kChatHead, "a", false));
  EXPECT_EQ(text["object"], "chat.completion.chunk");
  EXPECT_EQ(text["choices"][0]["delta"], (Json{{"content", "a"}}));
  EXPECT_EQ(text["choices"][0]["finish_reason"], nullptr);
  EXPECT_FALSE(text.contains("usage"));
  EXPECT_EQ(EventJson(EndEvent(kChatHead, false))["choices"][0]["finish_reason"], "length");
  const Json part = EventJson(TextEvent(kCompletionHead, "a", true));
  EXPECT_EQ(part["object"], "text_completion");
  EXPECT_EQ(part["choices"][0]["text"], "a");
  EXPECT_TRUE(part["usage"].is_null());
  const Json usage = EventJson(UsageEvent(kCompletionHead, kUsage));
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 8);
}

}  // namespace
}  // namespace xms::sim
