// What an engine says of its own cache while its answer passes by:
// usage.prompt_tokens_details.cached_tokens.
//
// Place       proxy_call, one reader per answer.
// Threads     Confined to the answer's loop.
// Bounds      An SSE line is held back until it is complete, up to kMaxHeldLine; a longer one
//             passes unread.
// Rules       Bytes are never changed. Lines are relayed whole, so that a stream which breaks off
//             can be told from one that ends: the client has never seen half a line, and an error
//             event can follow.
// Proof       GatewayUsage*: every split position of a stream; fuzz/gateway/gateway_sse_fuzz.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace xms::gateway {

// The figure in one JSON answer; nullopt when it is not there or not JSON.
std::optional<std::uint64_t> CachedTokens(std::string_view json);

class SseStream {
 public:
  static constexpr std::size_t kMaxHeldLine = 64 * 1024;

  // Takes what came, leaves in `bytes` what may be sent on now (possibly nothing).
  void Feed(std::string& bytes);
  // The stream has ended well: what is still held back.
  std::string TakeRest();
  // The stream broke off: what to send before an event of our own so that it stands for itself.
  // What was held back is dropped.
  std::string_view Separator();

  // Of the last event that carried it.
  std::optional<std::uint64_t> cached_tokens() const { return cached_tokens_; }

 private:
  void Scan(std::string_view lines);

  std::string held_;
  bool inside_long_line_ = false;  // part of the current line has been sent
  std::optional<std::uint64_t> cached_tokens_;
};

}  // namespace xms::gateway
