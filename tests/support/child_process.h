// ChildProcess: a helper program that is told what to do line by line, and can be killed, stopped and
// continued like any process.
//
// Place       Tests whose publishers must not share a process with what is tested.
// Threads     Externally synchronised, but for Signal.
// Protocol    The program prints one line when it is ready and one for each line it reads: "ok …", or
//             "error …", which fails the caller. It ends when its input does, so none outlives a test.
// Failure     A program that cannot be started or breaks the protocol aborts with a message.
#pragma once

#include <sys/types.h>

#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace xms::testing {

class ChildProcess {
 public:
  // A program of XMS_BIN_DIR.
  ChildProcess(const std::string& program, const std::vector<std::string>& arguments);
  ~ChildProcess();  // SIGKILL, and waits
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // What the first line said after "ok ".
  const std::string& greeting() const { return greeting_; }
  // What the answer said after "ok ".
  std::string Ask(const std::string& line);
  void Signal(int number) const;

 private:
  std::string ReadAnswer(const std::string& to);

  std::string program_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string unread_;
  std::string greeting_;
};

// The helper's side: prints "ok " + greeting, then for each line what `answer` makes of it, until the
// input ends. Returns 0.
template <typename Answer>
int ServeLines(const std::string& greeting, Answer&& answer) {
  std::cout << "ok " << greeting << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      const std::string said = answer(line);
      std::cout << "ok " << said << std::endl;
    } catch (const std::exception& exception) {
      std::cout << "error " << exception.what() << " in: " << line << std::endl;
    }
  }
  return 0;
}

}  // namespace xms::testing
