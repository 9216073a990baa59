#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the operator costs, on a real API server without controllers or nodes.

usage: cluster api -- e2e/bench/operator_bench.py OPERATOR [--graphs N] [--idle SECONDS]

Prints one JSON object a line. The same load was put on the reference operator on such an API
server and machine (two cores shared by all); its figures stand beside ours as "recorded".
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

PEER = "dynamo-operator 0.9.0 (recorded)"
NAMESPACES = 20
CHILDREN = {  # kind's path: children per graph of one Frontend and one worker
    "/apis/nvidia.com/v1alpha1/dynamocomponentdeployments": 2,
    "/apis/apps/v1/deployments": 2,
    "/api/v1/services": 2,
    "/api/v1/configmaps": 1,
    "/api/v1/serviceaccounts": 1,
    "/apis/rbac.authorization.k8s.io/v1/roles": 1,
    "/apis/rbac.authorization.k8s.io/v1/rolebindings": 1,
}
N_CHILDREN = sum(CHILDREN.values())
NOT_OURS = ("events", "leases", "ipaddresses", "")  # addresses: the API server's own bookkeeping
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")


class Api:
    """One connection to the API server."""

    def __init__(self):
        url = urllib.parse.urlsplit(os.environ["KUBE_API_URL"])
        self._conn = http.client.HTTPSConnection(
            url.hostname, url.port, context=ssl.create_default_context(cafile=os.environ["KUBE_API_CA"]))
        self._headers = {"Authorization": f"Bearer {os.environ['KUBE_API_TOKEN']}",
                         "Content-Type": "application/json"}

    def stream(self, method, path, body=None):
        self._conn.request(method, path, json.dumps(body) if body is not None else None, self._headers)
        answer = self._conn.getresponse()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.read()[:300]}")
        return answer

    def call(self, method, path, body=None):
        return json.loads(self.stream(method, path, body).read())

    def text(self, path):
        return self.stream("GET", path).read().decode()


def graph(i):
    """A graph of two services, as the reference was measured with."""
    def container(module):
        return {"mainContainer": {"image": "example.com/runtime:1", "workingDir": "/workspace",
                                  "command": ["python3"], "args": ["-m", module, "--model", "m"]}}
    return {
        "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment",
        "metadata": {"name": f"graph-{i}", "namespace": f"bench-{i % NAMESPACES}"},
        "spec": {"services": {
            "Frontend": {"componentType": "frontend", "replicas": 1, "extraPodSpec": container("dynamo.frontend"),
                         "envs": [{"name": "DYN_ROUTER_MODE", "value": "kv"}]},
            "Worker": {"componentType": "worker", "replicas": 1, "envFromSecret": "hf-token-secret",
                       "resources": {"limits": {"gpu": "1"}}, "extraPodSpec": container("dynamo.vllm")}}}}


class Children:
    """Sees by watches which children of which graph exist, and when the last came."""

    def __init__(self):
        self._lock = threading.Condition()
        self._seen = collections.defaultdict(set)
        for path in CHILDREN:
            version = Api().call("GET", path + "?limit=1")["metadata"]["resourceVersion"]
            threading.Thread(target=self._watch, args=(path, version), daemon=True).start()

    def _watch(self, path, version):
        answer = Api().stream("GET", f"{path}?watch=1&resourceVersion={version}")
        for line in answer:
            event = json.loads(line)
            name = event["object"].get("metadata", {}).get("name", "")
            found = re.match(r"graph-\d+", name)
            if event["type"] == "ADDED" and found:
                with self._lock:
                    self._seen[found.group()].add((path, name))
                    self._lock.notify_all()

    def wait(self, names, n, timeout=600):
        """Until each of the graphs has n children."""
        with self._lock:
            if not self._lock.wait_for(lambda: all(len(self._seen[name]) >= n for name in names), timeout):
                raise RuntimeError(f"not all of {len(names)} graphs got {n} children in {timeout} s")


def writes(api):
    """Write requests so far, by resource and whether they are for its status, without events and Leases."""
    counts = collections.Counter()
    for line in api.text("/metrics").splitlines():
        if not line.startswith("apiserver_request_total{"):
            continue
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        if labels["verb"] in WRITES and labels["resource"] not in NOT_OURS:
            counts[labels["resource"], labels.get("subresource", "") == "status"] += float(line.rsplit(" ", 1)[1])
    return counts


def settled(api, quiet=1.5):
    """Write counts once nothing has been written for a while."""
    before, since = writes(api), time.monotonic()
    while time.monotonic() - since < quiet:
        time.sleep(0.25)
        now = writes(api)
        if now != before:
            before, since = now, time.monotonic()
    return before


def create_ms(api):
    """(sum of ms, number) of the API server's own time for creations so far, by resource."""
    totals = collections.defaultdict(lambda: [0.0, 0.0])
    for line in api.text("/metrics").splitlines():
        found = re.match(r"apiserver_request_duration_seconds_(sum|count)\{(.*)\} (\S+)", line)
        labels = dict(re.findall(r'(\w+)="([^"]*)"', found.group(2))) if found else {}
        if labels.get("verb") == "POST":
            sums = found.group(1) == "sum"
            totals[labels["resource"]][not sums] += float(found.group(3)) * (1000 if sums else 1)
    return totals


def chain_ms(before, after):
    """What the API server takes for the three creations that must follow each other, its mean times added."""
    return sum((after[it][0] - before[it][0]) / (after[it][1] - before[it][1])
               for it in ("dynamographdeployments", "dynamocomponentdeployments", "deployments"))


def kubeconfig():
    """With a token, as in a pod and as the reference ran; a certificate is verified anew at each request."""
    path = pathlib.Path(os.environ["KUBE_API_DIR"]) / "operator.kubeconfig"
    cluster = {"server": os.environ["KUBE_API_URL"], "certificate-authority": os.environ["KUBE_API_CA"]}
    path.write_text(json.dumps({
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {"token": os.environ["KUBE_API_TOKEN"]}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}], "current-context": "it"}))
    path.chmod(0o600)
    return str(path)


class Operator:
    def __init__(self, program):
        self.process = subprocess.Popen(
            [program, "--leader-elect", "--leader-election-namespace=kube-system",
             "--frontend-image=commutator:bench", "--metrics-bind-address=127.0.0.1:18092",
             "--health-probe-bind-address=127.0.0.1:18091", "--natsAddr=nats://nats:4222"],
            env=os.environ | {"KUBECONFIG": kubeconfig()}, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while True:
            try:
                conn = http.client.HTTPConnection("127.0.0.1", 18091, timeout=1)
                conn.request("GET", "/readyz")
                if conn.getresponse().status == 200:
                    return
            except OSError:
                pass
            if time.monotonic() > until:
                raise RuntimeError("the operator does not become ready")
            time.sleep(0.05)

    def rss_mb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        rss, anon = (int(re.search(rf"{key}:\s+(\d+)", status).group(1)) for key in ("VmRSS", "RssAnon"))
        return rss / 1024, anon / 1024

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def tell(name, value, unit, peer=None, **more):
    line = {"name": name, "value": round(value, 4), "unit": unit, "better": "lower", **more}
    if peer is not None:
        line |= {"peer": PEER, "peer_value": peer, "ratio": round(peer / value, 2) if value else None}
    print(json.dumps({k: v for k, v in line.items() if v is not None}), flush=True)


def create(api, i):
    body = graph(i)
    api.call("POST", f"/apis/nvidia.com/v1alpha1/namespaces/{body['metadata']['namespace']}/dynamographdeployments",
             body)


def sequential(api, children, n):
    times = []
    for i in range(n):
        began = time.monotonic()
        create(api, i)
        children.wait([f"graph-{i}"], N_CHILDREN, 30)
        times.append((time.monotonic() - began) * 1000)
    return sorted(times)


def bulk(children, first, last, clients=8):
    def run(which):
        api = Api()
        for i in range(first + which, last, clients):
            create(api, i)
    began = time.monotonic()
    threads = [threading.Thread(target=run, args=(k,)) for k in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    children.wait([f"graph-{i}" for i in range(first, last)], N_CHILDREN)
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("operator")
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--idle", type=float, default=20)
    options = parser.parse_args()
    few = min(100, options.graphs)
    api = Api()
    crds = sorted((pathlib.Path(__file__).resolve().parents[2] / "crds").glob("*.yaml"))
    subprocess.run(["kubectl", "apply", "--server-side", *(f"-f={path}" for path in crds)], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["kubectl", "wait", "--for=condition=Established", "--timeout=30s", *(f"-f={path}" for path in crds)],
                   check=True, stdout=subprocess.DEVNULL)
    for i in range(NAMESPACES):
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": f"bench-{i}"}})
    children, operator = Children(), Operator(options.operator)
    try:
        measure(api, children, operator, few, options)
        operator.stop()
        before = settled(api)
        operator = Operator(options.operator)
        after = settled(api, 3)
        tell("operator.restart_writes", sum(after.values()) - sum(before.values()), "requests", 5006)
        tell("operator.rss_mb_after_restart", operator.rss_mb()[0], "MB", 230.5)
    finally:
        operator.stop()


def measure(api, children, operator, few, options):
    tell("operator.rss_mb_idle", operator.rss_mb()[0], "MB", 57.9)
    before, server_before = settled(api), create_ms(api)
    times = sequential(api, children, few)
    after, server_after = settled(api), create_ms(api)
    made = after - before
    made["dynamographdeployments", False] -= few  # the user's own
    status = sum(n for (_, is_status), n in made.items() if is_status)
    total = sum(made.values())
    print(f"  writes per graph: {dict((r + '/status' * s, n / few) for (r, s), n in made.items() if n)}",
          file=sys.stderr)
    # Every object that the operator looks after: the children and the graph itself, status included.
    # (The reference made 13 children with 31.0 writes; over the children alone that is its 2.4.)
    tell("operator.writes_per_object", total / few / (N_CHILDREN + 1), "requests", round(31.0 / 14, 2))
    tell("operator.status_writes_per_graph", status / few, "requests", 14.2)
    tell("operator.create_to_children_ms", times[len(times) // 2], "ms", 165,
         p90=round(times[int(len(times) * .9)], 1), p99=round(times[int(len(times) * .99)], 1),
         api_server_ms=round(chain_ms(server_before, server_after), 1))
    tell("operator.cpu_ms_per_graph", operator.cpu_s() * 1000 / few, "ms", 52)
    if options.graphs > few:
        took = bulk(children, few, options.graphs)
        tell(f"operator.bulk_{options.graphs}_s", took, "s", 168 if options.graphs == 1000 else None)
    quiet = settled(api)
    tell(f"operator.rss_mb_{options.graphs}_dgds", operator.rss_mb()[0], "MB",
         230.8 if options.graphs == 1000 else None, anon_mb=round(operator.rss_mb()[1], 1))
    cpu = operator.cpu_s()
    time.sleep(options.idle)
    tell("operator.idle_writes", sum((settled(api, 0.5) - quiet).values()), "requests", 0)
    tell("operator.idle_cpu_percent", (operator.cpu_s() - cpu) / options.idle * 100, "%", 0.18)


if __name__ == "__main__":
    main()
