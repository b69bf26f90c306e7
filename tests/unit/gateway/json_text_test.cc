#include "gateway/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace xms::gateway {
namespace {

std::string Quoted(std::string_view text) {
  std::string out;
  AppendQuotedUtf8(out, text);
  return out;
}

std::string Number(double value) {
  std::string out;
  AppendNumber(out, value);
  return out;
}

TEST(GatewayJsonText, EscapesEveryByteThatMustBe) {
  for (int byte = 0; byte < 0x80; ++byte) {
    const std::string text = "before" + std::string(1, static_cast<char>(byte)) + "after";
    EXPECT_EQ(nlohmann::json::parse(Quoted(text)).get<std::string>(), text) << "byte " << byte;
  }
}

// The scan looks at eight bytes at a time: a byte to escape must be found at each place in them.
TEST(GatewayJsonText, FindsAnEscapeAtEachPosition) {
  for (const char special : {'"', '\\', '\n', '\x1f', '\0'}) {
    for (std::size_t size = 1; size < 40; ++size) {
      for (std::size_t at = 0; at < size; ++at) {
        std::string text(size,
                         '\xc3');  // lead bytes of two; the high bit must not confuse the scan
        for (std::size_t i = 1; i < size; i += 2) text[i] = '\xa9';
        if (size % 2 != 0) text.back() = 'x';
        text = text.substr(0, at - at % 2) + special + text.substr(at - at % 2);
        ASSERT_EQ(nlohmann::json::parse(Quoted(text)).get<std::string>(), text)
            << "size " << size << " at " << at;
      }
    }
  }
}

TEST(GatewayJsonText, RandomTextsSurvive) {
  std::mt19937_64 random(20);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::size_t left = random() % 64; left > 0; --left) {
      text.push_back(static_cast<char>(random() % 4 == 0 ? random() % 0x20 : random() % 0x80));
    }
    ASSERT_EQ(nlohmann::json::parse(Quoted(text)).get<std::string>(), text)
        << "seed 20, round " << round;
  }
}

TEST(GatewayJsonText, NumbersAreShortAndExact) {
  EXPECT_EQ(Number(3), "3");
  EXPECT_EQ(Number(0.25), "0.25");
  EXPECT_EQ(Number(0.30000000000000004), "0.30000000000000004");
  EXPECT_EQ(Number(5e-324), "5e-324");
}

TEST(GatewayJsonText, WhatJsonCannotSayIsNull) {
  for (const double value : {std::nan(""), std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(Number(value), "null");
  }
}

TEST(GatewayJsonText, IntegersOf64BitsAreExact) {
  std::string out;
  AppendUnsigned(out, std::numeric_limits<std::uint64_t>::max());
  out.push_back(' ');
  AppendSigned(out, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(out, "18446744073709551615 -9223372036854775808");
}

}  // namespace
}  // namespace xms::gateway
