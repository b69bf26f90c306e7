// FakeEnginePlane: engines that answer what a test tells them.
//
// Threads     The test's thread only.
// Contract    Keeps EnginePlane's: one end or error for each call, nothing after Cancel, no bytes
//             before `resume`.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gateway/engine_plane.h"

namespace xms::gateway::testing {

class FakeEnginePlane final : public EnginePlane {
 public:
  FakeEnginePlane() = default;
  // Calls that a test left open own their requests, which own them: they end here.
  ~FakeEnginePlane() override {
    for (const auto& call : calls) call->Cancel();
  }
  FakeEnginePlane(const FakeEnginePlane&) = delete;
  FakeEnginePlane& operator=(const FakeEnginePlane&) = delete;

  // One call as the engine sees it.
  class Call final : public EngineCall {
   public:
    Call(EngineRequest request, EngineHandlers handlers)
        : request_(std::move(request)), handlers_(std::move(handlers)) {}
    void Cancel() override;
    void GiveUp(base::Error why) override;

    const EngineRequest& request() const { return request_; }
    bool cancelled() const { return cancelled_; }
    bool open() const { return static_cast<bool>(handlers_.on_end); }
    // The last chunk has been taken: more may follow.
    bool may_send() const { return may_send_; }

    // The connection stands and the request is on it; Headers says so too.
    void Sent();
    void Headers(int status, http::Headers headers = {});
    void Body(std::string chunk);
    void End();
    void Fail(EngineStage stage, std::string message = "connection refused",
              base::ErrorCode code = base::ErrorCode::kUnavailable);
    // A whole JSON answer.
    void AnswerJson(int status, std::string body);

   private:
    EngineRequest request_;
    EngineHandlers handlers_;
    bool cancelled_ = false;
    bool may_send_ = true;
    EngineStage stage_ = EngineStage::kNotSent;
  };

  std::shared_ptr<EngineCall> Submit(http::EventLoop& loop, EngineRequest request,
                                     EngineHandlers handlers) override;

  // Calls to this instance fail inside Submit, with this stage.
  void FailAtOnce(const std::string& instance, EngineStage stage) { failing_[instance] = stage; }

  std::vector<std::shared_ptr<Call>> calls;

 private:
  std::map<std::string, EngineStage> failing_;
};

}  // namespace xms::gateway::testing
