#include "app/service.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>
#include <utility>

#include "app/adapters.h"
#include "app/listen_host.h"
#include "app/readiness.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "base/thread_name.h"
#include "gateway/gateway.h"
#include "http/event_loop.h"
#include "http/server.h"
#include "instances/instance_manager.h"
#include "instances/registry/embedded_registry.h"
#include "kv_directory/directory.h"
#include "kv_index/kv_index.h"
#include "observability/metrics.h"
#include "plane_http/http_plane.h"
#include "routing/policy.h"

namespace xms::app {
namespace {

using std::chrono::milliseconds;

// Leases, states and readiness are looked at this often when nothing asks for it earlier.
constexpr milliseconds kControlPeriod{100};

// How long answers of requests that are cut off get to reach their clients.
constexpr milliseconds kLastWords{500};

std::size_t LoopCount(const Settings& settings) {
  const std::size_t processors = std::max(1U, std::thread::hardware_concurrency());
  return std::clamp<std::size_t>(static_cast<std::size_t>(settings.http_server_num_threads), 1,
                                 processors);
}

std::unique_ptr<routing::Policy> MakePolicy(const Settings& settings) {
  if (settings.load_balance_policy == "CAR") {
    return routing::MakeCacheAware({.prefill_lambda = settings.car_prefill_lambda,
                                    .host_hit_weight = settings.car_host_hit_weight});
  }
  return routing::MakeRoundRobin();
}

// Nobody outside can choose prompts or hashes that meet in one place of the index.
std::uint64_t RandomSalt() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

// −1 means "no limit" to upstream; towards engines that would let one hung peer hold a request for
// ever.
milliseconds ConnectTimeout(const Settings& settings) {
  constexpr milliseconds kDefault{5000};
  return settings.connect_timeout_ms < 0 ? kDefault : milliseconds(settings.connect_timeout_ms);
}

}  // namespace

struct Service::Impl {
  Impl(Settings given, kv_directory::DirectoryConfig directory_config,
       std::vector<std::string> flag_warnings)
      : settings(std::move(given)),
        warnings(std::move(flag_warnings)),
        directory_enabled(directory_config.enabled()),
        loops(LoopCount(settings)),
        index({.max_blocks_per_stream = directory_config.limits.max_blocks_per_stream,
               .salt = RandomSalt()}),
        probe(loops.loop(0), {.timeout = milliseconds(settings.instance_delete_probe_timeout_ms),
                              .attempts = settings.instance_delete_probe_attempts}),
        manager(
            {.lease_lost_heartbeat_timeout = milliseconds(settings.lease_lost_heartbeat_timeout_ms),
             .detect_disconnected_interval =
                 std::chrono::seconds(settings.detect_disconnected_instance_interval)},
            clock, probe),
        registry(clock, manager),
        source(manager),
        directory(std::move(directory_config), index, clock, &source, metrics),
        policy(MakePolicy(settings)),
        plane(loops, {.connect_timeout = ConnectTimeout(settings)}),
        gateway(GatewayOptions(), GatewayPorts()),
        gate({.warmup = milliseconds(settings.kv_warmup_ms)}, clock.Now()) {}

  gateway::Options GatewayOptions() const {
    return {.internal_api_token = settings.internal_api_token,
            .http_max_body_bytes = static_cast<std::size_t>(settings.http_max_body_bytes),
            .max_concurrency = static_cast<std::size_t>(settings.http_server_max_concurrency),
            .request_timeout = milliseconds(
                settings.vllm_http_timeout_ms == 0 ? -1 : settings.vllm_http_timeout_ms)};
  }

  gateway::Ports GatewayPorts() {
    gateway::Ports ports;
    ports.clock = &clock;
    ports.index = directory_enabled ? &index : nullptr;
    ports.instances = &manager;
    ports.registry = &registry;
    ports.policy = policy.get();
    ports.http_plane = &plane;
    ports.metrics = &metrics;
    ports.excluded = [this] {
      std::vector<std::pair<std::string, std::string>> out;
      for (kv_directory::Excluded& entry : directory.CurrentlyExcluded()) {
        out.emplace_back(std::move(entry.instance_name), std::move(entry.reason));
      }
      return out;
    };
    ports.not_ready_reasons = [this] {
      base::MutexLock lock(mu);
      return gate.Reasons();
    };
    ports.config_json = [this] { return SettingsJson(settings); };
    return ports;
  }

  http::ServerOptions ServerOptionsFor(std::uint16_t port, int idle_timeout_s) {
    http::ServerOptions options;
    options.host = settings.server_host;
    options.port = port;
    options.max_body_bytes = static_cast<std::size_t>(settings.http_max_body_bytes);
    options.idle_timeout =
        idle_timeout_s < 0 ? milliseconds(-1) : std::chrono::seconds(idle_timeout_s);
    options.on_headers = [this](const http::Request& request) {
      return gateway.RefuseAtHeaders(request);
    };
    options.on_refusal = [this](const http::Refusal& refusal) {
      return gateway.AnswerRefusal(refusal);
    };
    return options;
  }

  void AddGauges();
  base::Status Start();
  void Stop();
  void Control(const std::stop_token& stop);
  void OpenOrCloseClientPort(bool open);
  void Wake() {
    base::MutexLock lock(mu);
    wake = true;
    changed.NotifyAll();
  }

  const Settings settings;
  const std::vector<std::string> warnings;
  const bool directory_enabled;
  base::SystemClock clock;
  observability::MetricRegistry metrics;
  http::EventLoopPool loops;
  kv_index::KvIndex index;
  HttpHealthProbe probe;
  instances::InstanceManager manager;
  instances::EmbeddedRegistry registry;
  InstanceSourceAdapter source;
  kv_directory::Directory directory;
  std::unique_ptr<routing::Policy> policy;
  plane_http::HttpPlane plane;
  gateway::Gateway gateway;
  std::unique_ptr<http::HttpServer> rpc_server;
  std::unique_ptr<http::HttpServer> http_server;
  bool client_port_open = false;  // control thread, then Stop

  base::Mutex mu;
  base::CondVar changed;
  bool wake XMS_GUARDED_BY(mu) = false;
  bool drain_ended XMS_GUARDED_BY(mu) = false;
  ReadinessGate gate XMS_GUARDED_BY(mu);
  bool stopped = false;
  std::jthread control;
};

// Values that are cheaper to read when somebody asks than to keep.
void Service::Impl::AddGauges() {
  const auto view_bytes =
      metrics.AddGauge("xms_kv_index_view_bytes", "Memory of the shared prefix views");
  const auto ledger_bytes =
      metrics.AddGauge("xms_kv_index_ledger_bytes", "Memory of the streams' ledgers");
  const auto entries = metrics.AddGauge("xms_kv_index_entries", "Distinct blocks with a resident");
  const auto known = metrics.AddGauge("xms_instances", "Instances that are registered");
  const auto schedulable =
      metrics.AddGauge("xms_instances_schedulable", "Of these, the ones that can take requests");
  metrics.AddSampler([this](observability::Samples& samples) {
    samples.Counter("xms_engine_repeated_requests_total",
                    "Requests sent again because a kept connection to the engine had ended", {},
                    static_cast<double>(plane.repeated_requests()));
  });
  metrics.AddCollector([=, this] {
    const kv_index::KvIndex::MemoryUse memory = index.Memory();
    view_bytes.Set(static_cast<double>(memory.view_bytes));
    ledger_bytes.Set(static_cast<double>(memory.ledger_bytes));
    entries.Set(static_cast<double>(memory.view_entries));
    const auto view = manager.view();
    known.Set(static_cast<double>(view->instances.size()));
    schedulable.Set(static_cast<double>(
        std::count_if(view->instances.begin(), view->instances.end(),
                      [](const auto& instance) { return instance->schedulable; })));
  });
}

base::Status Service::Impl::Start() {
  AddGauges();
  base::LogInfo(base::StrCat("xllm_master_serving: ", registry.Describe(), ", policy ",
                             policy->name(), directory_enabled ? "" : ", kv directory off"));
  for (const std::string& warning : warnings) base::LogWarning(warning);
  if (!directory_enabled && settings.load_balance_policy == "CAR") {
    base::LogWarning(
        "CAR without a KV directory: every hit ratio is 0; set --kv_events_config_file");
  }
  if (settings.internal_api_token.empty() && IsBeyondLoopback(settings.server_host)) {
    base::LogWarning(base::StrCat(
        "listening on ", settings.server_host.empty() ? "all interfaces" : settings.server_host,
        " without --internal_api_token: /v1/internal/* is open to whoever reaches these ports"
        " (registry writes from loopback only)"));
  }

  rpc_server = std::make_unique<http::HttpServer>(
      loops,
      ServerOptionsFor(static_cast<std::uint16_t>(settings.rpc_server_port),
                       settings.rpc_server_idle_timeout_s),
      [this](std::shared_ptr<http::Exchange> exchange) {
        gateway.HandleRpcPort(std::move(exchange));
      });
  http_server = std::make_unique<http::HttpServer>(
      loops,
      ServerOptionsFor(static_cast<std::uint16_t>(settings.http_server_port),
                       settings.http_server_idle_timeout_s),
      [this](std::shared_ptr<http::Exchange> exchange) {
        gateway.HandlePublic(std::move(exchange));
      });
  // Reserved now, so that a taken port ends the start; it listens with readiness.
  if (base::Status bound = http_server->Bind(); !bound.ok()) {
    return std::move(bound).error().With("--http_server_port");
  }
  if (base::Status opened = rpc_server->Start(); !opened.ok()) {
    return std::move(opened).error().With("--rpc_server_port");
  }
  base::LogInfo(base::StrCat("listening: rpc_port=", rpc_server->port(),
                             " http_port=", http_server->port(),
                             " (the client port opens when an instance can serve)"));

  manager.SetListener([this] {
    directory.RefreshSoon();
    gateway.OnInstancesChanged();
    Wake();
  });
  if (directory_enabled) directory.Start();
  control = std::jthread([this](const std::stop_token& stop) {
    base::NameThisThread("xms-control");
    Control(stop);
  });
  return base::Ok();
}

void Service::Impl::Control(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    registry.Tick();
    manager.Tick();
    const bool group = manager.view()->GroupCanServe();
    const bool settled = !directory_enabled || directory.Settled();
    bool open = false;
    {
      base::MutexLock lock(mu);
      open = gate.Update(clock.Now(), group, settled);
    }
    OpenOrCloseClientPort(open);
    base::MutexLock lock(mu);
    if (!wake && !stop.stop_requested()) changed.WaitFor(mu, kControlPeriod);
    wake = false;
  }
}

void Service::Impl::OpenOrCloseClientPort(bool open) {
  if (open == client_port_open) return;
  if (open) {
    if (base::Status started = http_server->Start(); !started.ok()) {
      // Tried again at the next turn; somebody may hold the port for a moment.
      base::LogError(base::StrCat("client port: ", started.error().message));
      return;
    }
    base::LogInfo(base::StrCat("ready: client port ", http_server->port(), " is open"));
  } else {
    http_server->StopAccepting();
    base::LogWarning("not ready: no instance group can serve; the client port is closed");
  }
  client_port_open = open;
}

void Service::Impl::Stop() {
  if (stopped) return;
  stopped = true;
  {
    base::MutexLock lock(mu);
    gate.Stopping();
  }
  // First, so that it does not open the port again; leases and states stay as they are for the
  // drain.
  if (control.joinable()) {
    control.request_stop();
    Wake();
    control.join();
  }
  if (http_server) http_server->StopAccepting();
  const auto deadline = clock.Now() + milliseconds(settings.drain_timeout_ms);
  {
    base::MutexLock lock(mu);
    while (gateway.requests_in_flight() > 0 && clock.Now() < deadline && !drain_ended) {
      changed.WaitFor(mu, milliseconds(10));
    }
  }
  if (const std::size_t left = gateway.requests_in_flight(); left > 0) {
    base::LogWarning(base::StrCat("drain ended: ", left, " requests are cut off"));
    gateway.EndAll();
    // Their last words have to go out before the connections close; clients may be slow.
    const auto word_deadline = clock.Now() + kLastWords;
    base::MutexLock lock(mu);
    while (http_server->open_connections() > 0 && clock.Now() < word_deadline) {
      changed.WaitFor(mu, milliseconds(10));
    }
  }
  if (http_server) http_server->Stop();
  if (rpc_server) rpc_server->Stop();
  directory.Stop();
  registry.Stop();
  loops.Stop();
}

Service::Service(Settings settings, kv_directory::DirectoryConfig directory,
                 std::vector<std::string> warnings)
    : impl_(
          std::make_unique<Impl>(std::move(settings), std::move(directory), std::move(warnings))) {}

Service::~Service() { Stop(); }

base::Status Service::Start() { return impl_->Start(); }

void Service::Stop() { impl_->Stop(); }

void Service::EndDrain() {
  base::MutexLock lock(impl_->mu);
  impl_->drain_ended = true;
  impl_->changed.NotifyAll();
}

std::uint16_t Service::rpc_port() const { return impl_->rpc_server->port(); }

std::uint16_t Service::http_port() const { return impl_->http_server->port(); }

}  // namespace xms::app
