// xllm_master_serving: reads flags and configuration, starts the service, waits for SIGINT or
// SIGTERM. A second one ends the drain.
//
// Exit codes: 0 orderly end, 1 failure at run time, 2 a wrong flag or file (one line on stderr,
// nothing opened).

#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "app/flags.h"
#include "app/service.h"
#include "base/log.h"
#include "base/open_files.h"
#include "base/str_cat.h"
#include "base/thread_name.h"
#include "kv_directory/config.h"

namespace {

constexpr int kRunTimeFailure = 1;
constexpr int kWrongConfiguration = 2;

int Fail(int code, const std::string& line) {
  std::fprintf(stderr, "xllm_master_serving: %s\n", line.c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace xms;

  base::Result<app::ParsedFlags> parsed = app::ParseFlags(argc, argv);
  if (!parsed.ok()) return Fail(kWrongConfiguration, parsed.error().message);
  if (parsed->help) {
    std::fputs(app::HelpText().c_str(), stdout);
    return 0;
  }
  kv_directory::DirectoryConfig directory;
  if (const std::string& path = parsed->settings.kv_events_config_file; !path.empty()) {
    base::Result<kv_directory::DirectoryConfig> loaded = kv_directory::LoadDirectoryConfig(path);
    if (!loaded.ok()) {
      return Fail(kWrongConfiguration,
                  std::move(loaded).error().With("--kv_events_config_file").message);
    }
    directory = std::move(loaded).value();
  }

  // Before any thread exists, so that every thread inherits the mask and only sigwait takes them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  base::LogInfo(base::RaiseOpenFileLimit().Describe());

  app::Service service(std::move(parsed->settings), std::move(directory),
                       std::move(parsed->warnings));
  if (base::Status started = service.Start(); !started.ok()) {
    return Fail(kRunTimeFailure, started.error().message);
  }
  int received = 0;
  sigwait(&signals, &received);
  base::LogInfo(base::StrCat("stopping on signal ", received));
  // Whoever asks twice does not want to wait.
  const std::jthread second([&](const std::stop_token& stopped) {
    base::NameThisThread("xms-signal");
    constexpr timespec kLookAgain{0, 50'000'000};
    while (!stopped.stop_requested()) {
      if (sigtimedwait(&signals, nullptr, &kLookAgain) < 0) continue;
      base::LogWarning("second signal: requests in flight are cut off");
      service.EndDrain();
      return;
    }
  });
  service.Stop();
  return 0;
}
