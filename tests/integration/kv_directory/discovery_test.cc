// Discovery over real TCP: streams follow the instances that the source names.
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/kv_directory/directory_fixture.h"
#include "tests/integration/kv_directory/discovered.h"

namespace xms::kv_directory {
namespace {

using std::chrono::milliseconds;
using testing::DiscoveredEngine;
using testing::MakeEngine;
using testing::MakePrompt;
using testing::WaitFor;

// E1
TEST_F(KVDirectory, EveryRankOfADiscoveredEngineGetsItsStream) {
  const DiscoveredEngine engine = MakeEngine(2, kEventOffset, kReplayOffset);
  engine.ranks[0]->Store(Tier::kDevice, prompt_);
  engine.ranks[1]->Store(Tier::kHost, prompt_);
  instances_.Set({InstanceOf(engine, "one")});
  StartWith(DiscoveryOf());
  ASSERT_TRUE(WaitSynchronized(engine.name(), 0));
  ASSERT_TRUE(WaitSynchronized(engine.name(), 1));
  EXPECT_EQ(HitsOf(engine.name(), prompt_, 0), Expectation({32, 0}));
  EXPECT_EQ(HitsOf(engine.name(), prompt_, 1), Expectation({0, 32}));
  EXPECT_EQ(StatusOf(engine.name())->info->identity.incarnation_id, "one");
  EXPECT_TRUE(WaitFor("the directory is settled", [&] { return directory_->Settled(); }));
}

// E4
TEST_F(KVDirectory, SuspectOrMissingInstancesLoseTheirStreams) {
  const DiscoveredEngine first = MakeEngine(1, kEventOffset, kReplayOffset);
  const DiscoveredEngine second = MakeEngine(1, kEventOffset, kReplayOffset);
  instances_.Set({InstanceOf(first, "one"), InstanceOf(second, "two")});
  StartWith(DiscoveryOf());
  ASSERT_TRUE(WaitSynchronized(first.name()));
  ASSERT_TRUE(WaitSynchronized(second.name()));
  SourceInstance suspect = InstanceOf(first, "one");
  suspect.suspect = true;
  instances_.Set({suspect, InstanceOf(second, "two")});
  ASSERT_TRUE(WaitFor("the suspect's entry goes", [&] { return !StatusOf(first.name()); }));
  EXPECT_TRUE(StatusOf(second.name())->synchronized);
  instances_.Set({suspect});
  ASSERT_TRUE(WaitFor("the other's entry goes", [&] { return index_->Streams().empty(); }));
  EXPECT_TRUE(directory_->Settled()) << "nothing is planned";
}

// E5
TEST_F(KVDirectory, RegistrationRefreshOfTheSameProcessKeepsTheIndex) {
  const DiscoveredEngine engine = MakeEngine(1, kEventOffset, kReplayOffset);
  engine.ranks[0]->Store(Tier::kDevice, prompt_);
  instances_.Set({InstanceOf(engine, "one", 1000)});
  StartWith(DiscoveryOf());
  ASSERT_TRUE(WaitSynchronized(engine.name()));
  const std::uint64_t generation = StatusOf(engine.name())->generation;
  instances_.Set({InstanceOf(engine, "one", 2000)});
  // Another instance, so that a later plan is seen to have been carried out.
  const DiscoveredEngine later = MakeEngine(1, kEventOffset, kReplayOffset);
  instances_.Set({InstanceOf(engine, "one", 3000), InstanceOf(later, "later")});
  ASSERT_TRUE(WaitSynchronized(later.name()));
  EXPECT_EQ(StatusOf(engine.name())->generation, generation);
  EXPECT_EQ(engine.ranks[0]->subscriptions(), 1u);
}

// E5, C01 (c): the number continues by chance, the connection stays, only the identity tells.
TEST_F(KVDirectory, ChangedIdentityInheritsNothing) {
  for (const bool by_incarnation : {true, false}) {
    const DiscoveredEngine engine = MakeEngine(1, kEventOffset, kReplayOffset);
    const auto life = [&](std::uint64_t number) {
      return by_incarnation ? InstanceOf(engine, "life" + std::to_string(number))
                            : InstanceOf(engine, "", number);
    };
    engine.ranks[0]->Store(Tier::kDevice, prompt_);
    instances_.Set({life(1)});
    StartWith(DiscoveryOf());
    ASSERT_TRUE(WaitSynchronized(engine.name()));
    const std::uint64_t generation = StatusOf(engine.name())->generation;
    engine.ranks[0]->HoldSnapshots();
    engine.ranks[0]->ForgetSilently();
    instances_.Set({life(2)});
    directory_->RefreshSoon();
    ASSERT_TRUE(WaitFor("a new life begins", [&] {
      const auto status = StatusOf(engine.name());
      return status &&
             kv_index::KvIndex::LifeOf(status->generation) != kv_index::KvIndex::LifeOf(generation);
    }));
    EXPECT_FALSE(StatusOf(engine.name())->synchronized);
    EXPECT_EQ(HitsOf(engine.name(), prompt_), Expectation());
    EXPECT_FALSE(StatusOf(engine.name())->sequence_valid);
    engine.ranks[0]->ReleaseSnapshots();
    ASSERT_TRUE(WaitSynchronized(engine.name()));
    EXPECT_EQ(HitsOf(engine.name(), prompt_), Expectation());
    directory_.reset();
  }
}

// E5, C08
TEST_F(KVDirectory, ChangedNumberOfRanksIsFollowed) {
  DiscoveredEngine engine = MakeEngine(2, kEventOffset, kReplayOffset);
  SourceInstance instance = InstanceOf(engine, "one");
  instance.record.dp_size = 4;  // announced, but only two run
  instances_.Set({instance});
  StartWith(DiscoveryOf());
  ASSERT_TRUE(WaitSynchronized(engine.name(), 1));
  ASSERT_TRUE(WaitFor("a rank that does not run is shown", [&] {
    return ErrorOf(engine.name(), 3).find("no publisher answered") != std::string::npos;
  }));
  EXPECT_FALSE(directory_->Settled());
  instance.record.dp_size = 2;
  instances_.Set({instance});
  ASSERT_TRUE(WaitFor("ranks 2 and 3 go", [&] { return index_->Streams().size() == 2; }));
  EXPECT_TRUE(StatusOf(engine.name(), 1)->synchronized);
}

// E6, E7
TEST_F(KVDirectory, ExcludedInstancesAreNamedWithTheirReason) {
  const DiscoveredEngine engine = MakeEngine(1, kEventOffset, kReplayOffset);
  SourceInstance overflow = InstanceOf(engine, "x");
  overflow.record.id.name = "127.0.0.1:65000";
  SourceInstance large = InstanceOf(engine, "y");
  large.record.id.name = "zzz:2000";
  large.record.dp_size = 2;
  instances_.Set({InstanceOf(engine, "one"), overflow, large});
  DirectoryConfig config = DiscoveryOf();
  config.limits.max_streams = 2;
  StartWith(config);
  ASSERT_TRUE(WaitSynchronized(engine.name()));
  const std::vector<Excluded> excluded = directory_->CurrentlyExcluded();
  ASSERT_EQ(excluded.size(), 2u);
  EXPECT_EQ(excluded[0].instance_name, "127.0.0.1:65000");
  EXPECT_THAT(excluded[0].reason, ::testing::HasSubstr("over 65535"));
  EXPECT_EQ(excluded[1].reason, "needs 2 streams and 1 of max_streams 2 are left");
  EXPECT_EQ(Metric("xms_kv_excluded_instances"), 2);
  EXPECT_EQ(index_->Streams().size(), 1u);
}

// E1
TEST_F(KVDirectory, RefreshSoonDoesNotWaitForTheInterval) {
  const DiscoveredEngine engine = MakeEngine(1, kEventOffset, kReplayOffset);
  StartWith(DiscoveryOf(std::chrono::seconds(60)));
  ASSERT_TRUE(WaitFor("the first plan", [&] { return directory_->Settled(); }));
  instances_.Set({InstanceOf(engine, "one")});
  directory_->RefreshSoon();
  ASSERT_TRUE(WaitSynchronized(engine.name()));
}

TEST_F(KVDirectory, StreamsTakeTheirSeriesWithThem) {
  const DiscoveredEngine engine = MakeEngine(1, kEventOffset, kReplayOffset);
  const auto named = [&](int number) {
    SourceInstance instance = InstanceOf(engine, "one");
    instance.record.id.name =
        "127.0.1." + std::to_string(number) + ":" + std::to_string(engine.http_port);
    return instance;
  };
  const auto series = [&](const SourceInstance& instance) {
    const std::string text = metrics_.Exposition();
    return text.find("instance=\"" + instance.record.id.name + "\"") != std::string::npos;
  };
  StartWith(DiscoveryOf());
  const auto count_named = [&] {
    const std::string text = metrics_.Exposition();
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("instance=", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  for (int number = 1; number <= 20; ++number) {
    instances_.Set({named(number)});
    directory_->RefreshSoon();
    ASSERT_TRUE(WaitFor("the stream is shown", [&] { return series(named(number)); }));
    EXPECT_LE(count_named(), 40u) << "one stream's, however many there were before";
    if (number > 1) {
      EXPECT_FALSE(series(named(number - 1)));
    }
  }
  instances_.Set({});
  directory_->RefreshSoon();
  ASSERT_TRUE(WaitFor("its series go", [&] { return count_named() == 0; }));
}

// All slots taken by streams that have to go first.
TEST_F(KVDirectory, FullHouseIsReplacedWithoutLosingAnybody) {
  const DiscoveredEngine engine = MakeEngine(1, kEventOffset, kReplayOffset);
  const auto fleet = [&](int life) {
    std::vector<SourceInstance> instances;
    for (int i = 0; i < 128; ++i) {
      SourceInstance instance = InstanceOf(engine, "life" + std::to_string(life));
      // All names reach the one engine; only one of them may be planned per address.
      instance.record.id.name = "127.0." + std::to_string(1 + life) + "." + std::to_string(i + 1) +
                                ":" + std::to_string(engine.http_port);
      instances.push_back(instance);
    }
    return instances;
  };
  instances_.Set(fleet(1));
  StartWith(DiscoveryOf());
  ASSERT_TRUE(WaitFor("128 streams run", [&] { return index_->Streams().size() == 128; }));
  instances_.Set(fleet(2));
  ASSERT_TRUE(WaitFor("128 others run", [&] {
    const auto streams = index_->Streams();
    return streams.size() == 128 && streams[0].info->key.instance.name.find("127.0.3.") == 0;
  }));
}

}  // namespace
}  // namespace xms::kv_directory
