// One engine over real sockets: HTTP in, events and snapshots out.
#include "sim/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/str_cat.h"
#include "tests/integration/sim/http_caller.h"
#include "tests/integration/sim/raw_subscriber.h"
#include "tests/support/wait_for.h"
#include "tests/unit/sim/event_replay.h"

namespace xms::sim {
namespace {

using ::testing::HasSubstr;
using testing::WaitFor;
using Json = nlohmann::json;
using Tokens = std::vector<std::uint32_t>;

constexpr std::uint32_t kBlock = 16;
constexpr int kPatienceMs = 20'000;

Tokens Prompt(std::uint32_t seed, std::uint32_t count) {
  Tokens tokens;
  for (std::uint32_t i = 0; i < count; ++i) tokens.push_back(100'000 * seed + i);
  return tokens;
}

// A client that can go away.
class BareSocket {
 public:
  explicit BareSocket(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~BareSocket() { Close(); }
  BareSocket(const BareSocket&) = delete;
  BareSocket& operator=(const BareSocket&) = delete;
  void Post(const std::string& target, const std::string& body) const {
    const std::string request = base::StrCat(
        "POST ", target, " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
    EXPECT_EQ(::send(fd_, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  }
  // What has come; empty when the peer has closed.
  std::string Read() const {
    char buffer[4096];
    const ssize_t got = ::recv(fd_, buffer, sizeof buffer, 0);
    return got > 0 ? std::string(buffer, static_cast<std::size_t>(got)) : "";
  }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

class SimEngine : public ::testing::Test {
 protected:
  void Start(EngineOptions options) {
    options.topic = "xllm-kv";
    options.core.scheduler.blocks.block_size = kBlock;
    if (options.core.scheduler.blocks.hash_seed == 0) options.core.scheduler.blocks.hash_seed = 1;
    engine_ = std::make_unique<Engine>(pool_, clock_, std::move(options));
    const auto started = engine_->Start();
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  static EngineOptions Fast(std::uint32_t device_blocks = 256, std::uint32_t host_blocks = 0) {
    EngineOptions options;
    options.time_scale = 200;
    options.core.scheduler.blocks.device_blocks = device_blocks;
    options.core.scheduler.blocks.host_blocks = host_blocks;
    return options;
  }
  Json Complete(const Tokens& prompt, std::uint32_t max_tokens = 1) {
    return caller_.Json(engine_->port(), "POST", "/v1/completions",
                        Json{{"prompt", prompt}, {"max_tokens", max_tokens}}.dump());
  }
  Json Fault(const Json& fault) {
    return caller_.Json(engine_->port(), "POST", "/sim/faults", fault.dump());
  }
  Json State(bool blocks = false) {
    return caller_.Json(engine_->port(), "GET", blocks ? "/sim/state?blocks=1" : "/sim/state");
  }
  BlockManager::Residents ResidentsInState(std::uint32_t rank = 0) {
    const Json state = State(true)["ranks"][rank];
    BlockManager::Residents residents;
    for (const auto& hash : state["device"])
      residents.device.push_back({std::stoull(hash.get<std::string>(), nullptr, 16)});
    for (const auto& hash : state["host"])
      residents.host.push_back({std::stoull(hash.get<std::string>(), nullptr, 16)});
    return residents;
  }
  std::unique_ptr<RawSubscriber> Subscribe(std::uint32_t rank = 0) {
    auto subscriber = std::make_unique<RawSubscriber>(engine_->event_port(rank),
                                                      engine_->replay_port(rank), "xllm-kv");
    // A subscription takes effect some time after the connection: prod until something arrives.
    EXPECT_TRUE(WaitFor("the subscription to take effect", [&] {
      EXPECT_EQ(Fault({{"rank", rank}, {"send_bytes", "93"}})["ok"], true);
      return subscriber->Next(20).has_value();
    }));
    while (subscriber->Next(0)) {
    }
    // The last prods may still be on their way; their sequences tell them apart.
    return subscriber;
  }
  std::uint64_t LastSequence(std::uint32_t rank = 0) {
    return State()["ranks"][rank]["sequence"].get<std::uint64_t>();
  }

  base::SystemClock clock_;
  http::EventLoopPool pool_{1};
  HttpCaller caller_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(SimEngine, RequestsBecomeEventsThatARawSubscriberSeesAndASnapshotRepeats) {
  Start(Fast(24, 64));
  const auto subscriber = Subscribe();
  const std::uint64_t before = LastSequence();
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::uint32_t seed = 1; seed <= 3; ++seed) {
      const Json answer = Complete(Prompt(seed, 10 * kBlock + round), 20);
      ASSERT_EQ(answer["usage"]["prompt_tokens"], 10 * kBlock + round) << answer;
    }
  }
  ASSERT_TRUE(WaitFor("all copies to Host to end",
                      [&] { return State()["ranks"][0]["blocks_in_use"] == 0; }));
  const std::uint64_t last = LastSequence();

  EventReplay replay(kBlock);
  for (std::uint64_t expected = before + 1; expected <= last;) {
    const auto frames = subscriber->Next(kPatienceMs);
    ASSERT_TRUE(frames) << "waiting for sequence " << expected;
    ASSERT_EQ(frames->size(), 3U);
    EXPECT_EQ((*frames)[0], "xllm-kv");
    if (FromBigEndian((*frames)[1]) <= before) continue;  // a late prod
    ASSERT_EQ(FromBigEndian((*frames)[1]), expected++);
    const kv_events::KvBatch batch = Decoded((*frames)[2], kBlock);
    EXPECT_GT(batch.timestamp, 1.7e9);
    replay.Apply(batch);
    ASSERT_EQ(replay.complaint(), "");
  }
  const BlockManager::Residents residents = ResidentsInState();
  EXPECT_GT(residents.device.size(), 10U);
  EXPECT_GT(residents.host.size(), 20U);
  EXPECT_EQ(replay.Residents(), residents);

  const auto replies = subscriber->AskForSnapshot(kPatienceMs);
  ASSERT_EQ(replies.size(), 2U);
  ASSERT_EQ(replies[0].size(), 3U);
  EXPECT_EQ(replies[0][0], "");
  EXPECT_EQ(FromBigEndian(replies[0][1]), last);
  EXPECT_TRUE(IsTerminator(replies[1]));
  EventReplay snapshot(kBlock);
  snapshot.Apply(Decoded(replies[0][2], kBlock), true);
  EXPECT_EQ(snapshot.complaint(), "");
  EXPECT_EQ(snapshot.Residents(), residents);
}

TEST_F(SimEngine, EachRankHasAStreamOfItsOwn) {
  EngineOptions options = Fast();
  options.core.dp_size = 2;
  Start(std::move(options));
  Complete(Prompt(1, 3 * kBlock));
  Complete(Prompt(2, 5 * kBlock));
  RawSubscriber zero(engine_->event_port(0), engine_->replay_port(0), "xllm-kv");
  RawSubscriber one(engine_->event_port(1), engine_->replay_port(1), "xllm-kv");
  EventReplay of_zero(kBlock);
  EventReplay of_one(kBlock);
  of_zero.Apply(Decoded(zero.AskForSnapshot(kPatienceMs).at(0).at(2), kBlock, 0), true);
  of_one.Apply(Decoded(one.AskForSnapshot(kPatienceMs).at(0).at(2), kBlock, 1), true);
  EXPECT_EQ(of_zero.Residents().device.size(), 3U);
  EXPECT_EQ(of_one.Residents().device.size(), 5U);
  EXPECT_EQ(of_one.Residents(), ResidentsInState(1));
}

TEST_F(SimEngine, BeforeTheFirstMessageTheWatermarkIsOneBelowTheFirstSequence) {
  EngineOptions options = Fast();
  options.first_sequence = 0;
  Start(std::move(options));
  EXPECT_TRUE(State()["ranks"][0]["sequence"].is_null());
  RawSubscriber subscriber(engine_->event_port(0), engine_->replay_port(0), "xllm-kv");
  const auto replies = subscriber.AskForSnapshot(kPatienceMs);
  ASSERT_EQ(replies.size(), 2U);
  EXPECT_EQ(FromBigEndian(replies[0][1]), std::numeric_limits<std::uint64_t>::max());
  EXPECT_FALSE(replies[0][2].empty());  // so it is no terminator
  EXPECT_TRUE(Decoded(replies[0][2], kBlock).events.empty());
  Complete(Prompt(1, kBlock));
  EXPECT_EQ(LastSequence(), 0U);
}

TEST_F(SimEngine, ReportsCachedTokensOfARepeatedPrompt) {
  Start(Fast());
  const Tokens prompt = Prompt(1, 5 * kBlock);
  EXPECT_EQ(Complete(prompt)["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  Tokens longer = prompt;
  longer.push_back(1);
  const Json usage = Complete(longer, 7)["usage"];
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 5 * kBlock);
  EXPECT_EQ(usage["completion_tokens"], 7);
  EXPECT_EQ(State()["totals"]["cached_tokens"], 5 * kBlock);
}

TEST_F(SimEngine, StreamsEventsUpToDoneAndEchoesTheRequestId) {
  Start(Fast());
  http::Headers headers;
  headers.Add("x-request-id", "abc-1");
  const auto answer = caller_.Call(
      engine_->port(), "POST", "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":4,"stream":true,"stream_options":{"include_usage":true}})",
      std::move(headers));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(*answer->headers.Find("content-type"), "text/event-stream");
  EXPECT_EQ(*answer->headers.Find("x-request-id"), "abc-1");
  std::vector<std::string> events;
  for (std::size_t at = 0; at < answer->body.size();) {
    const std::size_t end = answer->body.find("\n\n", at);
    ASSERT_NE(end, std::string::npos);
    events.push_back(answer->body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  ASSERT_EQ(events.size(), 8U);  // role, four tokens, end, usage, [DONE]
  EXPECT_THAT(events[0], HasSubstr(R"("role":"assistant")"));
  EXPECT_EQ(Json::parse(events[4])["choices"][0]["delta"]["content"].get<std::string>().size(), 1U);
  EXPECT_EQ(Json::parse(events[5])["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(Json::parse(events[6])["usage"]["completion_tokens"], 4);
  EXPECT_EQ(events[7], "[DONE]");
}

TEST_F(SimEngine, StreamIntervalPutsSeveralTokensIntoOneEvent) {
  EngineOptions options = Fast();
  options.stream_interval = 5;
  Start(std::move(options));
  const auto answer = caller_.Call(engine_->port(), "POST", "/v1/completions",
                                   R"({"prompt":"x","max_tokens":12,"stream":true})");
  ASSERT_TRUE(answer.ok());
  std::vector<std::size_t> lengths;
  for (std::size_t at = answer->body.find("\"text\":\""); at != std::string::npos;
       at = answer->body.find("\"text\":\"", at + 1)) {
    lengths.push_back(answer->body.find('"', at + 8) - at - 8);
  }
  EXPECT_THAT(lengths, ::testing::ElementsAre(5, 5, 2, 0));
}

TEST_F(SimEngine, AClientThatGoesAwayFreesItsBlocksAtOnce) {
  EngineOptions options = Fast();
  options.time_scale = 1;  // its answer would take half an hour
  Start(std::move(options));
  const std::string body =
      Json{{"prompt", Prompt(1, kBlock)}, {"max_tokens", 100'000}, {"stream", true}}.dump();
  BareSocket streaming(engine_->port());
  streaming.Post("/v1/completions", body);
  ASSERT_THAT(streaming.Read(), HasSubstr("200 OK"));
  BareSocket whole(engine_->port());
  whole.Post("/v1/completions",
             Json{{"prompt", Prompt(2, kBlock)}, {"max_tokens", 100'000}}.dump());
  ASSERT_TRUE(WaitFor("both to be served", [&] { return State()["running"] == 2; }));
  EXPECT_GT(State()["gpu_cache_usage_perc"], 0);
  streaming.Close();
  whole.Close();
  ASSERT_TRUE(WaitFor("the engine to give both up", [&] { return State()["running"] == 0; }));
  EXPECT_EQ(State()["totals"]["cancelled"], 2);
  EXPECT_EQ(State()["ranks"][0]["blocks_in_use"], 0);
}

TEST_F(SimEngine, TellsErrorsAsOpenAiObjects) {
  EngineOptions options = Fast(4);
  options.core.max_concurrent_requests = 1;
  options.time_scale = 1;
  Start(std::move(options));
  const auto error = [&](const std::string& method, const std::string& target,
                         const std::string& body) {
    const Json answer = caller_.Json(engine_->port(), method, target, body);
    EXPECT_TRUE(answer["body"]["error"]["message"].is_string()) << answer;
    return std::pair(answer["status"].get<int>(), answer["body"]["error"]["code"]);
  };
  EXPECT_EQ(error("POST", "/v1/completions", "{").first, 400);
  EXPECT_EQ(error("POST", "/v1/completions", Json{{"prompt", Prompt(1, 4 * kBlock)}}.dump()),
            std::pair(400, Json("context_length_exceeded")));
  EXPECT_EQ(error("GET", "/v1/unknown", "").first, 404);
  EXPECT_EQ(error("GET", "/v1/completions", "").first, 405);
  EXPECT_EQ(error("POST", "/sim/faults", R"({"reboot":1})").first, 400);
  BareSocket busy(engine_->port());
  busy.Post("/v1/completions", R"({"prompt":"x","max_tokens":50,"stream":true})");
  ASSERT_THAT(busy.Read(), HasSubstr("200 OK"));
  EXPECT_EQ(error("POST", "/v1/completions", R"({"prompt":"y"})"),
            std::pair(429, Json("rate_limit_exceeded")));
}

TEST_F(SimEngine, ListsItsModelAndItsHealth) {
  Start(Fast());
  EXPECT_EQ(caller_.Json(engine_->port(), "GET", "/health"), (Json{{"status", "healthy"}}));
  const Json models = caller_.Json(engine_->port(), "GET", "/v1/models");
  EXPECT_EQ(models["data"][0]["id"], "sim");
  EXPECT_EQ(State()["name"], engine_->name());
}

TEST_F(SimEngine, DroppedMessagesTakeTheirSequence) {
  Start(Fast());
  const auto subscriber = Subscribe();
  const std::uint64_t before = LastSequence();
  Fault({{"drop_next_messages", 2}});
  for (std::uint32_t seed = 1; seed <= 3; ++seed) Complete(Prompt(seed, kBlock));
  auto frames = subscriber->Next(kPatienceMs);
  while (frames && FromBigEndian((*frames)[1]) <= before) frames = subscriber->Next(kPatienceMs);
  ASSERT_TRUE(frames);
  EXPECT_EQ(FromBigEndian((*frames)[1]), before + 3);
  EXPECT_EQ(State()["ranks"][0]["messages_dropped"], 2);
}

TEST_F(SimEngine, SendsGivenBytesWithTheNextSequence) {
  Start(Fast());
  const auto subscriber = Subscribe();
  const std::uint64_t before = LastSequence();
  Fault({{"send_bytes", "c1ff"}});
  auto frames = subscriber->Next(kPatienceMs);
  while (frames && FromBigEndian((*frames)[1]) <= before) frames = subscriber->Next(kPatienceMs);
  ASSERT_TRUE(frames);
  EXPECT_EQ(FromBigEndian((*frames)[1]), before + 1);
  EXPECT_EQ((*frames)[2], "\xc1\xff");
}

TEST_F(SimEngine, CutsAsManySnapshotsAsItIsTold) {
  Start(Fast());
  Complete(Prompt(1, 3 * kBlock));
  RawSubscriber subscriber(engine_->event_port(0), engine_->replay_port(0), "xllm-kv");
  const auto whole = subscriber.AskForSnapshot(kPatienceMs);
  ASSERT_EQ(whole.size(), 2U);
  constexpr int kSilenceMs = 300;  // nothing more can be waited for than that nothing comes
  Fault({{"cut_snapshots", 1}});
  auto cut = subscriber.AskForSnapshot(kSilenceMs);
  ASSERT_EQ(cut.size(), 1U);
  EXPECT_EQ(cut[0][1], whole[0][1]);
  Fault({{"cut_snapshots", 1}, {"cut", "payload"}});
  cut = subscriber.AskForSnapshot(kPatienceMs);
  ASSERT_EQ(cut.size(), 2U);
  EXPECT_EQ(cut[0][2].size(), whole[0][2].size() / 2);
  Fault({{"cut_snapshots", 1}, {"cut", "all"}});
  EXPECT_TRUE(subscriber.AskForSnapshot(kSilenceMs).empty());
  EXPECT_EQ(subscriber.AskForSnapshot(kPatienceMs).size(), 2U);
  EXPECT_EQ(State()["ranks"][0]["snapshots"], 5);
}

TEST_F(SimEngine, ARestartIsANewLifeOnTheSamePorts) {
  Start(Fast());
  const auto subscriber = Subscribe();
  Complete(Prompt(1, 4 * kBlock));
  const Json before = State();
  const BlockManager::Residents old_blocks = ResidentsInState();
  // All of the old life has arrived: what comes later is of the new one.
  for (std::uint64_t seen = 0; seen != LastSequence();) {
    const auto frames = subscriber->Next(kPatienceMs);
    ASSERT_TRUE(frames);
    seen = FromBigEndian((*frames)[1]);
  }
  const Json told = Fault({{"restart", true}});
  const Json after = State();
  EXPECT_NE(before["incarnation_id"], after["incarnation_id"]);
  EXPECT_EQ(told["incarnation_id"], after["incarnation_id"]);
  EXPECT_EQ(after["restarts"], 1);
  EXPECT_TRUE(after["ranks"][0]["sequence"].is_null());
  EXPECT_EQ(after["ranks"][0]["device_blocks"], 0);
  EXPECT_EQ(after["totals"]["completed"], 1);  // totals are of all lives

  const auto replies = subscriber->AskForSnapshot(kPatienceMs);
  ASSERT_EQ(replies.size(), 2U);
  EXPECT_EQ(FromBigEndian(replies[0][1]), 0U);
  // The old subscription comes back by itself; sequences begin anew and names are others.
  Complete(Prompt(1, 4 * kBlock));
  EXPECT_EQ(LastSequence(), 1U);
  for (const model::WireHash hash : ResidentsInState().device) {
    EXPECT_THAT(old_blocks.device, ::testing::Not(::testing::Contains(hash)));
  }
  std::uint64_t sequence = 0;
  ASSERT_TRUE(WaitFor("a message of the new life", [&] {
    Fault({{"send_bytes", "93"}});
    const auto frames = subscriber->Next(20);
    if (frames) sequence = FromBigEndian((*frames)[1]);
    return frames.has_value();
  }));
  EXPECT_LE(sequence, LastSequence());
}

TEST_F(SimEngine, ARestartBreaksOffWhatIsUnderWay) {
  EngineOptions options = Fast();
  options.time_scale = 1;
  Start(std::move(options));
  BareSocket client(engine_->port());
  client.Post("/v1/completions", R"({"prompt":"x","max_tokens":100000,"stream":true})");
  ASSERT_THAT(client.Read(), HasSubstr("200 OK"));
  Fault({{"restart", true}});
  std::string rest;
  for (std::string piece = client.Read(); !piece.empty(); piece = client.Read()) rest += piece;
  EXPECT_THAT(rest, ::testing::Not(HasSubstr("[DONE]")));
  EXPECT_THAT(rest, ::testing::Not(::testing::EndsWith("0\r\n\r\n")));
  EXPECT_EQ(State()["running"], 0);
}

TEST_F(SimEngine, ManyClientsAtOnceAllGetTheirOwnAnswer) {
  Start(Fast(128, 64));
  std::vector<std::thread> clients;
  std::vector<std::string> texts(8);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    clients.emplace_back([&, i] {
      HttpCaller caller;
      for (int round = 0; round < 5; ++round) {
        const Json answer = caller.Json(
            engine_->port(), "POST", "/v1/completions",
            Json{{"prompt", Prompt(static_cast<std::uint32_t>(i), 100)}, {"max_tokens", 30}}
                .dump());
        ASSERT_TRUE(answer.contains("choices")) << answer;
        const std::string text = answer["choices"][0]["text"];
        ASSERT_EQ(text.size(), 30U);
        if (round == 0) texts[i] = text;
        ASSERT_EQ(text, texts[i]);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), texts.size());
  EXPECT_EQ(State()["totals"]["completed"], 40);
}

TEST_F(SimEngine, NamesThePortThatCannotBeOpenedAndLeavesNoneOpen) {
  Start(Fast());
  EngineOptions second = Fast();
  second.port = engine_->port();
  {
    Engine refused(pool_, clock_, second);
    const auto started = refused.Start();
    ASSERT_FALSE(started.ok());
    EXPECT_THAT(started.error().message, HasSubstr(std::to_string(engine_->port())));
  }
  second.port = 0;
  second.event_port = engine_->event_port(0);
  Engine refused(pool_, clock_, second);
  const auto started = refused.Start();
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().message, HasSubstr(std::to_string(engine_->event_port(0))));
}

}  // namespace
}  // namespace xms::sim
