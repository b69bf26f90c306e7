// Explorer: every order of faults, as deep as wanted, from states that a stream really reaches.
//
// Place       The unit test, the mutants, the soak. Drives World with one stream.
// Threads     A free function; any thread.
// How         Breadth first. A state is a World's fingerprint; one that has been seen is not followed
//             again. Machines cannot be copied, so a state is reached by replaying its steps.
#pragma once

#include <cstdint>
#include <string>

namespace xms::kv_directory::proof {

struct Exploration {
  int depth = 6;                 // symbols in a row, from each station
  bool wide = false;             // more kinds of batches and of damage than the core alphabet
  std::uint64_t calm_every = 8;  // of so many new states one is calmed (I3)
  std::uint64_t max_transitions = UINT64_MAX;
  bool exact = false;  // sequences far from each other are told apart
  bool progress = false;
};

struct Explored {
  std::uint64_t stations = 0;
  std::uint64_t symbols = 0;
  std::uint64_t states = 0;
  std::uint64_t transitions = 0;
  std::uint64_t calmed = 0;
  bool complete = true;  // to the depth that was wanted
  std::string broken;    // what, and the way there
};

Explored Explore(const Exploration& exploration);
std::string Describe(const Explored& explored);

}  // namespace xms::kv_directory::proof
