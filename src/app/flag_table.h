// FlagTable: name, type, range and meaning of every flag. Part of flags.h; nobody else includes it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "app/settings.h"

namespace xms::app {

using FlagTarget =
    std::variant<std::string Settings::*, std::int32_t Settings::*, std::uint32_t Settings::*,
                 std::int64_t Settings::*, double Settings::*, bool Settings::*>;

struct Flag {
  std::string_view group;
  std::string_view name;
  FlagTarget target;
  std::string_view meaning;  // one or two sentences
  // For numbers: both ends included.
  std::int64_t lowest = 0;
  std::int64_t highest = 0;
  // What is wrong with the value beyond type and range, "" when nothing is; `allowed` then says
  // what would do.
  std::string_view (*flaw)(const Settings&) = nullptr;
  std::string_view allowed;
  // Why giving it changes nothing; "" when it does change something.
  std::string_view no_effect;
  bool secret = false;  // never printed
};

// In groups, in the order of --help.
std::span<const Flag> FlagTable();

// `host` or `host:port`: at most one colon and no IPv6, because engines stop on any other shape.
bool SplitAdvertised(std::string_view text, std::string_view& host, std::uint16_t& port);

}  // namespace xms::app
