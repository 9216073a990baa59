# SPDX-License-Identifier: Apache-2.0
"""Routing modes, cost traces, events and the live flip, with mockers on loopback."""

import collections
import concurrent.futures
import datetime
import http.client
import json
import random
import re
import socket
import statistics
import threading
import time

import pytest

from stack import (CHAT, COMPLETIONS, MODEL, PATIENT, ROUTED, ROUTED_LOG, Stack, decision_for, decisions_of, put, request_id,
                   until, words)
from test_combinations import Reference

WORKERS = 4


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path) as stack:
        yield stack


@pytest.fixture
def eventless(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield stack


def routed(stack):
    """[(request id, mode, worker id, overlap blocks)] of every decision so far."""
    return [(request, mode, int(worker), int(overlap))
            for _, request, mode, worker, overlap, _ in ROUTED.findall(stack.front.log())]


def worker_of(stack, answer):
    """The worker that an answer came from."""
    found = [worker for request, _, worker, _ in routed(stack) if request == request_id(answer)]
    assert len(found) == 1, found
    return found[0]


def index_blocks(stack):
    return stack.metric("commutator_router_index_blocks", model=MODEL) or 0


def first_prompt(stack):
    """Has a worker hold its first prompt; waits until the index knows all of it, and returns how many blocks that is."""
    blocks = stack.chat(words(400), max_tokens=1).usage["prompt_tokens"] // 16
    until("its events have arrived", lambda: index_blocks(stack) == blocks)
    return blocks


# --- modes ---

@pytest.mark.parametrize("spelled", ["round-robin", "round_robin"])
def test_round_robin_spreads_evenly(eventless, spelled):
    stack = eventless.up("--router-mode", spelled, workers=WORKERS, DYN_LOG=ROUTED_LOG)
    for _ in range(5 * WORKERS):
        stack.chat("always the same prompt")
    counts = collections.Counter(worker for _, _, worker, _ in routed(stack))
    assert set(counts) == set(stack.instances()) and set(counts.values()) == {5}
    assert stack.decisions() == {"round-robin": 5 * WORKERS}


def test_random_spreads(eventless):
    stack = eventless.up(workers=WORKERS, DYN_ROUTER_MODE="random", DYN_LOG=ROUTED_LOG)
    for _ in range(100):
        stack.chat("always the same prompt", max_tokens=1)
    chosen = [worker for _, _, worker, _ in routed(stack)]
    counts = collections.Counter(chosen)
    # 100 fair draws among 4 leave these limits about once in a million runs.
    assert len(counts) == WORKERS and all(6 <= n <= 50 for n in counts.values()), counts
    assert any(a == b for a, b in zip(chosen, chosen[1:]))
    assert stack.decisions() == {"random": 100}


def test_kv_follows_the_cache(stack):
    stack.up("--router-mode", "kv", workers=WORKERS, DYN_LOG=ROUTED_LOG)
    # Token ids, so that no chat template gives all of them the same first block.
    prompts = [[1000 + 20 * seed + i % 20 for i in range(300)] for seed in range(12)]
    ask = lambda ids: stack.request("POST", COMPLETIONS, stack.body(ids, COMPLETIONS))
    homes = []
    for prompt in prompts:
        before = index_blocks(stack)
        homes.append(worker_of(stack, ask(prompt)))
        until("its blocks are known", lambda: index_blocks(stack) >= before + 18)
    assert len(set(homes)) > 1, "cold prompts are spread"
    for prompt, home in zip(prompts, homes):
        for more in ([7, 8, 9], [5, 6]):
            answer = ask(prompt + more)
            assert worker_of(stack, answer) == home
            assert answer.usage["prompt_tokens_details"]["cached_tokens"] == 288


def test_kv_predicts_without_events(eventless):
    stack = eventless.up("--router-mode", "kv", "--no-kv-events", workers=WORKERS, DYN_LOG=ROUTED_LOG)
    assert stack.metric("commutator_nats_up") is None, "no NATS is asked for"
    for seed in range(5):
        home = worker_of(stack, stack.chat(words(600, seed)))
        again = stack.chat(words(600, seed) + " and then?")
        assert worker_of(stack, again) == home
        assert again.usage["prompt_tokens_details"]["cached_tokens"] > 200


def test_predictions_expire(eventless):
    stack = eventless.up("--router-mode", "kv", "--router-ttl", "0.5", workers=2, DYN_KV_EVENTS="false")
    prompt = words(600)
    # What only asks is sent nowhere and predicts nothing.
    cached = lambda **asked: max(row["cached"] for row in decision_for(stack, stack.chat(prompt, **asked)).rows)
    expected = lambda: cached(nvext={"annotations": ["query_instance_id:"]})
    assert expected() == 0 and cached() == 0
    until("a prediction holds from one request to the next", lambda: cached() > 10)
    until("the prediction is forgotten", lambda: expected() == 0)


# --- traces ---

def check_traces(log, weight, at_least):
    """Every Formula line computes its logit; every choice is the lowest. Returns the decisions."""
    found = decisions_of(log)
    assert len(found) >= at_least
    for request, decision in found.items():
        assert decision.selected and len(decision.rows) == WORKERS, request
        for row in decision.rows:
            assert row["weight"] == row["weight0"] == pytest.approx(weight)
            # Each printed number is rounded to a thousandth.
            assert abs(row["weight"] * row["prefill"] + row["decode"] - row["logit"]) <= 0.0006 + 0.0005 * weight, row
        chosen = [row for row in decision.rows if row["worker"] == decision.selected["worker"]]
        assert len(chosen) == 1
        assert chosen[0]["logit"] == decision.selected["logit"] and chosen[0]["cached"] == decision.selected["cached"]
        assert decision.selected["logit"] == min(row["logit"] for row in decision.rows)
        assert decision.selected["total"] == 1024
    return found


def load(stack, requests=60, clients=6, seed=1):
    """Requests with shared prefixes, several at a time; returns the answers' usage."""
    rng, usages, lock = random.Random(seed), [], threading.Lock()
    bodies = [(words(400, rng.randrange(8)) + f" {rng.random()}", rng.randrange(1, 12)) for _ in range(requests)]

    def client():
        while True:
            with lock:
                if not bodies:
                    return
                prompt, tokens = bodies.pop()
            usage = stack.chat(prompt, max_tokens=tokens, ignore_eos=True).usage
            with lock:
                usages.append(usage)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(usages) == requests
    return usages


@pytest.mark.parametrize("weight", [1.0, 2.5, 0.25, 0.0])
def test_formula_lines_compute(stack, weight):
    stack.up("--router-mode", "kv", "--kv-overlap-score-weight", weight, workers=WORKERS)
    load(stack)
    found = check_traces(stack.front.log(), weight, 60)
    assert any(row["cached"] for decision in found.values() for row in decision.rows)
    assert any(row["decode"] for decision in found.values() for row in decision.rows)
    assert stack.decisions() == {"kv": 60}


def test_traces_as_json_lines(stack):
    stack.up("--router-mode", "kv", workers=WORKERS, DYN_LOGGING_JSONL="1")
    answer = stack.chat()
    lines = [json.loads(line) for line in stack.front.log_lines()]
    traces = [line for line in lines if line["target"] == "dynamo_llm::kv_router::scheduler"]
    assert len(traces) == WORKERS + 1 or any("tied" in line["message"] for line in traces)
    assert {line["level"] for line in traces} == {"INFO"}
    assert {line["request_id"] for line in traces} == {request_id(answer)}
    assert sum("Formula for worker_id=" in line["message"] for line in traces) == WORKERS


def test_log_filter(eventless):
    stack = eventless.up("--router-mode", "kv", workers=2, DYN_LOG="info,dynamo_llm::kv_router::scheduler=warn")
    stack.chat()
    assert "Formula" not in stack.front.log() and "Selected" not in stack.front.log()
    assert "serving" in stack.front.log()


def test_no_trace_outside_of_kv(eventless):
    stack = eventless.up("--router-mode", "random", workers=2)
    stack.chat()
    assert "Formula" not in stack.front.log() and "Selected" not in stack.front.log()


def test_temperature_spreads(stack):
    """At temperature 0 a cached prompt stays where it is; a high one draws almost evenly."""
    stack.up("--router-mode", "kv", "--router-temperature", "100", workers=WORKERS, DYN_LOG=ROUTED_LOG)
    for _ in range(120):  # nearly fair draws: that one of four is hardly ever drawn is out of the question
        stack.chat("always the same prompt " + words(300), max_tokens=1)
    counts = collections.Counter(worker for _, _, worker, _ in routed(stack))
    assert len(counts) == WORKERS and min(counts.values()) >= 3, counts


@pytest.mark.parametrize("mode", ["round-robin", "kv"])
def test_a_model_waits_for_its_first_workers(stack, mode):
    """As 1.6.1 does: it is not listed before, and stays when workers leave later."""
    flags = ("--router-mode", mode, "--router-min-initial-workers", 2)
    stack.start_nats("-js")
    first = stack.mocker("--publish-as", "endpoint")
    reference = Reference(stack, "1.6.1", "file", "tcp", "nats").frontend(*flags)
    stack.frontend(*flags)
    until("both know of the first worker",
          lambda: len(stack.instances()) == 1 and reference.get("/health").get("instances"))
    assert (stack.models(), reference.models()) == ([], [])
    refused = stack.request("POST", CHAT, stack.body("x"))
    assert refused.status == 503 and b"waits for more workers" in refused.body
    second = stack.mocker("--publish-as", "endpoint")
    until("both serve the model", lambda: (stack.models(), reference.models()) == ([MODEL], [MODEL]))
    stack.chat()
    second.stop()
    until("the second has left", lambda: len(stack.instances()) == 1)
    assert (stack.models(), reference.models()) == ([MODEL], [MODEL])
    stack.chat()
    assert first.alive()


@pytest.mark.parametrize("mode", ["least-loaded", "power_of_two"])
def test_modes_that_count_requests(eventless, mode):
    """Alone, every worker is as free as the others; under load, none is left out."""
    stack = eventless.up("--router-mode", mode, workers=WORKERS, DYN_LOG=ROUTED_LOG)
    load(stack, clients=2 * WORKERS)
    counts = collections.Counter(worker for _, _, worker, _ in routed(stack))
    assert set(counts) == set(stack.instances()), counts
    assert stack.decisions() == {mode.replace("_", "-"): 60}


def test_direct_goes_where_the_request_says(eventless):
    stack = eventless.up("--router-mode", "direct", workers=WORKERS, DYN_LOG=ROUTED_LOG)
    for worker in stack.instances():
        assert worker_of(stack, stack.chat(headers={"x-worker-instance-id": str(worker)})) == worker
    lost = stack.request("POST", CHAT, stack.body("x"))
    assert lost.status == 400 and "x-worker-instance-id" in lost.json["error"]["message"]
    missing = stack.request("POST", CHAT, stack.body("x", nvext={"backend_instance_id": 999}))
    assert missing.status == 500 and "instance_id=999 not found" in missing.json["error"]["message"]


def test_load_aware_is_kv_without_caches(eventless):
    stack = eventless.up("--load-aware", workers=2, DYN_LOG=ROUTED_LOG)
    for _ in range(6):
        stack.chat("always the same prompt " + words(300), max_tokens=1)
    assert stack.decisions() == {"kv": 6}
    assert {overlap for *_, overlap in routed(stack)} == {0}


# --- policies of mode kv ---

# What a Formula line of each policy computes from its numbers, in their order.
FORMULAS = {
    "dynamo": lambda weight, prefill, decode: weight * prefill + decode,
    "dynamo-1.x": lambda scale, prefill, decode, requests: scale * prefill + decode + requests,
    "marginal": lambda slow, queued, new, one, stall, running, slot, pile:
        slow * (queued + new * (one + stall * running)) + slot + pile,
}


def test_policies_flip_live_and_their_lines_compute(stack):
    routing = stack.folder / "routing"
    put(routing, "DYN_ROUTER_MODE=kv\n")
    stack.up("--routing-file", routing, workers=WORKERS)
    until("the file is in force", lambda: stack.metric("commutator_routing_generation") == 1)
    for generation, policy in enumerate(["marginal", "dynamo-1.x", "dynamo"], 2):
        put(routing, f"DYN_ROUTER_MODE=kv\nDYN_ROUTER_POLICY={policy}\nDYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT=0.5\n")
        until("it is in force", lambda: stack.metric("commutator_routing_generation") == generation)
        before = len(stack.front.log())
        load(stack, seed=generation)
        lines = re.findall(r"Formula for .*cached blocks: ([\d.]+) = .* = ([^=(]*(?:\([^a-z=]*)?)",
                           stack.front.log()[before:])
        assert len(lines) == 60 * WORKERS
        for logit, terms in lines:
            numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", terms)]
            assert FORMULAS[policy](*numbers) == pytest.approx(float(logit), rel=1e-6, abs=0.002), (logit, terms)
        assert sum(float(logit) > 0 for logit, _ in lines) == len(lines)


# --- limits and pins ---

def test_busy_workers_refuse(eventless):
    """With one slow worker in prefill, its uncomputed tokens are over the threshold."""
    stack = eventless.up("--router-mode", "kv", "--active-prefill-tokens-threshold", "100", **PATIENT)
    with stack.paused(stack.worker), concurrent.futures.ThreadPoolExecutor() as pool:
        slow = pool.submit(stack.chat, words(400), max_tokens=1)
        until("the worker has the prompt",
              lambda: (stack.metric("dynamo_frontend_worker_active_prefill_tokens") or 0) > 100)
        refused = stack.request("POST", CHAT, stack.body("x"))
        assert refused.status == 503 and "busy" in refused.json["error"]["message"]
        assert refused.json["error"]["type"] == "overloaded_error"
        # A threshold set while running has effect at once.
        stack.request("POST", "/busy_threshold", {"model": MODEL, "active_prefill_tokens_threshold": 1000000})
        more = pool.submit(stack.chat, "x", max_tokens=1)
        until("it has gone there", lambda: stack.decisions() == {"kv": 2})
        stack.worker.resume()
        assert slow.result().text and more.result().text


def test_a_silent_request_stops_counting(eventless):
    """The safety net: its worker computes for longer than the expiry; the answer still comes."""
    stack = eventless.up("--router-mode", "kv", DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS="0.5", **PATIENT)
    answers = []
    slow = threading.Thread(target=lambda: answers.append(stack.chat(words(400), max_tokens=1)))
    with stack.paused(stack.worker):
        slow.start()
        until("it has expired", lambda: stack.metric("commutator_router_bookings_expired", model=MODEL) == 1)
        assert not stack.metric("dynamo_frontend_worker_active_prefill_tokens") and not answers
    slow.join()
    assert answers[0].usage["completion_tokens"] == 1


def test_pins(stack):
    stack.up("--router-mode", "kv", workers=WORKERS, DYN_LOG=ROUTED_LOG)
    for worker in stack.instances():
        assert worker_of(stack, stack.chat(nvext={"backend_instance_id": worker})) == worker
        assert worker_of(stack, stack.chat(headers={"x-worker-instance-id": str(worker)})) == worker
    first, second = stack.instances()[:2]
    both = stack.chat(nvext={"backend_instance_id": first}, headers={"x-worker-instance-id": str(second)})
    assert worker_of(stack, both) == second, "the header beats the body"
    stack.chat(headers={"x-worker-instance-id": "nonsense"})
    missing = stack.request("POST", CHAT, stack.body("x", nvext={"backend_instance_id": 999}))
    assert missing.status == 500 and "instance_id=999 not found" in missing.json["error"]["message"]


def test_a_session_stays_with_its_worker(eventless):
    stack = eventless.up("--router-session-affinity-ttl-secs", "60", workers=3, DYN_LOG=ROUTED_LOG)
    session = {"X-Dynamo-Session-ID": "a"}
    ask = lambda headers: worker_of(stack, stack.request("POST", CHAT, stack.body("hello", CHAT), headers))
    assert len({ask({}) for _ in range(3)}) == 3, "without a session it is round-robin"
    answer = stack.request("POST", CHAT, stack.body("hello", CHAT), session)
    home = worker_of(stack, answer)
    assert {ask(session) for _ in range(5)} == {home}
    assert len({ask({}) for _ in range(3)}) == 3
    told = stack.request("GET", f"/explain/{request_id(stack.request('POST', CHAT, stack.body('x', CHAT), session))}")
    assert json.dumps(told.json).count('"session"') == 2


def test_flags_win_over_environment(eventless):
    stack = eventless.up("--router-mode", "random", DYN_ROUTER_MODE="kv", DYN_ROUTER_TEMPERATURE="0.5")
    stack.chat()
    assert stack.decisions() == {"random": 1}


def test_options_without_effect_are_named(eventless):
    idle = {"--router-event-threads": ["8"], "--tokenizer": ["default"], "--dump-config-to": ["/nowhere"],
            "--trust-remote-code": [], "--enable-session-prefix-index": []}
    eventless.up("--no-tokenizer-fallback", *[word for option, more in idle.items() for word in (option, *more)])
    named = eventless.front.wait_log(r'options that have no effect here options="([^"]*)"').group(1)
    assert set(named.split()) == set(idle)
    eventless.chat()


def test_request_ids(eventless):
    stack = eventless.up()
    mine = "11111111-2222-4333-8444-555555555555"
    assert request_id(stack.chat(headers={"x-dynamo-request-id": mine})) == mine
    assert request_id(stack.chat(user=mine.replace("1", "6"))) == mine.replace("1", "6")
    assert request_id(stack.chat(headers={"x-dynamo-request-id": "nonsense"})) != "nonsense"


# --- the live flip ---

class Load:
    """Clients that send cache-friendly requests until stopped, and keep what they saw."""

    def __init__(self, stack, clients=8, starters=10):
        self.stack, self.stopped, self.failures, self.rates = stack, threading.Event(), [], []
        self.lock, self.starters = threading.Lock(), starters
        self.threads = [threading.Thread(target=self._client, args=(seed,)) for seed in range(clients)]
        for thread in self.threads:
            thread.start()

    def _client(self, seed):
        rng, connection = random.Random(seed), self.stack.connect()
        while not self.stopped.is_set():
            prompt = words(500, 100 + rng.randrange(self.starters)) + f" {rng.random()}"
            body = self.stack.body(prompt, max_tokens=4, stream=True, stream_options={"include_usage": True})
            try:
                connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json"})
                response = connection.getresponse()
                text = response.read().decode()
                assert response.status == 200 and text.endswith("data: [DONE]\n\n"), text[-300:]
                assert "event: error" not in text, text[-300:]
                usage = json.loads(re.findall(r'"usage":(\{.*\})\}', text)[-1])
                rate = usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"]
                with self.lock:
                    self.rates.append(rate)
            except (AssertionError, OSError, http.client.HTTPException, IndexError) as failure:
                with self.lock:
                    self.failures.append(repr(failure))
                connection = self.stack.connect()
        connection.close()

    def after(self, n, since=None):
        """Waits for n more answers and returns their mean hit rate."""
        since = len(self.rates) if since is None else since
        until(f"{n} more answers", lambda: len(self.rates) >= since + n or self.failures)
        return statistics.mean(self.rates[since:since + n])

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


IN_FORCE = re.compile(r"^(\S+)Z .* routing configuration in force generation=\d+ .*mode=([\w-]+)", re.MULTILINE)


def flip(stack, mode):
    """Replaces the routing file; the seconds until the frontend has the mode in force by its own clock, without those in
    which it waited for a processor, and until the first request is decided in it."""
    with open(stack.front.log_path, "rb") as log:
        log.seek(0, 2)
        waited, t0 = stack.front.waited_seconds(), time.time()
        put(stack.folder / "routing", f"DYN_ROUTER_MODE={mode}\n")
        seen = bytearray()

        def found(pattern, which):
            for line in pattern.finditer(seen.decode(errors="replace")):
                at = datetime.datetime.fromisoformat(line.group(1) + "+00:00").timestamp()
                if line.group(which) == mode and at >= t0:
                    return at, line.start()
            return None

        def decided():
            seen.extend(log.read())
            return found(ROUTED, 3)
        at, place = until(f"a decision in mode {mode}", decided)
        in_force, begin = found(IN_FORCE, 2)
        waited = stack.front.waited_seconds() - waited
    assert begin < place and not [now for _, _, now, *_ in ROUTED.findall(seen[begin:].decode(errors="replace")) if now != mode]
    return in_force - t0 - waited, at - t0


def test_flips_under_load(stack, capsys):
    put(stack.folder / "routing", "DYN_ROUTER_MODE=kv\n")
    stack.up("--routing-file", stack.folder / "routing", workers=WORKERS, blocks=4096, DYN_LOG=ROUTED_LOG)
    until("the file is in force", lambda: stack.metric("commutator_routing_generation") == 1)
    clients = Load(stack)
    clients.after(200)  # warm
    before = clients.after(200)
    pid, took, decided, after = stack.front.pid, [], [], []
    for n in range(50):
        mode = ("round-robin", "least-loaded", "random", "power-of-two", "kv")[n % 5]
        for times, seconds in zip((took, decided), flip(stack, mode)):
            times.append(seconds)
        if mode == "kv":
            after.append(clients.after(100))
        else:
            clients.after(10)
    clients.stop()
    took.sort()
    decided.sort()
    with capsys.disabled():
        print(f"\n  50 flips: in force p50 {took[25] * 1000:.0f} ms, p99 {took[49] * 1000:.0f} ms, first decision p50 "
              f"{decided[25] * 1000:.0f} ms, p99 {decided[49] * 1000:.0f} ms; hit rate before {before:.1%}, after the flips back {min(after):.1%} to {max(after):.1%}; "
              f"{len(clients.rates)} requests, {len(clients.failures)} failed")
    assert not clients.failures, clients.failures[:3]
    assert min(after) >= before - 0.02
    assert took[-1] < 1
    assert stack.front.pid == pid and stack.front.alive()
    assert stack.metric("commutator_routing_changes_total") == 51
    assert set(stack.decisions()) == {"kv", "round-robin", "least-loaded", "random", "power-of-two"}
    assert sum(stack.decisions().values()) == len(clients.rates)


def test_bad_live_configuration_is_refused(eventless):
    stack = eventless
    routing = stack.folder / "routing"
    put(routing, "DYN_ROUTER_MODE=kv\n# a comment\n\nnonsense\n")
    stack.up("--routing-file", routing)
    until("the file is in force", lambda: stack.metric("commutator_routing_generation") == 1)
    put(routing, "DYN_ROUTER_MODE=clever\n")
    until("it is refused", lambda: stack.metric("commutator_routing_errors_total") == 1)
    stack.front.wait_log("routing configuration refused.*clever")
    stack.chat()
    assert stack.decisions() == {"kv": 1}
    # What the file no longer names falls back to the start's values.
    put(routing, "DYN_ROUTER_TEMPERATURE=0.5\n")
    until("it is in force", lambda: stack.metric("commutator_routing_changes_total") == 2)
    stack.chat()
    assert stack.decisions() == {"kv": 1, "round-robin": 1}


def test_other_variables_apply_live(eventless):
    stack = eventless
    routing = stack.folder / "routing"
    put(routing, "DYN_ROUTER_MODE=kv\nDYN_KV_OVERLAP_SCORE_WEIGHT=3\nDYN_ACTIVE_PREFILL_TOKENS_THRESHOLD=7\n")
    stack.up("--routing-file", routing)
    until("the file is in force", lambda: stack.metric("commutator_routing_generation") == 1)
    decision = decision_for(stack, stack.chat())
    assert decision.rows[0]["weight"] == 3
    assert stack.get("/busy_threshold").json["thresholds"][0]["active_prefill_tokens_threshold"] == 7


def test_events_switched_on_live(stack):
    """A frontend that began without events learns what workers hold when they are switched on."""
    routing = stack.folder / "routing"
    put(routing, "DYN_KV_EVENTS=false\n")
    stack.up("--router-mode", "kv", "--routing-file", routing, workers=2)
    until("the file is in force", lambda: stack.metric("commutator_routing_generation") == 1)
    load(stack, requests=20)
    put(routing, "DYN_KV_EVENTS=true\n")
    until("NATS is connected", lambda: stack.metric("commutator_nats_up") == 1)
    until("the dumps have arrived", lambda: index_blocks(stack) > 20)


# --- events ---

def test_late_frontend_learns_what_workers_hold(stack):
    stack.up("--router-mode", "kv", workers=WORKERS)
    load(stack)
    until("nothing runs", lambda: not stack.loads())
    known = until("events have arrived", lambda: index_blocks(stack))
    first = stack.front
    assert first.stop() == 0
    stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    stack.ready(WORKERS)
    until("all dumps have arrived", lambda: (stack.metric("commutator_router_kv_recoveries_total", kind="dump", outcome="dump")
                                             or 0) >= WORKERS and index_blocks(stack) >= known)
    answer = stack.chat(words(400, 3) + " and then?")
    assert [overlap for request, _, _, overlap in routed(stack) if request == request_id(answer)][0] >= 12


def test_removed_blocks_leave_the_index(stack):
    """A cache far smaller than what passes through it: the index must follow the evictions."""
    stack.up("--router-mode", "kv", workers=2, blocks=64)
    for seed in range(20):
        stack.chat(words(400, 500 + seed), max_tokens=1)
    until("nothing runs", lambda: not stack.loads())
    removed = lambda: stack.metric("dynamo_component_kv_cache_events_applied", event_type="removed", status="ok") or 0
    until("evictions are followed", lambda: removed() > 0 and 0 < index_blocks(stack) <= 2 * 64)


def test_nats_killed_and_back_under_load(stack):
    stack.up("--router-mode", "kv", workers=WORKERS, blocks=4096)
    clients = Load(stack)
    clients.after(150)
    before = clients.after(100)
    stack.nats.kill()
    until("it is noticed", lambda: stack.metric("commutator_nats_up") == 0)
    assert any("NATS" in note for note in stack.get("/health").json["notes"])
    clients.after(100)
    # Blocks that the events of this time would have told of.
    for seed in range(10):
        stack.chat(words(500, 900 + seed))
    stack.start_nats()
    until("it is back", lambda: stack.metric("commutator_nats_up") == 1)
    # If it was away for long, workers are missed until their next event.
    until("nothing is amiss", lambda: stack.get("/health").json["notes"] == [])
    clients.after(150)
    after = clients.after(100)
    clients.stop()
    assert not clients.failures, clients.failures[:3]
    assert after >= before - 0.02

    # What was missed has been recovered: the index is what a frontend learns that starts now.
    until("nothing runs", lambda: not stack.loads())
    have = stack.front, stack.port
    stack.frontend("--router-mode", "kv")
    stack.ready(WORKERS)
    fresh = stack.port
    def both():
        blocks = []
        for stack.port in (have[1], fresh):
            blocks.append(index_blocks(stack))
        return blocks
    until("both know the same blocks", lambda: len(set(both())) == 1 and both()[0] > 0)
    (stack.front, stack.port), other = have, stack.front
    assert other.stop() == 0


def test_a_worker_without_events_is_predicted(stack):
    """Nothing tells what it caches: the router says so, and guesses, for this worker alone."""
    stack.up("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    heard = stack.instances()[0]
    stack.mocker("--no-kv-events", "--no-enable-local-indexer")
    stack.ready(2)
    silent = next(worker for worker in stack.instances() if worker != heard)
    fallback = lambda worker: stack.metric("commutator_router_event_fallback", worker_id=str(worker))
    ids = lambda seed: [2000 + 30 * seed + i % 30 for i in range(320)]
    ask = lambda worker, seed: stack.request("POST", COMPLETIONS, stack.body(
        ids(seed), COMPLETIONS, max_tokens=2, **({"nvext": {"backend_instance_id": worker}} if worker else {})))
    begun = time.monotonic()
    for seed in range(10):
        assert ask(silent, seed).status == ask(heard, 100 + seed).status == 200
    at_once = fallback(silent), stack.get("/health").json["notes"]
    assert at_once == (0, []) or time.monotonic() - begun > 10, at_once  # it is waited for that long
    assert fallback(heard) == 0
    until("it is noticed", lambda: fallback(silent) == 1)
    assert fallback(heard) == 0
    (note,) = stack.get("/health").json["notes"]
    assert re.fullmatch(rf"no KV events from worker {silent} rank 0 for \d+ s although 10 prompts were routed: "
                        r"is event publishing enabled in the engine\?", note)
    assert stack.front.log().count("no KV events from worker") == 1
    for seed in range(10):
        answer = ask(None, seed)
        assert worker_of(stack, answer) == silent
        assert decision_for(stack, answer).selected["cached"] == 20
    assert stack.metric("commutator_router_event_confidence", worker_id=str(silent)) == 1


def publish(stack, *messages):
    """Publishes raw payloads over the NATS text protocol."""
    with socket.create_connection(("127.0.0.1", stack.nats_port), timeout=10) as connection:
        connection.sendall(b"CONNECT {\"verbose\":false}\r\n")
        for subject, payload in messages:
            connection.sendall(f"PUB {subject} {len(payload)}\r\n".encode() + payload + b"\r\n")
        connection.sendall(b"PING\r\n")
        received = b""
        while b"PONG" not in received:
            part = connection.recv(65536)
            assert part, received
            received += part


def msgpack(value):
    """As little of MessagePack as an event needs."""
    if value is None:
        return b"\xc0"
    if isinstance(value, int):
        return b"\xcf" + value.to_bytes(8, "big")
    if isinstance(value, str):
        return b"\xd9" + bytes([len(value)]) + value.encode()
    if isinstance(value, bytes):
        return b"\xc5" + len(value).to_bytes(2, "big") + value
    if isinstance(value, list):
        return b"\xdc" + len(value).to_bytes(2, "big") + b"".join(map(msgpack, value))
    return b"\xde" + len(value).to_bytes(2, "big") + b"".join(msgpack(part) for item in value.items() for part in item)


def publish_event(stack, worker, event_id, data):
    event = {"worker_id": worker, "event": {"event_id": event_id, "data": data, "dp_rank": 0}}
    envelope = {"publisher_id": worker, "sequence": 0, "published_at": int(time.time() * 1000) + 1,
                "topic": "kv-events", "payload": msgpack(event)}
    publish(stack, ("namespace.dynamo.component.backend.kv-events", msgpack(envelope)))


def test_false_events_are_put_right_by_the_worker(stack):
    """Events that jump, follow nothing or fall back to 0 make the router ask; the worker's answer is what counts."""
    stack.up("--router-mode", "kv")
    known = first_prompt(stack)
    (worker,) = stack.instances()
    problems = lambda kind: stack.metric("commutator_router_kv_event_problems_total", problem=kind)
    recovered = lambda **labels: stack.metric("commutator_router_kv_recoveries_total", **labels) or 0
    block = lambda parent: {"stored": {"parent_hash": parent, "blocks": [{"block_hash": 77, "tokens_hash": 78}]}}

    dumps = recovered(kind="dump", outcome="dump")
    publish_event(stack, worker, 1000, block(None))
    until("the gap is asked for", lambda: recovered(kind="range", outcome="too_new") == 1)
    until("and what the worker holds", lambda: recovered(kind="dump", outcome="dump") == dumps + 1)
    assert problems("gap") == 1 and index_blocks(stack) == known

    publish_event(stack, worker, 0, "cleared")
    until("it looks like a restart", lambda: problems("restart") == 1)
    stack.chat(words(300, 7))
    until("the truth is back", lambda: index_blocks(stack) >= known + 10)
    load(stack, requests=20)


def test_garbage_on_the_event_plane(stack):
    stack.up("--router-mode", "kv", workers=2)
    known = first_prompt(stack)
    rng = random.Random(5)
    topics = ["namespace.dynamo.component.backend.kv-events", "namespace.dynamo.kv_metrics",
              "namespace.dynamo.component.backend.endpoint.generate.kv-events"]
    garbage = [(rng.choice(topics), rng.randbytes(rng.randrange(0, 400))) for _ in range(2000)]
    # Well-formed MessagePack that is no event: an envelope in name only, deep nesting, huge lengths.
    for text in (b"\xc0", b"\x80", b"\x91" * 3000, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
                 b"\x85\xacpublisher_id\x01\xa8sequence\x03\xacpublished_at\x01\xa5topic\xa9kv-events\xa7payload\xc4\x01\xc1"):
        garbage += [(topic, text) for topic in topics]
    publish(stack, *garbage)
    until("it is counted", lambda: (stack.metric("commutator_router_kv_events_filtered_total", reason="bad") or 0) >= 1500)
    said = [line for line in stack.front.log().splitlines() if "cannot be read" in line]
    assert 1 <= len(said) <= 30, "a flood of bad events must not flood the log"
    assert index_blocks(stack) == known
    load(stack)


def test_garbage_in_the_file_store(stack):
    stack.up("--router-mode", "kv", workers=2)
    record = next(path for path in (stack.kv / "v1/instances").iterdir() if "generate" in path.name)
    card = next((stack.kv / "v1/mdc").iterdir())
    name = lambda text, worker: text.name.rsplit("%2F", 1)[0] + f"%2F{worker:x}"
    bad = [b"", b"{", b"null", b"[]", b"{}", b'{"type":"Endpoint"}', b'{"type":"Unknown","namespace":"dynamo"}',
           b"\x00\xff" * 100, record.read_bytes()[:60], record.read_bytes().replace(b"instance_id", b"instance"),
           record.read_bytes().replace(b"127.0.0.1:", b"no such host:"), b"[" * 5000,
           re.sub(rb'"transport":\{.*?\}', b'"transport":{"carrier-pigeon":"coop"}', record.read_bytes())]
    for n, text in enumerate(bad):
        (stack.kv / "v1/instances" / name(record, 0xbad00 + n)).write_bytes(text)
        (stack.kv / "v1/event_channels" / name(record, 0xbad00 + n)).write_bytes(text)
    cards = [b"", b"{", b"{}", card.read_bytes()[:200], card.read_bytes().replace(b"card_json", b"card"),
             card.read_bytes().replace(b"kv_cache_block_size", b"block_size"),
             re.sub(rb'"kv_cache_block_size":\d+', b'"kv_cache_block_size":0', card.read_bytes())]
    for n, text in enumerate(cards):
        (stack.kv / "v1/mdc" / name(card, 0xbad00 + n)).write_bytes(text)
    (stack.kv / "v1/instances/not%2Genough").write_bytes(b"{}")
    (stack.kv / "v1/instances/folder").mkdir()
    load(stack, requests=20)
    another = stack.mocker()
    until("a good record is still noticed", lambda: stack.workers() >= 3)
    load(stack, requests=20)
    assert len(stack.front.log().splitlines()) < 400, "said once, not for ever"
    assert another.alive()
