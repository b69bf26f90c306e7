// Engines that cannot be reached, are busy, or are removed: who serves the request then.
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>

#include "gateway/proxy_call.h"
#include "gateway/unreachable_memory.h"
#include "tests/unit/gateway/proxy_fixture.h"

namespace xms::gateway {
namespace {

using std::chrono::milliseconds;

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

}  // namespace
}  // namespace xms::gateway
