#include "gateway/kv_query.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "kv_index/stream_ledger.h"

namespace xms::gateway {
namespace {

struct Refusal {
  const char* body;
  const char* code;
  const char* message_part;
};

TEST(GatewayKvQuery, TakesAnArrayOfTokenIdsAndIgnoresTheRest) {
  std::vector<std::uint32_t> tokens = {9};
  EXPECT_FALSE(ParseKvQuery(R"({"token_ids":[]})", tokens).has_value());
  EXPECT_TRUE(tokens.empty());
  EXPECT_FALSE(ParseKvQuery(R"({"x":{"token_ids":5},"token_ids":[0, 4294967295],"x":1})", tokens)
                   .has_value());
  EXPECT_FALSE(
      ParseKvQuery(R"({"x":[18446744073709551616,1e999],"token_ids":[0, 4294967295],"y":-1e999})",
                   tokens)
          .has_value());
  EXPECT_EQ(tokens, (std::vector<std::uint32_t>{0, 4294967295}));
}

TEST(GatewayKvQuery, EverythingElseIsRefusedByName) {
  const Refusal refusals[] = {
      {"", "invalid_json", "empty"},
      {"{", "invalid_json", "missing or superfluous"},
      {"[1,2]", "invalid_json", "is an array"},
      {R"("token_ids")", "invalid_json", "is a string"},
      {"{}", "missing_field", "`token_ids` is missing"},
      {R"({"token_id":[1]})", "missing_field", "`token_ids` is missing"},
      {R"({"token_ids":null})", "invalid_value", "`token_ids` is null"},
      {R"({"token_ids":7})", "invalid_value", "`token_ids` is a number"},
      {R"({"token_ids":"1,2"})", "invalid_value", "`token_ids` is a string"},
      {R"({"token_ids":{"0":1}})", "invalid_value", "`token_ids` is an object"},
      {R"({"token_ids":[1],"token_ids":[1]})", "duplicate_field", "more than once"},
      {R"({"token_ids":[1],"\u0074oken_ids":[2]})", "duplicate_field", "more than once"},
      {R"({"token_ids":[1,-1]})", "invalid_value", "`token_ids[1]` is negative"},
      {R"({"token_ids":[1.0]})", "invalid_value", "`token_ids[0]` is written as a fraction"},
      {R"({"token_ids":[1e3]})", "invalid_value", "`token_ids[0]` is written as a fraction"},
      {R"({"token_ids":[0.5]})", "invalid_value", "`token_ids[0]` is written as a fraction"},
      {R"({"token_ids":[true]})", "invalid_value", "`token_ids[0]` is not a number"},
      {R"({"token_ids":["1"]})", "invalid_value", "`token_ids[0]` is not a number"},
      {R"({"token_ids":[null]})", "invalid_value", "`token_ids[0]` is not a number"},
      {R"({"token_ids":[[1]]})", "invalid_value", "`token_ids[0]` is not a number"},
      {R"({"token_ids":[1,2,4294967296]})", "invalid_value", "`token_ids[2]` is above 4294967295"},
      {R"({"token_ids":[18446744073709551615]})", "invalid_value", "above 4294967295"},
      {R"({"token_ids":[1,18446744073709551616]})", "invalid_value",
       "`token_ids[1]` is above 4294967295; token ids are integers from 0 to 4294967295"},
      {R"({"token_ids":[1e999]})", "invalid_value", "`token_ids[0]` is written as a fraction"},
      {R"({"token_ids":[1],"x":tru})", "invalid_json", "neither true, false nor null"},
      {R"({"token_ids":[1]},)", "invalid_json", "missing or superfluous"},
      {R"({"token_ids":[NaN]})", "invalid_json", "missing or superfluous"},
      {R"({"token_ids":[01]})", "invalid_json", "a number"},
  };
  for (const Refusal& refusal : refusals) {
    std::vector<std::uint32_t> tokens;
    const auto error = ParseKvQuery(refusal.body, tokens);
    ASSERT_TRUE(error.has_value()) << refusal.body;
    EXPECT_EQ(RowOf(error->kind).status, 400) << refusal.body;
    EXPECT_EQ(RowOf(error->kind).code, refusal.code) << refusal.body;
    EXPECT_NE(error->message.find(refusal.message_part), std::string::npos)
        << refusal.body << " -> " << error->message;
  }
}

TEST(GatewayKvQuery, ADirectoryThatIsOffAnswersEmptyAndSaysSo) {
  EXPECT_EQ(KvQueryAnswer(nullptr, {}, {}, {}),
            R"({"matches":[],"excluded":[],"directory":"disabled"})");
}

TEST(GatewayKvQuery, ExcludedInstancesAreListedWithTheirReasons) {
  EXPECT_EQ(KvQueryAnswer(nullptr, {}, {{"a:1", "port 70000 > 65535"}, {"b:1", "say \"x\""}}, {}),
            R"({"matches":[],"excluded":[{"instance_name":"a:1","reason":"port 70000 > 65535"},)"
            R"({"instance_name":"b:1","reason":"say \"x\""}],"directory":"disabled"})");
}

// What two replicas compare, and how fresh it is: field names are fixed (docs/http-api.md).
TEST(GatewayKvQuery, ProofOfSynchronyIsShownBesideTheSpecifiedFields) {
  using std::chrono::milliseconds;
  kv_index::KvIndex index{kv_index::Options{}};
  auto opened = index.OpenStream({.key = {{"a:1"}, {0}}, .block_size = 4, .identity = {"inc-7", 5}},
                                 "starting");
  ASSERT_TRUE(opened.ok());
  kv_index::StreamLedger& ledger = **opened;
  const base::SteadyTime start{std::chrono::seconds(1000)};
  const std::string life = std::to_string(index.Streams()[0].generation);
  EXPECT_EQ(KvQueryAnswer(&index, {}, {}, start),
            R"({"matches":[{"instance_name":"a:1","dp_rank":0,"synchronized":false,"sequence":0,)"
            R"("sequence_valid":false,"device_hit_tokens":0,"host_only_hit_tokens":0,)"
            R"("reusable_prefix_tokens":0,"device_blocks":0,"host_blocks":0,"error":"starting",)"
            R"("identity":"inc-7","generation":)" +
                life +
                R"(,"proof_age_ms":null,"snapshot_age_ms":null,"digest":""}],"excluded":[]})");

  const model::WireHash wire{0xfeed};
  ASSERT_TRUE(ledger.StoreOpaque(model::Tier::kHost, {&wire, 1}).ok());
  ledger.Synchronize({9});
  ledger.NoteProof(start, {});
  const std::uint64_t digest = kv_index::StreamLedger::DigestTerm(wire, model::Tier::kHost);
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(digest));
  std::string answer = KvQueryAnswer(&index, {}, {}, start + milliseconds(1500));
  EXPECT_NE(answer.find(R"("proof_age_ms":1500,"snapshot_age_ms":1500,"digest":")" +
                        std::string(hex) + "\""),
            std::string::npos)
      << answer;

  // A live batch is a younger proof than the snapshot before it.
  ledger.NoteProof(start, start + milliseconds(1000));
  answer = KvQueryAnswer(&index, {}, {}, start + milliseconds(1500));
  EXPECT_NE(answer.find(R"("proof_age_ms":500,"snapshot_age_ms":1500,)"), std::string::npos)
      << answer;
  // Without synchrony nothing is vouched for; how long ago it was stays known.
  ledger.Unsynchronize("a gap");
  answer = KvQueryAnswer(&index, {}, {}, start + milliseconds(2000));
  EXPECT_NE(answer.find(R"("proof_age_ms":1000,"snapshot_age_ms":2000,"digest":"")"),
            std::string::npos)
      << answer;
}

TEST(GatewayKvQuery, IdentityIsTheIncarnationElseTheRegistrationTimeElseNothing) {
  const auto shown = [](model::ProcessIdentity identity) {
    kv_index::KvIndex index{kv_index::Options{}};
    const auto opened =
        index.OpenStream({.key = {{"a:1"}, {0}}, .identity = std::move(identity)}, "starting");
    return KvQueryAnswer(&index, {}, {}, {});
  };
  EXPECT_NE(shown({"x", 5}).find(R"("identity":"x")"), std::string::npos);
  EXPECT_NE(shown({"", 1760000000123}).find(R"("identity":"1760000000123")"), std::string::npos);
  EXPECT_NE(shown({}).find(R"("identity":"",)"), std::string::npos);
}

}  // namespace
}  // namespace xms::gateway
