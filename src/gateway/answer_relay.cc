#include "gateway/answer_relay.h"

#include <string_view>
#include <utility>

#include "base/str_cat.h"
#include "gateway/request_id.h"

namespace xms::gateway {
namespace {

// `type` without its parameters is `wanted`, or ends in `suffix` (application/problem+json).
bool IsMediaType(std::string_view type, std::string_view wanted, std::string_view suffix) {
  type = type.substr(0, type.find(';'));
  while (!type.empty() && type.back() == ' ') type.remove_suffix(1);
  if (http::EqualsIgnoringCase(type, wanted)) return true;
  return !suffix.empty() && type.size() > suffix.size() &&
         http::EqualsIgnoringCase(type.substr(type.size() - suffix.size()), suffix);
}

}  // namespace

AnswerRelay::AnswerRelay(std::shared_ptr<http::Exchange> exchange, std::string request_id)
    : exchange_(std::move(exchange)), request_id_(std::move(request_id)) {}

void AnswerRelay::OnHeaders(int status, const http::Headers& headers) {
  status_ = status;
  headers_ = http::EndToEndHeaders(headers);
  headers_.Set(kRequestIdHeader, request_id_);
  const std::string* type = headers_.Find("Content-Type");
  if (type != nullptr && IsMediaType(*type, "text/event-stream", {})) {
    mode_ = Mode::kEvents;
  } else if (type == nullptr ? headers.Find("Content-Length") != nullptr
                             : IsMediaType(*type, "application/json", "+json")) {
    // Without a type, one that does not say its length may be a stream.
    mode_ = Mode::kWhole;
  } else {
    mode_ = Mode::kBytes;
  }
  if (mode_ != Mode::kWhole) exchange_->StartStream(status_, std::move(headers_));
}

void AnswerRelay::OnBody(std::string chunk, std::function<void(bool)> taken) {
  if (mode_ == Mode::kWhole) {
    body_ += chunk;
    if (body_.size() <= kMaxWhole) return taken(true);
    mode_ = Mode::kBytes;
    chunk = std::move(body_);
    exchange_->StartStream(status_, std::move(headers_));
  }
  if (mode_ == Mode::kEvents) events_.Feed(chunk);
  if (chunk.empty()) return taken(true);
  exchange_->Write(std::move(chunk), std::move(taken));
}

void AnswerRelay::Seal() {
  if (mode_ == Mode::kEvents) {
    body_ = events_.TakeRest();
    cached_tokens_ = events_.cached_tokens();
  } else if (mode_ == Mode::kWhole) {
    cached_tokens_ = CachedTokens(body_);
  }
}

void AnswerRelay::Finish() {
  if (mode_ == Mode::kWhole) {
    exchange_->Send({status_, std::move(headers_), std::move(body_)});
    return;
  }
  if (body_.empty()) return exchange_->Finish();
  exchange_->Write(std::move(body_), [exchange = exchange_](bool there) {
    if (there) exchange->Finish();
  });
}

void AnswerRelay::Break(const GatewayError& error) {
  switch (mode_) {
    case Mode::kWhole: {  // the client has seen nothing yet
      http::Response response = ErrorResponse(error);
      response.headers.Add(std::string(kRequestIdHeader), request_id_);
      exchange_->Send(std::move(response));
      return;
    }
    case Mode::kEvents:
      exchange_->Write(base::StrCat(events_.Separator(), "data: ", ErrorJson(error), "\n\n"),
                       [exchange = exchange_](bool there) {
                         if (there) exchange->Abort();
                       });
      return;
    case Mode::kBytes:
      exchange_->Abort();
      return;
  }
}

}  // namespace xms::gateway
