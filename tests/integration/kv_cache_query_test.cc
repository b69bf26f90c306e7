// The internal query, end to end: publishers over real TCP, the directory, the index, the gateway
// and a client's socket. Requirements F1 to F4, and what D and E promise of the answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "tests/integration/service_fixture.h"
#include "tests/support/kv_publisher.h"

namespace xms::gateway {
namespace {

using kv_directory::DirectoryConfig;
using kv_directory::StreamSpec;
using model::Tier;
using xms::testing::KvPublisher;
using xms::testing::MakePrompt;
using xms::testing::Tokens;
using xms::testing::WaitFor;

constexpr char kPath[] = "/v1/internal/kv-cache/query";

class KVCacheQuery : public ServiceFixture {
 protected:
  static StreamSpec Spec(const KvPublisher& publisher, const std::string& name,
                         std::int32_t rank = 0) {
    return {.key = {{name}, {rank}},
            .block_size = 4,
            .endpoint = publisher.endpoint(),
            .replay_endpoint = publisher.replay_endpoint(),
            .topic = "xllm-kv"};
  }
  static DirectoryConfig Static(std::vector<StreamSpec> streams) {
    DirectoryConfig config;
    config.streams = std::move(streams);
    config.limits.replay_timeout = std::chrono::milliseconds(500);
    return config;
  }

  static std::string Body(const Tokens& tokens) { return Json({{"token_ids", tokens}}).dump(); }
  Answer Query(const Tokens& tokens) { return Ask("POST", kPath, Body(tokens)); }
  Json Matches(const Tokens& tokens = {}) {
    const Answer answer = Query(tokens);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json()["matches"];
  }
  Json Match(const std::string& name, const Tokens& tokens = {}, int rank = 0) {
    for (const Json& match : Matches(tokens)) {
      if (match["instance_name"] == name && match["dp_rank"] == rank) return match;
    }
    return {{"synchronized", false}, {"error", "not listed"}};
  }
  // The query says that everything which was published is indexed.
  ::testing::AssertionResult WaitCaughtUp(const KvPublisher& publisher, const std::string& name,
                                          int rank = 0) {
    return WaitFor(name + " has caught up", [&] {
      const Json match = Match(name, {}, rank);
      return match["synchronized"] == true && match["sequence_valid"] == true &&
             match["sequence"] == publisher.last_sequence();
    });
  }
  ::testing::AssertionResult WaitUnsynchronized(const std::string& name) {
    return WaitFor(name + " is listed as unsynchronized", [&] {
      const Json match = Match(name);
      return match["synchronized"] == false && match["error"] != "not listed";
    });
  }
  static void ExpectNoHits(const Json& match) {
    for (const char* count : {"device_hit_tokens", "host_only_hit_tokens", "reusable_prefix_tokens",
                              "device_blocks", "host_blocks"}) {
      EXPECT_EQ(match[count], 0) << count << " in " << match;
    }
    EXPECT_NE(match["error"], "");
  }

  // An answer about one stream without our own additions, which come last.
  static std::string Specified(std::string body) {
    const std::size_t from = body.find(R"(,"identity":)");
    const std::size_t to = body.find('}', from);
    EXPECT_NE(from, std::string::npos) << body;
    return to == std::string::npos ? body : body.erase(from, to - from);
  }

  const Tokens prompt_ = MakePrompt(1, 8);
};

// F4
TEST_F(KVCacheQuery, AnswersByteForByteWhatAStreamHolds) {
  KvPublisher publisher;
  publisher.Publish(publisher.NewBatch()
                        .Store(Tier::kDevice, prompt_, 0, 3)
                        .Store(Tier::kHost, prompt_, 3, 2)
                        .Replicate(Tier::kHost, prompt_, 0, 1));
  StartService(Static({Spec(publisher, "a:1")}));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a:1"));
  EXPECT_EQ(Specified(Query(prompt_).body),
            R"({"matches":[{"instance_name":"a:1","dp_rank":0,"synchronized":true,"sequence":1,)"
            R"("sequence_valid":true,"device_hit_tokens":12,"host_only_hit_tokens":8,)"
            R"("reusable_prefix_tokens":20,"device_blocks":3,"host_blocks":3,"error":""}],)"
            R"("excluded":[]})");
}

// E8
// F4, and what we add to it.
TEST_F(KVCacheQuery, EachStreamShowsWhatItsWordIsWorth) {
  KvPublisher publisher;
  publisher.HoldSnapshots();
  StartService(Static({Spec(publisher, "a")}));
  ASSERT_TRUE(publisher.WaitForSnapshotRequests(1));
  const Json before = Match("a");
  EXPECT_EQ(before["identity"], "") << "static streams carry no identity (E8)";
  EXPECT_EQ(before["digest"], "");
  EXPECT_EQ(before["proof_age_ms"], nullptr);
  EXPECT_EQ(before["snapshot_age_ms"], nullptr);
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitFor("a synchronizes", [&] { return Match("a")["synchronized"] == true; }));
  EXPECT_EQ(Match("a")["digest"], "0000000000000000") << "nothing is resident";
  EXPECT_GT(Match("a")["generation"], before["generation"]);
  ASSERT_TRUE(WaitFor("the proof is shown",
                      [&] { return Match("a")["snapshot_age_ms"].is_number_unsigned(); }));
  publisher.Store(Tier::kDevice, prompt_);
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  const Json after = Match("a");
  EXPECT_NE(after["digest"], "0000000000000000");
  EXPECT_EQ(after["digest"].get<std::string>().size(), 16u);
  EXPECT_LE(after["proof_age_ms"], after["snapshot_age_ms"]);
}

// F3
TEST_F(KVCacheQuery, EmptyTokenIdsGiveSynchronizationAndResidencyOnly) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartService(Static({Spec(publisher, "a")}));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(Specified(Query({}).body),
            R"({"matches":[{"instance_name":"a","dp_rank":0,"synchronized":true,"sequence":1,)"
            R"("sequence_valid":true,"device_hit_tokens":0,"host_only_hit_tokens":0,)"
            R"("reusable_prefix_tokens":0,"device_blocks":8,"host_blocks":0,"error":""}],)"
            R"("excluded":[]})");
}

TEST_F(KVCacheQuery, OnlyCompleteBlocksFromTheStartCount) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartService(Static({Spec(publisher, "a")}));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  for (std::size_t size = 1; size <= prompt_.size(); ++size) {
    const Tokens part(prompt_.begin(), prompt_.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(Match("a", part)["device_hit_tokens"], size / 4 * 4) << size;
  }
  const Tokens tail(prompt_.begin() + 4, prompt_.end());
  EXPECT_EQ(Match("a", tail)["reusable_prefix_tokens"], 0);
  Tokens longer = prompt_;
  longer.insert(longer.end(), {1, 2, 3, 4});
  EXPECT_EQ(Match("a", longer)["reusable_prefix_tokens"], 32);
}

// H4
TEST_F(KVCacheQuery, FollowsLiveEventsOfBothTiers) {
  KvPublisher publisher;
  StartService(Static({Spec(publisher, "a")}));
  ASSERT_TRUE(WaitFor("a synchronizes", [&] { return Match("a")["synchronized"] == true; }));
  publisher.Publish(
      publisher.NewBatch().Store(Tier::kDevice, prompt_).Replicate(Tier::kHost, prompt_, 0, 6));
  publisher.Publish(publisher.NewBatch().Remove(Tier::kDevice, prompt_, 2, 3));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  Json match = Match("a", prompt_);
  EXPECT_EQ(match["device_hit_tokens"], (8 - 3) * 4);
  EXPECT_EQ(match["host_only_hit_tokens"], 3 * 4);
  publisher.Publish(publisher.NewBatch().Remove(Tier::kHost, prompt_, 3, 1));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  match = Match("a", prompt_);
  EXPECT_EQ(match["device_hit_tokens"], 2 * 4);
  EXPECT_EQ(match["host_only_hit_tokens"], 1 * 4);
  publisher.Publish(publisher.NewBatch().Clear());
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(Match("a", prompt_)["reusable_prefix_tokens"], 0);
}

TEST_F(KVCacheQuery, InstancesAndRanksAreSeparateAndSortedByNameBytesThenRank) {
  KvPublisher b0;
  KvPublisher b1({.dp_rank = 1});
  KvPublisher upper;
  KvPublisher a2({.dp_rank = 2});
  b0.Publish(b0.NewBatch().Store(Tier::kDevice, prompt_, 0, 2));
  b1.Publish(b1.NewBatch().Store(Tier::kDevice, prompt_, 0, 5));
  upper.Publish(upper.NewBatch().Store(Tier::kHost, prompt_, 0, 7));
  a2.Heartbeat();
  StartService(Static({Spec(b1, "b", 1), Spec(a2, "a", 2), Spec(b0, "b", 0), Spec(upper, "B", 0)}));
  ASSERT_TRUE(WaitCaughtUp(b0, "b", 0));
  ASSERT_TRUE(WaitCaughtUp(b1, "b", 1));
  ASSERT_TRUE(WaitCaughtUp(upper, "B", 0));
  ASSERT_TRUE(WaitCaughtUp(a2, "a", 2));
  std::string seen;
  for (const Json& match : Matches(prompt_)) {
    seen += base::StrCat(match["instance_name"].get<std::string>(), "/",
                         match["dp_rank"].get<int>(), ":", match["device_hit_tokens"].get<int>(),
                         "+", match["host_only_hit_tokens"].get<int>(), " ");
  }
  EXPECT_EQ(seen, "B/0:0+28 a/2:0+0 b/0:8+0 b/1:20+0 ");
}

TEST_F(KVCacheQuery, StreamsOfOtherGeometryAreMatchedWithTheirOwnKeys) {
  const Tokens prompt = MakePrompt(3, 4, 8);
  KvPublisher by_four;
  KvPublisher by_eight({.block_size = 8});
  by_four.Publish(by_four.NewBatch().Store(Tier::kDevice, prompt, 0, 3));
  by_eight.Publish(by_eight.NewBatch().Store(Tier::kDevice, prompt, 0, 3));
  StreamSpec eight = Spec(by_eight, "eight");
  eight.block_size = 8;
  eight.hash_seed = 7;
  StartService(Static({Spec(by_four, "four"), eight}));
  ASSERT_TRUE(WaitCaughtUp(by_four, "four"));
  ASSERT_TRUE(WaitCaughtUp(by_eight, "eight"));
  EXPECT_EQ(Match("four", prompt)["device_hit_tokens"], 12);
  EXPECT_EQ(Match("eight", prompt)["device_hit_tokens"], 24);
}

TEST_F(KVCacheQuery, AStreamThatWasNeverSynchronizedHasNoSequence) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  publisher.SetAnswering(false);
  StartService(Static({Spec(publisher, "a")}));
  ASSERT_TRUE(WaitUnsynchronized("a"));
  const Json match = Match("a", prompt_);
  EXPECT_EQ(match["sequence"], 0);
  EXPECT_EQ(match["sequence_valid"], false);
  ExpectNoHits(match);
}

TEST_F(KVCacheQuery, AGapMeansNoHitsUntilTheSnapshotIsThere) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartService(Static({Spec(publisher, "a")}));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  publisher.HoldSnapshots();
  publisher.LoseNext(1);
  publisher.Publish(publisher.NewBatch().Remove(Tier::kDevice, prompt_, 4, 4));
  publisher.Heartbeat();
  ASSERT_TRUE(WaitUnsynchronized("a"));
  const Json match = Match("a", prompt_);
  ExpectNoHits(match);
  EXPECT_EQ(match["sequence"], 1);
  EXPECT_EQ(match["sequence_valid"], true);
  publisher.ReleaseSnapshots();
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(Match("a", prompt_)["device_hit_tokens"], 16);
  EXPECT_EQ(Match("a", prompt_)["error"], "");
}

TEST_F(KVCacheQuery, AMalformedEventCostsThatStreamAloneItsHits) {
  KvPublisher good;
  KvPublisher bad;
  good.Store(Tier::kDevice, prompt_);
  bad.Store(Tier::kDevice, prompt_);
  StartService(Static({Spec(good, "good"), Spec(bad, "bad")}));
  ASSERT_TRUE(WaitCaughtUp(good, "good"));
  ASSERT_TRUE(WaitCaughtUp(bad, "bad"));
  bad.HoldSnapshots();
  bad.SendPayload("\xc1");
  ASSERT_TRUE(WaitUnsynchronized("bad"));
  ExpectNoHits(Match("bad", prompt_));
  EXPECT_EQ(Match("good", prompt_)["device_hit_tokens"], 32);
  bad.ReleaseSnapshots();
}

TEST_F(KVCacheQuery, ADisconnectedEngineHasNoHitsUntilItIsBack) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartService(Static({Spec(publisher, "a")}));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  publisher.Disconnect();
  ASSERT_TRUE(WaitUnsynchronized("a"));
  ExpectNoHits(Match("a", prompt_));
  publisher.Reconnect();
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(Match("a", prompt_)["device_hit_tokens"], 32);
}

TEST_F(KVCacheQuery, ARestartedEngineIsBelievedFromItsOwnSnapshotOn) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartService(Static({Spec(publisher, "a")}));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  publisher.Restart();
  publisher.Publish(publisher.NewBatch().Store(Tier::kDevice, prompt_, 0, 1));
  ASSERT_TRUE(WaitFor("only what the new process holds", [&] {
    const Json match = Match("a", prompt_);
    return match["synchronized"] == true && match["device_hit_tokens"] == 4;
  }));
}

TEST_F(KVCacheQuery, ALimitThatIsPassedIsNamed) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  DirectoryConfig config = Static({Spec(publisher, "a")});
  config.limits.max_blocks_per_stream = 5;
  StartService(config);
  ASSERT_TRUE(WaitFor("the error names the limit", [&] {
    return Match("a")["error"].get<std::string>().find("max_blocks_per_stream") !=
           std::string::npos;
  }));
  ExpectNoHits(Match("a", prompt_));
}

TEST_F(KVCacheQuery, ExcludedInstancesAreListedWithTheReason) {
  DirectoryConfig config;
  config.discovery =
      kv_directory::DiscoveryConfig{.block_size = 4,
                                    .topic = "xllm-kv",
                                    .event_port_offset = 10000,
                                    .replay_port_offset = 30000,
                                    .refresh_interval = std::chrono::milliseconds(50)};
  StartService(config);
  RegisterEngine("127.0.0.1:60000");
  ASSERT_TRUE(
      WaitFor("the instance is excluded", [&] { return !Query({}).json()["excluded"].empty(); }));
  const Json excluded = Query({}).json()["excluded"];
  ASSERT_EQ(excluded.size(), 1u);
  EXPECT_EQ(excluded[0]["instance_name"], "127.0.0.1:60000");
  EXPECT_NE(excluded[0]["reason"], "");
  EXPECT_EQ(Query({}).json()["matches"].size(), 0u);
}

TEST_F(KVCacheQuery, WithoutADirectoryItSaysThatItIsDisabled) {
  StartService(std::nullopt);
  EXPECT_EQ(Query({1, 2, 3, 4}).body, R"({"matches":[],"excluded":[],"directory":"disabled"})");
  EXPECT_EQ(Ask("POST", kPath, R"({"token_ids":[1.0]})").status, 400);
}

// F1
TEST_F(KVCacheQuery, OnlyPostIsAnswered) {
  StartService(std::nullopt);
  for (const char* method : {"GET", "PUT", "DELETE", "OPTIONS"}) {
    const Answer answer = Ask(method, kPath);
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_NE(answer.head.find("Allow: POST"), std::string::npos) << answer.head;
  }
}

// F1
TEST_F(KVCacheQuery, TheRpcPortDoesNotAnswerIt) {
  StartService(std::nullopt);
  EXPECT_EQ(AskRpc("POST", kPath, R"({"token_ids":[]})").status, 404);
}

// F2
TEST_F(KVCacheQuery, TheTokenIsNeededFirst) {
  StartService(std::nullopt, {.internal_api_token = "t0k"});
  const std::string body = R"({"token_ids":[]})";
  EXPECT_EQ(Ask("POST", kPath, body).status, 401);
  EXPECT_EQ(Ask("POST", kPath, "{", "X-Internal-Token: wrong\r\n").status, 403);
  EXPECT_EQ(Ask("GET", kPath, "", "X-Internal-Token: wrong\r\n").status, 403);
  EXPECT_EQ(Ask("POST", kPath, body, "x-internal-token: t0k\r\n").status, 200);
  EXPECT_EQ(Ask("GET", kPath, "", "X-Internal-Token: t0k\r\n").status, 405);
}

// F3
TEST_F(KVCacheQuery, WrongBodiesAre400WithTheFault) {
  StartService(std::nullopt);
  const std::pair<const char*, const char*> wrong[] = {
      {R"({})", "missing"},
      {R"({"token_ids":{}})", "an object"},
      {R"({"token_ids":[-1]})", "negative"},
      {R"({"token_ids":[1.5]})", "fraction"},
      {R"({"token_ids":[1.0]})", "fraction"},
      {R"({"token_ids":[1e3]})", "fraction"},
      {R"({"token_ids":[4294967296]})", "above 4294967295"},
      {R"({"token_ids":[true]})", "not a number"},
      {R"({"token_ids":[],"token_ids":[]})", "more than once"},
      {R"({"token_ids":[1,]})", "not valid JSON"},
      {"", "not valid JSON"},
  };
  for (const auto& [body, fault] : wrong) {
    const Answer answer = Ask("POST", kPath, body);
    EXPECT_EQ(answer.status, 400) << body;
    const Json error = answer.json()["error"];
    EXPECT_NE(error["message"].get<std::string>().find(fault), std::string::npos) << error;
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_EQ(error.size(), 4u);
  }
}

// F3
TEST_F(KVCacheQuery, ABodyOverTheLimitIs413) {
  StartService(std::nullopt, {.http_max_body_bytes = 1000});
  const Tokens tokens(1000, 1);
  const Answer answer = Query(tokens);
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.json()["error"]["code"], "body_too_large");
}

// A prompt of 128 Ki tokens, 32 Ki blocks, in a body of half a megabyte.
TEST_F(KVCacheQuery, LongPromptsAreAnsweredExactly) {
  const Tokens prompt = MakePrompt(5, 32768);
  KvPublisher publisher;
  for (std::size_t first = 0; first < 30000; first += 1000) {
    publisher.Publish(publisher.NewBatch().Store(Tier::kDevice, prompt, first, 1000));
  }
  StartService(Static({Spec(publisher, "a")}));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  EXPECT_EQ(Match("a", prompt)["device_hit_tokens"], 120000);
  EXPECT_EQ(Match("a", prompt)["device_blocks"], 30000);
}

TEST_F(KVCacheQuery, AKeptConnectionAnswersOneQueryAfterTheOther) {
  KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartService(Static({Spec(publisher, "a")}));
  ASSERT_TRUE(WaitCaughtUp(publisher, "a"));
  RawClient client(public_server_->port());
  for (int i = 0; i < 20; ++i) {
    client.Send(Bytes("POST", kPath, Body(prompt_)));
    const Answer answer = Split(client.ReadResponse());
    ASSERT_EQ(answer.status, 200);
    EXPECT_EQ(answer.json()["matches"][0]["device_hit_tokens"], 32);
    client.Send(Bytes("POST", kPath, "{"));
    EXPECT_EQ(Split(client.ReadResponse()).status, 400);
  }
}

}  // namespace
}  // namespace xms::gateway
