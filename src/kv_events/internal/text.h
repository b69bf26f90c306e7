// Comparing strings of events: the few that carry a meaning.
#pragma once

#include <string_view>

namespace xms::kv_events::internal {

// Well-formed UTF-8: no overlong form, no surrogate, nothing above U+10FFFF.
bool IsUtf8(std::string_view text);

// ASCII letters only; `lower` is in lower case.
bool EqualsIgnoringCase(std::string_view text, std::string_view lower);

}  // namespace xms::kv_events::internal
