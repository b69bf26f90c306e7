#include "gateway/request_id.h"

#include <algorithm>

namespace xms::gateway {
namespace {

// The finaliser of SplitMix64: a bijection, so ids of one seed never repeat.
std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

void AppendHex(std::string& out, std::uint64_t value) {
  for (int shift = 60; shift >= 0; shift -= 4)
    out.push_back("0123456789abcdef"[(value >> shift) & 15]);
}

}  // namespace

bool IsFitRequestId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

std::string RequestIds::Next() {
  std::string id;
  id.reserve(32);
  AppendHex(id, Mix(seed_));
  AppendHex(id, Mix(seed_ ^ Mix(count_.fetch_add(1))));
  return id;
}

std::string RequestIds::Of(const http::Request& request) {
  const std::string* given = request.headers.Find(kRequestIdHeader);
  return given != nullptr && IsFitRequestId(*given) ? *given : Next();
}

}  // namespace xms::gateway
