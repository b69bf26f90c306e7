#include "gateway/decision_log.h"

#include <algorithm>

#include "base/str_cat.h"
#include "gateway/json_text.h"

namespace xms::gateway {
namespace {

using base::StrAppend;

void AppendOptional(std::string& out, const std::optional<std::uint64_t>& value) {
  value.has_value() ? AppendUnsigned(out, *value) : void(out += "null");
}

void AppendRanks(std::string& out, const routing::RankHit* begin, const routing::RankHit* end) {
  out.push_back('[');
  for (const routing::RankHit* hit = begin; hit != end; ++hit) {
    if (hit != begin) out.push_back(',');
    StrAppend(out, R"({"dp_rank":)", hit->dp_rank, R"(,"device_hit_tokens":)",
              hit->device_hit_tokens, R"(,"host_only_hit_tokens":)", hit->host_only_hit_tokens,
              "}");
  }
  out.push_back(']');
}

}  // namespace

DecisionLog::DecisionLog(std::size_t capacity) : records_(capacity) {}

DecisionLog::Ticket DecisionLog::Add(const Decision& decision) {
  if (records_.empty()) return kNoTicket;
  const Ticket ticket = last_.fetch_add(1) + 1;
  Record& record = records_[ticket % records_.size()];
  base::MutexLock lock(record.mu);
  // A thread that was held up for as long as the log takes to go round must not undo what came
  // later.
  if (record.ticket > ticket) return kNoTicket;
  record.ticket = ticket;
  Fill(record, decision);
  return ticket;
}

void DecisionLog::Replace(Ticket ticket, const Decision& decision) {
  Record* record = Of(ticket);
  if (record == nullptr) return;
  base::MutexLock lock(record->mu);
  if (record->ticket == ticket) Fill(*record, decision);
}

void DecisionLog::Complete(Ticket ticket, const Outcome& outcome) {
  Record* record = Of(ticket);
  if (record == nullptr) return;
  base::MutexLock lock(record->mu);
  if (record->ticket != ticket) return;
  record->outcome = outcome;
  record->completed = true;
}

DecisionLog::Record* DecisionLog::Of(Ticket ticket) {
  return ticket == kNoTicket ? nullptr : &records_[ticket % records_.size()];
}

void DecisionLog::Fill(Record& record, const Decision& decision) {
  const routing::Choice& choice = *decision.choice;
  const auto candidates = decision.table->candidates();
  const auto name_of = [candidates](int candidate) {
    return candidate < 0 ? std::string_view()
                         : candidates[static_cast<std::size_t>(candidate)].name;
  };
  record.request_id = decision.request_id;
  record.time_ms = decision.time_ms;
  record.policy = decision.policy;
  record.instance = name_of(choice.primary);
  record.decode_instance = name_of(choice.decode);
  record.input_tokens = decision.input_tokens;
  record.reason = choice.reason;
  record.cost = choice.primary < 0 ? routing::Scored::kNoCost : choice.cost;
  record.names.clear();
  record.whys.clear();
  record.ranks.clear();
  record.entries.clear();
  record.outcome = {};
  record.completed = false;
  const std::size_t shown = std::min(candidates.size(), kMaxCandidates);
  for (std::size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == shown;
    const bool chosen_is_beyond = choice.primary >= static_cast<int>(shown);
    AddEntry(record, decision,
             last && chosen_is_beyond ? static_cast<std::size_t>(choice.primary) : i);
  }
}

void DecisionLog::AddEntry(Record& record, const Decision& decision, std::size_t candidate) {
  const routing::Candidate& from = decision.table->candidates()[candidate];
  static constexpr routing::Scored kUnscored{};
  const auto& scored = decision.choice->scored;
  const routing::Scored& score = candidate < scored.size() ? scored[candidate] : kUnscored;
  record.names += from.name;
  record.ranks.insert(record.ranks.end(), from.ranks.begin(), from.ranks.end());
  // Whoever did not take part has a reason that matters more than its missing credit.
  if (const auto why_not = decision.table->WhyNot(candidate); !why_not.empty()) {
    record.whys += why_not;
  } else if (!score.considered && !score.left_out.empty()) {
    record.whys += score.left_out;
  } else {
    record.whys += routing::NoCreditName(from.no_credit);
  }
  Entry& entry = record.entries.emplace_back();
  entry.name_end = record.names.size();
  entry.rank_end = record.ranks.size();
  entry.why_end = record.whys.size();
  entry.hit_ratio = score.hit_ratio;
  entry.has_load = from.has_load;
  entry.waiting = from.load.waiting_requests_num;
  entry.cost = score.considered ? score.cost : routing::Scored::kNoCost;
}

void DecisionLog::AppendRecord(std::string& out, const Record& record) {
  out += R"({"request_id":)";
  AppendQuoted(out, record.request_id);
  StrAppend(out, R"(,"time_ms":)", record.time_ms, R"(,"policy":)");
  AppendQuoted(out, record.policy);
  out += R"(,"instance":)";
  AppendQuoted(out, record.instance);
  out += R"(,"decode_instance":)";
  AppendQuoted(out, record.decode_instance);
  StrAppend(out, R"(,"input_tokens":)", record.input_tokens, R"(,"reason":)");
  AppendQuoted(out, record.reason);
  out += R"(,"cost":)";
  AppendNumber(out, record.cost);
  out += R"(,"candidates":[)";
  std::size_t name_begin = 0;
  std::size_t rank_begin = 0;
  std::size_t why_begin = 0;
  const std::string_view names = record.names;
  const std::string_view whys = record.whys;
  for (const Entry& entry : record.entries) {
    if (name_begin > 0) out.push_back(',');
    out += R"({"name":)";
    AppendQuoted(out, names.substr(name_begin, entry.name_end - name_begin));
    out += R"(,"ranks":)";
    AppendRanks(out, record.ranks.data() + rank_begin, record.ranks.data() + entry.rank_end);
    out += R"(,"hit_ratio":)";
    AppendNumber(out, entry.hit_ratio);
    out += R"(,"waiting":)";
    entry.has_load ? AppendNumber(out, entry.waiting) : void(out += "null");
    out += R"(,"cost":)";
    AppendNumber(out, entry.cost);
    out += R"(,"no_credit_reason":)";
    AppendQuoted(out, whys.substr(why_begin, entry.why_end - why_begin));
    out.push_back('}');
    name_begin = entry.name_end;
    rank_begin = entry.rank_end;
    why_begin = entry.why_end;
  }
  out += R"(],"cached_tokens":)";
  AppendOptional(out, record.outcome.cached_tokens);
  out += R"(,"ttft_ms":)";
  record.outcome.ttft_ms ? AppendNumber(out, *record.outcome.ttft_ms) : void(out += "null");
  out += R"(,"status":)";
  record.completed ? AppendSigned(out, record.outcome.status) : void(out += "null");
  out.push_back('}');
}

std::string DecisionLog::Json(std::size_t limit, std::string_view request_id) const {
  std::string out = R"({"decisions":[)";
  const Ticket last = last_.load();
  std::size_t shown = 0;
  for (std::size_t back = 0; back < records_.size() && back < last && shown < limit; ++back) {
    const Ticket ticket = last - back;
    const Record& record = records_[ticket % records_.size()];
    base::MutexLock lock(record.mu);
    // Another ticket: not yet written, or already written over by a newer one.
    if (record.ticket != ticket) continue;
    if (!request_id.empty() && record.request_id != request_id) continue;
    if (shown++ > 0) out.push_back(',');
    AppendRecord(out, record);
  }
  out += "]}";
  return out;
}

}  // namespace xms::gateway
