#include "kv_directory/discovery/stream_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "base/str_cat.h"
#include "kv_directory/discovery/endpoint.h"

namespace xms::kv_directory {
namespace {

using base::StrAppend;
using base::StrCat;

constexpr std::uint32_t kLastPort = 65535;

// An instance that should have streams, and why it cannot have them ("" so far: it can).
struct Candidate {
  const SourceInstance* source = nullptr;
  Endpoint address;
  std::string reason;
};

bool Subscribed(const SourceInstance& instance) {
  const model::InstanceRecord& record = instance.record;
  if (instance.suspect || record.backend_type != "xllm") return false;
  switch (record.type) {
    case model::Role::kDefault:
    case model::Role::kPrefill:
      return true;
    case model::Role::kMix:
      return instance.current_role == model::Role::kPrefill;
    case model::Role::kDecode:
      return false;
  }
  return false;
}

// "" when every rank's port exists.
std::string PortOverflow(std::string_view name, std::uint32_t offset, const Candidate& candidate) {
  const auto ranks = static_cast<std::uint32_t>(candidate.source->record.dp_size);
  const std::uint32_t last = candidate.address.port + offset + ranks - 1;
  if (last <= kLastPort) return "";
  return StrCat("port ", candidate.address.port, " + ", name, " ", offset, " + rank ", ranks - 1,
                " is ", last, ", over ", kLastPort, "; use a lower HTTP port or offset");
}

// Ports first … last of one instance, for one of its two columns.
struct PortRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::string_view column;
  Candidate* owner = nullptr;

  std::string Describe() const {
    return first == last ? StrCat(column, " port ", first)
                         : StrCat(column, " ports ", first, "-", last);
  }
};

void MarkOverlap(const PortRange& one, const PortRange& other) {
  if (!one.owner->reason.empty()) return;  // the first overlap found is reason enough
  const std::string whose = one.owner == other.owner
                                ? std::string("its")
                                : StrCat(other.owner->source->record.id.name, "'s");
  one.owner->reason =
      StrCat("its ", one.Describe(), one.first == one.last ? " overlaps " : " overlap ", whose, " ",
             other.Describe(), "; give engines on one host ports at least dp_size apart");
}

// Leaves out everybody whose ports somebody else (or the other column) has too. Which of them
// really owns a port cannot be known from here, so nobody concerned is believed.
void ExcludeOverlaps(std::vector<Candidate>& candidates, const DiscoveryConfig& config) {
  std::map<std::string, std::vector<PortRange>> hosts;
  for (Candidate& candidate : candidates) {
    if (!candidate.reason.empty()) continue;
    const auto ranks = static_cast<std::uint32_t>(candidate.source->record.dp_size);
    std::vector<PortRange>& ranges = hosts[candidate.address.CanonicalHost()];
    for (const auto& [column, offset] :
         {std::pair<std::string_view, std::uint32_t>("event", config.event_port_offset),
          std::pair<std::string_view, std::uint32_t>("replay", config.replay_port_offset)}) {
      const std::uint32_t first = candidate.address.port + offset;
      ranges.push_back({first, first + ranks - 1, column, &candidate});
    }
  }
  for (auto& [host, ranges] : hosts) {
    std::sort(ranges.begin(), ranges.end(), [](const PortRange& a, const PortRange& b) {
      // Owners lie in one vector, by name.
      return std::tie(a.first, a.owner, a.column) < std::tie(b.first, b.owner, b.column);
    });
    // If a range overlaps any before it, it overlaps the one that reaches furthest; and those which
    // overlap each other before it have been found when the later of them was looked at.
    const PortRange* furthest = nullptr;
    for (const PortRange& range : ranges) {
      if (furthest != nullptr && range.first <= furthest->last) {
        MarkOverlap(range, *furthest);
        MarkOverlap(*furthest, range);
      }
      if (furthest == nullptr || range.last > furthest->last) furthest = &range;
    }
  }
}

}  // namespace

StreamPlan PlanStreams(const DiscoveryConfig& config, const Limits& limits,
                       std::vector<SourceInstance> instances) {
  std::sort(instances.begin(), instances.end(),
            [](const SourceInstance& a, const SourceInstance& b) {
              return a.record.id.name < b.record.id.name;
            });
  std::vector<Candidate> candidates;
  for (const SourceInstance& instance : instances) {
    if (!Subscribed(instance)) continue;
    Candidate candidate{.source = &instance};
    auto address = ParseHostPort(instance.record.id.name);
    if (!address.ok()) {
      candidate.reason = StrCat("its name ", address.error().message);
    } else if (instance.record.dp_size < 1) {
      candidate.reason = StrCat("dp_size ", instance.record.dp_size, " is below 1");
    } else {
      candidate.address = *std::move(address);
      candidate.reason = PortOverflow("event_port_offset", config.event_port_offset, candidate);
      if (candidate.reason.empty()) {
        candidate.reason = PortOverflow("replay_port_offset", config.replay_port_offset, candidate);
      }
    }
    candidates.push_back(std::move(candidate));
  }
  ExcludeOverlaps(candidates, config);

  StreamPlan plan;
  for (Candidate& candidate : candidates) {
    const model::InstanceRecord& record = candidate.source->record;
    const std::size_t left = limits.max_streams - plan.streams.size();
    if (candidate.reason.empty() && static_cast<std::size_t>(record.dp_size) > left) {
      candidate.reason =
          StrCat("needs ", record.dp_size, record.dp_size == 1 ? " stream and " : " streams and ",
                 left, " of max_streams ", limits.max_streams, " are left");
    }
    if (!candidate.reason.empty()) {
      plan.excluded.push_back({record.id.name, std::move(candidate.reason)});
      continue;
    }
    Endpoint event = candidate.address;
    Endpoint replay = candidate.address;
    for (std::int32_t rank = 0; rank < record.dp_size; ++rank) {
      event.port =
          static_cast<std::uint16_t>(candidate.address.port + config.event_port_offset + rank);
      replay.port =
          static_cast<std::uint16_t>(candidate.address.port + config.replay_port_offset + rank);
      plan.streams.push_back({.key = {record.id, {rank}},
                              .block_size = config.block_size,
                              .endpoint = event.Url(),
                              .replay_endpoint = replay.Url(),
                              .topic = config.topic,
                              .identity = record.identity});
    }
  }
  return plan;
}

}  // namespace xms::kv_directory
