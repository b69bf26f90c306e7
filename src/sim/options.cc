#include "sim/options.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/str_cat.h"

namespace xms::sim {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kMaxEngines = 64;

// What is known while the flags are read, in whatever order.
struct State {
  FleetOptions options;
  EngineSpec common;
  std::uint32_t engines = 0;  // 0: not said
  std::vector<std::string> engine_texts;
  std::optional<std::string> topic;
  std::string kv_events_config;
};

// Why a value is refused, as in "expected …"; empty when it is taken.
using Refusal = std::string;

template <typename T>
Refusal ReadInteger(std::string_view text, T& out, std::uint64_t low, std::uint64_t high) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return base::StrCat("an integer from ", low, " to ", high);
  }
  out = static_cast<T>(value);
  return "";
}

Refusal ReadNumber(std::string_view text, double& out, double low, double high) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      !(value >= low && value <= high)) {
    return base::StrCat("a number from ", low, " to ", high);
  }
  out = value;
  return "";
}

Refusal ReadHost(std::string_view text, std::string& out) {
  in_addr address{};
  out = text;
  if (::inet_pton(AF_INET, out.c_str(), &address) != 1 || address.s_addr == INADDR_ANY) {
    return "one numeric IPv4 address at which the service reaches the engines";
  }
  return "";
}

Refusal ReadTopic(std::string_view text, std::string& out) {
  if (text.size() > 255) return "at most 255 bytes";
  out = text;
  return "";
}

Refusal ReadWord(std::string_view text, std::string_view only, std::string_view why) {
  return text == only ? "" : base::StrCat(only, ": ", why);
}

Refusal ReadSeconds(std::string_view text, std::chrono::milliseconds& out) {
  double seconds = 0;
  Refusal refusal = ReadNumber(text, seconds, 0.01, 60);
  out = std::chrono::milliseconds(std::lround(seconds * 1000));
  return refusal;
}

// Readers of integers, for the fleet's options and for what describes an engine.
template <auto kMember, std::uint64_t kLow, std::uint64_t kHigh>
Refusal OptionInteger(std::string_view text, State& state) {
  return ReadInteger(text, state.options.*kMember, kLow, kHigh);
}
template <auto kMember, std::uint64_t kLow, std::uint64_t kHigh>
Refusal EngineInteger(std::string_view text, EngineSpec& spec) {
  return ReadInteger(text, spec.*kMember, kLow, kHigh);
}
template <Refusal (*kRead)(std::string_view, EngineSpec&)>
Refusal EveryEngine(std::string_view text, State& state) {
  return kRead(text, state.common);
}

// What engines may differ in: flags for all of them, and keys of --engine.
constexpr auto kReadPort = EngineInteger<&EngineSpec::port, 1, 65535>;
constexpr auto kReadDpSize = EngineInteger<&EngineSpec::dp_size, 1, 64>;
constexpr auto kReadBlockSize = EngineInteger<&EngineSpec::block_size, 1, 65536>;
constexpr auto kReadNumBlocks = EngineInteger<&EngineSpec::num_blocks, 2, 16777216>;
constexpr auto kReadHostBlocks = EngineInteger<&EngineSpec::host_blocks, 0, 16777216>;
constexpr auto kReadFirstSequence = EngineInteger<&EngineSpec::first_sequence, 0, 1>;

struct EngineKey {
  std::string_view name;
  Refusal (*read)(std::string_view text, EngineSpec& spec);
};
constexpr EngineKey kEngineKeys[] = {
    {"port", kReadPort},
    {"dp_size", kReadDpSize},
    {"block_size", kReadBlockSize},
    {"num_blocks", kReadNumBlocks},
    {"host_blocks", kReadHostBlocks},
    {"first_sequence", kReadFirstSequence},
};

struct Flag {
  std::string_view name;
  std::string_view value;  // its default, or what it stands for
  std::string_view help;
  Refusal (*read)(std::string_view text, State& state);
};

struct Group {
  std::string_view title;
  std::span<const Flag> flags;
};

constexpr Flag kFleetFlags[] = {
    {"engines", "1", "how many engines; by default as many as there are --engine",
     [](std::string_view text, State& s) { return ReadInteger(text, s.engines, 1, kMaxEngines); }},
    {"engine", "KEY=VALUE,…",
     "repeatable, for the first, second, … engine: port, dp_size, block_size, num_blocks, "
     "host_blocks, first_sequence in place of the flags of these names",
     [](std::string_view text, State& s) {
       s.engine_texts.emplace_back(text);
       return Refusal();
     }},
    {"event_port_offset", "0",
     "event port of rank r = HTTP port + this + r; 0: chosen, and printed",
     OptionInteger<&FleetOptions::event_port_offset, 0, 65535>},
    {"replay_port_offset", "0", "likewise for the snapshot port",
     OptionInteger<&FleetOptions::replay_port_offset, 0, 65535>},
    {"time_scale", "1", "simulated seconds a second",
     [](std::string_view text, State& s) {
       return ReadNumber(text, s.options.time_scale, 0.001, 10000);
     }},
    {"seed", "0", "of hashes and jitter; 0: another one each time",
     OptionInteger<&FleetOptions::seed, 0, std::numeric_limits<std::uint64_t>::max()>},
};

constexpr Flag kServiceFlags[] = {
    {"service_rpc", "", "host:port of a service's RPC port to register with; empty: none",
     [](std::string_view text, State& s) -> Refusal {
       s.options.service_rpc.reset();
       if (text.empty()) return "";
       http::Address address;
       if (!http::ParseAddress(text, address)) return "host:port";
       s.options.service_rpc = address;
       return "";
     }},
    {"internal_api_token", "", "the service's token for /v1/internal",
     [](std::string_view text, State& s) {
       s.options.internal_api_token = text;
       return Refusal();
     }},
    {"registration_ttl_ms", "15000", "a registration lives this long; renewed after a third of it",
     [](std::string_view text, State& s) {
       std::int64_t ms = 0;
       Refusal refusal = ReadInteger(text, ms, 1000, 3600000);
       s.options.registration_ttl = std::chrono::milliseconds(ms);
       return refusal;
     }},
    {"heart_beat_interval", "0.5", "seconds between two reports of load, on the simulated clock",
     [](std::string_view text, State& s) {
       return ReadSeconds(text, s.options.heartbeat_interval);
     }},
};

constexpr Flag kEngineFlags[] = {
    {"host", "127.0.0.1", "address to listen on and to register",
     [](std::string_view text, State& s) { return ReadHost(text, s.options.host); }},
    {"port", "0",
     "HTTP port of the first engine, the others behind its ranks; 0: chosen so that all ports of "
     "the fleet are free and outside the ephemeral range",
     OptionInteger<&FleetOptions::port, 0, 65535>},
    {"dp_size", "1", "data-parallel ranks", EveryEngine<kReadDpSize>},
    {"block_size", "128", "tokens a block", EveryEngine<kReadBlockSize>},
    {"num_blocks", "3072", "Device blocks a rank", EveryEngine<kReadNumBlocks>},
    {"host_blocks", "0", "Host blocks a rank; 0: no Host tier", EveryEngine<kReadHostBlocks>},
    {"max_tokens_per_batch", "10240", "tokens that one step computes at most",
     OptionInteger<&FleetOptions::max_tokens_per_batch, 1, 16777216>},
    {"max_seqs_per_batch", "1024", "sequences that run together at most, a rank",
     OptionInteger<&FleetOptions::max_seqs_per_batch, 1, 65536>},
    {"max_concurrent_requests", "200", "more requests at one engine are answered by 429",
     OptionInteger<&FleetOptions::max_concurrent_requests, 1, 1000000>},
    {"model_id", "sim", "name in /v1/models, and of answers to requests that name none",
     [](std::string_view text, State& s) -> Refusal {
       s.options.model_id = text;
       return text.empty() ? "a name" : "";
     }},
    {"stream_interval", "1", "tokens in one streamed event",
     OptionInteger<&FleetOptions::stream_interval, 1, 1000000>},
    {"topic", "xllm-kv", "of the event messages",
     [](std::string_view text, State& s) { return ReadTopic(text, s.topic.emplace()); }},
    {"first_sequence", "1", "sequence of an engine's first event message",
     EveryEngine<kReadFirstSequence>},
    {"kv_events_config", "JSON",
     R"({"publisher":"zmq","endpoint":"tcp://*:18000","replay_endpoint":"tcp://*:38000",)"
     R"("topic":"xllm-kv"}: )"
     "endpoints of the first engine's rank 0, from which with --port the offsets follow",
     [](std::string_view text, State& s) {
       s.kv_events_config = text;
       return Refusal();
     }},
    {"instance_role", "DEFAULT", "only DEFAULT: requests travel by HTTP here",
     [](std::string_view text, State&) {
       return ReadWord(
           text, "DEFAULT",
           "PREFILL, DECODE and MIX need engine RPC, which this simulator does not have");
     }},
    {"enable_prefix_cache", "true", "only true",
     [](std::string_view text, State&) {
       return ReadWord(text, "true", "an engine without a prefix cache publishes nothing");
     }},
    {"enable_service_routing", "true", "accepted, no effect: --service_rpc decides",
     [](std::string_view text, State&) -> Refusal {
       return text == "true" || text == "false" ? "" : "true or false";
     }},
    {"etcd_addr", "", "only empty: registration is by --service_rpc",
     [](std::string_view text, State&) -> Refusal {
       return text.empty() ? "" : "nothing: this simulator registers by --service_rpc only";
     }},
};

constexpr Group kGroups[] = {
    {"The fleet", kFleetFlags}, {"The service", kServiceFlags}, {"Every engine", kEngineFlags}};

const Flag* FindFlag(std::string_view name) {
  for (const Group& group : kGroups) {
    const auto found = std::ranges::find(group.flags, name, &Flag::name);
    if (found != group.flags.end()) return &*found;
  }
  return nullptr;
}

base::Error Refused(std::string_view where, std::string_view expected) {
  return {base::ErrorCode::kInvalidArgument, base::StrCat(where, ": expected ", expected)};
}

base::Status ReadEngine(const std::string& text, EngineSpec& spec) {
  const std::string flag = base::StrCat("--engine=", text);
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const auto equals = pair.find('=');
    const std::string_view key = pair.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1);
    const auto known = std::ranges::find(kEngineKeys, key, &EngineKey::name);
    if (known == std::end(kEngineKeys)) {
      return Refused(flag, base::StrCat("port, dp_size, block_size, num_blocks, host_blocks or "
                                        "first_sequence, not \"",
                                        key, "\""));
    }
    const Refusal refusal = known->read(value, spec);
    if (!refusal.empty()) return Refused(base::StrCat(flag, ": ", key), refusal);
  }
  return base::Ok();
}

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
};
bool ReadEndpoint(const Json& value, Endpoint& out) {
  static constexpr std::string_view kScheme = "tcp://";
  if (!value.is_string()) return false;
  std::string text = value.get<std::string>();
  if (!text.starts_with(kScheme)) return false;
  text.erase(0, kScheme.size());
  http::Address address;
  if (!http::ParseAddress(text, address)) return false;
  in_addr numeric{};
  if (address.host != "*" && ::inet_pton(AF_INET, address.host.c_str(), &numeric) != 1)
    return false;
  out = {address.host, address.port};
  return true;
}

// The engine's own JSON string. `port` is that of the first engine.
base::Status ReadKvEventsConfig(std::uint16_t port, State& state) {
  static constexpr std::string_view kFlag = "--kv_events_config";
  const Json config = Json::parse(state.kv_events_config, nullptr, false);
  if (!config.is_object()) return Refused(kFlag, "a JSON object");
  const auto where = [](std::string_view member) { return base::StrCat(kFlag, ": ", member); };
  Endpoint events;
  Endpoint snapshots;
  for (const auto& [name, value] : config.items()) {
    if (name == "publisher") {
      if (value != "zmq") return Refused(where(name), "\"zmq\"");
    } else if (name == "endpoint" || name == "replay_endpoint") {
      if (!ReadEndpoint(value, name == "endpoint" ? events : snapshots)) {
        return Refused(where(name), "tcp://ADDRESS:PORT with * or a numeric IPv4 address");
      }
    } else if (name == "topic") {
      if (!value.is_string() || value.get<std::string>().size() > 255) {
        return Refused(where(name), "a string of at most 255 bytes");
      }
      if (state.topic && *state.topic != value.get<std::string>()) {
        return Refused(where(name), "the same as --topic");
      }
      state.topic = value.get<std::string>();
    } else {
      return Refused(where(name), "publisher, endpoint, replay_endpoint or topic");
    }
  }
  if (events.host != snapshots.host) {
    return Refused(kFlag, "endpoint and replay_endpoint, both on the same address");
  }
  if (events.port == 0) return base::Ok();
  if (port == 0) return Refused(kFlag, "--port beside endpoints, since offsets count from it");
  state.options.event_host = events.host;
  const auto offset = [&](std::string_view member, std::uint16_t endpoint_port,
                          std::uint32_t& out) -> base::Status {
    if (endpoint_port <= port) return Refused(where(member), base::StrCat("a port above ", port));
    const std::uint32_t value = endpoint_port - port;
    if (out != 0 && out != value) {
      return Refused(where(member), "agreement with the port offset that was given too");
    }
    out = value;
    return base::Ok();
  };
  if (auto read = offset("endpoint", events.port, state.options.event_port_offset); !read.ok()) {
    return read;
  }
  return offset("replay_endpoint", snapshots.port, state.options.replay_port_offset);
}

base::Status Finish(State& state) {
  FleetOptions& options = state.options;
  const std::size_t count =
      state.engines > 0 ? state.engines : std::max<std::size_t>(state.engine_texts.size(), 1);
  if (state.engine_texts.size() > count) {
    return Refused(
        base::StrCat("--engines=", count),
        base::StrCat("at least as many as there are --engine, ", state.engine_texts.size()));
  }
  if (count > kMaxEngines) return Refused("--engine", base::StrCat("at most ", kMaxEngines));
  options.engines.assign(count, state.common);
  for (std::size_t i = 0; i < state.engine_texts.size(); ++i) {
    if (auto read = ReadEngine(state.engine_texts[i], options.engines[i]); !read.ok()) return read;
  }
  const auto with_port = std::ranges::count_if(
      options.engines, [](const EngineSpec& engine) { return engine.port != 0; });
  if (with_port != 0 && static_cast<std::size_t>(with_port) != count) {
    return Refused("--engine", "a port for every engine or for none");
  }
  if (with_port != 0 && options.port != 0) {
    return Refused(base::StrCat("--port=", options.port), "no --port beside engines' own ports");
  }
  if (options.max_seqs_per_batch > options.max_tokens_per_batch) {
    return Refused(base::StrCat("--max_seqs_per_batch=", options.max_seqs_per_batch),
                   base::StrCat("at most --max_tokens_per_batch, ", options.max_tokens_per_batch,
                                ", since each running sequence takes a token a step"));
  }
  if (!state.kv_events_config.empty()) {
    const std::uint16_t port = with_port != 0 ? options.engines[0].port : options.port;
    if (auto read = ReadKvEventsConfig(port, state); !read.ok()) return read;
  }
  if (options.event_port_offset != 0 && options.event_port_offset == options.replay_port_offset) {
    return Refused(base::StrCat("--replay_port_offset=", options.replay_port_offset),
                   "another offset than --event_port_offset");
  }
  if (state.topic) options.topic = *state.topic;
  if (options.event_host.empty()) options.event_host = options.host;
  return base::Ok();
}

}  // namespace

std::chrono::milliseconds FleetOptions::HeartbeatPeriod() const {
  if (time_scale <= 1) return heartbeat_interval;
  const std::chrono::duration<double, std::milli> scaled(
      static_cast<double>(heartbeat_interval.count()) / time_scale);
  return std::max(std::chrono::round<std::chrono::milliseconds>(scaled),
                  std::min(heartbeat_interval, std::chrono::milliseconds(10)));
}

base::Result<std::optional<FleetOptions>> ParseCommandLine(
    std::span<const std::string_view> arguments) {
  State state;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view argument = arguments[i];
    if (argument == "--help" || argument == "-h") return std::optional<FleetOptions>();
    if (!argument.starts_with('-')) {
      return base::Error{base::ErrorCode::kInvalidArgument,
                         base::StrCat(argument, ": left over; flags look like --name=value")};
    }
    argument.remove_prefix(argument.starts_with("--") ? 2 : 1);
    const auto equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    const Flag* flag = FindFlag(name);
    if (flag == nullptr) {
      return base::Error{base::ErrorCode::kInvalidArgument,
                         base::StrCat("--", name, ": not a flag; --help lists them")};
    }
    std::string_view value;
    if (equals != std::string_view::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return Refused(base::StrCat("--", name), "a value");
    }
    if (const Refusal refusal = flag->read(value, state); !refusal.empty()) {
      return Refused(base::StrCat("--", name, "=", value), refusal);
    }
  }
  if (auto finished = Finish(state); !finished.ok()) return std::move(finished).error();
  return std::optional<FleetOptions>(std::move(state.options));
}

std::string HelpText() {
  std::string text =
      "xllm_engine_sim: a fleet of simulated xLLM engines in one process.\n"
      "Prints one line of JSON with the engines' ports once all of them are open, then serves\n"
      "until SIGINT or SIGTERM. Exit status: 0 after a signal, 2 for a wrong flag, 1 when it\n"
      "cannot run.\n";
  for (const Group& group : kGroups) {
    base::StrAppend(text, "\n", group.title, ":\n");
    for (const Flag& flag : group.flags) {
      base::StrAppend(text, "  --", flag.name, "=", flag.value, "\n      ", flag.help, "\n");
    }
  }
  return text;
}

}  // namespace xms::sim
