"""A published index, driven by its own driver, and ours in turn: the ratios of P2, P3, P4, P7 and P11.

The driver is a cargo project outside this repository, shared/peer_bench/index_dynamo beside it or in $XMS_SHARED, over
the registry crate dynamo-kv-router.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

import bench_results as results

ROUNDS = 3
SUBJECT = "crtc:direct"  # the crate's default index, looked up without its channel: the best that was found


@dataclasses.dataclass(frozen=True)
class Pair:
    what: str
    id: str
    peer_case: tuple  # of the driver
    peer_line: str  # the name of its JSON line
    peer_field: str
    ours: str  # benchmark
    counter: str
    unit: str
    more_is_better: bool = False


PAIRS = [
    *(Pair(f"look-up under change, {name}", "P2", ("w1", SUBJECT, "4", "seeded"), "W1.trace4.churn", field,
           "P2_TraceLookUp/churn:1", f"{name}_us", "µs") for name, field in (("p50", "p50"), ("p99", "p99"), ("p99.9", "p999"))),
    Pair("block operations, one core", "P3", ("w2", SUBJECT, "4"), "W2.trace4.one_core", "mops", "P3_TraceOneThread",
         "M_block_ops/s", "M/s", True),
    Pair("one reads, one writes", "P4", ("w2", SUBJECT, "4"), "W2.trace4.two_cores", "mops", "P4_TraceReaderAndWriter",
         "M_block_ops/s", "M/s", True),
    Pair("two of both", "P4", ("w2", SUBJECT, "4"), "W2.trace4.two_cores_2x2", "mops", "P4_TraceTwoOfBoth", "M_block_ops/s",
         "M/s", True),
    Pair("bytes a residency, chains of 64", "P7", ("w4", SUBJECT, "distinct", "64", "65536"), "W4.distinct.65536.chain64", "bytes",
         "P7_BytesPerResidency/blocks:65536/chain:64/same:0", "resident_bytes", "B"),
    Pair("chains of 8", "P7", ("w4", SUBJECT, "distinct", "8", "65536"), "W4.distinct.65536.chain8", "bytes",
         "P7_BytesPerResidency/blocks:65536/chain:8/same:0", "resident_bytes", "B"),
    Pair("shared by all, 60,000", "P7", ("w4", SUBJECT, "shared", "60", "60000"), "W4.shared.60000.chain60", "bytes",
         "P7_BytesPerResidency/blocks:60000/chain:64/same:1", "resident_bytes", "B"),
    Pair("shared by all, 70,000", "P7", ("w4", SUBJECT, "shared", "56", "70000"), "W4.shared.70000.chain56", "bytes",
         "P7_BytesPerResidency/blocks:70000/chain:64/same:1", "resident_bytes", "B"),
    Pair("1,000 blocks that all hold, p50", "P11", ("w3", SUBJECT), "W3.wide", "p50", "P11_MatchKeys1000x128/million_others:0",
         "p50_us", "µs"),
    Pair("the same, others branching off", "P11", ("w3", SUBJECT), "W3.wide_branched", "p50",
         "P11_MatchKeys1000x128/million_others:0", "p50_us", "µs"),
]


OURS = results.Job("ours", "kv_index_bench", r"^P", 1)


def find_driver(root):
    for shared in (os.environ.get("XMS_SHARED"), root.parent / "shared"):
        if shared and (pathlib.Path(shared) / "peer_bench" / "index_dynamo" / "Cargo.toml").exists():
            return pathlib.Path(shared) / "peer_bench" / "index_dynamo"
    sys.exit("tools/bench --peers: no driver of a peer: neither $XMS_SHARED nor ../shared has peer_bench/index_dynamo")


def build(driver, target):
    if shutil.which("cargo") is None:
        sys.exit("tools/bench --peers: cargo is not installed; the peer's driver is a Rust program (rustup, or the package cargo)")
    command = ["nice", "-n", "19", "cargo", "build", "--release", "--locked"]
    done = subprocess.run(command, cwd=driver, env={**os.environ, "CARGO_TARGET_DIR": str(target)}, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        missing = any(word in done.stderr for word in ("failed to download", "failed to fetch", "no matching package",
                                                        "download of", "could not connect", "Unable to update registry"))
        why = "the crate dynamo-kv-router or one of those it needs cannot be fetched" if missing else "the driver does not build"
        sys.exit(f"tools/bench --peers: {why}:\n{done.stderr[-1500:]}")
    return target / "release" / "dynamo_bench"


def run_peer(program, case, trace, environment):
    done = subprocess.run([program, "one", *case, "--trace", trace], capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        sys.exit(f"tools/bench --peers: {program.name} one {' '.join(case)} ended with {done.returncode}:\n{done.stderr[-1000:]}")
    return {line["name"]: line for line in map(json.loads, filter(None, done.stdout.splitlines())) if "name" in line}


def run(runner, root, out):
    driver = find_driver(root)
    trace = driver.parent.parent / "traces" / "mooncake_conversation.jsonl"
    if not trace.exists():
        sys.exit(f"tools/bench --peers: {trace} is missing")
    program = build(driver, out / "peers")
    runner.environment["XMS_SHARED"] = str(driver.parent.parent)
    runner.environment.pop("XMS_BENCH_QUICK", None)  # the peer knows one size
    wanted = [pair for pair in PAIRS if re.search(runner.arguments.regex, pair.id)]
    cases = list(dict.fromkeys(pair.peer_case for pair in wanted))
    peer_values = {}
    rounds = runner.arguments.repetitions or (1 if runner.arguments.quick else ROUNDS)
    for turn in range(rounds):
        for case in cases:
            print(f"round {turn + 1} of {rounds}: {' '.join(case)}, then ours", file=sys.stderr, flush=True)
            lines = run_peer(program, case, str(trace), runner.environment)
            pairs = [pair for pair in wanted if pair.peer_case == case]
            for pair in pairs:
                if pair.peer_line not in lines:
                    sys.exit(f"tools/bench --peers: the driver printed no {pair.peer_line}")
                peer_values.setdefault(pair, []).append(lines[pair.peer_line][pair.peer_field])
            for name in dict.fromkeys(pair.ours for pair in pairs):
                runner.run(OURS, [name + "/iterations:1"], 1)
    rows = []
    print(f"\n{'id':5}{'what':36}{'peer':>10}{'ours':>10} {'unit':5}{'ours is':>14}")
    for pair in wanted:
        peer = statistics.median(peer_values[pair])
        ours = statistics.median(runner.samples.values(pair.ours, pair.counter))
        better = ours / peer if pair.more_is_better else peer / ours
        rows.append({"id": pair.id, "what": pair.what, "peer": peer, "ours": ours, "unit": pair.unit, "better": better})
        print(f"{pair.id:5}{pair.what:36}{results.number(peer):>10}{results.number(ours):>10} {pair.unit:5}{better:>10.2f} ×",
              "better" if better >= 1 else "WORSE")
    return {"rounds": rounds, "quick": runner.arguments.quick, "peer": "dynamo-kv-router, " + SUBJECT, "rows": rows}
