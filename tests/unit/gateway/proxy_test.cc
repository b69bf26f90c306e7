// A request's way through the gateway, with engines that do what the test says.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "gateway/proxy_call.h"
#include "gateway/unreachable_memory.h"
#include "tests/unit/gateway/gateway_fixture.h"

namespace xms::gateway {
namespace {

using std::chrono::milliseconds;

constexpr char kA[] = "10.0.0.1:8000";
constexpr char kB[] = "10.0.0.2:8000";
constexpr char kUsage[] =
    R"({"object":"text_completion","usage":{"prompt_tokens_details":{"cached_tokens":2}}})";

class GatewayProxy : public GatewayFixture {
 protected:
  http::Headers Type(const char* type) {
    http::Headers headers;
    headers.Add("Content-Type", type);
    return headers;
  }
  std::string Header(const Client& client, const char* name) {
    const std::string* value = client->headers.Find(name);
    return value == nullptr ? "" : *value;
  }
};

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

TEST_F(GatewayProxy, AnUnreachableEngineIsReplacedByAnother) {
  Register(kA);
  Register(kB);
  Start();
  const Client client = Complete();
  const std::string first = Engine(0).request().instance;
  Engine(0).Fail(EngineStage::kNotSent);
  ASSERT_EQ(plane_.calls.size(), 2u);
  EXPECT_NE(Engine(1).request().instance, first);
  EXPECT_EQ(Engine(1).request().request.body, Engine(0).request().request.body);
  Engine(1).AnswerJson(200, "{}");
  EXPECT_EQ(client->status, 200);
  EXPECT_EQ(Decisions(), 1u);
  const Json decision = Decision();
  EXPECT_EQ(decision["instance"], Engine(1).request().instance);
  for (const Json& candidate : decision["candidates"]) {
    EXPECT_EQ(candidate["no_credit_reason"],
              candidate["name"] == first ? "unreachable" : "not_asked");
  }
  EXPECT_TRUE(Counted("xms_routing_retries_total 1"));
  EXPECT_TRUE(Counted("xms_engine_errors_total{stage=\"not_sent\"} 1"));
}

// The same through a plane that fails before Submit returns.
TEST_F(GatewayProxy, APlaneThatFailsAtOnceIsRepeatedToo) {
  Register(kA);
  Register(kB);
  plane_.FailAtOnce(kA, EngineStage::kNotSent);
  Start();
  for (int i = 0; i < 4; ++i) {
    const Client client = Complete();
    EXPECT_EQ(plane_.calls.back()->request().instance, kB);
    plane_.calls.back()->AnswerJson(200, "{}");
    EXPECT_EQ(client->status, 200);
  }
  plane_.FailAtOnce(kB, EngineStage::kNotSent);
  EXPECT_EQ(Complete()->status, 502);
  EXPECT_EQ(gateway_->requests_in_flight(), 0u);
}

// An engine that swallows connection attempts costs its time-out; the next requests know.
TEST_F(GatewayProxy, AnInstanceThatWasUnreachableIsLeftAloneForAWhile) {
  Register(kA);
  Register(kB);
  Start();
  const Client first = Complete();
  const std::string gone = Engine(0).request().instance;
  Engine(0).Fail(EngineStage::kNotSent);
  Engine(1).AnswerJson(200, "{}");
  for (std::size_t i = 2; i < 6; ++i) {
    const Client client = Complete(R"({"prompt":"text"})");
    ASSERT_EQ(plane_.calls.size(), i + 1);
    EXPECT_NE(Engine(i).request().instance, gone);
    const Json decision = Decision();
    for (const Json& candidate : decision["candidates"]) {
      EXPECT_EQ(candidate["no_credit_reason"],
                candidate["name"] == gone ? "recently unreachable" : "not_tokenized");
    }
    Engine(i).AnswerJson(200, "{}");
  }
  // After the pause one request finds out, while the others still go elsewhere.
  clock_.Advance(UnreachableMemory::kFirstPause);
  std::size_t asked = 0;
  for (std::size_t i = 6; i < 10; ++i) {
    Complete();
    asked += Engine(i).request().instance == gone ? 1 : 0;
  }
  EXPECT_EQ(asked, 1u);
  for (std::size_t i = 6; i < 10; ++i) Engine(i).AnswerJson(200, "{}");
  // It was reached: the rotation has it again.
  asked = 0;
  for (std::size_t i = 10; i < 14; ++i) {
    Complete();
    asked += Engine(i).request().instance == gone ? 1 : 0;
    Engine(i).AnswerJson(200, "{}");
  }
  EXPECT_EQ(asked, 2u);
}

// An answer's head may be minutes away; that the engine is there shows at once.
TEST_F(GatewayProxy, AnInstanceThatIsBackIsUsedBeforeItsFirstAnswer) {
  Register(kA);
  Register(kB);
  Start();
  Complete();
  const std::string gone = Engine(0).request().instance;
  Engine(0).Fail(EngineStage::kNotSent);
  Engine(1).Sent();
  clock_.Advance(UnreachableMemory::kFirstPause);
  std::size_t asked = 0;
  for (std::size_t i = 2; i < 8; ++i) {
    Complete();
    Engine(i).Sent();
    asked += Engine(i).request().instance == gone ? 1 : 0;
  }
  EXPECT_EQ(asked, 3u) << "nobody has answered, and all of them are being served";
}

TEST_F(GatewayProxy, AProcessThatReplacesAnUnreachableOneIsUsedAtOnce) {
  for (const bool removed_between : {false, true}) {
    Register(kA, 0, "one");
    Register(kB);
    if (!gateway_) Start();
    plane_.calls.clear();
    Complete();
    if (Engine(0).request().instance == kB) {
      Engine(0).AnswerJson(200, "{}");
      plane_.calls.clear();
      Complete();
    }
    ASSERT_EQ(Engine(0).request().instance, kA);
    Engine(0).Fail(EngineStage::kNotSent);
    Engine(1).AnswerJson(200, "{}");
    if (removed_between) manager_.Remove({kA});
    Register(kA, 0, removed_between ? "one" : "two");
    std::size_t asked = 0;
    for (std::size_t i = 2; i < 6; ++i) {
      Complete();
      asked += Engine(i).request().instance == kA ? 1 : 0;
      Engine(i).AnswerJson(200, "{}");
    }
    EXPECT_EQ(asked, 2u) << removed_between;
  }
}

TEST_F(GatewayProxy, ARequestIsServedByAnInstanceThatPausesWhenThereIsNoOther) {
  Register(kA);
  Start();
  const Client first = Complete();
  Engine(0).Fail(EngineStage::kNotSent);
  EXPECT_EQ(first->status, 502);
  const Client second = Complete();
  ASSERT_EQ(plane_.calls.size(), 2u);
  Engine(1).AnswerJson(200, "{}");
  EXPECT_EQ(second->status, 200);
  EXPECT_EQ(Decision()["instance"], kA);
}

// The busy engine has begun nothing, and the other may be well again.
TEST_F(GatewayProxy, ABusyEngineIsNoReasonToRefuseWhileAnotherOnlyPauses) {
  Register(kA);
  Register(kB);
  Start();
  Complete();
  const std::string gone = Engine(0).request().instance;
  Engine(0).Fail(EngineStage::kNotSent);
  Engine(1).AnswerJson(200, "{}");
  const Client served = Complete();
  EXPECT_NE(Engine(2).request().instance, gone);
  Engine(2).AnswerJson(429, R"({"error":"busy"})");
  EXPECT_EQ(served->status, 0);
  ASSERT_EQ(plane_.calls.size(), 4u);
  EXPECT_EQ(Engine(3).request().instance, gone);
  Engine(3).AnswerJson(200, R"({"id":"1"})");
  EXPECT_EQ(served->status, 200);
  EXPECT_EQ(served->body, R"({"id":"1"})");
  EXPECT_EQ(Decision()["instance"], gone);
  EXPECT_EQ(gateway_->requests_in_flight(), 0u);
}

TEST_F(GatewayProxy, ABusyEnginesRefusalIsPassedOnWhenWhoPausesCannotBeReached) {
  Register(kA);
  Register(kB);
  Start();
  Complete();
  Engine(0).Fail(EngineStage::kNotSent);
  Engine(1).AnswerJson(200, "{}");
  for (const bool in_time : {true, false}) {
    const Client refused = Complete();
    http::Headers headers = Type("application/json");
    headers.Add("Retry-After", "7");
    Call& busy = *plane_.calls.back();
    busy.Headers(429, headers);
    busy.Body(R"({"error":"busy"})");
    busy.End();
    EXPECT_EQ(refused->status, 0);
    ASSERT_NE(&busy, plane_.calls.back().get());
    if (!in_time) clock_.Advance(ProxyCall::kRetryBudget);
    plane_.calls.back()->Fail(EngineStage::kNotSent);
    EXPECT_EQ(refused->status, 429);
    EXPECT_EQ(refused->body, R"({"error":"busy"})");
    EXPECT_EQ(Header(refused, "retry-after"), "7");
    EXPECT_EQ(gateway_->requests_in_flight(), 0u);
  }
}

TEST_F(GatewayProxy, ModelsAreNotAskedFromAnInstanceThatPauses) {
  Register(kA);
  Register(kB);
  Start();
  Complete();
  const std::string gone = Engine(0).request().instance;
  Engine(0).Fail(EngineStage::kNotSent);
  for (std::size_t i = 2; i < 6; ++i) {
    Send(Request("GET", "/v1/models"));
    ASSERT_EQ(plane_.calls.size(), i + 1);
    EXPECT_NE(Engine(i).request().instance, gone);
  }
}

TEST_F(GatewayProxy, EveryCandidateIsTriedOnceWhileThereIsTime) {
  for (int i = 1; i <= 9; ++i) Register("10.0.0." + std::to_string(i) + ":8000");
  Start();
  const Client client = Complete();
  while (plane_.calls.back()->open()) plane_.calls.back()->Fail(EngineStage::kNotSent);
  std::set<std::string> asked;
  for (const auto& call : plane_.calls) asked.insert(call->request().instance);
  EXPECT_EQ(plane_.calls.size(), 9u);
  EXPECT_EQ(asked.size(), 9u);
  EXPECT_EQ(client->status, 502);
  EXPECT_EQ(ErrorCode(client), "engine_unreachable");
}

// Engines that let connection attempts hang must not hold a client for minutes.
TEST_F(GatewayProxy, NoFurtherCandidateIsTriedWhenTheTimeForItIsUsedUp) {
  for (int i = 1; i <= 9; ++i) Register("10.0.0." + std::to_string(i) + ":8000");
  Start();
  const Client client = Complete();
  plane_.calls.back()->Fail(EngineStage::kNotSent);
  ASSERT_EQ(plane_.calls.size(), 2u);
  clock_.Advance(milliseconds(9999));
  plane_.calls.back()->Fail(EngineStage::kNotSent);
  ASSERT_EQ(plane_.calls.size(), 3u) << "the time for it is 10 s";
  clock_.Advance(milliseconds(1));
  plane_.calls.back()->Fail(EngineStage::kNotSent);
  EXPECT_EQ(plane_.calls.size(), 3u);
  EXPECT_EQ(client->status, 502);
}

TEST_F(GatewayProxy, WhenNoOtherIsLeftTheClientGetsA502WithoutAddresses) {
  Register(kA);
  Start();
  const Client client = Complete();
  Engine(0).Fail(EngineStage::kNotSent, "cannot connect to 10.0.0.1:8000");
  EXPECT_EQ(client->status, 502);
  EXPECT_EQ(ErrorCode(client), "engine_unreachable");
  EXPECT_EQ(client->body.find("10.0.0.1"), std::string::npos) << client->body;
  EXPECT_EQ(Decision()["status"], 502);
  EXPECT_NE(Header(client, "x-request-id"), "");
}

// It may have begun to generate: sending it again would do the work twice.
TEST_F(GatewayProxy, ARequestThatMayHaveArrivedIsNotRepeated) {
  Register(kA);
  Register(kB);
  Start();
  const Client client = Complete();
  Engine(0).Fail(EngineStage::kSent, "closed");
  EXPECT_EQ(plane_.calls.size(), 1u);
  EXPECT_EQ(client->status, 502);
  EXPECT_EQ(ErrorCode(client), "engine_broke_off");
}

TEST_F(GatewayProxy, AnEnginesSilenceIsA504) {
  Register(kA);
  Start();
  const Client client = Complete();
  Engine(0).Fail(EngineStage::kSent, "nothing came", base::ErrorCode::kTimeout);
  EXPECT_EQ(client->status, 504);
  EXPECT_EQ(ErrorCode(client), "deadline_exceeded");
}

TEST_F(GatewayProxy, ModelsAreAskedFromAnotherEngineEvenAfterSending) {
  Register(kA);
  Register(kB);
  Start();
  const Client client = Send(Request("GET", "/v1/models"));
  EXPECT_EQ(Engine(0).request().request.target, "/v1/models");
  Engine(0).Fail(EngineStage::kSent, "closed");
  ASSERT_EQ(plane_.calls.size(), 2u);
  EXPECT_NE(Engine(1).request().instance, Engine(0).request().instance);
  Engine(1).AnswerJson(200, "{\"data\":[]}");
  EXPECT_EQ(client->status, 200);
  EXPECT_EQ(client->body, "{\"data\":[]}");
  EXPECT_EQ(Decisions(), 0u);
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

// The record of the last attempt says more than that nobody is left.
TEST_F(GatewayProxy, TheDecisionOfARequestThatReachedNobodyNamesItsLastAttempt) {
  Register(kA);
  Start();
  const Client client = Complete();
  Engine(0).Fail(EngineStage::kNotSent);
  EXPECT_EQ(client->status, 502);
  EXPECT_EQ(Decision()["instance"], kA);
  EXPECT_EQ(Decision()["status"], 502);
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

// An engine that stops in order deregisters first and ends what it has.
TEST_F(GatewayProxy, ARequestThatAnEngineHadOutlivesItsOrderlyRemoval) {
  Register(kA);
  Start();
  const Client waiting = Complete();
  Engine(0).Sent();
  const Client streaming = Complete();
  Engine(1).Headers(200, Type("text/event-stream"));
  Engine(1).Body("data: 1\n\n");
  manager_.LeaseLost({kA}, "");  // it may be late with its lease before
  ASSERT_TRUE(probe_.Answer(kA, true));
  manager_.Remove({kA});
  loop_.RunPosted();
  Register(kB);
  Register(kA);  // the same process, back again
  loop_.RunPosted();
  EXPECT_FALSE(Engine(0).cancelled());
  EXPECT_FALSE(Engine(1).cancelled());
  Engine(0).AnswerJson(200, "{}");
  EXPECT_EQ(waiting->status, 200);
  Engine(1).Body("data: [DONE]\n\n");
  Engine(1).End();
  loop_.RunPosted();
  EXPECT_TRUE(streaming->finished);
  EXPECT_EQ(gateway_->requests_in_flight(), 0u);
}

// One that hangs keeps its connections open: nothing else would end what waits for it.
TEST_F(GatewayProxy, ARequestThatAnEngineHadEndsWhenAnotherProcessHasItsName) {
  for (const bool removed_between : {false, true}) {
    Register(kA, 0, "one");
    if (!gateway_) Start();
    const Client client = Complete();
    Call& engine = *plane_.calls.back();
    engine.Sent();
    const std::size_t calls = plane_.calls.size();
    Register(kB);
    loop_.RunPosted();
    EXPECT_EQ(client->status, 0) << "another's registration is none of its business";
    if (removed_between) manager_.Remove({kA});
    loop_.RunPosted();
    EXPECT_EQ(client->status, 0);
    Register(kA, 0, "two");
    loop_.RunPosted();
    EXPECT_TRUE(engine.cancelled());
    EXPECT_EQ(client->status, 502);
    EXPECT_EQ(ErrorCode(client), "engine_broke_off");
    EXPECT_NE(client->body.find("removed"), std::string::npos) << client->body;
    EXPECT_EQ(plane_.calls.size(), calls) << "it may have begun, so nobody else is asked";
    EXPECT_EQ(gateway_->requests_in_flight(), 0u);
    manager_.Remove({kB});
  }
}

TEST_F(GatewayProxy, ARequestThatNobodyHadGoesToAnotherWhenItsEngineIsRemoved) {
  Register(kA);
  Start();
  const Client client = Complete();
  Register(kB);
  manager_.Remove({kA});
  loop_.RunPosted();
  ASSERT_EQ(plane_.calls.size(), 2u);
  EXPECT_EQ(Engine(1).request().instance, kB);
  Engine(1).AnswerJson(200, "{}");
  EXPECT_EQ(client->status, 200);
}

TEST_F(GatewayProxy, AStreamWhoseEngineIsReplacedEndsWithAnErrorEvent) {
  Register(kA, 0, "one");
  Start();
  const Client client = Complete();
  Engine(0).Headers(200, Type("text/event-stream"));
  Engine(0).Body("data: 1\n\n");
  Register(kA, 0, "one");  // a refresh
  loop_.RunPosted();
  EXPECT_FALSE(client->aborted);
  Register(kA, 0, "two");
  loop_.RunPosted();
  EXPECT_TRUE(client->aborted);
  EXPECT_NE(client->body.find(R"(data: {"error":{)"), std::string::npos) << client->body;
  EXPECT_TRUE(Engine(0).cancelled());
}

TEST_F(GatewayProxy, AnInstanceThatIsGoneAfterSuspectEndsItsRequests) {
  Register(kA);
  Start();
  const Client client = Complete();
  Engine(0).Sent();
  manager_.LeaseLost({kA}, "");
  ASSERT_TRUE(probe_.Answer(kA, false));
  loop_.RunPosted();
  clock_.Advance(std::chrono::seconds(14));
  manager_.Tick();
  loop_.RunPosted();
  EXPECT_EQ(client->status, 0) << "a suspect may come back";
  clock_.Advance(std::chrono::seconds(1));
  manager_.Tick();
  loop_.RunPosted();
  EXPECT_EQ(client->status, 502);
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
