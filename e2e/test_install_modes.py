# SPDX-License-Identifier: Apache-2.0
"""How the platform comes and goes under graphs that serve: upgrade, two operators, uninstall."""

import json

import pytest

from live import MANAGER, PODS, RELEASE, SYSTEM, Load, eventually, graph, prompt, restarts

pytestmark = pytest.mark.cluster
TAG = ("--set", "dynamo-operator.controllerManager.manager.image.tag=dev")
NARROW = ("--set", "dynamo-operator.namespaceRestriction.enabled=true", *TAG)


@pytest.fixture(scope="module")
def served(platform):
    """A graph that lives through all of this."""
    with platform.namespace("install-modes") as ns:
        made = platform.apply(ns, graph("served", 2, speed=2))
        made.ready()
        yield made.serving(2)


def pods(made):
    return {pod["metadata"]["uid"]: restarts([pod]) for pod in made.pods()}


def of_release(platform, release=RELEASE, namespace=SYSTEM):
    """Everything on the cluster that carries the marks of the release, but definitions."""
    listed = platform.kube.kubectl("api-resources", "--verbs=list,create", "-o", "name").stdout.split()
    kinds = ",".join(name for name in listed if not name.startswith(("events", "customresourcedefinitions")))
    found = json.loads(platform.kube.kubectl("get", kinds, "-A", "-o", "json", "-l",
                                             f"app.kubernetes.io/instance={release}").stdout)["items"]
    return sorted(f"{item['kind']}/{item['metadata']['name']}" for item in found)


def test_a_restricted_operator_beside_the_cluster_wide_one(platform, served):
    """In its namespace only the restricted one works; everywhere else only the other."""
    with platform.namespace("team") as ns:
        narrow = f"narrow-{MANAGER.removeprefix(RELEASE + '-')}"
        platform.install(*NARROW, release="narrow", namespace=ns)
        try:
            made = platform.apply(ns, graph("own", 1))
            made.ready()
            made.serving(1).complete(prompt("team", 2))
            assert f"namespace={ns}" in log(platform, ns, narrow), "the restricted operator did nothing"
            assert f"namespace={ns}" not in log(platform, SYSTEM, MANAGER), "both worked on the graph"
            elsewhere = platform.apply(served.ns, graph("elsewhere", 1))
            elsewhere.ready()
            assert "elsewhere" not in log(platform, ns, narrow)
            elsewhere.delete()
        finally:
            platform.kube.helm("uninstall", "narrow", "--namespace", ns, "--wait", "--timeout=90s")
        # Its lease ends; then the cluster-wide one takes the namespace over.
        made.patch(services={"Worker": {"replicas": 2}})
        made.ready(120)
        made.serving(2)


def log(platform, namespace, deployment):
    return platform.kube.kubectl("logs", f"deployment/{deployment}", "-n", namespace, "--tail=-1").stdout


def test_upgrade_under_load(platform, served):
    """The operator is replaced; NATS and the graph are not, and no request fails."""
    before, nats = pods(served), platform.pod("nats")["metadata"]["uid"]
    manager = platform.pod("dynamo-operator")["metadata"]["uid"]
    with Load(served.address, [prompt(f"upgrade {i}", 4) for i in range(10)], clients=4) as load:
        load.more(10)
        platform.install(*TAG, "--set-string", "dynamo-operator.controllerManager.manager.log=info\\,upgrade=debug")
        eventually(lambda: platform.pod("dynamo-operator")["metadata"]["uid"] != manager, "another operator")
        served.applied(served.flip("round-robin")[1], limit=60)
        served.applied(served.flip("kv")[1])
        load.more(10)
    assert load.failures == []
    assert pods(served) == before
    assert platform.pod("nats")["metadata"]["uid"] == nats
    platform.install(*TAG)


def test_uninstall_leaves_definitions_and_graphs(platform, served):
    """Nothing else of the release remains, the graph serves on, and a new release takes it up again."""
    before, generation = pods(served), served.get()["metadata"]["generation"]
    marked = of_release(platform)
    assert f"Deployment/{MANAGER}" in marked and f"StatefulSet/{RELEASE}-nats" in marked, marked
    # The release that installed the definitions must be the one that goes.
    assert platform.kube.helm("list", "-n", SYSTEM, "-q").stdout.split() == [RELEASE]
    with Load(served.address, [prompt(f"uninstall {i}", 4) for i in range(10)], clients=2) as load:
        platform.kube.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait", "--timeout=120s")
        try:
            eventually(lambda: not of_release(platform), "nothing of the release left")
            assert platform.api.items(PODS.format(ns=SYSTEM)) == []
            assert len(platform.kube.kubectl("get", "crd", "-o", "name").stdout.split()) == 6
            assert served.get()["metadata"]["generation"] == generation
            load.more(20)
        finally:
            platform.install(*TAG)
    assert load.failures == []
    _, generation = served.flip("round-robin")
    served.applied(generation, limit=60)
    assert pods(served) == before
