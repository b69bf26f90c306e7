#include "kv_directory/discovery/stream_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace xms::kv_directory {
namespace {

SourceInstance Instance(const std::string& name, std::int32_t dp_size = 1) {
  SourceInstance instance;
  instance.record.id.name = name;
  instance.record.dp_size = dp_size;
  instance.record.identity.incarnation_id = "life of " + name;
  return instance;
}

StreamPlan Plan(std::vector<SourceInstance> instances, DiscoveryConfig config = {},
                Limits limits = {}) {
  return PlanStreams(config, limits, std::move(instances));
}

std::vector<std::string> Names(const StreamPlan& plan) {
  std::vector<std::string> names;
  for (const StreamSpec& stream : plan.streams) {
    names.push_back(stream.key.instance.name + "/" + std::to_string(stream.key.rank.value));
  }
  return names;
}

using Strings = std::vector<std::string>;

// E2: the specification's own example.
TEST(KVDirectoryPlan, EndpointsAreOffsetsFromTheHttpPortPlusRank) {
  DiscoveryConfig config;
  config.topic = "xllm-kv";
  config.block_size = 64;
  const StreamPlan plan = Plan({Instance("127.0.0.1:8000", 2)}, config);
  ASSERT_EQ(plan.streams.size(), 2u);
  EXPECT_EQ(plan.streams[0].endpoint, "tcp://127.0.0.1:18000");
  EXPECT_EQ(plan.streams[0].replay_endpoint, "tcp://127.0.0.1:38000");
  EXPECT_EQ(plan.streams[1].endpoint, "tcp://127.0.0.1:18001");
  EXPECT_EQ(plan.streams[1].replay_endpoint, "tcp://127.0.0.1:38001");
  EXPECT_EQ(plan.streams[1].key.rank.value, 1);
  EXPECT_EQ(plan.streams[1].topic, "xllm-kv");
  EXPECT_EQ(plan.streams[1].block_size, 64u);
  EXPECT_EQ(plan.streams[1].hash_seed, 1024u);
  EXPECT_EQ(plan.streams[1].identity.incarnation_id, "life of 127.0.0.1:8000");
  EXPECT_TRUE(plan.excluded.empty());
}

// E2
TEST(KVDirectoryPlan, Ipv6LiteralsWorkWithAndWithoutBrackets) {
  for (const char* name : {"[fd00::7]:8000", "fd00::7:8000"}) {
    const StreamPlan plan = Plan({Instance(name)});
    ASSERT_EQ(plan.streams.size(), 1u) << name;
    EXPECT_EQ(plan.streams[0].endpoint, "tcp://[fd00::7]:18000");
    EXPECT_EQ(plan.streams[0].replay_endpoint, "tcp://[fd00::7]:38000");
    EXPECT_EQ(plan.streams[0].key.instance.name, name);
  }
}

// E3, E4
TEST(KVDirectoryPlan, OnlyLivingXllmPrefillSidesAreSubscribed) {
  std::vector<SourceInstance> instances;
  int port = 8000;
  const auto add = [&](model::Role type, model::Role current, std::string backend = "xllm",
                       bool suspect = false) {
    SourceInstance instance = Instance("h:" + std::to_string(port++));
    instance.record.type = type;
    instance.record.backend_type = std::move(backend);
    instance.current_role = current;
    instance.suspect = suspect;
    instances.push_back(instance);
  };
  using model::Role;
  add(Role::kDefault, Role::kDefault);                // 8000: yes
  add(Role::kPrefill, Role::kPrefill);                // 8001: yes
  add(Role::kDecode, Role::kDecode);                  // 8002
  add(Role::kMix, Role::kPrefill);                    // 8003: yes
  add(Role::kMix, Role::kDecode);                     // 8004
  add(Role::kDefault, Role::kDefault, "vllm");        // 8005
  add(Role::kDefault, Role::kDefault, "xllm", true);  // 8006: SUSPECT
  const StreamPlan plan = Plan(instances);
  EXPECT_EQ(Names(plan), (Strings{"h:8000/0", "h:8001/0", "h:8003/0"}));
  EXPECT_TRUE(plan.excluded.empty()) << "who should have no stream is not excluded from having one";
}

// E6
TEST(KVDirectoryPlan, PortOverflowExcludesTheInstanceWithTheSum) {
  const StreamPlan plan =
      Plan({Instance("h:35535", 2), Instance("h:55535", 1), Instance("h:35500", 1)});
  EXPECT_EQ(Names(plan), (Strings{"h:35500/0"}));
  ASSERT_EQ(plan.excluded.size(), 2u);
  EXPECT_EQ(plan.excluded[0].instance_name, "h:35535");
  EXPECT_EQ(plan.excluded[0].reason,
            "port 35535 + replay_port_offset 30000 + rank 1 is 65536, over 65535; use a lower HTTP "
            "port or offset");
  EXPECT_EQ(plan.excluded[1].reason,
            "port 55535 + replay_port_offset 30000 + rank 0 is 85535, over 65535; use a lower HTTP "
            "port or offset");
  EXPECT_EQ(Names(Plan({Instance("h:35535", 1)})), (Strings{"h:35535/0"}))
      << "65535 itself is a port";
}

// E6, C08: nobody concerned is believed, everybody else is.
TEST(KVDirectoryPlan, OverlappingEndpointsExcludeAllConcerned) {
  const StreamPlan plan =
      Plan({Instance("h:8000", 2), Instance("h:8001"), Instance("h:8002"), Instance("g:8001")});
  EXPECT_EQ(Names(plan), (Strings{"g:8001/0", "h:8002/0"}));
  ASSERT_EQ(plan.excluded.size(), 2u);
  EXPECT_EQ(plan.excluded[0].reason,
            "its event ports 18000-18001 overlap h:8001's event port 18001; give engines on one "
            "host ports at least "
            "dp_size apart");
  EXPECT_EQ(plan.excluded[1].reason,
            "its event port 18001 overlaps h:8000's event ports 18000-18001; give engines on one "
            "host ports at least "
            "dp_size apart");
}

TEST(KVDirectoryPlan, EventPortsAreComparedWithOtherInstancesReplayPorts) {
  const StreamPlan plan = Plan({Instance("h:8000"), Instance("h:28000"), Instance("h:9000")});
  EXPECT_EQ(Names(plan), (Strings{"h:9000/0"}));
  EXPECT_EQ(plan.excluded.size(), 2u);
}

TEST(KVDirectoryPlan, AnInstanceCanOverlapItself) {
  DiscoveryConfig config;
  config.event_port_offset = 100;
  config.replay_port_offset = 101;
  EXPECT_EQ(Names(Plan({Instance("h:8000", 1)}, config)), (Strings{"h:8000/0"}));
  const StreamPlan plan = Plan({Instance("h:8000", 2)}, config);
  EXPECT_TRUE(plan.streams.empty());
  ASSERT_EQ(plan.excluded.size(), 1u);
  EXPECT_NE(plan.excluded[0].reason.find("overlap its event ports 8100-8101"), std::string::npos)
      << plan.excluded[0].reason;
}

TEST(KVDirectoryPlan, OneMachineSpelledTwoWaysIsOneHost) {
  EXPECT_EQ(Plan({Instance("Host:8000"), Instance("host:8000")}).excluded.size(), 2u);
  EXPECT_EQ(Plan({Instance("[::1]:8000"), Instance("[0:0:0::1]:8000")}).excluded.size(), 2u);
}

// The sweep over sorted ranges, against comparing every pair.
TEST(KVDirectoryPlan, OverlapsAreTheSameAsComparingAllPairs) {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<>(low, high)(random);
    };
    DiscoveryConfig config;
    config.event_port_offset = 10;
    config.replay_port_offset = static_cast<std::uint32_t>(pick(11, 60));
    std::vector<SourceInstance> instances;
    std::set<std::string> names;
    for (int i = 0; i < 12; ++i) {
      const std::string name =
          std::string(pick(0, 1) == 0 ? "g:" : "h:") + std::to_string(pick(1000, 1060));
      if (names.insert(name).second) instances.push_back(Instance(name, pick(1, 4)));
    }
    std::set<std::string> expected;
    for (const SourceInstance& a : instances) {
      for (const SourceInstance& b : instances) {
        if (a.record.id.name[0] != b.record.id.name[0]) continue;
        for (const std::uint32_t offset_a : {config.event_port_offset, config.replay_port_offset}) {
          for (const std::uint32_t offset_b :
               {config.event_port_offset, config.replay_port_offset}) {
            if (a.record.id == b.record.id && offset_a == offset_b) continue;
            const int first_a = std::stoi(a.record.id.name.substr(2)) + static_cast<int>(offset_a);
            const int first_b = std::stoi(b.record.id.name.substr(2)) + static_cast<int>(offset_b);
            if (first_a < first_b + b.record.dp_size && first_b < first_a + a.record.dp_size) {
              expected.insert(a.record.id.name);
            }
          }
        }
      }
    }
    std::set<std::string> excluded;
    for (const Excluded& one : Plan(instances, config).excluded) excluded.insert(one.instance_name);
    EXPECT_EQ(excluded, expected) << "seed " << seed;
  }
}

// E7: byte order, whole instances, later smaller ones still fit.
TEST(KVDirectoryPlan, CapacityTakesWholeInstancesInByteOrder) {
  Limits limits;
  limits.max_streams = 4;
  const StreamPlan plan = Plan({Instance("c:1000", 1), Instance("b:1000", 3), Instance("a:1000", 2),
                                Instance("Z:1000", 1), Instance("d:1000", 1)},
                               {}, limits);
  EXPECT_EQ(Names(plan), (Strings{"Z:1000/0", "a:1000/0", "a:1000/1", "c:1000/0"}));
  ASSERT_EQ(plan.excluded.size(), 2u);
  EXPECT_EQ(plan.excluded[0].instance_name, "b:1000");
  EXPECT_EQ(plan.excluded[0].reason, "needs 3 streams and 1 of max_streams 4 are left");
  EXPECT_EQ(plan.excluded[1].instance_name, "d:1000");
  EXPECT_EQ(plan.excluded[1].reason, "needs 1 stream and 0 of max_streams 4 are left");
}

TEST(KVDirectoryPlan, NamesThatAreNoAddressAreExcluded) {
  for (const char* name :
       {"engine", "engine:", ":8000", "*:8000", "0.0.0.0:8000", "a:b:8000", "h:0", "h:65536"}) {
    const StreamPlan plan = Plan({Instance(name)});
    EXPECT_TRUE(plan.streams.empty()) << name;
    ASSERT_EQ(plan.excluded.size(), 1u) << name;
    EXPECT_EQ(plan.excluded[0].reason.find(std::string("its name \"") + name + "\" "), 0u)
        << plan.excluded[0].reason;
  }
}

}  // namespace
}  // namespace xms::kv_directory
