#include "app/adapters.h"

#include <algorithm>
#include <utility>

namespace xms::app {

namespace {
constexpr std::chrono::milliseconds kPauseBetweenProbes{100};
constexpr std::size_t kMaxProbeAnswerBytes = 64 * 1024;
}  // namespace

struct HttpHealthProbe::Attempt {
  http::Address address;
  int left = 1;
  std::function<void(bool)> done;
  std::unique_ptr<http::EventLoop::Timer> pause;
};

HttpHealthProbe::HttpHealthProbe(http::EventLoop& loop, Options options)
    : loop_(loop),
      options_(options),
      client_(loop,
              http::ClientOptions{.connect_timeout = options.timeout, .max_idle_per_host = 0}) {}

void HttpHealthProbe::Probe(const model::InstanceId& id, std::function<void(bool)> done) {
  auto attempt = std::make_shared<Attempt>();
  attempt->left = std::max(1, options_.attempts);
  attempt->done = std::move(done);
  const bool dialable = http::ParseAddress(id.name, attempt->address);
  loop_.Post([this, attempt, dialable] {
    // A name that is no address cannot answer.
    if (dialable) {
      Try(attempt);
    } else {
      attempt->done(false);
    }
  });
}

void HttpHealthProbe::Try(std::shared_ptr<Attempt> attempt) {
  --attempt->left;
  http::Request request;
  request.target = "/health";
  client_.Fetch(
      attempt->address, std::move(request), http::CallOptions{.total_timeout = options_.timeout},
      kMaxProbeAnswerBytes, [this, attempt](base::Result<http::Response> answer) {
        if (answer.ok() && answer->status == 200) return attempt->done(true);
        if (attempt->left == 0) return attempt->done(false);
        attempt->pause = loop_.PostAfter(kPauseBetweenProbes, [this, attempt] { Try(attempt); });
      });
}

std::vector<kv_directory::SourceInstance> InstanceSourceAdapter::Instances() const {
  const auto view = manager_.view();
  std::vector<kv_directory::SourceInstance> out;
  out.reserve(view->instances.size());
  for (const auto& instance : view->instances) {
    out.push_back({.record = instance->record,
                   .current_role = instance->current_role,
                   .suspect = instance->state == instances::State::kSuspect});
  }
  return out;
}

}  // namespace xms::app
