# SPDX-License-Identifier: Apache-2.0
"""Several frontends over the same workers: what one places, the others book."""

import collections
import copy
import http.client
import json
import re
import threading
import time

import pytest

from conftest import free_port, reference_python
from stack import COMPLETIONS, MODEL, ROUTED, ROUTED_LOG, SOON, Stack, decision_for, until, words

BOOKINGS = "commutator_router_replica_bookings"
ROUTERS = "commutator_router_replica_routers"
HEARD = "commutator_router_replica_heard_total"
PREFILL = "dynamo_frontend_worker_active_prefill_tokens"


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path) as stack:
        yield stack


def another(stack, *flags, workers=1, **env):
    """One more frontend of the same stack."""
    twin = copy.copy(stack)
    twin.frontend("--router-mode", "kv", *flags, **env)
    twin.ready(workers)
    return twin


def pair(stack, *flags, speedup=50, **env):
    stack.up("--router-mode", "kv", "--router-replica-sync", *flags, speedup=speedup, **env)
    twin = another(stack, "--router-replica-sync", *flags, **env)
    for one in (stack, twin):
        until("they know of each other", lambda one=one: one.metric(ROUTERS) == 1)
    return stack, twin


def test_what_one_places_the_other_books(stack):
    one, two = pair(stack, speedup=0.05)
    slow = threading.Thread(target=lambda: one.chat(words(600), max_tokens=1))
    slow.start()
    until("the other has booked it", lambda: two.metric(BOOKINGS) == 1)
    assert two.metric(PREFILL) == one.metric(PREFILL) > 300
    assert one.metric(BOOKINGS) == 0, "its own are no one else's"
    slow.join()
    until("it is freed", lambda: two.metric(BOOKINGS) == 0 and two.metric(PREFILL) == 0)
    assert two.metric(HEARD, outcome="applied") == 3
    assert not two.metric(HEARD, outcome="unknown_request") and not two.metric(HEARD, outcome="bad")


def test_the_other_ones_load_counts_in_decisions(stack):
    one, two = pair(stack, DYN_LOG=ROUTED_LOG)
    stream = one.stream(words(400), max_tokens=100000, ignore_eos=True)
    next(stream.events)
    until("the other has booked it", lambda: two.metric(BOOKINGS) == 1)
    row = decision_for(two, two.chat("short", max_tokens=1)).rows[0]
    assert row["decode"] > 15, row
    stream.close()
    until("it is freed", lambda: two.metric(BOOKINGS) == 0)
    row = decision_for(two, two.chat("brief", max_tokens=1)).rows[0]
    assert row["decode"] < 5, row


def test_who_has_the_key_knows_equal_prompts(stack):
    keys = [stack.folder / "key", stack.folder / "other"]
    for key in keys:
        key.write_bytes(key.name.encode().ljust(32, b"k"))
    flags = ["--router-tracking-hash", "keyed-xxh3-v1", "--router-tracking-key-id", "1", "--router-tracking-key-file"]
    one, two = pair(stack, *flags, keys[0], DYN_LOG=ROUTED_LOG)
    three = another(stack, "--router-replica-sync", *flags, keys[1], DYN_LOG=ROUTED_LOG)
    until("they know of each other", lambda: three.metric(ROUTERS) == one.metric(ROUTERS) == 2)
    stream = one.stream(words(400), max_tokens=100000, ignore_eos=True)
    next(stream.events)
    until("the others have booked it", lambda: two.metric(BOOKINGS) == three.metric(BOOKINGS) == 1)
    decode = lambda at, text: decision_for(at, at.chat(text, max_tokens=1)).rows[0]["decode"]
    running = decode(two, "short")
    assert abs(decode(two, words(400)) - running) <= 2
    assert decode(three, words(400)) >= 1.8 * running > 20
    stream.close()


def test_a_killed_router_loses_its_bookings(stack):
    one, two = pair(stack)
    streams = [two.stream(words(100, seed=i), max_tokens=100000, ignore_eos=True) for i in range(3)]
    for stream in streams:
        next(stream.events)
    until("the other has booked them", lambda: one.metric(BOOKINGS) == 3)
    two.front.kill()
    until("they are gone", lambda: one.metric(BOOKINGS) == 0 and one.metric(ROUTERS) == 0)
    assert not one.metric(PREFILL)


def test_a_router_that_leaves_says_so(stack):
    one, two = pair(stack)
    assert two.front.stop() == 0
    two.front.killed = True
    until("it is known to be gone", lambda: one.metric(ROUTERS) == 0, 6)  # silence would tell after 7 to 10 s


def test_the_sync_is_switched_while_running(stack, tmp_path):
    routing = tmp_path / "routing"
    routing.write_text("DYN_ROUTER_REPLICA_SYNC=false\n")
    stack.up("--router-mode", "kv", "--routing-file", routing)
    two = another(stack, "--router-replica-sync")
    assert stack.metric(ROUTERS) is None
    routing.write_text("DYN_ROUTER_REPLICA_SYNC=true\n")
    until("they know of each other", lambda: stack.metric(ROUTERS) == 1 and two.metric(ROUTERS) == 1)
    routing.write_text("DYN_ROUTER_REPLICA_SYNC=false\n")
    until("it has left", lambda: two.metric(ROUTERS) == 0, 6)


def test_news_of_room_wakes_the_queue(stack):
    """What waits at one router goes when a prompt that the other sent is computed."""
    one, two = pair(stack, "--router-queue-threshold", "0", speedup=0.05)
    slow = threading.Thread(target=lambda: one.chat(words(600), max_tokens=1))
    slow.start()
    until("the other knows", lambda: two.metric(PREFILL))
    waits = threading.Thread(target=lambda: two.chat("short", max_tokens=1))
    waits.start()
    until("it waits", lambda: two.metric("dynamo_frontend_router_queue_pending_requests") == 1)
    slow.join()
    until("it went", lambda: two.metric("dynamo_frontend_router_queue_pending_requests") == 0, SOON)
    waits.join()


def burst(routers, n, seconds):
    """Sends n prompts that have nothing in common, spread over the routers and the time, and reads every answer."""
    connections = []
    for i in range(n):
        connection = routers[i % len(routers)].connect()
        connection.connect()
        body = json.dumps({"model": MODEL, "prompt": [1000 + i * 40 + k // 8 for k in range(320)], "max_tokens": 1})
        connections.append((connection, f"POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                                        f"content-length: {len(body)}\r\n\r\n{body}".encode()))
    start = time.monotonic()
    for i, (connection, request) in enumerate(connections):
        while time.monotonic() < start + seconds * i / n:
            pass  # a pace of fractions of a millisecond
        connection.sock.sendall(request)
    for connection, _ in connections:
        response = http.client.HTTPResponse(connection.sock)
        response.begin()
        assert response.status == 200, response.read()
        connection.close()


def test_three_routers_spread_a_burst(stack):
    """No worker gets more than 1.5 times its fair share of 300 requests in 100 ms."""
    stack.up("--router-mode", "kv", "--router-replica-sync", workers=8, DYN_LOG=ROUTED_LOG)
    routers = [stack] + [another(stack, "--router-replica-sync", workers=8, DYN_LOG=ROUTED_LOG) for _ in range(2)]
    for router in routers:
        until("all know of each other", lambda router=router: router.metric(ROUTERS) == 2)
    burst(routers, 300, 0.1)
    placed = collections.Counter(found[3] for router in routers for found in ROUTED.findall(router.front.log()))
    assert sum(placed.values()) == 300
    assert max(placed.values()) <= 1.5 * 300 / 8, placed
    until("nothing is booked any more", lambda: all(router.metric(BOOKINGS) == 0 for router in routers))


# --- beside the reference ---

# Flags of discovery, by version.
VERSIONS = {"0.9.0": ["--store-kv", "file"],
            "1.6.1": ["--discovery-backend", "file"]}


class Theirs:
    """A frontend of the reference with replica sync, in our stack."""

    def __init__(self, stack, version, plane="nats"):
        python = reference_python(version)
        self.port = free_port()
        self.process = stack.start("reference-frontend", [
            python, "-m", "dynamo.frontend", *VERSIONS[version], "--request-plane", "tcp", "--http-host",
            "127.0.0.1", "--http-port", self.port, "--event-plane", plane, "--router-mode", "kv",
            "--router-replica-sync"], HF_HUB_OFFLINE="1", DYN_EVENT_PLANE=plane, PYTHONUNBUFFERED="1", DYN_LOG="info",
            DYN_SDK_DISABLE_ANSI_LOGGING="1")
        until("it serves", lambda: self.ask([5, 6, 7])[0] == 200)

    def ask(self, prompt, **more):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            body = {"model": MODEL, "max_tokens": 2, "prompt": prompt, **more}
            connection.request("POST", COMPLETIONS, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        except OSError as error:
            return 0, str(error)

    def decode_blocks(self):
        """Of the last Formula line; 1.6 tells the sum only, to which a prompt of three tokens adds less than a block."""
        found = re.findall(r"(?:Formula for worker_id=.* = [\d.]+ \* [\d.]+ \+ |Selected worker .* logit=)([\d.]+)",
                           self.process.log())
        return float(found[-1]) if found else None


@pytest.mark.parametrize("version", VERSIONS)
def test_beside_a_frontend_of_the_reference(stack, version):
    stack.start_nats("-js", "-sd", stack.folder / "jetstream")
    stack.mocker(speedup=2)
    stack.frontend("--router-mode", "kv", "--router-replica-sync")
    stack.ready(1)
    theirs = Theirs(stack, version)
    # Its tracker comes to know the worker some seconds after it serves.
    until("it is heard", lambda: theirs.ask([5, 6, 7])[0] == 200 and stack.metric(HEARD, outcome="applied"))
    assert stack.metric(ROUTERS) == 1

    # Theirs in ours: an answer of theirs is booked here while it runs. (One that its client gives up stays
    # booked there, and here, until it expires: 0.9.0 forgets to free it.)
    long = threading.Thread(target=lambda: theirs.ask([1000 + i for i in range(320)], max_tokens=300,
                                                      ignore_eos=True))
    long.start()
    until("theirs is booked", lambda: stack.metric(BOOKINGS) == 1)
    long.join()
    until("theirs is freed", lambda: stack.metric(BOOKINGS) == 0)

    # Ours in theirs: its cost function counts the blocks of a prompt that we have placed.
    stream = stack.stream(words(400), max_tokens=100000, ignore_eos=True)
    next(stream.events)
    assert theirs.ask([5, 6, 7])[0] == 200
    assert theirs.decode_blocks() > 15
    stream.close()
    until("ours is freed there", lambda: theirs.ask([5, 6, 8])[0] == 200 and theirs.decode_blocks() < 5)
    assert not stack.metric(HEARD, outcome="bad")


@pytest.mark.parametrize("version", VERSIONS)
def test_hears_a_frontend_of_the_reference_over_zmq(stack, version):
    """There it hears others, whose channels discovery tells, and 1.x sends several events at once."""
    stack.start_nats("-js", "-sd", stack.folder / "jetstream")  # 0.9.0 does not start without
    stack.mocker(speedup=2, DYN_EVENT_PLANE="zmq")
    stack.frontend("--router-mode", "kv", "--router-replica-sync", DYN_EVENT_PLANE="zmq")
    stack.ready(1)
    theirs = Theirs(stack, version, "zmq")
    until("it is heard", lambda: theirs.ask([5, 6, 7])[0] == 200 and stack.metric(HEARD, outcome="applied"))
    until("it is freed", lambda: stack.metric(BOOKINGS) == 0)
    assert not stack.metric(HEARD, outcome="bad")
