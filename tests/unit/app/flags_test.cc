#include "app/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "app/flag_table.h"

namespace xms::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

base::Result<ParsedFlags> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "xllm_master_serving");
  return ParseFlags(static_cast<int>(arguments.size()), arguments.data());
}

Settings Parsed(const std::vector<const char*>& arguments) {
  const base::Result<ParsedFlags> parsed = Parse(arguments);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return parsed.ok() ? parsed->settings : Settings{};
}

std::string ErrorOf(const std::vector<const char*>& arguments) {
  const base::Result<ParsedFlags> parsed = Parse(arguments);
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.error().code, base::ErrorCode::kInvalidArgument);
  EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos)
      << "one line: " << parsed.error().message;
  return parsed.error().message;
}

// Syntax.

TEST(AppFlags, NothingGivenIsTheDefaults) {
  const base::Result<ParsedFlags> parsed = Parse({});
  ASSERT_TRUE(parsed.ok());
  EXPECT_FALSE(parsed->help);
  EXPECT_THAT(parsed->warnings, IsEmpty());
  EXPECT_EQ(parsed->settings.http_server_port, 8888);
  EXPECT_EQ(parsed->settings.rpc_server_port, 8889);
  EXPECT_EQ(parsed->settings.load_balance_policy, "RR");
  EXPECT_EQ(parsed->settings.car_prefill_lambda, 0.5);
  EXPECT_EQ(parsed->settings.car_host_hit_weight, 0.5);
  EXPECT_EQ(parsed->settings.etcd_addr, "") << "the embedded registry";
  EXPECT_EQ(parsed->settings.http_server_max_concurrency, 0);
  EXPECT_EQ(parsed->settings.http_max_body_bytes, 16777216);
  EXPECT_EQ(parsed->settings.kv_warmup_ms, 2000);
}

TEST(AppFlags, AValueFollowsTheEqualsSignOrIsTheNextArgument) {
  EXPECT_EQ(Parsed({"--http_server_port=9000"}).http_server_port, 9000);
  EXPECT_EQ(Parsed({"--http_server_port", "9000"}).http_server_port, 9000);
  EXPECT_EQ(Parsed({"-http_server_port=9000"}).http_server_port, 9000);
  EXPECT_EQ(Parsed({"-http_server_port", "9000"}).http_server_port, 9000);
  EXPECT_EQ(Parsed({"--connect_timeout_ms", "-1", "--http_server_port", "9000"}).http_server_port,
            9000);
  EXPECT_EQ(Parsed({"--kv_events_config_file=a=b"}).kv_events_config_file, "a=b");
  EXPECT_EQ(Parsed({"--kv_events_config_file", "--odd"}).kv_events_config_file, "--odd");
  EXPECT_EQ(Parsed({"--server_host="}).server_host, "");
}

TEST(AppFlags, TheLastOneGivenCounts) {
  EXPECT_EQ(Parsed({"--http_server_port=1", "--http_server_port=2"}).http_server_port, 2);
}

TEST(AppFlags, BooleansHaveAShortAndANegativeForm) {
  EXPECT_TRUE(Parsed({"--enable_request_trace"}).enable_request_trace);
  EXPECT_FALSE(Parsed({"--enable_request_trace", "--noenable_request_trace"}).enable_request_trace);
  for (const char* yes : {"true", "1", "t", "YES", "y"}) {
    EXPECT_TRUE(
        Parsed({(std::string("--enable_request_trace=") + yes).c_str()}).enable_request_trace)
        << yes;
  }
  for (const char* no : {"false", "0", "f", "No", "n"}) {
    EXPECT_FALSE(
        Parsed({"--enable_request_trace", (std::string("--enable_request_trace=") + no).c_str()})
            .enable_request_trace)
        << no;
  }
  EXPECT_EQ(ErrorOf({"--enable_request_trace=maybe"}),
            "--enable_request_trace=maybe: not true or false; allowed: true, false");
  EXPECT_THAT(ErrorOf({"--enable_request_trace", "true"}),
              StartsWith("left-over argument \"true\""));
  EXPECT_THAT(ErrorOf({"--nohttp_server_port"}), StartsWith("--nohttp_server_port: unknown flag"));
  EXPECT_THAT(ErrorOf({"--noenable_request_trace=true"}),
              StartsWith("--noenable_request_trace: unknown flag"));
}

TEST(AppFlags, HelpIsAskedForAndNotAnError) {
  for (const char* help : {"--help", "-help"}) {
    const base::Result<ParsedFlags> parsed = Parse({"--http_server_port=1", help, "rubbish"});
    ASSERT_TRUE(parsed.ok());
    EXPECT_TRUE(parsed->help);
  }
}

// A6
// One line each, naming the flag, the value and what is allowed.
TEST(AppFlags, WrongCommandLinesRowByRow) {
  struct Row {
    std::vector<const char*> arguments;
    std::string message;
  };
  const std::vector<Row> rows = {
      {{"--http_server_port=65536"},
       "--http_server_port=65536: out of range; allowed: an integer from 0 to 65535"},
      {{"--http_server_port=-1"},
       "--http_server_port=-1: out of range; allowed: an integer from 0 to 65535"},
      {{"--http_server_port=0x10"},
       "--http_server_port=0x10: not a decimal integer; allowed: an integer from 0 to 65535"},
      {{"--http_server_port=1e3"},
       "--http_server_port=1e3: not a decimal integer; allowed: an integer from 0 to 65535"},
      {{"--http_server_port=1.0"},
       "--http_server_port=1.0: not a decimal integer; allowed: an integer from 0 to 65535"},
      {{"--http_server_port="},
       "--http_server_port=: not a decimal integer; allowed: an integer from 0 to 65535"},
      {{"--http_server_port= 80"},
       "--http_server_port= 80: not a decimal integer; allowed: an integer from 0 to 65535"},
      {{"--http_server_port=+80"},
       "--http_server_port=+80: not a decimal integer; allowed: an integer from 0 to 65535"},
      {{"--http_server_port=99999999999999999999"},
       "--http_server_port=99999999999999999999: out of range; allowed: an integer from 0 to "
       "65535"},
      {{"--http_server_port"},
       "--http_server_port: needs a value; allowed: an integer from 0 to 65535"},
      {{"--xxh3_128bits_seed=4294967296"},
       "--xxh3_128bits_seed=4294967296: out of range; allowed: an integer from 0 to 4294967295"},
      {{"--http_server_num_threads=0"},
       "--http_server_num_threads=0: out of range; allowed: an integer from 1 to 1024"},
      {{"--http_max_body_bytes=1023"},
       "--http_max_body_bytes=1023: out of range; allowed: an integer from 1024 to 1073741824"},
      {{"--readiness_check_interval_s=0"},
       "--readiness_check_interval_s=0: out of range; allowed: an integer from 1 to 86400"},
      {{"--connect_timeout_ms=0"},
       "--connect_timeout_ms=0: no connection is that quick; allowed: -1, or an integer from 1 to "
       "2147483647"},
      {{"--car_prefill_lambda=1.01"},
       "--car_prefill_lambda=1.01: out of range; allowed: a number from 0 to 1"},
      {{"--car_prefill_lambda=-0.01"},
       "--car_prefill_lambda=-0.01: out of range; allowed: a number from 0 to 1"},
      {{"--car_prefill_lambda=nan"},
       "--car_prefill_lambda=nan: out of range; allowed: a number from 0 to 1"},
      {{"--car_prefill_lambda=inf"},
       "--car_prefill_lambda=inf: out of range; allowed: a number from 0 to 1"},
      {{"--car_host_hit_weight=half"},
       "--car_host_hit_weight=half: not a number; allowed: a number from 0 to 1"},
      {{"--car_host_hit_weight=0,5"},
       "--car_host_hit_weight=0,5: not a number; allowed: a number from 0 to 1"},
      {{"--load_balance_policy=SLO_AWARE"},
       "--load_balance_policy=SLO_AWARE: this policy is not built yet; allowed: RR, CAR"},
      {{"--load_balance_policy=car"},
       "--load_balance_policy=car: unknown policy; allowed: RR, CAR"},
      {{"--load_balance_policy="}, "--load_balance_policy=: unknown policy; allowed: RR, CAR"},
      {{"--etcd_addr=10.0.0.1:2379"},
       "--etcd_addr=10.0.0.1:2379: the etcd registry is not built yet; allowed: empty (embedded "
       "registry): give "
       "--etcd_addr= or leave it out"},
      {{"--tool_call_parser=qwen3"},
       "--tool_call_parser=qwen3: not built yet, and ignoring it would corrupt answers; allowed: "
       "empty"},
      {{"--reasoning_parser=auto"},
       "--reasoning_parser=auto: not built yet, and ignoring it would corrupt answers; allowed: "
       "empty"},
      {{"--default_backend_type=sglang"},
       "--default_backend_type=sglang: unknown backend; allowed: xllm, vllm"},
      {{"--server_host=example.org"},
       "--server_host=example.org: not a numeric address; allowed: empty, or a numeric IPv4 or "
       "IPv6 address"},
      {{"--server_host=[::1]"},
       "--server_host=[::1]: not a numeric address; allowed: empty, or a numeric IPv4 or IPv6 "
       "address"},
      {{"--rpc_server_port=8888"},
       "--rpc_server_port=8888: is the --http_server_port too; allowed: another port from 0 to "
       "65535"},
      {{"--http_server_prt=1"},
       "--http_server_prt: unknown flag; did you mean --http_server_port?"},
      {{"--http-server-port=1"},
       "--http-server-port: unknown flag; did you mean --http_server_port?"},
      {{"--flagfile=x"}, "--flagfile: unknown flag; see --help"},
      {{"--"}, "left-over argument \"--\": allowed: flags only, --name=value; see --help"},
      {{"-"}, "left-over argument \"-\": allowed: flags only, --name=value; see --help"},
      {{""}, "left-over argument \"\": allowed: flags only, --name=value; see --help"},
      {{"serve"}, "left-over argument \"serve\": allowed: flags only, --name=value; see --help"},
      {{"--http_server_port", "1", "2"},
       "left-over argument \"2\": allowed: flags only, --name=value; see --help"},
      {{"--=1"}, "--: unknown flag; see --help"},
      {{"--kv_warmup_ms=1\n2"},
       "--kv_warmup_ms=1\\x0a2: not a decimal integer; allowed: an integer from 0 to 600000"},
  };
  for (const Row& row : rows) EXPECT_EQ(ErrorOf(row.arguments), row.message);
}

TEST(AppFlags, LongValuesAreCut) {
  const std::string argument = "--http_server_port=" + std::string(10'000, '7');
  EXPECT_LT(ErrorOf({argument.c_str()}).size(), 250u);
  const std::string name = "--" + std::string(10'000, 'x');
  EXPECT_LT(ErrorOf({name.c_str()}).size(), 250u);
}

// What is wrong in a secret, or in what may be a misspelt one, is not repeated.
TEST(AppFlags, SecretsAreNotPrinted) {
  const std::string error = ErrorOf({"--internal_api_token=geheim\x01"});
  EXPECT_EQ(error,
            "--internal_api_token: not sendable in a header; allowed: printable ASCII characters "
            "without a space at "
            "either end");
  EXPECT_THAT(ErrorOf({"--internal_api_tokn=geheim"}), Not(HasSubstr("geheim")));
  EXPECT_THAT(ErrorOf({"--internal_api_token= geheim"}), Not(HasSubstr("geheim")));
  EXPECT_EQ(Parsed({"--internal_api_token=ge heim"}).internal_api_token, "ge heim");
}

TEST(AppFlags, TheEndsOfARangeBelongToIt) {
  EXPECT_EQ(Parsed({"--http_server_port=0", "--rpc_server_port=0"}).http_server_port, 0)
      << "any free port";
  EXPECT_EQ(Parsed({"--http_server_port=65535"}).http_server_port, 65535);
  EXPECT_EQ(Parsed({"--car_prefill_lambda=0"}).car_prefill_lambda, 0);
  EXPECT_EQ(Parsed({"--car_prefill_lambda=1.0"}).car_prefill_lambda, 1);
  EXPECT_EQ(Parsed({"--car_prefill_lambda=2.5e-1"}).car_prefill_lambda, 0.25);
  EXPECT_EQ(Parsed({"--xxh3_128bits_seed=4294967295"}).xxh3_128bits_seed, 4294967295u);
  EXPECT_EQ(Parsed({"--http_max_body_bytes=1073741824"}).http_max_body_bytes, 1073741824);
}

TEST(AppFlags, EmptyIsAllowedWhereItMeansOff) {
  const Settings settings =
      Parsed({"--etcd_addr=", "--tool_call_parser=", "--reasoning_parser=",
              "--kv_events_config_file=", "--internal_api_token=", "--advertise_addr="});
  EXPECT_EQ(settings.etcd_addr, "");
}

TEST(AppFlags, ZeroIdleTimeMeansNever) {
  EXPECT_EQ(Parsed({"--http_server_idle_timeout_s=0"}).http_server_idle_timeout_s, -1);
  EXPECT_EQ(Parsed({"--rpc_server_idle_timeout_s=0"}).rpc_server_idle_timeout_s, -1);
  EXPECT_EQ(Parsed({"--http_server_idle_timeout_s=5"}).http_server_idle_timeout_s, 5);
}

// Existing command lines.

// Names, types and defaults as existing deployments know them; what we changed is marked.
TEST(AppFlags, EveryFlagOfTheExistingServiceIsAccepted) {
  struct Known {
    const char* name;
    const char* type;
    const char* upstream_default;
  };
  const std::vector<Known> known = {
      {"server_host", "string", ""},
      {"http_server_port", "int32", "8888"},
      {"http_server_idle_timeout_s", "int32", "-1"},
      {"http_server_num_threads", "int32", "32"},
      {"http_server_max_concurrency", "int32", "0 instead of 128"},
      {"rpc_server_port", "int32", "8889"},
      {"rpc_server_idle_timeout_s", "int32", "-1"},
      {"rpc_server_num_threads", "int32", "32"},
      {"rpc_server_max_concurrency", "int32", "128"},
      {"etcd_addr", "string", " instead of 0.0.0.0:2379"},
      {"etcd_namespace", "string", ""},
      {"load_balance_policy", "string", "RR"},
      {"detect_disconnected_instance_interval", "int32", "15"},
      {"instance_delete_probe_timeout_ms", "int32", "1000"},
      {"instance_delete_probe_attempts", "int32", "2"},
      {"lease_lost_heartbeat_timeout_ms", "int32", "3000"},
      {"readiness_check_interval_s", "int32", "3"},
      {"timeout_ms", "int32", "-1"},
      {"connect_timeout_ms", "int32", "-1"},
      {"tokenizer_path", "string", ""},
      {"tool_call_parser", "string", ""},
      {"reasoning_parser", "string", ""},
      {"target_ttft", "int32", "1000"},
      {"target_tpot", "int32", "50"},
      {"block_size", "int32", "128"},
      {"xxh3_128bits_seed", "uint32", "1024"},
      {"enable_request_trace", "bool", "false"},
      {"default_backend_type", "string", "xllm"},
      {"vllm_http_timeout_ms", "int32", "60000"},
      {"internal_api_token", "string", ""},
      {"num_threads", "int32", "32"},
      {"max_concurrency", "int32", "128"},
      {"port", "int32", "8888"},
      {"listen_addr", "string", ""},
      {"idle_timeout_s", "int32", "-1"},
      {"car_prefill_lambda", "double", "0.5"},
      {"car_host_hit_weight", "double", "0.5"},
      {"kv_events_config_file", "string", ""},
  };
  const std::string help = HelpText();
  for (const Known& flag : known) {
    std::string value = flag.upstream_default;
    value = value.substr(0, value.find(" instead"));
    const std::string quoted = std::string(flag.type) == "string" ? '"' + value + '"' : value;
    EXPECT_THAT(help, HasSubstr("--" + std::string(flag.name) + " (" + flag.type + ", default " +
                                quoted + ")\n"));
    const std::string argument = "--" + std::string(flag.name) + "=" + value;
    EXPECT_EQ(ErrorOf({argument.c_str()}), "");
  }
  // And ours.
  for (const char* name :
       {"advertise_addr", "http_max_body_bytes", "kv_warmup_ms", "drain_timeout_ms"}) {
    EXPECT_THAT(help, HasSubstr(std::string("--") + name + " ("));
  }
}

// A7
TEST(AppFlags, AFlagWithoutEffectWarnsOnce) {
  const base::Result<ParsedFlags> parsed =
      Parse({"--block_size=64", "--num_threads=8", "--block_size=128", "--http_server_port=9000"});
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(
      parsed->warnings,
      ElementsAre("--block_size has no effect: the block size is set in --kv_events_config_file",
                  "--num_threads has no effect: it never had one"));
  EXPECT_EQ(parsed->settings.block_size, 128);
}

TEST(AppFlags, AnAddressThatEnginesDoNotTakeIsWarnedAbout) {
  const char* const alone[] = {"p", "--server_host=::1"};
  const auto warned = ParseFlags(2, alone);
  ASSERT_TRUE(warned.ok());
  ASSERT_EQ(warned->warnings.size(), 1u);
  EXPECT_NE(warned->warnings[0].find("--advertise_addr"), std::string::npos);
  const char* const both[] = {"p", "--server_host=::1", "--advertise_addr=10.0.0.7"};
  EXPECT_TRUE(ParseFlags(3, both)->warnings.empty());
}

// The address that engines are given.

TEST(AppFlags, AdvertisedAddressRowByRow) {
  struct Row {
    std::string advertise_addr;
    std::string server_host;
    std::string address;
  };
  const std::vector<Row> rows = {
      {"", "", "127.0.0.1:8889"},
      {"", "0.0.0.0", "127.0.0.1:8889"},
      {"", "10.0.0.7", "10.0.0.7:8889"},
      {"", "::1", ""},
      {"10.1.2.3", "::1", "10.1.2.3:8889"},
      {"", "::ffff:10.0.0.7", "10.0.0.7:8889"},
      {"", "::", "127.0.0.1:8889"},
      {"10.1.2.3", "10.0.0.7", "10.1.2.3:8889"},
      {"10.1.2.3:9999", "", "10.1.2.3:9999"},
      {"front-door.example.org:65535", "", "front-door.example.org:65535"},
  };
  for (const Row& row : rows) {
    const std::string advertise = "--advertise_addr=" + row.advertise_addr;
    const std::string host = "--server_host=" + row.server_host;
    EXPECT_EQ(AdvertisedAddress(Parsed({advertise.c_str(), host.c_str()}), 8889), row.address)
        << advertise << " " << host;
  }
}

TEST(AppFlags, EnginesAcceptOneColonAndNoIpv6) {
  for (const char* bad : {"::1", "[::1]:80", "a:b:1", ":80", "a:", "a:0", "a:65536", "a:+1", "a:1x",
                          "http://a", "a b", "a,b:1"}) {
    const std::string argument = std::string("--advertise_addr=") + bad;
    EXPECT_EQ(ErrorOf({argument.c_str()}), argument +
                                               ": not an address that engines accept; allowed: "
                                               "empty, or host[:port] with a host name or "
                                               "IPv4 address and a port from 1 to 65535");
  }
}

// What is shown.

TEST(AppFlags, JsonShowsEffectiveValuesAndNoSecret) {
  const std::string text =
      SettingsJson(Parsed({"--internal_api_token=geheim", "--load_balance_policy=CAR",
                           "--car_prefill_lambda=0.75", "--server_host=10.0.0.7"}));
  EXPECT_THAT(text, Not(HasSubstr("geheim")));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["internal_api_token"], "(set)");
  EXPECT_EQ(json["load_balance_policy"], "CAR");
  EXPECT_EQ(json["car_prefill_lambda"], 0.75);
  EXPECT_EQ(json["http_server_port"], 8888);
  EXPECT_EQ(json["enable_request_trace"], false);
  EXPECT_EQ(json["advertise_addr"], "10.0.0.7:8889");
  EXPECT_EQ(json["registry"], "embedded");
  EXPECT_EQ(json.size(), FlagTable().size() + 1) << "every flag and the registry";
  EXPECT_EQ(nlohmann::json::parse(SettingsJson(Settings{}))["internal_api_token"], "");
}

// A path need not be UTF-8; the answer must be.
TEST(AppFlags, JsonIsAlwaysValid) {
  const std::string text = SettingsJson(Parsed({"--kv_events_config_file=/a\xff\"b"}));
  EXPECT_TRUE(nlohmann::json::accept(text)) << text;
}

TEST(AppFlags, HelpIsGroupedAndFitsATerminal) {
  const std::string help = HelpText();
  std::size_t at = 0;
  for (const char* group :
       {"\nListening\n", "\nInstances\n", "\nRouting\n", "\nAccepted without effect\n"}) {
    const std::size_t found = help.find(group);
    ASSERT_NE(found, std::string::npos) << group;
    EXPECT_GT(found, at);
    at = found;
  }
  std::size_t begin = 0;
  while (begin < help.size()) {
    const std::size_t end = help.find('\n', begin);
    EXPECT_LE(end - begin, 100u) << help.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(AppFlags, EveryRowOfTheTableIsSound) {
  std::set<std::string_view> names;
  for (const Flag& flag : FlagTable()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name << " is there twice";
    EXPECT_TRUE(flag.meaning.ends_with('.')) << flag.name;
    EXPECT_FALSE(flag.no_effect.ends_with('.')) << flag.name;
    EXPECT_EQ(flag.flaw == nullptr, flag.allowed.empty()) << flag.name << ": a flaw needs a remedy";
    if (flag.flaw != nullptr) {
      EXPECT_EQ(flag.flaw(Settings{}), "") << flag.name << ": its default is refused";
    }
  }
}

// docs/configuration.md is written from the table: XMS_UPDATE_DOCS=1 rewrites what is between the
// marks.
TEST(AppFlags, TheDocumentedTableIsTheOneInUse) {
  const std::string path = XMS_SOURCE_DIR "/docs/configuration.md";
  const std::string begin = "<!-- flags: written by AppFlags.TheDocumentedTableIsTheOneInUse -->\n";
  const std::string end = "<!-- end of flags -->\n";
  std::ifstream in(path);
  ASSERT_TRUE(in) << path;
  std::string document{std::istreambuf_iterator<char>(in), {}};
  const std::size_t from = document.find(begin);
  const std::size_t to = document.find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  const std::string wanted = "\n" + FlagTableMarkdown() + "\n";
  const std::string found = document.substr(from + begin.size(), to - from - begin.size());
  if (found != wanted && std::getenv("XMS_UPDATE_DOCS") != nullptr) {
    document.replace(from + begin.size(), found.size(), wanted);
    std::ofstream(path) << document;
    return;
  }
  EXPECT_EQ(found, wanted) << "run this test with XMS_UPDATE_DOCS=1";
}

}  // namespace
}  // namespace xms::app
