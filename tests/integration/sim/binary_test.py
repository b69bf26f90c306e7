"""The program itself: its flags, its line, its end."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request

import pytest

BINARY = os.path.join(os.environ["XMS_BIN_DIR"], "xllm_engine_sim")


def run(*arguments):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=30)


@pytest.fixture
def start():
    children = []

    def begin(*arguments):
        child = subprocess.Popen([BINARY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        children.append(child)
        return child, json.loads(child.stdout.readline())["engines"]
    yield begin
    for child in children:
        if child.poll() is None:
            child.kill()
        child.communicate()


def ports_of(engines):
    for engine in engines:
        yield engine["port"]
        for rank in range(engine["dp_size"]):
            yield engine["port"] + engine["event_port_offset"] + rank
            yield engine["port"] + engine["replay_port_offset"] + rank


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def test_help_lists_the_flags_and_is_no_error():
    answer = run("--help")
    assert answer.returncode == 0 and answer.stderr == ""
    assert "--kv_events_config=" in answer.stdout and "--service_rpc=" in answer.stdout


@pytest.mark.parametrize("arguments", [
    ["--dp_size=0"], ["--nonsense=1"], ["stray"], ["--instance_role=DECODE"], ["--kv_events_config={"],
    ["--port=65000", "--event_port_offset=1000"]])
def test_a_wrong_flag_is_one_line_and_status_2(arguments):
    answer = run(*arguments)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith("xllm_engine_sim: ") and answer.stderr.count("\n") == 1


def test_a_taken_port_is_one_line_and_status_1(start):
    _, engines = start("--engines=1")
    answer = run(f"--port={engines[0]['port']}")
    assert answer.returncode == 1
    assert str(engines[0]["port"]) in answer.stderr and "--port" in answer.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_promptly_and_leaves_nothing(start, number):
    # A service that does not exist must not hold it up.
    child, engines = start("--engine=dp_size=2", "--engine=host_blocks=16", "--service_rpc=127.0.0.1:1",
                           "--event_port_offset=1000", "--replay_port_offset=2000")
    with urllib.request.urlopen(f"http://127.0.0.1:{engines[1]['port']}/health", timeout=10) as answer:
        assert json.load(answer) == {"status": "healthy"}
    assert not any(is_free(port) for port in ports_of(engines))
    # With an answer in the middle of its stream.
    client = socket.create_connection(("127.0.0.1", engines[0]["port"]))
    body = b'{"prompt":"x","max_tokens":100000,"stream":true}'
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    assert client.recv(15).startswith(b"HTTP/1.1 200")
    began = time.monotonic()
    child.send_signal(number)
    assert child.wait(20) == 0
    assert time.monotonic() - began < 5
    client.close()
    assert all(is_free(port) for port in ports_of(engines))
