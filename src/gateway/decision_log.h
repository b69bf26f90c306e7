// DecisionLog: the last n routing decisions, each completed once its answer is in.
//
// Place       Written by proxy_call, read by GET /v1/internal/routing/decisions.
// Threads     All methods: any thread. Each record has its own lock, held for a copy; two requests
//             meet at one only when n others have begun in between.
// Bounds      `capacity` records of at most kMaxCandidates candidates (the chosen one always among
//             them). A record's memory is reused by the next in its place.
// Rules       No token ids, no text: sizes, names, figures.
// Proof       GatewayDecisionLog*.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "gateway/candidate_table.h"
#include "routing/policy.h"

namespace xms::gateway {

// What was decided. Views are copied by Add.
struct Decision {
  std::string_view request_id;
  std::int64_t time_ms = 0;  // wall clock
  std::string_view policy;   // outlives the log
  std::uint32_t input_tokens = 0;
  const routing::Choice* choice = nullptr;
  const CandidateTable* table = nullptr;
};

struct Outcome {
  std::optional<std::uint64_t> cached_tokens;
  std::optional<double> ttft_ms;
  int status = 0;
};

class DecisionLog {
 public:
  static constexpr std::size_t kMaxCandidates = 128;
  using Ticket = std::uint64_t;
  static constexpr Ticket kNoTicket = 0;

  explicit DecisionLog(std::size_t capacity);
  DecisionLog(const DecisionLog&) = delete;
  DecisionLog& operator=(const DecisionLog&) = delete;

  Ticket Add(const Decision& decision);
  // The same request was decided again. Without effect when the record has made room for another.
  void Replace(Ticket ticket, const Decision& decision);
  void Complete(Ticket ticket, const Outcome& outcome);

  // {"decisions":[…]}, newest first, at most `limit`; with a request id only those of that request.
  std::string Json(std::size_t limit, std::string_view request_id) const;

 private:
  struct Entry {
    std::size_t name_end = 0;  // names of all candidates, one after the other
    std::size_t rank_end = 0;  // likewise
    std::size_t why_end = 0;   // likewise
    double hit_ratio = 0;
    bool has_load = false;
    double waiting = 0;
    double cost = 0;
  };
  struct Record {
    mutable base::Mutex mu;
    Ticket ticket XMS_GUARDED_BY(mu) = kNoTicket;
    std::string request_id XMS_GUARDED_BY(mu);
    std::int64_t time_ms XMS_GUARDED_BY(mu) = 0;
    std::string_view policy XMS_GUARDED_BY(mu);
    std::string instance XMS_GUARDED_BY(mu);
    std::string decode_instance XMS_GUARDED_BY(mu);
    std::uint32_t input_tokens XMS_GUARDED_BY(mu) = 0;
    std::string_view reason XMS_GUARDED_BY(mu);
    double cost XMS_GUARDED_BY(mu) = 0;
    std::string names XMS_GUARDED_BY(mu);
    std::string whys XMS_GUARDED_BY(mu);
    std::vector<routing::RankHit> ranks XMS_GUARDED_BY(mu);
    std::vector<Entry> entries XMS_GUARDED_BY(mu);
    Outcome outcome XMS_GUARDED_BY(mu);
    bool completed XMS_GUARDED_BY(mu) = false;
  };

  static void Fill(Record& record, const Decision& decision) XMS_REQUIRES(record.mu);
  static void AddEntry(Record& record, const Decision& decision, std::size_t candidate)
      XMS_REQUIRES(record.mu);
  static void AppendRecord(std::string& out, const Record& record) XMS_REQUIRES(record.mu);
  Record* Of(Ticket ticket);

  std::vector<Record> records_;  // fixed in size
  std::atomic<Ticket> last_{kNoTicket};
};

}  // namespace xms::gateway
