#!/usr/bin/env python3
"""What tools/bench makes of its measurements."""

import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import bench_docs  # noqa: E402
import bench_results  # noqa: E402

PAGE = "".join(f"# {name}\n<!-- {name} -->\nyesterday's\n<!-- end of {name} -->\n"
               for name in ("machine", "results", "parts", "growth", "peers"))
MACHINE = {"processor": "p", "processors": 2, "memory": "m", "system": "s", "compiler": "c", "revision": "r", "date": "d",
           "load": "0.1"}


def run(name, **counters):
    return {"run_type": "iteration", "run_name": name + "/iterations:1", "label": "a trace", **counters}


def samples_of(*runs):
    samples = bench_results.Samples()
    for benchmark in runs:
        samples.add(benchmark)
    return samples


class Judging(unittest.TestCase):
    def test_a_rate_must_reach_its_bar_and_a_time_must_not_pass_it(self):
        entries = bench_results.judge(samples_of(
            run("P3_TraceOneThread", **{"M_block_ops/s": 19.9}), run("P10_SnapshotToPublished", seconds=0.4)))
        self.assertEqual([(e["id"], e["ok"]) for e in entries], [("P3", False), ("P10", True)])

    def test_the_median_counts_and_the_spread_is_told(self):
        entry, = bench_results.judge(samples_of(*(run("P10_SnapshotToPublished", seconds=s) for s in (0.9, 0.3, 0.35))))
        self.assertEqual((entry["value"], entry["ok"]), (0.35, True))
        self.assertEqual((entry["spread"]["low"], entry["spread"]["high"], entry["spread"]["n"]), (0.3, 0.9, 3))

    def test_aggregates_of_the_library_are_no_repetitions(self):
        aggregate = {**run("P10_SnapshotToPublished", seconds=9), "run_type": "aggregate"}
        entry, = bench_results.judge(samples_of(run("P10_SnapshotToPublished", seconds=0.3), aggregate))
        self.assertEqual(entry["spread"]["n"], 1)

    def test_the_tail_beside_a_recovery_is_held_against_the_tail_under_change(self):
        name = "P10_LookUpMeanwhile/snapshot:{}"
        entries = bench_results.judge(samples_of(run(name.format(0), **{"p99.9_us": 4.0}), run(name.format(1), **{"p99.9_us": 10.0})))
        ratio, = (e for e in entries if e["metric"] == "tail_ratio")
        self.assertEqual((ratio["value"], ratio["ok"]), (2.5, False))

    def test_every_metric_belongs_to_a_job(self):
        patterns = [job.pattern for job in bench_results.JOBS] + [bench_results.CHURN.pattern]
        for metric in bench_results.METRICS:
            self.assertTrue(any(re.search(p, metric.benchmark) for p in patterns), metric)


class Page(unittest.TestCase):
    def write(self, report):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "index.md").write_text(PAGE)
            status = bench_docs.write(folder, report, None, None)
            return status, (folder / "index.md").read_text(), sorted(p.name for p in folder.glob("*.svg"))

    def report(self, quick=False):
        runs = [run(f"GrowthPrompt/blocks:{n}", p50_us=n / 10, p99_us=n / 5) for n in (1, 16, 256)]
        runs.append(run("P3_TraceOneThread", **{"M_block_ops/s": 10.0}))
        return {"machine": MACHINE, "quick": quick, "seconds": 1, "trace": "a trace", "others_cpu_pct": 50,
                "results": bench_results.judge(samples_of(*runs)), "benchmarks": runs}

    def test_what_was_not_taken_says_so(self):
        status, text, curves = self.write(None)
        self.assertEqual((status, curves), (0, []))
        self.assertNotIn("yesterday", text)
        self.assertGreater(text.count(bench_docs.MISSING), len(bench_results.METRICS))

    def test_a_whole_run_fills_rows_and_draws_curves(self):
        status, text, curves = self.write(self.report())
        self.assertEqual((status, curves), (0, ["growth-prompt.svg"]))
        self.assertIn("| 10 M/s |  | missed by 2.00 × |", text)
        self.assertIn("(growth-prompt.svg)", text)
        self.assertIn("other processes used 50 %", text)

    def test_a_quick_run_is_not_written_down(self):
        status, text, _ = self.write(self.report(quick=True))
        self.assertEqual((status, text), (1, PAGE))


if __name__ == "__main__":
    unittest.main()
