#!/usr/bin/env python3
"""What a restart of the service costs: from its start until every stream is synchronized again.

Publishers are another process, which holds `blocks` blocks for each of `streams` ranks and needs `make_ms` to make a
snapshot. The service runs with the defaults of its limits. Prints one row a run, then medians and spread."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from fleet import processes  # noqa: E402

CHAIN = 50  # blocks of one prompt


class Load:
    """A kv_load_process."""

    def __init__(self, bin_dir, **options):
        self._child = subprocess.Popen([str(bin_dir / "kv_load_process"), *(f"{n}={v}" for n, v in options.items())],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ports = self.answer()

    def answer(self):
        line = self._child.stdout.readline()
        if not line.startswith("ok "):
            raise SystemExit(f"kv_load_process: {line}")
        return [int(word) for word in line[3:].split()]

    def ask(self, line):
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()
        return self.answer()

    def stop(self):
        self._child.stdin.close()
        self._child.wait()


def metric(rpc_url, name):
    text = processes.http_get(f"{rpc_url}/metrics")[1].decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)


def proc_numbers(pid):
    """(seconds of processor time, resident MiB, most resident MiB)"""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines())
    return cpu, int(status["VmRSS"].split()[0]) / 1024, int(status["VmHWM"].split()[0]) / 1024


def one_run(bin_dir, folder, config, load, streams):
    before = load.ask("statistics")
    start = time.monotonic()
    service = processes.Process("xllm_master_serving", [
        str(bin_dir / "xllm_master_serving"), f"--server_host={processes.HOST}", "--http_server_port=0",
        "--rpc_server_port=0", f"--kv_events_config_file={config}"], folder / "service.log")
    try:
        rpc_url = ""
        while not rpc_url:
            service.check_alive()
            for line in service.output().splitlines():
                if "listening:" in line:
                    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
                    rpc_url = f"http://{processes.HOST}:{words['rpc_port']}"
            time.sleep(0.005)
        half = None
        files = 0
        while True:
            files = max(files, len(os.listdir(f"/proc/{service.pid}/fd")))
            synchronized = metric(rpc_url, "xms_kv_streams_synchronized")
            if half is None and synchronized >= streams / 2:
                half = time.monotonic() - start
            if synchronized == streams:
                break
            service.check_alive()
            time.sleep(0.01)
        full = time.monotonic() - start
        cpu, resident, most = proc_numbers(service.pid)
        after = load.ask("statistics")
        return {"half_s": half, "full_s": full, "cpu_s": cpu, "resident_mib": resident, "most_mib": most, "files": files,
                "requests": after[2] - before[2], "most_at_once": after[4], "least_spacing_us": after[5],
                "snapshot_mib": after[6] / 2**20}
    finally:
        service.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=50_000)
    parser.add_argument("--block_size", type=int, default=16)
    parser.add_argument("--make_ms", type=int, default=0, help="how long an engine needs to make a snapshot")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    bin_dir = processes.default_bin_dir()
    load = Load(bin_dir, streams=arguments.streams, chains=arguments.blocks // CHAIN, chain=CHAIN,
                block_size=arguments.block_size, answer_after_ms=arguments.make_ms)
    rows = []
    with tempfile.TemporaryDirectory(prefix="xms-recovery-") as name:
        folder = Path(name)
        config = folder / "kv_events.json"
        config.write_text(json.dumps({"streams": [
            {"instance_name": f"e{i}", "block_size": arguments.block_size, "topic": "xllm-kv",
             "endpoint": f"tcp://{processes.HOST}:{load.ports[2 * i]}",
             "replay_endpoint": f"tcp://{processes.HOST}:{load.ports[2 * i + 1]}"} for i in range(arguments.streams)]}))
        print(f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} when started; "
              f"{arguments.streams} streams × {arguments.blocks} blocks × {arguments.block_size} tokens, "
              f"{arguments.make_ms} ms to make a snapshot")
        # The first run makes the publisher's payloads, and is not counted.
        for run in range(arguments.runs + 1):
            row = one_run(bin_dir, folder, config, load, arguments.streams)
            print(("warm-up " if run == 0 else f"run {run}   ")
                  + "  ".join(f"{k} {v:.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
            if run > 0:
                rows.append(row)
    load.stop()
    for key in ("half_s", "full_s", "cpu_s", "resident_mib", "most_mib", "files", "requests"):
        values = [row[key] for row in rows]
        print(f"{key:13} median {statistics.median(values):.2f}  from {min(values):.2f} to {max(values):.2f}")
    print(f"snapshots asked for and not answered, at most: {rows[-1]['most_at_once']}")


if __name__ == "__main__":
    main()
