// Request ids: the client's own when it is fit to be passed on, else a new one.
//
// Threads     RequestIds: any thread, no lock.
// Proof       GatewayRequestId*.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "http/message.h"

namespace xms::gateway {

inline constexpr std::string_view kRequestIdHeader = "x-request-id";
inline constexpr std::size_t kMaxRequestIdBytes = 128;

// 1 to kMaxRequestIdBytes visible ASCII characters: goes into headers, logs and records as it is.
bool IsFitRequestId(std::string_view id);

class RequestIds {
 public:
  // Ids of equal seeds are equal.
  explicit RequestIds(std::uint64_t seed) : seed_(seed) {}
  // 32 hexadecimal digits.
  std::string Next();
  // What this request is called: the client's own id when it is fit, else a new one.
  std::string Of(const http::Request& request);

 private:
  const std::uint64_t seed_;
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace xms::gateway
