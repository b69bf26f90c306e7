// What one event loop carries: bare replies, replies through the client, events of streams.
//
// Every server here has one loop. The driver is a thread of this process, so on a machine with
// other work the rate says less than `server_us`: CPU time of the loop's thread for one item, which
// is what bounds the rate of a loop that has a core to itself.
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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/client.h"
#include "http/server.h"

namespace xms::http {
namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "http_bench: %s\n", what);
  std::exit(1);
}

void RunOn(EventLoop& loop, const std::function<void()>& work) {
  std::promise<void> done;
  loop.Post([&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

double CpuSeconds(EventLoop& loop) {
  double seconds = 0;
  RunOn(loop, [&] {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    const auto in_seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    seconds = in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
  });
  return seconds;
}

// A blocking connection that knows the exact size of every answer.
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
    Require(::send(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
            "short send");
  }
  // Until what has come ends with `mark`.
  void ReadUntil(std::string_view mark) {
    std::size_t used = 0;
    do {
      const ssize_t count = ::recv(fd_, buffer_.data() + used, buffer_.size() - used, 0);
      Require(count > 0, "the server closed");
      used += static_cast<std::size_t>(count);
    } while (used < mark.size() ||
             std::string_view(buffer_.data() + used - mark.size(), mark.size()) != mark);
  }

 private:
  int fd_;
  std::array<char, 65536> buffer_;
};

void Report(benchmark::State& state, double items, double cpu_seconds) {
  state.SetItemsProcessed(static_cast<std::int64_t>(items));
  state.counters["server_us"] = cpu_seconds * 1e6 / items;
}

// range(0): kept connections with one request each on its way.
void BareReply(benchmark::State& state) {
  EventLoopPool pool(1);
  HttpServer server(pool, {}, [](const std::shared_ptr<Exchange>& exchange) {
    exchange->Send({.body = "hello, world"});
  });
  Require(server.Start().ok(), "cannot listen");
  std::vector<std::unique_ptr<Driver>> drivers;
  for (int i = 0; i < state.range(0); ++i)
    drivers.push_back(std::make_unique<Driver>(server.port()));
  const std::string request = "GET /plain HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
  const double cpu_before = CpuSeconds(pool.loop(0));
  for (auto _ : state) {
    for (const auto& driver : drivers) driver->Send(request);
    for (const auto& driver : drivers) driver->ReadUntil("hello, world");
  }
  Report(state, static_cast<double>(state.iterations() * state.range(0)),
         CpuSeconds(pool.loop(0)) - cpu_before);
}
BENCHMARK(BareReply)->Arg(1)->Arg(32)->UseRealTime();

// range(0): bytes of the request's body, as of a prompt.
void PostedBody(benchmark::State& state) {
  EventLoopPool pool(1);
  HttpServer server(pool, {}, [](const std::shared_ptr<Exchange>& exchange) {
    exchange->Send({.body = "hello, world"});
  });
  Require(server.Start().ok(), "cannot listen");
  Driver driver(server.port());
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
      std::to_string(state.range(0)) + "\r\n\r\n" +
      std::string(static_cast<std::size_t>(state.range(0)), 'x');
  const double cpu_before = CpuSeconds(pool.loop(0));
  for (auto _ : state) {
    driver.Send(request);
    driver.ReadUntil("hello, world");
  }
  Report(state, static_cast<double>(state.iterations()), CpuSeconds(pool.loop(0)) - cpu_before);
}
BENCHMARK(PostedBody)->Arg(49152)->UseRealTime();

// Client and server on loops of their own, range(0) calls at a time on kept connections.
void ClientCall(benchmark::State& state) {
  EventLoopPool pool(1);
  EventLoopPool client_pool(1);
  HttpServer server(pool, {}, [](const std::shared_ptr<Exchange>& exchange) {
    exchange->Send({.body = "hello, world"});
  });
  Require(server.Start().ok(), "cannot listen");
  EventLoop& loop = client_pool.loop(0);
  auto client = std::make_unique<HttpClient>(loop, ClientOptions{});
  const double cpu_before = CpuSeconds(pool.loop(0));
  const double client_cpu_before = CpuSeconds(loop);
  for (auto _ : state) {
    std::promise<void> all;
    int left = static_cast<int>(state.range(0));
    loop.Post([&] {
      for (int i = 0; i < state.range(0); ++i) {
        client->Fetch({"127.0.0.1", server.port()}, {}, {}, 100,
                      [&](const base::Result<Response>& got) {
                        Require(got.ok(), "a call failed");
                        if (--left == 0) all.set_value();
                      });
      }
    });
    all.get_future().wait();
  }
  const double items = static_cast<double>(state.iterations() * state.range(0));
  state.counters["client_us"] = (CpuSeconds(loop) - client_cpu_before) * 1e6 / items;
  Report(state, items, CpuSeconds(pool.loop(0)) - cpu_before);
  RunOn(loop, [&] { client.reset(); });
}
BENCHMARK(ClientCall)->Arg(32)->UseRealTime();

// Events of one stream, each written once the one before is with the kernel.
class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  EventStream(std::shared_ptr<Exchange> exchange, int events)
      : exchange_(std::move(exchange)), left_(events) {}
  void Start() {
    exchange_->StartStream(200, {});
    Next();
  }

 private:
  void Next() {
    if (left_-- == 0) {
      exchange_->Finish();
      return;
    }
    exchange_->Write("data: {\"choices\":[{\"index\":0,\"text\":\" word\"}]}\n\n",
                     [self = shared_from_this()](bool ok) {
                       if (ok) self->Next();
                     });
  }

  const std::shared_ptr<Exchange> exchange_;
  int left_;
};

constexpr int kEvents = 1000;

void StreamEvent(benchmark::State& state) {
  EventLoopPool pool(1);
  HttpServer server(pool, {}, [](std::shared_ptr<Exchange> exchange) {
    std::make_shared<EventStream>(std::move(exchange), kEvents)->Start();
  });
  Require(server.Start().ok(), "cannot listen");
  Driver driver(server.port());
  const double cpu_before = CpuSeconds(pool.loop(0));
  for (auto _ : state) {
    driver.Send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    driver.ReadUntil("\r\n0\r\n\r\n");
  }
  Report(state, static_cast<double>(state.iterations() * kEvents),
         CpuSeconds(pool.loop(0)) - cpu_before);
}
BENCHMARK(StreamEvent)->UseRealTime();

}  // namespace
}  // namespace xms::http
