#include "base/thread_name.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <string>
#include <thread>

namespace xms::base {
namespace {

std::string NameAfter(const std::string& given) {
  std::array<char, 64> name{};
  std::jthread([&] {
    NameThisThread(given);
    pthread_getname_np(pthread_self(), name.data(), name.size());
  }).join();
  return name.data();
}

TEST(BaseThreadName, IsTheOneGivenAndCutWhereTheKernelWouldRefuseIt) {
  EXPECT_EQ(NameAfter("xms-http-0"), "xms-http-0");
  EXPECT_EQ(NameAfter("123456789012345"), "123456789012345");
  EXPECT_EQ(NameAfter("1234567890123456"), "123456789012345");
}

}  // namespace
}  // namespace xms::base
