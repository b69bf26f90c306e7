#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace xms::base {
namespace {

Result<int> Half(int number) {
  if (number % 2 != 0) return Error{ErrorCode::kInvalidArgument, "odd"};
  return number / 2;
}

TEST(BaseResult, HoldsAValueOrAnError) {
  const Result<int> good = Half(8);
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(static_cast<bool>(good));
  EXPECT_EQ(good.value(), 4);
  EXPECT_EQ(*good, 4);

  const Result<int> bad = Half(7);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(bad.error().message, "odd");
}

TEST(BaseResult, MovesItsValueOut) {
  Result<std::unique_ptr<int>> owned = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = std::move(owned).value();
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(*taken, 5);
}

TEST(BaseResult, ErrorsGatherContextOnTheWayUp) {
  Result<int> bad = Half(1);
  const Error error = std::move(bad).error().With("field x").With("stream 7");
  EXPECT_EQ(error.message, "stream 7: field x: odd");
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
}

TEST(BaseResult, StatusHasNoValueButIsOkOrNot) {
  EXPECT_TRUE(Ok().ok());
  const Status failed = Error{ErrorCode::kTimeout, "late"};
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(ErrorCodeName(failed.error().code), "timeout");
}

TEST(BaseResult, AResultOfBoolTellsFalseFromFailure) {
  const Result<bool> no = false;
  EXPECT_TRUE(no.ok());
  EXPECT_FALSE(*no);
}

TEST(BaseResultDeathTest, AskingForWhatIsNotThereAborts) {
  const Result<int> bad = Half(3);
  const Result<int> good = Half(2);
  EXPECT_DEATH(static_cast<void>(bad.value()), "");
  EXPECT_DEATH(static_cast<void>(good.error()), "");
}

}  // namespace
}  // namespace xms::base
