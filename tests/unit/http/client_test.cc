#include "http/client.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/http/client_fixture.h"
#include "tests/unit/http/raw_client.h"
#include "tests/unit/http/server_harness.h"

namespace xms::http::testing {
namespace {

using namespace std::chrono_literals;
using xms::testing::WaitFor;

using HttpClientCalls = HttpClientTest;

TEST_F(HttpClientCalls, SendsAWellFormedRequest) {
  RawServer server;
  Request request;
  request.method = "POST";
  request.target = "/v1/completions?x=1";
  request.headers.Add("Content-Type", "application/json");
  request.headers.Add("Content-Length", "999");
  request.headers.Add("Transfer-Encoding", "chunked");
  request.body = "{}";
  Start(server.port(), request);
  auto peer = server.Accept();
  EXPECT_EQ(
      peer.ReadRequest(),
      "POST /v1/completions?x=1 HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server.port()) +
          "\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
  peer.Send("HTTP/1.1 201 Created\r\nX-A: b\r\nContent-Length: 5\r\n\r\nhello");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error(), "");
  EXPECT_EQ(status(), 201);
  EXPECT_EQ(header("x-a"), "b");
  EXPECT_EQ(body(), "hello");
}

// The option of this process's socket that is connected to `port`; −1: there is none.
int OptionTowards(std::uint16_t port, int level, int option) {
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.sin_family != AF_INET || ntohs(peer.sin_port) != port) continue;
    int value = -1;
    size = sizeof value;
    return ::getsockopt(fd, level, option, &value, &size) == 0 ? value : -1;
  }
  return -1;
}

// A request that waits for more bytes to share a packet with would wait for the engine's answer.
TEST_F(HttpClientCalls, NothingIsHeldBackOnItsWayToThePeer) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  EXPECT_NE(peer.ReadRequest(), "");
  EXPECT_EQ(OptionTowards(server.port(), IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(OptionTowards(server.port(), SOL_SOCKET, SO_KEEPALIVE), 1);
}

TEST_F(HttpClientCalls, AStatusBelow100IsNoInterimAnswer) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 099 Weird\r\n\r\n");
  ASSERT_TRUE(Ended());
  EXPECT_NE(error().find("corrupt: "), std::string::npos) << error();
  EXPECT_NE(error().find("status code below 100"), std::string::npos) << error();
}

TEST_F(HttpClientCalls, GivingUpTellsTheHandlersWhyAndHowFarItHadCome) {
  RawServer server;
  const auto given_up = [&](const std::shared_ptr<HttpClient::Call>& call) {
    RunOn(loop(), [&] {
      call->GiveUp({base::ErrorCode::kNotFound, "gone"});
      EXPECT_EQ(error(), "not_found: gone") << "at once";
      call->GiveUp({base::ErrorCode::kNotFound, "gone again"});
    });
    EXPECT_EQ(error(), "not_found: gone");
    EXPECT_EQ(ends(), 0);
  };
  auto call = Start(server.port());
  auto peer = server.Accept();
  EXPECT_NE(peer.ReadRequest(), "");
  given_up(call);
  EXPECT_EQ(stage(), CallStage::kSent);
  EXPECT_TRUE(peer.WaitForEnd()) << "the peer is told";

  call = Start(server.port());
  auto other = server.Accept();
  EXPECT_NE(other.ReadRequest(), "");
  other.Send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
  ASSERT_TRUE(WaitFor("headers", [&] { return status() == 200; }));
  given_up(call);
  EXPECT_EQ(stage(), CallStage::kAnswering);
}

TEST_F(HttpClientCalls, KeepsAConnectionForTheNextCall) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  for (int i = 0; i < 5; ++i) {
    EXPECT_NE(peer.ReadRequest(), "");
    peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + std::to_string(i));
    ASSERT_TRUE(Ended());
    EXPECT_EQ(body(), std::to_string(i));
    Start(server.port());
  }
  EXPECT_TRUE(server.NobodyWaits()) << "one connection served all of them";
}

TEST_F(HttpClientCalls, ConcurrentCallsHaveConnectionsOfTheirOwn) {
  RawServer server;
  Start(server.port());
  const auto first = log_;
  auto peer = server.Accept();
  EXPECT_NE(peer.ReadRequest(), "");
  Start(server.port());
  auto other = server.Accept();
  EXPECT_NE(other.ReadRequest(), "");
  other.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  log_ = first;
  EXPECT_EQ(ends(), 0);
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
}

// Bytes are passed on when they come, not when something is complete.
TEST_F(HttpClientCalls, RelaysTheBodyAsItArrives) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  ASSERT_TRUE(WaitFor("headers", [&] { return status() == 200; }));
  std::string expected;
  for (int i = 0; i < 10; ++i) {
    const std::string event = "data: " + std::to_string(i) + "\n\n";
    peer.Send("9\r\n" + event + "\r\n");
    expected += event;
    ASSERT_TRUE(WaitFor("the event", [&] { return body() == expected; })) << body();
  }
  peer.Send("f\r\nhalf of");  // a chunk that is not whole yet
  ASSERT_TRUE(WaitFor("its half", [&] { return body() == expected + "half of"; }));
  peer.Send(" a chunk\r\n0\r\n\r\n");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error(), "");
  EXPECT_EQ(body(), expected + "half of a chunk");
}

TEST_F(HttpClientCalls, ReadsOnOnlyAfterResume) {
  RawServer server;
  Start(server.port(), {}, {}, true);
  auto peer = server.Accept();
  peer.ReadRequest();
  constexpr std::size_t kSize = 24 * kMiB;  // more than the socket buffers
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kSize) + "\r\n\r\n");
  const std::size_t sent = peer.SendUntilFull(kSize);
  EXPECT_LT(sent, kSize) << "a caller that does not resume holds the peer back";
  EXPECT_EQ(chunks(), 1);
  EXPECT_LE(body().size(), 64 * kKiB);
  std::jthread rest([&] { peer.Send(std::string(kSize - sent, 'x')); });
  while (ends() == 0) {
    const int before = chunks();
    Resume();
    ASSERT_TRUE(WaitFor("more", [&] { return chunks() > before || ends() > 0; }));
  }
  EXPECT_EQ(body().size(), kSize);
  EXPECT_EQ(error(), "");
}

TEST_F(HttpClientCalls, TheEndComesAfterTheLastResume) {
  RawServer server;
  Start(server.port(), {}, {}, true);
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
  ASSERT_TRUE(WaitFor("the body", [&] { return body() == "hello"; }));
  RunOn(loop(), [] {});
  EXPECT_EQ(ends(), 0);
  Resume();
  ASSERT_TRUE(Ended());
  EXPECT_EQ(ends(), 1);
}

TEST_F(HttpClientCalls, AnswersWithoutBodyEndAtTheirHeader) {
  RawServer server;
  Start(server.port(), {.method = "HEAD"});
  auto peer = server.Accept();
  for (const char* head :
       {"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"}) {
    peer.ReadRequest();
    peer.Send(head);
    ASSERT_TRUE(Ended()) << head;
    EXPECT_EQ(error(), "") << head;
    EXPECT_EQ(chunks(), 0) << head;
    Start(server.port());
  }
  EXPECT_TRUE(server.NobodyWaits());
}

TEST_F(HttpClientCalls, SkipsInterimAnswers) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(status(), 200);
  EXPECT_EQ(body(), "ok");
  EXPECT_EQ(header("link"), "");
}

TEST_F(HttpClientCalls, InterimAnswersWithoutEndAreAnError) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  std::string flood;
  for (int i = 0; i < 100; ++i) flood += "HTTP/1.1 102 Processing\r\n\r\n";
  peer.Send(flood);
  ASSERT_TRUE(Ended());
  EXPECT_NE(error(), "");
}

TEST_F(HttpClientCalls, TheEndOfTheConnectionMayEndTheBody) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.0 200 OK\r\n\r\nhello");
  peer.Close();
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error(), "");
  EXPECT_EQ(body(), "hello");
  EXPECT_EQ(ends(), 1);
}

TEST_F(HttpClientCalls, ABodyCutShortIsAnError) {
  for (const char* answer : {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
                             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                             "HTTP/1.1 200 OK\r\nConte"}) {
    RawServer server;
    Start(server.port());
    auto peer = server.Accept();
    peer.ReadRequest();
    peer.Send(answer);
    peer.Close();
    ASSERT_TRUE(Ended()) << answer;
    EXPECT_EQ(error().find("unavailable: "), 0u) << error();
    EXPECT_EQ(stage(), CallStage::kAnswering) << answer;
    EXPECT_EQ(ends(), 0) << answer;
  }
}

TEST_F(HttpClientCalls, AResetEndsABodyThatTheConnectionDelimits) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.0 200 OK\r\n\r\nhello");
  ASSERT_TRUE(WaitFor("the body", [&] { return body() == "hello"; }));
  peer.Reset();
  ASSERT_TRUE(Ended());
  EXPECT_NE(error(), "") << "a reset is no orderly end";
}

TEST_F(HttpClientCalls, DamagedAnswersAreErrorsAndTheConnectionGoes) {
  for (const char* answer :
       {"garbage\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"}) {
    RawServer server;
    Start(server.port());
    auto peer = server.Accept();
    peer.ReadRequest();
    peer.Send(answer);
    ASSERT_TRUE(Ended()) << answer;
    EXPECT_EQ(error().find("corrupt: "), 0u) << error();
    EXPECT_EQ(stage(), CallStage::kAnswering);
    EXPECT_TRUE(peer.WaitForEnd());
  }
}

TEST_F(HttpClientCalls, AnOversizedHeaderIsAnError) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nX: " + std::string(70 * kKiB, 'x'));
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error().find("resource_exhausted: "), 0u) << error();
}

TEST_F(HttpClientCalls, NobodyListeningIsUnavailableAndNothingWasSent) {
  std::uint16_t port = 0;
  {
    RawServer server;
    port = server.port();
  }
  Start(port);
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error(), "unavailable: cannot connect to 127.0.0.1:" + std::to_string(port) +
                         ": Connection refused");
  EXPECT_EQ(stage(), CallStage::kConnecting);
}

TEST_F(HttpClientCalls, ResolvesNames) {
  ServerHarness harness;
  Start(harness.port(), {.target = "/echo"}, {}, false, "localhost");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error(), "");
  EXPECT_EQ(body(), "GET\n/echo\n");
}

TEST_F(HttpClientCalls, AnUnknownNameIsUnavailable) {
  Start(80, {}, {}, false, "no such name");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error().find("unavailable: cannot resolve no such name"), 0u) << error();
  EXPECT_EQ(stage(), CallStage::kConnecting);
}

TEST_F(HttpClientCalls, ARequestThatWouldSplitIsRefused) {
  ServerHarness harness;
  Start(harness.port(), {.target = "/a HTTP/1.1\r\nX: y\r\n\r\nGET /b"});
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error().find("invalid_argument: "), 0u) << error();
  EXPECT_EQ(harness.requests(), 0);
}

TEST_F(HttpClientCalls, TimesOutInTotalAndBetweenReads) {
  RawServer server;
  {
    Start(server.port(), {}, {.total_timeout = 60ms});
    auto peer = server.Accept();
    peer.ReadRequest();
    ASSERT_TRUE(Ended());
    EXPECT_EQ(error().find("timeout: "), 0u) << error();
    EXPECT_EQ(stage(), CallStage::kSent);
    EXPECT_TRUE(peer.WaitForEnd()) << "the peer sees it at once";
  }
  {
    Start(server.port(), {}, {.idle_timeout = 60ms});
    auto peer = server.Accept();
    peer.ReadRequest();
    peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
    ASSERT_TRUE(Ended());
    EXPECT_EQ(error().find("timeout: "), 0u) << error();
    EXPECT_EQ(stage(), CallStage::kAnswering);
    EXPECT_EQ(body(), "hello");
  }
}

TEST_F(HttpClientCalls, AnIdleTimeoutDoesNotCountWhileTheCallerHoldsBack) {
  RawServer server;
  Start(server.port(), {}, {.idle_timeout = 80ms}, true);
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
  ASSERT_TRUE(WaitFor("the first half", [&] { return body() == "hello"; }));
  std::atomic<bool> later{false};
  const auto timer = loop().PostAfter(250ms, [&] { later = true; });
  ASSERT_TRUE(WaitFor("three times the limit", [&] { return later.load(); }));
  EXPECT_EQ(error(), "");
  peer.Send("world");
  Resume();
  ASSERT_TRUE(WaitFor("the second half", [&] { return body() == "helloworld"; }));
  Resume();
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error(), "");
}

TEST_F(HttpClientCalls, CancelClosesAtOnceAndNothingIsCalledAfterwards) {
  RawServer server;
  auto owned = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = owned;
  std::atomic<int> calls{0};
  CallHandlers handlers;
  handlers.on_headers = [&](int, const Headers&) { ++calls; };
  handlers.on_body = [&, owned = std::move(owned)](const std::string&,
                                                   const std::function<void()>&) { ++calls; };
  handlers.on_end = [&] { ++calls; };
  handlers.on_error = [&](const base::Error&, CallStage) { ++calls; };
  std::shared_ptr<HttpClient::Call> call;
  RunOn(loop(),
        [&] { call = client_->Start({"127.0.0.1", server.port()}, {}, {}, std::move(handlers)); });
  auto peer = server.Accept();
  peer.ReadRequest();
  RunOn(loop(), [&] {
    call->Cancel();
    EXPECT_TRUE(watch.expired()) << "what the callbacks own is let go";
    call->Cancel();
  });
  EXPECT_TRUE(peer.WaitForEnd());
  RunOn(loop(), [] {});
  EXPECT_EQ(calls, 0);
}

TEST_F(HttpClientCalls, MayBeCancelledFromEachOfItsCallbacks) {
  for (const int where : {0, 1}) {
    RawServer server;
    std::shared_ptr<HttpClient::Call> call;
    std::atomic<int> calls{0};
    // Owned by the callback that cancels: it must live until it returns.
    auto owned = std::make_shared<std::string>(100, 'x');
    CallHandlers handlers;
    handlers.on_headers = [&, where, owned](int, const Headers&) {
      if (where == 0) call->Cancel();
      calls += static_cast<int>(owned->size());
    };
    handlers.on_body = [&, owned](const std::string&, const std::function<void()>& resume) {
      call->Cancel();
      resume();
      calls += static_cast<int>(owned->size());
    };
    handlers.on_end = [&] { calls += 10000; };
    handlers.on_error = [&](const base::Error&, CallStage) { calls += 10000; };
    owned.reset();
    RunOn(loop(), [&] {
      call = client_->Start({"127.0.0.1", server.port()}, {}, {}, std::move(handlers));
    });
    auto peer = server.Accept();
    peer.ReadRequest();
    peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    EXPECT_TRUE(peer.WaitForEnd());
    RunOn(loop(), [] {});
    EXPECT_EQ(calls, where == 0 ? 100 : 200);
  }
}

TEST_F(HttpClientCalls, CancelWhileConnectingOrResolving) {
  for (const char* host : {"127.0.0.1", "localhost", "198.51.100.1"}) {
    RawServer server;
    RunOn(loop(), [&] {
      const auto call = client_->Start({host, server.port()}, {}, {}, {});
      call->Cancel();
    });
  }
  RunOn(loop(), [] {});
}

TEST_F(HttpClientCalls, DestroyingTheHandleDoesNothing) {
  ServerHarness harness;
  Start(harness.port(), {.target = "/echo"}).reset();
  ASSERT_TRUE(Ended());
  EXPECT_EQ(body(), "GET\n/echo\n");
}

TEST_F(HttpClientCalls, DestroyingTheClientEndsCallsAsCancelled) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  DestroyClient();
  EXPECT_EQ(error().find("cancelled: "), 0u) << error() << " (told before the destructor returns)";
  EXPECT_TRUE(peer.WaitForEnd());
}

TEST_F(HttpClientCalls, MayBeDestroyedAfterThePoolHasStopped) {
  RawServer server;
  EventLoopPool pool(1);
  auto client = std::make_unique<HttpClient>(pool.loop(0), ClientOptions{});
  std::atomic<int> calls{0};
  std::shared_ptr<HttpClient::Call> call;
  RunOn(pool.loop(0), [&] {
    CallHandlers handlers;
    handlers.on_error = [&](const base::Error&, CallStage) { ++calls; };
    call = client->Start({"127.0.0.1", server.port()}, {}, {}, std::move(handlers));
  });
  auto peer = server.Accept();
  peer.ReadRequest();
  pool.Stop();
  client.reset();
  EXPECT_TRUE(peer.WaitForEnd());
  EXPECT_EQ(calls, 0) << "no loop is left to call on";
}

using HttpClientFetch = HttpClientTest;

TEST_F(HttpClientFetch, GivesTheWholeAnswer) {
  ServerHarness harness;
  std::atomic<int> calls{0};
  base::Result<Response> result = Response{};
  RunOn(loop(), [&] {
    client_->Fetch({"127.0.0.1", harness.port()},
                   {.method = "POST", .target = "/echo", .body = "b"}, {}, 100,
                   [&](base::Result<Response> got) {
                     result = std::move(got);
                     ++calls;
                   });
  });
  ASSERT_TRUE(WaitFor("the answer", [&] { return calls == 1; }));
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->status, 200);
  EXPECT_EQ(result->body, "POST\n/echo\nb");
  EXPECT_NE(result->headers.Find("content-length"), nullptr);
}

TEST_F(HttpClientFetch, StopsAnAnswerThatIsTooLarge) {
  ServerHarness harness;
  std::atomic<int> calls{0};
  base::Result<Response> result = Response{};
  RunOn(loop(), [&] {
    client_->Fetch({"127.0.0.1", harness.port()},
                   {.method = "POST", .target = "/echo", .body = std::string(1000, 'x')}, {}, 100,
                   [&](base::Result<Response> got) {
                     result = std::move(got);
                     ++calls;
                   });
  });
  ASSERT_TRUE(WaitFor("the answer", [&] { return calls == 1; }));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, base::ErrorCode::kResourceExhausted);
  EXPECT_TRUE(WaitFor("closed", [&] { return harness.server().open_connections() == 0; }));
  RunOn(loop(), [] {});
  EXPECT_EQ(calls, 1);
}

TEST_F(HttpClientFetch, TellsErrors) {
  std::uint16_t port = 0;
  {
    RawServer server;
    port = server.port();
  }
  std::atomic<int> calls{0};
  RunOn(loop(), [&] {
    client_->Fetch({"127.0.0.1", port}, {}, {}, 100, [&](const base::Result<Response>& got) {
      EXPECT_FALSE(got.ok());
      ++calls;
    });
  });
  EXPECT_TRUE(WaitFor("the error", [&] { return calls == 1; }));
}

// Many calls at once, some cancelled, some against a server that resets: everything ends, nothing
// leaks.
TEST_F(HttpClientCalls, ManyCallsOfAllKindsEnd) {
  ServerHarness harness;
  std::atomic<int> ended{0};
  std::atomic<int> good{0};
  constexpr int kCalls = 400;
  std::vector<std::shared_ptr<HttpClient::Call>> calls;
  RunOn(loop(), [&] {
    for (int i = 0; i < kCalls; ++i) {
      CallHandlers handlers;
      handlers.on_body = [](const std::string&, const std::function<void()>& resume) { resume(); };
      handlers.on_end = [&] {
        ++ended;
        ++good;
      };
      handlers.on_error = [&](const base::Error&, CallStage) { ++ended; };
      Request request;
      request.method = "POST";
      request.target = i % 3 == 0 ? "/drop" : "/echo";
      request.body = std::string(static_cast<std::size_t>(i) * 100, 'x');
      calls.push_back(
          client_->Start({"127.0.0.1", harness.port()}, request, {}, std::move(handlers)));
    }
    for (int i = 0; i < kCalls; i += 4) calls[static_cast<std::size_t>(i)]->Cancel();
  });
  EXPECT_TRUE(WaitFor("all but the cancelled end", [&] { return ended == kCalls * 3 / 4; }));
  EXPECT_EQ(good, kCalls * 3 / 4);
}

TEST(HttpClientAddress, ReadsHostAndPort) {
  const std::pair<const char*, std::pair<const char*, int>> good[] = {
      {"127.0.0.1:8888", {"127.0.0.1", 8888}},
      {"engine-3.cluster:1", {"engine-3.cluster", 1}},
      {"[::1]:65535", {"::1", 65535}}};
  for (const auto& [text, expected] : good) {
    Address address;
    ASSERT_TRUE(ParseAddress(text, address)) << text;
    EXPECT_EQ(address.host, expected.first);
    EXPECT_EQ(address.port, expected.second);
  }
  for (const char* text : {"", ":80", "host", "host:", "host:0", "host:65536", "host:+80",
                           "host:80x", "host: 80", "::1:80", "[::1]80", "[]:80", "[::1:80",
                           "ho st:80", "a/b:80", "u@h:80", "host:99999999999999999999"}) {
    Address address{"kept", 7};
    EXPECT_FALSE(ParseAddress(text, address)) << text;
    EXPECT_EQ(address.host, "kept");
  }
}

}  // namespace
}  // namespace xms::http::testing
