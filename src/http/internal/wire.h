// Header blocks of messages that go out, as text.
//
// Threads     Any.
// Invariants  What comes out is one well-formed header block, whatever the headers hold: an entry
//             with a line break or another control byte in it is left out, and fields that frame
//             the message are only those asked for here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"

namespace xms::http::internal {

struct Framing {
  bool chunked = false;
  std::optional<std::uint64_t> content_length;
  // Value of the Connection field; empty: none.
  std::string_view connection;
};

// Ends with the empty line. Adds Date when there is none.
std::string ResponseHead(int status, const Headers& headers, const Framing& framing);
// `host` is added when the request has none of its own.
std::string RequestHead(const Request& request, std::string_view host, const Framing& framing);

// Nothing in it could end a line or a word of the request line.
bool IsSafeRequestLine(std::string_view method, std::string_view target);

// 1xx, 204, 304.
bool StatusForbidsBody(int status);

}  // namespace xms::http::internal
