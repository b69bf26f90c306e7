// What a request costs on its way through the gateway: its parts, and the whole over loopback.
//
// The whole: gateway on one loop, dummy engines on another, the driver in this thread. On a machine
// with other work the rate says little; `gateway_us` is CPU time of the gateway's loop for one
// request (or event), and `per_cpu_s` what that makes in one second of it, kernel time included.
#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/gateway/fleet.h"
#include "bench/support/measure.h"
#include "gateway/completion_request.h"
#include "gateway/gateway.h"
#include "gateway/usage_scanner.h"
#include "http/client.h"
#include "http/server.h"
#include "plane_http/http_plane.h"

namespace xms::gateway {
namespace {

using bench::Require;

std::string TokenBody(std::size_t count, bool stream = false) {
  std::string body = R"({"model":"bench","max_tokens":16,)";
  if (stream) body += R"("stream":true,)";
  body += R"("prompt":[)";
  for (const std::uint32_t token : Tokens(count)) body += std::to_string(token) + ",";
  body.back() = ']';
  return body + "}";
}

// English-like text: mostly plain bytes, an escape now and then.
std::string TextBody(std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    text += text.size() % 480 < 60 ? "the quick brown fox said \\\"jump\\\" and then it did so.\\n"
                                   : "over the lazy dog and back again to where it all began. ";
  }
  return R"({"model":"bench","max_tokens":16,"messages":[{"role":"user","content":")" + text +
         R"("}]})";
}

void Parse(benchmark::State& state, CompletionApi api, const std::string& body) {
  CompletionParser parser;
  CompletionRequest request;
  for (auto _ : state) {
    Require(!parser.Parse(api, body, request).has_value(), "a body was refused");
    benchmark::DoNotOptimize(request.body.data());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(body.size()) * state.iterations());
}
void BM_ParseTinyTokens(benchmark::State& state) {
  Parse(state, CompletionApi::kCompletions, TokenBody(30));
}
void BM_Parse12kTokens(benchmark::State& state) {
  Parse(state, CompletionApi::kCompletions, TokenBody(kLongPrompt));
}
void BM_Parse48kBText(benchmark::State& state) {
  Parse(state, CompletionApi::kChatCompletions, TextBody(48000));
}
BENCHMARK(BM_ParseTinyTokens);
BENCHMARK(BM_Parse12kTokens);
BENCHMARK(BM_Parse48kBText);

void BM_ReadEvent(benchmark::State& state) {
  const std::string event =
      R"(data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"bench","choices":[{"index":0,)"
      R"("text":" token","logprobs":null,"finish_reason":null}],"usage":null})"
      "\n\n";
  SseStream stream;
  for (auto _ : state) {
    std::string bytes = event;
    stream.Feed(bytes);
    benchmark::DoNotOptimize(bytes.data());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(event.size()) * state.iterations());
}
BENCHMARK(BM_ReadEvent);

// --- the whole

double CpuSeconds(http::EventLoop& loop) {
  std::promise<double> seconds;
  loop.Post([&seconds] {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    const auto in_seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    seconds.set_value(in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime));
  });
  return seconds.get_future().get();
}

// A blocking connection to the gateway.
class Driver {
 public:
  explicit Driver(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Require(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
            "cannot connect");
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~Driver() { ::close(fd_); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), 0);
      Require(sent > 0, "the gateway closed");
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  // Until what has come ends with `mark`.
  void ReadUntil(std::string_view mark) {
    std::string tail;
    do {
      const ssize_t count = ::recv(fd_, buffer_.data(), buffer_.size(), 0);
      Require(count > 0, "the gateway closed");
      tail.append(buffer_.data(), static_cast<std::size_t>(count));
      if (tail.size() > 4096) tail.erase(0, tail.size() - 4096);
    } while (!tail.ends_with(mark));
  }

 private:
  int fd_;
  std::array<char, 65536> buffer_{};
};

constexpr char kAnswer[] =
    R"({"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"hi","finish_reason":"stop"}],)"
    R"("usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}})";
constexpr char kEvent[] =
    "data: {\"id\":\"cmpl-1\",\"choices\":[{\"index\":0,\"text\":\" "
    "token\",\"finish_reason\":null}]}\n\n";
constexpr char kLastEvent[] = "data: [DONE]\n\n";
constexpr int kEvents = 256;

// Writes the next event once the one before is with the kernel.
void WriteEvents(const std::shared_ptr<http::Exchange>& exchange, int left) {
  exchange->Write(left > 0 ? kEvent : kLastEvent, [exchange, left](bool there) {
    if (!there) return;
    left > 0 ? WriteEvents(exchange, left - 1) : exchange->Finish();
  });
}

// Gateway and four engines that answer at once; CAR over an index that knows the long prompt.
class Whole {
 public:
  explicit Whole(bool events) {
    for (int i = 0; i < 4; ++i) {
      engines_.push_back(std::make_unique<http::HttpServer>(
          engine_loops_, http::ServerOptions(),
          [events](const std::shared_ptr<http::Exchange>& exchange) {
            if (!events) return exchange->Send(http::JsonResponse(200, kAnswer));
            http::Headers headers;
            headers.Add("Content-Type", "text/event-stream");
            exchange->StartStream(200, std::move(headers));
            WriteEvents(exchange, kEvents);
          }));
      Require(engines_.back()->Start().ok(), "an engine cannot listen");
      names_.push_back("127.0.0.1:" + std::to_string(engines_.back()->port()));
    }
    fleet_ = std::make_unique<Fleet>(names_);
    Ports ports;
    ports.clock = &clock_;
    ports.index = &fleet_->index();
    ports.instances = &fleet_->manager();
    ports.policy = policy_.get();
    ports.http_plane = &plane_;
    ports.metrics = &metrics_;
    gateway_ = std::make_unique<Gateway>(Options(), std::move(ports));
    server_ = std::make_unique<http::HttpServer>(loops_, http::ServerOptions(),
                                                 [this](std::shared_ptr<http::Exchange> exchange) {
                                                   gateway_->HandlePublic(std::move(exchange));
                                                 });
    Require(server_->Start().ok(), "the gateway cannot listen");
  }
  ~Whole() {
    server_->Stop();
    for (const auto& engine : engines_) engine->Stop();
    loops_.Stop();
    engine_loops_.Stop();
  }
  Whole(const Whole&) = delete;
  Whole& operator=(const Whole&) = delete;

  std::uint16_t port() const { return server_->port(); }
  double cpu_seconds() { return CpuSeconds(loops_.loop(0)); }

 private:
  base::SystemClock clock_;
  observability::MetricRegistry metrics_;
  http::EventLoopPool engine_loops_{1};
  http::EventLoopPool loops_{1};
  plane_http::HttpPlane plane_{loops_, {}};
  std::vector<std::unique_ptr<http::HttpServer>> engines_;
  std::vector<std::string> names_;
  std::unique_ptr<Fleet> fleet_;
  std::unique_ptr<routing::Policy> policy_ = routing::MakeCacheAware({});
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<http::HttpServer> server_;
};

void Run(benchmark::State& state, const char* path, const std::string& body, bool events) {
  Whole whole(events);
  std::vector<std::unique_ptr<Driver>> drivers;
  for (int i = 0; i < state.range(0); ++i)
    drivers.push_back(std::make_unique<Driver>(whole.port()));
  const std::string request = std::string("POST ") + path +
                              " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                              "Authorization: Bearer key\r\nUser-Agent: bench\r\nContent-Length: " +
                              std::to_string(body.size()) + "\r\n\r\n" + body;
  const std::string_view end = events ? "\r\n0\r\n\r\n" : "\"cached_tokens\":4}}}";
  const double cpu_before = whole.cpu_seconds();
  for (auto _ : state) {
    for (const auto& driver : drivers) driver->Send(request);
    for (const auto& driver : drivers) driver->ReadUntil(end);
  }
  const double cpu = whole.cpu_seconds() - cpu_before;
  const double items =
      static_cast<double>(state.iterations() * state.range(0)) * (events ? kEvents + 1 : 1);
  state.SetItemsProcessed(static_cast<std::int64_t>(items));
  state.counters["gateway_us"] = cpu * 1e6 / items;
  state.counters["per_cpu_s"] = items / cpu;
}

void BM_TinyTokens(benchmark::State& state) { Run(state, "/v1/completions", TokenBody(30), false); }
void BM_TinyChat(benchmark::State& state) {
  Run(state, "/v1/chat/completions", TextBody(100), false);
}
void BM_12kTokens(benchmark::State& state) {
  Run(state, "/v1/completions", TokenBody(kLongPrompt), false);
}
void BM_48kBText(benchmark::State& state) {
  Run(state, "/v1/chat/completions", TextBody(48000), false);
}
// Items are events here.
void BM_Events(benchmark::State& state) {
  Run(state, "/v1/completions", TokenBody(30, true), true);
}
// range(0): connections with one request each on its way.
BENCHMARK(BM_TinyTokens)->Arg(1)->Arg(32)->UseRealTime();
BENCHMARK(BM_TinyChat)->Arg(32)->UseRealTime();
BENCHMARK(BM_12kTokens)->Arg(1)->Arg(32)->UseRealTime();
BENCHMARK(BM_48kBText)->Arg(32)->UseRealTime();
BENCHMARK(BM_Events)->Arg(16)->UseRealTime();

}  // namespace
}  // namespace xms::gateway
