// Settings: every flag of the service with its type and default. What each means and allows is in
// flag_table.cc, docs/configuration.md and --help, all from one table.
//
// Place       Filled by ParseFlags, read by Service. Checked before any port opens.
// Threads     Plain values.
#pragma once

#include <cstdint>
#include <string>

namespace xms::app {

struct Settings {
  // Listening.
  std::string server_host;
  std::int32_t http_server_port = 8888;
  std::int32_t rpc_server_port = 8889;
  std::string advertise_addr;
  std::int32_t http_server_num_threads = 32;
  std::int32_t http_server_idle_timeout_s = -1;
  std::int32_t rpc_server_idle_timeout_s = -1;
  std::int32_t http_server_max_concurrency = 0;
  std::int64_t http_max_body_bytes = 16'777'216;
  std::int32_t drain_timeout_ms = 30000;
  std::string internal_api_token;

  // Instances.
  std::string etcd_addr;
  std::int32_t detect_disconnected_instance_interval = 15;  // seconds
  std::int32_t instance_delete_probe_timeout_ms = 1000;
  std::int32_t instance_delete_probe_attempts = 2;
  std::int32_t lease_lost_heartbeat_timeout_ms = 3000;
  std::int32_t connect_timeout_ms = -1;

  // Routing.
  std::string load_balance_policy = "RR";
  double car_prefill_lambda = 0.5;
  double car_host_hit_weight = 0.5;
  std::string kv_events_config_file;
  std::int32_t kv_warmup_ms = 2000;

  // Kept out until it exists.
  std::string tool_call_parser;
  std::string reasoning_parser;

  // Accepted so that existing command lines start; nothing reads them.
  std::string etcd_namespace;
  std::string tokenizer_path;
  std::string default_backend_type = "xllm";
  std::int32_t readiness_check_interval_s = 3;
  std::int32_t timeout_ms = -1;
  std::int32_t vllm_http_timeout_ms = 60000;
  std::int32_t target_ttft = 1000;
  std::int32_t target_tpot = 50;
  std::int32_t block_size = 128;
  std::uint32_t xxh3_128bits_seed = 1024;
  bool enable_request_trace = false;
  std::int32_t rpc_server_num_threads = 32;
  std::int32_t rpc_server_max_concurrency = 128;
  std::int32_t num_threads = 32;
  std::int32_t max_concurrency = 128;
  std::int32_t port = 8888;
  std::string listen_addr;
  std::int32_t idle_timeout_s = -1;
};

}  // namespace xms::app
