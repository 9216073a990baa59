# SPDX-License-Identifier: Apache-2.0
"""What a change does: the same edits as updates.jsonl, and edits by hand, on a real API server.

An edit of the graph changes the specs that it changed under the reference, and nothing else. An
edit of a child by hand is put back (the reference leaves many), a deleted child comes again, a
removed service goes, and a deleted graph leaves nothing behind.
"""

import json
import os
import subprocess
import sys
import time

import pytest

from conftest import ROOT, SHARED, api_server, unavailable
from live import Api
from test_operator_oracle import BINARY, FLAGS, GRAPHS, WRITTEN, mark_pods_ready

sys.path.insert(0, str(ROOT / "e2e/tools"))
import oracle  # noqa: E402  (needs the path above)

pytestmark = pytest.mark.api

FILE = "examples__backends__vllm__deploy__disagg.yaml"
SPACE, GRAPH, WORKER = "u1", "vllm-disagg", "VllmDecodeWorker"
CHILD = f"{GRAPH}-{WORKER.lower()}"
PATIENCE_S = 90


def service(**fields):
    return {"spec": {"services": {WORKER: fields}}}


# The words of updates.jsonl, and the edit.
EDITS = {
    "replicas of VllmDecodeWorker +1": service(replicas=2),
    "env added to VllmDecodeWorker": service(envs=[{"name": "EXAMPLE_ENV", "value": "v1"}]),
    "env added at spec.envs": {"spec": {"envs": [{"name": "EXAMPLE_GLOBAL", "value": "g1"}]}},
    "image of VllmDecodeWorker changed":
        service(extraPodSpec={"mainContainer": {"image": "example.com/other:2"}}),
    "extraPodMetadata label and annotation added to VllmDecodeWorker":
        service(extraPodMetadata={"labels": {"example.com/pl": "x"}, "annotations": {"example.com/pa": "y"}}),
    "restart.id r1 (default strategy)": {"spec": {"restart": {"id": "r1"}}},
    "restart.id r2 parallel": {"spec": {"restart": {"id": "r2", "strategy": {"type": "Parallel"}}}},
    "restart removed": {"spec": {"restart": None}},
    "scalingAdapter enabled on VllmDecodeWorker": service(scalingAdapter={"enabled": True}),
    "scalingAdapter disabled": service(scalingAdapter={"enabled": False}),
}

# What a person might do to a child: kind, name, and the merge patch.
BY_HAND = {
    "replicas": ("deployment", CHILD, {"spec": {"replicas": 7}}),
    "pod template": ("deployment", CHILD, {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}),
    "label removed": ("deployment", CHILD, {"metadata": {"labels": {"nvidia.com/dynamo-component": None}}}),
    "service port": ("service", CHILD, {"spec": {"ports": [{"name": "system", "port": 9999}]}}),
    "service selector": ("service", CHILD, {"spec": {"selector": {"nvidia.com/dynamo-component": "x"}}}),
    "role emptied": ("role", f"{GRAPH}-k8s-service-discovery-role", {"rules": []}),
    "component": ("dynamocomponentdeployment", CHILD, {"spec": {"replicas": 9}}),
}
DELETED = [("deployment", CHILD), ("service", CHILD), ("dynamocomponentdeployment", CHILD),
           ("rolebinding", f"{GRAPH}-k8s-service-discovery-binding"),
           ("serviceaccount", f"{GRAPH}-k8s-service-discovery")]


def in_space(path):
    """The list of one namespace."""
    version, _, kind = path.rpartition("/")
    return f"{version}/namespaces/{SPACE}/{kind}"


def path_of(kind, name):
    return in_space(next(path for path in (*WRITTEN, GRAPHS) if path.endswith(f"/{kind}s"))) + "/" + name


class Graph:
    def __init__(self, kube):
        self.kube, self.api = kube, Api(kube.kubeconfig)

    def items(self):
        return [item for each in WRITTEN for item in self.api.listed(in_space(each))]

    def get(self):
        """What the operator wrote, by kind and name, without what every write changes."""
        found = {}
        for item in self.items():
            if item["metadata"].get("ownerReferences"):
                thing = oracle.normalise(item)
                thing["metadata"].pop("generation", None)
                for key in ("hash", "generation"):
                    thing["metadata"].get("annotations", {}).pop(f"nvidia.com/last-applied-{key}", None)
                found[item["kind"], item["metadata"]["name"]] = thing
        return found

    def uids(self):
        return {(item["kind"].lower(), item["metadata"]["name"]): item["metadata"]["uid"] for item in self.items()}

    def patch(self, kind, name, patch):
        self.api.patch(path_of(kind, name), patch)

    def delete(self, kind, name):
        self.api.call("DELETE", path_of(kind, name))

    def wait(self, condition, what):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            mark_pods_ready(self.api, {SPACE})
            found = self.get()
            if condition(found):
                return found
            time.sleep(0.1)
        pytest.fail(f"{what}: not within {PATIENCE_S} s:\n"
                    + "\n".join(f"{kind}/{name}" for kind, name in sorted(found)))


@pytest.fixture(scope="module")
def graph(tools, tmp_path_factory):
    source = SHARED / "data/dgd/0.9.0" / FILE
    if not source.exists():
        unavailable(f"no {source}")
    if not os.access(BINARY, os.X_OK):
        unavailable(f"no {BINARY}; run: make all")
    log = tmp_path_factory.mktemp("updates") / "log"
    with api_server(tools, "--controllers") as kube, log.open("w") as out:
        kube.apply_crds()
        kube.kubectl("create", "namespace", SPACE)
        kube.kubectl("create", "-n", SPACE, "-f", source)
        with subprocess.Popen([BINARY, *FLAGS], env=dict(os.environ, KUBECONFIG=kube.kubeconfig),
                              stdout=out, stderr=subprocess.STDOUT) as operator:
            try:
                found = Graph(kube)
                found.wait(lambda objects: len(objects) == 12, "three components and three RBAC objects")
                yield found
            finally:
                operator.terminate()


def captured(op):
    for line in (SHARED / "data/operator/updates.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["dgd"] == FILE and record["op"] == op:
            return record["diff"]
    raise KeyError(op)


def specs_changed(diff):
    """Of a captured diff: {(kind, name): {pointer: new value}} of what specs say."""
    found = {}
    for key, fields in diff["changed"].items():
        specs = {pointer: new for pointer, (_, new) in fields.items() if pointer.startswith("/spec/")}
        if specs:
            found[tuple(key.split("/"))] = specs
    return found


def leaves(value, path):
    """What is below, as captured: entries of a list by their names."""
    if isinstance(value, list):
        value = oracle.named(value, path.rsplit("/", 1)[-1]) or value
    if isinstance(value, dict):
        for key, below in value.items():
            yield from leaves(below, f"{path}/{oracle.escape(key)}")
    else:
        yield path, value


def changed_now(before, after):
    """The same of two states of ours."""
    found = {}
    for key in before.keys() & after.keys():
        for path, change, _, new in oracle.compare(before[key], after[key]):
            if path.startswith("/spec/") and change != "order":
                found.setdefault(key, {}).update(leaves(new, path))
    return found


@pytest.mark.parametrize("op", EDITS)
def test_edit(graph, op):
    theirs = captured(op)
    before = graph.get()
    graph.patch("dynamographdeployment", GRAPH, EDITS[op])
    names = lambda keys: {f"{kind}/{name}" for kind, name in keys}
    want = specs_changed(theirs), set(theirs["added"]), set(theirs["removed"])
    graph.wait(lambda now: (changed_now(before, now), names(now.keys() - before.keys()),
                            names(before.keys() - now.keys())) == want, f"{op}: {json.dumps(str(want))}")


@pytest.mark.parametrize("what", BY_HAND)
def test_edit_by_hand_is_put_back(graph, what):
    kind, name, patch = BY_HAND[what]
    before = graph.get()
    graph.patch(kind, name, patch)
    graph.wait(lambda now: now == before, what)


def without_mark(value):
    """A component that is made anew has not been restarted, here and with the reference."""
    if isinstance(value, list):
        return [without_mark(element) for element in value]
    if not isinstance(value, dict):
        return value
    kept = {key: without_mark(below) for key, below in value.items() if key != "nvidia.com/restartAt"}
    return {key: below for key, below in kept.items() if key != "annotations" or below}


@pytest.mark.parametrize("kind,name", DELETED)
def test_deleted_child_comes_again(graph, kind, name):
    before, uid = graph.get(), graph.uids()[kind, name]
    graph.delete(kind, name)
    graph.wait(lambda now: without_mark(now) == without_mark(before) and graph.uids().get((kind, name)) not in (uid, None),
               f"{kind} again")


def test_adapter_scales_the_graph(graph):
    graph.patch("dynamographdeployment", GRAPH, service(scalingAdapter={"enabled": True}))
    graph.wait(lambda now: ("DynamoGraphDeploymentScalingAdapter", CHILD) in now, "adapter")
    graph.kube.kubectl("scale", "dynamographdeploymentscalingadapter", CHILD, "-n", SPACE, "--replicas=4")
    # The collector may still be at the children of the component that was deleted before.
    graph.wait(lambda now: ("Deployment", CHILD) in now and now["Deployment", CHILD]["spec"]["replicas"] == 4, "scaled to 4")


def test_removed_service_goes(graph):
    graph.patch("dynamographdeployment", GRAPH, {"spec": {"services": {WORKER: None}}})
    graph.wait(lambda now: not any(name == CHILD for _, name in now), "no child of the service")


def test_deleted_graph_leaves_nothing(graph):
    graph.delete("dynamographdeployment", GRAPH)
    graph.wait(lambda now: not now, "nothing left")
