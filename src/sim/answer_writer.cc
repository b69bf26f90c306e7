#include "sim/answer_writer.h"

#include <utility>

#include "sim/tokens.h"

namespace xms::sim {

AnswerWriter::AnswerWriter(std::shared_ptr<http::Exchange> exchange, Options options)
    : exchange_(std::move(exchange)), options_(std::move(options)) {}

void AnswerWriter::OnToken(const TokenOutput& output) {
  ++completion_tokens_;
  cached_tokens_ = output.cached_tokens;
  ended_ = output.last;
  AppendTokenText(output.token, text_);
  if (!options_.stream) return;
  if (output.index == 0 && options_.head.kind == ApiKind::kChat) {
    pending_.append(RoleEvent(options_.head, options_.include_usage));
  }
  if (ended_ || completion_tokens_ % options_.stream_interval == 0) {
    pending_.append(TextEvent(options_.head, text_, options_.include_usage));
    text_.clear();
  }
  if (!ended_) return;
  pending_.append(EndEvent(options_.head, options_.include_usage));
  if (options_.include_usage) pending_.append(UsageEvent(options_.head, MakeUsage()));
  pending_.append(kDoneEvent);
}

void AnswerWriter::Flush() {
  if (!exchange_) return;
  if (options_.stream) {
    Write();
  } else if (ended_) {
    const auto exchange = std::exchange(exchange_, nullptr);
    exchange->Send(
        JsonAnswer(exchange->request(), 200, WholeAnswer(options_.head, text_, MakeUsage())));
  }
}

void AnswerWriter::Write() {
  if (!exchange_ || writing_ || (pending_.empty() && !ended_)) return;
  if (!std::exchange(started_, true)) {
    http::Headers headers = AnswerHeaders(exchange_->request());
    headers.Set("Content-Type", "text/event-stream");
    headers.Set("Cache-Control", "no-cache");
    exchange_->StartStream(200, std::move(headers));
  }
  if (pending_.empty()) {
    std::exchange(exchange_, nullptr)->Finish();
    return;
  }
  writing_ = true;
  exchange_->Write(std::exchange(pending_, {}), [self = shared_from_this()](bool alive) {
    self->writing_ = false;
    if (alive) {
      self->Write();
    } else {
      self->exchange_.reset();
    }
  });
}

void AnswerWriter::Abort() {
  if (exchange_) std::exchange(exchange_, nullptr)->Abort();
}

http::Headers AnswerHeaders(const http::Request& request) {
  http::Headers headers;
  if (const std::string* id = request.headers.Find("x-request-id")) {
    headers.Add("x-request-id", *id);
  }
  return headers;
}

http::Response JsonAnswer(const http::Request& request, int status, std::string json) {
  http::Response response{status, AnswerHeaders(request), std::move(json)};
  response.headers.Set("Content-Type", "application/json");
  return response;
}

}  // namespace xms::sim
