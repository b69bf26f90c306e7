// Readers of the view against everything that changes it; meant for ThreadSanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/testing/manual_clock.h"
#include "instances/instance_manager.h"
#include "instances/registry/embedded_registry.h"
#include "instances/testing/scripted_probe.h"
#include "tests/unit/instances/records.h"

namespace xms::instances {
namespace {

TEST(InstancesManagerStress, ViewsAreWholeAndNeverGoBack) {
  base::SetLogLevel(base::LogLevel::kError);  // thousands of ordinary changes
  base::testing::ManualClock clock;
  testing::ScriptedProbe probe;
  InstanceManager manager(Options{}, clock, probe);
  std::atomic<int> announced{0};
  manager.SetListener([&] { ++announced; });
  EmbeddedRegistry registry(clock, manager);
  std::atomic<bool> stop{false};
  std::atomic<int> views{0};

  std::vector<std::jthread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      std::uint64_t last = 0;
      while (!stop.load()) {
        const auto view = manager.view();
        EXPECT_GE(view->version, last);
        last = view->version;
        std::string_view previous;
        for (const auto& instance : view->instances) {
          EXPECT_LT(previous, instance->record.id.name);
          previous = instance->record.id.name;
          EXPECT_EQ(instance->schedulable, instance->reason.empty());
          // A load belongs to the life that reported it: each writer reports its own incarnation's
          // number.
          if (instance->has_load) {
            EXPECT_EQ(instance->record.identity.incarnation_id,
                      std::to_string(static_cast<int>(instance->load.sample.waiting_requests_num)));
          }
        }
        ++views;
      }
    });
  }
  {
    std::vector<std::jthread> writers;
    for (unsigned w = 0; w < 2; ++w) {
      writers.emplace_back([&, w] {
        std::mt19937 random(w + 1);
        for (int i = 0; i < 3000; ++i) {
          const std::string name = "host:" + std::to_string(random() % 8 + 1);
          const int life = static_cast<int>(random() % 3);
          switch (random() % 8) {
            case 0:
              registry.Remove({name});
              break;
            case 1:
            case 2:
            case 3:
              registry.Put(Record(name, std::to_string(life)), std::chrono::milliseconds(2000));
              break;
            case 4:
              probe.Answer(name, random() % 2 == 0);
              break;
            case 5:
              clock.Advance(std::chrono::milliseconds(300));
              registry.Tick();
              manager.Tick();
              break;
            default:
              (void)manager.OnHeartbeat(
                  {{name}, std::to_string(life), model::LoadSample{double(life), 0.5}});
          }
        }
      });
    }
  }
  stop.store(true);
  readers.clear();
  EXPECT_GT(views.load(), 0);
  EXPECT_GT(announced.load(), 0);
}

}  // namespace
}  // namespace xms::instances
