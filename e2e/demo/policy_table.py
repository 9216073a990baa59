# SPDX-License-Identifier: Apache-2.0
"""The rounds of compare_policies as one table.

Usage: policy_table.py FOLDER ROUNDS POLICY...
Of each round the folder holds POLICY.N.json of `dynamo-bench load` and the frontend's metrics before and after.
"""

import json
import pathlib
import re
import statistics
import sys

# Title, digits, whether more is better (None: neither), value of a round.
ROWS = [
    ("requests", 0, None, lambda run: run["requests"]),
    ("failures", 0, None, lambda run: run["failures"]),
    ("TTFT p50 (ms)", 1, False, lambda run: run["ttft_ms"]["p50"]),
    ("TTFT p95 (ms)", 1, False, lambda run: run["ttft_ms"]["p95"]),
    ("TTFT p99 (ms)", 1, False, lambda run: run["ttft_ms"]["p99"]),
    ("ITL p50 (ms)", 2, False, lambda run: run["itl_ms"]["p50"]),
    ("ITL p95 (ms)", 2, False, lambda run: run["itl_ms"]["p95"]),
    ("cache hit rate (%)", 1, True, lambda run: 100 * run["hit_rate"]),
    ("output tokens/s", 0, True, lambda run: run["output_tokens_per_s"]),
    ("load variation", 3, False, lambda run: run["load_variation"]),
    ("herd index", 2, False, lambda run: run["herd_index"]),
]


def total(metrics, name):
    """Sum over all series of that name."""
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", metrics, re.M))


def mean_between(before, after, histogram):
    """Of what a histogram saw in between; None when it saw nothing."""
    added = {part: total(after, f"{histogram}_{part}") - total(before, f"{histogram}_{part}")
             for part in ("sum", "count")}
    return added["sum"] / added["count"] if added["count"] else None


def read_round(folder, policy, number):
    stem = f"{policy}.{number}"
    run = json.loads((folder / f"{stem}.json").read_text())
    before, after = ((folder / f"{stem}.{when}").read_text() for when in ("before", "after"))
    for name in ("load_variation", "herd_index"):
        run[name] = mean_between(before, after, f"commutator_router_{name}")
    return run


def cell(values, digits):
    if not values:
        return "-"
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if min(values) == max(values) else f"{middle} ({min(values):.{digits}f} - {max(values):.{digits}f})"


def better(first, other, more):
    """In how many rounds the other policy was the better one."""
    return sum(b > a if more else b < a for a, b in zip(first, other))


def table(rounds, policies):
    """rounds: by policy the list of its rounds."""
    width = 26
    yield f"  {'':<20}" + "".join(f"{policy:>{width}}" for policy in policies) + (
        f"   {policies[1]} better" if len(policies) == 2 else "")
    for title, digits, more, value in ROWS:
        by_policy = [[got for got in map(value, rounds[policy]) if got is not None] for policy in policies]
        line = f"  {title:<20}" + "".join(f"{cell(values, digits):>{width}}" for values in by_policy)
        if len(policies) == 2 and more is not None and len(by_policy[0]) == len(by_policy[1]) > 0:
            line += f"   in {better(*by_policy, more)} of {len(by_policy[0])} rounds"
        yield line


def main(folder, rounds, *policies):
    folder = pathlib.Path(folder)
    read = {policy: [read_round(folder, policy, number) for number in range(1, int(rounds) + 1)]
            for policy in policies}
    print("\n".join(table(read, policies)))


if __name__ == "__main__":
    main(*sys.argv[1:])
