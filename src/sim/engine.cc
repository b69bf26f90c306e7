#include "sim/engine.h"

#include <algorithm>
#include <future>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/log.h"
#include "base/str_cat.h"
#include "http/server.h"
#include "kv_events/encoder.h"
#include "sim/answer_writer.h"
#include "sim/event_publisher.h"
#include "sim/openai.h"
#include "sim/sim_api.h"

namespace xms::sim {
namespace {

constexpr std::size_t kMaxBodyBytes = 64UL * 1024 * 1024;
constexpr std::chrono::milliseconds kReopenDelay{20};

// Always random: two processes started with one seed are two incarnations.
std::string NewIncarnationId() {
  static constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::random_device random;
  std::string id;
  for (int i = 0; i < 22; ++i) id.push_back(kLetters[random() % kLetters.size()]);
  return id;
}

void AddTotals(EngineTotals& sum, const EngineTotals& more) {
  sum.submitted += more.submitted;
  sum.completed += more.completed;
  sum.cancelled += more.cancelled;
  sum.rejected += more.rejected;
  sum.prompt_tokens += more.prompt_tokens;
  sum.cached_tokens += more.cached_tokens;
  sum.generated_tokens += more.generated_tokens;
}

// Runs `work` on the loop and waits. The loop must be running.
void RunOn(http::EventLoop& loop, const std::function<void()>& work) {
  std::promise<void> ran;
  loop.Post([&] {
    work();
    ran.set_value();
  });
  ran.get_future().wait();
}

}  // namespace

class Engine::Impl final : public EngineSink, public std::enable_shared_from_this<Impl> {
 public:
  Impl(http::EventLoopPool& pool, const base::Clock& clock, EngineOptions options)
      : options_(std::move(options)), pool_(pool), loop_(pool.loop(0)), clock_(clock) {
    XMS_ASSERT(pool.size() == 1);
  }

  base::Status Start();
  void Register();
  void Deregister(std::function<void()> done);
  void Stop();

  void OnToken(const TokenOutput& output) override;
  void OnEvents(std::uint32_t rank, kv_events::KvBatch batch) override;

  struct Ports {
    std::uint16_t event = 0;
    std::uint16_t replay = 0;
  };
  // After Start.
  const std::string& name() const { return name_; }
  std::uint16_t port() const { return server_->port(); }
  const Ports& ports(std::uint32_t rank) const { return ports_[rank]; }
  const EngineOptions& options() const { return options_; }

 private:
  // One rank's stream as it goes out.
  struct Stream {
    std::unique_ptr<EventPublisher> publisher;  // null while its ports are being opened again
    std::uint64_t next_sequence = 0;
    std::uint64_t sent = 0;
    std::uint64_t dropped = 0;  // by faults
    std::uint64_t snapshots = 0;
    std::uint32_t drop_next = 0;
    std::uint32_t cut_next = 0;
    EventPublisher::Cut cut = EventPublisher::Cut::kTerminator;
  };

  SimTime Now() const {
    const std::chrono::duration<double, std::nano> real = clock_.Now() - started_;
    return SimTime(static_cast<SimTime::rep>(real.count() * options_.time_scale));
  }
  void BeginLife();
  base::Status OpenStreams();
  void OpenStreamsOrRetry();
  // After everything that may have moved the core: sends what it said, and asks to be woken.
  void AfterCore();
  void SendPayload(std::uint32_t rank, std::vector<std::byte> payload);
  void AnswerSnapshot(std::uint64_t life, std::uint32_t rank,
                      EventPublisher::SnapshotRequest request);

  void Handle(const std::shared_ptr<http::Exchange>& exchange);
  void Generate(ApiKind kind, const std::shared_ptr<http::Exchange>& exchange);
  void ApplyFaults(http::Exchange& exchange);
  void Restart();
  EngineState State(bool with_blocks) const;
  static void Refuse(http::Exchange& exchange, const ApiError& error);

  const EngineOptions options_;
  http::EventLoopPool& pool_;
  http::EventLoop& loop_;
  const base::Clock& clock_;
  // Set by Start, then constant.
  base::SteadyTime started_;
  std::string name_;
  std::vector<Ports> ports_;  // by rank
  std::unique_ptr<http::HttpServer> server_;

  // From here on: the loop only.
  std::uint64_t life_ = 0;
  model::ProcessIdentity identity_;
  std::unique_ptr<EngineCore> core_;
  std::vector<Stream> streams_;
  EngineTotals earlier_totals_;
  RequestId next_request_ = 1;
  std::unordered_map<RequestId, std::shared_ptr<AnswerWriter>> answers_;
  std::vector<std::shared_ptr<AnswerWriter>> to_flush_;
  std::unique_ptr<http::EventLoop::Timer> wake_timer_;
  SimTime wake_at_{0};
  std::unique_ptr<http::EventLoop::Timer> reopen_timer_;
  std::unique_ptr<Registrar> registrar_;
};

base::Status Engine::Impl::Start() {
  started_ = clock_.Now();
  for (std::uint32_t rank = 0; rank < options_.core.dp_size; ++rank) {
    const auto port_of = [&](std::uint16_t first) {
      return static_cast<std::uint16_t>(first == 0 ? 0 : first + rank);
    };
    ports_.push_back({port_of(options_.event_port), port_of(options_.replay_port)});
  }
  base::Status opened = base::Ok();
  RunOn(loop_, [&] {
    BeginLife();
    opened = OpenStreams();
    if (!opened.ok()) streams_.clear();
  });
  if (!opened.ok()) return opened;
  server_ = std::make_unique<http::HttpServer>(
      pool_,
      http::ServerOptions{.host = options_.host,
                          .port = options_.port,
                          .max_body_bytes = kMaxBodyBytes,
                          .error_body =
                              [](int status, const std::string& message) {
                                return ApiErrorJson({.status = status, .message = message});
                              }},
      [weak = weak_from_this()](const std::shared_ptr<http::Exchange>& exchange) {
        if (const auto self = weak.lock()) self->Handle(exchange);
      });
  if (auto started = server_->Start(); !started.ok()) {
    server_.reset();
    RunOn(loop_, [this] { streams_.clear(); });
    return started;
  }
  RunOn(loop_, [this] { name_ = base::StrCat(options_.host, ":", server_->port()); });
  return base::Ok();
}

void Engine::Impl::BeginLife() {
  ++life_;
  identity_ = {.incarnation_id = NewIncarnationId(),
               .register_ts_ms = static_cast<std::uint64_t>(clock_.WallMs())};
  EngineCoreOptions core = options_.core;
  // Far enough apart for ranks and lives not to meet.
  core.scheduler.blocks.hash_seed += life_ << 32U;
  core_ = std::make_unique<EngineCore>(core, *this);
  streams_.clear();
  streams_.resize(options_.core.dp_size);
  for (Stream& stream : streams_) stream.next_sequence = options_.first_sequence;
}

base::Status Engine::Impl::OpenStreams() {
  for (std::uint32_t rank = 0; rank < streams_.size(); ++rank) {
    if (streams_[rank].publisher) continue;
    auto opened =
        EventPublisher::Open({.host = options_.event_host,
                              .event_port = ports_[rank].event,
                              .replay_port = ports_[rank].replay,
                              .topic = options_.topic},
                             [this, weak = weak_from_this(), rank,
                              life = life_](EventPublisher::SnapshotRequest request) {
                               loop_.Post([weak, rank, life, asked = std::move(request)]() mutable {
                                 if (const auto self = weak.lock())
                                   self->AnswerSnapshot(life, rank, std::move(asked));
                               });
                             });
    if (!opened.ok()) return std::move(opened).error();
    streams_[rank].publisher = *std::move(opened);
    // Written once, by the opening thread: the owner reads them without asking the loop.
    if (ports_[rank].event == 0) ports_[rank].event = streams_[rank].publisher->event_port();
    if (ports_[rank].replay == 0) ports_[rank].replay = streams_[rank].publisher->replay_port();
  }
  return base::Ok();
}

void Engine::Impl::OpenStreamsOrRetry() {
  const auto opened = OpenStreams();
  if (opened.ok()) return;
  base::LogWarning(base::StrCat("sim: ", name_, ": ", opened.error().message, "; trying again"));
  reopen_timer_ = loop_.PostAfter(kReopenDelay, [this] { OpenStreamsOrRetry(); });
}

void Engine::Impl::Register() {
  if (!options_.registration) return;
  loop_.Post([self = shared_from_this()] {
    model::InstanceRecord record;
    record.id.name = self->name_;
    record.identity = self->identity_;
    record.dp_size = static_cast<std::int32_t>(self->options_.core.dp_size);
    record.data_plane = model::DataPlane::kHttp;
    self->registrar_ = std::make_unique<Registrar>(
        self->loop_, *self->options_.registration, std::move(record), [raw = self.get()] {
          raw->core_->Advance(raw->Now());
          raw->AfterCore();
          return model::LoadSample{
              .waiting_requests_num = static_cast<double>(raw->core_->waiting()),
              .gpu_cache_usage_perc = raw->core_->cache_usage()};
        });
  });
}

void Engine::Impl::Deregister(std::function<void()> done) {
  loop_.Post([self = shared_from_this(), finished = std::move(done)]() mutable {
    if (self->registrar_) {
      self->registrar_->Stop(std::move(finished));
    } else {
      finished();
    }
  });
}

void Engine::Impl::Stop() {
  if (!server_) return;
  server_->Stop();
  RunOn(loop_, [this] {
    wake_timer_.reset();
    reopen_timer_.reset();
    registrar_.reset();
    answers_.clear();
    to_flush_.clear();
    streams_.clear();
  });
  server_.reset();
}

void Engine::Impl::AfterCore() {
  for (const auto& answer : std::exchange(to_flush_, {})) answer->Flush();
  const auto next = core_->NextEvent();
  if (!next) {
    wake_timer_.reset();
    return;
  }
  if (wake_timer_ && wake_at_ <= *next) return;
  wake_at_ = *next;
  const std::chrono::duration<double, std::nano> wait(static_cast<double>((*next - Now()).count()) /
                                                      options_.time_scale);
  wake_timer_ = loop_.PostAfter(
      std::max(std::chrono::ceil<std::chrono::milliseconds>(wait), std::chrono::milliseconds(0)),
      [this] {
        wake_timer_.reset();
        core_->Advance(Now());
        AfterCore();
      });
}

void Engine::Impl::OnToken(const TokenOutput& output) {
  const auto found = answers_.find(output.id);
  if (found == answers_.end()) return;
  found->second->OnToken(output);
  if (to_flush_.empty() || to_flush_.back() != found->second) to_flush_.push_back(found->second);
  if (output.last) answers_.erase(found);
}

void Engine::Impl::OnEvents(std::uint32_t rank, kv_events::KvBatch batch) {
  batch.timestamp = static_cast<double>(clock_.WallMs()) / 1000;
  batch.dp_rank = static_cast<std::int32_t>(rank);
  std::vector<std::byte> payload;
  kv_events::EncodeBatch(batch, options_.core.scheduler.blocks.block_size, payload);
  SendPayload(rank, std::move(payload));
}

void Engine::Impl::SendPayload(std::uint32_t rank, std::vector<std::byte> payload) {
  Stream& stream = streams_[rank];
  const std::uint64_t sequence = stream.next_sequence++;
  if (stream.drop_next > 0 || !stream.publisher) {
    if (stream.drop_next > 0) --stream.drop_next;
    ++stream.dropped;
    return;
  }
  stream.publisher->Publish(sequence, std::move(payload));
  ++stream.sent;
}

void Engine::Impl::AnswerSnapshot(std::uint64_t life, std::uint32_t rank,
                                  EventPublisher::SnapshotRequest request) {
  // Asked of an earlier life, whose sockets are gone, or while stopping.
  if (life != life_ || rank >= streams_.size() || !streams_[rank].publisher) return;
  core_->Advance(Now());
  kv_events::KvBatch batch = core_->Snapshot(rank);
  batch.timestamp = static_cast<double>(clock_.WallMs()) / 1000;
  batch.dp_rank = static_cast<std::int32_t>(rank);
  std::vector<std::byte> payload;
  kv_events::EncodeBatch(batch, options_.core.scheduler.blocks.block_size, payload);
  Stream& stream = streams_[rank];
  EventPublisher::Cut cut = EventPublisher::Cut::kNone;
  if (stream.cut_next > 0) {
    --stream.cut_next;
    cut = stream.cut;
  }
  ++stream.snapshots;
  // The last sequence included; before the first message of a stream that begins at 0 that is 2^64
  // − 1.
  stream.publisher->Reply(std::move(request), stream.next_sequence - 1, std::move(payload), cut);
  AfterCore();
}

void Engine::Impl::Refuse(http::Exchange& exchange, const ApiError& error) {
  exchange.Send(JsonAnswer(exchange.request(), error.status, ApiErrorJson(error)));
}

void Engine::Impl::Handle(const std::shared_ptr<http::Exchange>& exchange) {
  const http::Request& request = exchange->request();
  using Shared = std::shared_ptr<http::Exchange>;
  struct Route {
    std::string_view path;
    std::string_view method;
    void (*serve)(Impl&, const Shared&);
  };
  static constexpr Route kRoutes[] = {
      {"/v1/completions", "POST",
       [](Impl& self, const Shared& to) { self.Generate(ApiKind::kCompletion, to); }},
      {"/v1/chat/completions", "POST",
       [](Impl& self, const Shared& to) { self.Generate(ApiKind::kChat, to); }},
      {"/v1/models", "GET",
       [](Impl& self, const Shared& to) {
         const auto created = static_cast<std::int64_t>(self.identity_.register_ts_ms / 1000);
         to->Send(JsonAnswer(to->request(), 200, ModelsJson(self.options_.model_id, created)));
       }},
      {"/health", "GET",
       [](Impl&, const Shared& to) {
         to->Send(JsonAnswer(to->request(), 200, R"({"status":"healthy"})"));
       }},
      {"/sim/state", "GET",
       [](Impl& self, const Shared& to) {
         self.core_->Advance(self.Now());
         self.AfterCore();
         std::string blocks;
         const bool with_blocks = to->request().QueryParameter("blocks", blocks) && blocks == "1";
         to->Send(JsonAnswer(to->request(), 200, EngineStateJson(self.State(with_blocks))));
       }},
      {"/sim/faults", "POST", [](Impl& self, const Shared& to) { self.ApplyFaults(*to); }},
  };
  const auto* const route = std::ranges::find(kRoutes, request.path(), &Route::path);
  if (route == std::end(kRoutes)) {
    Refuse(*exchange, {.status = 404,
                       .message = base::StrCat("there is no ", request.path(), " here"),
                       .code = "not_found"});
  } else if (request.method != route->method) {
    http::Response refusal = JsonAnswer(
        request, 405,
        ApiErrorJson({.message = base::StrCat(request.path(), " takes ", route->method)}));
    refusal.headers.Set("Allow", std::string(route->method));
    exchange->Send(std::move(refusal));
  } else {
    route->serve(*this, exchange);
  }
}

void Engine::Impl::Generate(ApiKind kind, const std::shared_ptr<http::Exchange>& exchange) {
  auto parsed = ParseApiRequest(kind, exchange->request().body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    Refuse(*exchange, *error);
    return;
  }
  ApiRequest request = std::get<ApiRequest>(std::move(parsed));
  const RequestId id = next_request_++;
  AnswerWriter::Options answer{
      .head = {.kind = kind,
               .id = base::StrCat(kind == ApiKind::kChat ? "chatcmpl-" : "cmpl-",
                                  identity_.incarnation_id, "-", id),
               .created = clock_.WallMs() / 1000,
               .model = request.model.empty() ? options_.model_id : request.model},
      .stream = request.stream,
      .include_usage = request.include_usage,
      .prompt_tokens = static_cast<std::uint32_t>(request.prompt.size()),
      .stream_interval = options_.stream_interval};
  const auto submitted = core_->Submit(
      Now(), {.id = id, .prompt = std::move(request.prompt), .max_tokens = request.max_tokens});
  if (!submitted.ok()) {
    const bool busy = submitted.error().code == base::ErrorCode::kResourceExhausted;
    ApiError error{.status = busy ? 429 : 400, .message = submitted.error().message};
    error.type = busy ? "rate_limit_error" : error.type;
    error.code = busy ? "rate_limit_exceeded" : "context_length_exceeded";
    Refuse(*exchange, error);
  } else {
    answers_.emplace(id, std::make_shared<AnswerWriter>(exchange, std::move(answer)));
    exchange->OnDisconnect([this, weak = weak_from_this(), id] {
      const auto self = weak.lock();
      if (!self || answers_.erase(id) == 0) return;
      core_->Cancel(Now(), id);
      AfterCore();
    });
  }
  AfterCore();
}

void Engine::Impl::ApplyFaults(http::Exchange& exchange) {
  const auto faults = ParseFaults(exchange.request().body, options_.core.dp_size);
  if (!faults.ok()) {
    Refuse(exchange, {.message = faults.error().message});
    return;
  }
  core_->Advance(Now());
  AfterCore();
  for (std::uint32_t rank = 0; rank < streams_.size(); ++rank) {
    if (faults->rank && *faults->rank != rank) continue;
    Stream& stream = streams_[rank];
    stream.drop_next += faults->drop_next_messages;
    if (faults->cut_snapshots > 0) {
      stream.cut_next += faults->cut_snapshots;
      stream.cut = faults->cut;
    }
    if (faults->send_bytes) SendPayload(rank, *faults->send_bytes);
  }
  if (faults->restart) Restart();
  exchange.Send(JsonAnswer(
      exchange.request(), 200,
      base::StrCat(R"({"ok":true,"incarnation_id":")", identity_.incarnation_id, R"("})")));
}

void Engine::Impl::Restart() {
  for (const auto& [id, answer] : std::exchange(answers_, {})) answer->Abort();
  to_flush_.clear();
  wake_timer_.reset();
  reopen_timer_.reset();
  AddTotals(earlier_totals_, core_->totals());
  BeginLife();
  OpenStreamsOrRetry();
  if (registrar_) registrar_->Restart(identity_);
  base::LogInfo(base::StrCat("sim: ", name_, " has restarted as ", identity_.incarnation_id));
}

EngineState Engine::Impl::State(bool with_blocks) const {
  EngineState state;
  state.name = name_;
  state.incarnation_id = identity_.incarnation_id;
  state.restarts = life_ - 1;
  state.time_scale = options_.time_scale;
  state.simulated_seconds = std::chrono::duration<double>(Now()).count();
  state.block_size = options_.core.scheduler.blocks.block_size;
  state.num_blocks = options_.core.scheduler.blocks.device_blocks;
  state.registered = registrar_ && registrar_->registered();
  state.heartbeats = registrar_ ? registrar_->heartbeats() : 0;
  state.gpu_cache_usage_perc = core_->cache_usage();
  state.totals = earlier_totals_;
  AddTotals(state.totals, core_->totals());
  for (std::uint32_t i = 0; i < streams_.size(); ++i) {
    const Stream& stream = streams_[i];
    const RankScheduler& rank = core_->rank(i);
    RankState& of_rank = state.ranks.emplace_back();
    of_rank.dp_rank = i;
    if (stream.next_sequence != options_.first_sequence)
      of_rank.sequence = stream.next_sequence - 1;
    of_rank.device_blocks = rank.blocks().device_resident();
    of_rank.host_blocks = rank.blocks().host_resident();
    of_rank.blocks_in_use = rank.blocks().in_use();
    of_rank.waiting = rank.waiting();
    of_rank.running = rank.running();
    of_rank.messages_sent = stream.sent;
    of_rank.messages_dropped =
        stream.dropped + (stream.publisher ? stream.publisher->dropped() : 0);
    of_rank.snapshots = stream.snapshots;
    if (with_blocks) of_rank.residents = rank.blocks().ResidentHashes();
  }
  return state;
}

Engine::Engine(http::EventLoopPool& pool, const base::Clock& clock, EngineOptions options)
    : impl_(std::make_shared<Impl>(pool, clock, std::move(options))) {}
Engine::~Engine() { Stop(); }

base::Status Engine::Start() { return impl_->Start(); }
void Engine::Register() { impl_->Register(); }
void Engine::Deregister(std::function<void()> done) { impl_->Deregister(std::move(done)); }
void Engine::Stop() { impl_->Stop(); }

std::string Engine::name() const { return impl_->name(); }
std::uint16_t Engine::port() const { return impl_->port(); }
std::uint16_t Engine::event_port(std::uint32_t rank) const { return impl_->ports(rank).event; }
std::uint16_t Engine::replay_port(std::uint32_t rank) const { return impl_->ports(rank).replay; }
const EngineOptions& Engine::options() const { return impl_->options(); }

}  // namespace xms::sim
