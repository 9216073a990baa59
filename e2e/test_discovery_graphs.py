# SPDX-License-Identifier: Apache-2.0
"""Several graphs and several models behind one frontend: namespaces, prefixes, the global namespace
(globalDynamoNamespace), and two generations of a graph while it is replaced. Their rules are
ai-dynamo's, which the last tests ask."""

import collections
import re

import pytest

from conftest import free_port, reference_python
from stack import CHAT, COMPLETIONS, MODEL, Stack, until
from test_discovery_etcd import EtcdStack


KV = ("--router-mode", "kv")  # in which answers tell their worker


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield stack


def graph(stack, namespace, *flags, **more):
    return stack.mocker(*flags, DYN_NAMESPACE=namespace, **more)


def workers_of(*mockers):
    """The graph's index by worker id."""
    found = {}
    for i, mocker in enumerate(mockers):
        for match in re.finditer(r"worker registered worker_id=(\d+)", mocker.log()):
            found[int(match.group(1))] = i
    return found


def sets_ready(stack, n):
    """Each graph's set of workers loads the model by itself, and serves when it has."""
    until(f"{n} sets are ready", lambda: stack.front.log().count("model ready") == n)


def served_by(stack, mockers, n, **more):
    """How many of n requests each graph answered."""
    where, got = workers_of(*mockers), collections.Counter()
    for i in range(n):
        answer = stack.chat(f"Question {i}", nvext={"extra_fields": ["worker_id"]}, max_tokens=1, **more)
        got[where[answer.json["nvext"]["worker_id"]["decode_worker_id"]]] += 1
    return got


def test_two_graphs_of_one_model_share_the_load(stack):
    """A frontend of the global namespace serves every graph's workers, as often as each has some."""
    mockers = [graph(stack, "graph-a"), graph(stack, "graph-b", workers=3)]
    stack.frontend(*KV, DYN_NAMESPACE="dynamo")
    stack.ready(4)
    sets_ready(stack, 2)
    assert stack.models() == [MODEL]  # once
    assert served_by(stack, mockers, 16) == {0: 4, 1: 12}
    a, b = (min(key for key, i in workers_of(*mockers).items() if i == want) for want in (0, 1))
    for worker in (a, b, a):  # a request that names its worker gets it, whichever graph it is of
        answer = stack.chat("Hello", headers={"x-worker-instance-id": str(worker)},
                            nvext={"extra_fields": ["worker_id"]})
        assert answer.json["nvext"]["worker_id"]["decode_worker_id"] == worker
    mockers[0].stop()
    until("the other graph is left", lambda: stack.workers() == 3)
    assert served_by(stack, mockers, 6) == {1: 6}


def test_a_rollout_under_a_prefix(stack):
    """The operator of 1.x replaces a graph's workers in a namespace of their own: both serve meanwhile."""
    old = graph(stack, "ns-g-11111111")
    other = graph(stack, "ns-other")
    stack.frontend(*KV, "--namespace", "ns-g", DYN_NAMESPACE_PREFIX="ns-g")
    stack.ready(1)
    new = graph(stack, "ns-g-22222222")
    stack.ready(2)
    sets_ready(stack, 2)
    assert served_by(stack, (old, other, new), 8) == {0: 4, 2: 4}
    old.stop()
    until("the new generation is left", lambda: stack.workers() == 1)
    assert served_by(stack, (old, other, new), 4) == {2: 4} and stack.models() == [MODEL]


def test_a_namespace_is_exact(stack):
    mockers = [graph(stack, "g"), graph(stack, "g2")]
    stack.frontend(*KV, "--namespace", "g")
    stack.ready(1)
    assert served_by(stack, mockers, 4) == {0: 4}


def test_several_models(stack):
    graph(stack, "one")
    graph(stack, "two", "--model-name", "second")
    stack.frontend()
    until("both are served", lambda: sorted(stack.models()) == sorted([MODEL, "second"]))
    for name in (MODEL, "second"):
        answer = stack.request("POST", CHAT, {**stack.body("Hello"), "model": name})
        assert answer.status == 200 and answer.json["model"] == name


def test_prefill_stays_in_its_graph(stack):
    """KV blocks go from a prefill worker to a decode worker: never from one graph to another."""
    stack.start_nats()
    decode = [graph(stack, "g-a", "--is-decode-worker"), graph(stack, "g-b", "--is-decode-worker")]
    prefill = [graph(stack, "g-a", "--is-prefill-worker"), graph(stack, "g-b", "--is-prefill-worker")]
    stack.frontend("--router-mode", "kv")
    stack.ready(2)
    until("both prefill", lambda: stack.workers("prefill") == 2)
    sets_ready(stack, 2)
    decodes, prefills, seen = workers_of(*decode), workers_of(*prefill), set()
    for i in range(12):
        body = stack.body([1000 + i * 7 + k for k in range(320)], COMPLETIONS, max_tokens=2,
                          nvext={"extra_fields": ["worker_id"]})
        used = stack.request("POST", COMPLETIONS, body).json["nvext"]["worker_id"]
        assert decodes[used["decode_worker_id"]] == prefills[used["prefill_worker_id"]]
        seen.add(decodes[used["decode_worker_id"]])
    assert seen == {0, 1}


def test_wrong_namespace_is_said(stack):
    graph(stack, "theirs")
    stack.frontend("--namespace", "mine")
    until("it is said", lambda: any("registered in namespace theirs, but mine is served" in note
                                    for note in stack.get("/health").json["notes"]))
    assert stack.front.log().count("of another namespace") == 1
    graph(stack, "mine")
    stack.ready(1)
    assert stack.get("/health").json["notes"] == []


# --- what ai-dynamo does with the same workers ---

@pytest.mark.parametrize("env, theirs", [({}, {0, 1, 2}), ({"DYN_NAMESPACE": "dynamo"}, {0, 1, 2}),
                                         ({"DYN_NAMESPACE_PREFIX": "dynamo"}, {0, 1, 2}),
                                         ({"DYN_NAMESPACE_PREFIX": "gr"}, {0, 1}), ({"DYN_NAMESPACE": "gr"}, {0})],
                         ids=["unset", "global", "global-prefix", "prefix", "exact"])
def test_as_the_reference(tmp_path, env, theirs):
    python = reference_python("1.6.1")
    with EtcdStack(tmp_path, events=True) as stack:
        stack.start_nats("-js")
        mockers = [graph(stack, name) for name in ("gr", "graph", "other")]
        stack.port = free_port()
        front = stack.start("reference-frontend", [
            python, "-m", "dynamo.frontend", "--discovery-backend", "etcd", "--http-host", "127.0.0.1",
            "--http-port", stack.port, "--event-plane", "nats"],
            HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats", PYTHONUNBUFFERED="1", **env)

        def answered():
            try:
                return stack.request("POST", CHAT, stack.body("Hello")).status == 200
            except OSError:
                assert front.alive(), front.log()[-2000:]
                return False
        until("it serves the model", answered)
        until("by all that it should", lambda: set(served_by(stack, mockers, 12)) == theirs)
        front.kill()
        stack.frontend(*KV, **env)
        stack.ready(len(theirs))
        sets_ready(stack, len(theirs))
        assert set(served_by(stack, mockers, 12)) == theirs
