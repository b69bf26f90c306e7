#include "app/flags.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "app/flag_table.h"
#include "app/listen_host.h"
#include "base/str_cat.h"

namespace xms::app {
namespace {

using base::Error;
using base::ErrorCode;
using base::StrCat;

// One line, whatever the command line contains.
std::string Shown(std::string_view text) {
  constexpr std::size_t kLongest = 100;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out.push_back(c);
    } else {
      constexpr char kHex[] = "0123456789abcdef";
      out.append({'\\', 'x', kHex[byte >> 4], kHex[byte & 15]});
    }
  }
  if (text.size() > kLongest) out.append("...");
  return out;
}

template <typename T>
std::string_view TypeName() {
  if constexpr (std::is_same_v<T, std::string>) return "string";
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, double>) return "double";
  if constexpr (std::is_same_v<T, std::int32_t>) return "int32";
  if constexpr (std::is_same_v<T, std::uint32_t>) return "uint32";
  if constexpr (std::is_same_v<T, std::int64_t>) return "int64";
}

// Calls `visit` with the member that the flag sets.
template <typename AnySettings, typename Visitor>
auto VisitMember(const Flag& flag, AnySettings& settings, const Visitor& visit) {
  return std::visit([&](auto member) { return visit(settings.*member); }, flag.target);
}

std::string_view FlagType(const Flag& flag) {
  const Settings settings;
  return VisitMember(flag, settings,
                     [](const auto& value) { return TypeName<std::decay_t<decltype(value)>>(); });
}

std::string DefaultText(const Flag& flag) {
  const Settings settings;
  return VisitMember(flag, settings, [](const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
      return StrCat('"', value, '"');
    } else {
      return StrCat(value);
    }
  });
}

// What a value may be, for errors and documentation.
std::string AllowedText(const Flag& flag) {
  if (!flag.allowed.empty()) return std::string(flag.allowed);
  const std::string_view type = FlagType(flag);
  if (type == "string") return "any";
  if (type == "bool") return "true, false";
  return StrCat(type == "double" ? "a number" : "an integer", " from ", flag.lowest, " to ",
                flag.highest);
}

Error Refused(const Flag& flag, std::string_view value, std::string_view why) {
  std::string shown = flag.secret ? std::string() : StrCat("=", Shown(value));
  return {ErrorCode::kInvalidArgument,
          StrCat("--", flag.name, shown, ": ", why, "; allowed: ", AllowedText(flag))};
}

// "" when stored, else what is wrong.
std::string_view Store(const Flag& /*flag*/, std::string_view text, std::string& out) {
  out = text;
  return {};
}

std::string_view Store(const Flag& /*flag*/, std::string_view text, bool& out) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  for (const std::string_view yes : {"true", "t", "yes", "y", "1"}) {
    if (lower == yes) return out = true, std::string_view();
  }
  for (const std::string_view no : {"false", "f", "no", "n", "0"}) {
    if (lower == no) return out = false, std::string_view();
  }
  return "not true or false";
}

// from_chars knows no plus sign, no white space and no base prefix.
template <typename Number>
std::string_view Store(const Flag& flag, std::string_view text, Number& out) {
  constexpr bool kIsInteger = std::is_integral_v<Number>;
  using Wide = std::conditional_t<kIsInteger, std::int64_t, double>;
  Wide value{};
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (stopped != text.data() + text.size() || error == std::errc::invalid_argument) {
    return kIsInteger ? "not a decimal integer" : "not a number";
  }
  // Written so that NaN fails it.
  const bool in_range =
      value >= static_cast<Wide>(flag.lowest) && value <= static_cast<Wide>(flag.highest);
  if (error == std::errc::result_out_of_range || !in_range) return "out of range";
  out = static_cast<Number>(value);
  return {};
}

std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[b.size()];
}

// The value of an unknown flag is not shown: the name may be a misspelt secret.
Error Unknown(std::string_view name) {
  constexpr std::size_t kLongestName = 64;
  std::string hint = "; see --help";
  if (name.size() <= kLongestName) {
    const std::span<const Flag> table = FlagTable();
    const auto nearest =
        std::min_element(table.begin(), table.end(), [&](const Flag& a, const Flag& b) {
          return EditDistance(name, a.name) < EditDistance(name, b.name);
        });
    if (EditDistance(name, nearest->name) <= std::max<std::size_t>(2, name.size() / 3)) {
      hint = StrCat("; did you mean --", nearest->name, "?");
    }
  }
  return {ErrorCode::kInvalidArgument, StrCat("--", Shown(name), ": unknown flag", hint)};
}

const Flag* FindFlag(std::string_view name) {
  const std::span<const Flag> table = FlagTable();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Flag& flag) { return flag.name == name; });
  return found == table.end() ? nullptr : &*found;
}

bool IsBool(const Flag& flag) { return std::holds_alternative<bool Settings::*>(flag.target); }

// One flag as it stands on the command line.
struct Given {
  const Flag* flag = nullptr;  // null: --help
  std::string_view value;
};

class CommandLine {
 public:
  CommandLine(int argc, const char* const* argv) : arguments_(argv, argv + argc) {}

  bool AtEnd() const { return next_ >= arguments_.size(); }

  base::Result<Given> Next() {
    const std::string_view argument = arguments_[next_++];
    if (argument.size() < 2 || argument[0] != '-' || argument == "--") {
      return Error{ErrorCode::kInvalidArgument,
                   StrCat("left-over argument \"", Shown(argument),
                          "\": allowed: flags only, --name=value; see --help")};
    }
    const std::string_view body = argument.substr(argument[1] == '-' ? 2 : 1);
    const std::size_t equals = body.find('=');
    const std::string_view name = body.substr(0, equals);
    std::optional<std::string_view> value;
    if (equals != std::string_view::npos) value = body.substr(equals + 1);

    if (name == "help" && !value) return Given{};
    if (const Flag* flag = FindFlag(name)) {
      if (!value && IsBool(*flag)) value = "true";
      if (!value && !AtEnd()) value = arguments_[next_++];
      if (!value) {
        return Error{ErrorCode::kInvalidArgument,
                     StrCat("--", name, ": needs a value; allowed: ", AllowedText(*flag))};
      }
      return Given{flag, *value};
    }
    if (name.starts_with("no") && !value) {
      const Flag* flag = FindFlag(name.substr(2));
      if (flag != nullptr && IsBool(*flag)) return Given{flag, "false"};
    }
    return Unknown(name);
  }

 private:
  const std::vector<std::string_view> arguments_;
  std::size_t next_ = 1;
};

// Zero is upstream's other way to say never.
void SpellOutNever(Settings& settings) {
  for (std::int32_t* seconds :
       {&settings.http_server_idle_timeout_s, &settings.rpc_server_idle_timeout_s}) {
    if (*seconds == 0) *seconds = -1;
  }
}

std::string Wrapped(std::string_view text, std::string_view indent, std::size_t width) {
  std::string out;
  std::string line;
  while (!text.empty()) {
    const std::size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
    if (!line.empty() && indent.size() + line.size() + 1 + word.size() > width) {
      base::StrAppend(out, indent, line, '\n');
      line.clear();
    }
    if (!line.empty()) line.push_back(' ');
    line.append(word);
  }
  base::StrAppend(out, indent, line, '\n');
  return out;
}

std::string Meaning(const Flag& flag) {
  if (flag.no_effect.empty()) return std::string(flag.meaning);
  return StrCat(flag.meaning, " No effect: ", flag.no_effect, ".");
}

}  // namespace

base::Result<ParsedFlags> ParseFlags(int argc, const char* const* argv) {
  ParsedFlags parsed;
  std::set<std::string_view> warned;
  CommandLine command_line(argc, argv);
  while (!command_line.AtEnd()) {
    const base::Result<Given> given = command_line.Next();
    if (!given.ok()) return given.error();
    if (given->flag == nullptr) {
      parsed.help = true;
      return parsed;
    }
    const Flag& flag = *given->flag;
    std::string_view why = VisitMember(
        flag, parsed.settings, [&](auto& member) { return Store(flag, given->value, member); });
    if (why.empty() && flag.flaw != nullptr) why = flag.flaw(parsed.settings);
    if (!why.empty()) return Refused(flag, given->value, why);
    if (!flag.no_effect.empty() && warned.insert(flag.name).second) {
      parsed.warnings.push_back(StrCat("--", flag.name, " has no effect: ", flag.no_effect));
    }
  }
  const Settings& settings = parsed.settings;
  if (settings.http_server_port == settings.rpc_server_port && settings.rpc_server_port != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 StrCat("--rpc_server_port=", settings.rpc_server_port,
                        ": is the --http_server_port too; allowed: another port from 0 to 65535")};
  }
  if (AdvertisedAddress(settings, 0).empty()) {
    parsed.warnings.push_back(StrCat("--server_host=", settings.server_host,
                                     ": engines take no IPv6 address; give --advertise_addr if "
                                     "they are to reach this service"));
  }
  SpellOutNever(parsed.settings);
  return parsed;
}

std::string HelpText() {
  std::string out =
      "xllm_master_serving: a cache-aware front door for LLM engines\n\n"
      "Usage: xllm_master_serving [--name=value ...]\n"
      "Values also follow as the next argument; booleans are --name and --noname.\n"
      "Exit codes: 0 orderly end, 1 failure while running, 2 wrong flag or file.\n";
  std::string_view group;
  for (const Flag& flag : FlagTable()) {
    if (flag.group != group) base::StrAppend(out, '\n', group = flag.group, '\n');
    base::StrAppend(out, "  --", flag.name, " (", FlagType(flag), ", default ", DefaultText(flag),
                    ")\n", Wrapped(Meaning(flag), "      ", 100));
    if (const std::string allowed = AllowedText(flag); allowed != "any") {
      out.append(Wrapped(StrCat("Allowed: ", allowed), "      ", 100));
    }
  }
  out.append("\n  --help\n      Prints this text.\n");
  return out;
}

std::string FlagTableMarkdown() {
  std::string out;
  std::string_view group;
  for (const Flag& flag : FlagTable()) {
    if (flag.group != group) {
      base::StrAppend(out, out.empty() ? "" : "\n", "### ", group = flag.group,
                      "\n\n| flag | type | default | allowed | meaning |\n|---|---|---|---|---|\n");
    }
    base::StrAppend(out, "| `--", flag.name, "` | ", FlagType(flag), " | `", DefaultText(flag),
                    "` | ", AllowedText(flag), " | ", Meaning(flag), " |\n");
  }
  return out;
}

std::string SettingsJson(const Settings& settings) {
  nlohmann::ordered_json json;
  for (const Flag& flag : FlagTable()) {
    const std::string name(flag.name);
    VisitMember(flag, settings, [&](const auto& value) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
        if (flag.secret) {
          json[name] = value.empty() ? "" : "(set)";
          return;
        }
      }
      json[name] = value;
    });
  }
  json["advertise_addr"] =
      AdvertisedAddress(settings, static_cast<std::uint16_t>(settings.rpc_server_port));
  json["registry"] = "embedded";
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string AdvertisedAddress(const Settings& settings, std::uint16_t rpc_port) {
  std::string_view host;
  std::uint16_t port = 0;
  if (!settings.advertise_addr.empty() && SplitAdvertised(settings.advertise_addr, host, port)) {
    return StrCat(host, ':', port != 0 ? port : rpc_port);
  }
  const std::string listening = AdvertisableHost(settings.server_host);
  return listening.empty() ? "" : StrCat(listening, ':', rpc_port);
}

}  // namespace xms::app
