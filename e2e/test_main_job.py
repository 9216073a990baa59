# SPDX-License-Identifier: Apache-2.0
"""The main job on the cluster: a graph comes up, answers, and changes its routing mode while it serves."""

import json
import re
import time

import pytest

from live import (BLOCK, MODEL, PATIENCE, SOON, Lateness, Load, Metrics, condition, eventually, fetch, graph, processes, prompt,
                  restarts, waited, waits)

pytestmark = pytest.mark.cluster
WORKERS = 3
FLIPS = 50
FORMULA = re.compile(r"Formula for worker_id=(\d+) dp_rank=0 with (\d+) cached blocks: (\S+) = (\S+) \* prefill_blocks"
                     r" \+ decode_blocks = (\S+) \* (\S+) \+ (\S+) request_id=(\S+)")
SELECTED = re.compile(r"Selected worker: worker_id=(\d+) dp_rank=0, logit: (\S+), cached blocks: (\d+), tree size: \d+,"
                      r" total blocks: 4096 request_id=(\S+)")


@pytest.fixture(scope="module")
def job(platform):
    """A graph of three mockers that serves."""
    with platform.namespace("main-job") as ns:
        made = platform.apply(ns, graph("job", WORKERS, speed=1))
        made.ready()
        yield made.serving(WORKERS)


def test_becomes_ready_and_answers(job):
    item = job.ready()
    assert item["status"]["state"] == "successful"
    assert {name: service["readyReplicas"] for name, service in item["status"]["services"].items()} == {
        "Frontend": 1, "Worker": WORKERS}
    line = job.platform.kube.kubectl("get", "dgd", "job", "-n", job.ns).stdout.splitlines()[1]
    assert line.split()[:2] == ["job", "True"], line
    assert [model["id"] for model in json.loads(job.fetch("/v1/models"))["data"]] == [MODEL]
    status, answer = job.post({"messages": [{"role": "user", "content": "Which worker holds my prompt?"}],
                               "max_tokens": 16}, "/v1/chat/completions")
    assert status == 200, answer
    assert answer["choices"][0]["finish_reason"] == "length" and answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] == 16
    chunks = list(job.stream(prompt("ready", 3), 8))
    assert chunks[-1] is None and chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks[:-2])


def test_every_pass_succeeds(job):
    """The operator writes in an order that an API server accepts from an account with few rights."""
    assert [event["message"] for event in job.events("ReconcileError")] == []


def test_pods_need_no_rights(job):
    """The graph demands a read-only root and a user that is not root of all its pods."""
    for pod in job.pods():
        assert restarts([pod]) == {pod["metadata"]["name"]: 0}
        assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
        shell = ("exec", pod["metadata"]["name"], "-n", job.ns, "--", "/bin/sh", "-c")
        assert job.platform.kube.kubectl(*shell, "id -u").stdout.strip() != "0"
        assert job.platform.kube.kubectl(*shell, "touch /file", check=False).returncode != 0


def test_log_says_why_a_worker_was_chosen(job):
    words = prompt("why", 6)
    known = job.metrics().total("commutator_router_index_blocks")
    job.complete(words)
    eventually(lambda: job.metrics().total("commutator_router_index_blocks") >= known + 6, "the worker's KV events")
    answer = job.complete(words)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 5 * BLOCK
    log = job.log()
    chosen = SELECTED.findall(log)[-1]
    formulas = {line[0]: line for line in FORMULA.findall(log) if line[-1] == chosen[-1]}
    assert len(formulas) == WORKERS
    assert int(chosen[2]) >= 5 and formulas[chosen[0]][1] == chosen[2]
    for _, cached, logit, weight, again, prefill, decode, _ in formulas.values():
        assert weight == again
        assert float(logit) == pytest.approx(float(weight) * float(prefill) + float(decode), abs=0.002)
        assert float(prefill) == pytest.approx(6 - int(cached), abs=0.002)
    assert float(chosen[1]) == min(float(line[2]) for line in formulas.values())


def seen(job):
    """Requests routed so far, by mode."""
    return {labels["mode"]: value for labels, value in job.metrics().find("commutator_router_decisions_total")}


STEPS = 4  # of a flip, each by a process that may be late: API server, operator, API server, frontend


def time_of_flip(job, mode, lateness, at_it):
    """Seconds from asking for a mode to the first request that is routed in it; those that the machine was late by; the
    generation. The operator and the frontend compute under the load, and wait longer for a processor than what only sleeps."""
    before, had_waited = seen(job).get(mode, 0), [waits(process) for process in at_it]
    asked, generation = job.flip(mode)
    while seen(job).get(mode, 0) == before:
        assert time.monotonic() - asked < PATIENCE, f"no request in mode {mode}"
    seen_at = time.monotonic()
    own = sum(waited(was, waits(process)) for was, process in zip(had_waited, at_it))
    slept_late = lateness.between(asked, seen_at)
    return seen_at - asked, max(STEPS * slept_late, (STEPS - len(at_it)) * slept_late + own), generation


def test_flips_under_load(job):
    """50 flips: each live within a second, no request fails, no pod is touched, the graph tells."""
    pods = {pod["metadata"]["uid"] for pod in job.pods()}
    times, on_time = [], []
    at_it = processes(job.platform.pod("dynamo-operator")) + processes(job.frontend_pod())
    assert len(at_it) == 2, at_it
    with Lateness() as lateness, Load(job.address, [prompt(i, 8) for i in range(20)], max_tokens=8) as load:
        load.more(50)
        for i in range(FLIPS):
            took, late, generation = time_of_flip(job, ("round-robin", "kv")[i % 2], lateness, at_it)
            times.append(took)
            on_time.append(took - late)
            if i % 10 == 9:  # the others are overtaken by the next flip, as may happen to anyone
                said = job.applied(generation)
                assert said["message"] == f"mode kv, generation {generation}, applied by 1 of 1 pods"
        load.more(50)
    print(f"\n{FLIPS} flips under load: p50 {sorted(times)[FLIPS // 2] * 1000:.0f} ms, "
          f"p99 {sorted(times)[int(FLIPS * .99)] * 1000:.0f} ms, "
          f"without what the machine was late by {sorted(on_time)[int(FLIPS * .99)] * 1000:.0f} ms, {load.answered} requests")
    assert load.failures == []
    assert load.answered > 5 * FLIPS, "too little load to prove anything"
    assert sorted(on_time)[int(FLIPS * .99)] < 1
    assert {pod["metadata"]["uid"] for pod in job.pods()} == pods
    assert set(restarts(job.pods()).values()) == {0}
    told = rf"Routing mode kv \(generation {generation}\) applied by 1 of 1 pods in \d+ ms"
    eventually(lambda: any(re.fullmatch(told, event["message"]) for event in job.events("RoutingApplied")), "an Event")
    item = job.get()
    assert condition(item, "Ready")["status"] == "True"
    assert item["metadata"]["generation"] == generation


def hit_rate(job, words):
    """Share of the prompts' blocks that the router knew to be at the chosen workers, and that they had."""
    was, cached, n = job.metrics(), 0, 0
    for each in words:
        usage = job.complete(each)["usage"]
        cached += usage["prompt_tokens_details"]["cached_tokens"]
        n += usage["prompt_tokens"]
    now = job.metrics()
    name = "dynamo_component_router_kv_hit_rate"
    count = now.total(name + "_count") - was.total(name + "_count")
    assert count == len(words)
    return (now.total(name + "_sum") - was.total(name + "_sum")) / count, cached / n


def test_index_is_warm_on_return_to_kv(job):
    """Also with what workers cached while another mode routed."""
    old = [prompt(f"old {i}", 10) for i in range(25)]
    new = [prompt(f"new {i}", 10) for i in range(25)]
    job.applied(job.flip("kv")[1])
    for words in old:
        job.complete(words)
    eventually(lambda: job.metrics().total("commutator_router_index_blocks") >= 250, "the workers' KV events")
    before = hit_rate(job, old * 4)
    assert min(before) > 0.85, "the cache never was warm"
    job.applied(job.flip("round-robin")[1])
    for words in old + new:
        job.complete(words)
    job.applied(job.flip("kv")[1])
    after = hit_rate(job, (old + new) * 2)
    print(f"\nhit rate of 100 requests, router and engine: {before} before, {after} after")
    assert after[0] >= before[0] - 0.02
    assert after[1] >= before[1] - 0.02


def test_a_mode_that_does_not_exist_changes_nothing(job):
    job.applied(job.flip("kv")[1])
    _, generation = job.flip("roulette")
    said = job.applied(generation, "False")
    assert said["reason"] == "Refused" and "roulette" in said["message"], said
    assert eventually(lambda: job.events("RoutingRefused"), "an Event")
    before = seen(job)
    job.complete(prompt("bad mode", 2))
    assert seen(job)["kv"] == before["kv"] + 1
    assert job.applied(job.flip("kv")[1])


def test_a_client_that_goes_away_frees_its_worker(job):
    """Its booking ends at once, and so does the work at the engine, long before its last token."""
    stream = job.stream(prompt("leaver", 8), 30000, ignore_eos=True)
    assert next(iter(stream))["choices"]
    assert job.metrics().total("dynamo_frontend_worker_active_decode_blocks") > 0

    def inflight():
        return sum(Metrics(fetch(f"{pod['status']['podIP']}:9090", "/metrics"))
                   .total("dynamo_component_inflight_requests") for pod in job.pods("Worker"))
    assert inflight() == 1
    stream.close()

    def idle():
        now = job.metrics()
        return not any(now.total(name) for name in (
            "dynamo_frontend_worker_active_decode_blocks", "dynamo_frontend_worker_active_prefill_tokens",
            "commutator_plane_streams", "dynamo_frontend_inflight_requests"))
    eventually(idle, "no booking and no stream left", SOON)
    eventually(lambda: inflight() == 0, "the worker told", SOON)
    assert job.metrics().total("dynamo_frontend_disconnected_clients") == 1
