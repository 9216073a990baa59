#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The prefix index against the published crates, on the same traces in the same run.

Prints the lines that `make bench` collects; `ratio` is how many times better we are than the better
of the crate's two trees. Lookups are measured alone and, as `busy`, while another thread writes without a
pause; only one of the crate's trees can do that, and the other's quiet lookups stand beside it. The programs
take turns for three rounds, and of each the best counts (of memory the worst), for neighbours disturb all. Each begins
with memory that the machine has at hand: a hypervisor takes idle pages away, and who gets them back first pays for it
up to 25 times what clearing them costs (2 ms a huge page).
Needs cargo (a test dependency only) for e2e/bench/peers; without it there are no ratios.
INDEX_BENCH_QUICK=1 leaves out all but 8 workers.
"""
import gzip, json, mmap, multiprocessing, os, random, shutil, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
OURS = os.path.join(BUILD, "bench/router/kv/kv_bench")
TARGET = os.path.expanduser("~/.cache/commutator/peers")
PEER = os.path.join(TARGET, "release/index_peer")
SHARED = os.environ.get("COMMUTATOR_SHARED", os.path.join(ROOT, "../shared"))
ROUNDS = 3
HASH_ROUNDS = 20  # of some milliseconds each, of which most are disturbed
AT_HAND = 640 << 20  # bytes; the largest of the programs takes 550 MB
CRATE = "dynamo-kv-router 1.6.1"


def build_peer():
    if not shutil.which("cargo"):
        print("index_bench: no cargo, so no comparison", file=sys.stderr)
        return False
    cargo = ["cargo", "build", "--release", "--quiet", "--target-dir", TARGET]
    return subprocess.run(cargo, cwd=os.path.join(HERE, "peers"), stdout=sys.stderr).returncode == 0


def generated(path):
    """Conversations that begin with one of 64 starters, most with the first, and go on for some turns."""
    rng, fresh, talks = random.Random(1), 0, []

    def ids(n):
        nonlocal fresh
        fresh += n
        return list(range(fresh - n, fresh))

    starters = [ids(rng.randint(1, 8)) for _ in range(64)]
    weights = [1 / (i + 1) for i in range(64)]
    with open(path, "w") as f:
        for _ in range(12000):
            if talks and rng.random() < 0.4:
                talk = rng.choice(talks)
            else:
                talk = rng.choices(starters, weights)[0] + ids(min(200, int(rng.lognormvariate(2.3, 0.9)) + 1))
                talks = talks[-399:] + [talk]
            if len(talk) < 240:
                talk += ids(int(rng.expovariate(1 / 4)) + 1)
            f.write(json.dumps({"hash_ids": talk}) + "\n")
    return path


def conversation(path):
    source = os.path.join(SHARED, "data/traces/mooncake-conversation.jsonl.gz")
    if not os.path.exists(source):
        print("index_bench: no conversation trace", file=sys.stderr)
        return None
    with gzip.open(source, "rb") as f, open(path, "wb") as out:
        shutil.copyfileobj(f, out)
    return path


def touch_memory():
    with mmap.mmap(-1, AT_HAND, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as m:
        m.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, AT_HAND, mmap.PAGESIZE):
            m[at] = 1


def run(*command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def hash_ns(program):
    return run(program, "hash")["hash_block_ns"]


def figures(*command):
    toucher = multiprocessing.Process(target=touch_memory)
    toucher.start()
    toucher.join()
    return run(*command)


def best(runs):
    """Of several runs of one program."""
    out = dict(runs[0])
    for key in out:
        values = [r[key] for r in runs]
        out[key] = min(values) if key.endswith("_us") else max(values)
    out["rss_start"] = min(r["rss_start"] for r in runs)
    return out


def line(name, value, unit, better, peers=()):
    out = {"name": name, "value": value, "unit": unit, "better": better}
    if peers:
        best = max(peers) if better == "higher" else min(peers)
        out |= {"peer": CRATE, "peer_value": best, "ratio": value / best if better == "higher" else best / value}
    print(json.dumps(out), flush=True)


def grown(r):
    return (r["rss_full"] - r["rss_start"]) / r["blocks"]


def compare(suffix, trace, workers, with_peer, threads=1):
    trees = ("radix", "compressed") if threads == 1 else ("compressed",)
    more = [str(threads)] if threads > 1 else []
    programs = [(OURS,)] + [(PEER, tree) for tree in trees if with_peer]
    rounds = [[figures(*p, trace, str(workers), *more) for p in programs] for _ in range(ROUNDS)]
    ours, *peers = [best(runs) for runs in zip(*rounds)]
    for peer in peers:  # the same question must have the same answer
        assert all(peer[k] == ours[k] for k in ("blocks", "lookups", "score_sum")), (peer, ours)
    for name, key, unit, better in (
        ("apply", "apply_per_cpu_s", "blocks/CPU s", "higher"),
        ("remove", "remove_per_cpu_s", "blocks/CPU s", "higher"),
        ("lookup_p50", "busy_p50_us", "us", "lower"),
        ("lookup_p99", "busy_p99_us", "us", "lower"),
        ("lookup_alone_p50", "lookup_p50_us", "us", "lower"),
        ("lookup_alone_p99", "lookup_p99_us", "us", "lower"),
    ):
        line(f"index.{name}{suffix}", ours[key], unit, better, [p[key] for p in peers])
    line(f"index.bytes_per_block{suffix}", grown(ours), "bytes", "lower", [grown(p) for p in peers])
    line(f"index.rss_returned{suffix}", ours["rss_end"] / ours["rss_start"], "of start", "lower",
         [p["rss_end"] / p["rss_start"] for p in peers])


def main():
    with_peer = build_peer()
    if with_peer:
        ours, peer = (min(times) for times in zip(*[(hash_ns(OURS), hash_ns(PEER)) for _ in range(HASH_ROUNDS)]))
        line("hash.block", ours, "ns", "lower", [peer])
    counts = (8,) if os.environ.get("INDEX_BENCH_QUICK") else (8, 64, 1000)
    real = conversation(os.path.join(BUILD, "conversation.jsonl"))
    made = generated(os.path.join(BUILD, "generated.jsonl"))
    for workers in counts:
        if real:  # 8 workers is the case that peers.md §4 records, and has the plain names
            compare("" if workers == 8 else f".{workers}_workers", real, workers, with_peer)
        compare(f".generated.{workers}_workers", made, workers, with_peer)
        if real:
            compare(f".{workers}_workers.2_threads", real, workers, with_peer, threads=2)


main()
