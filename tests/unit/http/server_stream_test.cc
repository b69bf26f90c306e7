// The server with answers that go out piece by piece.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/http/raw_client.h"
#include "tests/unit/http/server_harness.h"

namespace xms::http::testing {
namespace {

using namespace std::chrono_literals;
using xms::testing::WaitFor;

Headers EventStream() {
  Headers headers;
  headers.Add("Content-Type", "text/event-stream");
  return headers;
}

TEST(HttpServerStream, SendsChunksAsTheyAreWritten) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  held->StartStream(200, EventStream());
  const std::string head = client.ReadUntil("\r\n\r\n");
  EXPECT_EQ(StatusOf(head), 200) << "the header does not wait for the first chunk";
  EXPECT_NE(head.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_NE(head.find("Content-Type: text/event-stream\r\n"), std::string::npos);
  WriteResult first;
  held->Write("data: 1\n\n", first.Callback());
  EXPECT_EQ(client.Read(14), "9\r\ndata: 1\n\n\r\n");
  EXPECT_TRUE(WaitFor("done is called", [&] { return first.value() == 1; }));
  held->Write("", nullptr);  // would end the body if it were sent
  held->Write(std::string(20, 'x'), nullptr);
  held->Finish();
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "14\r\n" + std::string(20, 'x') + "\r\n0\r\n\r\n");
  client.Send(Get("/echo"));
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200) << "the connection is kept";
}

TEST(HttpServerStream, HeaderAndFirstChunkOfOneTurnGoOutTogether) {
  ServerHarness harness({}, 1);
  RawClient client(harness.port());
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  WriteResult result;
  int during_write = 7;
  RunOn(harness.pool().loop(0), [&] {
    held->StartStream(200, {});
    held->Write("a", result.Callback());
    during_write = result.value();
    held->Finish();
  });
  RunOn(harness.pool().loop(0), [] {});
  EXPECT_EQ(during_write, -1) << "done is never called from inside Write";
  EXPECT_EQ(result.value(), 1);
  EXPECT_EQ(BodyOf(client.ReadUntil("0\r\n\r\n")), "1\r\na\r\n0\r\n\r\n");
}

TEST(HttpServerStream, DeclaredLengthIsKept) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  Headers headers;
  headers.Add("content-length", "6");
  held->StartStream(201, headers);
  held->Write("abc", nullptr);
  held->Write("def", nullptr);
  held->Finish();
  const std::string response = client.ReadResponse();
  EXPECT_EQ(StatusOf(response), 201);
  EXPECT_EQ(BodyOf(response), "abcdef");
  EXPECT_EQ(response.find("chunked"), std::string::npos);
  client.Send(Get("/echo"));
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200);
}

// A body that is not as long as declared must not look whole, nor run into the next answer.
TEST(HttpServerStream, WrongDeclaredLengthBreaksTheConnection) {
  for (const char* body : {"ab", "abcdefgh"}) {
    ServerHarness harness;
    RawClient client(harness.port());
    client.Send(Get("/hold") + Get("/echo"));
    const auto held = harness.NextHeld();
    Headers headers;
    headers.Add("Content-Length", "6");
    held->StartStream(200, headers);
    held->Write(body, nullptr);
    held->Finish();
    const std::string response = client.ReadAll();
    EXPECT_LT(BodyOf(response).size(), 6u) << response;
  }
}

TEST(HttpServerStream, AnHttp10ClientGetsABodyThatEndsWithTheConnection) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send("GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto held = harness.NextHeld();
  held->StartStream(200, {});
  held->Write("abc", nullptr);
  held->Write("def", nullptr);
  held->Finish();
  bool reset = true;
  const std::string response = client.ReadAll(&reset);
  EXPECT_EQ(BodyOf(response), "abcdef");
  EXPECT_EQ(response.find("chunked"), std::string::npos);
  EXPECT_NE(response.find("Connection: close"), std::string::npos);
  EXPECT_FALSE(reset);
}

TEST(HttpServerStream, AbortShowsThatSomethingIsMissing) {
  ServerHarness harness;
  {
    RawClient client(harness.port());
    client.Send(Get("/hold"));
    const auto held = harness.NextHeld();
    held->StartStream(200, {});
    WriteResult written;
    held->Write("abc", written.Callback());
    ASSERT_TRUE(WaitFor("written", [&] { return written.value() == 1; }));
    held->Abort();
    EXPECT_EQ(BodyOf(client.ReadAll()), "3\r\nabc\r\n") << "no closing chunk";
  }
  {
    RawClient client(harness.port());
    client.Send("GET /hold HTTP/1.0\r\n\r\n");
    const auto held = harness.NextHeld();
    held->StartStream(200, {});
    held->Write("abc", nullptr);
    client.ReadUntil("abc");
    held->Abort();
    bool reset = false;
    EXPECT_EQ(client.ReadAll(&reset), "");
    EXPECT_TRUE(reset) << "an orderly end would mean a whole body";
  }
}

TEST(HttpServerStream, AStreamThatIsDroppedIsAborted) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send(Get("/hold"));
  auto held = harness.NextHeld();
  held->StartStream(200, {});
  held->Write("abc", nullptr);
  held.reset();
  EXPECT_EQ(BodyOf(client.ReadAll()), "3\r\nabc\r\n");
}

TEST(HttpServerStream, HeadAndBodilessStatusesSwallowTheBody) {
  ServerHarness harness;
  RawClient client(harness.port());
  client.Send("HEAD /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  auto held = harness.NextHeld();
  held->StartStream(200, {});
  WriteResult result;
  held->Write("abc", result.Callback());
  held->Finish();
  EXPECT_EQ(StatusOf(client.ReadUntil("\r\n\r\n")), 200);
  EXPECT_TRUE(WaitFor("the writer goes on", [&] { return result.value() == 1; }));
  client.Send(Get("/hold"));
  held = harness.NextHeld();
  held->StartStream(204, {});
  held->Write("abc", nullptr);
  held->Finish();
  EXPECT_EQ(StatusOf(client.ReadUntil("\r\n\r\n")), 204);
  client.Send(Get("/echo"));
  EXPECT_EQ(StatusOf(client.ReadResponse()), 200) << "nothing lies in between";
}

// The writer learns when the kernel has taken a chunk; with a client that does not read, it waits.
TEST(HttpServerStream, ASlowReaderHoldsTheWriterBack) {
  ServerHarness harness({}, 1);
  RawClient client(harness.port(), {.receive_buffer = 16384});
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  constexpr std::size_t kChunk = 64 * kKiB;
  constexpr int kChunks = 160;  // 10 MiB, more than the socket buffers
  std::atomic<int> taken{0};
  std::function<void(bool)> next = [&](bool ok) {
    if (!ok) return;
    if (++taken == kChunks) {
      held->Finish();
    } else {
      held->Write(std::string(kChunk, 'x'), next);
    }
  };
  held->StartStream(200, {});
  held->Write(std::string(kChunk, 'x'), next);
  // The writer comes to a halt: several turns of the loop without another chunk taken.
  int before = -1;
  ASSERT_TRUE(WaitFor("the writer halts", [&] {
    const int now = taken;
    for (int i = 0; i < 20; ++i) RunOn(harness.pool().loop(0), [] {});
    const bool halted = now > 0 && now == before && now == taken;
    before = now;
    return halted;
  }));
  EXPECT_LT(taken, kChunks);
  client.ReadUntil("0\r\n\r\n");
  EXPECT_EQ(taken, kChunks) << "it went on when the client did";
}

TEST(HttpServerStream, AClientThatNeverReadsIsCutAfterTheWriteTimeout) {
  ServerHarness harness({.write_timeout = 150ms});
  RawClient client(harness.port(), {.receive_buffer = 4096});
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  std::atomic<int> gone{0};
  held->OnDisconnect([&] { ++gone; });
  held->StartStream(200, {});
  WriteResult result;
  held->Write(Filler(32 * kMiB), result.Callback());
  EXPECT_TRUE(WaitFor("the writer is told", [&] { return result.value() == 0; }));
  EXPECT_TRUE(WaitFor("the handler is told", [&] { return gone == 1; }));
  EXPECT_EQ(harness.server().open_connections(), 0u);
}

TEST(HttpServerStream, AClientThatReadsSlowlyIsNotCut) {
  ServerHarness harness({.write_timeout = 400ms});
  RawClient client(harness.port(), {.receive_buffer = 65536});
  client.Send(Get("/hold"));
  const auto held = harness.NextHeld();
  constexpr std::size_t kSize = 24 * kMiB;
  Headers headers;
  headers.Add("Content-Length", std::to_string(kSize));
  held->StartStream(200, headers);
  held->Write(std::string(kSize, 'x'), nullptr);
  held->Finish();
  client.ReadUntil("\r\n\r\n");
  // Longer in all than the limit, never silent for as long.
  const auto start = std::chrono::steady_clock::now();
  std::size_t got = 0;
  while (got < kSize) {
    const auto piece = client.Read(std::min<std::size_t>(kSize / 12, kSize - got));
    ASSERT_FALSE(piece.empty()) << "cut after " << got << " bytes";
    got += piece.size();
    const auto resume_at = std::chrono::steady_clock::now() + 60ms;
    ASSERT_TRUE(WaitFor("a pause", [&] { return std::chrono::steady_clock::now() >= resume_at; }));
  }
  EXPECT_GT(std::chrono::steady_clock::now() - start, 400ms);
}

}  // namespace
}  // namespace xms::http::testing
