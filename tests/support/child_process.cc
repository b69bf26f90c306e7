#include "tests/support/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace xms::testing {
namespace {

constexpr int kAnswerLimitMs = 60'000;

[[noreturn]] void Die(const std::string& program, const std::string& what) {
  std::fprintf(stderr, "ChildProcess: %s: %s\n", program.c_str(), what.c_str());
  std::abort();
}

}  // namespace

ChildProcess::ChildProcess(const std::string& program, const std::vector<std::string>& arguments)
    : program_(std::string(XMS_BIN_DIR) + "/" + program) {
  int in[2];
  int out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) Die(program_, "no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::vector<std::string> texts = arguments;
  std::vector<char*> argv{program_.data()};
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  const int error = posix_spawn(&pid_, program_.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (error != 0) Die(program_, std::strerror(error));
  greeting_ = ReadAnswer("the start");
}

ChildProcess::~ChildProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(to_);
  close(from_);
}

std::string ChildProcess::Ask(const std::string& line) {
  const std::string text = line + "\n";
  if (write(to_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    Die(program_, "cannot be told: " + line);
  }
  return ReadAnswer(line);
}

std::string ChildProcess::ReadAnswer(const std::string& to) {
  std::size_t end = 0;
  while ((end = unread_.find('\n')) == std::string::npos) {
    pollfd readable{from_, POLLIN, 0};
    const int ready = poll(&readable, 1, kAnswerLimitMs);
    if (ready < 0 && errno == EINTR) continue;
    char bytes[4096];
    const ssize_t got = ready <= 0 ? -1 : read(from_, bytes, sizeof bytes);
    if (got <= 0) Die(program_, "no answer to: " + to);
    unread_.append(bytes, static_cast<std::size_t>(got));
  }
  const std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  if (line.compare(0, 3, "ok ") != 0) Die(program_, line);
  return line.substr(3);
}

void ChildProcess::Signal(int number) const { kill(pid_, number); }

}  // namespace xms::testing
