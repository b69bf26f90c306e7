// JSON as text: strings, numbers and lists, appended to an answer that is being built.
//
// Place       gateway's answers and the re-serialised request body.
// Threads     Pure functions.
// Cost        Strings are scanned eight bytes at a time and copied in runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace xms::gateway {

// `text` in quotes. It must be valid UTF-8 (what a JSON parser gave out is).
void AppendQuotedUtf8(std::string& out, std::string_view text);
// The same for text of any origin: where it is not valid UTF-8, bytes beyond ASCII become '?'.
void AppendQuoted(std::string& out, std::string_view text);

// The shortest text that reads back to the same double and is still a fraction to a reader that
// tells 1.0 from 1. Not finite: null, since JSON has no word for it.
void AppendDouble(std::string& out, double value);
// The same for values where 3 is better to read than 3.0.
void AppendNumber(std::string& out, double value);
void AppendUnsigned(std::string& out, std::uint64_t value);
void AppendSigned(std::string& out, std::int64_t value);

inline std::string_view BoolText(bool value) { return value ? "true" : "false"; }

}  // namespace xms::gateway
