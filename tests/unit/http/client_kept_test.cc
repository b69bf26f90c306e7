// Connections that are kept for the next call, and what happens when the peer has closed them.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "http/client.h"
#include "http/internal/socket.h"
#include "tests/unit/http/client_fixture.h"
#include "tests/unit/http/raw_client.h"
#include "tests/unit/http/server_harness.h"

namespace xms::http::testing {
namespace {

using namespace std::chrono_literals;
using xms::testing::WaitFor;

using HttpClientKept = HttpClientTest;

// A kept connection may be closed by the peer at any moment; that must not fail a request that
// another connection can carry.
TEST_F(HttpClientKept, AKeptConnectionClosedInThePoolIsNotUsed) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  peer.Close();
  Start(server.port());
  auto next = server.Accept();
  EXPECT_NE(next.ReadRequest(), "");
  next.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error(), "");
}

TEST_F(HttpClientKept, AKeptConnectionThatSaidSomethingUnaskedIsNotUsed) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  peer.Send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(peer.WaitForEnd()) << "it is closed without waiting for a call";
  Start(server.port());
  auto next = server.Accept();
  next.ReadRequest();
  next.Send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(body(), "ok");
}

class HttpClientRetry : public HttpClientTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(HttpClientRetry, HttpClientRetry, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Reset" : "Close"; });

TEST_P(HttpClientRetry, AGetOnAKeptConnectionThatBreaksUnansweredIsSentOnceMore) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(client_->repeated_requests(), 0u);
  Start(server.port());
  const std::string first = peer.ReadRequest();
  GetParam() ? peer.Reset() : peer.Close();
  auto next = server.Accept();
  EXPECT_EQ(next.ReadRequest(), first) << "the same request";
  next.Send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error(), "");
  EXPECT_EQ(body(), "ok");
  EXPECT_EQ(client_->repeated_requests(), 1u);
}

Request Post(std::string body) {
  Request request;
  request.method = "POST";
  request.body = std::move(body);
  return request;
}

// A generation may have begun; a second one would cost as much again.
TEST_P(HttpClientRetry, APostThatThePeerHasTakenIsNotSentAgain) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  Start(server.port(), Post(Filler(200 * kKiB)));
  EXPECT_NE(peer.ReadRequest(), "");
  GetParam() ? peer.Reset() : peer.Close();
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error().find("unavailable: "), 0u) << error();
  EXPECT_EQ(stage(), CallStage::kSent);
  EXPECT_TRUE(server.NobodyWaits()) << "it was sent twice";
  EXPECT_EQ(client_->repeated_requests(), 0u);
}

TEST_P(HttpClientRetry, APostOfWhichAPartIsMissingIsSentOnceMore) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  // More than the kernels hold, and the peer takes none of it.
  Start(server.port(), Post(Filler(32 * kMiB)));
  GetParam() ? peer.Reset() : peer.Close();
  auto next = server.Accept();
  EXPECT_GT(next.ReadRequest().size(), 32 * kMiB);
  next.Send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error(), "");
  EXPECT_EQ(body(), "ok");
  EXPECT_EQ(client_->repeated_requests(), 1u);
}

// Nothing has begun the request, so the caller may ask somebody else.
TEST_P(HttpClientRetry, ARepetitionThatReachesNobodyCountsAsNotSent) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  Start(server.port(), Post(Filler(32 * kMiB)));
  server.StopListening();
  GetParam() ? peer.Reset() : peer.Close();
  ASSERT_TRUE(Ended());
  EXPECT_NE(error().find("cannot connect"), std::string::npos) << error();
  EXPECT_EQ(stage(), CallStage::kConnecting);
}

// Its caller knows that the peer is there long before an answer's head comes.
TEST_F(HttpClientKept, TheMomentOfSendingIsTold) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  ASSERT_TRUE(WaitFor("the caller knows", [&] { return sent() == 1; }));
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  Start(server.port());
  EXPECT_EQ(sent(), 1) << "a kept connection takes it at once";
  EXPECT_NE(peer.ReadRequest(), "");
  peer.Close();
  auto next = server.Accept();
  next.ReadRequest();
  ASSERT_TRUE(WaitFor("the caller knows of the repetition", [&] { return sent() == 2; }));
  next.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
}

TEST_F(HttpClientKept, AConnectionThatIsRefusedWasNotSentTo) {
  RawServer server;
  server.StopListening();
  Start(server.port());
  ASSERT_TRUE(Ended());
  EXPECT_EQ(sent(), 0);
  EXPECT_EQ(stage(), CallStage::kConnecting);
}

// What a peer that had closed before the request came is told by. The client looks at a kept
// connection immediately before it writes, so a test cannot get in between: two bare sockets.
TEST(HttpClientUnconfirmed, IsEverythingForAPeerThatHadClosedAndNothingForOneThatHadRead) {
  for (const bool had_closed : {true, false}) {
    SCOPED_TRACE(had_closed ? "closed, then written to" : "read, then closed");
    boost::asio::io_context context;
    using boost::asio::ip::tcp;
    tcp::acceptor acceptor(context, {boost::asio::ip::address_v4::loopback(), 0});
    tcp::socket ours(context);
    ours.connect(acceptor.local_endpoint());
    tcp::socket peer = acceptor.accept();
    if (had_closed) {
      peer.close();
      ours.wait(tcp::socket::wait_read);
    }
    const std::string request = "POST / HTTP/1.1\r\n\r\n";
    ASSERT_EQ(ours.send(boost::asio::buffer(request)), request.size());
    if (!had_closed) {
      std::string taken(request.size(), ' ');
      ASSERT_EQ(boost::asio::read(peer, boost::asio::buffer(taken)), request.size());
      peer.close();
      ours.wait(tcp::socket::wait_read);
    }
    char byte = 0;
    std::size_t count = 0;
    EXPECT_EQ(internal::ReadSome(ours.native_handle(), &byte, 1, count), internal::IoResult::kEnd);
    EXPECT_EQ(internal::Unconfirmed(ours.native_handle()), had_closed ? request.size() : 0u);
  }
}

TEST_P(HttpClientRetry, TheSecondTryIsTheLast) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  Start(server.port());
  peer.ReadRequest();
  peer.Close();
  auto next = server.Accept();
  next.ReadRequest();
  GetParam() ? next.Reset() : next.Close();
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error().find("unavailable: "), 0u) << error();
  EXPECT_EQ(stage(), CallStage::kSent);
  EXPECT_TRUE(server.NobodyWaits());
}

TEST_P(HttpClientRetry, ANewConnectionThatBreaksUnansweredIsAnError) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  GetParam() ? peer.Reset() : peer.Close();
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error().find("unavailable: "), 0u) << error();
  EXPECT_EQ(stage(), CallStage::kSent);
  EXPECT_TRUE(server.NobodyWaits()) << "not tried again";
}

TEST_P(HttpClientRetry, AnAnswerThatHadBegunIsNotAskedForAgain) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  Start(server.port());
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
  ASSERT_TRUE(WaitFor("the header is read", [&] { return status() == 200; }));
  GetParam() ? peer.Reset() : peer.Close();
  ASSERT_TRUE(Ended());
  EXPECT_EQ(stage(), CallStage::kAnswering);
  EXPECT_TRUE(server.NobodyWaits());
}

TEST_F(HttpClientKept, WhenTheSecondTryFindsNobodyTheRequestStillMayHaveBeenSeen) {
  RawServer server;
  Start(server.port());
  auto peer = server.Accept();
  peer.ReadRequest();
  peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Ended());
  Start(server.port());
  peer.ReadRequest();
  server.StopListening();
  peer.Close();
  ASSERT_TRUE(Ended());
  EXPECT_EQ(stage(), CallStage::kSent);
}

// Some servers answer before they have read the whole request, and close.
TEST_F(HttpClientKept, AnEarlyAnswerIsDeliveredAndTheConnectionIsNotKept) {
  RawServer server;
  Request request;
  request.method = "POST";
  request.body = Filler(32 * kMiB);
  Start(server.port(), request);
  auto peer = server.Accept();
  peer.Send("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno");
  ASSERT_TRUE(Ended());
  EXPECT_EQ(error(), "");
  EXPECT_EQ(status(), 413);
  EXPECT_EQ(body(), "no");
  EXPECT_TRUE(peer.WaitForEnd()) << "half a request was sent; nothing may follow it";
}

class HttpClientPool : public HttpClientTest {
 protected:
  HttpClientPool() : HttpClientTest({.max_idle_per_host = 2, .idle_timeout = 100ms}) {}
};

TEST_F(HttpClientPool, KeepsNoMoreThanAllowedAndNotForEver) {
  RawServer server;
  std::vector<RawServer::Peer> peers;
  std::vector<std::shared_ptr<Log>> logs;
  for (int i = 0; i < 4; ++i) {
    Start(server.port());
    logs.push_back(log_);
    peers.push_back(server.Accept());
    peers.back().ReadRequest();
  }
  for (auto& peer : peers) peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  for (const auto& log : logs) {
    log_ = log;
    ASSERT_TRUE(Ended());
  }
  // All four end: two at once for want of a place, two after the idle time.
  for (auto& peer : peers) EXPECT_TRUE(peer.WaitForEnd());
}

}  // namespace
}  // namespace xms::http::testing
