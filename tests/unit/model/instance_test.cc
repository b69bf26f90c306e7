#include "model/instance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace xms::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kName = "10.0.0.5:8000";

std::string ErrorOf(std::string_view name, std::string_view json) {
  const base::Result<InstanceRecord> parsed = ParseInstanceJson(name, json);
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.error().code, base::ErrorCode::kInvalidArgument);
  EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos)
      << "one line: " << parsed.error().message;
  return parsed.error().message;
}

TEST(ModelInstance, ReadsWhatADefaultEngineWritesToEtcd) {
  const auto parsed = ParseInstanceJson(
      kName,
      R"({"addrs":[],"cluster_ids":[],"dp_size":2,"incarnation_id":"h7Qm3xWZc9RkT2vLpN8sYd","kv_split_size":1,)"
      R"("model_weight_segments":null,"name":"10.0.0.5:8000","ports":[],"register_ts_ms":1767225600123,)"
      R"("rpc_address":"","total_phy_pages":0,"tpot_profiling_data":[],"ttft_profiling_data":[],"type":0,)"
      R"("worker_free_phy_pages":[]})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  InstanceRecord expected;
  expected.id.name = kName;
  expected.dp_size = 2;
  expected.identity = {"h7Qm3xWZc9RkT2vLpN8sYd", 1767225600123};
  EXPECT_EQ(*parsed, expected);
  EXPECT_EQ(parsed->data_plane, DataPlane::kRpc);
}

TEST(ModelInstance, ReadsAPrefillEngineWithItsControlAddress) {
  const auto parsed = ParseInstanceJson(
      "10.0.0.6:8010",
      R"({"addrs":["10.0.0.6:15001","10.0.0.6:15002"],"cluster_ids":[111669149722000,111669149722001],"dp_size":2,)"
      R"("incarnation_id":"bK4tVw8ZsH2mQxPj6RcNfy","name":"10.0.0.6:8010","ports":[26000,26001],)"
      R"("register_ts_ms":1767225600456,"rpc_address":"10.0.0.6:7777","type":1})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->type, Role::kPrefill);
  EXPECT_EQ(parsed->rpc_address, "10.0.0.6:7777");
}

TEST(ModelInstance, AVllmSidecarTravelsOverHttp) {
  const auto parsed = ParseInstanceJson(
      kName,
      R"({"name":"10.0.0.5:8000","rpc_address":"10.0.0.5:8000","type":0,"backend_type":"vllm",)"
      R"("incarnation_id":"vllm-0123456789ab","register_ts_ms":1})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->backend_type, "vllm");
  EXPECT_EQ(parsed->data_plane, DataPlane::kHttp);
  EXPECT_EQ(parsed->dp_size, 1) << "absent counts as one rank";
}

TEST(ModelInstance, EverythingMayBeAbsentAndTheGivenNameWins) {
  const auto parsed = ParseInstanceJson("[::1]:8000", R"({"name":"elsewhere"})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  InstanceRecord expected;
  expected.id.name = "[::1]:8000";
  EXPECT_EQ(*parsed, expected);
  EXPECT_FALSE(parsed->identity.known());
}

TEST(ModelInstance, DataPlaneAsGivenOverrulesTheBackend) {
  EXPECT_EQ(ParseInstanceJson(kName, R"({"data_plane":"http"})")->data_plane, DataPlane::kHttp);
  EXPECT_EQ(ParseInstanceJson(kName, R"({"data_plane":"rpc","backend_type":"vllm"})")->data_plane,
            DataPlane::kRpc);
}

TEST(ModelInstance, DpSizeRange) {
  EXPECT_EQ(ParseInstanceJson(kName, R"({"dp_size":0})")->dp_size, 1);
  EXPECT_EQ(ParseInstanceJson(kName, R"({"dp_size":1024})")->dp_size, 1024);
  EXPECT_EQ(ErrorOf(kName, R"({"dp_size":1025})"),
            "dp_size: 1025 is not allowed; allowed: an integer from 0 to 1024");
  EXPECT_EQ(ErrorOf(kName, R"({"dp_size":-1})"),
            "dp_size: -1 is not allowed; allowed: an integer from 0 to 1024");
}

// Each row: a record that must be refused, and the beginning of the sentence that says why.
TEST(ModelInstance, ErrorsNameFieldValueAndWhatIsAllowed) {
  struct Row {
    std::string json;
    std::string message;
  };
  const std::vector<Row> rows = {
      {R"({"type":4})", "type: 4 is not allowed; allowed: an integer from 0 to 3"},
      {R"({"type":-1})", "type: -1 is"},
      {R"({"type":1.0})", "type: 1.0 is"},
      {R"({"type":"1"})", "type: \"1\" is"},
      {R"({"type":true})", "type: true is"},
      {R"({"type":null})", "type: null is"},
      {R"({"dp_size":18446744073709551615})", "dp_size: 18446744073709551615 is"},
      {R"({"dp_size":4294967297})", "dp_size: 4294967297 is"},
      {R"({"dp_size":2e0})", "dp_size: 2.0 is"},
      {R"({"kv_split_size":"x"})",
       "kv_split_size: \"x\" is not allowed; allowed: an integer from 0 to 2147483647"},
      {R"({"kv_split_size":2147483648})", "kv_split_size: 2147483648 is"},
      {R"({"kv_split_size":null})", "kv_split_size: null is"},
      {R"({"register_ts_ms":-5})", "register_ts_ms: -5 is"},
      {R"({"register_ts_ms":"5"})", "register_ts_ms: \"5\" is"},
      {R"({"register_ts_ms":18446744073709551616})", "register_ts_ms: 1.8446744073709552e+19 is"},
      {R"({"incarnation_id":7})",
       "incarnation_id: 7 is not allowed; allowed: a string of at most 512 bytes"},
      {R"({"rpc_address":[]})", "rpc_address: an array is"},
      {R"({"data_plane":{}})", "data_plane: an object is"},
      {R"({"backend_type":null})", "backend_type: null is"},
      {R"({"name":1})", "name: 1 is"},
      {R"({"data_plane":"grpc"})",
       R"(data_plane: "grpc" is not allowed; allowed: "http", "rpc", or absent)"},
      {R"({"data_plane":""})", "data_plane: \"\" is"},
      {R"({"data_plane":1})", "data_plane: 1 is"},
      {R"([])", "instance: an array is not allowed; allowed: a JSON object"},
      {R"(null)", "instance: null is"},
      {R"()", "instance: not JSON at byte 1"},
      {R"({"type":0)", "instance: not JSON at byte 10"},
      {R"({"type":0}x)", "instance: not JSON at byte 11"},
      {"{\"incarnation_id\":\"\xff\"}", "instance: not JSON at byte"},
      {R"({"type":1e999})", "instance: not JSON"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(ErrorOf(kName, row.json), ::testing::StartsWith(row.message)) << row.json;
  }
}

TEST(ModelInstance, FieldsThatOnlyPeersUseMustHaveTheirTypesToo) {
  for (const char* json : {R"({"cluster_ids":"x"})", R"({"cluster_ids":[-1]})", R"({"addrs":[1]})",
                           R"({"ports":[70000]})", R"({"ttft_profiling_data":[["a",2]]})",
                           R"({"tpot_profiling_data":{}})", R"({"type":0,"type":1})"}) {
    EXPECT_FALSE(ParseInstanceJson("a:1", json).ok()) << json;
  }
  // Another arity is skipped, and null or unknown fields of other features are nobody's business.
  EXPECT_TRUE(ParseInstanceJson("a:1", R"({"ttft_profiling_data":[[1]],"total_phy_pages":0,
      "model_weight_segments":null,"cluster_ids":[18446744073709551615]})")
                  .ok());
}

TEST(ModelInstance, AddressesToListenOnAreNoNames) {
  for (const char* name : {"*:80", "0.0.0.0:80", "[::]:80", "-:80"}) {
    EXPECT_FALSE(ParseInstanceJson(name, "{}").ok()) << name;
  }
  EXPECT_FALSE(ParseInstanceJson(std::string(256, 'a') + ":80", "{}").ok());
}

TEST(ModelInstance, LongValuesAreCutInTheMessage) {
  const std::string message =
      ErrorOf(kName, R"({"incarnation_id":")" + std::string(100'000, 'x') + R"("})");
  EXPECT_THAT(message, AllOf(HasSubstr("incarnation_id: \"xxx"), HasSubstr("...")));
  EXPECT_LT(message.size(), 200u);
}

TEST(ModelInstance, NothingHidesBehindAZeroByte) {
  EXPECT_EQ(ErrorOf(kName, std::string("{}\0x", 4)), "instance: not JSON at byte 3");
}

// Depth costs no stack: whoever may register may not bring the service down.
TEST(ModelInstance, DeepNestingIsHarmless) {
  const std::string deep = std::string(200'000, '[');
  EXPECT_THAT(ErrorOf(kName, deep), HasSubstr("not JSON"));
  const std::string value = deep + std::string(200'000, ']');
  EXPECT_TRUE(ParseInstanceJson(kName, R"({"x":)" + value + "}").ok());
  EXPECT_THAT(ErrorOf(kName, R"({"data_plane":)" + value + "}"), HasSubstr("data_plane: an array"));
}

// The name is what gets dialled.
TEST(ModelInstance, NamesMustBeAddresses) {
  for (const std::string_view good :
       {"10.0.0.5:8000", "engine-a:1", "[fe80::1]:65535", "localhost:80"}) {
    EXPECT_EQ(ErrorOf(good, "{}"), "") << good;
  }
  const std::string long_name = std::string(600, 'a') + ":80";
  for (const std::string_view bad :
       {std::string_view(""), std::string_view("engine"), std::string_view(":80"),
        std::string_view("a:"), std::string_view("a:0"), std::string_view("a:65536"),
        std::string_view("a:123456"), std::string_view("a:+80"), std::string_view("a:8 "),
        std::string_view("a b:80"), std::string_view("http://a:80"), std::string_view("a\n:80"),
        std::string_view(long_name)}) {
    EXPECT_THAT(ErrorOf(bad, "{}"), ::testing::StartsWith("name: ")) << bad;
  }
}

TEST(ModelInstance, JsonIsCompactSortedAndReadsBack) {
  InstanceRecord record;
  record.id.name = "127.0.0.1:9000";
  record.rpc_address = "127.0.0.1:7777";
  record.type = Role::kMix;
  record.identity = {"inc \"quoted\"", std::numeric_limits<std::uint64_t>::max()};
  record.dp_size = 4;
  record.data_plane = DataPlane::kHttp;
  EXPECT_EQ(
      InstanceJson(record),
      R"({"backend_type":"xllm","data_plane":"http","dp_size":4,"incarnation_id":"inc \"quoted\"",)"
      R"("name":"127.0.0.1:9000","register_ts_ms":18446744073709551615,"rpc_address":"127.0.0.1:7777",)"
      R"("type":3})");
  const auto parsed = ParseInstanceJson(record.id.name, InstanceJson(record));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed, record);
}

TEST(ModelInstance, NamesOfRolesAndPlanes) {
  EXPECT_EQ(RoleName(Role::kDefault), "DEFAULT");
  EXPECT_EQ(RoleName(Role::kPrefill), "PREFILL");
  EXPECT_EQ(RoleName(Role::kDecode), "DECODE");
  EXPECT_EQ(RoleName(Role::kMix), "MIX");
  EXPECT_EQ(DataPlaneName(DataPlane::kHttp), "http");
  EXPECT_EQ(DataPlaneName(DataPlane::kRpc), "rpc");
}

TEST(ModelLoadSample, ValidityRowByRow) {
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_TRUE((LoadSample{0, 0}.valid()));
  EXPECT_TRUE((LoadSample{3, 1}.valid()));
  EXPECT_TRUE((LoadSample{1e15, 0.25}.valid()));
  EXPECT_FALSE((LoadSample{nan, 0}.valid()));
  EXPECT_FALSE((LoadSample{0, nan}.valid()));
  EXPECT_FALSE((LoadSample{-1, 0}.valid()));
  EXPECT_FALSE((LoadSample{0, -0.01}.valid()));
  EXPECT_FALSE((LoadSample{0, 1.01}.valid()));
  EXPECT_FALSE((LoadSample{inf, 0}.valid())) << "no queue cost can be computed from it";
  EXPECT_FALSE((LoadSample{0, inf}.valid()));
}

}  // namespace
}  // namespace xms::model
