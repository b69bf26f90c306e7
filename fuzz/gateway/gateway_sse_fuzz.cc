// An engine's event stream: however it is cut into pieces, the client gets the same bytes and the
// cache figure is the same. The first byte chooses the pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/usage_scanner.h"

namespace {

struct Relayed {
  std::string bytes;
  std::optional<std::uint64_t> cached;
};

Relayed Relay(std::string_view stream, std::size_t piece) {
  xms::gateway::SseStream relay;
  Relayed out;
  while (!stream.empty()) {
    std::string bytes(stream.substr(0, piece));
    stream.remove_prefix(bytes.size());
    relay.Feed(bytes);
    out.bytes += bytes;
  }
  out.bytes += relay.TakeRest();
  out.cached = relay.cached_tokens();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Relayed whole = Relay(stream, stream.size());
  const Relayed pieces = Relay(stream, std::size_t{1} + data[0]);
  if (whole.bytes != stream || pieces.bytes != stream) std::abort();
  if (whole.cached != pieces.cached && size < xms::gateway::SseStream::kMaxHeldLine) std::abort();
  return 0;
}
