# SPDX-License-Identifier: Apache-2.0
"""Sections `router` and `worker_selection` of --router-policy-config, beside the unmodified 1.6.1: its workers, the same file,
the same prompts, the same choices."""

import concurrent.futures
import random
import re
import subprocess

import pytest

from conftest import free_port, program, reference_python
from stack import COMPLETIONS, MODEL, MODEL_PATH, Stack, until
from test_policy_interop import BLOCK, Front, own

CHOSEN = re.compile(r"Selected worker\b.*?worker_id=(\d+)")
HELD = re.compile(r"Selected (?:pinned )?worker\b.* cached blocks: ([\d.]+)")
SCORE = re.compile(r"Selected worker\b.* logit[:=] ?([\d.]+)")


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        (tmp_path / MODEL).symlink_to(MODEL_PATH)
        yield stack


def selection(kind, **parameters):
    return (f"worker_selection:\n  aggregated: chosen\n  instances:\n  - name: chosen\n    type: {kind}\n"
            f"    parameters: {parameters}\n".replace("'", ""))


class Beside:
    """Workers of 1.6.1's with our frontend and its own, on one policy file."""

    def __init__(self, stack, file, *flags, events=True, n_workers=2, prefill=False):
        """With prefill workers, as many as there are of decode workers, prompts are handed over."""
        self.stack = stack
        python, port = reference_python("1.6.1"), free_port()
        path = stack.folder / "policy.yaml"
        path.write_text(file)
        theirs = lambda name, *words: stack.start(
            f"reference-{name}", [python, "-m", f"dynamo.{name}", "--discovery-backend", "file", "--request-plane", "tcp",
                                  "--event-plane", "zmq", *words],
            HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1", DYN_LOG="info", DYN_SDK_DISABLE_ANSI_LOGGING="1")
        for role in [["--is-prefill-worker"], ["--is-decode-worker"]] if prefill else [[]]:
            theirs("mocker", "--model-path", MODEL, "--block-size", BLOCK, "--num-workers", n_workers,
                   "--num-gpu-blocks-override", "65536", *role)
        flags = ["--router-mode", "kv", "--router-policy-config", path, *flags]
        # --router-policy is another one: that the file chooses is seen.
        stack.frontend(*flags, DYN_EVENT_PLANE="zmq", DYN_DISCOVERY_BACKEND="file",
                       **({"DYN_KV_EVENTS": "true"} if events else {}))
        reference = theirs("frontend", "--http-host", "127.0.0.1", "--http-port", port, *flags)
        until("the workers are found", lambda: stack.workers() == n_workers)
        if events:
            stack.ready(n_workers)
        self.fronts = [Front(stack.front, stack.port), Front(reference, port)]
        if prefill:
            until("the prefill workers are found", lambda: stack.workers("prefill") == n_workers)
        until("both serve", lambda: all(front.serves() for front in self.fronts))
        self.workers = sorted(instance["instance_id"] for instance in stack.get("/health").json["instances"]
                              if instance["component"] != "prefill")

    def told(self, front, prompt, what):
        """What the frontend logs of a prompt that it may send anywhere."""
        log = len(front.process.log())
        front.ask(prompt)
        return until("its choice is logged", lambda: what.search(front.process.log()[log:])).group(1)

    def scores(self, prompts):
        return [float(self.told(front, prompt, SCORE)) for front, prompt in zip(self.fronts, prompts)]


@pytest.fixture
def tails():
    """Numbers of prompts that nobody has asked for yet."""
    return iter(range(6001, 100000))


def known(front, stem, worker):
    """The frontend knows that the worker holds the prompt."""
    log = len(front.process.log())
    front.ask(stem, nvext={"backend_instance_id": worker})
    found = HELD.search(front.process.log()[log:])
    return found and float(found.group(1)) == len(stem) // BLOCK


def test_two_tiers_choose_as_in_1x(stack, tails):
    beside = Beside(stack, selection("dynamo-two-tier-cost-fn", balance_abs_threshold=4, balance_rel_threshold=2.0))
    first, second = beside.workers

    def chosen(front, blocks, rest):
        """Of a prompt that the first worker alone holds so many blocks of, with so many more tokens."""
        stem = own(next(tails), blocks * BLOCK) if blocks else []
        if blocks:
            front.ask(stem, nvext={"backend_instance_id": first})
            until("it is known", lambda: known(front, stem, first))
        return int(beside.told(front, stem + own(next(tails), rest), CHOSEN))

    def both_choose(worker, blocks, rest):
        """A request may count for a moment after its answer: so until they do, and then thrice in a row."""
        until(f"{worker} is chosen", lambda: all(
            chosen(front, blocks, rest) == worker for _ in range(3) for front in beside.fronts))

    def run(n, worker):
        for front in beside.fronts:
            for _ in range(n):
                front.hold(own(next(tails), 3 * BLOCK), worker, tokens=30000)

    # One request more at the first: it gets what it holds more than half of, and nothing else.
    run(1, first)
    for worker, blocks, rest in ((first, 8, 7 * BLOCK), (second, 8, 8 * BLOCK), (second, 8, 7 * BLOCK + 1),
                                 (first, 8, 2), (second, 0, 5 * BLOCK)):
        both_choose(worker, blocks, rest)
    # Load alone counts above a difference of 4 and a quotient of 2.
    run(3, first)
    both_choose(first, 12, 2)  # 4 and 0
    run(1, first)
    both_choose(second, 12, 2)  # 5 and 0
    run(5, second)
    run(5, first)
    both_choose(first, 12, 2)  # 10 and 5
    run(1, first)
    both_choose(second, 12, 2)  # 11 and 5


def test_thunderagent_counts_tokens_in_use_as_in_1x(stack, tails):
    """The fewest blocks in use once the prompt is there, whatever caches hold; of equals the lowest id."""
    beside = Beside(stack, selection("thunderagent"), n_workers=3)
    chance = random.Random(7)
    stems = [own(next(tails), 9 * BLOCK) for _ in range(3)]
    in_use = {worker: set() for worker in beside.workers}
    blocks = lambda prompt: {tuple(prompt[:end]) for end in range(BLOCK, len(prompt) + 1, BLOCK)}
    expected = lambda prompt: min(in_use, key=lambda worker: (len(in_use[worker] | blocks(prompt)), worker))
    chosen = set()
    for i in range(12):
        worker = expected([]) if i % 2 else chance.choice(beside.workers)
        stem = chance.choice(stems)
        prompt = stem[:chance.randrange(10) * BLOCK] + own(next(tails), chance.randrange(1, 5) * BLOCK)
        for front in beside.fronts:
            front.hold(prompt, worker, tokens=30000)
        in_use[worker] |= blocks(prompt)
        for probe in (chance.choice(stems)[:chance.randrange(1, 9) * BLOCK + 3], own(next(tails), 2 * BLOCK)):
            chosen.add(expected(probe))
            for front in beside.fronts:  # a request may count for a moment after its answer
                until("that with the fewest is chosen",
                      lambda: int(beside.told(front, probe, CHOSEN)) == expected(probe))
            score = len(in_use[expected(probe)] | blocks(probe)) * BLOCK
            until("both have its score", lambda: beside.scores([probe] * 2) == [score] * 2)
    assert chosen == set(beside.workers)


STAGES = """\
worker_selection:
  prefill: costs
  decode: agents
  instances:
  - {name: costs, type: dynamo-default-cost-fn, parameters: {overlap_score_credit: 0.5, prefill_load_scale: 3}}
  - {name: agents, type: thunderagent}
"""


def test_each_stage_has_its_selector_as_in_1x(stack, tails):
    """Prefill by costs with parameters, decode by tokens in use; the flags say otherwise."""
    beside = Beside(stack, STAGES, "--router-prefill-load-scale", "2", prefill=True)
    chance = random.Random(3)
    stem = own(next(tails), 20 * BLOCK)
    decode = beside.workers
    in_use = {worker: 0 for worker in decode}
    least = lambda: min(decode, key=lambda worker: (in_use[worker], worker))

    def told(front, prompt):
        """(score of the prefill, score of the decode, who decodes)"""
        log = len(front.process.log())
        front.ask(prompt)
        lines = lambda stage: re.findall(rf"Selected worker\b.*\bworker_type={stage}\b.*", front.process.log()[log:])
        chosen = [until(f"its {stage} is logged", lambda stage=stage: lines(stage))[0] for stage in ("prefill", "decode")]
        return *(float(SCORE.search(line).group(1)) for line in chosen), int(CHOSEN.search(chosen[1]).group(1))

    def both_tell(cached, rest):
        """Of a prompt that begins as the stem and goes on as no other; a request may count for a moment after its answer."""
        prompt = lambda: stem[:cached * BLOCK] + own(next(tails), rest * BLOCK)
        expected = (3 * (rest + cached / 2), (in_use[least()] + cached + rest) * BLOCK, least())
        for front in beside.fronts:
            until(f"{expected} is told", lambda: told(front, prompt()) == expected)

    for front in beside.fronts:
        front.ask(stem)
    seen = set()
    for _ in range(8):
        both_tell(chance.randrange(20), chance.randrange(1, 6))
        seen.add(least())
        blocks = chance.randrange(1, 9)
        for front in beside.fronts:
            front.hold(own(next(tails), blocks * BLOCK), None, tokens=30000)
        in_use[least()] += blocks
    assert seen == set(decode) and len(decode) == 2


PROGRAMS = """\
request_classifier:
  type: thunderagent
  parameters: {buffer_per_program: 400000, scheduler_interval_seconds: 0.05}
""" + selection("thunderagent")


class Agents:
    """Sessions at one frontend; each request of them is a thread."""

    def __init__(self, front, pool, tails):
        self.front, self.pool, self.tails = front, pool, tails

    def sent_to(self, log):
        return int(until("its choice is logged", lambda: CHOSEN.findall(self.front.process.log()[log:]))[-1])

    def request(self, session, blocks, tokens, last):
        headers = {"x-dynamo-session-id": session, **({"x-dynamo-session-final": "true"} if last else {})} if session else {}
        answer = self.front.post(COMPLETIONS, {"model": MODEL, "prompt": own(next(self.tails), blocks * BLOCK), "stream": True,
                                               "max_tokens": tokens, "ignore_eos": True}, headers)
        assert answer.status == 200, answer.read()
        answer.readline()
        return answer

    def begin(self, session):
        """A request that goes on; the future of its answer."""
        return self.pool.submit(self.request, session, 4, 30000, False)

    def hold(self, session):
        """(a request that goes on, its worker)"""
        log = len(self.front.process.log())
        return self.begin(session).result(), self.sent_to(log)

    def ask(self, session=None, blocks=4, last=False):
        """The worker of a request that ends."""
        log = len(self.front.process.log())
        self.request(session, blocks, 1, last).read()
        return self.sent_to(log)


def test_programs_are_let_in_as_in_1x(stack, tails):
    """Two of them fill a worker; who waits goes on where somebody leaves."""
    beside = Beside(stack, PROGRAMS)
    first, second = beside.workers
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for front in beside.fronts:
            agents = Agents(front, pool, tails)
            # Those that act count for what they have: the fewest tokens are where the first is.
            assert [agents.ask(session, blocks) for session, blocks in zip("abcd", (4, 8, 4, 4))] == [first, second] * 2
            assert [agents.ask("d") for _ in range(2)] == [second] * 2
            e, log = agents.begin("e"), len(front.process.log())
            agents.ask()  # of no program: there is room
            assert not e.done()
            assert agents.ask("a", last=True) == first
            e = e.result()
            assert agents.sent_to(log) == first
            b, at = agents.hold("b")
            assert at == second
            more = agents.begin("b")
            agents.ask()
            assert not more.done()
            log = len(front.process.log())
            b.close()  # the one that runs has ended
            b = more.result()
            assert agents.sent_to(log) == second
            g = agents.begin("g")
            agents.ask()
            assert not g.done()
            log = len(front.process.log())
            assert agents.ask("d", last=True) == second
            g = g.result()
            assert agents.sent_to(log) == second
            for answer in (b, e, g):
                answer.close()


def test_parameters_of_the_cost_function_win_and_the_rest_is_inherited_as_in_1x(stack, tails):
    beside = Beside(stack, selection("dynamo-default-cost-fn", overlap_score_credit=0.5, decode_active_request_weight=7),
                    "--router-prefill-load-scale", "3", "--router-kv-overlap-score-credit", "0.9",
                    n_workers=1)
    chance = random.Random(5)
    shared = own(1, 20 * BLOCK)
    beside.fronts[0].ask(shared)
    score = lambda blocks, n: beside.scores([shared[:blocks * BLOCK] + own(next(tails), n) for _ in range(2)])
    cold = 3 * 2 + 2
    assert score(0, 2 * BLOCK) == [cold, cold]
    until("both know what the worker holds", lambda: score(10, 2 * BLOCK) == [3 * (12 - 0.5 * 10) + 12] * 2)
    for front in beside.fronts:
        front.hold(own(3, 3 * BLOCK), beside.workers[0])
    seen = set()
    for _ in range(12):
        ours, theirs = score(chance.randrange(20), chance.randrange(2, 6 * BLOCK))
        assert ours == pytest.approx(theirs, abs=0.001)
        seen.add(ours)
    assert len(seen) > 8 and min(seen) > 7


def test_settings_win_over_flags_as_in_1x(stack, tails):
    """Without events and with a credit that lasts; the flags say otherwise."""
    beside = Beside(stack, "router:\n  use_kv_events: false\n  router_ttl_secs: 1000\n" +
                    selection("dynamo-default-cost-fn"),
                    "--router-kv-events", "--router-ttl-secs", "0.001", n_workers=1, events=False)
    stems = [own(1, 12 * BLOCK), own(2, 9 * BLOCK)]
    for stem in stems:
        for front in beside.fronts:
            front.ask(stem)
    for stem in stems:
        for cut in (3, 8, 9):
            ours, theirs = beside.scores([stem[:cut * BLOCK] + own(next(tails), 2)] * 2)
            assert ours == pytest.approx(theirs, abs=0.001)
            assert ours < cut + 2  # the prompt's blocks alone: what was routed is believed


HALF = selection("dynamo-default-cost-fn", overlap_score_credit=0.5)


@pytest.mark.parametrize("file, saved", [
    ("router: {use_kv_events: true}\n" + HALF, 5), ("router: {use_kv_events: true}\n", 0), (HALF, 5),
    (selection("dynamo-default-cost-fn"), 0), ("router: {router_assume_kv_reuse: true}\n" + HALF, 5),
], ids=["events-and-credit", "events", "credit", "neither", "reuse-and-credit"])
def test_a_file_wins_over_load_aware_as_in_1x(stack, tails, file, saved):
    """That is a preset: no credit, no events, no reuse. With a credit and without events what was sent counts."""
    beside = Beside(stack, file, "--load-aware", "--no-router-track-active-blocks", n_workers=1)
    stem = own(1, 20 * BLOCK)
    for front in beside.fronts:
        front.ask(stem)
    score = lambda: beside.scores([stem[:10 * BLOCK] + own(next(tails), 2 * BLOCK) for _ in range(2)])
    until("both credit it so", lambda: score() == [12 - saved + 12] * 2)
    for front in beside.fronts:
        front.hold(stem, beside.workers[0])
    until("both count what runs", lambda: len(set(score())) == 1)
    seen = score()
    assert seen[0] == seen[1] > 12 - saved + 12


INSTANCE = "  instances: [{name: a, type: dynamo-two-tier-cost-fn}]\n"


@pytest.mark.parametrize("file, flags", [
    ("worker_selection:\n  aggregated: b\n" + INSTANCE, []),
    ("worker_selection: {}\n", []),
    ("worker_selection:\n  aggregated: a\n  instances: [{name: a, type: nosuch}]\n", []),
    (selection("dynamo-two-tier-cost-fn", cache_threshold=1.2), []),
    (selection("dynamo-two-tier-cost-fn", nosuch=1), []),
    (selection("dynamo-default-cost-fn", overlap_score_credit=-2), []),
    (selection("thunderagent", pause_threshold=0.9), []),
    ("router: {overlap_score_credit: 1}\n", []),
    ("worker_selection:\n" + INSTANCE, ["--router-decode-policy", "nosuch"]),
    ("request_classifier: {type: nosuch}\n", []),
    ("request_classifier: {type: default}\n", []),
    ("request_classifier: {type: thunderagent, parameters: 1}\n", []),
    ("request_classifier: {type: thunderagent, parameters: {nosuch: 1}}\n", []),
    ("request_classifier: {type: thunderagent, parameters: {pause_target: 0.96}}\n", []),
    ("request_classifier: {type: thunderagent, parameters: {scheduler_interval_seconds: 0}}\n", []),
], ids=str)
def test_what_1x_refuses_is_refused(stack, file, flags):
    path = stack.folder / "policy.yaml"
    path.write_text(file)
    words = ["--router-mode", "kv", "--http-port", "0", "--router-policy-config", path, *flags]
    for command in ([program("dynamo-frontend"), *words],
                    [reference_python("1.6.1"), "-m", "dynamo.frontend", "--discovery-backend", "mem", *words]):
        refused = subprocess.run([str(word) for word in command], capture_output=True, timeout=60, check=False)
        assert refused.returncode not in (0, None), refused.stderr[-500:]


@pytest.mark.parametrize("service", ["route", "select"])
def test_services_have_no_request_classifier(tmp_path, service):
    """As those of 1.6.1."""
    path = tmp_path / "policy.yaml"
    path.write_text("request_classifier: {type: thunderagent}\n")
    refused = subprocess.run([program("dynamo-router"), service, "--router-policy-config", str(path)], capture_output=True,
                             text=True, timeout=60, check=False)
    assert refused.returncode not in (0, None) and "request_classifier" in refused.stderr, refused.stderr
