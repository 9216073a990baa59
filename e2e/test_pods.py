# SPDX-License-Identifier: Apache-2.0
"""Other shapes of a graph as pods: prefill and decode apart, events on ZMQ, another policy, and workers
that are the reference's own, from its wheel."""

import re

import pytest
import yaml

from conftest import CLUSTER, ROOT, reference_python, run
from live import Load, eventually, graph, mocker, prompt

pytestmark = [pytest.mark.cluster, pytest.mark.tenant]


@pytest.fixture(scope="module")
def ns(platform):
    with platform.namespace("other-shapes") as name:
        yield name


@pytest.fixture
def serve(platform, ns):
    """Applies a graph and waits until its workers serve; it goes with the test."""
    made = []

    def apply(body, workers):
        made.append(platform.apply(ns, body))
        made[0].ready(150)
        return made[0].serving(workers)
    yield apply
    for each in made:
        each.delete()


def returns(job, words, blocks, kind="decode", **rest):
    """Asks for a prompt until the router knows so many of its blocks at the worker that it chooses."""
    chosen = re.compile(rf"Selected worker: .* cached blocks: (\d+), .*worker_type={kind}")

    def known():
        job.complete(words, **rest)
        return int(chosen.findall(job.log())[-1]) >= blocks
    eventually(known, f"a prompt's return to its {kind} worker")


def test_prefill_and_decode_workers(serve):
    body = yaml.safe_load((ROOT / "examples/dgd/disagg.yaml").read_text())
    job = serve(body, 4)
    for seed in range(8):
        assert job.complete(prompt(f"disagg {seed}", 40), max_tokens=6)["usage"]["completion_tokens"] == 6
    ways = {labels["path"]: value for labels, value in job.metrics().find("commutator_router_prefills_total") if value}
    assert ways == {"bootstrap": 8}
    returns(job, prompt("disagg 0", 40), 9, "prefill", max_tokens=6)


def test_events_on_zmq(serve):
    zmq = [{"name": "DYN_EVENT_PLANE", "value": "zmq"}]
    body = graph("zmq", 2)
    services = body["spec"]["services"]
    services["Frontend"]["envs"] += zmq
    services["Worker"]["envs"] = zmq
    job = serve(body, 2)
    returns(job, prompt("zmq", 10), 9)


def test_the_marginal_policy_live(serve):
    job = serve(graph("policy", 3, speed=1), 3)
    starters = [prompt(f"policy {i}", 8) for i in range(6)]
    with Load(job.address, starters) as load:
        load.more(30)
        for policy in ("marginal", "dynamo-1.x", "dynamo"):
            changed = job.patch(services={"Frontend": {"envs": [{"name": "DYN_ROUTER_MODE", "value": "kv"},
                                                                {"name": "DYN_ROUTER_POLICY", "value": policy}]}})
            job.applied(changed["metadata"]["generation"])
            load.more(60)
    assert load.failures == []


@pytest.fixture(scope="module", params=["0.9.0", "1.6.1"])
def reference(request, tmp_path_factory):
    """The release, and its image, which the cluster has."""
    reference_python(request.param)
    image = run(ROOT / "e2e/tools/reference-image", request.param).stdout.strip()
    if not run(CLUSTER, "node", "ctr", "-n", "k8s.io", "images", "ls", "-q", f"name==docker.io/{image}").stdout.strip():
        tar = tmp_path_factory.mktemp("image") / "reference.tar"
        run(ROOT / "e2e/tools/reference-image", request.param, tar)
        run(CLUSTER, "load", tar)
        tar.unlink()
    return request.param, image


def test_the_references_workers_as_pods(serve, reference):
    release, image = reference
    old = release == "0.9.0"
    model = "/workspace/examples/model"  # it names a model by its path
    # 0.9.0 looks for etcd even where discovery is Kubernetes, unless told to have no store.
    flags = ["--store-kv", "mem", "--enable-local-indexer"] if old else []
    plane = [{"name": "DYN_EVENT_PLANE", "value": "nats" if old else "zmq"}]
    # It writes into its root directory, so that not all of the usual restrictions hold.
    worker = mocker() | {"securityContext": {"runAsNonRoot": True}, "image": image,
                         "args": ["--model-path", model, "--block-size", "16", "--speedup-ratio", "20", *flags]}
    body = graph("wheel", 2, worker={"envs": plane, "extraPodSpec": {"mainContainer": worker}})
    body["spec"]["services"]["Frontend"]["envs"] += plane
    job = serve(body, 2)
    answer = job.complete("Say something.", max_tokens=7, model=model, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 7
    returns(job, prompt("wheel", 10), 9, model=model)
