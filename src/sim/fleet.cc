#include "sim/fleet.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/str_cat.h"

namespace xms::sim {
namespace {

constexpr std::size_t kMaxPlaces = 64;

std::uint64_t RandomSeed() {
  std::random_device random;
  return (std::uint64_t{random()} << 32U) | random();
}

// Counts down; outlives whoever stopped waiting.
struct Latch {
  base::Mutex mu;
  base::CondVar changed;
  std::size_t left XMS_GUARDED_BY(mu) = 0;
};

}  // namespace

Fleet::Fleet(FleetOptions options, const base::Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      seed_(options_.seed != 0 ? options_.seed : RandomSeed()) {}

Fleet::~Fleet() { Stop(); }

EngineOptions Fleet::OptionsOf(std::size_t index, const PortPlan& plan) const {
  const EngineSpec& spec = options_.engines[index];
  // Seeds of a fleet must not be neighbours: an engine's ranks and lives count upwards from them.
  std::seed_seq sequence{static_cast<std::uint32_t>(seed_),
                         static_cast<std::uint32_t>(seed_ >> 32U),
                         static_cast<std::uint32_t>(index)};
  std::mt19937_64 random(sequence);
  EngineOptions engine;
  engine.host = options_.host;
  engine.port = plan.http[index];
  engine.event_host = options_.event_host;
  engine.event_port = static_cast<std::uint16_t>(plan.http[index] + plan.event_offset);
  engine.replay_port = static_cast<std::uint16_t>(plan.http[index] + plan.replay_offset);
  engine.topic = options_.topic;
  engine.first_sequence = spec.first_sequence;
  engine.model_id = options_.model_id;
  engine.time_scale = options_.time_scale;
  engine.stream_interval = options_.stream_interval;
  engine.core = {.dp_size = spec.dp_size,
                 .scheduler = {.blocks = {.block_size = spec.block_size,
                                          .device_blocks = spec.num_blocks,
                                          .host_blocks = spec.host_blocks,
                                          .hash_seed = random()},
                               .max_tokens_per_batch = options_.max_tokens_per_batch,
                               .max_seqs_per_batch = options_.max_seqs_per_batch},
                 .max_concurrent_requests = options_.max_concurrent_requests};
  if (options_.service_rpc) {
    engine.registration = RegistrarOptions{.service = *options_.service_rpc,
                                           .token = options_.internal_api_token,
                                           .ttl = options_.registration_ttl,
                                           .heartbeat_interval = options_.HeartbeatPeriod(),
                                           .seed = random()};
  }
  return engine;
}

base::Status Fleet::StartAt(const PortPlan& plan) {
  for (std::size_t i = 0; i < options_.engines.size(); ++i) {
    engines_.push_back(std::make_unique<Engine>(pool_, clock_, OptionsOf(i, plan)));
    if (auto started = engines_.back()->Start(); !started.ok()) {
      engines_.clear();
      return started;
    }
  }
  plan_ = plan;
  return base::Ok();
}

base::Status Fleet::FindPlace(const PortRequest& request) {
  PortRequest attempt = request;
  const std::vector<std::uint16_t> bases = CandidateBases(request, EphemeralPorts(), RandomSeed());
  std::string last = "the offsets leave no room outside the ephemeral range";
  for (std::size_t i = 0; i < std::min(bases.size(), kMaxPlaces); ++i) {
    attempt.base = bases[i];
    const auto plan = PlanPorts(attempt);
    if (!plan.ok()) return plan.error();
    if (const std::uint16_t taken = FirstTakenPort(options_.host, plan->all); taken != 0) {
      last = base::StrCat("port ", taken, " is taken");
      continue;
    }
    auto started = StartAt(*plan);
    if (started.ok()) return started;
    last = std::move(started).error().message;
  }
  return base::Error{base::ErrorCode::kUnavailable,
                     base::StrCat("no place for the fleet's ports was found (", last,
                                  "); give --port, --event_port_offset and --replay_port_offset")};
}

base::Status Fleet::Start() {
  PortRequest request{.base = options_.port,
                      .event_offset = options_.event_port_offset,
                      .replay_offset = options_.replay_port_offset};
  for (const EngineSpec& engine : options_.engines) {
    request.dp_sizes.push_back(engine.dp_size);
    if (engine.port != 0) request.http.push_back(engine.port);
  }
  if (request.base == 0 && request.http.empty()) {
    if (auto found = FindPlace(request); !found.ok()) return found;
  } else {
    const auto plan = PlanPorts(request);
    if (!plan.ok()) return plan.error();
    if (const std::uint16_t taken = FirstTakenPort(options_.host, plan->all); taken != 0) {
      return base::Error{base::ErrorCode::kUnavailable,
                         base::StrCat("port ", taken, " is taken; choose other ports with ",
                                      request.http.empty() ? "--port" : "--engine=port=…")};
    }
    const PortRange ephemeral = EphemeralPorts();
    const auto inside = std::ranges::find_if(
        plan->all, [&](std::uint16_t port) { return ephemeral.Contains(port); });
    if (inside != plan->all.end()) {
      base::LogWarning(base::StrCat("sim: port ", *inside, " lies in the ephemeral range ",
                                    ephemeral.first, "–", ephemeral.last,
                                    ", where any outgoing connection may take it"));
    }
    if (auto started = StartAt(*plan); !started.ok()) return started;
  }
  for (const auto& engine : engines_) engine->Register();
  return base::Ok();
}

void Fleet::Stop() {
  const auto latch = std::make_shared<Latch>();
  {
    base::MutexLock lock(latch->mu);
    latch->left = engines_.size();
  }
  for (const auto& engine : engines_) {
    engine->Deregister([latch] {
      base::MutexLock lock(latch->mu);
      --latch->left;
      latch->changed.NotifyAll();
    });
  }
  {
    const auto deadline = std::chrono::steady_clock::now() + kFarewell;
    base::MutexLock lock(latch->mu);
    while (latch->left > 0) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) break;
      latch->changed.WaitFor(latch->mu, left);
    }
  }
  engines_.clear();
}

std::string Fleet::DescriptionJson() const {
  std::string json = R"({"engines":[)";
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    const EngineSpec& spec = options_.engines[i];
    base::StrAppend(json, i == 0 ? "" : ",", R"({"name":")", engines_[i]->name(), R"(","port":)",
                    engines_[i]->port(), R"(,"dp_size":)", spec.dp_size, R"(,"event_port_offset":)",
                    plan_.event_offset, R"(,"replay_port_offset":)", plan_.replay_offset,
                    R"(,"block_size":)", spec.block_size, R"(,"num_blocks":)", spec.num_blocks,
                    R"(,"host_blocks":)", spec.host_blocks, R"(,"first_sequence":)",
                    spec.first_sequence, "}");
  }
  return json + "]}";
}

}  // namespace xms::sim
