"""The tools that users are given: the demo and the trace replay, run as they would run them."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest

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
        assert row["unlocated"] == 0
    # Round robin shares out evenly: 20 of 60.
    assert results["RR"]["busiest_share"] == 0.333
    # Which policy reused more depends on the machine's speed at this time scale: docs/benchmarks says, not a test.


def replay(*arguments, **more):
    """One run of the tool to its end."""
    return subprocess.run([str(TOOLS / "replay_trace"), *map(str, arguments)], env=environment(**more), capture_output=True,
                          text=True, timeout=60, check=False)


@contextlib.contextmanager
def scripted_server(answer):
    """(url, list of requests' bodies). `answer(number)` gives the bytes for the connection's request of that number,
    counted over all connections; the connection is closed behind them unless they say how long they are."""
    requests, stop = [], threading.Event()

    def serve(connection):
        with connection, connection.makefile("rb") as stream:
            while True:
                length, lines = 0, 0
                while (line := stream.readline()).strip():
                    lines += 1
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                if not lines:
                    return
                requests.append(stream.read(length))
                data, keep = answer(len(requests) - 1)
                connection.sendall(data)
                if not keep:
                    return

    def accept(listener):
        while not stop.is_set():
            connection, _ = listener.accept()
            if stop.is_set():
                connection.close()
            else:
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server((processes.HOST, 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener,))
        thread.start()
        address = listener.getsockname()
        try:
            yield f"http://{processes.HOST}:{address[1]}", requests
        finally:
            stop.set()
            socket.create_connection(address).close()
            thread.join()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(text):
    return b"%x\r\n%s\r\n" % (len(text), text)


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}\n\n'
WHOLE = HEAD + chunk(USAGE) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


@pytest.mark.parametrize(("data", "kind"), [
    (HEAD + chunk(b"data: {}\n\n"), "connection ended within the answer"),
    (HEAD + b"40\r\ndata", "connection ended within the answer"),
    (HEAD[:20], "connection ended within the answer"),
    (b"", "connection ended before the answer"),
    (HEAD + b"zz\r\n", "not HTTP"),
    (b"junk\r\n\r\n", "not HTTP"),
    (HEAD + chunk(USAGE) + b"0\r\n\r\n", "stream ended without [DONE]"),
    (HEAD + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n", "answer without usage"),
    (HEAD + chunk(b'data: {"error":{"message":"x"}}\n\n') + b"0\r\n\r\n", "error event in the stream"),
    (HEAD + chunk(b'data: {"usage":\n\n') + b"0\r\n\r\n", "an event is not JSON"),
    (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "status 503"),
])
def test_a_replay_counts_every_way_in_which_an_answer_fails(data, kind):
    with scripted_server(lambda number: (data, False)) as (url, requests):
        ended = replay("--synthetic", "--requests", 3, "--time_scale", 10000, "--url", url, "--json", "-")
    assert ended.returncode == 1, ended.stderr
    row, = json.loads(ended.stdout)["results"]
    assert (row["done"], row["errors"], row["error_kinds"]) == (0, 3, {kind: 3})
    assert len(requests) == 3  # none was sent twice


def test_a_replay_shows_done_and_errors_by_kind_in_its_table():
    with scripted_server(lambda number: (WHOLE, True) if number else (HEAD, False)) as (url, _):
        ended = replay("--synthetic", "--requests", 4, "--time_scale", 10000, "--url", url, "--repetitions", 1)
    assert ended.returncode == 1
    assert "| as-configured | 3 | 1 | 12 |" in ended.stdout, ended.stdout
    assert "1 × connection ended within the answer" in ended.stdout, ended.stdout


def test_a_replay_that_reaches_nobody_fails():
    with socket.create_server((processes.HOST, 0)) as closed:
        url = f"http://{processes.HOST}:{closed.getsockname()[1]}"
    ended = replay("--synthetic", "--requests", 2, "--time_scale", 10000, "--url", url, "--json", "-")
    assert ended.returncode == 1
    row, = json.loads(ended.stdout)["results"]
    assert (row["done"], row["error_kinds"]) == (0, {"cannot connect": 2})


@pytest.mark.parametrize(("second", "sent"), [(b"", 3), (HEAD[:9], 2), (HEAD + chunk(b"data: {}\n\n"), 2)])
def test_a_request_is_sent_again_only_when_a_kept_connection_gave_not_one_byte(second, sent):
    def answer(number):
        return (second, False) if number == 1 else (WHOLE, True)
    with scripted_server(answer) as (url, requests):
        ended = replay("--synthetic", "--requests", 2, "--time_scale", 10000, "--concurrency", 1, "--url", url, "--json", "-")
    row, = json.loads(ended.stdout)["results"]
    assert len(requests) == sent, row
    assert row["done"] + row["errors"] == 2 and row["errors"] == (0 if sent == 3 else 1)


@pytest.mark.parametrize(("flag", "value"), [
    ("max_output_tokens", 0), ("url", "https://127.0.0.1:80"), ("url", "http://127.0.0.1:99999"), ("url", "http://127.0.0.1"),
    ("url", ""), ("time_scale", "inf"), ("time_scale", "nan"), ("time_scale", 0), ("time_scale", -1), ("engines", 129),
    ("engines", 0), ("host_blocks", -1), ("car_prefill_lambda", 1.01), ("car_prefill_lambda", -0.1), ("repetitions", 0),
    ("policies", "NO"), ("block_size", 100), ("bin_dir", "/nonexistent"), ("requests", "x"),
])
def test_a_wrong_flag_of_the_replay_ends_it_with_one_line(flag, value):
    ended = replay("--synthetic", f"--{flag}={value}")
    assert ended.returncode == 2 and ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert f"--{flag}" in ended.stderr and str(value) in ended.stderr


@pytest.mark.parametrize(("line", "field"), [
    ('"input_length": 600, "output_length": 1, "hash_ids": [1], "timestamp": 0', "input_length"),
    ('"input_length": 9, "output_length": 1, "hash_ids": [1]', "timestamp"),
    ('"timestamp": NaN, "input_length": 9, "output_length": 1, "hash_ids": [1]', "timestamp"),
    ('"timestamp": -1, "input_length": 9, "output_length": 1, "hash_ids": [1]', "timestamp"),
    ('"timestamp": 1e300, "input_length": 9, "output_length": 1, "hash_ids": [1]', "timestamp"),
    ('"timestamp": 1' + "0" * 400 + ', "input_length": 9, "output_length": 1, "hash_ids": [1]', "timestamp"),
    ('"timestamp": 1e13, "input_length": 9, "output_length": 1, "hash_ids": [1]', "timestamp"),
    ('"timestamp": true, "input_length": 9, "output_length": 1, "hash_ids": [1]', "timestamp"),
    ('"timestamp": 0, "input_length": 9.5, "output_length": 1, "hash_ids": [1]', "input_length"),
    ('"timestamp": 0, "input_length": 9, "output_length": -1, "hash_ids": [1]', "output_length"),
    ('"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1.5]', "hash_ids"),
    ('"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": 7', "hash_ids"),
])
def test_the_replay_names_file_line_and_field_of_a_bad_trace(tmp_path, line, field):
    broken = tmp_path / "trace.jsonl"
    good = '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}'
    broken.write_text(f"{good}\n{{{line}}}\n")
    ended = replay("--trace", broken)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert f"{broken}:2: " in ended.stderr and field in ended.stderr


@pytest.mark.parametrize("content", [b"\x7fELF\xff\xfe\0\n", b"[1]", b"[" * 100000, b""])
def test_a_file_that_is_no_trace_is_one_line_too(tmp_path, content):
    broken = tmp_path / "trace.jsonl"
    broken.write_bytes(content)
    ended = replay("--trace", broken)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1 and str(broken) in ended.stderr, ended.stderr


def test_timestamps_count_from_the_first_request(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 1767225600000, "input_length": 9, "output_length": 1, "hash_ids": [1]}\n')
    with scripted_server(lambda number: (WHOLE, True)) as (url, _):
        assert replay("--trace", path, "--url", url).returncode == 0


def test_missing_programs_are_named_with_the_remedy(tmp_path):
    ended = subprocess.run([str(TOOLS / "demo")], env={**environment(**free_ports()), "XMS_BIN_DIR": str(tmp_path)},
                           capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert str(tmp_path / "xllm_master_serving") in ended.stderr and "make build" in ended.stderr


@pytest.mark.parametrize(("change", "variables"), [
    (lambda p: {"HTTP_PORT": p["SIM_PORT"]}, ("HTTP_PORT", "SIM_PORT")),
    (lambda p: {"RPC_PORT": p["HTTP_PORT"]}, ("HTTP_PORT", "RPC_PORT")),
    (lambda p: {"SIM_PORT": p["HTTP_PORT"] - 1000}, ("HTTP_PORT", "SIM_PORT")),   # an engine's events
    (lambda p: {"SIM_PORT": p["RPC_PORT"] - 2030}, ("RPC_PORT", "SIM_PORT")),     # an engine's snapshots
])
def test_ports_of_the_demo_that_meet_are_named_by_both_variables(change, variables):
    ports = free_ports()
    ports.update(change(ports))
    ended = subprocess.run([str(TOOLS / "demo")], env=environment(DEMO_SECONDS=1, **ports), capture_output=True, text=True,
                           timeout=60, check=False)
    assert ended.returncode == 1 and ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert all(f"{variable}={ports[variable]} " in ended.stderr for variable in variables), ended.stderr


def test_a_reader_that_leaves_ends_the_demo_with_one_line_and_no_process():
    ports = free_ports()
    with subprocess.Popen([str(TOOLS / "demo")], env=environment(**ports), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as demo:
        demo.stdout.readline()
        demo.stdout.close()
        told = demo.stderr.read()
        assert demo.wait(30) == 128 + signal.SIGPIPE
    assert len(told.splitlines()) == 1, told
    assert processes_of(ports) == []


def processes_of(ports):
    return (commands_with(f"--rpc_server_port={ports['RPC_PORT']} ")
            + commands_with(f"--service_rpc=127.0.0.1:{ports['RPC_PORT']} "))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("when", ["service up", "Ctrl-C ends it."])
def test_a_signal_to_the_demos_process_group_leaves_nothing(number, when):
    ports = free_ports()
    # As make does: a parent in the same group, which passes on the signal that it got itself.
    forwards = "trap 'kill -TERM $demo' TERM INT; \"$0\" & demo=$!; wait $demo; wait $demo"
    with subprocess.Popen(["bash", "-c", forwards, str(TOOLS / "demo")], env=environment(**ports), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, start_new_session=True) as group:
        for line in group.stdout:
            if line.startswith(when):
                break
        assert len(processes_of(ports)) == 2
        os.killpg(group.pid, number)
        told = group.stdout.read()
        group.wait(30)
    assert "Traceback" not in told, told
    processes.wait_for("the demo's processes to be gone", lambda: processes_of(ports) == [], 15)


def replays_children(pid):
    """Process ids below this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "stat").read_text().rsplit(")", 1)[1].split()[1] == str(pid):
                    found.append(int(entry.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_the_replay_leaves_nothing(number):
    with subprocess.Popen([str(TOOLS / "replay_trace"), "--synthetic", "--time_scale", "1", "--engines", "1"],
                          env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as tool:
        processes.wait_for("the progress of requests", lambda: "requests" in tool.stderr.read(64), 30)
        children = replays_children(tool.pid)
        assert len(children) == 2
        os.killpg(tool.pid, number)
        told = tool.stderr.read()
        status = tool.wait(30)
    assert status == (-number if number == signal.SIGKILL else 128 + number), told
    assert "Traceback" not in told and "never retrieved" not in told, told
    processes.wait_for("the replay's processes to be gone",
                       lambda: not any(Path(f"/proc/{child}").exists() for child in children), 15)
