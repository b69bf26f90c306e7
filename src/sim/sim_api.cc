#include "sim/sim_api.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/str_cat.h"

namespace xms::sim {
namespace {

using Json = nlohmann::ordered_json;

base::Error Wrong(std::string_view member, std::string_view expected) {
  return {base::ErrorCode::kInvalidArgument, base::StrCat(member, " must be ", expected)};
}

std::optional<std::vector<std::byte>> FromHex(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]);
    const int low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes.push_back(static_cast<std::byte>(16 * high + low));
  }
  return bytes;
}

// Hashes do not fit every JSON reader's integers.
std::string HexHash(model::WireHash hash) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex(16, '0');
  for (std::size_t i = 0; i < 16; ++i) hex[15 - i] = kDigits[hash.value >> (4 * i) & 15];
  return hex;
}

Json HexHashes(const std::vector<model::WireHash>& hashes) {
  Json list = Json::array();
  for (const model::WireHash hash : hashes) list.push_back(HexHash(hash));
  return list;
}

base::Status ReadMember(const std::string& name, const Json& value, std::uint32_t dp_size,
                        Faults& faults) {
  const auto count = [&](std::uint32_t& out, std::uint64_t most) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) return false;
    out = value.get<std::uint32_t>();
    return true;
  };
  if (name == "rank") {
    std::uint32_t rank = 0;
    if (!count(rank, dp_size - 1)) {
      return Wrong(name, base::StrCat("an integer from 0 to ", dp_size - 1));
    }
    faults.rank = rank;
  } else if (name == "drop_next_messages" || name == "cut_snapshots") {
    std::uint32_t& out = name == "cut_snapshots" ? faults.cut_snapshots : faults.drop_next_messages;
    if (!count(out, 1'000'000)) return Wrong(name, "an integer from 0 to 1000000");
  } else if (name == "cut") {
    using Cut = EventPublisher::Cut;
    static constexpr std::array<std::pair<std::string_view, Cut>, 3> kCuts{
        {{"terminator", Cut::kTerminator}, {"payload", Cut::kPayload}, {"all", Cut::kAll}}};
    const auto* const found = std::ranges::find_if(kCuts, [&](const auto& known) {
      return value.is_string() && value.get_ref<const std::string&>() == known.first;
    });
    if (found == kCuts.end()) return Wrong(name, "\"terminator\", \"payload\" or \"all\"");
    faults.cut = found->second;
  } else if (name == "send_bytes") {
    if (value.is_string()) faults.send_bytes = FromHex(value.get_ref<const std::string&>());
    if (!faults.send_bytes) return Wrong(name, "hexadecimal digits, two a byte");
  } else if (name == "restart") {
    if (!value.is_boolean()) return Wrong(name, "true or false");
    faults.restart = value.get<bool>();
  } else {
    return base::Error{base::ErrorCode::kInvalidArgument, base::StrCat(name, " is not known")};
  }
  return base::Ok();
}

}  // namespace

base::Result<Faults> ParseFaults(std::string_view body, std::uint32_t dp_size) {
  const Json object = Json::parse(body, nullptr, false);
  if (!object.is_object()) {
    return base::Error{base::ErrorCode::kInvalidArgument, "the body must be a JSON object"};
  }
  Faults faults;
  for (const auto& [name, value] : object.items()) {
    if (auto read = ReadMember(name, value, dp_size, faults); !read.ok()) {
      return std::move(read).error();
    }
  }
  return faults;
}

std::string EngineStateJson(const EngineState& state) {
  Json ranks = Json::array();
  std::uint64_t waiting = 0;
  std::uint64_t running = 0;
  for (const RankState& rank : state.ranks) {
    waiting += rank.waiting;
    running += rank.running;
    Json item{{"dp_rank", rank.dp_rank},
              {"sequence", rank.sequence ? Json(*rank.sequence) : Json()},
              {"device_blocks", rank.device_blocks},
              {"host_blocks", rank.host_blocks},
              {"blocks_in_use", rank.blocks_in_use},
              {"waiting", rank.waiting},
              {"running", rank.running},
              {"messages_sent", rank.messages_sent},
              {"messages_dropped", rank.messages_dropped},
              {"snapshots", rank.snapshots}};
    if (rank.residents) {
      item["device"] = HexHashes(rank.residents->device);
      item["host"] = HexHashes(rank.residents->host);
    }
    ranks.push_back(std::move(item));
  }
  const EngineTotals& totals = state.totals;
  const Json json{{"name", state.name},
                  {"incarnation_id", state.incarnation_id},
                  {"restarts", state.restarts},
                  {"registered", state.registered},
                  {"heartbeats", state.heartbeats},
                  {"waiting", waiting},
                  {"running", running},
                  {"gpu_cache_usage_perc", state.gpu_cache_usage_perc},
                  {"time_scale", state.time_scale},
                  {"simulated_seconds", state.simulated_seconds},
                  {"block_size", state.block_size},
                  {"num_blocks", state.num_blocks},
                  {"totals",
                   {{"submitted", totals.submitted},
                    {"completed", totals.completed},
                    {"cancelled", totals.cancelled},
                    {"rejected", totals.rejected},
                    {"prompt_tokens", totals.prompt_tokens},
                    {"cached_tokens", totals.cached_tokens},
                    {"generated_tokens", totals.generated_tokens}}},
                  {"ranks", std::move(ranks)}};
  return json.dump();
}

}  // namespace xms::sim
