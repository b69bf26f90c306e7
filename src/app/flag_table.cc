#include "app/flag_table.h"

#include <arpa/inet.h>

#include <charconv>
#include <limits>
#include <string>

namespace xms::app {
namespace {

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kDayInMs = 86'400'000;

constexpr std::string_view kListening = "Listening";
constexpr std::string_view kInstances = "Instances";
constexpr std::string_view kRouting = "Routing";
constexpr std::string_view kRefused = "Refused until built";
constexpr std::string_view kAccepted = "Accepted without effect";

std::string_view HostFlaw(const Settings& settings) {
  const std::string& host = settings.server_host;
  unsigned char address[sizeof(in6_addr)];
  if (host.empty() || inet_pton(AF_INET, host.c_str(), address) == 1 ||
      inet_pton(AF_INET6, host.c_str(), address) == 1) {
    return {};
  }
  return "not a numeric address";
}

std::string_view AdvertiseFlaw(const Settings& settings) {
  std::string_view host;
  std::uint16_t port = 0;
  if (settings.advertise_addr.empty() || SplitAdvertised(settings.advertise_addr, host, port))
    return {};
  return "not an address that engines accept";
}

// Every byte has to survive the way through an HTTP header.
std::string_view TokenFlaw(const Settings& settings) {
  const std::string& token = settings.internal_api_token;
  for (const char c : token) {
    if (c < ' ' || c > '~') return "not sendable in a header";
  }
  if (!token.empty() && (token.front() == ' ' || token.back() == ' '))
    return "a space at an end is lost in a header";
  return {};
}

std::string_view EtcdFlaw(const Settings& settings) {
  return settings.etcd_addr.empty() ? "" : "the etcd registry is not built yet";
}

std::string_view PolicyFlaw(const Settings& settings) {
  if (settings.load_balance_policy == "RR" || settings.load_balance_policy == "CAR") return {};
  return settings.load_balance_policy == "SLO_AWARE" ? "this policy is not built yet"
                                                     : "unknown policy";
}

std::string_view ConnectTimeoutFlaw(const Settings& settings) {
  return settings.connect_timeout_ms == 0 ? "no connection is that quick" : "";
}

std::string_view BackendFlaw(const Settings& settings) {
  return settings.default_backend_type == "xllm" || settings.default_backend_type == "vllm"
             ? ""
             : "unknown backend";
}

std::string_view ToolCallParserFlaw(const Settings& settings) {
  return settings.tool_call_parser.empty() ? ""
                                           : "not built yet, and ignoring it would corrupt answers";
}

std::string_view ReasoningParserFlaw(const Settings& settings) {
  return settings.reasoning_parser.empty() ? ""
                                           : "not built yet, and ignoring it would corrupt answers";
}

constexpr Flag kFlags[] = {
    {.group = kListening,
     .name = "server_host",
     .target = &Settings::server_host,
     .meaning = "Address on which both ports listen. Empty: all interfaces.",
     .flaw = HostFlaw,
     .allowed = "empty, or a numeric IPv4 or IPv6 address"},
    {.group = kListening,
     .name = "http_server_port",
     .target = &Settings::http_server_port,
     .meaning = "Port for clients; it opens when an instance can serve. 0: any free port, named in "
                "the log.",
     .highest = 65535},
    {.group = kListening,
     .name = "rpc_server_port",
     .target = &Settings::rpc_server_port,
     .meaning = "Port for engines and operators, open from the start; belongs on a trusted "
                "network. 0: any free port.",
     .highest = 65535},
    {.group = kListening,
     .name = "advertise_addr",
     .target = &Settings::advertise_addr,
     .meaning = "Where engines reach the RPC port. Default: a specific IPv4 --server_host, else "
                "127.0.0.1, none for IPv6; the port in use.",
     .flaw = AdvertiseFlaw,
     .allowed =
         "empty, or host[:port] with a host name or IPv4 address and a port from 1 to 65535"},
    {.group = kListening,
     .name = "http_server_num_threads",
     .target = &Settings::http_server_num_threads,
     .meaning = "Threads for connections of both ports; never more than processors.",
     .lowest = 1,
     .highest = 1024},
    {.group = kListening,
     .name = "http_server_idle_timeout_s",
     .target = &Settings::http_server_idle_timeout_s,
     .meaning = "Idle client connections are closed after so many seconds. -1 or 0: never.",
     .lowest = -1,
     .highest = kMaxInt32},
    {.group = kListening,
     .name = "rpc_server_idle_timeout_s",
     .target = &Settings::rpc_server_idle_timeout_s,
     .meaning = "The same for the RPC port.",
     .lowest = -1,
     .highest = kMaxInt32},
    {.group = kListening,
     .name = "http_server_max_concurrency",
     .target = &Settings::http_server_max_concurrency,
     .meaning = "Requests in flight, each counted to the end of its stream; further ones get 503. "
                "0: unlimited.",
     .highest = kMaxInt32},
    {.group = kListening,
     .name = "http_max_body_bytes",
     .target = &Settings::http_max_body_bytes,
     .meaning = "Longest request body; longer ones get 413.",
     .lowest = 1024,
     .highest = 1'073'741'824},
    {.group = kListening,
     .name = "drain_timeout_ms",
     .target = &Settings::drain_timeout_ms,
     .meaning = "On SIGTERM or SIGINT, how long requests in flight may take to end. A second "
                "signal ends them at once.",
     .highest = 3'600'000},
    {.group = kListening,
     .name = "internal_api_token",
     .target = &Settings::internal_api_token,
     .meaning = "Guards /v1/internal/* on both ports: requests must carry it as X-Internal-Token. "
                "Empty: no guard, but "
                "registry writes from loopback only.",
     .flaw = TokenFlaw,
     .allowed = "printable ASCII characters without a space at either end",
     .secret = true},

    {.group = kInstances,
     .name = "etcd_addr",
     .target = &Settings::etcd_addr,
     .meaning = "etcd endpoints. Empty: the embedded registry on the RPC port.",
     .flaw = EtcdFlaw,
     .allowed = "empty (embedded registry): give --etcd_addr= or leave it out"},
    {.group = kInstances,
     .name = "lease_lost_heartbeat_timeout_ms",
     .target = &Settings::lease_lost_heartbeat_timeout_ms,
     .meaning =
         "An instance that lost its lease becomes SUSPECT after so long without a heartbeat.",
     .lowest = 1,
     .highest = kDayInMs},
    {.group = kInstances,
     .name = "detect_disconnected_instance_interval",
     .target = &Settings::detect_disconnected_instance_interval,
     .meaning = "Seconds in SUSPECT before an instance is removed.",
     .lowest = 1,
     .highest = 86400},
    {.group = kInstances,
     .name = "instance_delete_probe_timeout_ms",
     .target = &Settings::instance_delete_probe_timeout_ms,
     .meaning = "When a lease ends, how long the engine may take to answer GET /health.",
     .lowest = 1,
     .highest = 600'000},
    {.group = kInstances,
     .name = "instance_delete_probe_attempts",
     .target = &Settings::instance_delete_probe_attempts,
     .meaning = "How often it is asked before it counts as dead.",
     .lowest = 1,
     .highest = 100},
    {.group = kInstances,
     .name = "connect_timeout_ms",
     .target = &Settings::connect_timeout_ms,
     .meaning = "How long a connection to an engine may take. -1: 5000.",
     .lowest = -1,
     .highest = kMaxInt32,
     .flaw = ConnectTimeoutFlaw,
     .allowed = "-1, or an integer from 1 to 2147483647"},
    {.group = kInstances,
     .name = "vllm_http_timeout_ms",
     .target = &Settings::vllm_http_timeout_ms,
     .meaning = "How long a request forwarded over HTTP may wait until something of its answer is "
                "passed on (docs/http-api.md: what, when); then 504. -1 or 0: for ever.",
     .lowest = -1,
     .highest = kMaxInt32},

    {.group = kRouting,
     .name = "load_balance_policy",
     .target = &Settings::load_balance_policy,
     .meaning = "How an instance is chosen: RR in turn, CAR by cached prefix and queue.",
     .flaw = PolicyFlaw,
     .allowed = "RR, CAR"},
    {.group = kRouting,
     .name = "car_prefill_lambda",
     .target = &Settings::car_prefill_lambda,
     .meaning = "CAR: weight of the missing prefix against the queue. 0: only queues count; 1: "
                "only prefixes.",
     .highest = 1},
    {.group = kRouting,
     .name = "car_host_hit_weight",
     .target = &Settings::car_host_hit_weight,
     .meaning = "CAR: what a prefix token on Host only is worth compared with one on Device.",
     .highest = 1},
    {.group = kRouting,
     .name = "kv_events_config_file",
     .target = &Settings::kv_events_config_file,
     .meaning = "JSON file that says which KV event streams to follow. Empty: no directory; CAR "
                "then knows no prefixes."},
    {.group = kRouting,
     .name = "kv_warmup_ms",
     .target = &Settings::kv_warmup_ms,
     .meaning = "After a start, how long the client port waits for the streams to synchronize "
                "before it opens anyway.",
     .highest = 600'000},

    {.group = kRefused,
     .name = "tool_call_parser",
     .target = &Settings::tool_call_parser,
     .meaning = "Turns tool calls in the text into fields.",
     .flaw = ToolCallParserFlaw,
     .allowed = "empty"},
    {.group = kRefused,
     .name = "reasoning_parser",
     .target = &Settings::reasoning_parser,
     .meaning = "Splits reasoning from the answer.",
     .flaw = ReasoningParserFlaw,
     .allowed = "empty"},

    {.group = kAccepted,
     .name = "etcd_namespace",
     .target = &Settings::etcd_namespace,
     .meaning = "Prefix of all keys in etcd.",
     .no_effect = "the embedded registry has no keys"},
    {.group = kAccepted,
     .name = "readiness_check_interval_s",
     .target = &Settings::readiness_check_interval_s,
     .meaning = "How often readiness is looked at.",
     .lowest = 1,
     .highest = 86400,
     .no_effect = "the client port follows each change at once"},
    {.group = kAccepted,
     .name = "timeout_ms",
     .target = &Settings::timeout_ms,
     .meaning = "Longest call to an engine's control port. -1: 5000.",
     .lowest = -1,
     .highest = kMaxInt32,
     .no_effect = "nothing links P and D yet"},
    {.group = kAccepted,
     .name = "tokenizer_path",
     .target = &Settings::tokenizer_path,
     .meaning = "Model folder with tokenizer and chat template.",
     .no_effect = "text prompts are not tokenized yet"},
    {.group = kAccepted,
     .name = "default_backend_type",
     .target = &Settings::default_backend_type,
     .meaning = "What kind of engines to expect.",
     .flaw = BackendFlaw,
     .allowed = "xllm, vllm",
     .no_effect = "each instance says its own"},
    {.group = kAccepted,
     .name = "target_ttft",
     .target = &Settings::target_ttft,
     .meaning = "SLO_AWARE: time to the first token, ms.",
     .highest = kMaxInt32,
     .no_effect = "SLO_AWARE is not built yet"},
    {.group = kAccepted,
     .name = "target_tpot",
     .target = &Settings::target_tpot,
     .meaning = "SLO_AWARE: time for each further token, ms.",
     .highest = kMaxInt32,
     .no_effect = "SLO_AWARE is not built yet"},
    {.group = kAccepted,
     .name = "block_size",
     .target = &Settings::block_size,
     .meaning = "Tokens per block of an index that no longer exists.",
     .lowest = 1,
     .highest = kMaxInt32,
     .no_effect = "the block size is set in --kv_events_config_file"},
    {.group = kAccepted,
     .name = "xxh3_128bits_seed",
     .target = &Settings::xxh3_128bits_seed,
     .meaning = "Hash seed of an index that no longer exists.",
     .highest = std::numeric_limits<std::uint32_t>::max(),
     .no_effect = "seeds are set in --kv_events_config_file"},
    {.group = kAccepted,
     .name = "enable_request_trace",
     .target = &Settings::enable_request_trace,
     .meaning = "Writes requests to trace/trace.json.",
     .no_effect = "see /v1/internal/routing/decisions"},
    {.group = kAccepted,
     .name = "rpc_server_num_threads",
     .target = &Settings::rpc_server_num_threads,
     .meaning = "Threads of the RPC port.",
     .highest = kMaxInt32,
     .no_effect = "both ports share --http_server_num_threads"},
    {.group = kAccepted,
     .name = "rpc_server_max_concurrency",
     .target = &Settings::rpc_server_max_concurrency,
     .meaning = "Engine calls in flight.",
     .highest = kMaxInt32,
     .no_effect = "engines' calls are never refused"},
    {.group = kAccepted,
     .name = "num_threads",
     .target = &Settings::num_threads,
     .meaning = "Size of a pool that no longer exists.",
     .highest = kMaxInt32,
     .no_effect = "it never had one"},
    {.group = kAccepted,
     .name = "max_concurrency",
     .target = &Settings::max_concurrency,
     .meaning = "A limit that no longer exists.",
     .highest = kMaxInt32,
     .no_effect = "see --http_server_max_concurrency"},
    {.group = kAccepted,
     .name = "port",
     .target = &Settings::port,
     .meaning = "Port of the former example programs.",
     .highest = 65535,
     .no_effect = "see --http_server_port"},
    {.group = kAccepted,
     .name = "listen_addr",
     .target = &Settings::listen_addr,
     .meaning = "Address of the former example programs.",
     .no_effect = "see --server_host"},
    {.group = kAccepted,
     .name = "idle_timeout_s",
     .target = &Settings::idle_timeout_s,
     .meaning = "Idle time of the former example programs.",
     .lowest = -1,
     .highest = kMaxInt32,
     .no_effect = "see --http_server_idle_timeout_s"},
};

}  // namespace

std::span<const Flag> FlagTable() { return kFlags; }

bool SplitAdvertised(std::string_view text, std::string_view& host, std::uint16_t& port) {
  const std::size_t colon = text.find(':');
  host = text.substr(0, colon);
  port = 0;
  if (host.empty()) return false;
  for (const char c : host) {
    const bool letter_or_digit =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter_or_digit && c != '.' && c != '-' && c != '_') return false;
  }
  if (colon == std::string_view::npos) return true;
  const std::string_view digits = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return error == std::errc() && end == digits.data() + digits.size() && port != 0;
}

}  // namespace xms::app
