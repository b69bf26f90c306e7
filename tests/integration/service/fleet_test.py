"""The service with a simulated fleet: credit, its loss and its return, engines that come and go."""

import json
import re
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from fleet import processes

BLOCK = 16
EVENT_OFFSET = 1000  # as Fleet starts both programs


def post(url, body, headers=None):
    """(status, headers, body); any status."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method="POST",
                                     headers={"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def get_json(url):
    status, body = processes.http_get(url)
    assert status == 200, (url, status, body)
    return json.loads(body)


def matches(fleet, tokens):
    status, _, body = post(f"{fleet.http_url}/v1/internal/kv-cache/query", {"token_ids": tokens})
    assert status == 200
    return {(m["instance_name"], m["dp_rank"]): m for m in json.loads(body)["matches"]}


def complete(fleet, tokens, **more):
    return post(f"{fleet.http_url}/v1/completions", {"model": "sim", "prompt": tokens, "max_tokens": 4, **more})


def decision(fleet, request_id):
    found = get_json(f"{fleet.rpc_url}/v1/internal/routing/decisions?request_id={request_id}")["decisions"]
    assert len(found) == 1, found
    return found[0]


def metric(fleet, name):
    text = processes.http_get(f"{fleet.rpc_url}/metrics")[1].decode()
    values = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
              if line.split("{")[0].split(" ")[0] == name]
    assert values, f"{name} is not in /metrics"
    return sum(values)


@pytest.fixture
def fleet():
    with processes.Fleet(processes.default_bin_dir(), block_size=BLOCK,
                         sim_flags=["--engines=3", "--time_scale=20"]) as started:
        started.wait_ready()
        yield started


def test_a_prompt_goes_back_to_the_engine_that_holds_it(fleet):
    tokens = list(range(1000, 1000 + 20 * BLOCK))
    status, headers, body = complete(fleet, tokens)
    assert status == 200
    first = decision(fleet, headers["x-request-id"])
    assert json.loads(body)["usage"]["prompt_tokens"] == len(tokens)

    def known():
        return matches(fleet, tokens)[first["instance"], 0]["reusable_prefix_tokens"] == len(tokens)
    processes.wait_for("the first prompt in the directory", known, 10)
    # Everybody else has nothing of it.
    assert sum(m["reusable_prefix_tokens"] > 0 for m in matches(fleet, tokens).values()) == 1

    status, headers, body = complete(fleet, tokens + [5] * BLOCK)
    assert status == 200
    second = decision(fleet, headers["x-request-id"])
    assert second["instance"] == first["instance"]
    usage = json.loads(body)["usage"]
    # What the directory promised is what the engine found.
    assert usage["prompt_tokens_details"]["cached_tokens"] == len(tokens)
    assert second["cached_tokens"] == len(tokens)


def test_a_restarted_engine_has_no_credit_before_its_own_snapshot(fleet):
    tokens = list(range(7000, 7000 + 10 * BLOCK))
    _, headers, _ = complete(fleet, tokens)
    holder = decision(fleet, headers["x-request-id"])["instance"]
    processes.wait_for("the prompt in the directory",
                       lambda: matches(fleet, tokens)[holder, 0]["reusable_prefix_tokens"] > 0, 10)
    old = matches(fleet, tokens)[holder, 0]
    assert post(f"http://{holder}/sim/faults", {"restart": True})[0] == 200
    # The new life's first snapshot is cut, so that there is time to look; asked without a pause. Once the end of the old
    # life was noticed, which is long before the snapshot, nothing of it may show again.
    assert post(f"http://{holder}/sim/faults", {"cut_snapshots": 1})[0] == 200
    noticed, deadline = False, time.monotonic() + 20
    while True:
        now = matches(fleet, tokens).get((holder, 0))
        if now is not None and now["synchronized"] and now["identity"] != old["identity"]:
            break
        noticed = noticed or now is None or not now["synchronized"]
        assert not noticed or now is None or now["reusable_prefix_tokens"] == 0, (old, now)
        assert time.monotonic() < deadline, ("no snapshot of the new life", now)
    assert noticed, "the old life counted until the new one's snapshot"
    assert now["reusable_prefix_tokens"] == 0 and now["device_blocks"] == 0
    assert all(m["reusable_prefix_tokens"] == 0 for m in matches(fleet, tokens).values())


# H3
def test_lost_messages_and_garbage_cost_one_stream_its_credit_only_until_the_snapshot(fleet):
    for number, fault in enumerate([{"drop_next_messages": 1, "cut_snapshots": 1},
                                       {"send_bytes": "c1", "cut_snapshots": 1}]):
        shared = list(range(100_000 * (number + 1), 100_000 * (number + 1) + 8 * BLOCK))
        _, headers, _ = complete(fleet, shared)
        holder = decision(fleet, headers["x-request-id"])["instance"]
        processes.wait_for("the prompt in the directory",
                           lambda: matches(fleet, shared)[holder, 0]["reusable_prefix_tokens"] == len(shared), 10)
        assert post(f"http://{holder}/sim/faults", fault)[0] == 200
        # Two more prompts, so that a dropped message is followed by one that shows the gap.
        for extra in range(2):
            assert post(f"http://{holder}/v1/completions",
                        {"model": "sim", "prompt": shared + [extra] * BLOCK, "max_tokens": 1})[0] == 200
        longest = shared + [1] * BLOCK

        def synchronized():
            """Of the holder; everybody else is, whenever one looks."""
            answer = matches(fleet, longest)
            assert len(answer) == 3
            assert all(m["synchronized"] for (name, _), m in answer.items() if name != holder), answer
            return answer[holder, 0]["synchronized"]
        # The snapshots that would help are cut, so that there is time to look.
        processes.wait_for("the fault to be noticed", lambda: not synchronized(), 20)
        assert matches(fleet, longest)[holder, 0]["reusable_prefix_tokens"] == 0
        processes.wait_for("the stream to be synchronized again", synchronized, 30)
        assert matches(fleet, longest)[holder, 0]["reusable_prefix_tokens"] == len(longest)
    assert metric(fleet, "xms_kv_stream_gaps_total") >= 1


def test_a_head_of_models_is_answered(fleet):
    request = urllib.request.Request(f"{fleet.http_url}/v1/models", method="HEAD")
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 200 and answer.read() == b""
        length = int(answer.headers["Content-Length"])
    assert length == len(processes.http_get(f"{fleet.http_url}/v1/models")[1])


def test_requests_in_flight_are_zero_however_they_ended(fleet):
    assert complete(fleet, [1] * 40)[0] == 200
    assert complete(fleet, [2] * 40, stream=True)[0] == 200
    assert complete(fleet, "text")[0] == 200
    assert complete(fleet, [-1])[0] == 400
    assert post(f"{fleet.http_url}/v1/completions", b"{")[0] == 400
    # A client that goes away in the middle of a long answer.
    import socket
    body = json.dumps({"model": "sim", "prompt": [3] * 40, "max_tokens": 100000, "stream": True}).encode()
    with socket.create_connection((processes.HOST, fleet.http_port)) as gone:
        gone.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        assert gone.recv(64)
    processes.wait_for("no request in flight", lambda: metric(fleet, "xms_requests_in_flight") == 0, 10)

    def engines_idle():
        return all(get_json(f"http://{engine['name']}/sim/state")["running"] == 0 for engine in fleet.engines)
    processes.wait_for("the engine to have stopped working for a client that is gone", engines_idle, 10)


def test_requests_after_an_engine_process_died_are_served_by_the_others(fleet):
    tokens = list(range(50 * BLOCK))
    _, headers, _ = complete(fleet, tokens)
    holder = decision(fleet, headers["x-request-id"])["instance"]
    second = processes.Process("second xllm_engine_sim", [*fleet.sim.command, "--engines=1"],
                               fleet.sim.log_path.with_name("second.log"))
    try:
        def loads():
            listed = get_json(f"{fleet.rpc_url}/v1/internal/instances")["instances"]
            return [i["name"] for i in listed if i["schedulable"] and i["load"]]
        processes.wait_for("the fourth engine", lambda: len(loads()) == 4, 20, second.check_alive)
        alive, = set(loads()) - {engine["name"] for engine in fleet.engines}
        fleet.sim.signal(signal.SIGKILL)
        processes.wait_for("the end of the first three", lambda: fleet.sim.returncode() is not None, 10)
        # At once: nothing but refused connections says that they are gone.
        for _ in range(5):
            status, headers, body = complete(fleet, tokens)
            assert status == 200, body
            last = decision(fleet, headers["x-request-id"])
            assert last["instance"] == alive != holder
    finally:
        assert second.stop() == 0


def test_when_every_engine_is_dead_requests_are_refused_until_one_is_back(fleet):
    tokens = list(range(50 * BLOCK))
    assert complete(fleet, tokens)[0] == 200
    fleet.sim.signal(signal.SIGKILL)

    def refused():
        try:
            return complete(fleet, tokens)[0] in (502, 503)
        except urllib.error.URLError:
            return True  # the client port is closed, once readiness is lost
    processes.wait_for("an honest refusal", refused, 20)
    fleet.service.check_alive()
    fleet.sim.stop()
    fleet.start_sim()
    fleet.wait_ready(40)
    assert complete(fleet, tokens)[0] == 200


def test_a_frozen_engine_holds_its_requests_only_until_it_is_gone():
    import socket
    with processes.Fleet(processes.default_bin_dir(), block_size=BLOCK,
                         sim_flags=["--engines=1", "--time_scale=1", "--registration_ttl_ms=1000"],
                         service_flags=["--instance_delete_probe_timeout_ms=100", "--instance_delete_probe_attempts=1",
                                        "--detect_disconnected_instance_interval=1"]) as fleet:
        fleet.wait_ready()
        body = json.dumps({"model": "sim", "prompt": [3] * 40, "max_tokens": 100000, "stream": True}).encode()
        with socket.create_connection((processes.HOST, fleet.http_port)) as client:
            client.settimeout(30)
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            assert client.recv(64)
            fleet.sim.signal(signal.SIGSTOP)
            told = b""
            while chunk := client.recv(65536):
                told += chunk
        fleet.sim.signal(signal.SIGCONT)
        assert b"the engine was removed" in told[-2000:], told[-2000:]
        assert metric(fleet, "xms_requests_in_flight") == 0


def test_a_second_signal_ends_the_drain(fleet):
    import socket
    body = json.dumps({"model": "sim", "prompt": [3] * 40, "max_tokens": 100000, "stream": True}).encode()
    with socket.create_connection((processes.HOST, fleet.http_port)) as client:
        client.settimeout(20)
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        assert client.recv(64)
        fleet.service.signal(signal.SIGINT)
        processes.wait_for("the drain", lambda: "stopping on signal" in fleet.service.output(), 10)
        fleet.service.signal(signal.SIGINT)
        # The default drain is longer than any wait here; the answer says why it is cut.
        told = b""
        while chunk := client.recv(65536):
            told += chunk
    assert b"the service is stopping" in told[-2000:], told[-2000:]
    assert fleet.service.stop(seconds=20) == 0
    assert "second signal" in fleet.service.output()


def test_every_thread_has_the_name_that_the_documentation_lists(fleet):
    documented = (Path(__file__).resolve().parents[3] / "docs" / "threading.md").read_text(encoding="utf-8")
    names = re.findall(r"`((?:xms-|ZMQbg)[^`]*)`", documented.split("## Requests never wait")[0])
    patterns = [re.compile(re.sub("<[^>]*>", "[0-9]+", name)) for name in names]
    running = [(task / "comm").read_text().strip() for task in Path(f"/proc/{fleet.service.pid}/task").iterdir()]
    unknown = [name for name in running if not any(p.fullmatch(name) for p in patterns) and name != "xllm_master_ser"]
    assert unknown == [], running
    ports = sorted(engine["port"] + EVENT_OFFSET for engine in fleet.engines)
    assert sorted(name for name in running if name.startswith("xms-kv-")) == [f"xms-kv-{port}" for port in ports]
    for there in ("xms-http-0", "xms-control", "xms-plan", "ZMQbg/IO/1", "ZMQbg/Reaper"):
        assert there in running, running


def test_both_processes_end_orderly(fleet):
    assert fleet.stop() == [0, 0]
    for port in (fleet.http_port, fleet.rpc_port, *(engine["port"] for engine in fleet.engines)):
        assert processes.port_is_free(port)


def test_an_orderly_stop_of_the_fleet_deregisters_it(fleet):
    assert fleet.sim.stop() == 0
    processes.wait_for("an empty list of instances", lambda: (
        get_json(f"{fleet.rpc_url}/v1/internal/instances")["instances"] == []), 5)
    processes.wait_for("503 from /ready", lambda: processes.http_get(f"{fleet.rpc_url}/ready")[0] == 503, 10)
