// The server with whole answers: requests in, responses out, connections kept, start and stop.
#include "http/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/http/raw_client.h"
#include "tests/unit/http/server_harness.h"

namespace xms::http::testing {
namespace {

using namespace std::chrono_literals;
using xms::testing::WaitFor;

TEST(HttpServer, KeepsAConnectionForManyRequests) {
  ServerHarness harness;
  RawClient client(harness.port());
  for (int i = 0; i < 50; ++i) {
    client.Send("POST /echo?" + std::to_string(i) +
                " HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    const std::string response = client.ReadResponse();
    ASSERT_EQ(StatusOf(response), 200) << response;
    ASSERT_EQ(BodyOf(response), "POST\n/echo?" + std::to_string(i) + "\nhello");
    ASSERT_EQ(response.find("Connection:"), std::string::npos) << response;
  }
  EXPECT_EQ(harness.server().open_connections(), 1u);
}

TEST(HttpServer, AnswersPipelinedRequestsInOrderOneAtATime) {
  ServerHarness harness;
  RawClient client(harness.port());
  std::string batch;
  for (int i = 0; i < 300; ++i) batch += Get("/echo?" + std::to_string(i));
  batch += Get("/hold") + Get("/echo?last");
  client.Send(batch);
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(BodyOf(client.ReadResponse()), "GET\n/echo?" + std::to_string(i) + "\n");
  }
  const auto held = harness.NextHeld();
  EXPECT_EQ(harness.requests(), 301) << "the last one waits for its turn";
  held->Send({.body = "held"});
  EXPECT_EQ(BodyOf(client.ReadResponse()), "held");
  EXPECT_EQ(BodyOf(client.ReadResponse()), "GET\n/echo?last\n");
}

TEST(HttpServer, TellsTheHandlerWhoAsked) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(Get("/hold?x", "X-Token: t\r\n"));
  const auto held = harness.NextHeld();
  EXPECT_EQ(held->request().peer_address, "127.0.0.1");
  EXPECT_TRUE(held->request().peer_is_loopback);
  EXPECT_EQ(held->request().target, "/hold?x");
  EXPECT_EQ(*held->request().headers.Find("x-token"), "t");
  held->Send({});
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
}

TEST(HttpServer, AnswersFromAnyThread) {
  ServerHarness harness;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<RawClient>(harness.port()));
    clients.back()->Send(Get("/" + std::to_string(i)));
  }
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([exchange = harness.NextHeld()]() mutable {
        exchange->Send({.body = exchange->request().target});
        exchange.reset();
      });
    }
  }
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(BodyOf(clients[i]->ReadResponse()), "/" + std::to_string(i));
  }
}

TEST(HttpServer, HeadGetsTheHeaderAlone) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send("HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n" + Get("/echo"));
  const std::string head = client.ReadUntil("\r\n\r\n");
  EXPECT_EQ(StatusOf(head), 200);
  EXPECT_NE(head.find("Content-Length: 11\r\n"), std::string::npos) << head;
  EXPECT_EQ(BodyOf(client.ReadResponse()), "GET\n/echo\n") << "no body lies between the answers";
}

TEST(HttpServer, StatusesWithoutBodyHaveNone) {
  ServerHarness harness;
  RawClient client(harness.port());
  for (const int status : {204, 304}) {
    client.Send(Get("/hold"));
    harness.NextHeld()->Send({.status = status, .body = "must not be sent"});
    const std::string head = client.ReadUntil("\r\n\r\n");
    EXPECT_EQ(StatusOf(head), status);
    EXPECT_EQ(head.find("Content-Length"), std::string::npos) << head;
  }
  client.Send(Get("/echo"));
  EXPECT_EQ(BodyOf(client.ReadResponse()), "GET\n/echo\n");
}

TEST(HttpServer, AStatusThatIsNoneBecomes500) {
  ServerHarness harness;
  RawClient client(harness.port());
  for (const int status : {0, 100, -7, 1000}) {
    client.Send(Get("/hold"));
    harness.NextHeld()->Send({.status = status});
    EXPECT_EQ(StatusOf(client.ReadResponse()), 500) << status;
  }
}

TEST(HttpServer, ClosesWhenTheClientOrTheHandlerAsks) {
  ServerHarness harness;
  {
    RawClient client(harness.port());
    client.Send(Get("/echo", "Connection: close\r\n"));
    const std::string response = client.ReadAll();
    EXPECT_NE(response.find("Connection: close\r\n"), std::string::npos) << response;
  }
  {
    RawClient client(harness.port());
    client.Send(Get("/hold"));
    Response response;
    response.headers.Add("connection", "Close");
    harness.NextHeld()->Send(std::move(response));
    EXPECT_EQ(StatusOf(client.ReadAll()), 200);
  }
  {
    RawClient client(harness.port());
    client.Send("GET /echo HTTP/1.0\r\n\r\n");
    EXPECT_EQ(StatusOf(client.ReadAll()), 200);
  }
  {
    RawClient client(harness.port());
    client.Send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    const std::string response = client.ReadResponse();
    EXPECT_NE(response.find("Connection: keep-alive\r\n"), std::string::npos) << response;
    client.Send("GET /echo HTTP/1.0\r\n\r\n");
    EXPECT_EQ(StatusOf(client.ReadAll()), 200);
  }
  EXPECT_TRUE(WaitFor("connections end", [&] { return harness.server().open_connections() == 0; }));
}

TEST(HttpServer, ContinuesAClientThatAsksBeforeSendingItsBody) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_TRUE(client.IsSilent());
  client.Send("hello");
  EXPECT_EQ(BodyOf(client.ReadResponse()), "POST\n/echo\nhello");
  // Nothing to wait for, nothing to say.
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
}

TEST(HttpServer, TakesChunkedBodiesInAnyCuts) {
  ServerHarness harness;
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n1;x=y\r\n \r\n5\r\nworld\r\n0\r\nX-Trailer: t\r\n\r\n";
  for (int round = 0; round < 40; ++round) {
    RawClient client(harness.port());
    const std::string twice = request + request;
    for (std::size_t at = 0; at < twice.size();) {
      const std::size_t size = 1 + random() % 12;
      client.Send(std::string_view(twice).substr(at, size));
      at += size;
    }
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(BodyOf(client.ReadResponse()), "POST\n/echo\nhello world")
          << "seed " << seed << " round " << round;
    }
  }
}

TEST(HttpServer, IgnoresEmptyLinesBetweenRequests) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send("\r\n\r\n" + Get("/echo") + "\r\n" + Get("/echo"));
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
}

TEST(HttpServer, LargeBodiesPassBothWays) {
  ServerHarness harness;
  RawClient client(harness.port());
  const std::string body = Filler(8 * kMiB);
  std::jthread sender([&] {
    client.Send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
  });
  const std::string response = client.ReadResponse();
  sender.join();
  EXPECT_TRUE(BodyOf(response) == "POST\n/echo\n" + body);
}

TEST(HttpServer, AnExchangeThatNobodyAnswersGets500AndTheConnectionLives) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(Get("/drop") + Get("/hold"));
  EXPECT_EQ(StatusOf(client.ReadResponse()), 500);
  harness.NextHeld().reset();  // on another thread than the loop's
  EXPECT_EQ(StatusOf(client.ReadResponse()), 500);
  client.Send(Get("/echo"));
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
}

TEST(HttpServer, OnlyTheFirstAnswerCounts) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(Get("/hold") + Get("/hold"));
  const auto first = harness.NextHeld();
  first->Send({.body = "first"});
  first->Send({.body = "second"});
  first->StartStream(200, {});
  first->Abort();
  EXPECT_EQ(BodyOf(client.ReadResponse()), "first");
  const auto next = harness.NextHeld();
  first->Send({.body = "for the wrong request"});
  WriteResult late;
  first->Write("for the wrong request", late.Callback());
  next->Send({.body = "next"});
  EXPECT_EQ(BodyOf(client.ReadResponse()), "next");
  EXPECT_TRUE(WaitFor("the late write is told", [&] { return late.value() == 0; }));
}

TEST(HttpServer, SpreadsConnectionsEvenlyOverLoops) {
  ServerHarness harness({}, 4);
  std::vector<std::unique_ptr<RawClient>> clients;
  std::map<EventLoop*, int> per_loop;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(std::make_unique<RawClient>(harness.port()));
    clients.back()->Send(Get("/hold"));
    const auto held = harness.NextHeld();
    ++per_loop[&held->loop()];
    held->Send({});
  }
  EXPECT_EQ(per_loop.size(), 4u);
  for (const auto& [loop, count] : per_loop) EXPECT_EQ(count, 10);
}

TEST(HttpServer, ATakenPortIsSaidWithAddressAndReason) {
  ServerHarness harness;
  HttpServer second(harness.pool(), {.port = harness.port()}, [](const auto&) {});
  const base::Status status = second.Start();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, base::ErrorCode::kUnavailable);
  EXPECT_EQ(status.error().message, "cannot listen on 127.0.0.1:" + std::to_string(harness.port()) +
                                        ": Address already in use");
  HttpServer everywhere(harness.pool(), {.host = "", .port = harness.port()}, [](const auto&) {});
  EXPECT_FALSE(everywhere.Start().ok());
}

TEST(HttpServer, BindReservesThePortAlone) {
  EventLoopPool pool(1);
  HttpServer first(pool, {}, [](const auto&) {});
  ASSERT_TRUE(first.Bind().ok());
  ASSERT_NE(first.port(), 0);
  RawClient refused(first.port(), {.may_fail = true});
  EXPECT_FALSE(refused.TrySend("x")) << "nobody listens yet";
  HttpServer second(pool, {.port = first.port()}, [](const auto&) {});
  EXPECT_FALSE(second.Bind().ok());
  EXPECT_FALSE(second.Start().ok());
  const std::uint16_t reserved = first.port();
  ASSERT_TRUE(first.Start().ok());
  EXPECT_EQ(first.port(), reserved);
  RawClient client(first.port());
  EXPECT_TRUE(client.IsSilent());
}

// Connections that the server closed keep their addresses for a minute; a restart does not wait.
TEST(HttpServer, StartsOnAPortWhoseConnectionsAreStillWindingDown) {
  std::uint16_t port = 0;
  {
    ServerHarness harness;
    port = harness.port();
    RawClient client(port);
    client.Send(Get("/echo", "Connection: close\r\n"));
    EXPECT_EQ(StatusOf(client.ReadAll()), 200);
  }
  ServerHarness restarted({.port = port});
  RawClient client(port);
  client.Send(Get("/echo"));
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
}

TEST(HttpServer, RefusesAHostThatIsNoAddress) {
  EventLoopPool pool(1);
  HttpServer server(pool, {.host = "no.such.name"}, [](const auto&) {});
  const base::Status status = server.Start();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, base::ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("no.such.name"), std::string::npos);
}

TEST(HttpServer, ListensOnAllInterfacesWhenNoHostIsGiven) {
  ServerHarness harness({.host = ""});
  RawClient client(harness.port());
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  EXPECT_EQ(held->request().peer_address, "127.0.0.1") << "not ::ffff:127.0.0.1";
  EXPECT_TRUE(held->request().peer_is_loopback);
  held->Send({});
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
}

TEST(HttpServer, StopAcceptingClosesThePortAndLetsAnswersEnd) {
  ServerHarness harness;
  RawClient busy(harness.port());
  busy.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  RawClient idle(harness.port());
  idle.Send(Get("/echo"));
  EXPECT_EQ(StatusOf(idle.ReadResponse()), 200);
  RawClient coming(harness.port());
  coming.Send("GET /ec");
  const std::uint16_t port = harness.port();
  ASSERT_TRUE(WaitFor("accepted", [&] { return harness.server().open_connections() == 3; }));
  harness.server().StopAccepting();
  EXPECT_EQ(idle.ReadAll(), "") << "nothing was asked there, and nothing shall be";
  {
    HttpServer successor(harness.pool(), {.port = port}, [](const auto&) {});
    EXPECT_TRUE(successor.Start().ok()) << "the port is free while answers are under way";
  }
  held->Send({.body = "late"});
  const std::string response = busy.ReadAll();
  EXPECT_EQ(BodyOf(response), "late");
  EXPECT_NE(response.find("Connection: close"), std::string::npos);
  coming.Send("ho HTTP/1.1\r\nHost: test\r\n\r\n");
  EXPECT_EQ(StatusOf(coming.ReadAll()), 200) << "answered, then closed";
  EXPECT_TRUE(WaitFor("drained", [&] { return harness.server().open_connections() == 0; }));
}

TEST(HttpServer, StopAcceptingEndsAConnectionWhoseAnswerIsStillOnItsWay) {
  ServerHarness harness;
  RawClient client(harness.port(), {.receive_buffer = 16384});
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  held->Send({.body = Filler(16 * kMiB)});
  RunOn(held->loop(), [] {});
  harness.server().StopAccepting();
  EXPECT_EQ(BodyOf(client.ReadAll()).size(), 16 * kMiB);
  EXPECT_TRUE(WaitFor("drained", [&] { return harness.server().open_connections() == 0; }));
}

TEST(HttpServer, StartsAgainAfterStopAcceptingAndAfterStop) {
  ServerHarness harness;
  EXPECT_FALSE(harness.server().Start().ok()) << "it listens already";
  for (const bool whole : {false, true}) {
    if (whole) {
      harness.server().Stop();
    } else {
      harness.server().StopAccepting();
    }
    ASSERT_TRUE(harness.server().Start().ok());
    RawClient client(harness.port());
    client.Send(Get("/echo") + Get("/echo"));
    EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
    EXPECT_EQ(StatusOf(client.ReadResponse()), 200) << "kept, not drained";
  }
}

TEST(HttpServer, StopEndsEverythingAndTellsThoseInFlight) {
  ServerHarness harness;
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<std::shared_ptr<Exchange>> held;
  std::atomic<int> gone{0};
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<RawClient>(harness.port()));
    clients.back()->Send(Get("/hold"));
    held.push_back(harness.NextHeld());
    held.back()->OnDisconnect([&] { ++gone; });
  }
  harness.server().Stop();
  EXPECT_EQ(gone, 6) << "told before Stop returns";
  EXPECT_EQ(harness.server().open_connections(), 0u);
  harness.server().Stop();
  for (const auto& exchange : held) exchange->Send({});  // nothing is left to answer
  held.clear();
  for (const auto& client : clients) EXPECT_EQ(client->ReadAll(), "");
}

TEST(HttpServer, StopsAfterItsPoolHasStopped) {
  EventLoopPool pool(2);
  auto gone = std::make_shared<std::atomic<int>>(0);
  std::atomic<int> seen{0};
  std::vector<std::shared_ptr<Exchange>> held;
  std::mutex mu;
  HttpServer server(pool, {}, [&](std::shared_ptr<Exchange> exchange) {
    exchange->OnDisconnect([gone] { ++*gone; });
    const std::lock_guard lock(mu);
    held.push_back(std::move(exchange));
    ++seen;
  });
  ASSERT_TRUE(server.Start().ok());
  RawClient client(server.port());
  client.Send(Get("/"));
  ASSERT_TRUE(WaitFor("the request is seen", [&] { return seen == 1; }));
  pool.Stop();
  server.Stop();
  EXPECT_EQ(*gone, 1);
  EXPECT_EQ(client.ReadAll(), "");
  held.clear();
}

TEST(HttpServer, StopUnderLoadLeavesNothingBehind) {
  for (int round = 0; round < 5; ++round) {
    ServerHarness harness;
    const std::uint16_t port = harness.port();
    std::atomic<bool> stop{false};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        while (!stop) {
          RawClient client(port, {.may_fail = true});
          for (int i = 0; i < 20 && client.TrySend(Get("/echo")); ++i) {
            if (client.ReadUntil("\r\n\r\n").empty()) break;
          }
        }
      });
    }
    ASSERT_TRUE(WaitFor("load", [&] { return harness.requests() > 200; }));
    stop = true;
    harness.server().Stop();
    EXPECT_EQ(harness.server().open_connections(), 0u);
    threads.clear();
  }
}

int Option(std::uint16_t port, int level, int name) {
  // The far end of a connection of this process: found among its descriptors by its local port.
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in local{};
    sockaddr_in remote{};
    socklen_t size = sizeof local;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) != 0) continue;
    size = sizeof remote;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&remote), &size) != 0) continue;
    if (ntohs(local.sin_port) != port) continue;
    int value = -1;
    size = sizeof value;
    ::getsockopt(fd, level, name, &value, &size);
    return value;
  }
  return -1;
}

// Without it a kept connection waits some 40 ms for the first event of a stream.
TEST(HttpServer, SendsWithoutDelay) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(Get("/echo"));
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
  EXPECT_EQ(Option(harness.port(), IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(Option(harness.port(), SOL_SOCKET, SO_KEEPALIVE), 1);
}

}  // namespace
}  // namespace xms::http::testing
