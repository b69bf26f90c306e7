#include "plane_http/http_plane.h"

#include <unordered_map>
#include <utility>

#include "base/str_cat.h"
#include "http/client.h"

namespace xms::plane_http {
namespace {

gateway::EngineStage Stage(http::CallStage stage) {
  switch (stage) {
    case http::CallStage::kConnecting:
      return gateway::EngineStage::kNotSent;
    case http::CallStage::kSent:
      return gateway::EngineStage::kSent;
    case http::CallStage::kAnswering:
      return gateway::EngineStage::kAnswering;
  }
  return gateway::EngineStage::kAnswering;
}

class HttpEngineCall final : public gateway::EngineCall {
 public:
  explicit HttpEngineCall(std::shared_ptr<http::HttpClient::Call> call) : call_(std::move(call)) {}
  void Cancel() override { call_->Cancel(); }
  void GiveUp(base::Error why) override { call_->GiveUp(std::move(why)); }

 private:
  const std::shared_ptr<http::HttpClient::Call> call_;
};

// A request that cannot even be sent: its error comes later, like every other.
class RefusedCall final : public gateway::EngineCall,
                          public std::enable_shared_from_this<RefusedCall> {
 public:
  explicit RefusedCall(gateway::EngineHandlers handlers)
      : on_error_(std::move(handlers.on_error)) {}
  void FailLater(http::EventLoop& loop, base::Error error) {
    loop.Post([self = shared_from_this(), error = std::move(error)] { self->GiveUp(error); });
  }
  void Cancel() override { on_error_ = nullptr; }
  void GiveUp(base::Error why) override {
    if (const auto on_error = std::exchange(on_error_, nullptr)) {
      on_error(std::move(why), gateway::EngineStage::kNotSent);
    }
  }

 private:
  std::function<void(base::Error, gateway::EngineStage)> on_error_;
};

std::shared_ptr<gateway::EngineCall> Refuse(http::EventLoop& loop, gateway::EngineHandlers handlers,
                                            base::Error error) {
  auto call = std::make_shared<RefusedCall>(std::move(handlers));
  call->FailLater(loop, std::move(error));
  return call;
}

}  // namespace

struct HttpPlane::Impl {
  Options options;
  // Filled by the constructor; a client is used on its own loop only.
  std::unordered_map<http::EventLoop*, std::unique_ptr<http::HttpClient>> clients;
};

HttpPlane::HttpPlane(http::EventLoopPool& pool, Options options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  http::ClientOptions client_options;
  client_options.connect_timeout = options.connect_timeout;
  for (std::size_t i = 0; i < pool.size(); ++i) {
    impl_->clients.emplace(&pool.loop(i),
                           std::make_unique<http::HttpClient>(pool.loop(i), client_options));
  }
}

HttpPlane::~HttpPlane() = default;

std::uint64_t HttpPlane::repeated_requests() const {
  std::uint64_t sum = 0;
  for (const auto& [loop, client] : impl_->clients) sum += client->repeated_requests();
  return sum;
}

std::shared_ptr<gateway::EngineCall> HttpPlane::Submit(http::EventLoop& loop,
                                                       gateway::EngineRequest request,
                                                       gateway::EngineHandlers handlers) {
  const auto client = impl_->clients.find(&loop);
  if (client == impl_->clients.end()) {
    return Refuse(loop, std::move(handlers),
                  {base::ErrorCode::kInternal, "this loop is not one of the plane's"});
  }
  http::Address address;
  if (!http::ParseAddress(request.instance, address)) {
    return Refuse(loop, std::move(handlers),
                  {base::ErrorCode::kInvalidArgument,
                   base::StrCat("instance \"", request.instance, "\": not host:port")});
  }
  request.request.headers.Set("Host", request.instance);

  http::CallOptions call_options;
  call_options.idle_timeout = impl_->options.idle_timeout;
  http::CallHandlers relayed;
  relayed.on_sent = std::move(handlers.on_sent);
  relayed.on_headers = std::move(handlers.on_headers);
  relayed.on_body = std::move(handlers.on_body);
  relayed.on_end = std::move(handlers.on_end);
  relayed.on_error = [on_error = std::move(handlers.on_error)](base::Error error,
                                                               http::CallStage stage) {
    if (on_error) on_error(std::move(error), Stage(stage));
  };
  return std::make_shared<HttpEngineCall>(
      client->second->Start(address, std::move(request.request), call_options, std::move(relayed)));
}

}  // namespace xms::plane_http
