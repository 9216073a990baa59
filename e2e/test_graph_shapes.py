# SPDX-License-Identifier: Apache-2.0
"""What a graph may ask for, on the cluster: claims, probes, HTTPS, GPUs; and how it goes."""

import base64
import http.client
import ssl

import pytest

from conftest import run
from live import (CLAIMS, COMPONENTS, DEPLOYMENTS, EVENTS, IMAGE, MODEL, SECRETS, condition, eventually, graph,
                  left_of, mocker, probe, prompt, restarts)

pytestmark = [pytest.mark.cluster, pytest.mark.tenant]
MOUNT = [{"name": "models", "mountPoint": "/models"}]


def worker(**container):
    """A worker service whose container is the mocker with this on top."""
    return {"extraPodSpec": {"mainContainer": mocker() | container}}


def not_ready(made, words):
    """Waits until the Ready condition is False and says these words."""
    def holds():
        item = made.get()
        now = condition(item, "Ready")
        return now.get("status") == "False" and all(word in now["message"] for word in words) and item
    return eventually(holds, f"Ready is False and names {words}")


def writes_to_claim(made, name):
    """The pods of the workers mount the claim and may write to it."""
    (pod,) = made.pods("Worker")
    volumes = [v["name"] for v in pod["spec"]["volumes"]
               if v.get("persistentVolumeClaim", {}).get("claimName") == name]
    assert volumes
    made.platform.kube.kubectl("exec", pod["metadata"]["name"], "-n", made.ns, "--", "/bin/sh", "-c",
                               "echo weights >/models/file && grep weights /models/file")


def test_claim_that_the_graph_creates(platform, namespace):
    made = platform.apply(namespace, graph(
        "claims", 1, worker={"volumeMounts": MOUNT},
        pvcs=[{"name": "models", "create": True, "size": "1Gi", "storageClass": "shared-rwx",
               "volumeAccessMode": "ReadWriteMany"}]))
    made.ready()
    claim = platform.api.get(CLAIMS.format(ns=namespace) + "/models")
    assert claim["status"]["phase"] == "Bound"
    assert claim["spec"]["storageClassName"] == "shared-rwx" and claim["spec"]["accessModes"] == ["ReadWriteMany"]
    writes_to_claim(made, "models")


def test_claim_that_is_missing_and_then_exists(platform, namespace):
    made = platform.apply(namespace, graph("claims", 1, worker={"volumeMounts": MOUNT},
                                           pvcs=[{"name": "models", "create": False}]))
    item = not_ready(made, ['"models" not found'])
    assert item["status"]["state"] == "failed"
    assert not platform.api.items(DEPLOYMENTS.format(ns=namespace))
    platform.api.call("POST", CLAIMS.format(ns=namespace), {
        "metadata": {"name": "models"},
        "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "shared-rwx",
                 "resources": {"requests": {"storage": "1Gi"}}}})
    made.ready()
    writes_to_claim(made, "models")
    made.delete()
    eventually(lambda: not left_of(platform.api, namespace), "the graph gone")
    assert platform.api.get(CLAIMS.format(ns=namespace) + "/models"), "a claim that is not the graph's"


def test_startup_probe_that_gives_time_and_one_that_does_not(platform, namespace):
    """Two workers that take 8 s to start: the user's probe decides what becomes of them."""
    late = mocker("--startup-time", "8")
    body = graph("probes", 1, worker=worker(args=late["args"], startupProbe=probe("/health", 9090, 1, 40)))
    body["spec"]["services"]["Hasty"] = {
        "componentType": "worker", "replicas": 1,
        "extraPodSpec": {"mainContainer": late | {"startupProbe": probe("/health", 9090, 1, 2)}}}
    made = platform.apply(namespace, body)
    eventually(lambda: sum(restarts(made.pods("Hasty")).values()) > 0, "the hasty one restarted")
    eventually(lambda: made.get()["status"]["services"]["Worker"].get("readyReplicas") == 1, "the patient one ready")
    (pod,) = made.pods("Worker")
    assert set(restarts([pod]).values()) == {0}
    mine = pod["spec"]["containers"][0]["startupProbe"]
    assert {key: mine[key] for key in ("failureThreshold", "periodSeconds")} == {
        "failureThreshold": 40, "periodSeconds": 1}
    not_ready(made, ["probes-hasty"])
    assert any("Startup probe failed" in event["message"] for event in platform.api.items(EVENTS.format(ns=namespace)))


@pytest.mark.parametrize("known", [False, True], ids=["any client", "known clients"])
def test_a_frontend_over_https(platform, namespace, tmp_path, known):
    """The kubelet's probes reach it, without a word of the user's about them."""
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=frontend",
        "-addext", "subjectAltName=DNS:frontend", "-out", tmp_path / "tls.crt", "-keyout", tmp_path / "tls.key")
    platform.api.call("POST", SECRETS.format(ns=namespace), {"metadata": {"name": "tls"}, "data": {
        name: base64.b64encode((tmp_path / name).read_bytes()).decode() for name in ("tls.crt", "tls.key")}})
    paths = {"CERT": "/tls/tls.crt", "KEY": "/tls/tls.key"} | ({"CLIENT_CA_CERT": "/tls/tls.crt"} if known else {})
    made = platform.apply(namespace, graph("secured", 1, frontend={
        "envs": [{"name": f"DYN_TLS_{what}_PATH", "value": path} for what, path in paths.items()],
        "extraPodSpec": {"mainContainer": {"image": IMAGE, "volumeMounts": [{"name": "tls", "mountPath": "/tls"}]},
                         "volumes": [{"name": "tls", "secret": {"secretName": "tls"}}]}}))
    made.ready()
    tls = ssl.create_default_context(cafile=tmp_path / "tls.crt")
    tls.check_hostname = False
    if known:
        tls.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")

    def serves():
        connection = http.client.HTTPSConnection(made.address, context=tls, timeout=30)
        try:
            connection.request("GET", "/v1/models")
            return MODEL in connection.getresponse().read().decode()
        except OSError:  # the node's proxy hears of ready pods a moment after the operator does
            return False
        finally:
            connection.close()
    eventually(serves, "the model is served over HTTPS")
    assert set(restarts(made.pods()).values()) == {0}


def test_gpus_that_the_cluster_has_and_has_not(platform, namespace):
    made = platform.apply(namespace, graph("gpus", 1, worker={"resources": {"limits": {"gpu": "2"}}}))
    made.ready()
    (pod,) = made.pods("Worker")
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    greedy = platform.apply(namespace, graph("greedy", 1, worker={"resources": {"limits": {"gpu": "99"}}}))
    item = not_ready(greedy, ["greedy-worker", "Insufficient nvidia.com/gpu"])
    assert item["status"]["state"] == "pending"
    # Corrected, it comes up.
    greedy.patch(services={"Worker": {"resources": {"limits": {"gpu": "1"}}}})
    greedy.ready()
    greedy.serving(1)


def test_a_removed_service_and_a_deleted_graph_leave_nothing(platform, namespace):
    body = graph("going", 1)
    body["spec"]["services"]["Second"] = {"componentType": "worker", "replicas": 1, "subComponentType": "decode",
                                          "extraPodSpec": {"mainContainer": mocker("--endpoint", "dyn://x.y.generate")}}
    made = platform.apply(namespace, body)
    made.ready()
    made.patch(services={"Second": None})
    eventually(lambda: not [name for name in left_of(platform.api, namespace) if "second" in name],
               "everything of the service gone")
    assert not made.pods("Second")
    made.ready()
    assert set(made.get()["status"]["services"]) == {"Frontend", "Worker"}
    made.serving(1).complete(prompt("still served", 2))
    made.delete()
    eventually(lambda: made.get() is None, "the graph gone")
    eventually(lambda: not left_of(platform.api, namespace), "everything of the graph gone")


def test_a_graph_that_is_invalid_says_where(platform, namespace):
    made = platform.apply(namespace, graph("wrong", 1, worker={"sharedMemory": {"disabled": False}}))
    item = not_ready(made, ["spec.services[Worker].sharedMemory.size"])
    assert item["status"]["state"] == "failed"
    assert not platform.api.items(COMPONENTS.format(ns=namespace))
