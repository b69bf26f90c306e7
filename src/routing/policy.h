// Policy: which instance takes a request. RR, CAR (and later SLO_AWARE) behind one interface.
//
// Place       Called by gateway with candidates as data: no I/O, no clock, no look-ups (G8).
// Threads     Choose: any thread; policies keep only atomic cursors.
// Source      CAR: requirements G1 to G7. RR: upstream's selection logic (G9).
// Failure     No candidate: `primary` stays −1 and `reason` says why.
// Proof       CacheAwareRouting*, RoundRobin*, bench/routing_bench.cc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/instance.h"

namespace xms::routing {

// Why a candidate got no prefix credit; kNone when it got what the directory says.
enum class NoCredit : std::uint8_t {
  kNone,
  kNotTokenized,  // the request has no token ids
  kEmptyPrompt,
  kPromptShorterThanBlock,
  kDirectoryOff,
  kNoStream,         // no rank is subscribed
  kRankMissing,      // some rank is not subscribed
  kUnsynchronized,   // some rank is
  kIdentityUnknown,  // static stream, or neither side has an identity
  kIdentityChanged,  // the index belongs to another process
  kDecodeRole,       // D gets no credit
  kNotAsked,         // the policy does not go by prefixes
};
std::string_view NoCreditName(NoCredit why);  // "", "not_tokenized", …

// Hits of one rank, in tokens.
struct RankHit {
  std::int32_t dp_rank = 0;
  std::uint32_t device_hit_tokens = 0;
  std::uint32_t host_only_hit_tokens = 0;
};

// One registered instance as routing sees it. Filled per request into reused memory.
struct Candidate {
  std::string_view name;                     // outlives the call
  model::Role role = model::Role::kDefault;  // MIX: kPrefill or kDecode as it acts now, is_mix set
  bool is_mix = false;
  bool schedulable = false;
  bool has_load = false;
  model::LoadSample load;
  NoCredit no_credit = NoCredit::kNone;
  std::span<const RankHit> ranks;  // one per rank when no_credit is kNone
};

// What the policy made of a candidate; same order as the candidates.
struct Scored {
  static constexpr double kNoCost = std::numeric_limits<double>::infinity();
  bool considered = false;    // took part in the choice
  double hit_ratio = 0;       // 0 … 1; minimum over ranks (G5)
  double cost = kNoCost;      // smallest wins
  std::string_view left_out;  // static text why not, e.g. "no load report"; "" when considered
};

struct Choice {
  int primary = -1;               // index of the P or DEFAULT; −1: nobody
  int decode = -1;                // index of the D; −1: none (a DEFAULT serves alone)
  double cost = Scored::kNoCost;  // of the primary; kNoCost when no costs were compared
  std::string_view reason;        // static text, e.g. "longest prefix at equal load"
  std::vector<Scored> scored;     // reused between requests
};

struct RouteInput {
  std::span<const Candidate> candidates;
  std::uint32_t input_tokens = 0;  // 0: empty or not tokenized
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;  // "RR", "CAR"
  // True when Choose looks at Candidate::ranks, i.e. when a match is worth computing.
  virtual bool wants_hits() const = 0;
  virtual void Choose(const RouteInput& input, Choice& out) = 0;
};

struct CarOptions {
  double prefill_lambda = 0.5;   // [0, 1]
  double host_hit_weight = 0.5;  // [0, 1]
};

std::unique_ptr<Policy> MakeRoundRobin();
std::unique_ptr<Policy> MakeCacheAware(CarOptions options);

}  // namespace xms::routing
