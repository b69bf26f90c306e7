#include "http/internal/wire.h"

#include <algorithm>
#include <ctime>

#include "base/str_cat.h"

namespace xms::http::internal {
namespace {

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 301:
      return "Moved Permanently";
    case 302:
      return "Found";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 424:
      return "Failed Dependency";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "";  // the phrase may be empty, the space before it may not
  }
}

bool IsFramingField(std::string_view name) {
  for (const std::string_view field :
       {"connection", "keep-alive", "transfer-encoding", "content-length"}) {
    if (EqualsIgnoringCase(name, field)) return true;
  }
  return false;
}

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && byte != '\t') || byte == 0x7f;
}

bool IsSafeName(std::string_view name) {
  return !name.empty() && std::none_of(name.begin(), name.end(), [](char c) {
    return IsControl(c) || c == ':' || c == ' ' || c == '\t';
  });
}

void AppendField(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

void AppendHeaders(std::string& out, const Headers& headers, const Framing& framing) {
  for (const auto& [name, value] : headers.entries()) {
    if (IsFramingField(name) || !IsSafeName(name)) continue;
    if (std::any_of(value.begin(), value.end(), IsControl)) continue;
    AppendField(out, name, value);
  }
  if (framing.chunked) {
    AppendField(out, "Transfer-Encoding", "chunked");
  } else if (framing.content_length) {
    base::StrAppend(out, "Content-Length: ", *framing.content_length, "\r\n");
  }
  if (!framing.connection.empty()) AppendField(out, "Connection", framing.connection);
}

// Fixed English names, whatever the locale.
std::string_view DateText() {
  thread_local std::time_t made_for = -1;
  thread_local char text[32];
  thread_local std::size_t size = 0;
  const std::time_t now = std::time(nullptr);
  if (now != made_for) {
    static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                              "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    std::tm utc{};
    gmtime_r(&now, &utc);
    char format[32];
    std::snprintf(format, sizeof format, "%s, %%d %s %%Y %%H:%%M:%%S GMT", kDays[utc.tm_wday],
                  kMonths[utc.tm_mon]);
    size = std::strftime(text, sizeof text, format, &utc);
    made_for = now;
  }
  return {text, size};
}

}  // namespace

std::string ResponseHead(int status, const Headers& headers, const Framing& framing) {
  std::string out;
  out.reserve(256);
  base::StrAppend(out, "HTTP/1.1 ", status, " ", ReasonPhrase(status), "\r\n");
  if (headers.Find("date") == nullptr) AppendField(out, "Date", DateText());
  AppendHeaders(out, headers, framing);
  out.append("\r\n");
  return out;
}

std::string RequestHead(const Request& request, std::string_view host, const Framing& framing) {
  std::string out;
  out.reserve(256);
  base::StrAppend(out, request.method, " ", request.target, " HTTP/1.1\r\n");
  if (request.headers.Find("host") == nullptr) AppendField(out, "Host", host);
  AppendHeaders(out, request.headers, framing);
  out.append("\r\n");
  return out;
}

bool IsSafeRequestLine(std::string_view method, std::string_view target) {
  const auto unsafe = [](char c) { return IsControl(c) || c == ' ' || c == '\t'; };
  return !method.empty() && !target.empty() && std::none_of(method.begin(), method.end(), unsafe) &&
         std::none_of(target.begin(), target.end(), unsafe);
}

bool StatusForbidsBody(int status) { return status < 200 || status == 204 || status == 304; }

}  // namespace xms::http::internal
