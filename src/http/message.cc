#include "http/message.h"

#include <algorithm>
#include <cctype>

namespace xms::http {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Fields that concern two machines and never the message. Expect is among them because whoever
// received the message has already answered it.
constexpr std::string_view kHopByHop[] = {
    "connection", "keep-alive",     "te",   "trailer", "transfer-encoding",
    "upgrade",    "content-length", "host", "expect",
};
constexpr std::string_view kProxyPrefix = "proxy-";

bool IsHopByHop(std::string_view name) {
  if (EqualsIgnoringCase(name.substr(0, kProxyPrefix.size()), kProxyPrefix)) return true;
  return std::any_of(std::begin(kHopByHop), std::end(kHopByHop),
                     [&](std::string_view other) { return EqualsIgnoringCase(name, other); });
}

std::string_view Trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = Lower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// `+` is a space and a broken escape stands for itself, as browsers and servers agree.
std::string DecodeQueryPart(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
        HexDigit(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i] == '+' ? ' ' : text[i]);
    }
  }
  return out;
}

}  // namespace

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return Lower(x) == Lower(y); });
}

void Headers::Set(std::string_view name, std::string value) {
  std::string kept_name(name);  // `name` may point into an entry that goes away
  Remove(kept_name);
  Add(std::move(kept_name), std::move(value));
}

void Headers::Remove(std::string_view name) {
  std::erase_if(entries_, [&](const auto& entry) { return EqualsIgnoringCase(entry.first, name); });
}

const std::string* Headers::Find(std::string_view name) const {
  for (const auto& [key, value] : entries_) {
    if (EqualsIgnoringCase(key, name)) return &value;
  }
  return nullptr;
}

Headers EndToEndHeaders(const Headers& headers) {
  // Usually empty or `keep-alive`, `close`.
  std::vector<std::string_view> named;
  for (const auto& [name, value] : headers.entries()) {
    if (!EqualsIgnoringCase(name, "connection")) continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      const auto comma = rest.find(',');
      const auto token = Trim(rest.substr(0, comma));
      if (!token.empty()) named.push_back(token);
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
  }
  Headers out;
  for (const auto& [name, value] : headers.entries()) {
    const bool dropped =
        IsHopByHop(name) || std::any_of(named.begin(), named.end(), [&](std::string_view other) {
          return EqualsIgnoringCase(name, other);
        });
    if (!dropped) out.Add(name, value);
  }
  return out;
}

bool Request::QueryParameter(std::string_view name, std::string& value) const {
  const auto mark = target.find('?');
  if (mark == std::string::npos) return false;
  std::string_view rest = std::string_view(target).substr(mark + 1);
  rest = rest.substr(0, rest.find('#'));
  while (!rest.empty()) {
    const auto end = rest.find('&');
    const auto pair = rest.substr(0, end);
    const auto equals = pair.find('=');
    if (DecodeQueryPart(pair.substr(0, equals)) == name) {
      value = equals == std::string_view::npos ? std::string()
                                               : DecodeQueryPart(pair.substr(equals + 1));
      return true;
    }
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return false;
}

Response JsonResponse(int status, std::string json) {
  Response response;
  response.status = status;
  response.headers.Add("Content-Type", "application/json");
  response.body = std::move(json);
  return response;
}

}  // namespace xms::http
