// Logging: one line to stderr for what an operator should know.
//
// Place       Every module. spdlog stays inside log.cc, because its header is slow to compile.
// Threads     Any. A line is written whole.
// Rules       One line per change of a state, none per event or request at the default level. What a
//             peer can trigger is rate-limited by its caller. No prompt, no token id, no secret.
#pragma once

#include <string_view>

namespace xms::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void Log(LogLevel level, std::string_view line);
// Lines below `level` are dropped from now on. Default: kInfo.
void SetLogLevel(LogLevel level);

inline void LogDebug(std::string_view line) { Log(LogLevel::kDebug, line); }
inline void LogInfo(std::string_view line) { Log(LogLevel::kInfo, line); }
inline void LogWarning(std::string_view line) { Log(LogLevel::kWarning, line); }
inline void LogError(std::string_view line) { Log(LogLevel::kError, line); }

}  // namespace xms::base
