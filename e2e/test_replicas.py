# SPDX-License-Identifier: Apache-2.0
"""Several frontends over the same workers: what one places, the others book."""

import collections
import contextlib
import copy
import http.client
import itertools
import json
import re
import threading
import time

import pytest

from reference_router import BOOKINGS, HEARD, REFUSED, ROUTERS, VERSIONS, Theirs
from stack import CHAT, COMPLETIONS, MODEL, PATIENT, ROUTED, ROUTED_LOG, SOON, Stack, decision_for, put, until, words
from test_routing import worker_of

PREFILL = "dynamo_frontend_worker_active_prefill_tokens"


class Brokerless(Stack):
    """A stack whose events go over ZeroMQ, from each to each: publishers are found by their records."""

    def __init__(self, folder):
        super().__init__(folder, events=False)

    def start(self, name, command, **env):
        return super().start(name, command, **{**env, "DYN_EVENT_PLANE": "zmq", "DYN_KV_EVENTS": "true"})

    def channels(self):
        """[(topic, endpoint or None, publisher, record)] of this stack's routers."""
        found = []
        for path in (self.kv / "v1/event_channels").glob("*"):
            with contextlib.suppress(OSError, ValueError):  # it goes, or is half written
                record = json.loads(path.read_text())
                scope = record.get("scope", {}).get("endpoint", {})
                found.append((record["topic"], scope.get("name"), record["instance_id"], record))
        workers = set(self.instances())
        return [channel for channel in found if channel[2] not in workers]


PLANES = {"nats": Stack, "zmq": Brokerless}
on_both_planes = pytest.mark.parametrize("stack", PLANES, indirect=True)


@pytest.fixture
def stack(tmp_path, request):
    with PLANES[getattr(request, "param", "nats")](tmp_path) as stack:
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


@on_both_planes
def test_what_one_places_the_other_books(stack):
    one, two = pair(stack, **PATIENT)
    with stack.paused(stack.worker):
        slow = threading.Thread(target=lambda: one.chat(words(600), max_tokens=1))
        slow.start()
        until("the other has booked it", lambda: two.metric(BOOKINGS) == 1)
        assert two.metric(PREFILL) == one.metric(PREFILL) > 300
        assert one.metric(BOOKINGS) == 0, "its own are no one else's"
    slow.join()
    until("it is freed", lambda: two.metric(BOOKINGS) == 0 and two.metric(PREFILL) == 0)
    until("each step is told", lambda: two.metric(HEARD, outcome="applied") == 3)
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


@on_both_planes
def test_a_killed_router_loses_its_bookings(stack):
    one, two = pair(stack)
    streams = [two.stream(words(100, seed=i), max_tokens=100000, ignore_eos=True) for i in range(3)]
    for stream in streams:
        next(stream.events)
    until("the other has booked them", lambda: one.metric(BOOKINGS) == 3)
    two.front.kill()
    until("they are gone", lambda: one.metric(BOOKINGS) == 0 and one.metric(ROUTERS) == 0)
    assert not one.metric(PREFILL)


@on_both_planes
def test_a_router_that_leaves_says_so(stack):
    one, two = pair(stack)
    assert two.front.stop() == 0
    two.front.killed = True
    until("it is known to be gone", lambda: one.metric(ROUTERS) == 0)
    assert "another router is silent" not in one.front.log(), "it need not be missed"


@on_both_planes
def test_the_sync_is_switched_while_running(stack, tmp_path):
    routing = tmp_path / "routing"
    put(routing, "DYN_ROUTER_REPLICA_SYNC=false\n")
    stack.up("--router-mode", "kv", "--routing-file", routing)
    two = another(stack, "--router-replica-sync")
    assert stack.metric(ROUTERS) is None
    put(routing, "DYN_ROUTER_REPLICA_SYNC=true\n")
    until("they know of each other", lambda: stack.metric(ROUTERS) == 1 and two.metric(ROUTERS) == 1)
    put(routing, "DYN_ROUTER_REPLICA_SYNC=false\n")
    until("it has left", lambda: two.metric(ROUTERS) == 0)
    assert "another router is silent" not in two.front.log()


def test_news_of_room_wakes_the_queue(stack):
    """What waits at one router goes when a prompt that the other sent is computed."""
    one, two = pair(stack, "--router-queue-threshold", "0", **PATIENT)
    with stack.paused(stack.worker):
        slow = threading.Thread(target=lambda: one.chat(words(600), max_tokens=1))
        slow.start()
        until("the other knows", lambda: two.metric(PREFILL))
        waits = threading.Thread(target=lambda: two.chat("short", max_tokens=1))
        waits.start()
        until("it waits", lambda: two.metric("dynamo_frontend_router_queue_pending_requests") == 1)
    slow.join()
    until("it went", lambda: two.metric("dynamo_frontend_router_queue_pending_requests") == 0, SOON)
    waits.join()


SESSIONS = ("--router-session-affinity-ttl-secs", "3600")
SESSIONS_HEARD = "commutator_router_replica_sessions_heard_total"


def of_session(stack, name):
    """The worker that ours gives the session."""
    answer = stack.request("POST", CHAT, stack.body(words(30, seed=7), max_tokens=1), {"X-Dynamo-Session-ID": name})
    assert answer.status == 200, answer.body
    return worker_of(stack, answer)


@on_both_planes
def test_a_session_keeps_its_worker_at_every_router(stack):
    stack.up("--router-mode", "kv", "--router-replica-sync", *SESSIONS, workers=4, DYN_LOG=ROUTED_LOG)
    two = another(stack, "--router-replica-sync", *SESSIONS, workers=4, DYN_LOG=ROUTED_LOG)
    for one in (stack, two):
        until("they know of each other", lambda one=one: one.metric(ROUTERS) == 1)
    homes = {f"s{i}": of_session(stack, f"s{i}") for i in range(8)}
    until("they are told", lambda: (two.metric(SESSIONS_HEARD, outcome="applied") or 0) >= 16)  # bound and given back
    assert {name: of_session(two, name) for name in homes} == homes
    assert len(set(homes.values())) > 1
    until("and told back", lambda: (stack.metric(SESSIONS_HEARD, outcome="applied") or 0) >= 16)
    assert not two.metric(HEARD, outcome="bad") and not stack.metric(HEARD, outcome="bad")


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


@on_both_planes
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

@pytest.mark.parametrize("stack", ["zmq"], indirect=True)
def test_every_publisher_has_a_record_while_the_router_runs(stack):
    stack.mocker("--is-prefill-worker")
    stack.up("--router-mode", "kv", "--router-replica-sync", *SESSIONS)
    until("both pools are there", lambda: stack.workers("prefill") == 1)
    of_pool = [("active_sequences_events", None), ("active_sequences_events", "generate"), ("commutator_router_presence", None),
               ("kv-hit-rate", None), ("kv_metrics", None), ("session_affinity_events", "generate")]
    channels = until("they are published", lambda: len(stack.channels()) == 2 * len(of_pool) and stack.channels())
    assert sorted((topic, endpoint or "") for topic, endpoint, *_ in channels) == sorted(
        (topic, endpoint or "") for topic, endpoint in 2 * of_pool)
    ids = {publisher for _, _, publisher, _ in channels}
    assert len(ids) == len(channels) and max(ids) < 1 << 53, "as JSON of the Kubernetes API can hold them"
    assert {record["transport"]["kind"] for *_, record in channels} == {"Zmq"}
    workers = set(stack.instances())
    assert stack.front.stop() == 0
    stack.front.killed = True
    assert not [path for path in (stack.kv / "v1/event_channels").glob("*")
                if json.loads(path.read_text())["instance_id"] not in workers]


def plane_of(stack):
    return "zmq" if isinstance(stack, Brokerless) else "nats"


@on_both_planes
@pytest.mark.parametrize("version", VERSIONS)
def test_beside_a_frontend_of_the_reference(stack, version):
    stack.start_nats("-js")  # 0.9.0 does not start without
    stack.mocker(speedup=2)
    stack.frontend("--router-mode", "kv", "--router-replica-sync")
    stack.ready(1)
    theirs = Theirs(stack, version, plane_of(stack))
    # Its tracker comes to know the worker some seconds after it serves.
    until("it is heard", lambda: theirs.ask([5, 6, 7])[0] == 200 and stack.metric(HEARD, outcome="applied"))
    assert stack.metric(ROUTERS) == 1

    # Theirs in ours: an answer of theirs is booked here while it runs. (One that its client gives up stays
    # booked there, and here, until it expires: 0.9.0 forgets to free it.)
    long = threading.Thread(target=lambda: theirs.ask([1000 + i for i in range(320)], max_tokens=1500,
                                                      ignore_eos=True))
    long.start()
    until("theirs is booked", lambda: stack.metric(BOOKINGS) == 1)
    long.join()
    until("theirs is freed", lambda: stack.metric(BOOKINGS) == 0)

    # Ours in theirs: its cost function counts the blocks of a prompt that we have placed.
    stream = stack.stream(words(400), max_tokens=100000, ignore_eos=True)
    next(stream.events)
    until("ours counts there", lambda: theirs.ask([5, 6, 7])[0] == 200 and theirs.decode_blocks() > 15)
    stream.close()
    until("ours is freed there", lambda: theirs.ask([5, 6, 8])[0] == 200 and theirs.decode_blocks() < 5)
    assert not stack.metric(HEARD, outcome="bad")
    assert not re.search(REFUSED, theirs.process.log()), re.findall(f".*{REFUSED}.*", theirs.process.log())

    # It goes: what it had placed is gone with it.
    long = threading.Thread(target=lambda: theirs.ask([1000 + i for i in range(320)], max_tokens=3000, ignore_eos=True))
    long.start()
    until("theirs is booked", lambda: stack.metric(BOOKINGS) == 1)
    theirs.kill()
    until("it is gone", lambda: stack.metric(BOOKINGS) == 0 and stack.metric(ROUTERS) == 0, SOON)
    long.join()


@on_both_planes
def test_between_frontends_of_both_generations(stack):
    """Each is told in its words: neither hears what it would refuse, nor anything twice."""
    stack.start_nats("-js")
    stack.mocker(speedup=2)
    stack.frontend("--router-mode", "kv", "--router-replica-sync")
    stack.ready(1)
    all_of_theirs = [Theirs(stack, version, plane_of(stack)) for version in VERSIONS]
    asked = lambda prompt: all(theirs.ask(prompt)[0] == 200 for theirs in all_of_theirs)
    until("both are heard", lambda: asked([5, 6, 7]) and stack.metric(ROUTERS) == 2)
    stream = stack.stream(words(400), max_tokens=100000, ignore_eos=True)
    next(stream.events)
    loads = lambda: [theirs.decode_blocks() for theirs in all_of_theirs]
    until("it counts at both, once", lambda: asked([5, 6, 7]) and all(15 < load < 25 for load in loads()))
    stream.close()
    until("it is freed at both", lambda: asked([5, 6, 8]) and all(load < 5 for load in loads()))
    assert not stack.metric(HEARD, outcome="bad")
    assert not any(re.search(REFUSED, theirs.process.log()) for theirs in all_of_theirs)


@on_both_planes
def test_a_session_keeps_its_worker_at_a_frontend_of_the_reference(stack):
    stack.start_nats("-js")
    for _ in range(4):
        stack.mocker(speedup=2)
    stack.frontend("--router-mode", "kv", "--router-replica-sync", *SESSIONS, DYN_LOG=ROUTED_LOG)
    stack.ready(4)
    theirs = Theirs(stack, "1.6.1", plane_of(stack), *SESSIONS)

    def of_theirs(name, n=3):
        status, answer = theirs.ask(list(range(n)), {"X-Dynamo-Session-ID": name},
                                    nvext={"extra_fields": ["worker_id"]})
        assert status == 200, answer
        return json.loads(answer)["nvext"]["worker_id"]["decode_worker_id"]
    # Theirs in ours. What it binds before its publisher is there, nobody hears.
    until("it is heard", lambda: of_theirs("first") and stack.metric(SESSIONS_HEARD, outcome="applied"))
    rounds = itertools.count()

    def follows(first, then):
        """Whether sessions that one binds keep their workers at the other: with others again if it has not been told yet."""
        of = next(rounds)
        homes = {f"{of}-{i}": first(f"{of}-{i}", 40 * (6 * of + i + 1)) for i in range(6)}
        kept = {name: then(name) for name in homes} == homes
        return kept and len(set(homes.values()))
    until("theirs hold in ours", lambda: follows(of_theirs, lambda name: of_session(stack, name)))
    until("ours hold in theirs", lambda: (follows(lambda name, _: of_session(stack, name), of_theirs) or 0) > 1)
    assert not stack.metric(HEARD, outcome="bad")
