// A resolver that hangs delays nothing but the connection that needs its answer.
#include "kv_directory/streams/resolver.h"

#include <dlfcn.h>
#include <netdb.h>

#include <string>
#include <string_view>

#include "tests/integration/kv_directory/directory_fixture.h"

namespace {

// Names that end in ".hangs" are answered only once they may be, and then with "no such host".
class HangingNames {
 public:
  void Wait() {
    xms::base::MutexLock lock(mu_);
    ++waiting_;
    while (!released_) changed_.Wait(mu_);
  }
  void Release() {
    xms::base::MutexLock lock(mu_);
    released_ = true;
    changed_.NotifyAll();
  }
  void Hold() {
    xms::base::MutexLock lock(mu_);
    released_ = false;
    waiting_ = 0;
  }
  int waiting() {
    xms::base::MutexLock lock(mu_);
    return waiting_;
  }

 private:
  xms::base::Mutex mu_;
  xms::base::CondVar changed_;
  bool released_ XMS_GUARDED_BY(mu_) = false;
  int waiting_ XMS_GUARDED_BY(mu_) = 0;
};

HangingNames& Names() {
  static HangingNames names;
  return names;
}

}  // namespace

// Found before the C library's.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** result) {
  const bool literal = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (!literal && node != nullptr && std::string_view(node).ends_with(".hangs")) {
    Names().Wait();
    return EAI_NONAME;
  }
  static const auto real =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(node, service, hints, result);
}

namespace xms::kv_directory {
namespace {

using std::chrono::milliseconds;
using testing::DiscoveredEngine;
using testing::MakeEngine;
using testing::WaitFor;

constexpr std::uint32_t kEventOffset = 2000;
constexpr std::uint32_t kReplayOffset = 2500;

class KVDirectoryResolver : public KVDirectory {
 protected:
  KVDirectoryResolver() { Names().Hold(); }
  void TearDown() override {
    Names().Release();
    KVDirectory::TearDown();
  }
  static SourceInstance InstanceOf(const std::string& name) {
    SourceInstance instance;
    instance.record.id.name = name;
    instance.record.dp_size = 1;
    instance.record.identity = {"one", 0};
    return instance;
  }
  static DirectoryConfig Discovery() {
    DirectoryConfig config;
    config.discovery = DiscoveryConfig{.block_size = 4,
                                       .topic = "xllm-kv",
                                       .event_port_offset = kEventOffset,
                                       .replay_port_offset = kReplayOffset,
                                       .refresh_interval = milliseconds(20)};
    return config;
  }
};

TEST_F(KVDirectoryResolver, HangingNameHoldsUpNeitherPlanningNorWithdrawal) {
  const DiscoveredEngine first = MakeEngine(1, kEventOffset, kReplayOffset);
  const DiscoveredEngine second = MakeEngine(1, kEventOffset, kReplayOffset);
  first.ranks[0]->Store(Tier::kDevice, prompt_);
  instances_.Set({InstanceOf("engine.hangs:8000"), InstanceOf(first.name())});
  StartWith(Discovery());
  ASSERT_TRUE(WaitSynchronized(first.name()));
  ASSERT_TRUE(WaitFor("the name is asked for", [&] { return Names().waiting() > 0; }));

  // Both go, another comes, while the resolver still hangs.
  instances_.Set({InstanceOf(second.name())});
  ASSERT_TRUE(WaitSynchronized(second.name()));
  EXPECT_TRUE(WaitFor("the streams that left are gone",
                      [&] { return !StatusOf("engine.hangs:8000") && !StatusOf(first.name()); }));
  EXPECT_EQ(HitsOf(first.name(), prompt_), Expectation());
  directory_->Stop();
  EXPECT_EQ(index_->Streams().size(), 0u) << "nor does a stop wait";
}

TEST_F(KVDirectoryResolver, NamesAreLookedUpSideBySideAndOnceEach) {
  const auto wakeup = Wakeup::Make();
  Resolver resolver;
  const auto lookup = resolver.Find("a.hangs", wakeup);
  EXPECT_FALSE(lookup->done());
  EXPECT_EQ(resolver.Find("a.hangs", wakeup), lookup) << "one thread per name";
  EXPECT_TRUE(resolver.Find("127.0.0.1", wakeup)->done()) << "a literal needs none";
  const auto other = resolver.Find("localhost", wakeup);
  EXPECT_TRUE(WaitFor("another name is answered meanwhile", [&] { return other->done(); }));
  EXPECT_FALSE(other->addresses().empty());
  EXPECT_FALSE(lookup->done());
  Names().Release();
  EXPECT_TRUE(WaitFor("the name is answered", [&] { return lookup->done(); }));
  EXPECT_TRUE(lookup->addresses().empty());
}

TEST_F(KVDirectory, AgeOfTheOldestProofIsShown) {
  testing::KvPublisher publisher;
  publisher.Store(Tier::kDevice, prompt_);
  StartWith(publisher);
  ASSERT_TRUE(WaitSynchronized("a"));
  EXPECT_TRUE(
      WaitFor("the proof ages", [&] { return Metric("xms_kv_stream_oldest_proof_seconds") > 0; }));
  EXPECT_LT(Metric("xms_kv_stream_oldest_proof_seconds"), 60);
  directory_->Stop();
  EXPECT_EQ(Metric("xms_kv_stream_oldest_proof_seconds"), 0);
}

}  // namespace
}  // namespace xms::kv_directory
