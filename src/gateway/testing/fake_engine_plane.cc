#include "gateway/testing/fake_engine_plane.h"

#include <utility>

namespace xms::gateway::testing {

void FakeEnginePlane::Call::Cancel() {
  cancelled_ = true;
  handlers_ = {};
}

void FakeEnginePlane::Call::GiveUp(base::Error why) {
  cancelled_ = true;
  Fail(stage_, std::move(why.message), why.code);
}

void FakeEnginePlane::Call::Sent() {
  stage_ = EngineStage::kSent;
  if (handlers_.on_sent) handlers_.on_sent();
}

void FakeEnginePlane::Call::Headers(int status, http::Headers headers) {
  if (stage_ == EngineStage::kNotSent) Sent();
  stage_ = EngineStage::kAnswering;
  if (handlers_.on_headers) handlers_.on_headers(status, std::move(headers));
}

void FakeEnginePlane::Call::Body(std::string chunk) {
  if (!handlers_.on_body) return;
  may_send_ = false;
  handlers_.on_body(std::move(chunk), [this] { may_send_ = true; });
}

void FakeEnginePlane::Call::End() {
  const EngineHandlers handlers = std::exchange(handlers_, {});
  if (handlers.on_end) handlers.on_end();
}

void FakeEnginePlane::Call::Fail(EngineStage stage, std::string message, base::ErrorCode code) {
  const EngineHandlers handlers = std::exchange(handlers_, {});
  if (handlers.on_error) handlers.on_error(base::Error{code, std::move(message)}, stage);
}

void FakeEnginePlane::Call::AnswerJson(int status, std::string body) {
  http::Headers headers;
  headers.Add("Content-Type", "application/json");
  Headers(status, std::move(headers));
  Body(std::move(body));
  End();
}

std::shared_ptr<EngineCall> FakeEnginePlane::Submit(http::EventLoop& /*loop*/,
                                                    EngineRequest request,
                                                    EngineHandlers handlers) {
  const auto failing = failing_.find(request.instance);
  auto call = std::make_shared<Call>(std::move(request), std::move(handlers));
  calls.push_back(call);
  if (failing != failing_.end()) call->Fail(failing->second);
  return call;
}

}  // namespace xms::gateway::testing
