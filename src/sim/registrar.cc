#include "sim/registrar.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/str_cat.h"

namespace xms::sim {
namespace {

constexpr std::chrono::milliseconds kRegisterTimeout{2000};
constexpr std::chrono::milliseconds kHeartbeatTimeout{1000};
constexpr std::chrono::milliseconds kFarewellTimeout{1000};
constexpr std::size_t kMaxAnswerBytes = 64UL * 1024;

std::string Reason(const base::Result<http::Response>& answer) {
  if (!answer.ok()) return answer.error().message;
  return base::StrCat("status ", answer->status, " ", answer->body.substr(0, 200));
}

std::string HeartbeatJson(const model::InstanceRecord& record, const model::LoadSample& load) {
  // Name and incarnation are host:port and letters, so they need no escapes.
  return base::StrCat(R"({"name":")", record.id.name, R"(","incarnation_id":")",
                      record.identity.incarnation_id,
                      R"(","load_metrics":{"waiting_requests_num":)", load.waiting_requests_num,
                      R"(,"gpu_cache_usage_perc":)", load.gpu_cache_usage_perc, "}}");
}

}  // namespace

Registrar::Registrar(http::EventLoop& loop, RegistrarOptions options, model::InstanceRecord record,
                     std::function<model::LoadSample()> load)
    : loop_(loop),
      options_(std::move(options)),
      record_(std::move(record)),
      load_(std::move(load)),
      random_(options_.seed),
      retry_(options_.first_retry),
      client_(loop, {.connect_timeout = kRegisterTimeout}) {
  Register();
  HeartbeatLater();
}

http::Request Registrar::RequestTo(std::string method, std::string target, std::string body) const {
  http::Request request;
  request.method = std::move(method);
  request.target = std::move(target);
  if (!body.empty()) request.headers.Add("Content-Type", "application/json");
  if (!options_.token.empty()) request.headers.Add("X-Internal-Token", options_.token);
  request.body = std::move(body);
  return request;
}

void Registrar::Register() {
  if (registering_) registering_->Cancel();
  register_timer_.reset();
  registering_ = client_.Fetch(
      options_.service,
      RequestTo("PUT",
                base::StrCat("/v1/internal/instances/", record_.id.name,
                             "?ttl_ms=", options_.ttl.count()),
                model::InstanceJson(record_)),
      {.total_timeout = kRegisterTimeout}, kMaxAnswerBytes,
      [this](base::Result<http::Response> answer) { OnRegisterAnswer(std::move(answer)); });
}

void Registrar::OnRegisterAnswer(base::Result<http::Response> answer) {
  registering_.reset();
  if (stopped_) return;
  if (!answer.ok() || (answer->status != 200 && answer->status != 201)) {
    RetryLater(Reason(answer));
    return;
  }
  if (!registered_) {
    base::LogInfo(base::StrCat("sim: ", record_.id.name, " is registered with ",
                               options_.service.host, ":", options_.service.port));
  }
  registered_ = true;
  was_refused_ = false;
  retry_ = options_.first_retry;
  register_timer_ = loop_.PostAfter(options_.ttl / 3, [this] { Register(); });
}

void Registrar::RetryLater(const std::string& reason) {
  if (!std::exchange(was_refused_, true)) {
    base::LogWarning(base::StrCat("sim: ", record_.id.name, " cannot register with ",
                                  options_.service.host, ":", options_.service.port, ": ", reason,
                                  "; trying again"));
  }
  registered_ = false;
  // Half of it fixed, half random: engines of one fleet do not come back in the same instant.
  const auto half = std::max<std::int64_t>(retry_.count() / 2, 1);
  const std::chrono::milliseconds delay(
      half + std::uniform_int_distribution<std::int64_t>(0, half)(random_));
  retry_ = std::min(2 * retry_, options_.longest_retry);
  register_timer_ = loop_.PostAfter(delay, [this] { Register(); });
}

void Registrar::HeartbeatLater() {
  heartbeat_timer_ = loop_.PostAfter(options_.heartbeat_interval, [this] { Heartbeat(); });
}

void Registrar::Heartbeat() {
  if (!registered_) {
    HeartbeatLater();
    return;
  }
  client_.Fetch(options_.service,
                RequestTo("POST", "/v1/internal/heartbeat", HeartbeatJson(record_, load_())),
                {.total_timeout = kHeartbeatTimeout}, kMaxAnswerBytes,
                [this, life = life_](base::Result<http::Response> answer) {
                  OnHeartbeatAnswer(life, std::move(answer));
                });
}

void Registrar::OnHeartbeatAnswer(std::uint64_t life, base::Result<http::Response> answer) {
  if (stopped_) return;
  HeartbeatLater();
  if (life != life_ || !answer.ok()) return;
  if (answer->status == 200) {
    ++heartbeats_;
  } else if ((answer->status == 409 || answer->status == 404) && registered_) {
    base::LogInfo(base::StrCat("sim: ", record_.id.name, " is no longer known; registering again"));
    registered_ = false;
    Register();
  }
}

void Registrar::Restart(model::ProcessIdentity identity) {
  if (stopped_) return;
  ++life_;
  record_.identity = std::move(identity);
  registered_ = false;
  retry_ = options_.first_retry;
  Register();
}

void Registrar::Stop(std::function<void()> done) {
  stopped_ = true;
  register_timer_.reset();
  heartbeat_timer_.reset();
  // One that is under way may have been heard already.
  const bool may_be_known = registered_ || registering_;
  if (registering_) std::exchange(registering_, nullptr)->Cancel();
  registered_ = false;
  if (!may_be_known) {
    done();
    return;
  }
  client_.Fetch(options_.service,
                RequestTo("DELETE", base::StrCat("/v1/internal/instances/", record_.id.name), ""),
                {.total_timeout = kFarewellTimeout}, kMaxAnswerBytes,
                [done = std::move(done)](const base::Result<http::Response>&) { done(); });
}

}  // namespace xms::sim
