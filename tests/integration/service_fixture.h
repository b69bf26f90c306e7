// A gateway, its directory, its instances and both HTTP ports, wired as app wires them, over real
// sockets.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/str_cat.h"
#include "gateway/gateway.h"
#include "http/event_loop.h"
#include "http/server.h"
#include "instances/testing/scripted_probe.h"
#include "kv_directory/directory.h"
#include "plane_http/http_plane.h"
#include "tests/support/wait_for.h"
#include "tests/unit/http/raw_client.h"

namespace xms::gateway {

class ServiceFixture : public ::testing::Test {
 protected:
  using Json = nlohmann::json;
  using RawClient = http::testing::RawClient;

  // `directory`: nullopt is a service without one.
  void StartService(std::optional<kv_directory::DirectoryConfig> directory, Options options = {}) {
    const bool on = directory.has_value();
    if (on) {
      index_.emplace(
          kv_index::Options{.max_blocks_per_stream = directory->limits.max_blocks_per_stream});
      directory_.emplace(std::move(*directory), *index_, clock_, &source_, metrics_);
    }
    Ports ports;
    ports.clock = &clock_;
    ports.index = on ? &*index_ : nullptr;
    ports.instances = &manager_;
    ports.registry = &registry_;
    ports.policy = policy_.get();
    ports.http_plane = &plane_;
    ports.metrics = &metrics_;
    ports.excluded = [this] {
      std::vector<std::pair<std::string, std::string>> out;
      if (!directory_) return out;
      for (auto& entry : directory_->CurrentlyExcluded()) {
        out.emplace_back(entry.instance_name, entry.reason);
      }
      return out;
    };
    http::ServerOptions server_options;
    server_options.max_body_bytes = options.http_max_body_bytes;
    server_options.on_headers = [this](const http::Request& request) {
      return gateway_->RefuseAtHeaders(request);
    };
    server_options.on_refusal = [this](const http::Refusal& refusal) {
      return gateway_->AnswerRefusal(refusal);
    };
    gateway_.emplace(std::move(options), std::move(ports));
    manager_.SetListener([this] { gateway_->OnInstancesChanged(); });
    public_server_.emplace(loops_, server_options, [this](std::shared_ptr<http::Exchange> e) {
      gateway_->HandlePublic(std::move(e));
    });
    rpc_server_.emplace(loops_, server_options, [this](std::shared_ptr<http::Exchange> e) {
      gateway_->HandleRpcPort(std::move(e));
    });
    ASSERT_TRUE(public_server_->Start().ok());
    ASSERT_TRUE(rpc_server_->Start().ok());
    if (directory_) directory_->Start();
  }

  // As app stops: listeners, requests, streams, then everything.
  void TearDown() override {
    if (public_server_) public_server_->Stop();
    if (rpc_server_) rpc_server_->Stop();
    if (directory_) directory_->Stop();
    loops_.Stop();
  }

  struct Answer {
    int status = 0;
    std::string head;
    std::string body;
    Json json() const { return Json::parse(body); }
  };
  static Answer Split(const std::string& response) {
    const std::size_t end = response.find("\r\n\r\n");
    return {http::testing::StatusOf(response), response.substr(0, end),
            http::testing::BodyOf(response)};
  }
  static std::string Bytes(const std::string& method, const std::string& target,
                           const std::string& body, const std::string& headers = "") {
    return base::StrCat(method, " ", target, " HTTP/1.1\r\nHost: test\r\n", headers,
                        "Content-Length: ", body.size(), "\r\n\r\n", body);
  }
  // One request on a connection of its own.
  Answer Ask(const std::string& method, const std::string& target, const std::string& body = "",
             const std::string& headers = "") {
    return AskPort(public_server_->port(), method, target, body, headers);
  }
  Answer AskRpc(const std::string& method, const std::string& target,
                const std::string& body = "") {
    return AskPort(rpc_server_->port(), method, target, body, "");
  }
  static Answer AskPort(std::uint16_t port, const std::string& method, const std::string& target,
                        const std::string& body, const std::string& headers) {
    RawClient client(port);
    client.Send(Bytes(method, target, body, headers));
    return Split(client.ReadResponse());
  }

  // An engine registers over the RPC port, as engines do, and reports its load.
  void RegisterEngine(const std::string& name, const std::string& incarnation = "x",
                      double waiting = 0, int dp_size = 1) {
    const Json record = {
        {"incarnation_id", incarnation}, {"data_plane", "http"}, {"dp_size", dp_size}};
    ASSERT_LT(AskRpc("PUT", "/v1/internal/instances/" + name, record.dump()).status, 300);
    const Json beat = {{"name", name},
                       {"incarnation_id", incarnation},
                       {"load_metrics", {{"waiting_requests_num", waiting}}}};
    ASSERT_EQ(AskRpc("POST", "/v1/internal/heartbeat", beat.dump()).status, 200);
    if (directory_) directory_->RefreshSoon();
  }
  Json Decision() {
    return AskRpc("GET", "/v1/internal/routing/decisions?limit=1").json()["decisions"].at(0);
  }
  // The value of one series; −1 when it is not there.
  double Metric(const std::string& name_and_labels) {
    const std::string text = AskRpc("GET", "/metrics").body;
    const std::size_t at = text.find("\n" + name_and_labels + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name_and_labels.size() + 2));
  }
  ::testing::AssertionResult WaitIdle() {
    return xms::testing::WaitFor("no request is in flight",
                                 [this] { return gateway_->requests_in_flight() == 0; });
  }

  // What app adapts: the manager's snapshot for the directory's discovery.
  class Source final : public kv_directory::InstanceSource {
   public:
    explicit Source(const instances::InstanceManager& manager) : manager_(manager) {}
    std::vector<kv_directory::SourceInstance> Instances() const override {
      std::vector<kv_directory::SourceInstance> out;
      const auto view = manager_.view();
      for (const auto& instance : view->instances) {
        out.push_back({instance->record, instance->current_role,
                       instance->state == instances::State::kSuspect});
      }
      return out;
    }

   private:
    const instances::InstanceManager& manager_;
  };

  base::SystemClock clock_;
  observability::MetricRegistry metrics_;
  instances::testing::ScriptedProbe probe_;
  instances::InstanceManager manager_{instances::Options{}, clock_, probe_};
  instances::EmbeddedRegistry registry_{clock_, manager_};
  Source source_{manager_};
  std::unique_ptr<routing::Policy> policy_ = routing::MakeCacheAware({});
  http::EventLoopPool loops_{2};
  plane_http::HttpPlane plane_{loops_, {}};
  std::optional<kv_index::KvIndex> index_;
  std::optional<kv_directory::Directory> directory_;
  std::optional<Gateway> gateway_;
  std::optional<http::HttpServer> public_server_;
  std::optional<http::HttpServer> rpc_server_;
};

}  // namespace xms::gateway
