// What libzmq's monitor says about the end of a connection, and what Link makes of it. These keep
// the observations true that the header of Link rests on.
#include "kv_directory/streams/internal/link.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/kv_publisher.h"
#include "tests/support/wait_for.h"

namespace xms::kv_directory::internal {
namespace {

using testing::KvPublisher;
using testing::WaitFor;

class KVDirectoryLink : public ::testing::Test {
 protected:
  ~KVDirectoryLink() override {
    link_.Close();
    zmq_ctx_term(context_);
  }
  void Open(Link::Kind kind, const std::string& url) {
    link_.Open(context_, {.kind = kind, .url = url, .topic = "xllm-kv", .max_frame_bytes = 1000}, 0,
               resolver_, wakeup_);
  }
  ::testing::AssertionResult WaitEvent(Link::Event wanted) {
    return WaitFor("event " + std::to_string(static_cast<int>(wanted)), [&] {
      const Link::Event event = link_.Next(clock_.Now());
      if (event != Link::Event::kNone) events_.push_back(event);
      return event == wanted;
    });
  }

  void* context_ = zmq_ctx_new();
  base::SystemClock clock_;
  const std::shared_ptr<Wakeup> wakeup_ = Wakeup::Make();
  Resolver resolver_;
  Link link_;
  std::vector<Link::Event> events_;
};

using Events = std::vector<Link::Event>;

TEST_F(KVDirectoryLink, PublisherThatGoesAwayIsClosed) {
  KvPublisher publisher;
  Open(Link::Kind::kSubscription, publisher.endpoint());
  ASSERT_TRUE(WaitEvent(Link::Event::kUp));
  publisher.Disconnect();
  ASSERT_TRUE(WaitEvent(Link::Event::kLost));
  EXPECT_EQ(events_, (Events{Link::Event::kUp, Link::Event::kBroken, Link::Event::kLost}));
  EXPECT_EQ(link_.cause(), LossCause::kClosed);
}

TEST_F(KVDirectoryLink, FrameOverTheLimitIsOversizeAndSmallerFramesOfAnyNumberAreNot) {
  KvPublisher publisher;
  Open(Link::Kind::kSubscription, publisher.endpoint());
  ASSERT_TRUE(WaitEvent(Link::Event::kUp));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  const std::string fits(1000, 'x');
  publisher.SendFrames({"xllm-kv", fits, fits, fits});
  ZmqMessage message;
  ASSERT_TRUE(WaitFor("the message", [&] { return message.Receive(link_.socket()); }));
  EXPECT_EQ(TotalBytes(message.frames()), 3007u);
  publisher.SendFrames({"xllm-kv", fits + "x"});
  ASSERT_TRUE(WaitEvent(Link::Event::kLost));
  EXPECT_EQ(events_, (Events{Link::Event::kUp, Link::Event::kBroken, Link::Event::kLost}));
  EXPECT_EQ(link_.cause(), LossCause::kOversize);
}

TEST_F(KVDirectoryLink, EveryTopicIsHeardUntilItIsToldThatOursExists) {
  KvPublisher publisher;
  Open(Link::Kind::kSubscription, publisher.endpoint());
  ASSERT_TRUE(WaitEvent(Link::Event::kUp));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  ZmqMessage message;
  const auto next_topic = [&] {
    EXPECT_TRUE(WaitFor("a message", [&] { return message.Receive(link_.socket()); }));
    const Frame topic = message.frames()[0];
    return std::string(reinterpret_cast<const char*>(topic.data()), topic.size());
  };
  publisher.SendFrames({"other", "1"});
  publisher.SendFrames({"xllm-kv", "2"});
  EXPECT_EQ(next_topic(), "other");
  EXPECT_EQ(next_topic(), "xllm-kv") << "once, though two subscriptions ask for it";
  link_.HearOnlyTopic();
  publisher.SendFrames({"other", "3"});
  publisher.SendFrames({"xllm-kv2", "4"});
  EXPECT_EQ(next_topic(), "xllm-kv2") << "a topic that begins with ours comes as before";
}

TEST_F(KVDirectoryLink, LinkIsNeverRenewedByItself) {
  KvPublisher publisher;
  Open(Link::Kind::kSubscription, publisher.endpoint());
  ASSERT_TRUE(WaitEvent(Link::Event::kUp));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  publisher.Restart();
  ASSERT_TRUE(WaitEvent(Link::Event::kLost));
  KvPublisher other;
  Link second;
  second.Open(context_,
              {.kind = Link::Kind::kSubscription,
               .url = publisher.endpoint(),
               .topic = "xllm-kv",
               .max_frame_bytes = 1000},
              0, resolver_, Wakeup::Make());
  ASSERT_TRUE(WaitFor("a second link is up",
                      [&] { return second.Next(clock_.Now()) == Link::Event::kUp; }));
  ASSERT_TRUE(publisher.WaitForSubscriptions(1));
  EXPECT_EQ(publisher.subscriptions(), 1u) << "the second's; the first has not come back";
  second.Close();
}

TEST_F(KVDirectoryLink, NobodyThereIsUnreachable) {
  Open(Link::Kind::kSubscription, "tcp://127.0.0.1:1");
  ASSERT_TRUE(WaitEvent(Link::Event::kLost));
  EXPECT_EQ(link_.cause(), LossCause::kUnreachable);
  events_.clear();
  Open(Link::Kind::kExchange, "tcp://no-such-host.invalid:1");
  pollfd looked_up{.fd = wakeup_->fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&looked_up, 1, 30'000), 1) << "nothing else will ever be readable";
  ASSERT_TRUE(WaitEvent(Link::Event::kLost));
  EXPECT_EQ(link_.cause(), LossCause::kUnreachable);
  EXPECT_EQ(events_, Events{Link::Event::kLost});
}

TEST_F(KVDirectoryLink, PeerOfTheWrongKindIsRefused) {
  KvPublisher publisher;
  Open(Link::Kind::kSubscription, publisher.replay_endpoint());
  ASSERT_TRUE(WaitEvent(Link::Event::kLost));
  EXPECT_EQ(link_.cause(), LossCause::kRefused);
  Open(Link::Kind::kExchange, publisher.endpoint());
  ASSERT_TRUE(WaitEvent(Link::Event::kLost));
  EXPECT_EQ(link_.cause(), LossCause::kRefused);
}

TEST_F(KVDirectoryLink, PeerThatSpeaksSomethingElseIsRefused) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  Open(Link::Kind::kSubscription, "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  const int peer = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  ASSERT_GE(peer, 0);
  const std::string nonsense =
      "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" + std::string(100, 'x');
  ASSERT_EQ(send(peer, nonsense.data(), nonsense.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(nonsense.size()));
  ASSERT_TRUE(WaitEvent(Link::Event::kLost));
  EXPECT_EQ(link_.cause(), LossCause::kRefused);
  close(peer);
  close(listener);
}

}  // namespace
}  // namespace xms::kv_directory::internal
