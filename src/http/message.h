// HTTP messages as plain values: what handlers and callers see instead of Beast's types.
//
// Threads     Plain values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xms::http {

// In the order of arrival; names keep their spelling and compare without case. Repeated names
// stay apart.
class Headers {
 public:
  void Add(std::string name, std::string value) {
    entries_.emplace_back(std::move(name), std::move(value));
  }
  // Replaces every entry of that name.
  void Set(std::string_view name, std::string value);
  void Remove(std::string_view name);
  // First value, nullptr when absent.
  const std::string* Find(std::string_view name) const;
  const std::vector<std::pair<std::string, std::string>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<std::string, std::string>> entries_;
};

// ASCII only.
bool EqualsIgnoringCase(std::string_view a, std::string_view b);

// All but Connection, Keep-Alive, TE, Trailer, Transfer-Encoding, Upgrade, Proxy-*, Content-Length,
// Host, Expect, and whatever `Connection` names: those are between two machines only.
Headers EndToEndHeaders(const Headers& headers);

struct Request {
  std::string method = "GET";  // as sent; methods are case-sensitive
  std::string target = "/";    // path and query, as sent; `http://host/path` has become `/path`
  Headers headers;
  std::string body;
  std::string peer_address;  // numeric, without port; servers fill it
  bool peer_is_loopback = false;

  std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
  // The decoded value of one query parameter; false when absent.
  bool QueryParameter(std::string_view name, std::string& value) const;
};

struct Response {
  int status = 200;
  Headers headers;  // Content-Length is added when written
  std::string body;
};

// A response with a JSON body.
Response JsonResponse(int status, std::string json);

}  // namespace xms::http
