# SPDX-License-Identifier: Apache-2.0
"""The operator against what the reference operator did with the same files.

Every captured file is applied at once to one API server with its own controllers; when nothing
moves any more, objects and statuses are compared field by field, then pods are marked ready (there
is no node to do it) and statuses are compared again. See e2e/tools/oracle.py for the rules.
"""

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest
import yaml

from conftest import ROOT, SHARED, api_server, unavailable
from live import Api
from rest import NotFound

sys.path.insert(0, str(ROOT / "e2e/tools"))
import oracle  # noqa: E402  (needs the path above)

pytestmark = pytest.mark.api

CAPTURES = sorted((SHARED / "data/operator/0.9.0").glob("component*/*.json"))
INPUTS = [SHARED / "data/operator/inputs-extra", SHARED / "data/dgd/0.9.0", SHARED / "data/dgd/ab-guide"]
DEVIATIONS = oracle.Deviations(ROOT / "operator/plan/deviations.json")
BINARY = os.path.join(os.environ.get("BUILD", ROOT / "build"), "bin/dynamo-operator")
FLAGS = ("--health-probe-bind-address=127.0.0.1:0 --metrics-bind-address=0 --leader-elect "
         "--leader-election-id=dynamo.nvidia.com --leader-election-namespace=kube-system "
         "--natsAddr=nats://dynamo-platform-nats.dynamo-system.svc.cluster.local:4222 "
         "--planner-cluster-role-name=dynamo-platform-dynamo-operator-planner "
         "--discovery-backend=kubernetes --operator-version=0.9.0").split()
GRAPHS, COMPONENTS = "/apis/nvidia.com/v1alpha1/dynamographdeployments", "/apis/nvidia.com/v1alpha1/dynamocomponentdeployments"
DEPLOYMENTS, EVENTS = "/apis/apps/v1/deployments", "/api/v1/events"
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
# What the operator may write.
WRITTEN = (COMPONENTS, "/apis/nvidia.com/v1alpha1/dynamographdeploymentscalingadapters", DEPLOYMENTS, "/api/v1/services",
           "/api/v1/serviceaccounts", "/api/v1/configmaps", "/api/v1/secrets", f"{RIGHTS}/roles", f"{RIGHTS}/rolebindings",
           "/apis/networking.k8s.io/v1/ingresses", "/api/v1/persistentvolumeclaims")
WATCHED = (GRAPHS, COMPONENTS, DEPLOYMENTS)
QUIET_S, PATIENCE_S = 10, 240  # others run beside: the operator may get no processor for some seconds
# Its pods name an account that does not exist. The captures' API server refused them for that; ours
# has no admission of accounts, so that a quota has to.
WITHOUT_PODS = "x-podspec"
# Applied once more to an operator that puts its own image into Frontends.
OVERRIDE = {"with": "frontend-image", "flag": "--frontend-image=commutator/dynamo:1"}
OVERRIDDEN = [path for path in CAPTURES if path.stem in (
    "ab-guide__router-on-deployment", "examples__backends__vllm__deploy__agg_router", "x-commands",
    "x-env", "x-podspec")]


def load(path):
    capture = json.loads(path.read_text())
    names = (capture["dgd"], capture["dgd"].removeprefix("ab-guide__"))
    file = next(folder / name for folder in INPUTS for name in names if (folder / name).exists())
    documents = [document for document in yaml.safe_load_all(file.read_text()) if document]
    return capture, documents


def stand_in(reference):
    """An object that has to be there before, of which only the existence matters."""
    kind, name = reference.split("/")
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
    if kind == "PersistentVolumeClaim":
        body["spec"] = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    return body


class World:
    """The API server with everything applied, and what it holds once it is quiet."""

    def __init__(self, kube, captures):
        self.kube, self.api = kube, Api(kube.kubeconfig)
        self.captures = {path.stem: load(path) for path in captures}

    def get(self, *lists):
        return [item for each in lists for item in self.api.listed(each)]

    def apply(self):
        spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": capture["namespace"]}}
                  for capture, _ in self.captures.values()]
        self.create(spaces)
        self.create([dict(stand_in(reference), metadata={"name": reference.split("/")[1],
                                                         "namespace": capture["namespace"]})
                     for capture, _ in self.captures.values() for reference in capture["precreated"]])
        self.create([{"apiVersion": "v1", "kind": "ResourceQuota",
                      "metadata": {"name": "none", "namespace": self.captures[WITHOUT_PODS][0]["namespace"]},
                      "spec": {"hard": {"pods": "0"}}}])
        documents = [dict(document, metadata=dict(document["metadata"], namespace=capture["namespace"]))
                     for capture, documents in self.captures.values() for document in documents]
        # Whatever a graph needs comes before the graph, as when a person applies the file twice.
        self.create(sorted(documents, key=lambda d: d["kind"] == "DynamoGraphDeployment"))

    def create(self, objects):
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, default=str)
        self.kube.kubectl("create", "-f", "-", input=body)

    def settle(self, done):
        """Waits until done() and then until nothing has changed for a while."""
        end, before, since = time.monotonic() + PATIENCE_S, None, time.monotonic()
        while time.monotonic() < end:
            items = self.get(*WATCHED)
            now = {(i["kind"], i["metadata"]["uid"]): i["metadata"]["resourceVersion"] for i in items}
            if now != before or not done(items):
                before, since = now, time.monotonic()
            elif time.monotonic() - since > QUIET_S:
                return
            time.sleep(0.5)
        pytest.fail(f"not quiet after {PATIENCE_S} s")

    def events(self):
        """By namespace: the operator's events as {(kind, name): {"type reason": message}}."""
        spaces = {}
        for event in self.get(EVENTS):
            if event["source"].get("component", "").startswith("dynamo"):
                about = event["involvedObject"]
                space = spaces.setdefault(about["namespace"], {})
                key = f'{event["type"]} {event["reason"]}'
                space.setdefault((about["kind"], about["name"]), {})[key] = event["message"]
        return spaces

    def settle_first(self):
        self.settle(lambda items: all(i.get("status", {}).get("state") for i in items
                                      if i["kind"] == "DynamoGraphDeployment"))
        self.before, self.told = self.snapshot(), self.events()

    def settle_ready(self):
        self.mark_pods_ready()
        self.settle(lambda items: True)
        self.after = self.snapshot()

    def snapshot(self):
        spaces = {}
        for item in self.get(*WRITTEN, GRAPHS):
            space = spaces.setdefault(item["metadata"]["namespace"], {})
            space[item["kind"], item["metadata"]["name"]] = item
        return spaces

    def mark_pods_ready(self):
        mark_pods_ready(self.api, {capture["namespace"] for capture, _ in self.captures.values()})


def mark_pods_ready(api, spaces):
    """Does what kubelets would do if there were nodes."""
    ready = {"status": {"phase": "Running", "conditions": [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("Initialized", "ContainersReady", "Ready", "PodScheduled")]}}
    for pod in api.items("/api/v1/pods"):
        metadata = pod["metadata"]
        if metadata["namespace"] in spaces and pod["status"]["phase"] != "Running":
            with contextlib.suppress(NotFound):  # it may be gone by now
                api.patch(f'/api/v1/namespaces/{metadata["namespace"]}/pods/{metadata["name"]}/status', ready)


@contextlib.contextmanager
def observed(tools, folder, captures, *flags):
    """The operator, given the captured files."""
    if not CAPTURES:
        unavailable(f"no captures in {SHARED}")
    if not os.access(BINARY, os.X_OK):
        unavailable(f"no {BINARY}; run: make all")
    with api_server(tools, "--controllers") as kube, (folder / "log").open("w") as out:
        kube.apply_crds()
        world = World(kube, captures)
        with subprocess.Popen([BINARY, *FLAGS, *flags], env=dict(os.environ, KUBECONFIG=kube.kubeconfig),
                              stdout=out, stderr=subprocess.STDOUT) as operator:
            try:
                world.apply()
                world.settle_first()
                world.settle_ready()
                yield world
            finally:
                print(f"operator's log: {folder}/log")
                operator.terminate()


@pytest.fixture(scope="module")
def world(tools, tmp_path_factory):
    with observed(tools, tmp_path_factory.mktemp("plain"), CAPTURES) as found:
        yield found


@pytest.fixture(scope="module")
def world_with_image(tools, tmp_path_factory):
    with observed(tools, tmp_path_factory.mktemp("image"), OVERRIDDEN, OVERRIDE["flag"]) as found:
        yield found


def assert_covered(found, *options):
    """Fails with every difference that the table does not cover, in words."""
    bad = [oracle.describe(d) for d in found if not DEVIATIONS.covers(d, options)]
    assert not bad, "\n".join(bad)


def own_objects(capture, documents, space):
    """What the operator wrote: everything but what was there before and what the cluster adds."""
    given = {(d["kind"], d["metadata"]["name"]) for d in documents}
    given |= {tuple(reference.split("/")) for reference in capture["precreated"]}
    given |= {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}
    return {key: oracle.normalise(item) for key, item in space.items()
            if key not in given and key[0] != "DynamoGraphDeployment"}


def object_differences(world, path):
    capture, documents = world.captures[path.stem]
    theirs = {(o["kind"], o["metadata"]["name"]): oracle.normalise(o) for o in capture["objects"]}
    ours = own_objects(capture, documents, world.before[capture["namespace"]])
    return oracle.compare_sets(path.stem, theirs, ours)


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_objects(world, path):
    assert_covered(object_differences(world, path))


@pytest.mark.parametrize("path", OVERRIDDEN, ids=lambda path: path.stem)
def test_objects_with_our_frontend_image(world_with_image, path):
    assert_covered(object_differences(world_with_image, path), OVERRIDE["with"])


def statuses(capture, space):
    """Ours in the captures' form: status of graphs with two fields of metadata, and of children."""
    found = {}
    for (kind, name), item in space.items():
        status = oracle.normalise_status(item.get("status"))
        if kind == "DynamoGraphDeployment" and name in capture["dgds"]:
            status["metadata"] = {key: item["metadata"][key] for key in ("finalizers", "generation")
                                  if key in item["metadata"]}
            found[kind, name] = status
        elif kind in ("DynamoComponentDeployment", "DynamoGraphDeploymentScalingAdapter"):
            found[kind, name] = status
    return found


def captured_statuses(capture):
    found = {("DynamoGraphDeployment", name): status for name, status in capture["status"].items()}
    for key, status in capture["children_status"].items():
        kind, name = key.split("/")
        if kind in ("DynamoComponentDeployment", "DynamoGraphDeploymentScalingAdapter"):
            found[kind, name] = status
    for status in found.values():
        for key in ("annotations", "labels"):
            status.get("metadata", {}).pop(key, None)
    return found


def status_differences(world, path, pods):
    capture, _ = world.captures[path.stem]
    space = (world.before if pods == "pending" else world.after)[capture["namespace"]]
    theirs = captured_statuses(capture if pods == "pending" else capture["after_pods_ready"])
    for d in oracle.compare_sets(path.stem, theirs, statuses(capture, space)):
        yield d._replace(path="/status" + d.path)


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
@pytest.mark.parametrize("pods", ["pending", "ready"])
def test_status(world, path, pods):
    assert_covered(status_differences(world, path, pods))


@pytest.mark.parametrize("path", OVERRIDDEN, ids=lambda path: path.stem)
def test_status_with_our_frontend_image(world_with_image, path):
    assert_covered(status_differences(world_with_image, path, "ready"), OVERRIDE["with"])


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_events(world, path):
    """Who was told what: type and reason; the words are ours."""
    capture, _ = world.captures[path.stem]
    theirs = {}
    for event in capture["events"]:
        key = f'{event["type"]} {event["reason"]}'
        theirs.setdefault(tuple(event["object"].split("/")), {})[key] = event["message"]
    ours = world.told.get(capture["namespace"], {})
    both = {*theirs, *ours}
    found = oracle.compare_sets(path.stem, {k: theirs.get(k, {}) for k in both},
                                {k: ours.get(k, {}) for k in both})
    assert_covered(d._replace(path="/events" + d.path) for d in found if d.change != "value")


def test_every_deviation_is_needed(request):
    compared = sum(item.name.startswith(("test_objects", "test_status", "test_events")) for item in request.session.items)
    if compared < 4 * len(CAPTURES) + 2 * len(OVERRIDDEN):
        pytest.skip("only after all comparisons")
    assert not DEVIATIONS.unused(), json.dumps(DEVIATIONS.unused(), indent=2)
