// The routes that the gateway answers by itself: who may, with which method, and what comes back.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>

#include "tests/unit/gateway/gateway_fixture.h"

namespace xms::gateway {
namespace {

using std::chrono::milliseconds;

constexpr char kA[] = "10.0.0.1:8000";
constexpr char kInstance[] = R"({"incarnation_id":"x","dp_size":2,"data_plane":"http"})";

class GatewayRoutes : public GatewayFixture {
 protected:
  Client Put(const std::string& name, const std::string& query = "",
             const std::string& body = kInstance) {
    return SendRpc(Request("PUT", "/v1/internal/instances/" + name + query, body));
  }
  Json List() { return Json::parse(SendRpc(Request("GET", "/v1/internal/instances"))->body); }
  static http::Request WithToken(http::Request request, const std::string& token) {
    request.headers.Add("X-Internal-Token", token);
    return request;
  }
};

TEST_F(GatewayRoutes, EachPortAnswersItsOwnPaths) {
  Start();
  struct Row {
    const char* method;
    const char* path;
    int on_public;
    int on_rpc;
  };
  const Row rows[] = {
      {"GET", "/health", 200, 200},
      {"GET", "/metrics", 200, 200},
      {"GET", "/ready", 404, 200},
      {"GET", "/v1/models", 503, 404},
      {"POST", "/v1/completions", 400, 404},
      {"POST", "/v1/chat/completions", 400, 404},
      {"POST", "/v1/internal/kv-cache/query", 400, 404},
      {"POST", "/v1/internal/heartbeat", 400, 400},
      {"GET", "/v1/internal/instances", 404, 200},
      {"GET", "/v1/internal/routing/decisions", 404, 200},
      {"GET", "/v1/internal/config", 404, 200},
      {"GET", "/v1/internal/nothing", 404, 404},
      {"GET", "/", 404, 404},
      {"GET", "/healthy", 404, 404},
      {"GET", "/health?x=1", 200, 200},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(Send(Request(row.method, row.path))->status, row.on_public) << row.path;
    EXPECT_EQ(SendRpc(Request(row.method, row.path))->status, row.on_rpc) << row.path;
  }
}

TEST_F(GatewayRoutes, AnotherMethodIs405WithAllow) {
  Start();
  struct Row {
    const char* path;
    const char* allow;
  };
  for (const Row& row : {Row{"/v1/completions", "POST"}, Row{"/v1/chat/completions", "POST"},
                         Row{"/v1/models", "GET, HEAD"}, Row{"/v1/internal/kv-cache/query", "POST"},
                         Row{"/v1/internal/heartbeat", "POST"}, Row{"/health", "GET, HEAD"}}) {
    const Client client = Send(Request("PATCH", row.path));
    EXPECT_EQ(client->status, 405) << row.path;
    EXPECT_EQ(*client->headers.Find("allow"), row.allow) << row.path;
    EXPECT_EQ(ErrorCode(client), "method_not_allowed") << row.path;
  }
  EXPECT_EQ(*SendRpc(Request("GET", "/v1/internal/instances/a:1"))->headers.Find("allow"),
            "PUT, DELETE");
  EXPECT_EQ(*SendRpc(Request("PUT", "/v1/internal/instances"))->headers.Find("allow"), "GET, HEAD");
  // Methods are compared whole.
  EXPECT_EQ(SendRpc(Request("PU", "/v1/internal/instances/a:1"))->status, 405);
  EXPECT_EQ(SendRpc(Request("", "/v1/internal/instances/a:1"))->status, 405);
}

TEST_F(GatewayRoutes, HeadWorksWhereGetDoes) {
  Start();
  for (const char* path : {"/health", "/metrics", "/ready", "/v1/internal/instances",
                           "/v1/internal/routing/decisions", "/v1/internal/config"}) {
    EXPECT_EQ(SendRpc(Request("HEAD", path))->status, 200) << path;
  }
  EXPECT_EQ(SendRpc(Request("HEAD", "/v1/internal/instances/a:1"))->status, 405);
}

// So that nobody without a token can make the service read a large body.
TEST_F(GatewayRoutes, TheTokenIsAskedForAsSoonAsTheHeadersAreThere) {
  Gateway& gateway = Start({.internal_api_token = "t0k"});
  const auto refused = [&](http::Request request) {
    const auto response = gateway.RefuseAtHeaders(request);
    return response.has_value() ? response->status : 0;
  };
  EXPECT_EQ(refused(Request("POST", "/v1/internal/kv-cache/query")), 401);
  EXPECT_EQ(refused(WithToken(Request("POST", "/v1/internal/kv-cache/query"), "x")), 403);
  EXPECT_EQ(refused(WithToken(Request("POST", "/v1/internal/heartbeat"), "x")), 401);
  EXPECT_EQ(refused(WithToken(Request("POST", "/v1/internal/kv-cache/query"), "t0k")), 0);
  EXPECT_EQ(refused(Request("POST", "/v1/completions")), 0);
}

TEST_F(GatewayRoutes, AnswersThatTheServerGivesByItselfAreCountedAndNameTheLimit) {
  Gateway& gateway = Start({.http_max_body_bytes = 4096});
  const http::Request completion = Request("POST", "/v1/completions?x");
  const http::Response answer = gateway.AnswerRefusal({413, "body too large", completion});
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(*answer.headers.Find("Content-Type"), "application/json");
  const Json error = Json::parse(answer.body)["error"];
  EXPECT_EQ(error["code"], "body_too_large");
  EXPECT_NE(error["message"].get<std::string>().find("4096"), std::string::npos);
  EXPECT_NE(error["message"].get<std::string>().find("--http_max_body_bytes"), std::string::npos);
  // A coding that we do not speak is the client's to change.
  const http::Response coding = gateway.AnswerRefusal({501, "gzip", Request("", "")});
  EXPECT_EQ(Json::parse(coding.body)["error"]["type"], "invalid_request_error");
  EXPECT_TRUE(Counted(R"(xms_requests_total{route="completions",status="413"} 1)"));
  EXPECT_TRUE(Counted(R"(xms_requests_total{route="unknown",status="501"} 1)"));
}

// Whoever complains about an error can name it, whichever part of us has answered.
TEST_F(GatewayRoutes, EveryErrorCarriesARequestId) {
  Gateway& gateway = Start({.internal_api_token = "t0k"});
  const auto id_of = [](const http::Headers& headers) {
    const std::string* id = headers.Find("x-request-id");
    return id == nullptr ? std::string() : *id;
  };
  http::Request known = Request("POST", "/v1/completions");
  known.headers.Add("X-Request-Id", "mine");
  EXPECT_EQ(id_of(gateway.AnswerRefusal({408, "slow", known}).headers), "mine");
  EXPECT_EQ(id_of(gateway.AnswerRefusal({400, "garbage", Request("", "")}).headers).size(), 32u);
  known.target = "/v1/internal/config";
  EXPECT_EQ(id_of(gateway.RefuseAtHeaders(known)->headers), "mine");
  known.target = "/nowhere";
  EXPECT_EQ(id_of(Send(known)->headers), "mine");
  EXPECT_EQ(id_of(Send(Request("GET", "/v1/completions"))->headers).size(), 32u);
  EXPECT_EQ(id_of(Send(Request("GET", "/health"))->headers), "");
}

TEST_F(GatewayRoutes, TheTokenIsCheckedBeforeMethodAndBody) {
  Start({.internal_api_token = "t0k"});
  for (const char* path :
       {"/v1/internal/instances", "/v1/internal/instances/a:1", "/v1/internal/routing/decisions",
        "/v1/internal/config", "/v1/internal/nothing", "/v1/internal/kv-cache/query"}) {
    for (const char* method : {"GET", "POST", "BREW"}) {
      EXPECT_EQ(SendRpc(Request(method, path))->status, 401) << method << " " << path;
      EXPECT_EQ(SendRpc(WithToken(Request(method, path), "T0k"))->status, 403) << path;
    }
  }
  EXPECT_EQ(Post("/v1/internal/kv-cache/query", "{")->status, 401);
  EXPECT_EQ(Send(WithToken(Request("GET", "/v1/internal/kv-cache/query"), "t0k"))->status, 405);
  EXPECT_EQ(SendRpc(WithToken(Request("GET", "/v1/internal/config"), "t0k"))->status, 200);
  // Paths for clients and health need none.
  EXPECT_EQ(SendRpc(Request("GET", "/health"))->status, 200);
  EXPECT_EQ(SendRpc(Request("GET", "/metrics"))->status, 200);
  EXPECT_EQ(Complete()->status, 503);
}

TEST_F(GatewayRoutes, ABodyOverTheLimitIs413) {
  Start({.http_max_body_bytes = 100});
  const Client client = Complete(R"({"prompt":")" + std::string(100, 'x') + "\"}");
  EXPECT_EQ(client->status, 413);
  EXPECT_EQ(ErrorCode(client), "body_too_large");
}

TEST_F(GatewayRoutes, HeartbeatsHaveTheBodiesThatSidecarsExpect) {
  Register(kA, 0, "x");
  Start({.internal_api_token = "t0k"});
  const auto beat = [this](const char* token, const std::string& body) {
    http::Request request = Request("POST", "/v1/internal/heartbeat", body);
    if (token != nullptr) request.headers.Add("x-internal-token", token);
    const Client on_public = Send(request);
    const Client on_rpc = SendRpc(request);
    EXPECT_EQ(on_public->status, on_rpc->status);
    EXPECT_EQ(on_public->body, on_rpc->body);
    EXPECT_EQ(on_public->headers.Find("content-type")->substr(0, 16), "application/json");
    return std::to_string(on_public->status) + " " + on_public->body;
  };
  const std::string unauthorized = R"(401 {"error":"invalid internal token"})";
  EXPECT_EQ(beat(nullptr, "{"), unauthorized);
  EXPECT_EQ(beat("wrong", "{"), unauthorized);
  EXPECT_EQ(beat("t0k", "{"), R"(400 {"error":"invalid heartbeat json"})");
  EXPECT_EQ(beat("t0k", "{}"), R"(400 {"error":"missing instance name"})");
  EXPECT_EQ(beat("t0k", R"({"name":"10.0.0.9:8000","incarnation_id":"x"})"),
            R"(409 {"error":"instance not registered or stale incarnation"})");
  EXPECT_EQ(beat("t0k", R"({"name":"10.0.0.1:8000","incarnation_id":"y"})"),
            R"(409 {"error":"instance not registered or stale incarnation"})");
  EXPECT_EQ(beat("t0k", R"({"name":"10.0.0.1:8000","incarnation_id":"x"})"), R"(200 {"ok":true})");
}

TEST_F(GatewayRoutes, AHeartbeatsLoadIsListedAndASenselessOneIsInvalid) {
  Register(kA, 0, "x");
  Start();
  const std::string head = R"({"name":"10.0.0.1:8000","incarnation_id":"x","load_metrics":)";
  EXPECT_EQ(Post("/v1/internal/heartbeat",
                 head + R"({"waiting_requests_num":"7","gpu_cache_usage_perc":0.5}})")
                ->status,
            200);
  clock_.Advance(milliseconds(1500));
  EXPECT_EQ(List()["instances"][0]["load"],
            Json::parse(R"({"waiting_requests_num":7,"gpu_cache_usage_perc":0.5,"age_ms":1500,)"
                        R"("source":"heartbeat","valid":true})"));
  EXPECT_EQ(Post("/v1/internal/heartbeat", head + R"({"gpu_cache_usage_perc":NaN}})")->status, 200);
  const Json load = List()["instances"][0]["load"];
  EXPECT_EQ(load["valid"], false);
  EXPECT_TRUE(load["gpu_cache_usage_perc"].is_null());
}

TEST_F(GatewayRoutes, InstancesRegisterRefreshAndAreReplaced) {
  Start();
  const Client created = Put(kA, "?ttl_ms=2000");
  EXPECT_EQ(created->status, 201);
  EXPECT_EQ(Json::parse(created->body),
            Json({{"name", kA}, {"outcome", "created"}, {"ttl_ms", 2000}}));
  EXPECT_EQ(Put(kA)->status, 200);
  const Client replaced = Put(kA, "", R"({"incarnation_id":"y","data_plane":"http"})");
  EXPECT_EQ(replaced->status, 201);
  EXPECT_EQ(Json::parse(replaced->body)["outcome"], "replaced");
  EXPECT_EQ(Json::parse(replaced->body)["ttl_ms"], 15000);
}

TEST_F(GatewayRoutes, TheListShowsEverythingOfAnInstance) {
  Start();
  Put(kA, "", R"({"incarnation_id":"x","register_ts_ms":17,"dp_size":2,"data_plane":"http"})");
  EXPECT_EQ(SendRpc(Request("GET", "/v1/internal/instances"))->body,
            R"({"instances":[{"name":"10.0.0.1:8000","type":"DEFAULT","role":"DEFAULT",)"
            R"("state":"ACTIVE","backend_type":"xllm","data_plane":"http","incarnation_id":"x",)"
            R"("register_ts_ms":17,"dp_size":2,"schedulable":true,"reason":"","load":null}]})");
}

TEST_F(GatewayRoutes, WhyAnInstanceIsNotSchedulableIsListed) {
  Start();
  Put(kA, "", R"({"data_plane":"rpc"})");
  Put("10.0.0.2:8000", "", R"({"data_plane":"http","type":2})");
  const Json list = List()["instances"];
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["schedulable"], false);
  EXPECT_NE(list[0]["reason"], "");
  EXPECT_EQ(list[1]["role"], "DECODE");
  EXPECT_EQ(list[1]["reason"], "pd_needs_rpc");
}

TEST_F(GatewayRoutes, DeletedInstancesAreGoneAtOnce) {
  Start();
  Put(kA);
  const Client removed = SendRpc(Request("DELETE", std::string("/v1/internal/instances/") + kA));
  EXPECT_EQ(removed->status, 200);
  EXPECT_EQ(List()["instances"].size(), 0u);
  const Client unknown = SendRpc(Request("DELETE", std::string("/v1/internal/instances/") + kA));
  EXPECT_EQ(unknown->status, 404);
  EXPECT_EQ(ErrorCode(unknown), "unknown_instance");
}

TEST_F(GatewayRoutes, NamesMayBeEscapedAndMustBeAddresses) {
  Start();
  EXPECT_EQ(Put("%5B::1%5D%3a8000")->status, 201);
  EXPECT_EQ(List()["instances"][0]["name"], "[::1]:8000");
  EXPECT_EQ(SendRpc(Request("DELETE", "/v1/internal/instances/%5b::1%5d:8000"))->status, 200);
  for (const std::string& name :
       {std::string(), std::string("engine"), std::string("a:0"), std::string("a:65536"),
        std::string(":8000"), std::string("a%20b:1"), std::string("a%0d%0ab:1"),
        std::string("%ff:1"), std::string(300, 'a') + ":1"}) {
    const Client client = Put(name);
    EXPECT_EQ(client->status, 400) << name;
    EXPECT_EQ(Json::parse(client->body)["error"]["param"], "name") << name;
  }
}

TEST_F(GatewayRoutes, TheTtlHasBounds) {
  Start();
  for (const char* ttl : {"1000", "3600000"}) {
    EXPECT_LT(Put(kA, std::string("?ttl_ms=") + ttl)->status, 300) << ttl;
  }
  for (const char* ttl :
       {"999", "3600001", "", "-1", "1e4", "1000.0", "15000x", "99999999999999999999", "%20"}) {
    const Client client = Put(kA, std::string("?ttl_ms=") + ttl);
    EXPECT_EQ(client->status, 400) << ttl;
    EXPECT_EQ(Json::parse(client->body)["error"]["param"], "ttl_ms") << ttl;
  }
}

TEST_F(GatewayRoutes, AWrongRecordIsA400ThatNamesTheField) {
  Start();
  for (const auto& [body, field] : {std::pair{"{", ""}, std::pair{R"({"dp_size":-1})", "dp_size"},
                                    std::pair{R"({"dp_size":1025})", "dp_size"},
                                    std::pair{R"({"data_plane":"grpc"})", "data_plane"},
                                    std::pair{R"({"type":"DEFAULT"})", "type"}}) {
    const Client client = Put(kA, "", body);
    EXPECT_EQ(client->status, 400) << body;
    EXPECT_NE(client->body.find(field), std::string::npos) << client->body;
  }
  EXPECT_EQ(List()["instances"].size(), 0u);
}

TEST_F(GatewayRoutes, WithoutATokenOnlyLoopbackWritesTheRegistry) {
  Start();
  http::Request request = Request("PUT", std::string("/v1/internal/instances/") + kA, kInstance);
  request.peer_is_loopback = false;
  EXPECT_EQ(SendRpc(request)->status, 403);
  request.method = "DELETE";
  EXPECT_EQ(SendRpc(request)->status, 403);
  http::Request list = Request("GET", "/v1/internal/instances");
  list.peer_is_loopback = false;
  EXPECT_EQ(SendRpc(list)->status, 200);
}

TEST_F(GatewayRoutes, WithATokenOthersMayWriteToo) {
  Start({.internal_api_token = "t0k"});
  http::Request request =
      WithToken(Request("PUT", std::string("/v1/internal/instances/") + kA, kInstance), "t0k");
  request.peer_is_loopback = false;
  EXPECT_EQ(SendRpc(request)->status, 201);
}

TEST_F(GatewayRoutes, WithAnotherRegistryWritesAnswer409AndListsWork) {
  with_registry_ = false;
  Register(kA);
  Start();
  EXPECT_EQ(Put(kA)->status, 409);
  EXPECT_EQ(SendRpc(Request("DELETE", std::string("/v1/internal/instances/") + kA))->status, 409);
  EXPECT_EQ(List()["instances"].size(), 1u);
}

TEST_F(GatewayRoutes, ReadinessGivesItsReasons) {
  Start();
  const Client ready = SendRpc(Request("GET", "/ready"));
  EXPECT_EQ(ready->status, 200);
  EXPECT_EQ(ready->body, R"({"ready":true,"reasons":[]})");
  not_ready_ = {"no instance", "say \"why\""};
  const Client not_ready = SendRpc(Request("GET", "/ready"));
  EXPECT_EQ(not_ready->status, 503);
  EXPECT_EQ(Json::parse(not_ready->body),
            Json({{"ready", false}, {"reasons", {"no instance", "say \"why\""}}}));
}

TEST_F(GatewayRoutes, ConfigurationAndMetricsAreShown) {
  Start();
  EXPECT_EQ(SendRpc(Request("GET", "/v1/internal/config"))->body,
            R"({"load_balance_policy":"RR"})");
  const Client metrics = Send(Request("GET", "/metrics"));
  EXPECT_EQ(*metrics->headers.Find("content-type"), "text/plain; version=0.0.4");
  EXPECT_NE(metrics->body.find("\nxms_requests_in_flight 0\n"), std::string::npos);
}

TEST_F(GatewayRoutes, DecisionsAreLimitedAndFoundByRequestId) {
  Register(kA);
  Start();
  for (int i = 0; i < 30; ++i) {
    http::Request request = Request("POST", "/v1/completions", R"({"prompt":[1]})");
    request.headers.Add("x-request-id", "r" + std::to_string(i));
    Send(request);
  }
  const auto get = [this](const std::string& query) {
    return SendRpc(Request("GET", "/v1/internal/routing/decisions" + query));
  };
  const auto ids = [&get](const std::string& query) {
    std::string text;
    const Json answer = Json::parse(get(query)->body);
    for (const Json& decision : answer["decisions"]) {
      text += decision["request_id"].get<std::string>() + " ";
    }
    return text;
  };
  EXPECT_EQ(ids("?limit=3"), "r29 r28 r27 ");
  EXPECT_EQ(Json::parse(get("")->body)["decisions"].size(), 20u);
  EXPECT_EQ(ids("?request_id=r5"), "r5 ");
  EXPECT_EQ(ids("?request_id=r"), "");
  for (const char* query :
       {"?limit=0", "?limit=1001", "?limit=", "?limit=-1", "?limit=2.0", "?limit=x"}) {
    const Client client = get(query);
    EXPECT_EQ(client->status, 400) << query;
    EXPECT_EQ(Json::parse(client->body)["error"]["param"], "limit") << query;
  }
  EXPECT_EQ(get("?request_id=")->status, 400);
}

TEST_F(GatewayRoutes, QueriesWithoutADirectorySayThatItIsDisabled) {
  excluded_ = {};
  Start();
  const Client client = Post("/v1/internal/kv-cache/query", R"({"token_ids":[1,2]})");
  EXPECT_EQ(client->status, 200);
  EXPECT_EQ(client->body, R"({"matches":[],"excluded":[],"directory":"disabled"})");
}

TEST_F(GatewayRoutes, RequestsAreCountedByRoute) {
  Start();
  Send(Request("GET", "/nowhere"));
  Send(Request("POST", "/health"));
  Post("/v1/internal/kv-cache/query", "{}");
  Post("/v1/internal/kv-cache/query", R"({"token_ids":[]})");
  EXPECT_TRUE(Counted(R"(xms_requests_total{route="unknown",status="404"} 1)"));
  EXPECT_TRUE(Counted(R"(xms_requests_total{route="health",status="405"} 1)"));
  EXPECT_TRUE(Counted(R"(xms_requests_total{route="kv_cache_query",status="400"} 1)"));
  EXPECT_TRUE(Counted(R"(xms_requests_total{route="kv_cache_query",status="200"} 1)"));
}

}  // namespace
}  // namespace xms::gateway
