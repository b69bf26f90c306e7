"""What is measured, and what it is held against: the jobs and metrics of tools/bench."""

import dataclasses
import statistics

EXACT = "exact"  # beside P1 to P11
P1, P2, P3, P4, P5, P6, P7, P8, P9, P10, P11 = (f"P{number}" for number in range(1, 12))


@dataclasses.dataclass(frozen=True)
class Job:
    """Benchmarks that run together, in one process each time."""
    what: str
    program: str
    pattern: str  # of benchmark names
    repetitions: int
    quick_repetitions: int = 1
    in_quick: bool = True
    own_process: bool = False  # one for each benchmark
    min_time: float = 0.2  # of benchmarks that count their own iterations
    tells_progress: bool = False  # on its standard error


JOBS = [
    Job("situations others get wrong", "kv_index_bench", r"^Situations", 1),
    Job("P1 match with hashing, another thread ingesting", "kv_index_bench", r"^P1_", 5),
    Job("P2 look-ups of a trace under change", "kv_index_bench", r"^P2_", 7, 2),
    Job("P3 block operations, one thread", "kv_index_bench", r"^P3_", 7, 2),
    Job("P4 block operations, two threads", "kv_index_bench", r"^P4_", 7, 2),
    Job("P5 frames to visible", "kv_directory_bench", r"^P5_", 5, 2),
    Job("P6 sockets to visible", "kv_directory_bench", r"^P6_", 5),
    Job("P7 bytes a residency", "kv_index_bench", r"^P7_.*blocks:(6|7)", 3, own_process=True),
    Job("P7 bytes a residency, 33.5 million", "kv_index_bench", r"^P7_.*blocks:262144", 1, in_quick=False, own_process=True),
    Job("P9 a complete decision", "gateway_decide_bench", r"^P9_", 5),
    Job("P10 snapshot to published", "kv_directory_bench", r"^P10_Snapshot", 5),
    Job("P10 look-ups meanwhile", "kv_directory_bench", r"^P10_LookUp", 5),
    Job("P11 long matches", "kv_index_bench", r"^P11_", 5),
    Job("growth curves", "kv_index_bench", r"^Growth", 3),
    Job("events without decoding", "kv_index_bench", r"^(MatchNothing|StoreRemoveClose)", 5),
    Job("decoding", "kv_events_bench", r".", 5, min_time=0.1),
    Job("policies", "routing_bench", r".", 5, min_time=0.1),
    Job("requests through the gateway", "gateway_bench", r".", 5),
    Job("HTTP alone", "http_bench", r".", 5),
]
CHURN = Job("P8 churn", "kv_directory_bench", r"^P8_", 1, tells_progress=True)


@dataclasses.dataclass(frozen=True)
class Metric:
    id: str
    name: str
    benchmark: str
    counter: str
    bar: float | None  # None: nothing to be held against
    unit: str
    what: str
    at_least: bool = False
    scale: float = 1.0

    def ok(self, value):
        if self.bar is None:
            return None
        return value >= self.bar if self.at_least else value <= self.bar


def _latency(id_, prefix, benchmark, what, bars):
    return [Metric(id_, f"{prefix}{name}_us", benchmark, f"{name}_us", bar, "µs", f"{what}, {name}") for name, bar in bars]


_P1 = "P1_MatchTokens1000x128/half_host:{}/ingest:1"
_P7 = "P7_BytesPerResidency/blocks:{}/chain:{}/same:{}"
METRICS = [
    Metric(EXACT, "wrong_answers", "Situations", "wrong", 0, "", "wrong answers where other structures credit too much or too little"),
    *_latency(P1, "", _P1.format(0), "1,000 blocks × 128 streams on Device, hashing included, under ingest",
              [("p50", 60), ("p99", 120), ("p99.9", 300)]),
    *_latency(P1, "half_host_", _P1.format(1), "the same, half of the streams on Host only", [("p50", 60), ("p99", 120), ("p99.9", 300)]),
    *_latency(P2, "", "P2_TraceLookUp/churn:1", "look-up of the trace while another thread changes",
              [("p50", 0.4), ("p99", 1.2), ("p99.9", 3), ("p99.99", 50)]),
    *_latency(P2, "quiet_", "P2_TraceLookUp/churn:0", "the same, nobody writing", [("p50", None), ("p99", None), ("p99.9", None)]),
    Metric(P3, "one_thread", "P3_TraceOneThread", "M_block_ops/s", 20, "M/s", "block operations of the trace, one thread", True),
    Metric(P4, "reader_and_writer", "P4_TraceReaderAndWriter", "M_block_ops/s", 34, "M/s", "one thread reads, one writes", True),
    Metric(P4, "two_of_both", "P4_TraceTwoOfBoth", "M_block_ops/s", 34, "M/s", "two threads, each both", True),
    Metric(P5, "one_stream", "P5_FramesToVisible/streams:1", "M_blocks/s", 2, "M/s",
           "stored blocks from frames in memory to visible, one stream, one core", True),
    Metric(P5, "sixteen_streams", "P5_FramesToVisible/streams:16", "M_blocks/s", 2, "M/s", "16 streams in turn, one core", True),
    Metric(P5, "under_eviction", "P5_FramesUnderEviction", "M_blocks/s", None, "M/s",
           "the same, as many blocks removed as stored", True),
    Metric(P5, "allocations", "P5_FramesUnderEviction", "allocations", None, "", "allocations meanwhile, 65,536 batches"),
    Metric(P6, "M_blocks_per_s", "P6_SocketsToVisible/streams:8", "M_blocks/s", 1, "M/s",
           "stored blocks over TCP from another process, as many removed", True),
    Metric(P6, "resident_growth_MiB", "P6_SocketsToVisible/streams:8", "resident_growth_MiB", 1, "MiB", "growth meanwhile, 10 s"),
    Metric(P7, "a_chains_of_64", _P7.format(65536, 64, 0), "resident_bytes", 60, "B", "128 × 65,536 distinct, chains of 64"),
    Metric(P7, "a_chains_of_8", _P7.format(65536, 8, 0), "resident_bytes", 60, "B", "chains of 8"),
    Metric(P7, "b_60000_shared", _P7.format(60000, 64, 1), "resident_bytes", 20, "B", "128 streams share the same 60,000"),
    Metric(P7, "b_70000_shared", _P7.format(70000, 64, 1), "resident_bytes", 20, "B", "the same 70,000"),
    Metric(P7, "c_262144_distinct", _P7.format(262144, 64, 0), "resident_bytes", 60, "B", "128 × 262,144 distinct"),
    Metric(P8, "MiB_per_min", "P8_Churn", "MiB/min", 1, "MiB/min", "8 streams × 2,000 replaced blocks a second: growth"),
    Metric(P8, "p50_drift", "P8_Churn", "p50_drift", 1.1, "×", "match p50 of the last quarter over the first"),
    Metric(P8, "replaced_per_s", "P8_Churn", "replaced/s", 15_000, "/s", "replaced blocks, all streams", True),
    *_latency(P9, "", "P9_Decide12kTokens/instances:128", "decision for 12,000 tokens, 128 candidates", [("p50", 10), ("p99", 25)]),
    Metric(P9, "allocations", "P9_Decide12kTokens/instances:128", "allocations", 0, "", "allocations in the steady state"),
    Metric(P10, "seconds", "P10_SnapshotToPublished", "seconds", 0.4, "s", "snapshot of 262,144 blocks with tokens, bytes to published"),
    *_latency(P10, "meanwhile_", "P10_LookUpMeanwhile/snapshot:1", "other streams' look-ups meanwhile",
              [("p50", None), ("p99", None), ("p99.9", None)]),
    *_latency(P10, "churn_", "P10_LookUpMeanwhile/snapshot:0", "the same while another thread changes as in P2", [("p99.9", None)]),
    *_latency(P11, "cache_", "P11_MatchKeys1000x128/million_others:0", "1,000 blocks that all 128 hold, keys ready, in cache",
              [("p50", 4), ("p99", None)]),
    *_latency(P11, "spread_", "P11_MatchKeys1000x128/million_others:*", "entries spread over 16 M others", [("p50", 15), ("p99", None)]),
]

# Without bars: what parts cost. (what, benchmark, counter, unit, scale)
PARTS = [
    ("match that finds nothing, 128 streams asked", "MatchNothing", "cpu_time", "ns", 1),
    ("store a block of 128 tokens, hashing included", "StoreRemoveClose", "store_ns", "ns", 1),
    ("remove a block", "StoreRemoveClose", "remove_ns", "ns", 1),
    ("end a stream of 65,536 blocks", "StoreRemoveClose", "close_65536_ms", "ms", 1),
    ("decode a store of 16 blocks × 128 tokens (ids below 151,936), a block", "StoreBatch/1", "per_block", "ns", 1e9),
    ("decode 256 removals in 256 events, each", "RemovalBatch/256", "per_block", "ns", 1e9),
    ("decode a snapshot of 10,000 blocks, a block", "Snapshot/1", "per_block", "ns", 1e9),
    ("for comparison: msgpack-cxx's visitor doing nothing, a block", "ReferenceWalk/1", "per_block", "ns", 1e9),
    ("CAR over 128 candidates", "BM_CacheAware/candidates:128/ranks:1", "cpu_time", "ns", 1),
    ("round robin over 128", "BM_RoundRobin/candidates:128", "cpu_time", "ns", 1),
    ("a decision for 12,000 token ids, 8 candidates", "P9_Decide12kTokens/instances:8", "p50_us", "µs", 1),
    ("a whole request, tiny prompt, 32 connections: the gateway's processor time", "BM_TinyTokens/32/real_time", "gateway_us", "µs", 1),
    ("a whole request, 12,000 token ids, 32 connections", "BM_12kTokens/32/real_time", "gateway_us", "µs", 1),
    ("relaying a streamed event, 16 streams", "BM_Events/16/real_time", "gateway_us", "µs", 1),
]


def plain_name(run_name):
    """Without what the library adds for benchmarks that count their own iterations."""
    return "/".join(part for part in run_name.split("/") if not part.startswith("iterations:"))


class Samples:
    """Repetitions by benchmark and counter."""

    def __init__(self):
        self.by_name = {}

    def add(self, benchmark):
        if benchmark.get("run_type") == "iteration":
            self.by_name.setdefault(plain_name(benchmark["run_name"]), []).append(benchmark)

    def values(self, name, counter):
        if name.endswith("*"):
            found = [n for n in self.by_name if n.startswith(name[:-1]) and n != name[:-1] + "0"]
            name = found[-1] if found else name
        return [run[counter] for run in self.by_name.get(name, []) if counter in run]

    def label(self, name):
        return next((run["label"] for run in self.by_name.get(name, []) if "label" in run), "")


def summary(values):
    mean = statistics.fmean(values)
    cv = statistics.stdev(values) / abs(mean) if len(values) > 1 and mean != 0 else 0.0
    return {"value": statistics.median(values), "low": min(values), "high": max(values), "cv": cv, "n": len(values)}


def judge(samples):
    """The entries of bench-results.json."""
    entries = []
    for metric in METRICS:
        values = samples.values(metric.benchmark, metric.counter)
        if not values:
            continue
        figures = summary(values)
        entries.append({"id": metric.id, "metric": metric.name, "value": figures["value"], "unit": metric.unit, "bar": metric.bar,
                        "bar_is": None if metric.bar is None else "at least" if metric.at_least else "at most",
                        "ok": metric.ok(figures["value"]),
                        "spread": {key: figures[key] for key in ("low", "high", "cv", "n")}})
    tail = {entry["metric"]: entry["value"] for entry in entries if entry["id"] == P10}
    if tail.get("churn_p99.9_us") and "meanwhile_p99.9_us" in tail:
        ratio = tail["meanwhile_p99.9_us"] / tail["churn_p99.9_us"]
        after = max(i for i, entry in enumerate(entries) if entry["id"] == P10) + 1
        entries.insert(after, {"id": P10, "metric": "tail_ratio", "value": ratio, "unit": "×", "bar": 2, "bar_is": "at most",
                               "ok": ratio <= 2, "spread": None})
    return entries


def number(value):
    """Three digits that matter, without an exponent."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
