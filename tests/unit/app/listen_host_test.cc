#include "app/listen_host.h"

#include <gtest/gtest.h>

namespace xms::app {
namespace {

struct Row {
  const char* host;
  bool beyond_loopback;
  const char* advertised;
};

TEST(AppListenHost, RowByRow) {
  const Row rows[] = {
      {"", true, "127.0.0.1"},
      {"0.0.0.0", true, "127.0.0.1"},
      {"::", true, "127.0.0.1"},
      {"::ffff:0.0.0.0", true, "127.0.0.1"},
      {"127.0.0.1", false, "127.0.0.1"},
      {"127.0.0.2", false, "127.0.0.2"},
      {"127.255.255.254", false, "127.255.255.254"},
      {"::ffff:127.0.0.1", false, "127.0.0.1"},
      {"::1", false, ""},
      {"10.0.0.7", true, "10.0.0.7"},
      {"128.0.0.1", true, "128.0.0.1"},
      {"::ffff:10.0.0.7", true, "10.0.0.7"},
      {"2001:db8::7", true, ""},
      {"fe80::1", true, ""},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(IsBeyondLoopback(row.host), row.beyond_loopback) << row.host;
    EXPECT_EQ(AdvertisableHost(row.host), row.advertised) << row.host;
  }
}

}  // namespace
}  // namespace xms::app
