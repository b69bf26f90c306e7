// The server's hooks: answers at a request's header, and refusals with what was read of the request.
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "tests/unit/http/raw_client.h"
#include "tests/unit/http/server_harness.h"

namespace xms::http::testing {
namespace {

// Refuses everything below /locked that brings no key.
ServerOptions Locked() {
  ServerOptions options;
  options.max_body_bytes = 1000;
  options.on_headers = [](const Request& request) -> std::optional<Response> {
    EXPECT_EQ(request.body, "") << "nothing of the body is read yet";
    EXPECT_EQ(request.peer_address, "127.0.0.1");
    EXPECT_TRUE(request.peer_is_loopback);
    if (request.path() != "/locked" || request.headers.Find("x-key") != nullptr) return {};
    return JsonResponse(401, "{\"why\":\"no key\"}");
  };
  return options;
}

std::string Post(const std::string& target, const std::string& more_headers) {
  return "POST " + target + " HTTP/1.1\r\nHost: a\r\n" + more_headers + "\r\n";
}

TEST(HttpServerOnHeaders, AnswersBeforeABodyIsReadOrAskedFor) {
  ServerHarness harness(Locked());
  for (const char* framing :
       {"Content-Length: 900\r\n", "Content-Length: 900\r\nExpect: 100-continue\r\n",
        "Transfer-Encoding: chunked\r\n"}) {
    RawClient client(harness.port());
    client.Send(Post("/locked", framing));
    const std::string response = client.ReadAll();
    EXPECT_EQ(StatusOf(response), 401) << framing << response;
    EXPECT_EQ(BodyOf(response), "{\"why\":\"no key\"}") << framing;
    EXPECT_NE(response.find("Connection: close\r\n"), std::string::npos) << framing;
  }
  EXPECT_EQ(harness.requests(), 0);
}

TEST(HttpServerOnHeaders, IsAskedBeforeADeclaredLengthIsRefused) {
  ServerHarness harness(Locked());
  RawClient without(harness.port());
  without.Send(Post("/locked", "Content-Length: 1001\r\n"));
  EXPECT_EQ(StatusOf(without.ReadAll()), 401);
  RawClient with(harness.port());
  with.Send(Post("/locked", "X-Key: 1\r\nContent-Length: 1001\r\n"));
  EXPECT_EQ(StatusOf(with.ReadAll()), 413);
}

TEST(HttpServerOnHeaders, AClientThatSendsItsWholeBodyFirstCanReadTheAnswer) {
  ServerHarness harness(Locked());
  RawClient client(harness.port());
  client.Send(Post("/locked", "Content-Length: 20000000\r\n"));
  client.Send(Filler(20000000));
  EXPECT_EQ(StatusOf(client.ReadUntil("}")), 401);
}

TEST(HttpServerOnHeaders, NothingThatFollowsARefusedHeaderIsARequest) {
  ServerHarness harness(Locked());
  RawClient client(harness.port());
  client.Send(Get("/echo") + Get("/locked") + Get("/echo"));
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
  EXPECT_EQ(StatusOf(client.ReadResponse()), 401);
  EXPECT_EQ(client.ReadAll(), "");
  EXPECT_EQ(harness.requests(), 1);
}

TEST(HttpServerOnHeaders, AHeadRequestGetsNoBody) {
  ServerHarness harness(Locked());
  RawClient client(harness.port());
  client.Send("HEAD /locked HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string response = client.ReadAll();
  EXPECT_EQ(StatusOf(response), 401);
  EXPECT_EQ(BodyOf(response), "");
}

TEST(HttpServerOnHeaders, WithoutAnAnswerTheRequestGoesOn) {
  ServerHarness harness(Locked());
  RawClient client(harness.port());
  for (int i = 0; i < 2; ++i) {
    client.Send(Post("/echo", "Content-Length: 5\r\nExpect: 100-continue\r\n"));
    EXPECT_EQ(StatusOf(client.ReadUntil("\r\n\r\n")), 100);
    client.Send("hello");
    EXPECT_EQ(BodyOf(client.ReadResponse()), "POST\n/echo\nhello");
  }
}

struct Seen {
  int status;
  std::string message;
  Request request;
};

// Keeps every refusal and answers it with a header of its own.
class HttpServerOnRefusal : public ::testing::Test {
 protected:
  ServerOptions Options() {
    ServerOptions options;
    options.max_body_bytes = 1000;
    options.max_header_bytes = 2000;
    options.on_refusal = [this](const Refusal& refusal) {
      base::MutexLock lock(mu_);
      seen_.push_back({refusal.status, refusal.message, refusal.request});
      Response response = JsonResponse(299, "{}");
      response.headers.Set("x-mark", "mine");
      return response;
    };
    return options;
  }
  Seen Next() {
    base::MutexLock lock(mu_);
    if (seen_.empty()) {
      ADD_FAILURE() << "no refusal was reported";
      return {};
    }
    Seen seen = std::move(seen_.front());
    seen_.pop_front();
    return seen;
  }
  // The answer's status, after a look at its header.
  static int Answer(RawClient& client) {
    const std::string response = client.ReadAll();
    EXPECT_NE(response.find("x-mark: mine\r\n"), std::string::npos) << response;
    EXPECT_NE(response.find("Connection: close\r\n"), std::string::npos) << response;
    return StatusOf(response);
  }

 private:
  base::Mutex mu_;
  std::deque<Seen> seen_ XMS_GUARDED_BY(mu_);
};

TEST_F(HttpServerOnRefusal, SeesTheRequestAndTheLimitOfATooLargeBody) {
  ServerHarness harness(Options());
  for (const std::string& framing :
       {std::string("Content-Length: 1001\r\n\r\n"),
        "Transfer-Encoding: chunked\r\n\r\n3e8\r\n" + Filler(1000) + "\r\n1\r\nx\r\n"}) {
    RawClient client(harness.port());
    client.Send("PUT /there?a HTTP/1.1\r\nHost: a\r\nX-Request-Id: 77\r\n" + framing);
    EXPECT_EQ(Answer(client), 413);
    const Seen seen = Next();
    EXPECT_EQ(seen.status, 413);
    EXPECT_EQ(seen.message, "the body is larger than 1000 bytes");
    EXPECT_EQ(seen.request.method, "PUT");
    EXPECT_EQ(seen.request.target, "/there?a");
    ASSERT_NE(seen.request.headers.Find("x-request-id"), nullptr);
    EXPECT_EQ(*seen.request.headers.Find("x-request-id"), "77");
    EXPECT_EQ(seen.request.body, "");
    EXPECT_EQ(seen.request.peer_address, "127.0.0.1");
  }
}

TEST_F(HttpServerOnRefusal, NamesTheLimitOfAHeader) {
  ServerHarness harness(Options());
  RawClient client(harness.port());
  client.Send("GET /there HTTP/1.1\r\nHost: a\r\nX: " + Filler(3000));
  EXPECT_EQ(Answer(client), 431);
  EXPECT_EQ(Next().message, "the header is larger than 2000 bytes");
  RawClient trailer(harness.port());
  trailer.Send(Post("/", "Transfer-Encoding: chunked\r\n") + "0\r\nX: " + Filler(3000));
  EXPECT_EQ(Answer(trailer), 431);
  EXPECT_EQ(Next().message, "a chunk header or the trailer is larger than 2000 bytes");
}

TEST_F(HttpServerOnRefusal, KnowsNoMethodWhenTheFirstLineIsNotOne) {
  ServerHarness harness(Options());
  RawClient client(harness.port());
  client.Send("nonsense\r\n\r\n");
  EXPECT_EQ(Answer(client), 400);
  const Seen seen = Next();
  EXPECT_EQ(seen.request.method, "");
  EXPECT_EQ(seen.request.target, "");
}

TEST_F(HttpServerOnRefusal, KnowsNothingOfTheRequestBefore) {
  ServerHarness harness(Options());
  RawClient client(harness.port());
  client.Send(Get("/echo", "X-Request-Id: 1\r\n"));
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
  client.Send("nonsense\r\n\r\n");
  EXPECT_EQ(Answer(client), 400);
  const Seen seen = Next();
  EXPECT_EQ(seen.request.method, "");
  EXPECT_EQ(seen.request.headers.Find("x-request-id"), nullptr);
}

TEST_F(HttpServerOnRefusal, SeesARequestWhoseHandlerDroppedIt) {
  ServerHarness harness(Options());
  RawClient client(harness.port());
  client.Send(Get("/drop", "X-Request-Id: 5\r\n"));
  EXPECT_EQ(StatusOf(client.ReadResponse()), 500);
  const Seen seen = Next();
  EXPECT_EQ(seen.status, 500);
  EXPECT_EQ(seen.request.target, "/drop");
  ASSERT_NE(seen.request.headers.Find("x-request-id"), nullptr);
  EXPECT_EQ(*seen.request.headers.Find("x-request-id"), "5");
}

}  // namespace
}  // namespace xms::http::testing
