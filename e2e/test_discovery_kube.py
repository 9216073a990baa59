# SPDX-License-Identifier: Apache-2.0
"""Kubernetes discovery of frontend and mocker as processes, against a bare API server.

The test plays the endpoint controller: it writes the EndpointSlice that says which pods are ready.
"""

import collections
import contextlib
import copy
import json
import pathlib
import socket
import threading
import urllib.parse
import uuid

import pytest
import yaml

from conftest import reference_python
from reference_router import BOOKINGS, ROUTERS, Theirs
from stack import MODEL, MODEL_PATH, SOON, Stack, until, words
from test_events import Newer

LABEL = {"nvidia.com/dynamo-discovery-enabled": "true"}


class Graph(Stack):
    """A stack whose members find each other through the API server, in a namespace of its own."""

    def __init__(self, folder, api):
        super().__init__(folder, events=False)
        self.api, self.ns = api, "disc-" + uuid.uuid4().hex[:8]
        self.uids = collections.defaultdict(lambda: str(uuid.uuid4()))  # of pods; 1.6 joins by them
        api.kubectl("create", "namespace", self.ns)

    def pod(self, name):
        return {"DYN_DISCOVERY_BACKEND": "kubernetes", "KUBECONFIG": self.api.kubeconfig,
                "POD_NAME": name, "POD_UID": self.uids[name], "POD_NAMESPACE": self.ns}

    def slice(self, name="workers", **ready):
        """Says of pods whether they are ready: slice(worker_0=True)."""
        endpoints = [{"addresses": ["192.0.2.1"], "conditions": {"ready": is_ready},
                      "targetRef": {"kind": "Pod", "name": pod, "uid": self.uids[pod]}}
                     for pod, is_ready in ((name.replace("_", "-"), is_ready) for name, is_ready in ready.items())]
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


def test_containers_of_a_pod_are_workers_of_their_own(graph):
    """Named as 1.6.1 names them; the pod's own record is that of container main."""
    def of(container):
        return {**graph.pod("worker-0"), "DYN_KUBE_DISCOVERY_MODE": "container", "CONTAINER_NAME": container}

    def written(name):
        def complete():
            record = graph.metadata(name)
            return record if record and record["spec"]["data"]["endpoints"] else None
        record = until(f"{name} is written", complete)
        owner, = record["metadata"]["ownerReferences"]
        ids = {endpoint["instance_id"] for endpoint in record["spec"]["data"]["endpoints"].values()}
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "worker-0", graph.uids["worker-0"])
        return ids, owner["controller"]
    names = {"main": "worker-0", "decode": "worker-0-decode"}
    graph.slice(worker_0=True)
    mockers = [graph.mocker(**of(container)) for container in names]
    ours = [written(name) for name in names.values()]
    assert ours[0] == ({0x43710F49C0CFF}, True) and ours[1][1] is False
    graph.frontend(**graph.pod("frontend-0"))
    graph.ready(2)
    graph.slice(worker_0=False)
    until("the model is gone", lambda: graph.models() == [])
    for mocker in mockers:
        mocker.stop()
    for name in names.values():
        graph.api.kubectl("-n", graph.ns, "delete", "dynamoworkermetadata", name)
    theirs = [graph.start("reference-mocker", [reference_python("1.6.1"), "-m", "dynamo.mocker", "--model-path", MODEL_PATH,
                                               "--model-name", MODEL, "--block-size", 16],
                          HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="zmq", **of(container)) for container in names]
    assert [written(name) for name in names.values()] == ours
    for mocker in theirs:
        mocker.kill()


def test_their_newest_router_finds_our_events(graph):
    """The record of our pod says where: event channels and sources of 1.x, for a router that starts late, too."""
    graph.slice(worker_0=True)
    graph.mocker("--publish-as", "endpoint", **graph.pod("worker-0"), DYN_EVENT_PLANE="zmq")
    python, prompts = reference_python("1.6.1"), [[token] * 20 * 16 for token in (10, 11, 12, 13)]
    for number in range(2):
        front = Newer(graph, python, "zmq", "kubernetes", **graph.pod(f"frontend-{number}"))
        until("it serves our worker", lambda: front.ask([5]))
        until("it knows what our worker holds", lambda: all(map(front.knows, prompts)))
    data = graph.metadata("worker-0")["spec"]["data"]
    source, = data["event_sources"].values()
    assert source["metadata"]["recovery_target"]["endpoint"] == f"worker_kv_query_source_{source['publisher_id']:x}"
    assert {channel["topic"] for channel in data["event_channels"].values()} == {"kv-events", "kv_metrics"}


def test_routers_hear_each_other_without_a_broker(graph):
    """Two of ours and one of 1.6.1: what each of them places, the others book, and a deleted record ends it."""
    zmq = {"DYN_EVENT_PLANE": "zmq", "DYN_KV_EVENTS": "true"}
    graph.slice(worker_0=True)
    graph.slice("frontends", frontend_0=True, frontend_1=True, frontend_2=True)
    graph.mocker(**graph.pod("worker-0"), **zmq, speedup=2)
    twin = copy.copy(graph)
    for number, one in enumerate((graph, twin)):
        one.frontend("--router-mode", "kv", "--router-replica-sync", **graph.pod(f"frontend-{number}"), **zmq)
        one.ready(1)
    for one in (graph, twin):
        until("they know of each other", lambda one=one: one.metric(ROUTERS) == 1)
    theirs = Theirs(graph, "1.6.1", "zmq", "--discovery-backend", "kubernetes", **graph.pod("frontend-2"))
    for one in (graph, twin):
        until("theirs is known", lambda one=one: theirs.ask([5, 6, 7])[0] == 200 and one.metric(ROUTERS) == 2)
    until("nothing runs", lambda: not graph.metric(BOOKINGS) and not twin.metric(BOOKINGS))

    stream = twin.stream(words(400), max_tokens=100000, ignore_eos=True)
    next(stream.events)
    until("ours is booked", lambda: graph.metric(BOOKINGS) == 1)
    until("and counts at theirs", lambda: theirs.ask([5, 6, 7])[0] == 200 and theirs.decode_blocks() > 15)
    stream.close()
    until("it is freed", lambda: not graph.metric(BOOKINGS))

    long = threading.Thread(target=lambda: theirs.ask([1000 + i for i in range(320)], max_tokens=3000, ignore_eos=True))
    long.start()
    until("theirs is booked", lambda: graph.metric(BOOKINGS) == twin.metric(BOOKINGS) == 1)
    theirs.kill()
    long.join()
    graph.slice("frontends", frontend_0=True, frontend_1=True, frontend_2=False)
    until("it is gone", lambda: not graph.metric(BOOKINGS) and graph.metric(ROUTERS) == 1, SOON)
    channels = graph.metadata("frontend-0")["spec"]["data"]["event_channels"].values()
    assert len(channels) == len({channel["instance_id"] for channel in channels}) == 6


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


def test_metadata_deleted_under_ready_pods_takes_nobody_away(graph):
    """Somebody deletes all of it (a CRD put in anew does): the pods say that they are well."""
    graph.slice(worker_0=True, worker_1=True)
    graph.frontend(**graph.pod("frontend-0"))
    for name in ("worker-0", "worker-1"):
        graph.mocker(**graph.pod(name))
    graph.ready(2)
    graph.api.kubectl("-n", graph.ns, "delete", "dynamoworkermetadata", "--all")
    graph.front.wait_log("lost workers that may be healthy")
    assert graph.workers() == 2 and graph.metric("commutator_discovery_kept_workers") == 2
    assert any("lost 2 of 2 workers" in note for note in graph.get("/health").json["notes"])
    graph.chat("Hello")
    graph.slice(worker_0=True, worker_1=False)  # the pod's own word is the last
    until("one has really left", lambda: graph.workers() == 1)
    graph.chat("Hello")


class Door:
    """A way to the API server that can be shut."""

    def __init__(self, api, folder):
        config = yaml.safe_load(pathlib.Path(api.kubeconfig).read_text())
        server = config["clusters"][0]["cluster"]
        self.target = urllib.parse.urlparse(server["server"])
        self.listener = socket.create_server(("127.0.0.1", 0))
        server["server"] = f"https://127.0.0.1:{self.listener.getsockname()[1]}"
        self.kubeconfig = folder / "kubeconfig-door"
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self.is_open, self.sockets = True, []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                here, _ = self.listener.accept()
                if not self.is_open:
                    here.close()
                    continue
                there = socket.create_connection((self.target.hostname, self.target.port))
                self.sockets += [here, there]
                for a, b in ((here, there), (there, here)):
                    threading.Thread(target=self._pump, args=(a, b), daemon=True).start()

    def _pump(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def shut(self):
        self.is_open = False
        for end in self.sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.sockets.clear()

    def open(self):
        self.is_open = True


def test_api_server_away(graph, tmp_path):
    """Nobody goes while it is away. What it has lost when it is back is believed at the deadline, and
    what a list shows to have changed meanwhile is told at once."""
    door = Door(graph.api, tmp_path)
    graph.slice(worker_0=True, worker_1=True)
    graph.frontend("--discovery-keep", "30s", **{**graph.pod("frontend-0"), "KUBECONFIG": str(door.kubeconfig)})
    workers = [graph.mocker(**graph.pod(f"worker-{i}")) for i in range(2)]
    graph.ready(2)
    door.shut()
    until("it is noticed", lambda: graph.metric("commutator_discovery_up") == 0)
    assert graph.metric("commutator_discovery_kept_workers") == 2
    assert any("store is not reachable" in note for note in graph.get("/health").json["notes"])
    graph.chat("Hello")
    workers[1].kill()
    graph.api.kubectl("-n", graph.ns, "delete", "dynamoworkermetadata", "worker-1")
    graph.mocker(**graph.pod("worker-2"))
    until("a third one has written itself", lambda: graph.metadata("worker-2"))
    graph.slice(worker_0=True, worker_1=True, worker_2=True)
    door.open()
    until("it is back", lambda: graph.metric("commutator_discovery_up") == 1)
    until("the third one is there, the lost one still", lambda: graph.workers() == 3)
    until("the lost one is given up", lambda: graph.workers() == 2)
    until("none is kept", lambda: graph.metric("commutator_discovery_kept_workers") == 0)
    graph.chat("Hello")


def test_mismatched_back_ends_are_said(graph):
    """Workers that were not told to use Kubernetes: their pods are ready, and nobody hears of them."""
    notes = lambda: " ".join(graph.get("/health").json["notes"])
    graph.slice("frontends", frontend_0=True)
    graph.frontend(**graph.pod("frontend-0"), COMMUTATOR_DISCOVERY_MISMATCH="1s")
    graph.mocker(DYN_NAMESPACE="elsewhere")  # in files
    graph.slice(worker_0=True)
    until("it is said", lambda: "is DYN_DISCOVERY_BACKEND=kubernetes set in them?" in notes())
    assert "1 pods are ready (worker-0)" in notes()
    assert graph.front.log().count("is DYN_DISCOVERY_BACKEND=kubernetes set in them?") == 1
    graph.mocker(**graph.pod("worker-0"))
    graph.ready(1)
    until("it is over", lambda: notes() == "")
    # The other way round: metadata, and no slice that names the pod.
    graph.slice(somebody_else=False)
    until("it is said", lambda: "none is ready in an EndpointSlice" in notes())
