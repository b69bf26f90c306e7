// Beast 1.74 asserts that a last chunk is looked at again with five bytes or more; four are enough
// to get there, and a peer must not be able to end a build that checks assertions. This is the only
// file that includes Beast.
#define BOOST_DISABLE_ASSERTS

#include "http/internal/parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

#include "base/str_cat.h"

namespace xms::http::internal {
namespace {

namespace beast_http = boost::beast::http;
using boost::beast::error_code;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// Bytes that the body's declared length may reserve before any of them has come.
constexpr std::uint64_t kMostReserved = std::uint64_t{64} * 1024;

bool IsDigits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Beast takes folded lines for one, and says nothing of a bare line feed while it waits for the end
// of the header; both are found here as the bytes come. `pending` is what Beast has not taken; it
// begins at the start of a line.
const char* ScanLines(std::string_view pending, HeaderProgress& header) {
  while (!header.complete) {
    const auto at = pending.find('\n', header.scanned);
    if (at == std::string_view::npos) {
      header.scanned = pending.size();
      return nullptr;
    }
    if (at == 0 || pending[at - 1] != '\r') return "line that ends without carriage return";
    const bool is_empty_line = at == 1 || (at >= 3 && pending[at - 2] == '\n');
    if (is_empty_line) {
      header.complete = true;
    } else if (at + 1 == pending.size()) {
      header.scanned = at;  // looked at again with what follows
      return nullptr;
    } else if (pending[at + 1] == ' ' || pending[at + 1] == '\t') {
      return "folded header line";
    }
    header.scanned = at + 1;
  }
  return nullptr;
}

// What requests and responses have in common beyond Beast's own checks.
struct FramingCheck {
  bool content_length_seen = false;
  bool chunked = false;
  const char* fault = nullptr;  // static text
  int fault_status = 400;

  void Field(std::string_view name, std::string_view value) {
    if (EqualsIgnoringCase(name, "content-length")) {
      if (content_length_seen) fault = "more than one Content-Length";
      if (!IsDigits(value)) fault = "Content-Length is not a number";
      content_length_seen = true;
    } else if (EqualsIgnoringCase(name, "transfer-encoding")) {
      if (!EqualsIgnoringCase(value, "chunked")) {
        fault = "transfer coding other than chunked";
        fault_status = 501;
      }
      chunked = true;
    }
  }
};

ParseFailure Explain(const error_code& error) {
  if (error == beast_http::error::header_limit) return {431, "header too large"};
  if (error == beast_http::error::body_limit) return {413, "body too large"};
  if (error == beast_http::error::bad_version)
    return {400, "malformed request line or HTTP version"};
  if (error == beast_http::error::bad_status || error == beast_http::error::bad_reason)
    return {400, "malformed status line"};
  if (error == beast_http::error::bad_content_length)
    return {400, "bad Content-Length, or one beside Transfer-Encoding"};
  if (error == beast_http::error::bad_transfer_encoding)
    return {400, "repeated Transfer-Encoding, or one beside Content-Length"};
  return {400, "malformed HTTP: " + error.message()};
}

error_code Refused() { return make_error_code(beast_http::error::bad_field); }

// `http://host/path?query` names this server once more; handlers see `/path?query`.
std::string OriginForm(std::string_view target) {
  constexpr std::string_view kScheme = "http://";
  if (!EqualsIgnoringCase(target.substr(0, kScheme.size()), kScheme)) return std::string(target);
  const auto path = target.find_first_of("/?", kScheme.size());
  if (path == std::string_view::npos) return "/";
  if (target[path] == '?') return "/" + std::string(target.substr(path));
  return std::string(target.substr(path));
}

}  // namespace

class RequestParser::Message final : public beast_http::basic_parser<true> {
 public:
  explicit Message(std::size_t max_header_bytes, std::size_t max_body_bytes) {
    header_limit(static_cast<std::uint32_t>(std::min<std::size_t>(max_header_bytes, UINT32_MAX)));
    body_limit(max_body_bytes);
    request.method.clear();  // not known before the first line is
    request.target.clear();
  }

  Request request;
  FramingCheck framing;
  int hosts = 0;
  bool http_1_0 = false;
  bool expects_continue = false;
  bool header_done = false;

 private:
  void on_request_impl(beast_http::verb, boost::beast::string_view method,
                       boost::beast::string_view target, int version, error_code&) override {
    request.method.assign(method.data(), method.size());
    request.target = OriginForm(View(target));
    http_1_0 = version < 11;
  }
  void on_response_impl(int, boost::beast::string_view, int, error_code&) override {}
  void on_field_impl(beast_http::field, boost::beast::string_view name,
                     boost::beast::string_view value, error_code& error) override {
    if (header_done) return;  // trailers carry nothing that we use, and must not pass for headers
    framing.Field(View(name), View(value));
    if (EqualsIgnoringCase(View(name), "host")) {
      ++hosts;
    } else if (EqualsIgnoringCase(View(name), "expect")) {
      if (EqualsIgnoringCase(View(value), "100-continue")) {
        expects_continue = true;
      } else {
        framing.fault = "unknown expectation";
        framing.fault_status = 417;
      }
    }
    if (framing.fault != nullptr) {
      error = Refused();
      return;
    }
    request.headers.Add(std::string(View(name)), std::string(View(value)));
  }
  void on_header_impl(error_code& error) override {
    header_done = true;
    if (http_1_0 && framing.chunked) framing.fault = "Transfer-Encoding in HTTP/1.0";
    if (hosts > 1) framing.fault = "more than one Host";
    if (hosts == 0 && !http_1_0) framing.fault = "no Host";
    if (framing.fault != nullptr) error = Refused();
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, error_code&) override {
    if (length) request.body.reserve(static_cast<std::size_t>(std::min(*length, kMostReserved)));
  }
  std::size_t on_body_impl(boost::beast::string_view body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t, boost::beast::string_view, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, boost::beast::string_view body,
                                 error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_finish_impl(error_code&) override {}
};

class ResponseParser::Message final : public beast_http::basic_parser<false> {
 public:
  Message(std::size_t max_header_bytes, bool answer_to_head) {
    header_limit(static_cast<std::uint32_t>(std::min<std::size_t>(max_header_bytes, UINT32_MAX)));
    // Not boost::none: Beast 1.74 compares a declared length with it and finds every length too
    // large.
    body_limit(UINT64_MAX);
    skip(answer_to_head);
  }

  int status = 0;
  Headers headers;
  std::string body;
  FramingCheck framing;
  bool header_done = false;

 private:
  void on_request_impl(beast_http::verb, boost::beast::string_view, boost::beast::string_view, int,
                       error_code&) override {}
  void on_response_impl(int code, boost::beast::string_view, int, error_code& error) override {
    status = code;
    if (status < 100) {
      framing.fault = "status code below 100";
      error = Refused();
    }
  }
  void on_field_impl(beast_http::field, boost::beast::string_view name,
                     boost::beast::string_view value, error_code& error) override {
    if (header_done) return;
    framing.Field(View(name), View(value));
    if (framing.fault != nullptr) {
      error = Refused();
      return;
    }
    headers.Add(std::string(View(name)), std::string(View(value)));
  }
  void on_header_impl(error_code&) override { header_done = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(boost::beast::string_view bytes, error_code&) override {
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t, boost::beast::string_view, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, boost::beast::string_view bytes,
                                 error_code&) override {
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_finish_impl(error_code&) override {}
};

namespace {

// One step of either parser; Beast's put() takes one piece (the header, a chunk header, body bytes)
// at a time.
template <typename Message>
Progress FeedMessage(Message& message, std::string_view bytes, HeaderProgress& header,
                     std::size_t max_header_bytes, std::size_t& used, ParseFailure& failure) {
  used = 0;
  for (;;) {
    if (message.is_done()) return Progress::kDone;
    if (used == bytes.size()) return Progress::kNeedMore;
    const std::string_view offered = bytes.substr(used);
    const bool in_header = !message.header_done;
    if (in_header) {
      if (const char* fault = ScanLines(offered, header)) {
        failure = {400, fault};
        return Progress::kFailed;
      }
    }
    error_code error;
    const std::size_t taken =
        message.put(boost::asio::const_buffer(offered.data(), offered.size()), error);
    used += taken;
    if (in_header) {
      header.scanned -= std::min(header.scanned, taken);
      header.taken += taken;
      // Beast's own limit is for what lies in one buffer, not for the sum.
      const bool is_fault = error && error != beast_http::error::need_more;
      const std::size_t pending = header.complete ? 0 : bytes.size() - used;
      if (!is_fault && header.taken + pending > max_header_bytes) {
        error = beast_http::error::header_limit;
      }
    }
    if (error == beast_http::error::need_more) return Progress::kNeedMore;
    if (error) {
      failure = message.framing.fault != nullptr
                    ? ParseFailure{message.framing.fault_status, message.framing.fault}
                    : Explain(error);
      return Progress::kFailed;
    }
    if (in_header && message.header_done) return Progress::kHeaders;
  }
}

}  // namespace

RequestParser::RequestParser(std::size_t max_header_bytes, std::size_t max_body_bytes)
    : max_header_bytes_(max_header_bytes), max_body_bytes_(max_body_bytes) {
  Reset();
}

RequestParser::~RequestParser() = default;

void RequestParser::Reset() {
  header_ = {};
  message_ = std::make_unique<Message>(max_header_bytes_, max_body_bytes_);
}

Progress RequestParser::Feed(std::string_view bytes, std::size_t& used) {
  const Progress progress =
      FeedMessage(*message_, bytes, header_, max_header_bytes_, used, failure_);
  if (progress == Progress::kFailed && failure_.status == 413) {
    failure_.message = base::StrCat("the body is larger than ", max_body_bytes_, " bytes");
  } else if (progress == Progress::kFailed && failure_.status == 431) {
    failure_.message = base::StrCat("the header is larger than ", max_header_bytes_, " bytes");
  }
  return progress;
}

bool RequestParser::keep_alive() const { return message_->keep_alive(); }
bool RequestParser::is_http_1_0() const { return message_->http_1_0; }
bool RequestParser::has_body() const { return !message_->is_done(); }
bool RequestParser::expects_continue() const {
  return message_->expects_continue && !message_->http_1_0;
}
Request& RequestParser::request() { return message_->request; }
const ParseFailure& RequestParser::failure() const { return failure_; }

ResponseParser::ResponseParser(std::size_t max_header_bytes) : max_header_bytes_(max_header_bytes) {
  Reset(false);
}

ResponseParser::~ResponseParser() = default;

void ResponseParser::Reset(bool answer_to_head) {
  header_ = {};
  failed_on_size_ = false;
  message_ = std::make_unique<Message>(max_header_bytes_, answer_to_head);
}

Progress ResponseParser::Feed(std::string_view bytes, std::size_t& used) {
  const Progress progress = FeedLines(bytes, used);
  if (progress != Progress::kFailed) return progress;
  failed_on_size_ = failure_.status == 431;
  if (failed_on_size_) {
    failure_.message = base::StrCat("the header is larger than ", max_header_bytes_, " bytes");
  } else if (header_.taken == 0 && message_->framing.fault == nullptr) {
    failure_.message = "malformed status line";
  }
  return progress;
}

Progress ResponseParser::FeedLines(std::string_view bytes, std::size_t& used) {
  used = 0;
  constexpr std::size_t kCodeEnd = std::string_view("HTTP/1.1 200").size();
  std::size_t line = 0;
  if (header_.taken == 0) {
    // Beast has to see such a line at once: after a part of it, it would wait for the whole header.
    const bool has_line = bytes.find('\n') != std::string_view::npos;
    if (!has_line && bytes.size() < kCodeEnd + 2) return Progress::kNeedMore;
    if (bytes.size() >= kCodeEnd + 2 && bytes.substr(kCodeEnd, 2) == "\r\n") {
      // It wants the space that begins the reason, also where there is none.
      const std::string spaced = base::StrCat(bytes.substr(0, kCodeEnd), " \r\n");
      std::size_t taken = 0;
      const Progress progress =
          FeedMessage(*message_, spaced, header_, max_header_bytes_, taken, failure_);
      if (progress == Progress::kFailed) return progress;
      line = kCodeEnd + 2;
    }
  }
  const Progress progress =
      FeedMessage(*message_, bytes.substr(line), header_, max_header_bytes_, used, failure_);
  used += line;
  return progress;
}

Progress ResponseParser::FeedEnd() {
  error_code error;
  if (message_->got_some()) {
    message_->put_eof(error);
    if (!error) return Progress::kDone;
  }
  failure_ = {502, "closed before the answer was complete"};
  return Progress::kFailed;
}

int ResponseParser::status() const { return message_->status; }
bool ResponseParser::keep_alive() const { return message_->keep_alive(); }
Headers& ResponseParser::headers() { return message_->headers; }
std::string ResponseParser::TakeBody() { return std::exchange(message_->body, {}); }
const ParseFailure& ResponseParser::failure() const { return failure_; }
bool ResponseParser::failed_on_size() const { return failed_on_size_; }

}  // namespace xms::http::internal
