# SPDX-License-Identifier: Apache-2.0
"""The router queue: order, bounds, classes, and clients that leave while they wait."""

import contextlib
import json
import re
import threading

import pytest

from conftest import program
from stack import CHAT, MODEL, PATIENT, Stack, put, until, words

QUEUED_LOG = "info,commutator::frontend::request=debug,commutator::frontend::admission=debug"
PENDING = "dynamo_frontend_router_queue_pending_requests"
REFUSED = "dynamo_frontend_router_queue_backpressure_total"


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield stack


class Client(threading.Thread):
    """One chat completion in the background."""

    def __init__(self, stack, content, **headers):
        super().__init__()
        self.stack, self.content, self.headers = stack, content, headers
        self.answer = None
        self.start()

    def run(self):
        headers = {name.replace("_", "-"): str(value) for name, value in self.headers.items()}
        self.answer = self.stack.request("POST", CHAT, self.stack.body(self.content, max_tokens=1), headers)


def pending(stack, **labels):
    return stack.metric(PENDING, model=MODEL, **labels) or 0


@contextlib.contextmanager
def busy(stack, worker=None):
    """The one worker that computes prompts has one, with which it does not get done in the block: others wait. Yields
    its client."""
    with stack.paused(worker or stack.worker):
        first = Client(stack, words(200))
        until("the worker has the prompt",
              lambda: (stack.metric("dynamo_frontend_worker_active_prefill_tokens") or 0) > 100)
        yield first


def park(stack, content, **headers):
    """A client that waits, before this returns."""
    before = pending(stack)
    client = Client(stack, content, **headers)
    until("it waits", lambda: pending(stack) == before + 1)
    return client


def routed_prompts(stack):
    """Prompt lengths in the order in which they were routed."""
    return [int(isl) for isl in re.findall(r" routed request_id=\S+ .* isl=(\d+)", stack.front.log())]


def up(stack, *flags, **env):
    # A threshold of 0: one request at a time for the only worker.
    return stack.up("--router-mode", "kv", "--router-queue-threshold", "0", *flags, DYN_LOG=QUEUED_LOG, **PATIENT, **env)


def finish(*clients):
    for client in clients:
        client.join()
        assert client.answer.status == 200, client.answer.body


def order_of(stack, clients):
    """Names of the clients in the order in which they were routed; prompts differ in length."""
    lengths = {client.answer.usage["prompt_tokens"]: name for name, client in clients.items()}
    return [lengths[isl] for isl in routed_prompts(stack) if isl in lengths]


def test_priorities_order_those_that_wait(stack):
    up(stack)
    with busy(stack) as first:
        clients = {name: park(stack, words(20 + 10 * i, seed=name), **headers) for i, (name, headers) in enumerate([
            ("late", {}), ("later", {}), ("jumps", {"x_dynamo_request_priority": 100}),
            ("first class", {"x_dynamo_request_strict_priority": 1})])}
        assert pending(stack, policy_class="default", worker_type="decode") == 4
        assert stack.metric("dynamo_frontend_router_queue_pending_isl_tokens") > 80
    finish(first, *clients.values())
    assert order_of(stack, clients) == ["first class", "jumps", "late", "later"]
    assert pending(stack) == 0
    assert stack.metric("commutator_router_queue_wait_seconds_count", policy_class="default") == 4


def test_short_prompts_first_under_wspt(stack):
    up(stack, "--router-queue-policy", "wspt")
    with busy(stack) as first:
        clients = {n: park(stack, words(n, seed=n)) for n in (120, 60, 30)}
    finish(first, *clients.values())
    assert order_of(stack, clients) == [30, 60, 120]


@pytest.mark.parametrize("status", [503, 529])
def test_a_full_queue_refuses(stack, status):
    up(stack, "--router-queue-limit", "2", DYN_HTTP_OVERLOAD_STATUS_CODE=status)
    with busy(stack) as first:
        waiting = [park(stack, words(20, seed=i)) for i in range(2)]
        refused = stack.request("POST", CHAT, stack.body("x"))
    assert refused.status == status and refused.json["error"]["type"] == "overloaded_error"
    assert "queue is full" in refused.json["error"]["message"]
    assert stack.metric(REFUSED, reason="request_limit", policy_class="default") == 1
    finish(first, *waiting)


def test_a_client_that_leaves_is_forgotten_at_once(stack):
    up(stack)
    with busy(stack) as first:
        connection = stack.connect()
        connection.request("POST", CHAT, json.dumps(stack.body("I shall not wait")), {"content-type": "application/json"})
        until("it waits", lambda: pending(stack) == 1)
        stays = park(stack, words(30))
        connection.close()
        until("it is gone", lambda: pending(stack) == 1)
        assert first.is_alive(), "nobody had to finish for that"
    finish(first, stays)
    assert len(routed_prompts(stack)) == 2


def test_pins_and_wrong_priorities(stack):
    up(stack)
    with busy(stack) as first:
        pinned = Client(stack, "now", x_worker_instance_id=stack.instances()[0])
        until("both are with the worker", lambda: len(routed_prompts(stack)) == 2)
        assert pending(stack) == 0
    for header in ("x-dynamo-request-priority", "x-dynamo-request-strict-priority"):
        refused = stack.request("POST", CHAT, stack.body("x"), {header: "high"})
        assert refused.status == 400 and header in refused.json["error"]["message"]
    finish(first, pinned)


def test_prompts_wait_for_prefill_workers(stack):
    """Where there are such, it is their room that counts."""
    prefill = stack.mocker("--is-prefill-worker", "--bootstrap-ports", "0")
    stack.mocker("--is-decode-worker")
    stack.frontend("--router-mode", "kv", "--router-queue-threshold", "0", DYN_LOG=QUEUED_LOG, **PATIENT)
    stack.ready(1)
    until("the prefill worker", lambda: stack.workers("prefill") == 1)
    with busy(stack, prefill) as first:
        waits = park(stack, words(30))
        assert pending(stack, worker_type="prefill") == 1
    finish(first, waits)
    assert pending(stack) == 0


POLICY = """
default_policy_family: standard
uncached_isl_buckets:
  - {min_tokens: 0, bucket: small}
  - {min_tokens: 100, bucket: large}
policy_classes:
  - {name: small, policy_family: standard, cache_bucket: small, quantum: 1000, prefill_busy_threshold: 0}
  - {name: large, policy_family: standard, cache_bucket: large, quantum: 10, prefill_busy_threshold: 0,
     request_queue_limit_per_worker: 1}
  - {name: urgent, quantum: 1000}
"""


def test_policy_classes(stack, tmp_path):
    (tmp_path / "classes.yaml").write_text(POLICY)
    stack.up("--router-mode", "kv", "--router-policy-config", tmp_path / "classes.yaml", DYN_LOG=QUEUED_LOG, **PATIENT)
    with busy(stack) as first:
        large = park(stack, words(200, seed="l"))
        assert pending(stack, policy_class="large") == 1
        small = park(stack, words(20, seed="s"))
        assert pending(stack, policy_class="small") == 1
        refused = stack.request("POST", CHAT, stack.body(words(220, seed="m")))
        assert refused.status == 503 and stack.metric(REFUSED, policy_class="large") == 1
        urgent = Client(stack, words(40, seed="u"), x_dynamo_meta_policy_class="urgent")
        until("the urgent one is with the worker", lambda: len(routed_prompts(stack)) == 2)
    finish(first, large, small, urgent)
    # A class without threshold does not wait; of the others the one with the larger quantum goes first.
    assert order_of(stack, {"large": large, "small": small, "urgent": urgent}) == ["urgent", "small", "large"]


def test_a_wrong_policy_file_is_refused(stack, tmp_path):
    (tmp_path / "classes.yaml").write_text(POLICY + "  - {name: small, quantum: 1}\n")
    front = stack.start("frontend", [program("dynamo-frontend"), "--http-port", "0", "--router-policy-config",
                                     tmp_path / "classes.yaml"], DYN_KV_EVENTS="false")
    assert front.end() != 0
    front.killed = True  # it ended by itself
    assert "policy_classes[3]: a second class 'small'" in front.log()


def test_the_queue_opens_when_its_threshold_goes(stack, tmp_path):
    routing = tmp_path / "routing"
    put(routing, "DYN_ROUTER_QUEUE_THRESHOLD=0\n")
    stack.up("--router-mode", "kv", "--routing-file", routing, DYN_LOG=QUEUED_LOG, **PATIENT)
    until("the file is in force", lambda: stack.metric("commutator_routing_changes_total"))
    with busy(stack) as first:
        waits = park(stack, words(30))
        put(routing, "DYN_ROUTER_QUEUE_THRESHOLD=1000\n")
        until("it goes", lambda: pending(stack) == 0)
        assert first.is_alive()
    finish(first, waits)
