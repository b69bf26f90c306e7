// RequestParser and ResponseParser: the same bytes whole and in cuts.
//
// Input       One byte of options (bit 0: response, bit 1: of HEAD, bits 2–7: size of the cuts),
//             then what a peer sends.
// Holds       However the bytes are cut, either no cut makes a whole message of them or every cut
//             makes the same one and leaves the same bytes over. Limits are kept.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "http/internal/parser.h"

namespace {

using xms::http::Headers;
using xms::http::internal::Progress;
using xms::http::internal::RequestParser;
using xms::http::internal::ResponseParser;

constexpr std::size_t kMaxHeader = 512;
constexpr std::size_t kMaxBody = 256;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

struct Message {
  bool done = false;
  std::string start;
  Headers headers;
  std::string body;
  std::string left;
};

template <typename Parser>
Progress Feed(Parser& parser, std::string_view bytes, std::size_t cut, std::string& left) {
  Progress progress = Progress::kNeedMore;
  while (!bytes.empty() && progress == Progress::kNeedMore) {
    const std::string_view piece = bytes.substr(0, cut);
    bytes.remove_prefix(piece.size());
    left += piece;
    do {
      std::size_t used = 0;
      progress = parser.Feed(left, used);
      Check(used <= left.size(), "no more is consumed than was offered");
      left.erase(0, used);
    } while (progress == Progress::kHeaders);
    // What a connection does with a chunk header or trailer that does not end.
    if (progress == Progress::kNeedMore && left.size() > kMaxHeader) return Progress::kFailed;
  }
  left += bytes;
  return progress;
}

Message ReadRequest(std::string_view bytes, std::size_t cut) {
  RequestParser parser(kMaxHeader, kMaxBody);
  Message message;
  const Progress progress = Feed(parser, bytes, cut, message.left);
  if (progress == Progress::kFailed) {
    const int status = parser.failure().status;
    Check(status == 400 || status == 413 || status == 417 || status == 431 || status == 501,
          "a refusal has a status of its own");
  }
  if (progress != Progress::kDone) return message;
  message.done = true;
  message.start = parser.request().method + " " + parser.request().target;
  message.headers = parser.request().headers;
  message.body = parser.request().body;
  Check(message.body.size() <= kMaxBody, "the body keeps its limit");
  Check(parser.request().headers.Find("host") != nullptr || parser.is_http_1_0(),
        "there is a host");
  return message;
}

Message ReadResponse(std::string_view bytes, std::size_t cut, bool to_head) {
  ResponseParser parser(kMaxHeader);
  parser.Reset(to_head);
  Message message;
  const Progress progress = Feed(parser, bytes, cut, message.left);
  message.done = progress == Progress::kDone;
  if (progress == Progress::kNeedMore) message.done = parser.FeedEnd() == Progress::kDone;
  if (!message.done) return message;
  message.start = std::to_string(parser.status());
  message.headers = parser.headers();
  message.body = parser.TakeBody();
  Check(!to_head || message.body.empty(), "an answer to HEAD has no body");
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const unsigned options = data[0];
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto read = [&](std::size_t cut) {
    return (options & 1) != 0 ? ReadResponse(bytes, cut, (options & 2) != 0)
                              : ReadRequest(bytes, cut);
  };
  const Message whole = read(bytes.size() + 1);
  const Message cut = read(1 + (options >> 2));
  Check(whole.done == cut.done, "cuts decide nothing");
  if (!whole.done) return 0;
  Check(whole.start == cut.start, "the same first line");
  Check(whole.headers.entries() == cut.headers.entries(), "the same headers");
  Check(whole.body == cut.body, "the same body");
  Check(whole.left == cut.left, "the same bytes left over");
  std::size_t header_bytes = whole.start.size();
  for (const auto& [name, value] : whole.headers.entries())
    header_bytes += name.size() + value.size();
  Check(header_bytes <= kMaxHeader, "the header keeps its limit");
  return 0;
}
