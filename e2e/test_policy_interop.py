# SPDX-License-Identifier: Apache-2.0
"""Policy dynamo-1.x beside the unmodified 1.4.2 and 1.6.1: their workers, the same prompts and weights, the same scores, in
the words of 1.4.2's Formula lines."""

import http.client
import json
import random
import re
import threading

import pytest

from conftest import free_port, reference_python
from stack import COMPLETIONS, MODEL, MODEL_PATH, PATIENCE, Stack, until

BLOCK = 16
WEIGHTS = ["--router-kv-overlap-score-credit", "0.8", "--router-kv-overlap-score-credit-decay", "0.5",
           "--router-prefill-load-scale", "1.5", "--router-decode-active-request-weight", "0.5"]
PINNED = re.compile(r"Selected pinned worker: .* logit: ([\d.]+), effective cached blocks: ([\d.]+)")  # of 1.6.1
EFFECTIVE = re.compile(r"with ([\d.]+) effective cached blocks: ([\d.]+) = ")
FORMULA = re.compile(r"Formula for (worker_id=(\d+) .*)")


@pytest.fixture(scope="session")
def newer():
    return reference_python("1.4.2")


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        (tmp_path / MODEL).symlink_to(MODEL_PATH)
        yield stack


class Front:
    """One of the two frontends: asks, and reads what was logged of the answer."""

    def __init__(self, process, port):
        self.process, self.port, self.held = process, port, []

    def post(self, path, body, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json", **(headers or {})})
        return connection.getresponse()

    def ask(self, prompt, **more):
        answer = self.post(COMPLETIONS, {"model": MODEL, "prompt": prompt, "max_tokens": 1, **more})
        text = answer.read()
        assert answer.status == 200, text

    def serves(self, **more):
        try:
            return self.post(COMPLETIONS, {"model": MODEL, "prompt": [7], "max_tokens": 1, **more}).status == 200
        except OSError:
            assert self.process.alive(), self.process.log()[-2000:]
            return False

    def hold(self, prompt, worker, tokens=3000):
        """A request that goes on until the test ends, at that worker or, with None, wherever it is sent."""
        pin = {"nvext": {"backend_instance_id": worker}} if worker else {}
        answer = self.post(COMPLETIONS, {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "stream": True,
                                         "ignore_eos": True, **pin})
        assert answer.status == 200 and answer.readline()
        self.held.append(answer)

    def compute(self, prompt, worker):
        """A thread in which that worker computes a long prompt; returns when it was routed."""
        routed = lambda: len(re.findall("Selected (?:pinned )?worker.* logit", self.process.log()))
        before = routed()
        thread = threading.Thread(target=self.ask, args=[prompt], kwargs={"nvext": {"backend_instance_id": worker}})
        thread.start()
        until("it is routed", lambda: routed() > before)
        return thread

    def formulas(self, prompt):
        """{worker: Formula line} of one prompt."""
        log = self.process.log()
        self.ask(prompt)
        fresh = self.process.log()[len(log):]
        return {int(found.group(2)): found.group(1).split(" request_id=")[0].strip() for found in FORMULA.finditer(fresh)}


def own(number, n):
    """A prompt of n tokens that no other number has, of words that the model knows."""
    return [number // 6000, number % 6000, *((number + i) % 6000 for i in range(n - 2))]


def side_by_side(stack, python, workers, *weights, n_workers=2):
    """Workers of the reference's with our frontend and its own, both serving: the two, and the workers' ids."""
    port = free_port()
    theirs = lambda name, *flags: stack.start(
        f"reference-{name}", [python, "-m", f"dynamo.{name}", "--discovery-backend", "file", "--request-plane", "tcp",
                              "--event-plane", "zmq", *flags],
        HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1", DYN_LOG="info,dynamo_kv_router=debug", DYN_SDK_DISABLE_ANSI_LOGGING="1")
    theirs("mocker", "--model-path", MODEL, "--block-size", BLOCK, "--num-workers", n_workers, *workers)
    stack.frontend("--router-mode", "kv", "--router-policy", "dynamo-1.x", *weights, DYN_EVENT_PLANE="zmq",
                   DYN_DISCOVERY_BACKEND="file", **({} if "--no-router-kv-events" in weights else {"DYN_KV_EVENTS": "true"}))
    reference = theirs("frontend", "--http-host", "127.0.0.1", "--http-port", port, "--router-mode", "kv", *weights)
    until("both workers are found", lambda: stack.workers() == n_workers)
    stack.ready(n_workers)
    fronts = [Front(stack.front, stack.port), Front(reference, port)]
    workers = sorted(stack.instances())
    # A worker registers a moment before its engine is there.
    until("both serve, and every worker", lambda: all(
        front.serves(nvext={"backend_instance_id": worker}) for front in fronts for worker in workers))
    return fronts, workers


def test_host_memory_counts_as_in_1x(stack):
    """Its mockers move what no longer fits on the device to host memory."""
    weights = ["--router-host-cache-hit-weight", "0.6", "--router-kv-overlap-score-credit", "0.9"]
    fronts, (first, second) = side_by_side(stack, reference_python("1.6.1"),
                                           ["--num-gpu-blocks-override", "64", "--num-host-blocks", "4000",
                                            "--kv-bytes-per-token", "1000"], *weights)
    shared = [1000 + i for i in range(20 * BLOCK)]
    tail = iter(range(50000, 100000))
    for worker in (first, second):
        fronts[0].ask(shared, nvext={"backend_instance_id": worker})

    def evicted(front, worker, blocks):
        """(effective blocks, score) of a prompt with that beginning at that worker, after others took its device."""
        for _ in range(4):  # 20 blocks each: the device holds 64
            front.ask(own(next(tail), 20 * BLOCK), nvext={"backend_instance_id": worker})
        log = front.process.log()
        front.ask(shared[:blocks * BLOCK] + own(next(tail), 40), nvext={"backend_instance_id": worker})
        fresh = lambda: front.process.log()[len(log):]
        until("its score is told", lambda: PINNED.search(fresh()) or EFFECTIVE.search(fresh()))
        theirs = PINNED.search(fresh())
        return theirs.groups()[::-1] if theirs else EFFECTIVE.search(fresh()).groups()

    def counted(front, worker, blocks):
        effective, score = evicted(front, worker, blocks)
        return score if effective == f"{0.6 * blocks:.2f}" else None
    for worker, blocks in ((first, 20), (second, 11)):
        scores = [until("host memory is known", lambda: counted(front, worker, blocks)) for front in fronts]
        assert scores[0] == scores[1] == f"{(blocks * BLOCK + 40) / BLOCK - 0.6 * blocks + blocks + 2:.3f}"
    assert stack.metric("commutator_router_tier_blocks", model=MODEL, tier="host_pinned") > 100


def test_formula_lines_are_those_of_1x(stack, newer):
    fronts, (first, second) = side_by_side(stack, newer, ["--num-gpu-blocks-override", "65536"], *WEIGHTS)

    # 20 blocks on the first worker, 6 on the second, known to both routers.
    shared = [1000 + i for i in range(20 * BLOCK)]
    for front in fronts:
        front.ask(shared, nvext={"backend_instance_id": first})
        front.ask(shared[:6 * BLOCK], nvext={"backend_instance_id": second})
    tail = iter(range(5000, 100000, 50))

    def both():
        """A prompt with the shared beginning and an end of its own for each, so that neither caches the other's."""
        return [front.formulas(shared + own(end, 40)) for front, end in zip(fronts, [next(tail), next(tail)])]

    def equal():
        ours, theirs = both()
        return ours == theirs and "with 20.00 effective" in ours[first] and "with 6.00 effective" in ours[second]
    until("both know what the workers hold", equal)

    # And with a request under way at each router: the blocks of its prompt count, and the request itself.
    for front in fronts:
        front.hold([9 + i for i in range(5 * BLOCK)], second)
    ours, theirs = both()
    assert ours == theirs
    assert re.search(r" \+ 0\.500 \(raw", ours[second]), ours
    assert re.search(r" \+ 0\.000 \(raw", ours[first]), ours

    # While the first worker computes a long prompt for each router, its credit decays.
    start = iter(range(20000, 30000, 17))

    def decayed():
        threads = [front.compute(own(at, 12000), first) for front, at in zip(fronts, start)]
        ours, theirs = both()
        for thread in threads:
            thread.join()
        return "decay: 1.000" not in ours[first] and ours == theirs and "decay: 1.000" in ours[second]
    until("both have decided while it computes", decayed)


def test_predictions_last_while_there_is_room_as_in_1x(stack):
    """Without events, policy lru: what of each prompt a worker of 64 blocks is believed to hold."""
    lru = ["--no-router-kv-events", "--router-approximate-cache-policy", "lru"]
    fronts, _ = side_by_side(stack, reference_python("1.6.1"), ["--num-gpu-blocks-override", "64"],
                             *lru, "--router-ttl-secs", "0.01", n_workers=1)
    score = re.compile(r"Selected worker.* logit[:=] ?([\d.]+)")

    def scored(front, prompt):
        log = front.process.log()
        front.ask(prompt)
        return float(until("its choice is told", lambda: score.search(front.process.log()[len(log):])).group(1))
    chance = random.Random(1)
    stems = [own(300 + i, 12 * BLOCK) for i in range(3)]
    prompts = [chance.choice(stems)[:chance.randrange(1, 13) * BLOCK] +
               own(4000 + chance.randrange(6), chance.randrange(8) * BLOCK + chance.choice([2, 3, BLOCK])) for _ in range(150)]
    # One after the other: ours believes the worker's usage figures, too, and that has to have room for one of them alone.
    ours, theirs = ([scored(front, prompt) for prompt in prompts] for front in fronts)
    assert ours == pytest.approx(theirs, abs=0.001)
    assert len(set(ours)) > 20
