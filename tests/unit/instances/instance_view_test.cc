#include "instances/instance_view.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/instances/records.h"

namespace xms::instances {
namespace {

using model::Role;

struct Member {
  Role type;
  Role current_role;
  bool schedulable = true;
};

InstanceView ViewOf(const std::vector<Member>& members) {
  InstanceView view;
  for (std::size_t i = 0; i < members.size(); ++i) {
    auto instance = std::make_shared<Instance>();
    instance->record = Record("host:" + std::to_string(i + 1), "x", members[i].type);
    instance->current_role = members[i].current_role;
    instance->schedulable = members[i].schedulable;
    view.instances.push_back(instance);
  }
  return view;
}

constexpr Member kDefault{Role::kDefault, Role::kDefault};
constexpr Member kPrefill{Role::kPrefill, Role::kPrefill};
constexpr Member kDecode{Role::kDecode, Role::kDecode};
constexpr Member kMixP{Role::kMix, Role::kPrefill};
constexpr Member kMixD{Role::kMix, Role::kDecode};

constexpr Member Not(Member member) {
  member.schedulable = false;
  return member;
}

TEST(InstancesView, GroupCanServeRowByRow) {
  EXPECT_FALSE(ViewOf({}).GroupCanServe());
  EXPECT_TRUE(ViewOf({kDefault}).GroupCanServe());
  EXPECT_FALSE(ViewOf({Not(kDefault)}).GroupCanServe());
  EXPECT_FALSE(ViewOf({kPrefill}).GroupCanServe());
  EXPECT_FALSE(ViewOf({kDecode}).GroupCanServe());
  EXPECT_TRUE(ViewOf({kPrefill, kDecode}).GroupCanServe());
  EXPECT_FALSE(ViewOf({kPrefill, Not(kDecode)}).GroupCanServe());
  EXPECT_FALSE(ViewOf({Not(kPrefill), kDecode}).GroupCanServe());
  EXPECT_FALSE(ViewOf({kMixP}).GroupCanServe());
  EXPECT_FALSE(ViewOf({kMixD, Not(kMixP)}).GroupCanServe());
  EXPECT_TRUE(ViewOf({kMixD, kMixP}).GroupCanServe());
  EXPECT_FALSE(ViewOf({kPrefill, kMixD}).GroupCanServe()) << "MIX pairs with MIX only";
  EXPECT_FALSE(ViewOf({kMixP, kDecode}).GroupCanServe()) << "MIX pairs with MIX only";
  EXPECT_TRUE(ViewOf({kPrefill, Not(kDefault), kDefault}).GroupCanServe());
}

TEST(InstancesView, FindsByNameAndNothingElse) {
  const InstanceView view = ViewOf({kDefault, kDecode, kPrefill});
  ASSERT_NE(view.Find("host:2"), nullptr);
  EXPECT_EQ(view.Find("host:2")->record.type, Role::kDecode);
  EXPECT_EQ(view.Find("host:1"), view.instances[0].get());
  EXPECT_EQ(view.Find("host:3"), view.instances[2].get());
  EXPECT_EQ(view.Find("host:4"), nullptr);
  EXPECT_EQ(view.Find("host"), nullptr);
  EXPECT_EQ(view.Find(""), nullptr);
  EXPECT_EQ(InstanceView().Find("host:1"), nullptr);
}

TEST(InstancesView, NamesOfStates) {
  EXPECT_EQ(StateName(State::kActive), "ACTIVE");
  EXPECT_EQ(StateName(State::kLeaseLost), "LEASE_LOST");
  EXPECT_EQ(StateName(State::kSuspect), "SUSPECT");
}

}  // namespace
}  // namespace xms::instances
