// RequestParser, ResponseParser: bytes of one HTTP/1.x message to our plain values, piece by piece.
//
// Place       Beast's parser stays inside parser.cc. It reads the grammar; what it lets pass
//             although two readers may understand it differently is refused here: folded lines, a
//             repeated or listed Content-Length, any transfer coding but a single `chunked`, a
//             request without exactly one Host, a status below 100. A status line may end behind
//             the code, without the space that the grammar wants there.
// Threads     Externally synchronised.
// Bounds      Header bytes are counted across pieces. A chunk header or trailer is bounded by the
//             caller, which keeps unconsumed bytes and stops at max_header_bytes of them.
// Failure     After kFailed: failure() says which status and why; only destruction or Reset may
//             follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "http/message.h"

namespace xms::http::internal {

enum class Progress : std::uint8_t {
  kNeedMore,  // what is left unconsumed must be offered again, with more behind it
  kHeaders,   // the header is complete; reported once, before any of the body
  kDone,      // the message is complete
  kFailed,
};

struct ParseFailure {
  int status = 400;  // what a server answers
  std::string message;
};

// How far the header's bytes have been looked at.
struct HeaderProgress {
  std::size_t taken = 0;    // by the grammar
  std::size_t scanned = 0;  // of those not taken yet
  bool complete = false;    // its empty line was seen
};

class RequestParser {
 public:
  RequestParser(std::size_t max_header_bytes, std::size_t max_body_bytes);
  ~RequestParser();

  void Reset();
  // Consumes the first `used` bytes.
  Progress Feed(std::string_view bytes, std::size_t& used);

  // After kHeaders:
  bool keep_alive() const;
  bool is_http_1_0() const;
  bool has_body() const;
  // `Expect: 100-continue` of an HTTP/1.1 client.
  bool expects_continue() const;
  Request& request();
  const ParseFailure& failure() const;

 private:
  class Message;
  std::size_t max_header_bytes_;
  std::size_t max_body_bytes_;
  HeaderProgress header_;
  ParseFailure failure_;
  std::unique_ptr<Message> message_;
};

class ResponseParser {
 public:
  explicit ResponseParser(std::size_t max_header_bytes);
  ~ResponseParser();

  // The answer to a HEAD request has no body, whatever its header says.
  void Reset(bool answer_to_head);
  Progress Feed(std::string_view bytes, std::size_t& used);
  // The peer closed: kDone when that is how the body ends, else kFailed.
  Progress FeedEnd();

  // After kHeaders:
  int status() const;
  bool keep_alive() const;
  Headers& headers();
  // Body bytes since the last TakeBody.
  std::string TakeBody();
  const ParseFailure& failure() const;
  bool failed_on_size() const;

 private:
  class Message;
  Progress FeedLines(std::string_view bytes, std::size_t& used);

  std::size_t max_header_bytes_;
  HeaderProgress header_;
  bool failed_on_size_ = false;
  ParseFailure failure_;
  std::unique_ptr<Message> message_;
};

}  // namespace xms::http::internal
