#include "http/client.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "http/internal/client_call.h"
#include "http/internal/loop.h"
#include "http/internal/wire.h"

namespace xms::http {

using internal::ClientCall;
using internal::ClientCore;

struct HttpClient::Impl {
  std::shared_ptr<ClientCore> core;
};

HttpClient::HttpClient(EventLoop& loop, ClientOptions options)
    : impl_(std::make_shared<Impl>(
          Impl{std::make_shared<ClientCore>(internal::Impl(loop), options)})) {}

HttpClient::~HttpClient() {
  ClientCore& core = *impl_->core;
  core.closed = true;
  const bool tell = !core.loop.stopped();
  const auto calls = std::vector(core.calls.begin(), core.calls.end());
  for (const auto& call : calls) {
    if (tell) {
      call->Fail({base::ErrorCode::kCancelled, "the client was closed"});
    } else {
      call->Cancel();
    }
  }
  for (const auto& [address, connections] : std::exchange(core.idle, {})) {
    for (const auto& connection : connections) connection->Close();
  }
}

std::shared_ptr<HttpClient::Call> HttpClient::Start(const Address& to, Request request,
                                                    CallOptions options, CallHandlers handlers) {
  std::optional<base::Error> refused;
  if (!internal::IsSafeRequestLine(request.method, request.target)) {
    refused = base::Error{base::ErrorCode::kInvalidArgument,
                          "method or target with a space or control character"};
  } else if (impl_->core->closed) {
    refused = base::Error{base::ErrorCode::kCancelled, "the client was closed"};
  }
  auto call = std::make_shared<ClientCall>(impl_->core, to, std::move(request), options,
                                           std::move(handlers));
  impl_->core->calls.insert(call);
  if (refused) {
    impl_->core->loop.Post([call, error = *refused] { call->Fail(error); });
  } else {
    call->Start();
  }
  return call;
}

std::shared_ptr<HttpClient::Call> HttpClient::Fetch(
    const Address& to, Request request, CallOptions options, std::size_t max_body_bytes,
    std::function<void(base::Result<Response>)> done) {
  struct Gathered {
    Response response;
    std::function<void(base::Result<Response>)> done;
    std::weak_ptr<Call> call;
  };
  auto gathered = std::make_shared<Gathered>();
  gathered->done = std::move(done);
  CallHandlers handlers;
  handlers.on_headers = [gathered](int status, Headers headers) {
    gathered->response.status = status;
    gathered->response.headers = std::move(headers);
  };
  handlers.on_body = [gathered, max_body_bytes](const std::string& chunk,
                                                const std::function<void()>& resume) {
    if (gathered->response.body.size() + chunk.size() > max_body_bytes) {
      if (const auto call = gathered->call.lock()) call->Cancel();
      gathered->done(
          base::Error{base::ErrorCode::kResourceExhausted,
                      base::StrCat("the answer is larger than ", max_body_bytes, " bytes")});
      return;
    }
    gathered->response.body.append(chunk);
    resume();
  };
  handlers.on_end = [gathered] { gathered->done(std::move(gathered->response)); };
  handlers.on_error = [gathered](base::Error error, CallStage) {
    gathered->done(std::move(error));
  };
  auto call = Start(to, std::move(request), options, std::move(handlers));
  gathered->call = call;
  return call;
}

std::uint64_t HttpClient::repeated_requests() const {
  return impl_->core->repeats.load(std::memory_order_relaxed);
}

bool ParseAddress(std::string_view text, Address& out) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return false;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return false;  // IPv6 needs its brackets, or nobody knows where the port begins
  }
  const auto bad = [](char c) {
    return c <= ' ' || c == '/' || c == '@' || c == '[' || c == ']' || c == 0x7f;
  };
  if (std::any_of(host.begin(), host.end(), bad)) return false;
  unsigned port = 0;
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size() || port == 0 ||
      port > 65535)
    return false;
  out.host = std::string(host);
  out.port = static_cast<std::uint16_t>(port);
  return true;
}

}  // namespace xms::http
