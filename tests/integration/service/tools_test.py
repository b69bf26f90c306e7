"""The tools that users are given: the demo and the trace replay, run as they would run them."""

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

from fleet import processes

TOOLS = Path(__file__).resolve().parents[3] / "tools"


def free_ports():
    """Three ports far enough apart for the demo; checked to be free now."""
    for base in range(23000, 27000, 97):
        ports = {"HTTP_PORT": base, "RPC_PORT": base + 1, "SIM_PORT": base + 2}
        wanted = [base, base + 1] + [base + 2 + engine + kind + rank for engine in (0, 10, 20, 30)
                                     for kind in (0, 1000, 2000) for rank in (0, 1)]
        if all(processes.port_is_free(port) for port in wanted):
            return ports
    raise AssertionError("no free ports between 23000 and 27000")


def environment(**more):
    return {**os.environ, "XMS_BIN_DIR": str(processes.default_bin_dir()), **{k: str(v) for k, v in more.items()}}


ROW = re.compile(r"^ *(?P<number>\d+)  (?P<what>.+?) +(?P<tokens>\d+) (?P<instance>[\d.:]+) +(?P<device>\d+) +(?P<host>\d+) +"
                 r"(?P<cost>[\d.]+|-) +(?P<ttft>[\d.]+) ms  (?P<reason>.+)$", re.MULTILINE)


def commands_with(text):
    """Command lines of all running processes that hold this text."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in command:
                found.append(command)
    return found


def test_the_demo_ends_by_itself_and_leaves_nothing_behind():
    ports = free_ports()
    ended = subprocess.run([str(TOOLS / "demo")], env=environment(DEMO_SECONDS=1, **ports), capture_output=True, text=True,
                           timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = [row.groupdict() for row in ROW.finditer(ended.stdout)]
    assert len(rows) == 7, ended.stdout
    # A turn finds all that the turn before left. Conversation B begins on the engine with two ranks, which
    # gets no credit until both ranks hold a prefix, so its second turn starts anew elsewhere.
    for earlier, later in ((0, 2), (2, 4), (3, 5)):
        assert rows[later]["instance"] == rows[earlier]["instance"], ended.stdout
        assert int(rows[later]["device"]) >= int(rows[earlier]["tokens"]), ended.stdout
    assert int(rows[6]["host"]) > 0, ended.stdout
    assert commands_with(f"--rpc_server_port={ports['RPC_PORT']} ") == []
    assert commands_with(f"--service_rpc=127.0.0.1:{ports['RPC_PORT']} ") == []
    for port in (ports["HTTP_PORT"], ports["RPC_PORT"], ports["SIM_PORT"]):
        assert processes.port_is_free(port)


def test_the_demos_curl_line_works_and_ctrl_c_ends_it():
    ports = free_ports()
    with subprocess.Popen([str(TOOLS / "demo")], env=environment(**ports), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, start_new_session=True) as demo:
        curl = ""
        for line in demo.stdout:
            if line.startswith("curl "):
                curl = line.strip()
                break
        try:
            assert curl, "the demo printed no curl line"
            answer = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=20, check=False)
            assert answer.returncode == 0, answer.stderr
            assert json.loads(answer.stdout)["usage"]["prompt_tokens"] == 17
        finally:
            os.killpg(demo.pid, signal.SIGINT)
            demo.stdout.read()
            assert demo.wait(20) == 0
    for port in (ports["HTTP_PORT"], ports["RPC_PORT"], ports["SIM_PORT"]):
        assert processes.port_is_free(port)


def test_a_taken_port_names_the_variable_that_changes_it():
    ports = free_ports()
    for variable in ("HTTP_PORT", "RPC_PORT", "SIM_PORT"):
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind((processes.HOST, ports[variable]))
            holder.listen(1)
            ended = subprocess.run([str(TOOLS / "demo")], env=environment(DEMO_SECONDS=1, **ports), capture_output=True,
                                   text=True, timeout=60, check=False)
        assert ended.returncode != 0
        assert str(ports[variable]) in ended.stderr and variable in ended.stderr


def test_the_replay_reports_what_the_engines_reused():
    ended = subprocess.run([str(TOOLS / "replay_trace"), "--synthetic", "--requests", "60", "--engines", "3", "--time_scale",
                            "50", "--max_output_tokens", "8", "--num_blocks", "2048", "--json", "-"],
                           env=environment(), capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    results = {row["policy"]: row for row in json.loads(ended.stdout)["results"]}
    assert set(results) == {"RR", "CAR"}
    for row in results.values():
        assert row["requests"] == 60 and row["errors"] == 0
        assert 0 < row["cached_tokens"] <= row["ideal_cached_tokens"] <= row["prompt_tokens"]
        assert row["busiest_share"] > 0.3
    # Which policy reused more depends on the machine's speed at this time scale: docs/benchmarks says, not a test.


def test_the_replay_names_what_is_wrong_with_a_trace(tmp_path):
    broken = tmp_path / "trace.jsonl"
    broken.write_text('{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1]}\n')
    ended = subprocess.run([str(TOOLS / "replay_trace"), "--trace", str(broken)], env=environment(), capture_output=True,
                           text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert f"{broken}:1" in ended.stderr and "input_length" in ended.stderr
