// AnswerRelay: an engine's answer on its way to the client, from the first header to the last byte.
//
// Place       Inside proxy_call, which decides what happens around it.
// Threads     The exchange's loop.
// Modes       Chosen by the answer's Content-Type:
//               events  (text/event-stream) sent as they come, line by line; a broken one ends with
//                       an error event and a connection that is cut, never with [DONE];
//               whole   (JSON) collected and sent in one piece; beyond kMaxWhole it turns into
//                       `bytes`;
//               bytes   (anything else) sent as they come; a broken one is cut.
// Bounds      One chunk, or one whole answer up to kMaxWhole: the engine is not read before the
//             client has taken what came (`resume`).
// Proof       GatewayAnswerRelay*.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gateway/error_map.h"
#include "gateway/usage_scanner.h"
#include "http/message.h"
#include "http/server.h"

namespace xms::gateway {

class AnswerRelay {
 public:
  static constexpr std::size_t kMaxWhole = 256 * 1024;

  AnswerRelay(std::shared_ptr<http::Exchange> exchange, std::string request_id);

  void OnHeaders(int status, const http::Headers& headers);
  // `taken(true)`: the next bytes may be read, `taken(false)`: the client is gone.
  void OnBody(std::string chunk, std::function<void(bool)> taken);
  // The answer is complete, or broke off. After Seal the figures below are final; then one of
  // Finish (after a complete one) and Break (after a broken one).
  void Seal();
  void Finish();
  void Break(const GatewayError& error);

  int status() const { return status_; }
  // The client has seen nothing yet, and will get the answer in one piece.
  bool collects() const { return mode_ == Mode::kWhole; }
  std::optional<std::uint64_t> cached_tokens() const { return cached_tokens_; }

 private:
  enum class Mode : std::uint8_t { kEvents, kWhole, kBytes };

  std::shared_ptr<http::Exchange> exchange_;
  std::string request_id_;
  Mode mode_ = Mode::kWhole;
  int status_ = 0;
  http::Headers headers_;
  std::string body_;  // whole: what came so far; events: the rest, once sealed
  SseStream events_;
  std::optional<std::uint64_t> cached_tokens_;
};

}  // namespace xms::gateway
