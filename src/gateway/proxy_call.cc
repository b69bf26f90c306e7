#include "gateway/proxy_call.h"

#include <chrono>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/str_cat.h"

namespace xms::gateway {
namespace {

// What the records say of a client that left; never sent.
constexpr int kClientGone = 499;

std::string_view StageName(EngineStage stage) {
  switch (stage) {
    case EngineStage::kNotSent:
      return "not_sent";
    case EngineStage::kSent:
      return "sent";
    case EngineStage::kAnswering:
      return "answering";
  }
  return "";
}

double Seconds(base::Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Large enough for the usual request to route without allocation, so one per loop.
RequestRouter& RouterOfThread() {
  static thread_local RequestRouter router;
  return router;
}

}  // namespace

void ProxyCall::Start(std::shared_ptr<Core> core, Route route,
                      std::shared_ptr<http::Exchange> exchange) {
  std::make_shared<ProxyCall>(std::move(core), route, std::move(exchange))->Begin();
}

ProxyCall::ProxyCall(std::shared_ptr<Core> core, Route route,
                     std::shared_ptr<http::Exchange> exchange)
    : core_(std::move(core)),
      route_(route),
      exchange_(std::move(exchange)),
      began_(core_->ports.clock->Now()),
      request_id_(core_->ids.Of(exchange_->request())),
      in_flight_(core_->metrics.in_flight()),
      relay_(exchange_, request_id_) {}

void ProxyCall::Begin() {
  const std::size_t limit = core_->options.max_concurrency;
  if (limit > 0 && core_->metrics.in_flight().load() > limit) {
    return Refuse({ErrorKind::kTooManyRequests,
                   base::StrCat("more than ", limit,
                                " requests are being served; try again later or raise "
                                "--http_server_max_concurrency"),
                   ""});
  }
  exchange_->OnDisconnect([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnClientGone();
  });
  core_->calls.Enter(exchange_->loop(), this,
                     [weak = weak_from_this(), loop = &exchange_->loop()](LiveCalls::News news) {
                       loop->Post([weak, news] {
                         if (const auto self = weak.lock()) self->OnNews(news);
                       });
                     });
  if (core_->options.request_timeout.count() >= 0) {
    deadline_ =
        exchange_->loop().PostAfter(core_->options.request_timeout, [weak = weak_from_this()] {
          if (const auto self = weak.lock()) self->OnDeadline();
        });
  }
  Attempt();
}

void ProxyCall::Attempt() {
  RoutedRequest routed;
  routed.ticket = ticket_;
  const auto error = RouterOfThread().RouteRequest(*core_, route_, exchange_->request(),
                                                   request_id_, tried_, routed);
  ticket_ = routed.ticket;
  tokenized_ = routed.tokenized;
  passed_over_ = routed.passed_over;
  if (error.has_value()) {
    if (refusal_.has_value()) return PassOnRefusal();
    if (tried_.empty()) return Refuse(*error);
    return Refuse({ErrorKind::kEngineUnreachable,
                   base::StrCat("the engine could not be reached, and no other is left after ",
                                tried_.size(), tried_.size() == 1 ? " attempt" : " attempts"),
                   ""});
  }
  tried_.push_back(routed.engine_request.instance);
  instance_ = std::move(routed.instance);
  const std::size_t attempt = tried_.size();
  sent_ = false;
  suspect_ = false;

  EngineHandlers handlers;
  handlers.on_sent = [self = shared_from_this()] { self->OnSent(); };
  handlers.on_headers = [self = shared_from_this()](int status, http::Headers headers) {
    self->OnHeaders(status, headers);
  };
  handlers.on_body = [self = shared_from_this()](std::string chunk, std::function<void()> resume) {
    self->OnBody(std::move(chunk), std::move(resume));
  };
  handlers.on_end = [self = shared_from_this()] { self->OnEnd(); };
  handlers.on_error = [self = shared_from_this()](base::Error engine_error, EngineStage stage) {
    self->OnEngineError(engine_error, stage);
  };
  auto call = core_->ports.http_plane->Submit(exchange_->loop(), std::move(routed.engine_request),
                                              std::move(handlers));
  // A plane that fails at once has already begun the next attempt, or ended the request.
  if (!done_ && tried_.size() == attempt) call_ = std::move(call);
}

void ProxyCall::OnSent() {
  if (done_) return;
  sent_ = true;
  core_->unreachable.OnReached(tried_.back());
}

void ProxyCall::OnHeaders(int status, const http::Headers& headers) {
  if (done_) return;
  answering_ = true;
  relay_.OnHeaders(status, headers);
  if (!relay_.collects()) deadline_.reset();
}

void ProxyCall::OnBody(std::string chunk, std::function<void()> resume) {
  if (done_) return;
  if (!first_byte_.has_value()) first_byte_ = core_->ports.clock->Now();
  relay_.OnBody(std::move(chunk),
                [self = shared_from_this(), resume = std::move(resume)](bool there) {
                  if (self->done_) return;
                  there ? resume() : self->OnClientGone();
                });
}

void ProxyCall::OnEnd() {
  if (done_ || TryWhoPauses()) return;
  relay_.Seal();
  Account(relay_.status());
  relay_.Finish();
}

bool ProxyCall::TryWhoPauses() {
  constexpr int kTooBusy = 429;
  const bool time_is_left = core_->ports.clock->Now() - began_ < kRetryBudget;
  if (!passed_over_ || relay_.status() != kTooBusy || !relay_.collects() || !time_is_left) {
    return false;
  }
  refusal_ = std::exchange(relay_, AnswerRelay(exchange_, request_id_));
  answering_ = false;
  first_byte_.reset();
  call_.reset();
  core_->metrics.retries.Increment();
  Attempt();
  return true;
}

void ProxyCall::PassOnRefusal() {
  relay_ = std::move(*refusal_);
  refusal_.reset();
  relay_.Seal();
  if (Account(relay_.status())) relay_.Finish();
}

void ProxyCall::OnEngineError(const base::Error& error, EngineStage stage) {
  if (done_) return;
  core_->metrics.engine_errors.Increment(StageName(stage));
  if (stage == EngineStage::kNotSent) {
    core_->unreachable.OnUnreachable(instance_->record, core_->ports.clock->Now());
  }
  const std::string line = core_->failures.Report(
      tried_.back(), base::StrCat(error.message, " (", StageName(stage), ")"));
  if (!line.empty()) base::LogWarning(line);
  // Repeating a GET changes nothing even where the first one has arrived.
  const bool may_repeat =
      stage == EngineStage::kNotSent || (stage == EngineStage::kSent && route_ == Route::kModels);
  const bool time_is_left = core_->ports.clock->Now() - began_ < kRetryBudget;
  if (!answering_ && may_repeat && time_is_left) {
    call_.reset();
    core_->metrics.retries.Increment();
    return Attempt();
  }
  if (refusal_.has_value() && stage == EngineStage::kNotSent) return PassOnRefusal();
  EndWith(Told(error, stage));
}

// Without addresses: those are for the log.
GatewayError ProxyCall::Told(const base::Error& error, EngineStage stage) const {
  if (stage == EngineStage::kNotSent) {
    return {ErrorKind::kEngineUnreachable,
            base::StrCat("the engine could not be reached in ", tried_.size(),
                         tried_.size() == 1 ? " attempt" : " attempts"),
            ""};
  }
  switch (error.code) {
    case base::ErrorCode::kTimeout:
      return {ErrorKind::kDeadline, "the engine did not answer in time", ""};
    case base::ErrorCode::kCorrupt:
    case base::ErrorCode::kResourceExhausted: {
      std::string_view what = error.message;
      if (what.starts_with(tried_.back() + ": ")) what.remove_prefix(tried_.back().size() + 2);
      return {ErrorKind::kEngineBrokeOff,
              base::StrCat("the engine's answer cannot be used: ", what), ""};
    }
    case base::ErrorCode::kNotFound:
      return {ErrorKind::kEngineBrokeOff, "the engine was removed before its answer was complete",
              ""};
    default:
      return {ErrorKind::kEngineBrokeOff, "the engine broke off before its answer was complete",
              ""};
  }
}

void ProxyCall::ForgetUnseen() {
  if (relay_.collects()) first_byte_.reset();
}

void ProxyCall::EndWith(const GatewayError& error) {
  if (!answering_) return Refuse(error);
  relay_.Seal();
  ForgetUnseen();
  Account(RowOf(error.kind).status);
  relay_.Break(error);
}

void ProxyCall::OnDeadline() {
  if (done_ || (answering_ && !relay_.collects())) return;
  if (call_ != nullptr) call_->Cancel();
  EndWith({ErrorKind::kDeadline,
           base::StrCat("no answer within ", core_->options.request_timeout.count(),
                        " ms (--vllm_http_timeout_ms)"),
           ""});
}

void ProxyCall::OnNews(LiveCalls::News news) {
  if (done_) return;
  if (news == LiveCalls::News::kInstancesChanged) return OnInstancesChanged();
  if (call_ != nullptr) call_->Cancel();
  EndWith({ErrorKind::kNoInstance, "the service is stopping", ""});
}

void ProxyCall::OnInstancesChanged() {
  if (call_ == nullptr) return;
  const auto view = core_->ports.instances->view();
  const instances::Instance* now = view->Find(instance_->record.id.name);
  if (now != nullptr) {
    suspect_ = now->state == instances::State::kSuspect;
    if (IsStill(now->record.identity, instance_->record.identity)) return;
  } else if (sent_ && !suspect_) {
    // Deregistered while it lives: its connection is the proof, and tells when that ends.
    return;
  }
  // OnEngineError may begin another attempt, which replaces call_.
  const std::shared_ptr<EngineCall> call = call_;
  call->GiveUp({base::ErrorCode::kNotFound, "no longer registered"});
}

void ProxyCall::OnClientGone() {
  if (done_) return;
  core_->metrics.client_gone.Increment();
  if (call_ != nullptr) call_->Cancel();
  if (answering_) relay_.Seal();  // what the engine said of its cache so far
  ForgetUnseen();
  Account(kClientGone);
}

void ProxyCall::Refuse(const GatewayError& error) {
  if (!Account(RowOf(error.kind).status)) return;
  http::Response response = ErrorResponse(error);
  response.headers.Add(std::string(kRequestIdHeader), request_id_);
  exchange_->Send(std::move(response));
}

bool ProxyCall::Account(int status) {
  if (done_) return false;
  done_ = true;
  deadline_.reset();
  call_.reset();
  core_->calls.Leave(exchange_->loop(), this);
  in_flight_.End();
  GatewayMetrics& metrics = core_->metrics;
  metrics.CountRequest(route_, status);
  if (route_ == Route::kModels) return true;
  const bool good = status >= 200 && status < 300;
  Outcome outcome;
  outcome.status = status;
  outcome.cached_tokens = relay_.cached_tokens();
  if (first_byte_.has_value()) {
    const double ttft = Seconds(*first_byte_ - began_);
    outcome.ttft_ms = ttft * 1e3;
    if (good) metrics.ttft_seconds.Observe(ttft);
  }
  if (good) metrics.duration_seconds.Observe(Seconds(core_->ports.clock->Now() - began_));
  if (tokenized_ && outcome.cached_tokens.has_value()) {
    metrics.prefix_delivered.Increment(static_cast<double>(*outcome.cached_tokens));
  }
  core_->decisions.Complete(ticket_, outcome);
  return true;
}

}  // namespace xms::gateway
