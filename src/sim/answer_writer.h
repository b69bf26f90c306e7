// AnswerWriter: one request's answer on its way from tokens to bytes.
//
// Place       Engine makes one for each accepted request.
// Threads     Confined to the engine's event loop.
// Form        Whole, or as server-sent events. Status and headers go out with the first token, so
//             that a client's time to its first byte is the time to the first token. While a write
//             is under way what comes is gathered, so one write is pending at a time.
// Ownership   Shared with the write under way. The exchange is let go with the last byte.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "http/server.h"
#include "sim/openai.h"
#include "sim/rank_scheduler.h"

namespace xms::sim {

class AnswerWriter : public std::enable_shared_from_this<AnswerWriter> {
 public:
  struct Options {
    AnswerHead head;
    bool stream = false;
    bool include_usage = false;
    std::uint32_t prompt_tokens = 0;
    std::uint32_t stream_interval = 1;  // tokens an event
  };
  AnswerWriter(std::shared_ptr<http::Exchange> exchange, Options options);

  // Gathers; Flush sends. After the last token the answer ends with the next Flush.
  void OnToken(const TokenOutput& output);
  void Flush();
  // Breaks off without an end.
  void Abort();

 private:
  void Write();
  Usage MakeUsage() const { return {options_.prompt_tokens, completion_tokens_, cached_tokens_}; }

  std::shared_ptr<http::Exchange> exchange_;  // null once the answer is over
  const Options options_;
  std::string text_;     // not yet in an event; of a whole answer all of it
  std::string pending_;  // events not yet written
  std::uint32_t completion_tokens_ = 0;
  std::uint32_t cached_tokens_ = 0;
  bool started_ = false;
  bool writing_ = false;
  bool ended_ = false;
};

// The response's own headers and the request's x-request-id.
http::Headers AnswerHeaders(const http::Request& request);
http::Response JsonAnswer(const http::Request& request, int status, std::string json);

}  // namespace xms::sim
