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

// The shortest text that reads back to the same double. Not finite: null, since JSON has no word
// for it.
void AppendNumber(std::string& out, double value);
void AppendUnsigned(std::string& out, std::uint64_t value);
void AppendSigned(std::string& out, std::int64_t value);

inline std::string_view BoolText(bool value) { return value ? "true" : "false"; }

}  // namespace xms::gateway
