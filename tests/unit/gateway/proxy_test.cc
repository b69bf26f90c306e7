// A request's way through the gateway, with engines that do what the test says.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "tests/unit/gateway/proxy_fixture.h"

namespace xms::gateway {
namespace {

using std::chrono::milliseconds;

constexpr char kUsage[] =
    R"({"object":"text_completion","usage":{"prompt_tokens_details":{"cached_tokens":2}}})";

TEST_F(GatewayProxy, RelaysAnswerStatusAndBody) {
  Register(kA);
  Start();
  const Client client = Complete(R"({ "model": "m", "prompt": [1,2,3], "user": "u" })");
  ASSERT_EQ(plane_.calls.size(), 1u);
  EXPECT_EQ(Engine(0).request().instance, kA);
  EXPECT_EQ(Engine(0).request().request.method, "POST");
  EXPECT_EQ(Engine(0).request().request.target, "/v1/completions");
  EXPECT_EQ(Engine(0).request().request.body, R"({"model":"m","prompt":[1,2,3],"user":"u"})");
  EXPECT_EQ(client->status, 0);
  Engine(0).AnswerJson(200, kUsage);
  EXPECT_EQ(client->status, 200);
  EXPECT_EQ(client->body, kUsage);
  EXPECT_EQ(gateway_->requests_in_flight(), 0u);
}

TEST_F(GatewayProxy, EndToEndHeadersTravelAndOursDoNot) {
  Register(kA);
  Start({.internal_api_token = "t0k"});
  http::Request request = Request("POST", "/v1/chat/completions?beta=1", R"({"messages":[{}]})");
  request.headers.Add("Authorization", "Bearer k");
  request.headers.Add("X-Custom", "5");
  request.headers.Add("Cookie", "a=b");
  request.headers.Add("Content-Length", "19");
  request.headers.Add("Connection", "x-hop");
  request.headers.Add("X-Hop", "1");
  request.headers.Add("X-Internal-Token", "t0k");
  request.headers.Add("Content-MD5", "of other bytes");
  request.headers.Add("X-Request-ID", "abc-1");
  Send(request);
  const http::Request& seen = Engine(0).request().request;
  EXPECT_EQ(seen.target, "/v1/chat/completions?beta=1");
  EXPECT_EQ(*seen.headers.Find("authorization"), "Bearer k");
  EXPECT_EQ(*seen.headers.Find("x-custom"), "5");
  EXPECT_EQ(*seen.headers.Find("cookie"), "a=b");
  EXPECT_EQ(*seen.headers.Find("x-request-id"), "abc-1");
  for (const char* gone :
       {"Connection", "X-Hop", "X-Internal-Token", "Content-MD5", "Content-Length"}) {
    EXPECT_EQ(seen.headers.Find(gone), nullptr) << gone;
  }
  EXPECT_EQ(seen.headers.entries().size(), 4u);
}

TEST_F(GatewayProxy, TheClientsRequestIdIsTheDecisionsAndTheAnswers) {
  Register(kA);
  Start();
  http::Request request = Request("POST", "/v1/completions", R"({"prompt":[1]})");
  request.headers.Add("x-request-id", "mine");
  const Client client = Send(request);
  EXPECT_EQ(Decision()["request_id"], "mine");
  Engine(0).AnswerJson(200, "{}");
  EXPECT_EQ(Header(client, "x-request-id"), "mine");
}

TEST_F(GatewayProxy, AnUnfitOrAbsentRequestIdIsReplaced) {
  Register(kA);
  Start();
  for (const std::string& id : {std::string(), std::string("a b"), std::string(200, 'x')}) {
    http::Request request = Request("POST", "/v1/completions", R"({"prompt":[1]})");
    if (!id.empty()) request.headers.Add("x-request-id", id);
    const Client client = Send(request);
    plane_.calls.back()->AnswerJson(200, "{}");
    const std::string answered = Header(client, "x-request-id");
    EXPECT_EQ(answered.size(), 32u);
    EXPECT_NE(answered, id);
    EXPECT_EQ(*plane_.calls.back()->request().request.headers.Find("x-request-id"), answered);
    EXPECT_EQ(Decision()["request_id"], answered);
  }
}

TEST_F(GatewayProxy, AnEnginesErrorIsPassedOnAndNotTriedElsewhere) {
  Register(kA);
  Register(kB);
  Start();
  for (const int status : {400, 404, 429, 500, 503}) {
    const std::size_t before = plane_.calls.size();
    const Client client = Complete();
    http::Headers headers = Type("application/json");
    headers.Add("Retry-After", "7");
    plane_.calls.back()->Headers(status, headers);
    plane_.calls.back()->Body("{\"error\":\"mine\"}");
    plane_.calls.back()->End();
    EXPECT_EQ(client->status, status);
    EXPECT_EQ(client->body, "{\"error\":\"mine\"}");
    EXPECT_EQ(Header(client, "retry-after"), "7");
    EXPECT_EQ(plane_.calls.size(), before + 1);
  }
}

TEST_F(GatewayProxy, EventsAreRelayedOneByOneAndTheCacheFigureIsKept) {
  Register(kA);
  Start();
  const Client client = Complete(R"({"prompt":[1,2,3],"stream":true})");
  Engine(0).Headers(200, Type("text/event-stream"));
  clock_.Advance(milliseconds(25));
  for (const char* event : {"data: {\"n\":1}\n\n", "data: {\"n\":2}\n\n"}) {
    Engine(0).Body(event);
    loop_.RunPosted();
    EXPECT_TRUE(Engine(0).may_send());
    EXPECT_TRUE(client->body.ends_with(event));
  }
  Engine(0).Body("data: " + std::string(kUsage) + "\n\ndata: [DONE]\n\n");
  loop_.RunPosted();
  EXPECT_EQ(gateway_->requests_in_flight(), 1u);
  Engine(0).End();
  EXPECT_TRUE(client->finished);
  EXPECT_TRUE(client->body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(gateway_->requests_in_flight(), 0u);
  const Json decision = Decision();
  EXPECT_EQ(decision["cached_tokens"], 2);
  EXPECT_EQ(decision["ttft_ms"], 25);
  EXPECT_EQ(decision["status"], 200);
  EXPECT_TRUE(Counted("xms_prefix_tokens_delivered_total 2"));
  EXPECT_TRUE(Counted("xms_prefix_tokens_asked_total 3"));
  EXPECT_TRUE(Counted("xms_time_to_first_token_seconds_count 1"));
}

TEST_F(GatewayProxy, AnEnginesSilenceIsA504) {
  Register(kA);
  Start();
  const Client client = Complete();
  Engine(0).Fail(EngineStage::kSent, "nothing came", base::ErrorCode::kTimeout);
  EXPECT_EQ(client->status, 504);
  EXPECT_EQ(ErrorCode(client), "deadline_exceeded");
}

TEST_F(GatewayProxy, ModelsGoRoundTheInstancesThatCanServe) {
  Register(kA);
  Register(kB);
  Start();
  std::vector<std::string> asked;
  for (int i = 0; i < 4; ++i) {
    Send(Request("GET", "/v1/models"));
    asked.push_back(plane_.calls.back()->request().instance);
    plane_.calls.back()->AnswerJson(200, "{}");
  }
  EXPECT_EQ(std::count(asked.begin(), asked.end(), kA), 2);
}

// The drain limit has passed: whoever still waits learns why.
TEST_F(GatewayProxy, AServiceThatStopsEndsWhatIsInFlightWithAWord) {
  Register(kA);
  Start();
  const Client waiting = Complete();
  const Client streaming = Complete();
  Engine(1).Headers(200, Type("text/event-stream"));
  Engine(1).Body("data: 1\n\n");
  loop_.RunPosted();
  gateway_->EndAll();
  loop_.RunPosted();
  EXPECT_EQ(waiting->status, 503);
  EXPECT_NE(streaming->body.find("the service is stopping"), std::string::npos) << streaming->body;
  EXPECT_EQ(streaming->body.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(Engine(0).cancelled());
  EXPECT_TRUE(Engine(1).cancelled());
  EXPECT_EQ(gateway_->requests_in_flight(), 0u);
}

TEST_F(GatewayProxy, ABrokenStreamIsToldAndCut) {
  Register(kA);
  Register(kB);
  Start();
  const Client client = Complete(R"({"prompt":[1],"stream":true})");
  Engine(0).Headers(200, Type("text/event-stream"));
  Engine(0).Body("data: {\"n\":1}\n\n");
  loop_.RunPosted();
  Engine(0).Fail(EngineStage::kAnswering, "reset");
  loop_.RunPosted();
  EXPECT_TRUE(client->aborted);
  EXPECT_NE(client->body.find("engine_broke_off"), std::string::npos);
  EXPECT_EQ(client->body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(plane_.calls.size(), 1u);
  EXPECT_EQ(Decision()["status"], 502);
  EXPECT_EQ(gateway_->requests_in_flight(), 0u);
}

TEST_F(GatewayProxy, AClientThatLeavesBeforeTheAnswerCancelsTheEngine) {
  Register(kA);
  Start();
  const Client client = Complete();
  EXPECT_EQ(gateway_->requests_in_flight(), 1u);
  client->Leave();
  EXPECT_TRUE(Engine(0).cancelled());
  EXPECT_EQ(gateway_->requests_in_flight(), 0u);
  EXPECT_EQ(Decision()["status"], 499);
  EXPECT_TRUE(Counted("xms_client_disconnects_total 1"));
  EXPECT_TRUE(Counted("xms_requests_total{route=\"completions\",status=\"499\"} 1"));
}

TEST_F(GatewayProxy, AClientThatLeavesBeforeAWholeAnswerHasNoTimeToItsFirstByte) {
  Register(kA);
  Start();
  const Client client = Complete();
  Engine(0).Headers(200, Type("application/json"));
  Engine(0).Body("{");
  client->Leave();
  EXPECT_EQ(Decision()["status"], 499);
  EXPECT_TRUE(Decision()["ttft_ms"].is_null());
}

TEST_F(GatewayProxy, AClientThatLeavesAStreamCancelsTheEngine) {
  Register(kA);
  Start();
  const Client client = Complete(R"({"prompt":[1],"stream":true})");
  Engine(0).Headers(200, Type("text/event-stream"));
  client->HoldWrites();
  Engine(0).Body("data: 1\n\n");
  client->Leave();
  loop_.RunPosted();
  EXPECT_TRUE(Engine(0).cancelled());
  EXPECT_EQ(gateway_->requests_in_flight(), 0u);
  EXPECT_TRUE(Counted("xms_client_disconnects_total 1"));
}

TEST_F(GatewayProxy, TheDeadlineIsToTheFirstByte) {
  Register(kA);
  Start({.request_timeout = milliseconds(100)});
  const Client late = Complete();
  loop_.Advance(milliseconds(99));
  EXPECT_EQ(late->status, 0);
  loop_.Advance(milliseconds(1));
  EXPECT_EQ(late->status, 504);
  EXPECT_EQ(ErrorCode(late), "deadline_exceeded");
  EXPECT_TRUE(Engine(0).cancelled());
  EXPECT_EQ(gateway_->requests_in_flight(), 0u);

  const Client in_time = Complete();
  Engine(1).Headers(200, Type("text/event-stream"));
  loop_.Advance(milliseconds(1000));
  Engine(1).Body("data: 1\n\n");
  Engine(1).End();
  loop_.RunPosted();
  EXPECT_TRUE(in_time->finished);
  EXPECT_EQ(loop_.timers(), 0u);
}

// A JSON answer's head may come long before its end.
TEST_F(GatewayProxy, TheDeadlineOfAWholeAnswerIsToItsEnd) {
  Register(kA);
  Start({.request_timeout = milliseconds(100)});
  const Client client = Complete();
  Engine(0).Headers(200, Type("application/json"));
  Engine(0).Body("{");
  loop_.Advance(milliseconds(100));
  EXPECT_EQ(client->status, 504);
  EXPECT_EQ(ErrorCode(client), "deadline_exceeded");
  EXPECT_NE(client->body.find("100 ms (--vllm_http_timeout_ms)"), std::string::npos);
  EXPECT_TRUE(Engine(0).cancelled());
  EXPECT_EQ(Decision()["status"], 504);
  EXPECT_TRUE(Decision()["ttft_ms"].is_null()) << "the client got no byte of it";
  EXPECT_EQ(gateway_->requests_in_flight(), 0u);
}

TEST_F(GatewayProxy, AnAnswerThatIsNoHttpSaysWhatIsWrongWithoutAddresses) {
  Register(kA);
  Start();
  for (const auto code : {base::ErrorCode::kCorrupt, base::ErrorCode::kResourceExhausted}) {
    const Client client = Complete();
    plane_.calls.back()->Fail(EngineStage::kAnswering, std::string(kA) + ": malformed status line",
                              code);
    EXPECT_EQ(client->status, 502);
    EXPECT_NE(client->body.find("the engine's answer cannot be used: malformed status line\""),
              std::string::npos)
        << client->body;
  }
}

TEST_F(GatewayProxy, TheConcurrencyLimitCountsToTheEndOfTheStream) {
  Register(kA);
  Start({.max_concurrency = 1});
  const Client first = Complete(R"({"prompt":[1],"stream":true})");
  Engine(0).Headers(200, Type("text/event-stream"));
  const Client second = Complete();
  EXPECT_EQ(second->status, 503);
  EXPECT_EQ(ErrorCode(second), "too_many_requests");
  EXPECT_EQ(Header(second, "retry-after"), "1");
  Engine(0).End();
  loop_.RunPosted();
  EXPECT_TRUE(first->finished);
  Complete();
  EXPECT_EQ(plane_.calls.size(), 2u);
}

TEST_F(GatewayProxy, WithoutInstancesTheAnswerIs503AndSaysWhy) {
  Start();
  const Client client = Complete();
  EXPECT_EQ(client->status, 503);
  EXPECT_EQ(ErrorCode(client), "no_instance");
  EXPECT_EQ(Header(client, "retry-after"), "1");
  EXPECT_NE(client->body.find("none is registered"), std::string::npos) << client->body;
  EXPECT_EQ(Send(Request("GET", "/v1/models"))->status, 503);
}

TEST_F(GatewayProxy, TheReasonsOfA503AreCountedAndNameNoAddress) {
  for (const char* name : {kA, kB}) {
    model::InstanceRecord record;
    record.id.name = name;
    record.type = model::Role::kPrefill;
    record.data_plane = model::DataPlane::kHttp;
    manager_.Put(record);
  }
  Start();
  const Client client = Complete();
  EXPECT_EQ(client->status, 503);
  EXPECT_NE(client->body.find("2 pd_needs_rpc"), std::string::npos) << client->body;
  EXPECT_EQ(client->body.find("10.0.0."), std::string::npos) << client->body;
  EXPECT_EQ(Decision()["candidates"][0]["no_credit_reason"], "pd_needs_rpc");
  EXPECT_EQ(Decision()["instance"], "");
  EXPECT_TRUE(Decision()["cost"].is_null());
}

TEST_F(GatewayProxy, ATextPromptIsRoutedAndSaysThatItIsNotTokenized) {
  Register(kA);
  Start();
  Complete(R"({"prompt":"hello"})");
  Json decision = Decision();
  EXPECT_EQ(decision["instance"], kA);
  EXPECT_EQ(decision["input_tokens"], 0);
  EXPECT_EQ(decision["candidates"][0]["no_credit_reason"], "not_tokenized");
  EXPECT_TRUE(decision["status"].is_null());
  Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(Decision()["candidates"][0]["no_credit_reason"], "not_tokenized");
  Complete(R"({"prompt":[]})");
  EXPECT_EQ(Decision()["candidates"][0]["no_credit_reason"], "empty_prompt");
}

TEST_F(GatewayProxy, ABadRequestReachesNoEngineAndLeavesNoDecision) {
  Register(kA);
  Start();
  const Client client = Complete(R"({"prompt":[1,-2]})");
  EXPECT_EQ(client->status, 400);
  EXPECT_EQ(ErrorCode(client), "invalid_value");
  EXPECT_TRUE(plane_.calls.empty());
  EXPECT_EQ(Decisions(), 0u);
  EXPECT_EQ(gateway_->requests_in_flight(), 0u);
  EXPECT_NE(Header(client, "x-request-id"), "");
  EXPECT_TRUE(Counted("xms_requests_total{route=\"completions\",status=\"400\"} 1"));
}

TEST_F(GatewayProxy, CarWithoutADirectorySaysSo) {
  policy_ = routing::MakeCacheAware({});
  Register(kA);
  Start();
  Complete();
  const Json decision = Decision();
  EXPECT_EQ(decision["policy"], "CAR");
  EXPECT_EQ(decision["input_tokens"], 3);
  EXPECT_EQ(decision["candidates"][0]["no_credit_reason"], "directory_off");
}

}  // namespace
}  // namespace xms::gateway
