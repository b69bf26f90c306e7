// What a publisher's log says of snapshots that services do not take.
#include "sim/event_publisher.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace xms::sim {
namespace {

class SimEventPublisher : public ::testing::Test {
 protected:
  // What is logged while a snapshot of so many bytes is answered.
  std::string LogOf(std::size_t bytes) {
    ::testing::internal::CaptureStderr();
    publisher_->Reply({"nobody"}, 7, std::vector<std::byte>(bytes), EventPublisher::Cut::kNone);
    return ::testing::internal::GetCapturedStderr();
  }

  std::unique_ptr<EventPublisher> publisher_ =
      EventPublisher::Open({.topic = "kv"}, [](EventPublisher::SnapshotRequest) {}).value();
};

TEST_F(SimEventPublisher, ASnapshotOverTheUsualLimitIsNamedWithTheSettingToRaise) {
  constexpr std::size_t kLimit = 8388608;
  EXPECT_EQ(LogOf(kLimit - 8), "");
  const std::string line = LogOf(9'000'000 - 8);
  EXPECT_NE(line.find("a snapshot of 9000000 bytes is over the 8388608"), std::string::npos)
      << line;
  EXPECT_NE(line.find("raise max_message_bytes"), std::string::npos) << line;
  EXPECT_NE(line.find("to at least 9000000"), std::string::npos) << line;
  EXPECT_EQ(LogOf(9'500'000), "") << "hardly news";
  EXPECT_NE(LogOf(12'000'000).find("to at least 12000008"), std::string::npos);
}

}  // namespace
}  // namespace xms::sim
