// xllm_engine_sim: a fleet of simulated engines. See README.md beside this file.
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/open_files.h"
#include "sim/fleet.h"
#include "sim/options.h"

int main(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  auto parsed = xms::sim::ParseCommandLine(arguments);
  if (!parsed.ok()) {
    std::fprintf(stderr, "xllm_engine_sim: %s\n", parsed.error().message.c_str());
    return 2;
  }
  if (!*parsed) {
    std::fputs(xms::sim::HelpText().c_str(), stdout);
    return 0;
  }

  // Before any thread exists, so that all of them inherit it and sigwait below gets the signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  const xms::base::OpenFileLimit files = xms::base::RaiseOpenFileLimit();

  const xms::base::SystemClock clock;
  xms::sim::Fleet fleet(**std::move(parsed), clock);
  if (const auto started = fleet.Start(); !started.ok()) {
    std::fprintf(stderr, "xllm_engine_sim: %s\n", started.error().message.c_str());
    return started.error().code == xms::base::ErrorCode::kInvalidArgument ? 2 : 1;
  }
  xms::base::LogInfo(files.Describe());
  std::printf("%s\n", fleet.DescriptionJson().c_str());
  std::fflush(stdout);

  int received = 0;
  sigwait(&signals, &received);
  fleet.Stop();
  return 0;
}
