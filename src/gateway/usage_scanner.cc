#include "gateway/usage_scanner.h"

#include <algorithm>
#include <utility>

#include "gateway/internal/json_reader.h"

namespace xms::gateway {
namespace {

constexpr std::string_view kLineEnds = "\r\n";
constexpr std::string_view kDataField = "data:";
// Inside a JSON string the quotes would be escaped, so text about usage is not taken for it.
constexpr std::string_view kUsageKey = "\"usage\"";

}  // namespace

std::optional<std::uint64_t> CachedTokens(std::string_view json) {
  if (json.find(kUsageKey) == std::string_view::npos) return std::nullopt;
  static thread_local internal::JsonReader reader;
  internal::JsonDocument document;
  std::uint64_t cached = 0;
  // The rest of the answer is the client's to judge.
  const bool found =
      reader.Open(json, document) == simdjson::SUCCESS &&
      document["usage"]["prompt_tokens_details"]["cached_tokens"].get(cached) == simdjson::SUCCESS;
  reader.Trim();
  if (!found) return std::nullopt;
  return cached;
}

void SseStream::Feed(std::string& bytes) {
  if (!held_.empty()) {
    held_ += bytes;
    bytes = std::exchange(held_, {});
  }
  const std::size_t last_end = bytes.find_last_of(kLineEnds);
  const std::size_t whole = last_end == std::string::npos ? 0 : last_end + 1;
  if (whole > 0) {
    std::string_view lines(bytes.data(), whole);
    if (inside_long_line_) lines.remove_prefix(lines.find_first_of(kLineEnds));
    inside_long_line_ = false;
    Scan(lines);
  }
  if (whole == bytes.size() || inside_long_line_) return;
  if (bytes.size() - whole > kMaxHeldLine) {
    inside_long_line_ = true;
    return;
  }
  held_.assign(bytes, whole);
  bytes.resize(whole);
}

std::string SseStream::TakeRest() {
  // A last line without an end still counts.
  if (!inside_long_line_) Scan(held_);
  return std::exchange(held_, {});
}

std::string_view SseStream::Separator() {
  held_.clear();
  // An empty line ends an event that is under way and means nothing otherwise.
  return inside_long_line_ ? "\n\n" : "\n";
}

void SseStream::Scan(std::string_view lines) {
  std::size_t from = 0;
  while ((from = lines.find(kUsageKey, from)) != std::string_view::npos) {
    const std::size_t key = from;
    from += kUsageKey.size();
    // Many engines say `"usage":null` in each event but the last.
    const std::size_t value = lines.find_first_not_of(" \t:", from);
    if (value == std::string_view::npos || lines[value] != '{') continue;
    const std::size_t before = lines.find_last_of(kLineEnds, key);
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const std::size_t end = std::min(lines.find_first_of(kLineEnds, key), lines.size());
    std::string_view line = lines.substr(begin, end - begin);
    if (line.starts_with(kDataField)) {
      line.remove_prefix(kDataField.size());
      if (const auto cached = CachedTokens(line)) cached_tokens_ = cached;
    }
    from = end;
  }
}

}  // namespace xms::gateway
