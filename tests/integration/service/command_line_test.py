"""A wrong flag or file: one line, status 2, no port opened. --help: status 0."""

import json
import subprocess

import pytest

from fleet import processes

PROGRAM = processes.default_bin_dir() / "xllm_master_serving"


def run(*arguments):
    return subprocess.run([str(PROGRAM), *arguments], capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize("argument, named", [
    ("--car_prefill_lambda=1.5", "car_prefill_lambda"),
    ("--car_prefill_lambda=nan", "car_prefill_lambda"),
    ("--car_host_hit_weight=-0.1", "car_host_hit_weight"),
    ("--http_server_port=65536", "http_server_port"),
    ("--http_server_port=0x10", "http_server_port"),
    ("--load_balance_policy=SLO_AWARE", "load_balance_policy"),
    ("--load_balance_policy=random", "load_balance_policy"),
    ("--etcd_addr=127.0.0.1:2379", "etcd_addr"),
    ("--tool_call_parser=auto", "tool_call_parser"),
    ("--no_such_flag=1", "no_such_flag"),
    ("left-over", "left-over"),
    ("--kv_events_config_file=/no/such/file.json", "/no/such/file.json"),
])
# A6
def test_a_wrong_argument_is_one_line_that_names_it(argument, named):
    ended = run(argument)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert named in ended.stderr


@pytest.mark.parametrize("config, named", [
    ({"discovery": {"refresh_interval_ms": 49}}, ["discovery.refresh_interval_ms", "49", "50", "60000"]),
    ({"max_streams": 129}, ["max_streams", "129", "128"]),
    ({"no_such_key": 1}, ["no_such_key"]),
    ({"discovery": {"block_size": 1.5}}, ["discovery.block_size", "1.5"]),
    ({"streams": [{"instance_name": "a:1", "endpoint": "tcp://*:1", "replay_endpoint": "tcp://127.0.0.1:2"}]},
     ["streams[0].endpoint", "tcp://*:1"]),
])
# A2
def test_a_wrong_configuration_names_file_field_value_and_range(tmp_path, config, named):
    path = tmp_path / "kv.json"
    path.write_text(json.dumps(config))
    ended = run(f"--kv_events_config_file={path}")
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    for word in [str(path), *named]:
        assert word in ended.stderr


def test_help_lists_the_flags_and_succeeds():
    ended = run("--help")
    assert ended.returncode == 0
    assert ended.stderr == ""
    for flag in ("car_prefill_lambda", "kv_events_config_file", "http_server_port"):
        assert flag in ended.stdout


def test_a_taken_port_is_named_with_its_flag(tmp_path):
    import socket
    with socket.socket() as holder:
        holder.bind((processes.HOST, 0))
        holder.listen(1)
        taken = holder.getsockname()[1]
        ended = run(f"--server_host={processes.HOST}", f"--http_server_port={taken}", "--rpc_server_port=0")
    assert ended.returncode == 1
    assert "http_server_port" in ended.stderr and str(taken) in ended.stderr


# A1
def test_car_without_a_directory_is_said_once_at_start():
    with subprocess.Popen([str(PROGRAM), "--load_balance_policy=CAR", f"--server_host={processes.HOST}",
                           "--http_server_port=0", "--rpc_server_port=0"],
                          stderr=subprocess.PIPE, text=True) as service:
        # The ports are opened behind the warnings.
        lines = []
        for line in service.stderr:
            lines.append(line)
            if "listening" in line:
                break
        service.terminate()
        lines += service.stderr.readlines()
        assert service.wait(timeout=20) == 0
    assert sum("CAR without a KV directory" in line for line in lines) == 1, "".join(lines)
