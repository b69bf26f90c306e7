#include "gateway/answer_relay.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "gateway/testing/fake_exchange.h"
#include "gateway/testing/manual_loop.h"

namespace xms::gateway {
namespace {

using Json = nlohmann::json;

class GatewayAnswerRelay : public ::testing::Test {
 protected:
  void Headers(int status, const char* type) {
    http::Headers headers;
    if (type != nullptr) headers.Add("Content-Type", type);
    headers.Add("X-Engine", "7");
    headers.Add("Connection", "keep-alive");
    headers.Add("Transfer-Encoding", "chunked");
    headers.Add("X-Request-Id", "the engine's own");
    relay_.OnHeaders(status, headers);
  }
  // True when the next bytes may be read once the loop has run.
  bool Body(std::string chunk) {
    taken_ = false;
    relay_.OnBody(std::move(chunk), [this](bool there) { taken_ = there; });
    loop_.RunPosted();
    return taken_;
  }
  void End() {
    relay_.Seal();
    relay_.Finish();
    loop_.RunPosted();
  }
  void Break() {
    relay_.Seal();
    relay_.Break({ErrorKind::kEngineBrokeOff, "broke off", ""});
    loop_.RunPosted();
  }
  std::string Header(const char* name) {
    const std::string* value = exchange_->headers.Find(name);
    return value == nullptr ? "" : *value;
  }

  testing::ManualLoop loop_;
  std::shared_ptr<testing::FakeExchange> exchange_ =
      std::make_shared<testing::FakeExchange>(loop_, http::Request());
  AnswerRelay relay_{exchange_, "id-1"};
  bool taken_ = false;  // the client has taken the last chunk
};

// An engine that streams without saying of what type must not be held back until its end.
TEST_F(GatewayAnswerRelay, AnUntypedAnswerWithoutALengthIsRelayedAsItComes) {
  Headers(200, nullptr);
  EXPECT_TRUE(Body("one"));
  EXPECT_EQ(exchange_->status, 200);
  EXPECT_EQ(exchange_->body, "one");
}

TEST_F(GatewayAnswerRelay, AJsonAnswerGoesOutInOnePieceWithTheEnginesHeaders) {
  Headers(429, "application/json; charset=utf-8");
  EXPECT_TRUE(Body("{\"a\":"));
  EXPECT_EQ(exchange_->status, 0);
  EXPECT_TRUE(Body("1}"));
  End();
  EXPECT_EQ(exchange_->status, 429);
  EXPECT_EQ(exchange_->body, "{\"a\":1}");
  EXPECT_FALSE(exchange_->streamed);
  EXPECT_EQ(Header("x-engine"), "7");
  EXPECT_EQ(Header("connection"), "");
  EXPECT_EQ(Header("transfer-encoding"), "");
  EXPECT_EQ(Header("x-request-id"), "id-1");
}

TEST_F(GatewayAnswerRelay, AJsonAnswersCacheFigureIsRead) {
  Headers(200, "application/json");
  Body(R"({"usage":{"prompt_tokens_details":)");
  Body(R"({"cached_tokens":64}}})");
  relay_.Seal();
  EXPECT_EQ(relay_.cached_tokens(), 64u);
}

TEST_F(GatewayAnswerRelay, ALargeJsonAnswerTurnsIntoAStream) {
  Headers(200, "application/json");
  const std::string piece(AnswerRelay::kMaxWhole / 4, 'x');
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Body(piece));
  EXPECT_FALSE(exchange_->streamed);
  EXPECT_TRUE(Body("y"));
  EXPECT_TRUE(exchange_->streamed);
  EXPECT_TRUE(Body("z"));
  End();
  EXPECT_EQ(exchange_->body, piece + piece + piece + piece + "yz");
  EXPECT_TRUE(exchange_->finished);
}

TEST_F(GatewayAnswerRelay, EventsGoOutAsTheyCome) {
  Headers(200, "text/event-stream; charset=utf-8");
  EXPECT_TRUE(exchange_->streamed);
  EXPECT_TRUE(Body("data: 1\n\n"));
  EXPECT_EQ(exchange_->body, "data: 1\n\n");
  EXPECT_TRUE(Body("data: 2\n\n"));
  EXPECT_EQ(exchange_->writes, 2u);
  End();
  EXPECT_TRUE(exchange_->finished);
  EXPECT_EQ(exchange_->body, "data: 1\n\ndata: 2\n\n");
}

// Nothing to write must not mean nothing more to read.
TEST_F(GatewayAnswerRelay, HalfAnEventAsksForMore) {
  Headers(200, "text/event-stream");
  EXPECT_TRUE(Body("data: "));
  EXPECT_EQ(exchange_->writes, 0u);
  EXPECT_TRUE(Body("1\n\n"));
  EXPECT_EQ(exchange_->body, "data: 1\n\n");
}

TEST_F(GatewayAnswerRelay, TheLastEventsMissingLineEndIsNotInvented) {
  Headers(200, "text/event-stream");
  Body("data: [DONE]");
  End();
  EXPECT_EQ(exchange_->body, "data: [DONE]");
  EXPECT_TRUE(exchange_->finished);
}

TEST_F(GatewayAnswerRelay, TheEngineWaitsForASlowClient) {
  Headers(200, "text/event-stream");
  exchange_->HoldWrites();
  EXPECT_FALSE(Body("data: 1\n\n"));
  exchange_->Take();
  EXPECT_TRUE(taken_);
  EXPECT_TRUE(Body("data: 2\n\n"));
}

TEST_F(GatewayAnswerRelay, ABrokenStreamEndsWithAnErrorEventAndACut) {
  Headers(200, "text/event-stream");
  Body("data: {\"text\":\"a\"}\n\ndata: {\"te");
  Break();
  EXPECT_TRUE(exchange_->aborted);
  EXPECT_FALSE(exchange_->finished);
  const std::string before = "data: {\"text\":\"a\"}\n\n\ndata: ";
  ASSERT_EQ(exchange_->body.substr(0, before.size()), before);
  const std::string event = exchange_->body.substr(before.size());
  ASSERT_TRUE(event.ends_with("\n\n"));
  EXPECT_EQ(Json::parse(event)["error"]["code"], "engine_broke_off");
  EXPECT_EQ(exchange_->body.find("[DONE]"), std::string::npos);
}

TEST_F(GatewayAnswerRelay, ABrokenJsonAnswerIsAnErrorBecauseNothingWasSent) {
  Headers(200, "application/json");
  Body("{\"half\":");
  Break();
  EXPECT_EQ(exchange_->status, 502);
  EXPECT_EQ(Json::parse(exchange_->body)["error"]["code"], "engine_broke_off");
  EXPECT_EQ(Header("x-request-id"), "id-1");
}

TEST_F(GatewayAnswerRelay, OtherBytesAreRelayedAsTheyComeAndCutWhenBroken) {
  Headers(200, "text/plain");
  const std::string odd("\0\xff\r\n half", 9);
  EXPECT_TRUE(Body(odd));
  EXPECT_EQ(exchange_->body, odd);
  Break();
  EXPECT_TRUE(exchange_->aborted);
  EXPECT_EQ(exchange_->body, odd);
}

TEST_F(GatewayAnswerRelay, AnAnswerWithoutABodyIsWhole) {
  Headers(404, nullptr);
  End();
  EXPECT_EQ(exchange_->status, 404);
  EXPECT_EQ(exchange_->body, "");
  EXPECT_TRUE(exchange_->finished);
}

TEST_F(GatewayAnswerRelay, AClientThatLeavesIsReportedByTheWrite) {
  Headers(200, "text/event-stream");
  exchange_->HoldWrites();
  bool asked = false;
  bool there = true;
  relay_.OnBody("data: 1\n\n", [&](bool still_there) {
    asked = true;
    there = still_there;
  });
  exchange_->Leave();
  EXPECT_TRUE(asked);
  EXPECT_FALSE(there);
}

}  // namespace
}  // namespace xms::gateway
