// HttpCaller: an HTTP client that waits, for tests.
//
// Threads     One call at a time, from the test's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/result.h"
#include "http/client.h"
#include "http/event_loop.h"

namespace xms::sim {

class HttpCaller {
 public:
  explicit HttpCaller(std::string host = "127.0.0.1") : host_(std::move(host)) {
    OnLoop([this] {
      client_ = std::make_unique<http::HttpClient>(pool_.loop(0), http::ClientOptions{});
    });
  }
  ~HttpCaller() {
    OnLoop([this] { client_.reset(); });
  }
  HttpCaller(const HttpCaller&) = delete;
  HttpCaller& operator=(const HttpCaller&) = delete;

  base::Result<http::Response> Call(std::uint16_t port, std::string method, std::string target,
                                    std::string body = "", http::Headers headers = {}) {
    auto answer = std::make_shared<std::promise<base::Result<http::Response>>>();
    auto future = answer->get_future();
    http::Request request;
    request.method = std::move(method);
    request.target = std::move(target);
    request.headers = std::move(headers);
    request.body = std::move(body);
    pool_.loop(0).Post([this, port, answer, sent = std::move(request)]() mutable {
      client_->Fetch({host_, port}, std::move(sent), {.total_timeout = std::chrono::seconds(20)},
                     std::size_t{64} << 20U, [answer](base::Result<http::Response> result) {
                       answer->set_value(std::move(result));
                     });
    });
    return future.get();
  }
  // The body of a 200, else an object with status or error.
  nlohmann::json Json(std::uint16_t port, std::string method, std::string target,
                      std::string body = "") {
    const auto answer = Call(port, std::move(method), std::move(target), std::move(body));
    if (!answer.ok()) return {{"transport_error", answer.error().message}};
    auto json = nlohmann::json::parse(answer->body, nullptr, false);
    if (answer->status != 200) return {{"status", answer->status}, {"body", json}};
    return json;
  }

 private:
  template <typename Work>
  void OnLoop(Work work) {
    std::promise<void> done;
    pool_.loop(0).Post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  std::string host_;
  http::EventLoopPool pool_{1};
  std::unique_ptr<http::HttpClient> client_;
};

}  // namespace xms::sim
