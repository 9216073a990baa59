# SPDX-License-Identifier: Apache-2.0
"""Something is killed while a graph serves: workers, NATS, the API server, the operator."""

import concurrent.futures

import pytest

from conftest import CLUSTER, run
from live import (COMPONENTS, DEPLOYMENTS, PODS, SOON, SYSTEM, Load, armed, condition, eventually, graph, kill, prompt,
                  restarts)

pytestmark = pytest.mark.cluster
WORKERS = 3
LONG = 256  # blocks of a prompt that a slow worker computes for seconds


@pytest.fixture(scope="module")
def namespace(platform):
    with platform.namespace("failures") as ns:
        yield ns


@pytest.fixture(scope="module")
def made(platform, namespace):
    """A graph of three slow mockers: a long prompt takes seconds, and so do some tokens."""
    return platform.apply(namespace, graph("slow", WORKERS, speed=0.05))


@pytest.fixture
def slow(made):
    """The graph, whole again after what the test before did to it."""
    made.ready()
    return made.serving(WORKERS)


def busy(graph, metric="dynamo_frontend_worker_active_decode_blocks"):
    """Instance ids of the workers that have something to do."""
    return [int(labels["worker_id"]) for labels, value in graph.metrics().find(metric) if value > 0]


def nothing_is_booked(graph):
    eventually(lambda: not busy(graph) and not graph.metrics().total("commutator_plane_streams"),
               "no booking and no stream left", SOON)


def test_worker_killed_during_a_stream(slow):
    """The stream ends with an error, soon and never silently; other requests are served."""
    words = prompt("killed", 4)
    stream = slow.stream(words, 2000, ignore_eos=True)
    chunks = iter(stream)
    assert next(chunks)["choices"][0]["text"]
    (worker,) = busy(slow)
    pod, address = slow.worker_pods()[worker], slow.worker_addresses()[worker]
    kill(pod)
    rest = list(chunks)
    errors = [chunk for chunk in rest if chunk and "error" in chunk]
    assert len(errors) == 1 and errors[0]["error"]["message"], rest[-3:]
    assert not [chunk for chunk in rest if chunk and chunk.get("choices") and chunk["choices"][0].get("finish_reason")]
    for i in range(4):
        slow.complete(prompt(f"after the kill {i}", 2), 1)
    nothing_is_booked(slow)
    # The kubelet starts the container anew. Its identity is that of its pod, what it had cached is gone.
    eventually(lambda: restarts(slow.pods("Worker"))[pod["metadata"]["name"]] == 1, "the container again")
    eventually(lambda: slow.worker_addresses().get(worker, address) != address, "the worker again")
    slow.ready()
    slow.serving(WORKERS)
    hits = slow.metrics().total("dynamo_component_router_kv_hit_rate_sum")
    assert slow.complete(words, 1)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert slow.metrics().total("dynamo_component_router_kv_hit_rate_sum") == hits, "routed by a cache that is gone"


def test_worker_pod_deleted_before_the_first_token(slow):
    """Nothing was sent yet: another worker gets the request, and the client notices nothing."""
    stream = slow.stream(prompt("deleted", LONG), 2)
    (worker,) = eventually(lambda: busy(slow, "dynamo_frontend_worker_active_prefill_tokens"), "a worker computes")
    pod = slow.worker_pods()[worker]
    kill(pod)
    slow.platform.kube.kubectl("delete", "pod", pod["metadata"]["name"], "-n", slow.ns, "--force", "--grace-period=0")
    chunks = list(stream)
    assert chunks[-1] is None and not [chunk for chunk in chunks if chunk and "error" in chunk]
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert slow.metrics().total("commutator_router_retries_total") >= 1
    nothing_is_booked(slow)
    eventually(lambda: worker not in slow.worker_pods(), "the dead worker forgotten")


def test_worker_pod_deleted_under_load_is_drained(slow):
    """A pod that is told to go finishes what it has: scaling down costs no request."""
    with Load(slow.address, [prompt(f"drain {i}", 4) for i in range(6)], clients=4, max_tokens=2) as load:
        load.more(4)
        slow.patch(services={"Worker": {"replicas": WORKERS - 1}})
        eventually(lambda: slow.metrics().total("commutator_router_workers") == WORKERS - 1, "one worker less")
        load.more(8)
    slow.patch(services={"Worker": {"replicas": WORKERS}})
    assert load.failures == []


def test_nats_killed_and_back(slow):
    """kv goes on with what it knows and says so; then it hears of what it missed."""
    known = prompt("before NATS died", 8)
    index = slow.metrics().total("commutator_router_index_blocks")
    slow.complete(known, 1)
    eventually(lambda: slow.metrics().total("commutator_router_index_blocks") >= index + 8, "its blocks in the index")
    kube = slow.platform.kube
    nats = slow.platform.pod("nats")
    kube.kubectl("scale", "statefulset", "dynamo-platform-nats", "-n", SYSTEM, "--replicas=0")
    kill(nats)
    try:
        eventually(lambda: slow.metrics().find("commutator_nats_up")[0][1] == 0, "the frontend notices")
        assert any("NATS" in note for note in slow.health()["notes"])
        index = slow.metrics().total("commutator_router_index_blocks")
        usage = slow.complete(known, 1)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= 7 * 16, "routed without what it knew"
        missed = {worker: prompt(f"while NATS was away {worker}", 8) for worker in slow.worker_addresses()}
        for worker, words in missed.items():
            slow.complete(words, 1, nvext={"backend_instance_id": worker})
        assert condition(slow.get(), "Ready")["status"] == "True"
    finally:
        kube.kubectl("scale", "statefulset", "dynamo-platform-nats", "-n", SYSTEM, "--replicas=1")
    eventually(lambda: slow.metrics().find("commutator_nats_up")[0][1] == 1, "NATS again")
    assert not slow.health()["notes"]
    # The first event of each worker that is connected again shows the gap, and it is asked for what is missing.
    sent = []

    def recovered():
        for worker in missed:
            sent.append(prompt(f"NATS is back {len(sent)}", 1))
            slow.complete(sent[-1], 1, nvext={"backend_instance_id": worker})
        return slow.metrics().total("commutator_router_index_blocks") >= index + WORKERS * 8 + len(sent)
    eventually(recovered, "blocks of before and after in the index")
    for words in missed.values():
        usage = slow.complete(words, 1)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= 7 * 16


def test_api_server_killed_and_back(slow):
    """In the middle of every watch: requests go on, and afterwards a new graph and a flip work."""
    api = slow.platform.api
    pods = {pod["metadata"]["uid"] for pod in slow.pods()}
    with Load(slow.address, [prompt(f"no API {i}", 4) for i in range(6)], clients=2, max_tokens=1) as load:
        for _ in range(2):
            run(CLUSTER, "kill", "kube-apiserver")
            eventually(lambda: not api.up(), "the API server dead")
            load.more(2)
            eventually(api.up, "the API server again")
        load.more(2)
    assert load.failures == []
    _, generation = slow.flip("round-robin")
    slow.applied(generation, limit=60)
    answer = slow.metrics().total("commutator_router_decisions_total", mode="round-robin")
    slow.complete(prompt("flipped", 2), 1)
    assert slow.metrics().total("commutator_router_decisions_total", mode="round-robin") == answer + 1
    slow.flip("kv")
    new = slow.platform.apply(slow.ns, graph("newcomer", 1))
    new.ready()
    new.serving(1).complete(prompt("newcomer", 2))
    new.delete()
    assert {pod["metadata"]["uid"] for pod in slow.pods()} >= pods, "a pod was replaced"


def test_operator_killed_in_the_middle_of_its_work(platform, namespace):
    """Many graphs arrive and the operator dies; the one that comes back finishes them."""
    api, pod, n = platform.api, platform.pod("dynamo-operator"), 40

    def body(i):
        made = graph(f"many-{i}")
        for service in made["spec"]["services"].values():
            service["replicas"] = 0
        return made

    def of_many(path):
        return [item for item in api.items(path.format(ns=namespace)) if item["metadata"]["name"].startswith("many-")]
    with concurrent.futures.ThreadPoolExecutor(8) as pool, armed(pod) as fire:
        arriving = [pool.submit(platform.apply, namespace, body(i)) for i in range(n)]
        eventually(lambda: of_many(DEPLOYMENTS), "the first children")
        fire()
        graphs = [each.result() for each in arriving]
    children = len(of_many(DEPLOYMENTS))
    assert 0 < children < 2 * n, "killed too late to prove anything"
    for each in graphs:
        each.ready()
    assert len(of_many(COMPONENTS)) == len(of_many(DEPLOYMENTS)) == 2 * n
    again = api.get(PODS.format(ns=SYSTEM) + "/" + pod["metadata"]["name"])
    assert sum(restarts([again]).values()) == sum(restarts([pod]).values()) + 1
    for each in graphs:
        each.delete()
    eventually(lambda: not of_many(COMPONENTS), "all gone again")
