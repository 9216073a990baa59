# SPDX-License-Identifier: Apache-2.0
"""The operator against a real API server with controllers and without nodes.

Each test has a namespace of its own. What is waited for has a deadline, nothing sleeps for its own
sake; pods do not run, so where a pod must speak the test speaks for it. The operator has the rights that
the chart gives it and no others, but where two of them share a cluster.
"""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import time
import urllib.parse

import pytest
import yaml

import rest
from conftest import CLUSTER, ROOT, free_port, unavailable
from rest import NotFound, Refused

pytestmark = pytest.mark.api

OPERATOR = pathlib.Path(os.environ.get("BUILD", ROOT / "build")) / "bin/dynamo-operator"
DEADLINE = 90  # the garbage collector looks for new kinds every 30 s only
DGD = "/apis/nvidia.com/v1alpha1/namespaces/{ns}/dynamographdeployments"
DCD = "/apis/nvidia.com/v1alpha1/namespaces/{ns}/dynamocomponentdeployments"
DWM = "/apis/nvidia.com/v1alpha1/namespaces/{ns}/dynamoworkermetadatas"
DEPLOYMENT = "/apis/apps/v1/namespaces/{ns}/deployments"
SERVICE = "/api/v1/namespaces/{ns}/services"
CONFIG_MAP = "/api/v1/namespaces/{ns}/configmaps"
ACCOUNT = "/api/v1/namespaces/{ns}/serviceaccounts"
CLAIM = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
POD = "/api/v1/namespaces/{ns}/pods"
QUOTA = "/api/v1/namespaces/{ns}/resourcequotas"
EVENT = "/api/v1/namespaces/{ns}/events"
ROLE = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles"
BINDING = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
OURS = (DCD, DEPLOYMENT, SERVICE, CONFIG_MAP, ACCOUNT, ROLE, BINDING)


class Api(rest.Rest):
    def __init__(self, env):
        self.env = env
        super().__init__(urllib.parse.urlsplit(env["KUBE_API_URL"]), ssl.create_default_context(cafile=env["KUBE_API_CA"]),
                         {"Authorization": "Bearer " + env["KUBE_API_TOKEN"]}, timeout=30)

    def items(self, path):
        return {item["metadata"]["name"]: item for item in self.call("GET", path)["items"]}

    def patch(self, path, **changes):
        return super().patch(path, changes)

    def states(self, path, version):
        """Watches graphs from a version on; a function that reads to the one with the label "end" and gives
        the state of each version before it."""
        lines = self.stream(f"{path}?watch=1&resourceVersion={version}")

        def read():
            for line in lines:
                item = json.loads(line)["object"]
                if "end" in item["metadata"].get("labels", {}):
                    return
                yield item["status"]["state"]
        return read


def eventually(check, what, deadline=DEADLINE):
    """The first true value of check(); fails with its last value when there is none in time."""
    until = time.monotonic() + deadline
    while True:
        try:
            value = check()
        except Refused as e:  # a server that has just come back asks for patience
            if e.status not in (429, 503):
                raise
            value = None
        if value:
            return value
        if time.monotonic() > until:
            pytest.fail(f"in {deadline} s not: {what}; last: {value!r}")
        time.sleep(0.05)


def chart_kubeconfig(api, tool):
    """A kubeconfig of the account that the chart makes for the operator, with its roles."""
    release, ns = "dynamo-platform", "dynamo-system"
    rendered = subprocess.run([tool("helm"), "template", release, ROOT / "charts/dynamo-platform", "-n", ns],
                              check=True, env=api.env, stdout=subprocess.PIPE).stdout
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    wanted = [document for document in yaml.safe_load_all(rendered) if document and document["kind"] in kinds]
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": ns}})
    subprocess.run([tool("kubectl"), "apply", "-f", "-"], check=True, env=api.env, stdout=subprocess.DEVNULL,
                   input=yaml.safe_dump_all(wanted).encode())
    account = f"{release}-dynamo-operator-controller-manager"
    token = subprocess.run([tool("kubectl"), "create", "token", "-n", ns, account], check=True, env=api.env, text=True,
                           stdout=subprocess.PIPE).stdout.strip()
    path = pathlib.Path(api.env["KUBE_API_DIR"]) / "operator.kubeconfig"
    path.write_text(json.dumps({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": api.env["KUBE_API_URL"],
                                               "certificate-authority": api.env["KUBE_API_CA"]}}],
        "users": [{"name": "u", "user": {"token": token}}]}))
    return str(path)


@contextlib.contextmanager
def server():
    """An API server with controllers of our own, which a test may kill."""
    with subprocess.Popen([CLUSTER, "api", "--controllers", "--", "sh", "-c", "env; echo; exec cat"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            env = {}
            for line in process.stdout:
                if not line.strip():
                    break
                key, _, value = line.rstrip("\n").partition("=")
                env[key] = value
            if "KUBE_API_URL" not in env:
                pytest.fail("the API server did not start")
            api = Api(env)
            def tool(name):
                return shutil.which(name, path=env["PATH"])
            for path in sorted((ROOT / "crds").glob("*.yaml")):
                subprocess.run([tool("kubectl"), "apply", "--server-side", "-f", path], check=True, env=env,
                               stdout=subprocess.DEVNULL)
            subprocess.run([tool("kubectl"), "wait", "--for=condition=Established", "--timeout=120s", "-f", ROOT / "crds"],
                           check=True, env=env, stdout=subprocess.DEVNULL)
            api.operator_kubeconfig = chart_kubeconfig(api, tool)
            yield api
        finally:
            process.stdin.close()


@pytest.fixture(scope="module")
def api(tools):
    if not OPERATOR.exists():
        unavailable(f"no {OPERATOR}; run: make all")
    with server() as api:
        yield api


class Operator:
    def __init__(self, api, log, *flags, identity="one", kubeconfig=None):
        self.port, self.metrics_port = free_port(), free_port()
        self.log, self.status = log, 0  # the exit status that running() asks for
        # The pod's name is the identity: whoever comes back under it need not wait for its own Lease.
        env = {"KUBECONFIG": kubeconfig or api.operator_kubeconfig, "POD_NAME": identity, "DYN_LOG": "debug"}
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                [OPERATOR, "--leader-elect", "--leader-election-namespace=kube-system",
                 "--frontend-image=commutator:test", f"--health-probe-bind-address=127.0.0.1:{self.port}",
                 f"--metrics-bind-address=127.0.0.1:{self.metrics_port}",
                 "--natsAddr=nats://nats.example:4222", *flags], stderr=out, env=env)

    def http(self, port, path):
        try:
            conn = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
            conn.request("GET", path)
            answer = conn.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""

    def wait_ready(self):
        eventually(lambda: self.http(self.port, "/readyz")[0] == 200, "/readyz")
        return self

    def metrics(self):
        return self.http(self.metrics_port, "/metrics")[1]

    def leads(self):
        return "leader_election_master_status 1" in self.metrics().splitlines()

    def kill(self):
        self.status = -signal.SIGKILL
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)


@contextlib.contextmanager
def running(api, tmp_path, *flags, name="one", refused=False, **options):
    """@refused: calls may be refused, as by an API server that has just started and not yet read its roles."""
    operator = Operator(api, tmp_path / f"{name}.log", *flags, identity=name, **options).wait_ready()
    try:
        yield operator
    finally:
        if operator.process.poll() is None:
            operator.stop()
        text = (tmp_path / f"{name}.log").read_text(errors="replace")
        print(text[-6000:])
        assert "Sanitizer" not in text
        assert refused or "forbidden" not in text
        assert operator.process.returncode == operator.status, f"{name} ended with {operator.process.returncode}"


@pytest.fixture
def ns(api, request):
    name = "t-" + re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[-50:].strip("-")
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    for graph in api.items(DGD.format(ns=name)):
        api.call("DELETE", DGD.format(ns=name) + "/" + graph)


@pytest.fixture
def operator(api, tmp_path):
    with running(api, tmp_path) as operator:
        yield operator


def graph(name="g", mode="kv", **spec):
    main = {"image": "example.com/runtime:1", "command": ["python3"]}
    services = {
        "Frontend": {"componentType": "frontend", "replicas": 1, "envs": [{"name": "DYN_ROUTER_MODE", "value": mode}],
                     "extraPodSpec": {"mainContainer": main | {"args": ["-m", "dynamo.frontend"]}}},
        "Worker": {"componentType": "worker", "replicas": 2, "resources": {"limits": {"gpu": "1"}},
                   "extraPodSpec": {"mainContainer": main | {"args": ["-m", "dynamo.vllm", "--model", "m"]}}}}
    return {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "metadata": {"name": name},
            "spec": {"services": services} | spec}


def children(api, ns):
    """(collection, name) of everything that carries the marks of an operator."""
    found = {}
    for path in OURS:
        for name, item in api.items(path.format(ns=ns)).items():
            if item["metadata"].get("ownerReferences"):
                found[path, name] = item
    return found


def wait_children(api, ns, n=10, name="g"):
    """The children of a graph of two services once they are all there."""
    def complete():
        mine = {key: item for key, item in children(api, ns).items() if key[1].startswith(name)}
        return mine if len(mine) == n else None
    return eventually(complete, f"{n} children in {ns}")


def condition(item, kind):
    return next((c for c in item.get("status", {}).get("conditions", []) if c["type"] == kind), {})


def status(api, ns):
    """The status of the graph; its children may be there before it is."""
    return api.get(DGD.format(ns=ns) + "/g").get("status", {})


def create(api, ns, body):
    return api.call("POST", DGD.format(ns=ns), body)


def events(api, ns, reason):
    return [e for e in api.items(EVENT.format(ns=ns)).values() if e["reason"] == reason]


def test_a_graph_becomes_its_children(api, ns, operator):
    create(api, ns, graph())
    made = wait_children(api, ns)
    assert {(path.rsplit("/", 1)[1], name) for path, name in made} == {
        ("dynamocomponentdeployments", "g-frontend"), ("dynamocomponentdeployments", "g-worker"),
        ("deployments", "g-frontend"), ("deployments", "g-worker"), ("services", "g-frontend"),
        ("services", "g-worker"), ("configmaps", "g-frontend-routing"),
        ("serviceaccounts", "g-k8s-service-discovery"), ("roles", "g-k8s-service-discovery-role"),
        ("rolebindings", "g-k8s-service-discovery-binding")}
    assert eventually(lambda: status(api, ns), "a status")["state"] == "pending"
    assert made[DEPLOYMENT, "g-worker"]["spec"]["replicas"] == 2
    assert eventually(lambda: events(api, ns, "CreateDynamoComponentDeployment"), "an event")


MANUAL = [  # collection, name, change, and what it must be again
    (DEPLOYMENT, "g-worker", {"spec": {"replicas": 7}}, lambda o: o["spec"]["replicas"] == 2),
    (DEPLOYMENT, "g-worker", {"spec": {"template": {"spec": {"nodeSelector": {"by": "hand"}}}}},
     lambda o: not o["spec"]["template"]["spec"].get("nodeSelector")),
    (DEPLOYMENT, "g-worker", {"metadata": {"labels": {"nvidia.com/dynamo-component": "other"}}},
     lambda o: o["metadata"]["labels"]["nvidia.com/dynamo-component"] == "Worker"),
    # Without the label our watch does not see the object any more: it must come back all the same.
    (DEPLOYMENT, "g-worker", {"metadata": {"labels": {"nvidia.com/dynamo-graph-deployment-name": None}}},
     lambda o: o["metadata"]["labels"].get("nvidia.com/dynamo-graph-deployment-name") == "g"),
    (SERVICE, "g-frontend", {"spec": {"ports": [{"name": "http", "port": 8123, "targetPort": "http"}]}},
     lambda o: [p["port"] for p in o["spec"]["ports"]] == [8000]),
    (CONFIG_MAP, "g-frontend-routing", {"data": {"DYN_ROUTER_MODE": "random", "X": "1"}},
     lambda o: o["data"] == {"DYN_ROUTER_MODE": "kv"}),
    (ROLE, "g-k8s-service-discovery-role", {"rules": []}, lambda o: len(o["rules"] or []) >= 3),
    (BINDING, "g-k8s-service-discovery-binding", {"subjects": []}, lambda o: len(o.get("subjects") or []) == 1),
    (DCD, "g-worker", {"spec": {"replicas": 5}}, lambda o: o["spec"]["replicas"] == 2),
]


def test_manual_changes_are_put_back(api, ns, operator):
    create(api, ns, graph())
    wait_children(api, ns)
    for path, name, change, right in MANUAL:
        path = path.format(ns=ns) + "/" + name
        changed = api.patch(path, **change)
        assert not right(changed), f"the change of {path} did not take"
        eventually(lambda: right(api.get(path)), f"{path} put back after {change}")


def test_deleted_children_come_back(api, ns, operator):
    create(api, ns, graph())
    for (path, name), item in wait_children(api, ns).items():
        if path == DCD:
            continue
        path = path.format(ns=ns) + "/" + name
        api.call("DELETE", path)
        eventually(lambda: (api.get(path) or item)["metadata"]["uid"] != item["metadata"]["uid"], f"{path} again")
    dcd = api.get(DCD.format(ns=ns) + "/g-worker")
    api.call("DELETE", DCD.format(ns=ns) + "/g-worker")
    eventually(lambda: (api.get(DCD.format(ns=ns) + "/g-worker") or dcd)["metadata"]["uid"] != dcd["metadata"]["uid"],
               "the component again")
    # The old one takes its children along; those of the new one must be there in the end.
    def whole():
        new = api.get(DCD.format(ns=ns) + "/g-worker")
        deployment = api.get(DEPLOYMENT.format(ns=ns) + "/g-worker")
        service = api.get(SERVICE.format(ns=ns) + "/g-worker")
        return all(o and o["metadata"]["ownerReferences"][0]["uid"] == new["metadata"]["uid"]
                   for o in (deployment, service))
    eventually(whole, "the children of the new component")


def test_a_removed_service_is_pruned(api, ns, operator):
    create(api, ns, graph())
    wait_children(api, ns)
    api.patch(DGD.format(ns=ns) + "/g", spec={"services": {"Worker": None}})
    eventually(lambda: {name for _, name in children(api, ns)}.isdisjoint({"g-worker"}), "the worker gone")
    assert set(api.items(DCD.format(ns=ns))) == {"g-frontend"}
    eventually(lambda: set(status(api, ns).get("services", {})) == {"Frontend"}, "the worker out of the status")


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_deletion_leaves_nothing(api, ns, operator, propagation):
    create(api, ns, graph())
    wait_children(api, ns)
    # What the reference operator left on an object must not hang its deletion.
    api.patch(DGD.format(ns=ns) + "/g", metadata={"finalizers": ["nvidia.com/finalizer"]})
    api.call("DELETE", DGD.format(ns=ns) + "/g", {"propagationPolicy": propagation})
    eventually(lambda: api.get(DGD.format(ns=ns) + "/g") is None, "the graph gone")
    eventually(lambda: not children(api, ns), "its children gone")


def test_an_invalid_graph_is_told_where_and_waits_for_an_edit(api, ns, operator):
    body = graph()
    body["spec"]["services"]["Worker"]["sharedMemory"] = {"disabled": False}
    create(api, ns, body)
    def failed():
        item = api.get(DGD.format(ns=ns) + "/g")
        return condition(item, "Ready").get("reason") == "ValidationFailed" and item
    item = eventually(failed, "ValidationFailed")
    assert item["status"]["state"] == "failed"
    assert "spec.services[Worker].sharedMemory.size" in condition(item, "Ready")["message"]
    assert not children(api, ns)
    eventually(lambda: events(api, ns, "ValidationFailed"), "an event")
    api.patch(DGD.format(ns=ns) + "/g", spec={"services": {"Worker": {"sharedMemory": {"size": "1Gi"}}}})
    wait_children(api, ns)
    eventually(lambda: status(api, ns)["state"] == "pending", "state pending")


def test_a_claim_that_is_missing_and_then_comes(api, ns, operator):
    create(api, ns, graph(pvcs=[{"name": "models", "create": False}]))
    def failed():
        item = api.get(DGD.format(ns=ns) + "/g")
        return item.get("status", {}).get("state") == "failed" and item
    assert '"models" not found' in condition(eventually(failed, "state failed"), "Ready")["message"]
    assert not api.items(DCD.format(ns=ns))
    api.call("POST", CLAIM.format(ns=ns), {
        "metadata": {"name": "models"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
    wait_children(api, ns)
    api.call("DELETE", DGD.format(ns=ns) + "/g")
    eventually(lambda: not children(api, ns), "children gone")
    assert api.get(CLAIM.format(ns=ns) + "/models"), "a claim that is not ours stays"


def test_a_claim_is_made(api, ns, operator):
    create(api, ns, graph(pvcs=[{"name": "models", "create": True, "size": "1Gi", "storageClass": "fast",
                                 "volumeAccessMode": "ReadWriteMany"}]))
    claim = eventually(lambda: api.get(CLAIM.format(ns=ns) + "/models"), "the claim")
    assert claim["spec"]["storageClassName"] == "fast"
    wait_children(api, ns)


def test_refused_pods_have_nothing_that_leads_to_them(api, ns, tmp_path):
    quota = QUOTA.format(ns=ns)
    api.call("POST", quota, {"metadata": {"name": "none"}, "spec": {"hard": {"count/deployments.apps": "0"}}})
    eventually(lambda: api.get(quota + "/none").get("status", {}).get("hard"), "the quota in force")
    with running(api, tmp_path, refused=True):
        create(api, ns, graph())
        for name in ("g-frontend", "g-worker"):
            eventually(lambda: "exceeded quota" in condition(api.get(DCD.format(ns=ns) + "/" + name) or {}, "Available")
                       .get("message", ""), "a Deployment refused")
        assert not api.items(SERVICE.format(ns=ns))
        api.call("DELETE", quota + "/none")
        wait_children(api, ns)


def test_pull_secrets_follow_the_registry(api, ns, operator):
    create(api, ns, graph())
    wait_children(api, ns)
    auths = base64.b64encode(json.dumps({"auths": {"https://example.com/v1/": {"auth": "eA=="}}}).encode()).decode()
    api.call("POST", f"/api/v1/namespaces/{ns}/secrets", {
        "metadata": {"name": "pull"}, "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": auths}})
    eventually(lambda: api.get(DEPLOYMENT.format(ns=ns) + "/g-worker")["spec"]["template"]["spec"]
               .get("imagePullSecrets") == [{"name": "pull"}], "the secret in the pod")


def test_a_flip_reaches_the_frontends_without_a_new_pod(api, ns, operator):
    create(api, ns, graph(mode="kv"))
    wait_children(api, ns)
    frontend = api.get(DEPLOYMENT.format(ns=ns) + "/g-frontend")
    assert {"configMapRef": {"name": "g-frontend-routing"}} in [
        {"configMapRef": {"name": source["configMapRef"]["name"]}}
        for source in frontend["spec"]["template"]["spec"]["containers"][-1]["envFrom"] if "configMapRef" in source]

    def say(generation, mode):  # as the frontend's pod does, in its own object
        path = DWM.format(ns=ns)
        annotations = {"commutator.dev/routing-generation": str(generation), "commutator.dev/routing-mode": mode}
        body = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoWorkerMetadata",
                "metadata": {"name": "g-frontend-5d4f8b7c9-abcde", "annotations": annotations},
                "spec": {"data": {"endpoints": {}, "model_cards": {}, "event_channels": {}}}}
        if api.get(path + "/g-frontend-5d4f8b7c9-abcde"):
            api.patch(path + "/g-frontend-5d4f8b7c9-abcde", metadata={"annotations": annotations})
        else:
            api.call("POST", path, body)

    def routing():
        return condition(api.get(DGD.format(ns=ns) + "/g"), "RoutingApplied")

    say(1, "kv")
    eventually(lambda: routing().get("status") == "True", "RoutingApplied")
    assert "mode kv, generation 1, applied by 1 of 1" in routing()["message"]

    for generation, mode in ((2, "round-robin"), (3, "kv")):
        api.patch(DGD.format(ns=ns) + "/g", spec={"services": {"Frontend": {
            "envs": [{"name": "DYN_ROUTER_MODE", "value": mode}]}}})
        map_path = CONFIG_MAP.format(ns=ns) + "/g-frontend-routing"
        eventually(lambda: api.get(map_path)["data"]["DYN_ROUTER_MODE"] == mode, "the ConfigMap")
        assert api.get(map_path)["metadata"]["annotations"]["commutator.dev/routing-generation"] == str(generation)
        eventually(lambda: routing()["status"] == "False" and f"generation {generation}" in routing()["message"],
                   "RoutingApplied False")
        say(generation, mode)
        eventually(lambda: routing()["status"] == "True", "RoutingApplied again")
        assert f"mode {mode}, generation {generation}, applied by 1 of 1" in routing()["message"]
        eventually(lambda: [e for e in events(api, ns, "RoutingApplied")
                            if f"generation {generation}" in e["message"] and " ms" in e["message"]], "an event")
    after = api.get(DEPLOYMENT.format(ns=ns) + "/g-frontend")
    assert after["spec"]["template"] == frontend["spec"]["template"]
    assert after["metadata"]["generation"] == frontend["metadata"]["generation"]


def test_why_a_pod_is_not_scheduled_stands_in_the_status(api, ns, operator):
    create(api, ns, graph())
    wait_children(api, ns)
    pod = eventually(lambda: next((n for n in api.items(POD.format(ns=ns)) if n.startswith("g-worker-")), None), "a pod")
    api.call("PATCH", POD.format(ns=ns) + f"/{pod}/status", {"status": {"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."}]}}, "application/merge-patch+json")
    eventually(lambda: "Insufficient nvidia.com/gpu" in condition(api.get(DCD.format(ns=ns) + "/g-worker"),
                                                                 "Available").get("message", ""), "the reason")
    eventually(lambda: "Insufficient nvidia.com/gpu" in condition(api.get(DGD.format(ns=ns) + "/g"), "Ready")
               .get("message", ""), "the reason at the graph")


def make_ready(api, ns):
    """Says for all pods that they run, as a kubelet would; whether the graph is ready now."""
    conditions = [{"type": kind, "status": "True"} for kind in
                  ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
    for name in api.items(POD.format(ns=ns)):
        with contextlib.suppress(NotFound):  # replaced meanwhile
            api.call("PATCH", POD.format(ns=ns) + f"/{name}/status",
                     {"status": {"phase": "Running", "conditions": conditions}}, "application/merge-patch+json")
    return status(api, ns).get("state") == "successful"


def test_a_flip_leaves_a_ready_graph_ready(api, ns, operator):
    create(api, ns, graph())
    wait_children(api, ns)
    eventually(lambda: make_ready(api, ns), "state successful")
    since = condition(api.get(DGD.format(ns=ns) + "/g"), "Ready")["lastTransitionTime"]
    version = api.get(DGD.format(ns=ns) + "/g")["metadata"]["resourceVersion"]
    states = api.states(DGD.format(ns=ns), version)
    for generation, mode in ((2, "round-robin"), (3, "kv"), (4, "random")):
        api.patch(DGD.format(ns=ns) + "/g", spec={"services": {"Frontend": {
            "envs": [{"name": "DYN_ROUTER_MODE", "value": mode}]}}})
        eventually(lambda: f"generation {generation}" in condition(api.get(DGD.format(ns=ns) + "/g"),
                                                                  "RoutingApplied").get("message", ""), "the flip")
    assert condition(api.get(DGD.format(ns=ns) + "/g"), "Ready")["lastTransitionTime"] == since
    # Not for a moment: every version of the graph said so.
    api.patch(DGD.format(ns=ns) + "/g", metadata={"labels": {"end": "here"}})
    assert set(states()) == {"successful"}
    # A new image is another matter.
    api.patch(DGD.format(ns=ns) + "/g", spec={"services": {"Worker": {"extraPodSpec": {"mainContainer": {
        "image": "example.com/runtime:2"}}}}})
    eventually(lambda: status(api, ns)["state"] == "pending", "state pending")
    eventually(lambda: make_ready(api, ns), "state successful again")


def test_ready_when_the_pods_are(api, ns, operator):
    create(api, ns, graph())
    wait_children(api, ns)
    eventually(lambda: make_ready(api, ns), "state successful")
    item = api.get(DGD.format(ns=ns) + "/g")
    assert condition(item, "Ready")["status"] == "True"
    assert item["status"]["services"]["Worker"] | {"readyReplicas": 2, "availableReplicas": 2} == \
        item["status"]["services"]["Worker"]


def versions(api, ns):
    found = {key: item["metadata"]["resourceVersion"] for key, item in children(api, ns).items()}
    return found | {name: item["metadata"]["resourceVersion"] for name, item in api.items(DGD.format(ns=ns)).items()}


def test_nothing_is_written_when_nothing_has_changed(api, ns, tmp_path):
    with running(api, tmp_path):
        for i in range(5):
            create(api, ns, graph(f"g{i}"))
        for i in range(5):
            wait_children(api, ns, name=f"g{i}")
        def rolled_out():  # as far as it goes without a node: the controllers have nothing more to tell
            return all(item["status"].get("observedGeneration") == item["metadata"]["generation"]
                       and item["status"].get("unavailableReplicas") == item["spec"]["replicas"]
                       for item in api.items(DEPLOYMENT.format(ns=ns)).values())
        eventually(rolled_out, "the pods of all Deployments")
        def still():
            before = versions(api, ns)
            time.sleep(3)
            return before == versions(api, ns)
        eventually(still, "no more writes")
    before = versions(api, ns)
    # A new operator looks at everything and finds it right.
    with running(api, tmp_path) as operator:
        passes = re.compile(rf'dynamo_operator_reconcile_total{{resource_type="DynamoComponentDeployment",'
                            rf'namespace="{ns}",result="success"}} (\d+)$', re.MULTILINE)
        eventually(lambda: any(int(n) >= 10 for n in passes.findall(operator.metrics())), "ten passes")
        assert versions(api, ns) == before
        assert 'result="error"' not in operator.metrics()


def test_killed_in_the_middle_of_its_work(api, ns, tmp_path):
    with running(api, tmp_path) as operator:
        bodies = (graph(f"g{i:02}") for i in range(20))
        for body in bodies:
            create(api, ns, body)
            if len(children(api, ns)) > 5:
                break
        eventually(lambda: len(children(api, ns)) > 5, "the first children")
        operator.kill()
        assert len(children(api, ns)) < 200, "killed too late to prove anything"
        for body in bodies:
            create(api, ns, body)
    with running(api, tmp_path):
        eventually(lambda: len(children(api, ns)) == 200, "all children of all graphs", 120)


def test_metrics_and_health(api, ns, operator):
    create(api, ns, graph())
    wait_children(api, ns)
    text = operator.metrics()
    for name in ("dynamo_operator_reconcile_duration_seconds_bucket", "dynamo_operator_reconcile_total",
                 "controller_runtime_reconcile_total", "workqueue_depth", "workqueue_adds_total",
                 "workqueue_queue_duration_seconds_bucket", "workqueue_work_duration_seconds_bucket",
                 "workqueue_retries_total", "workqueue_unfinished_work_seconds",
                 'rest_client_requests_total{code="201",method="POST",host="127.0.0.1:'):
        assert f"\n{name}" in text, name
    assert operator.http(operator.port, "/healthz") == (200, "ok")
    assert operator.http(operator.port, "/nothing")[0] == 404


def test_one_of_two_leads_and_the_other_takes_over(api, ns, tmp_path):
    with running(api, tmp_path, name="first") as first:
        eventually(first.leads, "the first leads")
        with running(api, tmp_path, name="second") as second:
            create(api, ns, graph("g1"))
            wait_children(api, ns, name="g1")
            assert not second.leads()
            assert second.http(second.port, "/readyz")[0] == 200
            assert first.stop() == 0
            # Given back: nobody waits until it has expired.
            assert api.get(LEASE.format(ns="kube-system") + "/dynamo.nvidia.com")["spec"]["holderIdentity"] in ("", "second")
            eventually(second.leads, "the second leads")
            create(api, ns, graph("g2"))
            wait_children(api, ns, name="g2")
            lease = api.get(LEASE.format(ns="kube-system") + "/dynamo.nvidia.com")
            assert lease["spec"]["holderIdentity"] == "second"
            # Somebody else takes the Lease: who has lost it must go.
            api.patch(LEASE.format(ns="kube-system") + "/dynamo.nvidia.com", spec={"holderIdentity": "intruder"})
            second.status = 1
            assert second.process.wait(DEADLINE) == 1
    api.call("DELETE", LEASE.format(ns="kube-system") + "/dynamo.nvidia.com")


def test_a_restricted_operator_beside_a_cluster_wide_one(api, ns, tmp_path):
    marker = LEASE.format(ns=ns) + "/dynamo-operator-namespace-scope"
    with running(api, tmp_path, name="wide") as wide:
        eventually(wide.leads, "the cluster-wide one leads")
        with running(api, tmp_path, f"--restrictedNamespace={ns}", "--leader-election-namespace=" + ns,
                     "--operator-version=0.9.0", name="narrow", kubeconfig=api.env["KUBECONFIG"]) as narrow:
            eventually(narrow.leads, "the restricted one leads")
            spec = api.get(marker)["spec"]
            assert spec["holderIdentity"] == "namespace-restricted-operator-0.9.0"
            assert spec["leaseDurationSeconds"] == 30 and spec["renewTime"]
            eventually(lambda: "Lease" not in wide.http(wide.port, "/readyz")[1], "the marker seen")
            create(api, ns, graph())
            wait_children(api, ns)
            assert f'namespace="{ns}"' in narrow.metrics()
            assert f'namespace="{ns}"' not in wide.metrics()
        assert api.get(marker) is None
        api.call("DELETE", DEPLOYMENT.format(ns=ns) + "/g-worker")
        eventually(lambda: api.get(DEPLOYMENT.format(ns=ns) + "/g-worker"), "the cluster-wide one takes over")
        assert f'namespace="{ns}"' in wide.metrics()


def test_stopped_amid_many_passes(api, ns, tmp_path):
    """Passes of both kinds and a counting run when it is told to stop; they end, then all that they use."""
    marker = LEASE.format(ns=ns) + "/dynamo-operator-namespace-scope"
    lease = LEASE.format(ns=ns) + "/dynamo.nvidia.com"
    for round_ in range(6):
        with running(api, tmp_path, f"--restrictedNamespace={ns}", "--leader-election-namespace=" + ns, "--workers=4",
                     name=f"r{round_}", kubeconfig=api.env["KUBECONFIG"]) as operator:
            eventually(operator.leads, "it leads")
            for i in range(6):
                create(api, ns, graph(f"r{round_}g{i}"))
            # Each round ends a little later in the life of its graphs.
            eventually(lambda: sum(name.startswith(f"r{round_}") for _, name in children(api, ns)) > 5 * round_,
                       "passes under way")
            assert operator.stop() == 0
        assert api.get(lease)["spec"].get("holderIdentity", "") == "", "the Lease is given back"
        assert api.get(marker) is None, "the marker is gone"


# --- an API server that goes away ------------------------------------------------------------------------

class Etcd:
    """The store behind the API server's back, through its JSON gateway."""

    def __init__(self, api):
        words = shlex.split((pathlib.Path(api.env["KUBE_API_DIR"]) / "etcd.sh").read_text())
        url = next(words[i + 1] for i, word in enumerate(words) if word == "--listen-client-urls")
        self.host = urllib.parse.urlsplit(url).netloc

    def call(self, path, body):
        conn = http.client.HTTPConnection(self.host, timeout=30)
        conn.request("POST", "/v3/kv/" + path, json.dumps(body))
        answer = conn.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return json.loads(text)

    def delete(self, key):
        return int(self.call("deleterange", {"key": base64.b64encode(key.encode()).decode()}).get("deleted", 0))

    def compact(self):
        revision = self.call("range", {"key": base64.b64encode(b"x").decode()})["header"]["revision"]
        self.call("compaction", {"revision": revision, "physical": True})


class ApiServer:
    def __init__(self, api):
        self.api = api
        self.dir = pathlib.Path(api.env["KUBE_API_DIR"])
        self.process = None

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        else:
            os.kill(int((self.dir / "kube-apiserver.pid").read_text()), signal.SIGKILL)
        eventually(lambda: not self.answers(), "the API server dead")

    def start(self):
        self.process = subprocess.Popen([self.dir / "kube-apiserver.sh"])
        eventually(self.answers, "the API server back", 90)

    def answers(self):
        """Ours, too: custom resources come a little after the rest."""
        try:
            return all(self.api.get(path) is not None for path in ("/api/v1/namespaces/default", DGD.format(ns="default")))
        except (OSError, Refused, ValueError):
            return False


def test_an_api_server_that_is_killed_and_comes_back(tools, tmp_path):
    """Also what was deleted meanwhile, with the history compacted away, is noticed: 410 and a new list."""
    if not OPERATOR.exists():
        unavailable(f"no {OPERATOR}; run: make all")
    # Who cannot renew the Lease for long enough must go, and a busy machine may need longer for a new API server.
    with server() as api, running(api, tmp_path, "--leader-elect=false", refused=True) as operator:
        ns, apiserver, etcd = "default", ApiServer(api), Etcd(api)
        try:
            create(api, ns, graph())
            made = wait_children(api, ns)
            for round_ in range(2):
                apiserver.kill()
                if round_ == 1:
                    assert etcd.delete(f"/registry/deployments/{ns}/g-worker") == 1
                    assert etcd.delete(f"/registry/services/specs/{ns}/g-frontend") == 1
                    etcd.compact()
                apiserver.start()
                def created():  # a server that has just started may not be ready to admit
                    with contextlib.suppress(Refused):
                        create(api, ns, graph(f"h{round_}"))
                    return api.get(DGD.format(ns=ns) + f"/h{round_}")
                eventually(created, "a graph taken")
                wait_children(api, ns, name=f"h{round_}")
            for path, name in ((DEPLOYMENT, "g-worker"), (SERVICE, "g-frontend")):
                again = eventually(lambda: api.get(path.format(ns=ns) + "/" + name), f"{name} again")
                assert again["metadata"]["uid"] != made[path, name]["metadata"]["uid"]
            assert operator.process.poll() is None
        finally:
            if apiserver.process:
                apiserver.process.kill()
