#include "gateway/kv_query.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/str_cat.h"
#include "gateway/internal/json_reader.h"
#include "gateway/json_text.h"

namespace xms::gateway {
namespace {

using base::StrAppend;
using base::StrCat;
using internal::JsonError;
using internal::JsonType;

GatewayError InvalidJson(JsonError error) {
  return {ErrorKind::kInvalidJson,
          StrCat("the request body is not valid JSON: ", internal::WhyNotJson(error)), ""};
}

GatewayError BadTokenIds(ErrorKind kind, std::string message) {
  return {kind, std::move(message), "token_ids"};
}

std::optional<GatewayError> ReadTokenIds(internal::JsonValue value,
                                         std::vector<std::uint32_t>& tokens) {
  JsonType type{};
  if (const JsonError error = value.type().get(type)) return InvalidJson(error);
  if (type != JsonType::array) {
    return BadTokenIds(ErrorKind::kInvalidValue,
                       StrCat("`token_ids` is ", internal::TypeName(type),
                              "; allowed: an array of token ids, which may be empty"));
  }
  internal::JsonArray array;
  std::size_t bad_index = 0;
  std::string_view why;
  if (const JsonError error = value.get_array().get(array)) return InvalidJson(error);
  if (const JsonError error = internal::ReadTokenIds(array, tokens, nullptr, bad_index, why)) {
    return InvalidJson(error);
  }
  if (why.empty()) return std::nullopt;
  return BadTokenIds(ErrorKind::kInvalidValue,
                     StrCat("`token_ids[", bad_index, "]` ", why,
                            "; token ids are integers from 0 to 4294967295"));
}

struct Hits {
  bool certain = false;  // the match and the status speak of the same state
  std::uint32_t device = 0;
  std::uint32_t host_only = 0;
};

Hits HitsOf(const kv_index::StreamStatus& stream, const kv_index::MatchResult& match) {
  if (stream.slot >= match.slot_count) return {};
  const kv_index::SlotMatch slot = match.slots[stream.slot];
  if (slot.generation != stream.generation || !slot.synchronized) return {};
  return {true, slot.device_hit_tokens, slot.host_only_hit_tokens};
}

// Which process the stream's word is: its incarnation, else when it registered, else nothing (E5).
std::string IdentityOf(const model::ProcessIdentity& identity) {
  if (!identity.incarnation_id.empty() || identity.register_ts_ms == 0) {
    return identity.incarnation_id;
  }
  return StrCat(identity.register_ts_ms);
}

// Milliseconds, or null when it has never been.
std::string AgeOf(base::SteadyTime at, base::SteadyTime now) {
  if (at == base::SteadyTime{}) return "null";
  return StrCat(std::max<std::int64_t>(base::MillisBetween(at, now), 0));
}

// All 64 bits, which a JSON number would not keep.
std::string Hex(std::uint64_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (auto digit = text.rbegin(); value != 0; value >>= 4) *digit++ = kDigits[value & 15];
  return text;
}

// How others can check what this stream believes, and how fresh it is.
void AppendProof(std::string& out, const kv_index::StreamStatus& stream, base::SteadyTime now) {
  out += R"(,"identity":)";
  AppendQuoted(out, IdentityOf(stream.info->identity));
  StrAppend(out, R"(,"generation":)", stream.generation,                                      //
            R"(,"proof_age_ms":)", AgeOf(std::max(stream.snapshot_at, stream.live_at), now),  //
            R"(,"snapshot_age_ms":)", AgeOf(stream.snapshot_at, now),                         //
            R"(,"digest":")", stream.synchronized ? Hex(stream.digest) : std::string(), R"(")");
}

void AppendMatch(std::string& out, const kv_index::StreamStatus& stream, const Hits& hits,
                 base::SteadyTime now) {
  const bool synchronized = stream.synchronized;
  out += R"({"instance_name":)";
  AppendQuoted(out, stream.info->key.instance.name);
  StrAppend(out, R"(,"dp_rank":)", stream.info->key.rank.value,                              //
            R"(,"synchronized":)", BoolText(synchronized),                                   //
            R"(,"sequence":)", stream.sequence.value,                                        //
            R"(,"sequence_valid":)", BoolText(stream.sequence_valid),                        //
            R"(,"device_hit_tokens":)", hits.device,                                         //
            R"(,"host_only_hit_tokens":)", hits.host_only,                                   //
            R"(,"reusable_prefix_tokens":)", std::uint64_t{hits.device} + hits.host_only,    //
            R"(,"device_blocks":)", synchronized ? stream.device_blocks : std::uint64_t{0},  //
            R"(,"host_blocks":)", synchronized ? stream.host_blocks : std::uint64_t{0},      //
            R"(,"error":)");
  AppendQuoted(out, stream.error);
  AppendProof(out, stream, now);
  out.push_back('}');
}

void AppendMatches(std::string& out, const kv_index::KvIndex& index,
                   std::span<const std::uint32_t> tokens, base::SteadyTime now) {
  // A stream that was recovered between the match and the list belongs to two states; asked again,
  // it is almost always in one. If not, it has zero hits, which is never wrong.
  constexpr int kTries = 3;
  static thread_local kv_index::MatchResult match;
  std::vector<kv_index::StreamStatus> streams;
  std::vector<Hits> hits;
  for (int tries = 0; tries < kTries; ++tries) {
    if (!tokens.empty()) index.Match(tokens, match);
    streams = index.Streams();
    hits.assign(streams.size(), Hits{});
    bool certain = true;
    if (tokens.empty()) break;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (!streams[i].synchronized) continue;
      hits[i] = HitsOf(streams[i], match);
      certain = certain && hits[i].certain;
    }
    if (certain) break;
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (i > 0) out.push_back(',');
    AppendMatch(out, streams[i], hits[i], now);
  }
}

}  // namespace

std::optional<GatewayError> ParseKvQuery(std::string_view body,
                                         std::vector<std::uint32_t>& tokens) {
  static thread_local internal::JsonReader reader;
  reader.Trim();
  internal::JsonDocument document;
  if (const JsonError error = reader.Open(body, document)) return InvalidJson(error);
  JsonType type{};
  if (const JsonError error = document.type().get(type)) return InvalidJson(error);
  if (type != JsonType::object) {
    return GatewayError{ErrorKind::kInvalidJson,
                        StrCat("the request body is ", internal::TypeName(type),
                               R"(; allowed: {"token_ids":[...]})"),
                        ""};
  }
  internal::JsonObject object;
  if (const JsonError error = document.get_object().get(object)) return InvalidJson(error);
  bool found = false;
  for (auto entry : object) {
    std::string_view key;
    internal::JsonValue value;
    if (const JsonError error = internal::ReadMember(entry, key, value)) return InvalidJson(error);
    if (key != "token_ids") {
      if (const JsonError error = internal::CopyValue(value, 1, nullptr)) {
        return InvalidJson(error);
      }
      continue;
    }
    if (found) {
      return BadTokenIds(ErrorKind::kDuplicateField,
                         "`token_ids` is given more than once; give it once");
    }
    found = true;
    if (auto problem = ReadTokenIds(value, tokens)) return problem;
  }
  if (const JsonError error = internal::AtEnd(document)) return InvalidJson(error);
  if (!found) {
    return BadTokenIds(ErrorKind::kMissingField,
                       "`token_ids` is missing; give an array of token ids, which may be empty");
  }
  return std::nullopt;
}

std::string KvQueryAnswer(const kv_index::KvIndex* index, std::span<const std::uint32_t> tokens,
                          const Excluded& excluded, base::SteadyTime now) {
  std::string out = R"({"matches":[)";
  if (index != nullptr) AppendMatches(out, *index, tokens, now);
  out += R"(],"excluded":[)";
  bool first = true;
  for (const auto& [name, reason] : excluded) {
    if (!first) out.push_back(',');
    first = false;
    out += R"({"instance_name":)";
    AppendQuoted(out, name);
    out += R"(,"reason":)";
    AppendQuoted(out, reason);
    out.push_back('}');
  }
  out.push_back(']');
  if (index == nullptr) out += R"(,"directory":"disabled")";
  out.push_back('}');
  return out;
}

}  // namespace xms::gateway
