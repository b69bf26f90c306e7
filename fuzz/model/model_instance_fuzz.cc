// ParseInstanceJson: what an engine, or whoever pretends to be one, registers.
//
// Holds       An error is one printable line. What is accepted is JSON to another parser too, has the
//             values that the other one reads, keeps to the documented ranges, and is the same record
//             again when it is written and read.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzz/second_opinion.h"
#include "model/instance.h"

namespace {

using namespace xms::model;
using xms::fuzz::Opinion;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

std::string TextOf(simdjson::dom::element object, const char* key, const char* absent) {
  std::string_view text = absent;
  if (object[key].get(text) != simdjson::SUCCESS) return absent;
  return std::string(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr char kName[] = "127.0.0.1:8000";
  static xms::fuzz::SecondOpinion second;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto record = ParseInstanceJson(kName, text);
  const Opinion opinion = second.Of(text);
  if (!record.ok()) {
    const std::string& message = record.error().message;
    for (const char c : message) {
      Check(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "an error is one printable line");
    }
    if (message.find("instance: not JSON") == 0) {
      Check(opinion != Opinion::kJson, "what is called no JSON is none to others");
    }
    return 0;
  }
  Check(opinion != Opinion::kNotJson, "what is accepted is JSON to others");
  Check(record->id.name == kName, "the name is the path's");
  Check(record->dp_size >= 1 && record->dp_size <= 1024, "dp_size");
  const auto again = ParseInstanceJson(kName, InstanceJson(*record));
  Check(again.ok() && *again == *record, "written and read it is the same");
  if (opinion != Opinion::kJson) return 0;
  const simdjson::dom::element root = second.root();
  Check(record->identity.incarnation_id == TextOf(root, "incarnation_id", ""), "incarnation_id");
  Check(record->backend_type == TextOf(root, "backend_type", "xllm"), "backend_type");
  Check(record->rpc_address == TextOf(root, "rpc_address", ""), "rpc_address");
  Check(record->identity.register_ts_ms == second.Unsigned(root, "register_ts_ms").value_or(0),
        "register_ts_ms");
  const std::uint64_t ranks = second.Unsigned(root, "dp_size").value_or(0);
  Check(static_cast<std::uint64_t>(record->dp_size) == (ranks == 0 ? 1 : ranks), "dp_size is read");
  Check(static_cast<std::uint64_t>(record->type) == second.Unsigned(root, "type").value_or(0),
        "type");
  return 0;
}
