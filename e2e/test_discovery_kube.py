# SPDX-License-Identifier: Apache-2.0
"""Kubernetes discovery of frontend and mocker as processes, against a bare API server.

The test plays the endpoint controller: it writes the EndpointSlice that says which pods are ready.
"""

import json
import uuid

import pytest

from stack import MODEL, Stack, until

LABEL = {"nvidia.com/dynamo-discovery-enabled": "true"}


class Graph(Stack):
    """A stack whose members find each other through the API server, in a namespace of its own."""

    def __init__(self, folder, api):
        super().__init__(folder, events=False)
        self.api, self.ns = api, "disc-" + uuid.uuid4().hex[:8]
        api.kubectl("create", "namespace", self.ns)

    def pod(self, name):
        return {"DYN_DISCOVERY_BACKEND": "kubernetes", "KUBECONFIG": self.api.kubeconfig,
                "POD_NAME": name, "POD_UID": str(uuid.uuid4()), "POD_NAMESPACE": self.ns}

    def slice(self, name="workers", **ready):
        """Says of pods whether they are ready: slice(worker_0=True)."""
        endpoints = [{"addresses": ["192.0.2.1"], "conditions": {"ready": is_ready},
                      "targetRef": {"kind": "Pod", "name": pod.replace("_", "-")}} for pod, is_ready in ready.items()]
        self.apply({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                    "metadata": {"name": name, "namespace": self.ns, "labels": LABEL}, "endpoints": endpoints})

    def apply(self, thing):
        self.api.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(thing))

    def metadata(self, name):
        got = self.api.kubectl("-n", self.ns, "get", "dynamoworkermetadata", name, "-o", "json", check=False)
        return json.loads(got.stdout) if got.returncode == 0 else None


@pytest.fixture
def graph(tmp_path, api):
    with Graph(tmp_path, api) as graph:
        yield graph
    api.kubectl("delete", "namespace", graph.ns, "--wait=false")


def test_worker_counts_while_its_pod_is_ready(graph):
    graph.slice(worker_0=False)
    graph.frontend(**graph.pod("frontend-0"))
    graph.mocker(**graph.pod("worker-0"))
    written = until("the worker has written itself", lambda: graph.metadata("worker-0"))

    owner, = written["metadata"]["ownerReferences"]
    assert owner["kind"] == "Pod" and owner["name"] == "worker-0" and owner["controller"] is True
    def complete():
        data = graph.metadata("worker-0")["spec"]["data"]
        return data if data["endpoints"] and data["model_cards"] else None
    data = until("endpoint and card are there", complete)
    assert set(data) >= {"endpoints", "model_cards", "event_channels"}
    key, = data["endpoints"]
    # SipHash of the name "worker-0", 53 bits: a vector of the contract.
    assert key.endswith("/43710f49c0cff")
    assert data["endpoints"][key]["instance_id"] == 0x43710F49C0CFF

    assert graph.models() == []
    graph.slice(worker_0=True)
    graph.ready(1)
    assert graph.chat("Hello", max_tokens=4, ignore_eos=True).usage["completion_tokens"] == 4
    graph.slice(worker_0=False)
    until("the model is gone", lambda: graph.models() == [])
    graph.slice(worker_0=True)
    graph.ready(1)


def test_broken_content_takes_nothing_away(graph):
    graph.slice(worker_0=True, worker_1=True)
    graph.frontend(**graph.pod("frontend-0"))
    graph.mocker(**graph.pod("worker-0"))
    graph.ready(1)
    # A resource without data, one with records of a wrong shape and of a later release.
    record = {"type": "Endpoint", "namespace": "x", "component": "y", "endpoint": "z", "instance_id": "seven"}
    for name, data in (("worker-1", {"endpoints": {"a": record, "b": {"type": "Novelty"}}, "model_cards": None}),
                       ("worker-2", {})):
        graph.apply({"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoWorkerMetadata",
                     "metadata": {"name": name, "namespace": graph.ns}, "spec": {"data": data}})
    graph.front.wait_log("bad discovery record")
    assert graph.models() == [MODEL]
    graph.chat("Hello")


def test_a_pod_that_is_deleted_is_gone_at_once(graph):
    graph.slice(worker_0=True, worker_1=True)
    graph.frontend(**graph.pod("frontend-0"))
    graph.mocker(**graph.pod("worker-0"))
    graph.mocker(**graph.pod("worker-1"))
    graph.ready(2)
    graph.api.kubectl("-n", graph.ns, "delete", "dynamoworkermetadata", "worker-1")
    until("one worker is left", lambda: graph.workers() == 1)
    graph.chat("Hello")
