#include "sim/sim_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace xms::sim {
namespace {

using Json = nlohmann::json;

TEST(SimApi, ReadsEveryFault) {
  const auto faults = ParseFaults(
      R"({"rank":1,"drop_next_messages":3,"cut_snapshots":2,"cut":"payload","send_bytes":"C1fF","restart":true})",
      2);
  ASSERT_TRUE(faults.ok());
  EXPECT_EQ(faults->rank, 1U);
  EXPECT_EQ(faults->drop_next_messages, 3U);
  EXPECT_EQ(faults->cut_snapshots, 2U);
  EXPECT_EQ(faults->cut, EventPublisher::Cut::kPayload);
  EXPECT_EQ(faults->send_bytes, (std::vector{std::byte{0xc1}, std::byte{0xff}}));
  EXPECT_TRUE(faults->restart);
  const auto nothing = ParseFaults("{}", 1);
  ASSERT_TRUE(nothing.ok());
  EXPECT_FALSE(nothing->rank || nothing->send_bytes || nothing->restart);
  EXPECT_TRUE(ParseFaults(R"({"send_bytes":""})", 1)->send_bytes->empty());
}

TEST(SimApi, RefusesFaultsNamingTheMember) {
  const auto refused = [](std::string_view body) {
    const auto faults = ParseFaults(body, 2);
    return faults.ok() ? std::string("taken") : faults.error().message;
  };
  EXPECT_EQ(refused("[]"), "the body must be a JSON object");
  EXPECT_EQ(refused("{"), "the body must be a JSON object");
  EXPECT_EQ(refused(R"({"rank":2})"), "rank must be an integer from 0 to 1");
  EXPECT_EQ(refused(R"({"drop_next_messages":-1})"),
            "drop_next_messages must be an integer from 0 to 1000000");
  EXPECT_EQ(refused(R"({"cut_snapshots":1.0})"),
            "cut_snapshots must be an integer from 0 to 1000000");
  EXPECT_EQ(refused(R"({"cut":"half"})"), R"(cut must be "terminator", "payload" or "all")");
  EXPECT_EQ(refused(R"({"send_bytes":"abc"})"),
            "send_bytes must be hexadecimal digits, two a byte");
  EXPECT_EQ(refused(R"({"send_bytes":"zz"})"), "send_bytes must be hexadecimal digits, two a byte");
  EXPECT_EQ(refused(R"({"send_bytes":7})"), "send_bytes must be hexadecimal digits, two a byte");
  EXPECT_EQ(refused(R"({"restart":1})"), "restart must be true or false");
  EXPECT_EQ(refused(R"({"reboot":true})"), "reboot is not known");
}

TEST(SimApi, StateAddsUpTheRanks) {
  EngineState state;
  state.name = "127.0.0.1:9";
  state.totals.cached_tokens = 77;
  state.ranks.resize(2);
  state.ranks[0].waiting = 1;
  state.ranks[1].waiting = 2;
  state.ranks[1].running = 3;
  state.ranks[1].sequence = 18446744073709551615U;
  state.ranks[1].residents = BlockManager::Residents{{{255}}, {}};
  const Json json = Json::parse(EngineStateJson(state));
  EXPECT_EQ(json["waiting"], 3);
  EXPECT_EQ(json["running"], 3);
  EXPECT_EQ(json["totals"]["cached_tokens"], 77);
  EXPECT_TRUE(json["ranks"][0]["sequence"].is_null());
  EXPECT_FALSE(json["ranks"][0].contains("device"));
  EXPECT_EQ(json["ranks"][1]["sequence"], 18446744073709551615U);
  EXPECT_EQ(json["ranks"][1]["device"], Json({"00000000000000ff"}));
  EXPECT_EQ(json["ranks"][1]["host"], Json::array());
}

}  // namespace
}  // namespace xms::sim
