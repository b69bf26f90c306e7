"""Documentation that can be compared with the program is compared."""

import re
from pathlib import Path

from fleet import processes

ROOT = Path(__file__).resolve().parents[3]


def documented_metrics():
    return set(re.findall(r"^\| `(xms_\w+)` \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))


def test_every_metric_in_the_source_is_documented_and_none_else():
    named = set()
    for source in (ROOT / "src").rglob("*.cc"):
        if "sim" not in source.relative_to(ROOT / "src").parts:
            named |= set(re.findall(r'"(xms_[a-z_]+)"', source.read_text()))
    assert named == documented_metrics()


def test_what_the_running_program_shows_is_documented():
    with processes.Fleet(processes.default_bin_dir(), block_size=16, sim_flags=["--engines=1"]) as fleet:
        fleet.wait_ready()
        text = processes.http_get(f"{fleet.http_url}/metrics")[1].decode()
    shown = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    assert shown and shown <= documented_metrics()
