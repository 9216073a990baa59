# SPDX-License-Identifier: Apache-2.0
"""The installed platform and what runs on it: the API, graphs, their pods, and clients with load.

The tests that use it run in the cluster's network (`cluster in`), so pods and Services are reached
by address. What is waited for has a limit; nothing sleeps for its own sake.
"""

import base64
import contextlib
import datetime
import fcntl
import http.client
import json
import pathlib
import random
import re
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import pytest
import yaml

import rest
from conftest import CLUSTER, ROOT
from rest import Refused

IMAGE = "commutator/dynamo:dev"
MODEL = "example"
BLOCK = 16  # tokens; small, so that short prompts have many
CHART = ROOT / "charts/dynamo-platform"
RELEASE, SYSTEM = "dynamo-platform", "dynamo-system"
MANAGER = RELEASE + "-dynamo-operator-controller-manager"

GRAPHS = "/apis/nvidia.com/v1alpha1/namespaces/{ns}/dynamographdeployments"
COMPONENTS = "/apis/nvidia.com/v1alpha1/namespaces/{ns}/dynamocomponentdeployments"
RECORDS = "/apis/nvidia.com/v1alpha1/namespaces/{ns}/dynamoworkermetadatas"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"
REPLICA_SETS = "/apis/apps/v1/namespaces/{ns}/replicasets"
STATEFUL_SETS = "/apis/apps/v1/namespaces/{ns}/statefulsets"
PODS = "/api/v1/namespaces/{ns}/pods"
SERVICES = "/api/v1/namespaces/{ns}/services"
CONFIG_MAPS = "/api/v1/namespaces/{ns}/configmaps"
SECRETS = "/api/v1/namespaces/{ns}/secrets"
CLAIMS = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
ACCOUNTS = "/api/v1/namespaces/{ns}/serviceaccounts"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices"
EVENTS = "/api/v1/namespaces/{ns}/events"
# Everything that a graph or one of its components may bring about, but volumes.
MADE = (COMPONENTS, RECORDS, DEPLOYMENTS, REPLICA_SETS, PODS, SERVICES, CONFIG_MAPS, ACCOUNTS, ROLES, BINDINGS, SLICES)


# Seconds for what is promised to come at once, beside other work; whatever else would bring it about takes longer.
SOON = 20
# For what has to come at some time.
PATIENCE = 120


def eventually(holds, what, limit=PATIENCE):
    """The first true value of holds(), asked again and again until the limit in seconds."""
    end = time.monotonic() + limit
    while not (value := holds()):
        if time.monotonic() > end:
            pytest.fail(f"not within {limit} s: {what}; last: {value!r}")
        time.sleep(0.05)
    return value


class Api(rest.Rest):
    """Kubernetes as its administrator."""

    def __init__(self, kubeconfig):
        view = yaml.safe_load(pathlib.Path(kubeconfig).read_text())
        user = view["users"][0]["user"]
        cluster = view["clusters"][0]["cluster"]
        tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(user["client-certificate-data"]))
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            tls.load_cert_chain(pair.name)
        super().__init__(urllib.parse.urlsplit(cluster["server"]), tls)

    def items(self, path, selector=""):
        return self.call("GET", path + ("?labelSelector=" + urllib.parse.quote(selector) if selector else ""))["items"]

    def up(self):
        try:
            return self.call("GET", "/api/v1/namespaces/default") is not None
        except (OSError, Refused, ValueError, http.client.HTTPException):
            return False


# --- the platform -----------------------------------------------------------------------------------------


class Platform:
    """The cluster with our chart on it."""

    def __init__(self, kube):
        self.kube, self.api = kube, Api(kube.kubeconfig)

    def install(self, *options, release=RELEASE, namespace=SYSTEM):
        return self.kube.helm("upgrade", "--install", release, CHART, "--namespace", namespace, "--create-namespace",
                              "--wait", "--timeout=150s", *options)

    def ready(self):
        """Installs the chart, with the image that was loaded last in every pod of it. Files beside each other take turns."""
        with open(self.kube.kubeconfig) as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            self.install("--set", "dynamo-operator.controllerManager.manager.image.tag=dev")
            if not self._is_of_loaded_image():
                self.kube.kubectl("rollout", "restart", "deployment", MANAGER, "-n", SYSTEM)
                self.kube.kubectl("rollout", "status", "deployment", MANAGER, "-n", SYSTEM, "--timeout=180s")
        return self

    def _is_of_loaded_image(self):
        """Whether the operator was begun after images were loaded: the tag may have moved."""
        loaded = pathlib.Path(self.kube.kubeconfig).parent.parent / "loaded"
        begun = datetime.datetime.fromisoformat(self.pod("dynamo-operator")["metadata"]["creationTimestamp"].replace("Z", "+00:00"))
        return loaded.exists() and begun.timestamp() > loaded.stat().st_mtime

    def pod(self, name, namespace=SYSTEM):
        """The pod of the release whose app.kubernetes.io/name this is."""
        return next(pod for pod in self.api.items(PODS.format(ns=namespace), f"app.kubernetes.io/name={name}")
                    if "deletionTimestamp" not in pod["metadata"])

    @contextlib.contextmanager
    def namespace(self, name):
        """A namespace for the time of a test, empty at the start and gone at the end."""
        self.kube.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=120s")
        self.kube.kubectl("create", "namespace", name)
        try:
            yield name
        finally:
            self.kube.kubectl("delete", "namespace", name, "--wait=false", check=False)

    def apply(self, namespace, body):
        """What `kubectl apply` does with a graph that is new."""
        self.api.call("POST", GRAPHS.format(ns=namespace), body)
        return Graph(self, namespace, body["metadata"]["name"])


@contextlib.contextmanager
def armed(pod, container=None):
    """A function that ends the processes of a pod's container within a millisecond or two."""
    status = next(each for each in pod["status"]["containerStatuses"] if container in (None, each["name"]))
    identity = status["containerID"].partition("//")[2]
    script = 'p=$(grep -ls "$0" /proc/[0-9]*/cgroup | cut -d/ -f3); echo armed; read -r; kill -KILL $p; echo done'
    with subprocess.Popen([CLUSTER, "node", "bash", "-c", script, identity], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as killer:
        assert killer.stdout.readline() == "armed\n"

        def fire():
            killer.stdin.write("\n")
            killer.stdin.flush()
            assert killer.stdout.readline() == "done\n"
        yield fire
        killer.stdin.close()


def kill(pod, container=None):
    """Ends the processes of a pod's container at once, as an out-of-memory killer would."""
    with armed(pod, container) as fire:
        fire()


def processes(pod):
    """Of a pod's containers, by the machine's numbers."""
    containers = [each["containerID"].partition("//")[2] for each in pod["status"]["containerStatuses"]]

    def ours(cgroup):
        with contextlib.suppress(OSError):  # it has ended
            return any(each in cgroup.read_text() for each in containers)
    return [int(cgroup.parent.name) for cgroup in pathlib.Path("/proc").glob("[0-9]*/cgroup") if ours(cgroup)]


def waits(process):
    """Seconds that each thread of a process was ready to run and had no processor."""
    return {task.name: int((task / "schedstat").read_text().split()[1]) / 1e9
            for task in pathlib.Path(f"/proc/{process}/task").iterdir()}


def waited(before, after):
    """Those of the thread that waited longest between the two."""
    return max(seconds - before.get(task, 0) for task, seconds in after.items())


def restarts(pods):
    return {pod["metadata"]["name"]: sum(c["restartCount"] for c in pod["status"].get("containerStatuses", []))
            for pod in pods}


def condition(item, kind):
    return next((c for c in item.get("status", {}).get("conditions", []) if c["type"] == kind), {})


# --- graphs -----------------------------------------------------------------------------------------------

# What a careful administrator demands; the programs must do with it.
LOCKED = {"runAsNonRoot": True, "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False,
          "capabilities": {"drop": ["ALL"]}}


def probe(path, port, period=1, failures=60):
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": period, "timeoutSeconds": 5,
            "failureThreshold": failures}


def mocker(*flags, speed=20, blocks=4096):
    """The container of a worker: the mocker with the example model."""
    return {"image": IMAGE, "imagePullPolicy": "IfNotPresent", "workingDir": "/workspace", "securityContext": LOCKED,
            "command": ["python3", "-m", "dynamo.mocker"],
            "args": ["--model-path", "/workspace/examples/model", "--model-name", MODEL, "--block-size", str(BLOCK),
                     "--num-gpu-blocks-override", str(blocks), "--speedup-ratio", str(speed), *flags],
            "startupProbe": probe("/health", 9090, failures=120), "readinessProbe": probe("/health", 9090, 1, 3),
            "livenessProbe": probe("/live", 9090, 10, 6)}


def graph(name, workers=2, mode="kv", speed=20, worker=None, frontend=None, **spec):
    """A Frontend on a vendor's image and some mockers; worker and frontend add to the two services."""
    services = {
        "Frontend": {"componentType": "frontend", "replicas": 1, "envs": [{"name": "DYN_ROUTER_MODE", "value": mode}],
                     "extraPodSpec": {"mainContainer": {
                         "image": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.2.1", "securityContext": LOCKED,
                         "readinessProbe": probe("/health", 8000, 1, 3)}}} | (frontend or {}),
        "Worker": {"componentType": "worker", "replicas": workers, "resources": {"limits": {"gpu": "1"}},
                   "extraPodSpec": {"mainContainer": mocker(speed=speed)}} | (worker or {})}
    return {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "metadata": {"name": name},
            "spec": {"services": services} | spec}


class Graph:
    """A DynamoGraphDeployment on the cluster."""

    def __init__(self, platform, namespace, name):
        self.platform, self.api, self.ns, self.name = platform, platform.api, namespace, name
        self.path = GRAPHS.format(ns=namespace) + "/" + name

    def get(self):
        return self.api.get(self.path)

    def patch(self, **spec):
        return self.api.patch(self.path, {"spec": spec})

    def ready(self, limit=180):
        """Waits for the Ready condition of the generation that is asked for now."""
        wanted = self.get()["metadata"]["generation"]

        def holds():
            item = self.get()
            now = condition(item, "Ready")
            return now.get("status") == "True" and now["observedGeneration"] >= wanted and item
        try:
            return eventually(holds, f"graph {self.name} is Ready", limit)
        except BaseException:
            print(json.dumps(self.get().get("status"), indent=1))
            print(self.platform.kube.kubectl("get", "pods,events", "-n", self.ns, check=False).stdout)
            raise

    def serving(self, workers, limit=120):
        """Waits until the frontend routes to so many workers."""
        def holds():
            try:
                return self.metrics().total("commutator_router_workers") == workers
            except OSError:  # the node's proxy hears of ready pods a moment after the operator does
                return False
        eventually(holds, f"{workers} workers behind {self.name}", limit)
        return self

    def pods(self, component=None):
        selector = f"nvidia.com/dynamo-graph-deployment-name={self.name}"
        return [pod for pod in self.api.items(PODS.format(ns=self.ns), selector)
                if component in (None, pod["metadata"]["labels"]["nvidia.com/dynamo-component"])]

    def frontend_pod(self):
        return next(pod for pod in self.pods("Frontend") if "deletionTimestamp" not in pod["metadata"])

    @property
    def address(self):
        """HOST:PORT of the frontend's Service."""
        if not hasattr(self, "_address"):
            service = self.api.get(SERVICES.format(ns=self.ns) + f"/{self.name}-frontend")
            self._address = f"{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"
        return self._address

    def fetch(self, path):
        return fetch(self.address, path)

    def metrics(self):
        return Metrics(self.fetch("/metrics"))

    def health(self):
        return json.loads(self.fetch("/health"))

    def worker_addresses(self):
        """Instance id to HOST:PORT of the workers that the frontend knows."""
        return {each["instance_id"]: each["transport"]["tcp"].partition("/")[0] for each in self.health()["instances"]}

    def worker_pods(self):
        """Instance id to pod, likewise."""
        pods = {pod["status"].get("podIP"): pod for pod in self.pods("Worker")}
        return {worker: pods.get(address.partition(":")[0]) for worker, address in self.worker_addresses().items()}

    def post(self, body, path="/v1/completions", timeout=60):
        """Status and answer of one request."""
        return post(self.address, path, {"model": MODEL} | body, timeout)

    def complete(self, prompt, max_tokens=4, **rest):
        status, answer = self.post({"prompt": prompt, "max_tokens": max_tokens} | rest)
        assert status == 200, answer
        return answer

    def stream(self, prompt, max_tokens, **rest):
        return Stream(self.address, {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens} | rest)

    def flip(self, mode):
        """Asks for a routing mode, and returns when it was asked for and the new generation."""
        asked = time.monotonic()
        changed = self.patch(services={"Frontend": {"envs": [{"name": "DYN_ROUTER_MODE", "value": mode}]}})
        return asked, changed["metadata"]["generation"]

    def applied(self, generation, status="True", limit=60):
        """Waits for the verdict on a routing generation and returns the condition."""
        def holds():
            now = condition(self.get(), "RoutingApplied")
            return now.get("observedGeneration", 0) >= generation and now["status"] == status and now
        return eventually(holds, f"RoutingApplied={status} for generation {generation}", limit)

    def events(self, reason):
        return [event for event in self.api.items(EVENTS.format(ns=self.ns))
                if event["reason"] == reason and event["involvedObject"]["name"] == self.name]

    def log(self):
        return self.platform.kube.kubectl("logs", f"deployment/{self.name}-frontend", "-n", self.ns).stdout

    def delete(self):
        self.api.call("DELETE", self.path)


def left_of(api, namespace):
    """Everything in a namespace that a graph may have made."""
    return sorted(f"{path.rpartition('/')[2]}/{item['metadata']['name']}" for path in MADE
                  for item in api.items(path.format(ns=namespace))
                  if item["metadata"]["name"] not in ("default", "kube-root-ca.crt"))


# --- clients ----------------------------------------------------------------------------------------------


def fetch(address, path):
    conn = http.client.HTTPConnection(address, timeout=90)
    with contextlib.closing(conn):
        conn.request("GET", path)
        return conn.getresponse().read().decode()


def post(address, path, body, timeout=60):
    conn = http.client.HTTPConnection(address, timeout=timeout)
    with contextlib.closing(conn):
        conn.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = conn.getresponse()
        return answer.status, json.loads(answer.read())


class Metrics:
    """A text exposition: total("name", label="value") adds up the series that match."""

    LINE = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$', re.M)

    def __init__(self, text):
        self.series = [(name, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value))
                       for name, labels, value in self.LINE.findall(text)]

    def find(self, name, **labels):
        return [(have, value) for each, have, value in self.series
                if each == name and labels.items() <= have.items()]

    def total(self, name, **labels):
        return sum(value for _, value in self.find(name, **labels))


def prompt(seed, blocks):
    """A prompt of so many full blocks as token ids, always the same for a seed."""
    draw = random.Random(f"prompt {seed}")
    return [draw.randrange(300, 6000) for _ in range(blocks * BLOCK)]


class Stream:
    """One streaming request, read event by event."""

    def __init__(self, address, body):
        self.conn = http.client.HTTPConnection(address, timeout=60)
        self.conn.request("POST", "/v1/completions", json.dumps(body | {"stream": True}),
                          {"Content-Type": "application/json"})
        self.answer = None

    def __iter__(self):
        """The data of each event, up to the end of the stream; [DONE] as None."""
        self.answer = self.answer or self.conn.getresponse()
        if self.answer.status != 200:
            raise AssertionError(self.answer.read().decode())
        for line in self.answer:
            if line.startswith(b"data: "):
                data = line[6:].strip()
                yield None if data == b"[DONE]" else json.loads(data)

    def close(self):
        """Goes away as a client that was killed does."""
        if self.answer:
            self.answer.close()
        self.conn.close()


class Lateness:
    """How late a process is that does nothing but sleep, for the time of a `with`: so much the machine, which others use
    too, adds to each step of whatever is waited for."""

    STEP = 0.01
    SLEEPER = ("import time\nwhile True:\n begun = time.monotonic()\n time.sleep({0})\n now = time.monotonic()\n"
               " print(now, now - begun - {0}, flush=True)")

    def __enter__(self):
        self._late = []
        self._sleeper = subprocess.Popen([sys.executable, "-c", self.SLEEPER.format(self.STEP)], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._hear, daemon=True).start()
        return self

    def _hear(self):
        for line in self._sleeper.stdout:
            self._late.append(tuple(map(float, line.split())))

    def between(self, begin, end):
        """Seconds that it was late by; of time.monotonic()."""
        eventually(lambda: self._late and self._late[-1][0] >= end, "the sleeper")
        return sum(late for at, late in self._late if begin <= at <= end + self.STEP)

    def __exit__(self, *_):
        self._sleeper.kill()
        self._sleeper.wait()


class Load:
    """Clients that ask without a pause, each the next of its prompts, for the time of a `with`."""

    def __init__(self, address, prompts, clients=8, max_tokens=4):
        self.address, self.prompts, self.max_tokens = address, prompts, max_tokens
        self.answered, self.failures = 0, []
        self._stop = threading.Event()
        self._count = threading.Lock()
        self._threads = [threading.Thread(target=self._client, args=(i,)) for i in range(clients)]

    def _client(self, number):
        conn = http.client.HTTPConnection(self.address, timeout=90)
        draw = random.Random(number)
        while not self._stop.is_set():
            body = {"model": MODEL, "prompt": draw.choice(self.prompts), "max_tokens": self.max_tokens}
            try:
                conn.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
                answer = conn.getresponse()
                text = answer.read().decode()
                right = answer.status == 200 and json.loads(text)["usage"]["completion_tokens"] == self.max_tokens
                failure = None if right else f"{answer.status}: {text[:200]}"
            except (OSError, ValueError, http.client.HTTPException) as e:
                failure = repr(e)
                conn.close()
            with self._count:
                self.answered += failure is None
                if failure:
                    self.failures.append(failure)

    def more(self, requests, limit=120):
        """Waits for so many further answers."""
        goal = self.answered + requests
        eventually(lambda: self.answered >= goal or self.failures, f"{requests} more answers", limit)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()
