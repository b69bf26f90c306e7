#include "base/str_cat.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace xms::base {
namespace {

TEST(BaseStrCat, LiteralsPointersAndViewsAreText) {
  const char* pointer = "b";
  EXPECT_EQ(StrCat("a", pointer, std::string("c"), std::string_view("d"), 'e'), "abcde");
}

TEST(BaseStrCat, NumbersArePlainDecimal) {
  EXPECT_EQ(StrCat(-1, ' ', std::uint8_t{200}, ' ', std::numeric_limits<std::uint64_t>::max()),
            "-1 200 18446744073709551615");
  EXPECT_EQ(StrCat(0.5, " ", 1e300), "0.5 1e+300");
  EXPECT_EQ(StrCat(true, false), "truefalse");
}

TEST(BaseStrCat, AppendKeepsWhatIsThere) {
  std::string text = "x";
  StrAppend(text, 1, "y");
  EXPECT_EQ(text, "x1y");
}

}  // namespace
}  // namespace xms::base
