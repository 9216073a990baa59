# SPDX-License-Identifier: Apache-2.0
"""The table in which the demo compares policies."""

import json
import subprocess
import sys

from conftest import ROOT

TABLE = ROOT / "e2e/demo/policy_table.py"
HISTOGRAM = """commutator_router_{name}_bucket{{model="m",worker_type="decode",le="+Inf"}} {count}
commutator_router_{name}_sum{{model="m",worker_type="decode"}} {total}
commutator_router_{name}_count{{model="m",worker_type="decode"}} {count}
"""


def a_round(folder, policy, number, p50, hit_rate, herd):
    """herd: (sum, count) that the round adds to the histogram of the herd index."""
    latency = {"p50": p50, "p95": 2 * p50, "p99": 3 * p50}
    (folder / f"{policy}.{number}.json").write_text(json.dumps(
        {"requests": 7, "failures": 0, "ttft_ms": latency, "itl_ms": latency, "hit_rate": hit_rate,
         "output_tokens_per_s": 100}))
    for when, (total, count) in (("before", (50, 20)), ("after", (50 + herd[0], 20 + herd[1]))):
        (folder / f"{policy}.{number}.{when}").write_text(
            HISTOGRAM.format(name="herd_index", total=total, count=count)
            + HISTOGRAM.format(name="load_variation", total=count, count=2 * count))


def test_medians_ranges_and_who_was_better(tmp_path):
    for number, (old, new) in enumerate([(10, 20), (30, 25), (20, 10)], 1):
        a_round(tmp_path, "old", number, old, 0.9, (0, 0))
        a_round(tmp_path, "new", number, new, 0.95, (9, 6))
    done = subprocess.run([sys.executable, TABLE, tmp_path, "3", "old", "new"], capture_output=True, text=True, check=True)
    lines = {line[2:22].strip(): line[22:].strip() for line in done.stdout.splitlines()}
    assert lines["TTFT p50 (ms)"].split(None, 7) == [
        "20.0", "(10.0", "-", "30.0)", "20.0", "(10.0", "-", "25.0)   in 2 of 3 rounds"]
    assert lines["cache hit rate (%)"].split(None, 2) == ["90.0", "95.0", "in 3 of 3 rounds"]
    assert lines["output tokens/s"].endswith("in 0 of 3 rounds"), "equal is not better"
    assert lines["requests"].split() == ["7", "7"]
    assert lines["herd index"].split() == ["-", "1.50"], "what was seen before the round does not count"
