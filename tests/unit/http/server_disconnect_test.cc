// Clients that leave, and what they sent before.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "tests/unit/http/raw_client.h"
#include "tests/unit/http/server_harness.h"

namespace xms::http::testing {
namespace {

using namespace std::chrono_literals;
using xms::testing::WaitFor;

enum class Leave { kClose, kReset, kEndSending };

class HttpServerDisconnect : public ::testing::TestWithParam<Leave> {
 protected:
  static void Do(Leave leave, RawClient& client) {
    switch (leave) {
      case Leave::kClose:
        client.Close();
        return;
      case Leave::kReset:
        client.Reset();
        return;
      case Leave::kEndSending:
        client.EndSending();
        return;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(HttpServerDisconnect, HttpServerDisconnect,
                         ::testing::Values(Leave::kClose, Leave::kReset, Leave::kEndSending),
                         [](const auto& test) {
                           return std::string(test.param == Leave::kClose   ? "Close"
                                              : test.param == Leave::kReset ? "Reset"
                                                                            : "EndSending");
                         });

TEST_P(HttpServerDisconnect, IsToldWhileTheHandlerWorks) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  std::atomic<int> gone{0};
  std::atomic<bool> on_loop{false};
  held->OnDisconnect([&, loop = &held->loop()] {
    on_loop = loop->OnThisThread();
    ++gone;
  });
  RunOn(held->loop(), [] {});
  EXPECT_EQ(gone, 0);
  Do(GetParam(), client);
  EXPECT_TRUE(WaitFor("OnDisconnect is called", [&] { return gone == 1; }));
  EXPECT_TRUE(on_loop);
  WriteResult result;
  held->StartStream(200, {});
  held->Write("x", result.Callback());
  EXPECT_TRUE(WaitFor("a write for nobody is told", [&] { return result.value() == 0; }));
  EXPECT_EQ(gone, 1) << "once";
  EXPECT_EQ(harness.server().open_connections(), 0u);
}

TEST_P(HttpServerDisconnect, IsToldInTheMiddleOfAStream) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  std::atomic<int> gone{0};
  held->OnDisconnect([&] { ++gone; });
  held->StartStream(200, {});
  held->Write("abc", nullptr);
  client.ReadUntil("abc\r\n");
  Do(GetParam(), client);
  EXPECT_TRUE(WaitFor("OnDisconnect is called", [&] { return gone == 1; }));
}

TEST_P(HttpServerDisconnect, IsToldThoughTheNextRequestIsAlreadyHere) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(Get("/hold") + Get("/hold?second"));
  const auto held = harness.NextHeld();
  std::atomic<int> gone{0};
  held->OnDisconnect([&] { ++gone; });
  RunOn(held->loop(), [] {});
  Do(GetParam(), client);
  EXPECT_TRUE(WaitFor("OnDisconnect is called", [&] { return gone == 1; }));
  EXPECT_TRUE(harness.HoldsNone()) << "the second request was never begun";
}

// More than the server takes while it answers: what it left in the kernel hides the end.
TEST_P(HttpServerDisconnect, IsToldThoughMoreRequestsAreHereThanAreRead) {
  ServerHarness harness;
  RawClient client(harness.port());
  std::string requests = Get("/hold");
  while (requests.size() < 64 * kKiB) requests += Get("/size", "X: " + Filler(1000) + "\r\n");
  client.Send(requests);
  const auto held = harness.NextHeld();
  std::atomic<int> gone{0};
  held->OnDisconnect([&] { ++gone; });
  RunOn(held->loop(), [] {});
  EXPECT_EQ(gone, 0);
  Do(GetParam(), client);
  EXPECT_TRUE(WaitFor("OnDisconnect is called", [&] { return gone == 1; }));
  EXPECT_EQ(harness.server().open_connections(), 0u);
  EXPECT_EQ(harness.requests(), 1) << "nothing of what it had sent further was begun";
}

TEST_P(HttpServerDisconnect, IsToldWhenItHappenedBeforeAnybodyAsked) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  Do(GetParam(), client);
  ASSERT_TRUE(
      WaitFor("the server notices", [&] { return harness.server().open_connections() == 0; }));
  std::atomic<int> gone{0};
  held->OnDisconnect([&] { ++gone; });
  EXPECT_TRUE(WaitFor("OnDisconnect is called", [&] { return gone == 1; }));
}

TEST_P(HttpServerDisconnect, IsNotToldOnceTheAnswerIsComplete) {
  ServerHarness harness;
  RawClient client(harness.port());
  auto owned = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = owned;
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  std::atomic<int> gone{0};
  held->OnDisconnect([&gone, owned = std::move(owned)] { ++gone; });
  held->Send({});
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
  EXPECT_TRUE(WaitFor("the callback is let go", [&] { return watch.expired(); }));
  Do(GetParam(), client);
  ASSERT_TRUE(
      WaitFor("the server notices", [&] { return harness.server().open_connections() == 0; }));
  EXPECT_EQ(gone, 0);
}

TEST_P(HttpServerDisconnect, EndsAConnectionInTheMiddleOfARequest) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf");
  ASSERT_TRUE(WaitFor("connected", [&] { return harness.server().open_connections() == 1; }));
  Do(GetParam(), client);
  EXPECT_TRUE(
      WaitFor("the server notices", [&] { return harness.server().open_connections() == 0; }));
  EXPECT_EQ(harness.requests(), 0);
}

// An answer that is complete and still on its way is delivered to a client that will say nothing
// more (nc -N).
TEST(HttpServerHalfClose, ACompleteAnswerIsStillDelivered) {
  ServerHarness harness;
  RawClient client(harness.port(), {.receive_buffer = 16384});
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  const std::string body = Filler(16 * kMiB);
  held->Send({.body = body});
  RunOn(held->loop(), [] {});
  client.EndSending();
  bool reset = true;
  const std::string response = client.ReadAll(&reset);
  EXPECT_EQ(BodyOf(response).size(), body.size());
  EXPECT_FALSE(reset);
}

TEST(HttpServerHalfClose, ARequestAnsweredAtOnceReachesAClientThatHasEndedSending) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(Get("/echo"));
  client.EndSending();
  EXPECT_EQ(BodyOf(client.ReadAll()), "GET\n/echo\n");
}

// What arrives while an answer is made is the next request, byte for byte, even when it is much.
TEST(HttpServerPipelining, ALargeSecondRequestIsNotLost) {
  ServerHarness harness;
  RawClient client(harness.port());
  const std::string body = Filler(3 * kMiB);
  std::jthread sender([&] {
    client.Send(Get("/hold") + "POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body + Get("/echo"));
  });
  harness.NextHeld()->Send({.body = "first"});
  EXPECT_EQ(BodyOf(client.ReadResponse()), "first");
  EXPECT_EQ(BodyOf(client.ReadResponse()), std::to_string(body.size()));
  EXPECT_EQ(BodyOf(client.ReadResponse()), "GET\n/echo\n");
}

TEST(HttpServerPipelining, AClientThatFloodsWhileItIsAnsweredHasToWait) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  std::atomic<std::size_t> sent{0};
  std::jthread flood([&] {
    const std::string block = Get("/size", "X-Filler: " + std::string(8000, 'z') + "\r\n");
    for (int i = 0; i < 4000 && client.TrySend(block); ++i) sent += block.size();
  });
  // Kernel buffers fill (a few MiB at most), then the sender stands still although 32 MiB are to
  // come.
  std::size_t before = 0;
  ASSERT_TRUE(WaitFor("the sender halts", [&] {
    const std::size_t now = sent;
    const auto until = std::chrono::steady_clock::now() + 100ms;
    while (std::chrono::steady_clock::now() < until && sent == now) {
      std::this_thread::yield();
    }
    const bool halted = now > 0 && now == before && sent == now;
    before = now;
    return halted;
  }));
  EXPECT_LT(sent, 4000u * 8000u);
  held->Send({});
  for (int i = 0; i < 4001; ++i) ASSERT_EQ(StatusOf(client.ReadResponse()), 200) << i;
}

}  // namespace
}  // namespace xms::http::testing
