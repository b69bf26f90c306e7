#include "gateway/testing/fake_exchange.h"

namespace xms::gateway::testing {

void FakeExchange::Send(http::Response response) {
  if (finished || aborted || left_) return;
  status = response.status;
  headers = std::move(response.headers);
  body = std::move(response.body);
  finished = true;
}

void FakeExchange::StartStream(int stream_status, http::Headers stream_headers) {
  if (finished || aborted || left_) return;
  status = stream_status;
  headers = std::move(stream_headers);
  streamed = true;
}

void FakeExchange::Write(std::string chunk, std::function<void(bool)> done) {
  if (finished || aborted || left_) {
    loop_.Post([done = std::move(done)] { done(false); });
    return;
  }
  body += chunk;
  ++writes;
  if (holding_) {
    held_ = std::move(done);
    return;
  }
  loop_.Post([done = std::move(done)] { done(true); });
}

void FakeExchange::Finish() { finished = finished || !aborted; }

void FakeExchange::Abort() { aborted = aborted || !finished; }

void FakeExchange::Leave() {
  left_ = true;
  if (held_) std::exchange(held_, nullptr)(false);
  if (gone_) std::exchange(gone_, nullptr)();
}

void FakeExchange::Take() {
  holding_ = false;
  if (held_) std::exchange(held_, nullptr)(true);
}

}  // namespace xms::gateway::testing
