"""Public cases that need the real service: C11 with a reader that is really stopped, and C15 (d).

The names are those of the cases; the other sub-cases are tests of the directory, KVDirectoryC11… and KVDirectoryC15…."""

import json
import signal
import subprocess

from fleet import processes
from fleet_test import complete, decision, metric, post


class Load:
    """A kv_load_process: streams of events whose content is a formula."""

    def __init__(self, **options):
        self._child = subprocess.Popen([str(processes.default_bin_dir() / "kv_load_process"),
                                        *(f"{name}={value}" for name, value in options.items())],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ports = [int(word) for word in self._answer().split()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._child.kill()
        self._child.communicate()

    def _answer(self):
        line = self._child.stdout.readline()
        assert line.startswith("ok "), line
        return line[3:]

    def ask(self, line):
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()
        return [int(word) for word in self._answer().split()]

    def streams(self, **more):
        return [{"instance_name": f"e{i}", "endpoint": f"tcp://{processes.HOST}:{self.ports[2 * i]}",
                 "replay_endpoint": f"tcp://{processes.HOST}:{self.ports[2 * i + 1]}", "topic": "xllm-kv", **more}
                for i in range(len(self.ports) // 2)]


class Service:
    """The service alone, with static streams."""

    def __init__(self, folder, kv_events):
        config = folder / "kv_events.json"
        config.write_text(json.dumps(kv_events))
        self.process = processes.Process("xllm_master_serving", [
            str(processes.default_bin_dir() / "xllm_master_serving"), f"--server_host={processes.HOST}",
            "--http_server_port=0", "--rpc_server_port=0", "--load_balance_policy=CAR",
            f"--kv_events_config_file={config}"], folder / "service.log")
        processes.wait_for("the service's ports", self._ports_known, 10, self.process.check_alive)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stop()

    def _ports_known(self):
        for line in self.process.output().splitlines():
            if "listening:" in line:
                words = dict(word.split("=", 1) for word in line.split() if "=" in word)
                self.rpc_url = f"http://{processes.HOST}:{words['rpc_port']}"
                return True
        return False

    def metric(self, name):
        text = processes.http_get(f"{self.rpc_url}/metrics")[1].decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.split("{")[0].split(" ")[0] == name)


def test_c11_a_service_that_was_stopped_recovers_from_ten_thousand_batches(tmp_path):
    with Load(streams=2, chains=16, chain=100, block_size=16, high_water_mark=10) as load:
        config = {"streams": load.streams(block_size=16), "resync_interval_ms": 500}
        with Service(tmp_path, config) as service:
            processes.wait_for("both streams synchronized",
                               lambda: service.metric("xms_kv_streams_synchronized") == 2, 20, service.process.check_alive)
            requests_before = load.ask("statistics")[2]
            service.process.signal(signal.SIGSTOP)
            load.ask("publish 0 10000")
            processes.wait_for("all batches published", lambda: load.ask("held 0")[2] == 10000, 60)
            service.process.signal(signal.SIGCONT)
            processes.wait_for("the loss to be seen", lambda: (
                service.metric("xms_kv_stream_gaps_total") + service.metric("xms_kv_stream_disconnects_total")
                + service.metric("xms_kv_stream_reconciliations_total")) >= 1, 30, service.process.check_alive)
            # The newest batch again, so that the end of the storm is not the end of the stream.
            load.ask("publish 0 1")

            def settled():
                return (service.metric("xms_kv_streams_synchronized") == 2
                        and service.metric("xms_kv_index_entries") == 2 * 16 * 100)
            processes.wait_for("full synchrony", settled, 60, service.process.check_alive)
            assert load.ask("statistics")[2] - requests_before < 100


def test_c15_d_prompts_shorter_than_a_block_are_a_decisions_reason_and_a_counter():
    with processes.Fleet(processes.default_bin_dir(), block_size=128, sim_flags=["--engines=2", "--time_scale=20"]) as fleet:
        fleet.wait_ready()
        tokens = list(range(100))
        for _ in range(3):
            status, headers, _ = complete(fleet, tokens)
            assert status == 200
            made = decision(fleet, headers["x-request-id"])
            assert {candidate["no_credit_reason"] for candidate in made["candidates"]} == {"prompt_shorter_than_block"}
        assert metric(fleet, "xms_routing_no_credit_total") == 3
        # No stream is to blame.
        _, _, body = post(f"{fleet.http_url}/v1/internal/kv-cache/query", {"token_ids": tokens})
        assert all(match["synchronized"] and match["error"] == "" for match in json.loads(body)["matches"])
