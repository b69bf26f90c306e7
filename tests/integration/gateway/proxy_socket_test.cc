// Requests through the gateway and the HTTP plane to engines that a test plays byte by byte.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/integration/service_fixture.h"

namespace xms::gateway {
namespace {

using http::testing::RawServer;
using xms::testing::WaitFor;

constexpr char kEventStream[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string Chunk(const std::string& bytes) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return size + bytes + "\r\n";
}

std::string JsonAnswer(int status, const std::string& body, const std::string& headers = "") {
  return base::StrCat("HTTP/1.1 ", status, " X\r\nContent-Type: application/json\r\n", headers,
                      "Content-Length: ", body.size(), "\r\n\r\n", body);
}

class GatewayIntegration : public ServiceFixture {
 protected:
  void SetUp() override { StartService(std::nullopt); }
  void TearDown() override {
    EXPECT_TRUE(WaitIdle());
    EXPECT_EQ(Metric("xms_requests_in_flight"), 0);
    ServiceFixture::TearDown();
  }

  static std::string NameOf(const RawServer& engine) {
    return base::StrCat("127.0.0.1:", engine.port());
  }
  // A request on the client's connection, not yet answered.
  static void Complete(RawClient& client, const std::string& body = R"({"prompt":[1,2]})",
                       const std::string& headers = "") {
    client.Send(Bytes("POST", "/v1/completions", body, headers));
  }
};

TEST_F(GatewayIntegration, TheEngineGetsTheRequestAndTheClientItsAnswer) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  Complete(client, R"({"prompt" : [1,2] , "x":1.0})",
           "Authorization: Bearer k\r\nX-Request-Id: r-1\r\nX-Custom: 5\r\nCookie: a=b\r\n");
  auto peer = engine.Accept();
  const std::string seen = peer.ReadRequest();
  EXPECT_EQ(seen.substr(0, seen.find("\r\n")), "POST /v1/completions HTTP/1.1");
  EXPECT_TRUE(seen.ends_with("\r\n\r\n{\"prompt\":[1,2],\"x\":1.0}")) << seen;
  for (const char* header :
       {"Authorization: Bearer k", "x-request-id: r-1", "X-Custom: 5", "Cookie: a=b"}) {
    EXPECT_NE(seen.find(base::StrCat("\r\n", header, "\r\n")), std::string::npos) << seen;
  }
  peer.Send(JsonAnswer(200, R"({"id":"cmpl-1"})", "X-Engine: 7\r\n"));
  const Answer answer = Split(client.ReadResponse());
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, R"({"id":"cmpl-1"})");
  EXPECT_NE(answer.head.find("X-Engine: 7"), std::string::npos);
  EXPECT_NE(answer.head.find("x-request-id: r-1"), std::string::npos) << answer.head;
  EXPECT_EQ(Decision()["request_id"], "r-1");
}

TEST_F(GatewayIntegration, EnginesStatusesComeThroughOnce) {
  RawServer engine;
  RawServer other;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  Complete(client);
  auto peer = engine.Accept();
  peer.ReadRequest();
  RegisterEngine(NameOf(other));
  peer.Send(JsonAnswer(429, R"({"error":"slow down"})", "Retry-After: 7\r\n"));
  const Answer answer = Split(client.ReadResponse());
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.body, R"({"error":"slow down"})");
  EXPECT_NE(answer.head.find("Retry-After: 7"), std::string::npos);
  EXPECT_TRUE(other.NobodyWaits());
}

// The engine sends its next event only after the client has seen the one before: whatever collects
// events would wait for ever.
TEST_F(GatewayIntegration, EventsPassOneByOne) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  Complete(client, R"({"prompt":[1,2],"stream":true})");
  auto peer = engine.Accept();
  peer.ReadRequest();
  peer.Send(kEventStream);
  EXPECT_NE(client.ReadUntil("\r\n\r\n").find("200"), std::string::npos);
  for (int i = 0; i < 20; ++i) {
    const std::string event = base::StrCat("data: {\"n\":", i, "}\n\n");
    peer.Send(Chunk(event));
    EXPECT_EQ(client.ReadUntil(event + "\r\n"), Chunk(event));
  }
  const std::string last =
      R"(data: {"choices":[],"usage":{"prompt_tokens_details":{"cached_tokens":1}}})"
      "\n\ndata: [DONE]\n\n";
  peer.Send(Chunk(last) + "0\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), Chunk(last) + "0\r\n\r\n");
  EXPECT_EQ(Decision()["cached_tokens"], 1);
  EXPECT_EQ(Decision()["status"], 200);
  // The connection is still good.
  Complete(client);
  peer.ReadRequest();
  peer.Send(JsonAnswer(200, "{}"));
  EXPECT_EQ(Split(client.ReadResponse()).status, 200);
}

TEST_F(GatewayIntegration, EventsSplitAnywhereArriveWhole) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  Complete(client, R"({"prompt":[1,2],"stream":true})");
  auto peer = engine.Accept();
  peer.ReadRequest();
  peer.Send(kEventStream);
  const std::string stream = "data: {\"a\":1}\r\n\r\n: ping\r\n\r\ndata: {\"b\":2}\r\n\r\n";
  for (const char c : stream) peer.Send(Chunk(std::string(1, c)));
  peer.Send("0\r\n\r\n");
  const std::string raw = client.ReadUntil("0\r\n\r\n");
  std::string body;
  for (std::size_t at = raw.find("\r\n\r\n") + 4; at < raw.size();) {
    const std::size_t size = std::stoul(raw.substr(at), nullptr, 16);
    at = raw.find("\r\n", at) + 2;
    body += raw.substr(at, size);
    at += size + 2;
  }
  EXPECT_EQ(body, stream);
}

TEST_F(GatewayIntegration, ABreakInAStreamIsAnErrorEventAndACutConnection) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  Complete(client, R"({"prompt":[1,2],"stream":true})");
  auto peer = engine.Accept();
  peer.ReadRequest();
  peer.Send(kEventStream + Chunk("data: {\"n\":1}\n\ndata: {\"n\""));
  client.ReadUntil("data: {\"n\":1}\n\n");
  peer.Close();
  const std::string rest = client.ReadAll();
  EXPECT_NE(rest.find("data: {\"error\":{\"message\":"), std::string::npos) << rest;
  EXPECT_NE(rest.find("\"engine_broke_off\""), std::string::npos) << rest;
  EXPECT_EQ(rest.find("data: {\"n\""), std::string::npos) << rest;
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos) << rest;
  EXPECT_EQ(rest.find("\r\n0\r\n"), std::string::npos) << rest;
  EXPECT_EQ(Decision()["status"], 502);
}

TEST_F(GatewayIntegration, ABreakInAJsonAnswerIsA502) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  Complete(client);
  auto peer = engine.Accept();
  peer.ReadRequest();
  peer.Send(
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"a\":");
  peer.Close();
  const Answer answer = Split(client.ReadResponse());
  EXPECT_EQ(answer.status, 502);
  EXPECT_EQ(answer.json()["error"]["code"], "engine_broke_off");
}

TEST_F(GatewayIntegration, WhatIsWrongWithABadAnswerIsSaid) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  const std::string begin = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"HTTP/1.1 099 Weird\r\n\r\n", "status code below 100"},
      {"junk\r\n\r\n", "malformed status line"},
      {begin + "X-A: " + std::string(100'000, 'a') + "\r\n\r\n",
       "the header is larger than 65536 bytes"},
      {begin + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "bad chunk"},
  };
  for (const auto& [bytes, what] : cases) {
    RawClient client(public_server_->port());
    Complete(client);
    auto peer = engine.Accept();
    peer.ReadRequest();
    peer.Send(bytes);
    const Answer answer = Split(client.ReadResponse());
    EXPECT_EQ(answer.status, 502) << what;
    EXPECT_EQ(answer.json()["error"]["code"], "engine_broke_off");
    EXPECT_NE(answer.body.find(what), std::string::npos) << answer.body;
    EXPECT_EQ(answer.body.find("127.0.0.1"), std::string::npos) << answer.body;
  }
}

// Its connection stays open and says nothing, as that of a stopped process does.
TEST_F(GatewayIntegration, AFrozenEngineHoldsItsRequestsOnlyUntilItIsReplaced) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient waiting(public_server_->port());
  Complete(waiting);
  auto first = engine.Accept();
  first.ReadRequest();
  RawClient streaming(public_server_->port());
  Complete(streaming, R"({"prompt":[1,2],"stream":true})");
  auto second = engine.Accept();
  second.ReadRequest();
  second.Send(kEventStream + Chunk("data: 1\n\n"));
  streaming.ReadUntil("data: 1\n\n");
  RegisterEngine(NameOf(engine), "another process");
  const Answer answer = Split(waiting.ReadResponse());
  EXPECT_EQ(answer.status, 502);
  EXPECT_NE(answer.body.find("removed"), std::string::npos) << answer.body;
  EXPECT_TRUE(streaming.ReadUntil("removed").ends_with("removed"));
  EXPECT_TRUE(first.WaitForEnd());
  EXPECT_TRUE(second.WaitForEnd());
}

TEST_F(GatewayIntegration, AnEngineThatDeregistersEndsWhatItHas) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  Complete(client);
  auto peer = engine.Accept();
  peer.ReadRequest();
  EXPECT_EQ(AskRpc("DELETE", "/v1/internal/instances/" + NameOf(engine)).status, 200);
  // Whatever the removal does to requests in flight is queued on their loops before this is.
  EXPECT_EQ(Ask("GET", "/health", "").status, 200);
  peer.Send(JsonAnswer(200, R"({"id":"cmpl-1"})"));
  const Answer answer = Split(client.ReadResponse());
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, R"({"id":"cmpl-1"})");
}

// Its kept connection breaks under a request of which a part is missing, and it no longer listens.
TEST_F(GatewayIntegration, AnEngineThatGoesWhileItIsSentToIsReplacedByAnother) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  Complete(client);
  auto peer = engine.Accept();
  peer.ReadRequest();
  peer.Send(JsonAnswer(200, "{}"));
  EXPECT_EQ(Split(client.ReadResponse()).status, 200);
  RawServer other;
  RegisterEngine(NameOf(other), "x", 100);  // second choice by load
  // More than the kernels hold, and the engine takes none of it.
  Complete(client, R"({"prompt":")" + std::string(15'000'000, 'x') + R"("})");
  ASSERT_TRUE(peer.WaitForBytes());
  engine.StopListening();
  peer.Reset();
  auto next = other.Accept();
  EXPECT_GT(next.ReadRequest().size(), 15'000'000u);
  next.Send(JsonAnswer(200, R"({"id":"cmpl-2"})"));
  EXPECT_EQ(Split(client.ReadResponse()).body, R"({"id":"cmpl-2"})");
}

TEST_F(GatewayIntegration, AnEngineThatClosesWithoutAnAnswerIsNotAskedTwice) {
  RawServer engine;
  RawServer other;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  Complete(client);
  auto peer = engine.Accept();
  peer.ReadRequest();
  RegisterEngine(NameOf(other));
  peer.Close();
  const Answer answer = Split(client.ReadResponse());
  EXPECT_EQ(answer.status, 502);
  EXPECT_EQ(answer.json()["error"]["code"], "engine_broke_off");
  EXPECT_EQ(answer.body.find("127.0.0.1"), std::string::npos) << answer.body;
  EXPECT_TRUE(other.NobodyWaits());
  EXPECT_TRUE(engine.NobodyWaits());
}

TEST_F(GatewayIntegration, AnUnreachableEngineIsReplacedByAnother) {
  RawServer gone;
  gone.StopListening();
  RawServer engine;
  RegisterEngine(NameOf(gone), "x", 0);
  RegisterEngine(NameOf(engine), "x", 100);  // second choice by load
  RawClient client(public_server_->port());
  Complete(client);
  auto peer = engine.Accept();
  EXPECT_NE(peer.ReadRequest().find("[1,2]"), std::string::npos);
  peer.Send(JsonAnswer(200, "{}"));
  EXPECT_EQ(Split(client.ReadResponse()).status, 200);
  EXPECT_EQ(Decision()["instance"], NameOf(engine));
  EXPECT_EQ(Metric("xms_routing_retries_total"), 1);
}

TEST_F(GatewayIntegration, WhenNoEngineCanBeReachedTheAnswerIs502) {
  RawServer gone;
  gone.StopListening();
  RegisterEngine(NameOf(gone));
  const Answer answer = Ask("POST", "/v1/completions", R"({"prompt":"x"})");
  EXPECT_EQ(answer.status, 502);
  EXPECT_EQ(answer.json()["error"]["code"], "engine_unreachable");
  EXPECT_EQ(answer.body.find("127.0.0.1"), std::string::npos) << answer.body;
}

TEST_F(GatewayIntegration, AClientThatLeavesBeforeTheAnswerEndsTheEnginesConnection) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  for (const bool rudely : {false, true}) {
    RawClient client(public_server_->port());
    Complete(client);
    auto peer = engine.Accept();
    peer.ReadRequest();
    EXPECT_EQ(gateway_->requests_in_flight(), 1u);
    rudely ? client.Reset() : client.Close();
    EXPECT_TRUE(peer.WaitForEnd());
    EXPECT_TRUE(WaitIdle());
  }
  EXPECT_EQ(Metric("xms_client_disconnects_total"), 2);
  EXPECT_EQ(Decision()["status"], 499);
}

TEST_F(GatewayIntegration, AClientThatLeavesAStreamEndsTheEnginesConnection) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  Complete(client, R"({"prompt":[1,2],"stream":true})");
  auto peer = engine.Accept();
  peer.ReadRequest();
  peer.Send(kEventStream + Chunk("data: 1\n\n"));
  client.ReadUntil("data: 1\n\n");
  client.Close();
  EXPECT_TRUE(peer.WaitForEnd());
}

// A client that does not read must stop the engine, not fill the gateway.
TEST_F(GatewayIntegration, ASlowClientHoldsItsEngineBack) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port(), {.receive_buffer = 4096});
  Complete(client, R"({"prompt":[1,2],"stream":true})");
  auto peer = engine.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n");
  constexpr std::size_t kFar = 256 * 1024 * 1024;
  EXPECT_LT(peer.SendUntilFull(kFar), kFar);
  client.Close();
  EXPECT_TRUE(peer.WaitForEnd());
}

TEST_F(GatewayIntegration, ModelsComeFromAnEngine) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  client.Send(Bytes("GET", "/v1/models", ""));
  auto peer = engine.Accept();
  EXPECT_EQ(peer.ReadRequest().substr(0, 24), "GET /v1/models HTTP/1.1\r");
  peer.Send(JsonAnswer(200, R"({"object":"list","data":[]})"));
  EXPECT_EQ(Split(client.ReadResponse()).body, R"({"object":"list","data":[]})");
}

// Engines that answer HEAD are few.
TEST_F(GatewayIntegration, AHeadOfModelsIsAskedAsGetAndAnsweredWithoutBody) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  client.Send(Bytes("HEAD", "/v1/models", ""));
  auto peer = engine.Accept();
  EXPECT_EQ(peer.ReadRequest().substr(0, 24), "GET /v1/models HTTP/1.1\r");
  const std::string body = R"({"object":"list","data":[]})";
  peer.Send(JsonAnswer(200, body));
  const std::string head = client.ReadUntil("\r\n\r\n");
  EXPECT_EQ(http::testing::StatusOf(head), 200);
  EXPECT_NE(head.find(base::StrCat("\r\nContent-Length: ", body.size(), "\r\n")), std::string::npos)
      << head;
  // The next bytes on either connection belong to the next request.
  client.Send(Bytes("GET", "/v1/models", ""));
  peer.ReadRequest();
  peer.Send(JsonAnswer(201, body));
  const Answer answer = Split(client.ReadResponse());
  EXPECT_EQ(answer.status, 201);
  EXPECT_EQ(answer.body, body);
}

// Two readers of one body must not see two requests: repeated fields, chunked bodies and odd
// spellings all reach the engine as one plain document.
TEST_F(GatewayIntegration, OddBytesReachTheEngineAsPlainJsonOrNotAtAll) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  client.Send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n" +
              Chunk("\t{\"\\u0070rompt\":") + Chunk("\"\\ud83d") + Chunk("\\ude00\\u0000\"}\r\n") +
              "0\r\n\r\n");
  auto peer = engine.Accept();
  const std::string seen = peer.ReadRequest();
  EXPECT_TRUE(seen.ends_with("\r\n\r\n{\"prompt\":\"\xf0\x9f\x98\x80\\u0000\"}")) << seen;
  EXPECT_EQ(seen.find("chunked"), std::string::npos) << seen;
  peer.Send(JsonAnswer(200, "{}"));
  EXPECT_EQ(Split(client.ReadResponse()).status, 200);

  for (const std::string& body :
       {std::string(R"({"prompt":[1],"prompt":[2]})"), std::string("{\"prompt\":\"\xff\"}"),
        std::string("\xef\xbb\xbf{\"prompt\":\"x\"}"), std::string("{\"prompt\":\"x\"}\0", 15)}) {
    Complete(client, body);
    EXPECT_EQ(Split(client.ReadResponse()).status, 400) << body;
  }
  EXPECT_TRUE(engine.NobodyWaits());
}

TEST_F(GatewayIntegration, RequestsInOnePacketAreAnsweredInOrder) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  client.Send(Bytes("POST", "/v1/completions", "{bad") + Bytes("GET", "/health", "") +
              Bytes("POST", "/v1/completions", R"({"prompt":[7]})") + Bytes("GET", "/health", ""));
  EXPECT_EQ(Split(client.ReadResponse()).status, 400);
  EXPECT_EQ(Split(client.ReadResponse()).body, R"({"status":"ok"})");
  auto peer = engine.Accept();
  EXPECT_TRUE(peer.ReadRequest().ends_with("{\"prompt\":[7]}"));
  peer.Send(JsonAnswer(201, "{}"));
  EXPECT_EQ(Split(client.ReadResponse()).status, 201);
  EXPECT_EQ(Split(client.ReadResponse()).body, R"({"status":"ok"})");
}

TEST_F(GatewayIntegration, AnAnswerThatIsNotJsonPassesAsItIs) {
  RawServer engine;
  RegisterEngine(NameOf(engine));
  RawClient client(public_server_->port());
  Complete(client);
  auto peer = engine.Accept();
  peer.ReadRequest();
  const std::string bytes("\0\xff odd \r\n\r\n", 11);
  peer.Send(base::StrCat("HTTP/1.1 500 Oops\r\nContent-Type: application/octet-stream\r\n",
                         "Content-Length: ", bytes.size(), "\r\n\r\n", bytes));
  const std::string answer = client.ReadUntil("0\r\n\r\n");
  EXPECT_EQ(http::testing::StatusOf(answer), 500);
  EXPECT_NE(answer.find("\r\n\r\n" + Chunk(bytes)), std::string::npos) << answer;
}

}  // namespace
}  // namespace xms::gateway
