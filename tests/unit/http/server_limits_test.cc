// Bounds of the server: what it refuses, what it cuts, and what a refused client gets to read.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/unit/http/raw_client.h"
#include "tests/unit/http/server_harness.h"

namespace xms::http::testing {
namespace {

using namespace std::chrono_literals;
using xms::testing::WaitFor;

ServerOptions Small() {
  ServerOptions options;
  options.max_body_bytes = 1000;
  options.max_header_bytes = 2000;
  options.error_body = [](int status, const std::string& message) {
    return "{\"status\":" + std::to_string(status) + ",\"why\":\"" + message + "\"}";
  };
  return options;
}

struct Refusal {
  const char* name;
  std::string bytes;
  int status;
};

// The unit tests have the long list; here: the answer, its body, and the end of the connection.
TEST(HttpServerLimits, RefusesWithJsonAndCloses) {
  const std::vector<Refusal> refusals = {
      {"garbage", "\x16\x03\x01\x02garbage\r\n\r\n", 400},
      {"two lengths",
       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400},
      {"length and chunked",
       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
       400},
      {"folded", "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n", 400},
      {"bad chunk", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"large header", "GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(3000, 'x'), 431},
      {"large target", "GET /" + std::string(3000, 'x'), 431},
      {"large body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", 413},
      {"large chunks",
       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" +
           std::string(1000, 'x') + "\r\n1\r\nx\r\n",
       413},
      {"endless chunk extension",
       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
           std::string(3000, 'x'),
       431},
      {"endless trailer",
       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " +
           std::string(3000, 'x'),
       431},
      {"unknown coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: br\r\n\r\n", 501},
      {"unknown expectation", "POST / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n", 417},
  };
  ServerHarness harness(Small());
  for (const Refusal& refusal : refusals) {
    RawClient client(harness.port());
    client.Send(refusal.bytes);
    bool reset = true;
    const std::string response = client.ReadAll(&reset);
    EXPECT_EQ(StatusOf(response), refusal.status) << refusal.name << ": " << response;
    EXPECT_EQ(
        BodyOf(response).find("{\"status\":" + std::to_string(refusal.status) + ",\"why\":\""), 0u)
        << refusal.name << ": " << response;
    EXPECT_NE(response.find("Content-Type: application/json\r\n"), std::string::npos)
        << refusal.name;
    EXPECT_NE(response.find("Connection: close\r\n"), std::string::npos) << refusal.name;
    EXPECT_FALSE(reset) << refusal.name;
  }
  EXPECT_EQ(harness.requests(), 0) << "no handler saw any of them";
}

TEST(HttpServerLimits, ARefusalComesAfterTheAnswersBeforeIt) {
  ServerHarness harness(Small());
  RawClient client(harness.port());
  client.Send(Get("/echo") + Get("/hold") + "nonsense\r\n\r\n");
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
  harness.NextHeld()->Send({.body = "ok"});
  EXPECT_EQ(BodyOf(client.ReadResponse()), "ok");
  EXPECT_EQ(StatusOf(client.ReadAll()), 400);
}

// A client that sends its whole body before it reads must find the 413, not a reset.
TEST(HttpServerLimits, ARefusedClientThatKeepsSendingCanReadTheAnswer) {
  ServerHarness harness(Small());
  RawClient client(harness.port());
  client.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n");
  client.Send(Filler(20000000));
  EXPECT_EQ(StatusOf(client.ReadUntil("}")), 413);
  client.Close();
  EXPECT_TRUE(WaitFor("closed", [&] { return harness.server().open_connections() == 0; }));
}

TEST(HttpServerLimits, A100ContinueIsNotSentForABodyThatIsTooLarge) {
  ServerHarness harness(Small());
  RawClient client(harness.port());
  client.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(StatusOf(client.ReadAll()), 413);
}

// Sends `piece` again and again until `stop`, or until the server has closed. The pause paces the
// client; nothing is decided by it.
std::size_t Trickle(RawClient& client, std::string_view piece, const std::stop_token& stop) {
  std::mutex mu;
  std::condition_variable_any never;
  std::unique_lock lock(mu);
  std::size_t sent = 0;
  while (!stop.stop_requested() && client.TrySend(piece)) {
    ++sent;
    never.wait_for(lock, stop, 10ms, [] { return false; });
  }
  return sent;
}

TEST(HttpServerLimits, ARequestThatTricklesInIsCutInTime) {
  ServerOptions options = Small();
  options.header_timeout = 150ms;
  options.body_timeout = 150ms;
  ServerHarness harness(options);
  RawClient idle(harness.port());
  RawClient header(harness.port());
  header.Send("GET / HT");
  RawClient body(harness.port());
  body.Send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n");
  // Each byte is progress, but too little.
  std::jthread trickle([&](const std::stop_token& stop) { Trickle(body, "x", stop); });
  EXPECT_EQ(StatusOf(header.ReadAll()), 408);
  EXPECT_EQ(StatusOf(body.ReadUntil("}")), 408);
  trickle.request_stop();
  trickle.join();
  EXPECT_TRUE(idle.IsSilent()) << "waiting for a first byte costs nothing and is not limited here";
  idle.Send(Get("/echo"));
  EXPECT_EQ(StatusOf(idle.ReadResponse()), 200);
}

// Sends chunks for `how_long`, then the end of the body.
std::string UploadFor(RawClient& client, std::chrono::milliseconds how_long, std::size_t& sent) {
  client.Send("POST /size HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::stop_source end;
  std::jthread upload([&] { sent = 5 * Trickle(client, "5\r\nhello\r\n", end.get_token()); });
  const auto until = std::chrono::steady_clock::now() + how_long;
  EXPECT_TRUE(
      WaitFor("the upload's time", [&] { return std::chrono::steady_clock::now() >= until; }));
  end.request_stop();
  upload.join();
  client.TrySend("0\r\n\r\n");
  return client.ReadResponse();
}

TEST(HttpServerLimits, ASlowUploadThatGoesOnIsServed) {
  ServerOptions options;
  options.header_timeout = 100ms;
  options.body_timeout = 400ms;
  options.body_progress = 5;
  ServerHarness harness(options);
  RawClient client(harness.port());
  std::size_t sent = 0;
  const std::string response = UploadFor(client, 1000ms, sent);
  EXPECT_EQ(StatusOf(response), 200) << response;
  EXPECT_EQ(BodyOf(response), std::to_string(sent));
}

TEST(HttpServerLimits, AnUploadThatKeepsItsPaceEndsWithTheRequestsTime) {
  ServerOptions options = Small();
  options.body_progress = 1;
  options.request_timeout = 300ms;
  ServerHarness harness(options);
  RawClient client(harness.port());
  client.Send("POST /size HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::jthread upload([&](const std::stop_token& stop) { Trickle(client, "1\r\nx\r\n", stop); });
  const std::string response = client.ReadUntil("}");
  upload.request_stop();
  upload.join();
  EXPECT_EQ(StatusOf(response), 408) << response;
  EXPECT_EQ(BodyOf(response),
            "{\"status\":408,\"why\":\"the request did not arrive within 300 ms\"}");
}

TEST(HttpServerLimits, AnUploadThatStopsAfterAGoodStartIsCut) {
  ServerOptions options = Small();
  options.max_body_bytes = 100 * kKiB;
  options.header_timeout = 20s;
  options.body_timeout = 200ms;
  options.body_progress = 1000;
  ServerHarness harness(options);
  RawClient client(harness.port());
  client.Send("POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n" + Filler(50000));
  const std::string response = client.ReadAll();
  EXPECT_EQ(StatusOf(response), 408);
  EXPECT_EQ(
      BodyOf(response),
      "{\"status\":408,\"why\":\"the body came too slowly: less than 1000 bytes in 200 ms\"}");
}

TEST(HttpServerLimits, AnAnswerMayTakeLongerThanARequestMay) {
  ServerOptions options;
  options.header_timeout = 50ms;
  options.body_timeout = 50ms;
  options.idle_timeout = 50ms;
  options.write_timeout = 50ms;
  ServerHarness harness(options);
  RawClient client(harness.port());
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  std::atomic<bool> later{false};
  const auto timer = harness.pool().loop(0).PostAfter(250ms, [&] { later = true; });
  ASSERT_TRUE(WaitFor("five times the limits", [&] { return later.load(); }));
  held->Send({.body = "late"});
  EXPECT_EQ(BodyOf(client.ReadResponse()), "late");
}

TEST(HttpServerLimits, IdleConnectionsAreClosedInTime) {
  ServerOptions options;
  options.idle_timeout = 100ms;
  ServerHarness harness(options);
  RawClient silent(harness.port());
  RawClient client(harness.port());
  for (int i = 0; i < 3; ++i) {
    client.Send(Get("/echo"));
    EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
  }
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(client.ReadAll(), "");
  EXPECT_TRUE(WaitFor("closed", [&] { return harness.server().open_connections() == 0; }));
}

TEST(HttpServerLimits, ConnectionsBeyondTheLimitAreClosedAtOnceAndCounted) {
  ServerOptions options;
  options.max_connections = 3;
  ServerHarness harness(options);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(harness.port()));
    clients.back()->Send(Get("/echo"));
    ASSERT_EQ(StatusOf(clients.back()->ReadResponse()), 200);
  }
  RawClient one_more(harness.port());
  EXPECT_EQ(one_more.ReadAll(), "");
  EXPECT_EQ(harness.server().refused_connections(), 1u);
  EXPECT_EQ(harness.server().open_connections(), 3u);
  clients.pop_back();
  ASSERT_TRUE(WaitFor("a place is free", [&] { return harness.server().open_connections() == 2; }));
  RawClient next(harness.port());
  next.Send(Get("/echo"));
  EXPECT_EQ(StatusOf(next.ReadResponse()), 200);
}

std::size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0;
  std::size_t resident = 0;
  statm >> pages >> resident;
  return resident * 4096;
}

// Sanitizers keep freed memory and shadow bytes, so that sizes mean nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

TEST(HttpServerLimits, AThousandIdleConnectionsCostLittle) {
  rlimit descriptors{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &descriptors), 0);
  descriptors.rlim_cur = std::min<rlim_t>(descriptors.rlim_max, 8192);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &descriptors), 0);
  ASSERT_GE(descriptors.rlim_cur, 2300u) << "both ends of a thousand connections are here";
  ServerHarness harness;
  std::vector<std::unique_ptr<RawClient>> clients;
  const auto open = [&](int count) {
    for (int i = 0; i < count; ++i) {
      clients.push_back(std::make_unique<RawClient>(harness.port()));
      clients.back()->Send(Get("/echo"));
      ASSERT_EQ(StatusOf(clients.back()->ReadResponse()), 200);
    }
  };
  open(50);
  const std::size_t before = ResidentBytes();
  open(1000);
  const std::size_t after = ResidentBytes();
  const std::size_t each = after > before ? (after - before) / 1000 : 0;
  RecordProperty("bytes_per_idle_connection", static_cast<int>(each));
  if (!kSanitized) {
    EXPECT_LT(each, 8 * kKiB) << "bytes a connection, the test's own end included";
  }
  EXPECT_EQ(harness.server().open_connections(), 1050u);
}

// Bytes at random, and valid requests with bytes changed: every connection ends with answers or an
// end, never with a crash or a hang.
TEST(HttpServerLimits, SurvivesDamagedRequests) {
  ServerHarness harness(Small());
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::string good =
      "POST /echo?q HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
      "chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" +
      Get("/size") + "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nworld";
  for (int round = 0; round < 300; ++round) {
    std::string bytes = good;
    for (int change = static_cast<int>(random() % 4); change >= 0; --change) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, 1 + random() % 3);
          break;
        default:
          bytes.insert(at, 1, "\r\n :0\x00"[random() % 6]);
          break;
      }
    }
    RawClient client(harness.port());
    client.TrySend(bytes);
    client.EndSending();
    const std::string answers = client.ReadAll();
    if (!answers.empty()) {
      EXPECT_NE(StatusOf(answers), 0) << "round " << round << ": " << answers;
    }
  }
  EXPECT_TRUE(WaitFor("all gone", [&] { return harness.server().open_connections() == 0; }));
}

}  // namespace
}  // namespace xms::http::testing
