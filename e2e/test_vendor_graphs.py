# SPDX-License-Identifier: Apache-2.0
"""Graphs as they are without us, on the cluster: vendors' images and engines that know no Dynamo."""

import json

import pytest
import yaml

from conftest import ROOT
from live import COMPONENTS, DEPLOYMENTS, IMAGE, SERVICES, Graph, condition, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.tenant]


@pytest.mark.parametrize("name", ["mocker__deploy__agg", "vllm__deploy__agg_router"], ids=["mocker", "vllm"])
def test_vendors_graph_unmodified(platform, shared, namespace, name):
    """Straight from the reference's repository: our frontend serves it; its worker images are not here."""
    text = (shared / f"data/dgd/0.9.0/examples__backends__{name}.yaml").read_text()
    platform.kube.kubectl("apply", "-n", namespace, "-f", "-", input=text)
    wanted = yaml.safe_load(text)
    original = wanted["spec"]["services"]["Frontend"]["extraPodSpec"]["mainContainer"]["image"]
    graphs = wanted["metadata"]["name"]
    deployment = DEPLOYMENTS.format(ns=namespace) + f"/{graphs}-frontend"
    eventually(lambda: ((platform.api.get(deployment) or {}).get("status") or {}).get("readyReplicas") == 1,
               "the frontend ready")
    template = platform.api.get(deployment)["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == IMAGE
    assert template["metadata"]["annotations"]["commutator.dev/original-image"] == original
    assert platform.api.get(COMPONENTS.format(ns=namespace) + f"/{graphs}-frontend")["spec"]["extraPodSpec"][
        "mainContainer"]["image"] == original, "what the user wrote stays"
    made = Graph(platform, namespace, graphs)
    service = platform.api.get(SERVICES.format(ns=namespace) + f"/{graphs}-frontend")
    assert service["spec"]["ports"][0]["port"] == 8000
    eventually(lambda: reachable(made), "the Service answers")
    assert made.health()["status"] == "healthy" and json.loads(made.fetch("/v1/models"))["data"] == []
    status, answer = made.post({"model": "any", "prompt": "hello"})
    assert status == 404, answer
    if name.startswith("vllm"):
        assert condition(made.get(), "RoutingApplied")["message"].startswith("mode kv")


def reachable(made):
    try:
        return made.health()
    except OSError:
        return False


def test_engines_without_the_dynamo_runtime(platform, namespace):
    """examples/dgd/stock-mocker.yaml: the operator labels their Service, the frontend finds them by it."""
    made = platform.apply(namespace, yaml.safe_load((ROOT / "examples/dgd/stock-mocker.yaml").read_text()))
    made.ready()
    labels = platform.api.get(SERVICES.format(ns=namespace) + "/stock-mocker-vllmworker")["metadata"]["labels"]
    assert {key.rpartition("/")[2]: value for key, value in labels.items() if key.startswith("commutator.dev/")} == {
        "engine": "vllm", "engine-kv-events-port": "5557", "engine-kv-replay-port": "5558", "engine-block-size": "16"}
    made.serving(2)
    tokens = list(range(1000, 1320))
    cached = lambda: made.complete(tokens)["usage"]["prompt_tokens_details"]["cached_tokens"]
    eventually(lambda: cached() >= 304, "the prompt goes to where it is cached")
    assert made.metrics().total("commutator_engines", state="up") == 2
