// A gateway with real instances and policy, a scripted engine plane and clients made of values.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/testing/manual_clock.h"
#include "gateway/gateway.h"
#include "gateway/testing/fake_engine_plane.h"
#include "gateway/testing/fake_exchange.h"
#include "gateway/testing/manual_loop.h"
#include "instances/testing/scripted_probe.h"

namespace xms::gateway {

class GatewayFixture : public ::testing::Test {
 protected:
  using Json = nlohmann::json;
  using Call = testing::FakeEnginePlane::Call;
  using Client = std::shared_ptr<testing::FakeExchange>;

  // Once, before the first request.
  Gateway& Start(Options options = {}) {
    Ports ports;
    ports.clock = &clock_;
    ports.index = index_;
    ports.instances = &manager_;
    ports.registry = with_registry_ ? &registry_ : nullptr;
    ports.policy = policy_.get();
    ports.http_plane = &plane_;
    ports.metrics = &metrics_;
    ports.excluded = [this] { return excluded_; };
    ports.not_ready_reasons = [this] { return not_ready_; };
    ports.config_json = [] { return std::string(R"({"load_balance_policy":"RR"})"); };
    gateway_.emplace(std::move(options), std::move(ports));
    manager_.SetListener([this] { gateway_->OnInstancesChanged(); });
    return *gateway_;
  }

  // A DEFAULT engine on the HTTP plane with a load report.
  void Register(const std::string& name, double waiting = 0, const std::string& incarnation = "i") {
    model::InstanceRecord record;
    record.id.name = name;
    record.identity.incarnation_id = incarnation;
    record.data_plane = model::DataPlane::kHttp;
    manager_.Put(record);
    EXPECT_TRUE(manager_.OnHeartbeat({{name}, incarnation, model::LoadSample{waiting, 0}}).ok());
  }

  Client Send(http::Request request) { return SendTo(&Gateway::HandlePublic, std::move(request)); }
  Client SendRpc(http::Request request) {
    return SendTo(&Gateway::HandleRpcPort, std::move(request));
  }
  Client Post(const std::string& target, std::string body) {
    return Send(Request("POST", target, std::move(body)));
  }
  Client Complete(std::string body = R"({"model":"m","prompt":[1,2,3]})") {
    return Post("/v1/completions", std::move(body));
  }
  static http::Request Request(std::string method, std::string target, std::string body = "") {
    http::Request request;
    request.method = std::move(method);
    request.target = std::move(target);
    request.body = std::move(body);
    request.peer_is_loopback = true;
    return request;
  }

  Call& Engine(std::size_t call) { return *plane_.calls.at(call); }
  // The newest decision.
  Json Decision() {
    const Client client = SendRpc(Request("GET", "/v1/internal/routing/decisions?limit=1"));
    return Json::parse(client->body)["decisions"].at(0);
  }
  std::size_t Decisions() {
    const Client client = SendRpc(Request("GET", "/v1/internal/routing/decisions?limit=1000"));
    return Json::parse(client->body)["decisions"].size();
  }
  bool Counted(const std::string& line) {
    const std::string text = metrics_.Exposition();
    return text.find(line + "\n") != std::string::npos;
  }
  static std::string ErrorCode(const Client& client) {
    return Json::parse(client->body)["error"]["code"].get<std::string>();
  }

  base::testing::ManualClock clock_;
  instances::testing::ScriptedProbe probe_;
  instances::InstanceManager manager_{instances::Options{}, clock_, probe_};
  instances::EmbeddedRegistry registry_{clock_, manager_};
  bool with_registry_ = true;
  const kv_index::KvIndex* index_ = nullptr;
  std::unique_ptr<routing::Policy> policy_ = routing::MakeRoundRobin();
  testing::FakeEnginePlane plane_;
  observability::MetricRegistry metrics_;
  std::vector<std::pair<std::string, std::string>> excluded_;
  std::vector<std::string> not_ready_;
  testing::ManualLoop loop_;
  std::optional<Gateway> gateway_;

 private:
  Client SendTo(void (Gateway::*handle)(std::shared_ptr<http::Exchange>), http::Request request) {
    auto client = std::make_shared<testing::FakeExchange>(loop_, std::move(request));
    (*gateway_.*handle)(client);
    loop_.RunPosted();
    return client;
  }
};

}  // namespace xms::gateway
