// What others write to the simulator: request bodies, faults, flags.
//
// Input       One letter for the kind (c completion, m chat, f faults, k --kv_events_config, e --engine), then
//             the text.
// Holds       What is accepted is within its limits, and an answer that echoes it is JSON; what is refused is
//             refused with one line.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "sim/openai.h"
#include "sim/options.h"
#include "sim/sim_api.h"

namespace {

using namespace xms::sim;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

void TryRequest(ApiKind kind, std::string_view body) {
  const auto parsed = ParseApiRequest(kind, body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    Check(error->status == 400 && !error->message.empty(), "a refusal is a 400 with a reason");
    Check(nlohmann::json::accept(ApiErrorJson(*error)), "a refusal is JSON");
    return;
  }
  const auto& request = std::get<ApiRequest>(parsed);
  Check(!request.prompt.empty() && request.max_tokens > 0, "there is something to do");
  Check(request.prompt.size() <= body.size() + 16, "tokens are there because bytes are");
  const AnswerHead head{kind, "id", 0, request.model};
  Check(nlohmann::json::accept(WholeAnswer(head, "x", {})), "an answer is JSON");
}

void TryFlag(std::string_view name, std::string_view value) {
  const std::string flag = std::string(name) + std::string(value);
  const std::string_view arguments[] = {"--port=8000", flag};
  const auto parsed = ParseCommandLine(arguments);
  if (!parsed.ok()) {
    Check(!parsed.error().message.empty(), "a refusal has a reason");
    return;
  }
  Check(parsed->has_value() && !(*parsed)->engines.empty(), "there is an engine");
  for (const EngineSpec& engine : (*parsed)->engines) {
    Check(engine.dp_size >= 1 && engine.num_blocks >= 2 && engine.block_size >= 1,
          "engines can be");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'c':
      TryRequest(ApiKind::kCompletion, text);
      break;
    case 'm':
      TryRequest(ApiKind::kChat, text);
      break;
    case 'f': {
      const auto faults = ParseFaults(text, 2);
      Check(!faults.ok() || !faults->rank || *faults->rank < 2, "the rank exists");
      break;
    }
    case 'k':
      TryFlag("--kv_events_config=", text);
      break;
    case 'e':
      TryFlag("--engine=", text);
      break;
    default:
      break;
  }
  return 0;
}
