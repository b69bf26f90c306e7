// Flags: the command line of xllm_master_serving, read into Settings.
//
// Place       The only reader of the command line. One table (flag_table.cc) gives the parser,
//             --help and the tables in docs/configuration.md.
// Syntax      As with gflags: --name=value, --name value, one dash or two; --name and --noname for
//             booleans; the last one given counts. Integers are decimal and nothing else.
// Failure     One line that names flag, value and what is allowed: unknown flags, left-over
//             arguments, wrong types, values out of range, and what is not built yet where ignoring
//             it would change answers.
// Threads     Pure functions.
// Proof       AppFlags*.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/settings.h"
#include "base/result.h"

namespace xms::app {

struct ParsedFlags {
  Settings settings;
  bool help = false;                  // --help was given; settings are not complete
  std::vector<std::string> warnings;  // flags without effect, or with one that may surprise
};

// argv[0] is the program's name.
base::Result<ParsedFlags> ParseFlags(int argc, const char* const* argv);

// For --help: all flags in groups, with defaults.
std::string HelpText();

// The same for docs/configuration.md: a table for each group.
std::string FlagTableMarkdown();

// Effective values as one flat JSON object; of secrets only whether they are set. `advertise_addr`
// is the one in use, and `registry` says which registry is.
std::string SettingsJson(const Settings& settings);

// Where engines reach this service, `host:port`, given the RPC port in use. Empty when there is no
// address that they take.
std::string AdvertisedAddress(const Settings& settings, std::uint16_t rpc_port);

}  // namespace xms::app
