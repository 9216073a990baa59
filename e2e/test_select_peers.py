# SPDX-License-Identifier: Apache-2.0
"""dynamo-router select and slots with peers: what one places the others book, ours and those of the reference."""

import collections
import concurrent.futures

import pytest

from conftest import free_port
from engine_publisher import Engine
from stack import until
from test_index_service import serve, stack, tokens  # noqa: F401: fixtures
from test_select_service import add, ask, loads, start_reference

def with_peers(stack, n, *flags):
    """Services that know of each other's replica sync."""
    ports = [free_port() for _ in range(n)]
    return [serve(stack, "select", *flags, "--replica-sync-port", port, "--replica-sync-peers",
                  ",".join(f"tcp://127.0.0.1:{other}" for other in ports if other != port)) for port in ports]


def with_the_reference(stack, *flags):
    ports = free_port(), free_port()
    return (serve(stack, "select", *flags, "--replica-sync-port", ports[0],
                  "--replica-sync-peers", f"tcp://127.0.0.1:{ports[1]}"),
            start_reference(stack, "1.6.1", *flags, "--replica-sync-port", ports[1],
                            "--replica-sync-peers", f"tcp://127.0.0.1:{ports[0]}"))


def requests(who):
    return sum(row[2] for row in loads(who).values())


def heard(who, at):
    """Waits until one books what is placed at the other: before, what it tells is lost."""
    def told():
        who.post("/select_and_reserve", ask(tokens(1), selection_id="hello"))
        booked = requests(at) == 1
        who.call("DELETE", "/reservations/hello")
        return booked
    until("a placement is heard", told)
    until("and its end", lambda: requests(at) == 0)


def shares_its_reservations(one, two):
    """What is placed at one counts at the other, and either may end it."""
    for who in (one, two):
        add(who, 1, None)
    heard(one, two)
    heard(two, one)
    one.post("/select_and_reserve", ask(tokens(3) + [7], selection_id="r"))
    until("it is booked", lambda: loads(two) == {1: (13, 3, 1)})
    two.post("/select_and_reserve", ask(tokens(3), selection_id="r"), 409)
    one.post("/reservations/r/prefill_complete", None)
    until("its prompt is computed", lambda: loads(two) == {1: (0, 3, 1)})
    two.post("/reservations/r/output_block", {})
    assert loads(two) == {1: (0, 4, 1)} and loads(one) == {1: (0, 3, 1)}  # as in 1.6.1, output is not told
    two.call("DELETE", "/reservations/r")
    until("it is ended at both", lambda: loads(one) == loads(two) == {1: (0, 0, 0)})
    two.post("/reservations", ask(tokens(2), selection_id="e", worker_id=1), 201)
    until("one that names its worker", lambda: loads(one) == {1: (0, 2, 1)})
    one.post("/reservations/e/prefill_complete", None)
    one.call("DELETE", "/reservations/e")
    until("it is ended", lambda: loads(two) == {1: (0, 0, 0)})


def test_peers_share_reservations(stack):
    one, two = with_peers(stack, 2)
    shares_its_reservations(one, two)
    assert one.metric("commutator_select_replica_routers") == 1
    assert not one.metric("commutator_select_replica_heard_total", outcome="bad")


def test_peers_come_and_go(stack):
    port = free_port()
    one = serve(stack, "select", "--replica-sync-port", port)
    two = serve(stack, "select", "--replica-sync-port", free_port())
    for who in (one, two):
        add(who, 1, None)
    peer = {"endpoint": f"tcp://127.0.0.1:{port}"}
    assert two.post("/replica_sync/register_peer", peer, 201) == two.post("/replica_sync/register_peer", peer)
    assert two.get("/replica_sync/peers") == [peer["endpoint"]]
    heard(one, two)
    two.post("/replica_sync/deregister_peer", peer)
    two.post("/replica_sync/deregister_peer", peer)
    assert two.get("/replica_sync/peers") == []
    two.post("/replica_sync/register_peer", peer, 201)
    heard(one, two)


def test_junk_of_peers_is_counted(stack):
    with Engine() as junk:  # any publisher
        service = serve(stack, "select", "--replica-sync-port", free_port(), "--replica-sync-peers", junk.endpoint)
        add(service, 1, None)
        good, bad = b"dynamo.slot-tracker.v1", lambda: service.metric("commutator_select_replica_heard_total", outcome="bad") or 0
        until("it is subscribed to all", lambda: junk.send(good, b"\xc1") or bad())
        was = bad()
        for parts in ([good, b"\xc1"], [good], [good, b"\x80", b""], [b"dynamo.session-affinity.v1", b"\x90"],
                      [good + b"x", b"\x80"]):
            junk.send(*parts)
        until("it is counted", lambda: bad() >= was + 4)
        assert loads(service) == {1: (0, 0, 0)}


def test_three_peers_spread_a_burst(stack):
    """No worker gets more than 1.5 times its fair share, whoever was asked."""
    services = with_peers(stack, 3)
    for who in services:
        for number in range(1, 9):
            add(who, number, None)
    for who in services:
        for at in services:
            if at is not who:
                heard(who, at)

    def reserve(i):
        return services[i % 3].post("/select_and_reserve", ask(tokens(16, 1000 * (i + 1)), selection_id=f"r{i}"))

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        placed = collections.Counter(told["worker_id"] for told in pool.map(reserve, range(240)))
    assert max(placed.values()) <= 1.5 * 240 / 8, placed
    until("all know all", lambda: all(requests(who) == 240 for who in services))


# --- sessions ---

TTL = ("--session-affinity-ttl-secs", "3600")


def shares_its_sessions(one, two):
    """A session that one binds keeps its worker at the other, and who bound it last is right."""
    for who in (one, two):
        for number in range(1, 5):
            add(who, number, None)
    heard(one, two)
    heard(two, one)
    names = [f"s{i}" for i in range(6)]
    homes = {name: one.post("/select_and_reserve", ask(tokens(20, i * 500), session_id=name, selection_id=name))["worker_id"]
             for i, name in enumerate(names)}
    until("its placements are booked", lambda: requests(two) == 6)
    assert set(homes.values()) == {1, 2, 3, 4}
    for name in names:
        until("it is bound", lambda: two.post("/select", ask(tokens(1), session_id=name))["worker_id"] == homes[name])
        assert {two.post("/select_and_reserve", ask(tokens(30), session_id=name))["worker_id"] for _ in range(3)} == {
            homes[name]}
    # The worker goes: whoever is asked first binds anew.
    home = homes["s0"]
    for who in (one, two):
        who.call("DELETE", f"/workers/{home}")
    moved = two.post("/select_and_reserve", ask(tokens(30), session_id="s0"))["worker_id"]
    assert moved != home
    until("it is bound anew", lambda: {one.post("/select", ask(tokens(30), session_id="s0"))["worker_id"]
                                       for _ in range(4)} == {moved})


def test_peers_share_sessions(stack):
    one, two = with_peers(stack, 2, *TTL)
    shares_its_sessions(one, two)


@pytest.mark.parametrize("ours_first", [True, False])
def test_peers_of_the_reference_share_sessions(stack, ours_first):
    ours, theirs = with_the_reference(stack, *TTL)
    shares_its_sessions(*((ours, theirs) if ours_first else (theirs, ours)))
    assert not ours.metric("commutator_select_replica_heard_total", outcome="bad")


def test_a_running_request_keeps_its_session(stack):
    service = serve(stack, "select", "--session-affinity-ttl-secs", "1")
    for number in range(1, 5):
        add(service, number, None)
    first = service.post("/select_and_reserve", ask(tokens(30), session_id="a", selection_id="r"))["worker_id"]
    home = service.post("/select_and_reserve", ask(tokens(30, 500), session_id="b", selection_id="s"))["worker_id"]
    service.call("DELETE", "/reservations/s")
    # Both bindings were made in the same moment; that of the request that has ended goes.
    other = lambda name: service.post("/select", ask(tokens(1), session_id=name))["worker_id"]
    service.post("/select_and_reserve", ask(tokens(300, 5000), pinned_worker={"worker_id": home, "dp_rank": 0}))
    until("the one that has ended is forgotten", lambda: other("b") != home)
    assert other("a") == first


# --- slots ---

def slot_loads(who):
    """{worker: (prefill tokens, decode blocks)}"""
    return {row["worker_id"]: (row["active_prefill_tokens"], row["active_decode_blocks"]) for row in who.get("/loads")}


def slots_share_requests(one, two):
    for who in (one, two):
        who.post("/register", {"worker_id": 1, "model_name": "m", "block_size": 4, "dp_start": 0, "dp_size": 1}, 201)
    request = lambda name, **more: {"model_name": "m", "request_id": name, **more}
    body = {"worker_id": 1, "dp_rank": 0, "sequence_hashes": [1, -2, 3], "new_isl_tokens": 7}

    def told():
        one.post("/add", request("hello", **body), 201)
        booked = slot_loads(two) == {1: (7, 3)}
        one.post("/free", request("hello"))
        return booked
    until("a request is heard", told)
    until("and its end", lambda: slot_loads(two) == {1: (0, 0)})
    one.post("/add", request("a", **body), 201)
    until("it is booked", lambda: slot_loads(two) == {1: (7, 3)})
    two.post("/add", request("a", **body), 409)
    one.post("/prefill_complete", request("a"))
    until("its prompt is computed", lambda: slot_loads(two) == {1: (0, 3)})
    one.post("/free", request("a"))
    until("it is ended", lambda: slot_loads(two) == {1: (0, 0)})


def test_slot_trackers_are_peers(stack):
    ports = free_port(), free_port()
    ours = serve(stack, "slots", "--replica-sync-port", ports[0],
                 "--replica-sync-peers", f"tcp://127.0.0.1:{ports[1]}")
    theirs = start_reference(stack, "1.6.1", "--replica-sync-port", ports[1], "--replica-sync-peers",
                             f"tcp://127.0.0.1:{ports[0]}", module="slot_tracker")
    slots_share_requests(ours, theirs)
    ours.post("/unregister", {"worker_id": 1, "model_name": "m"})
    theirs.post("/unregister", {"worker_id": 1, "model_name": "m"})
    slots_share_requests(theirs, ours)


# --- beside the reference ---

def test_peers_of_the_reference_share_reservations(stack):
    """One of ours and one of theirs, both ways."""
    ours, theirs = with_the_reference(stack)
    shares_its_reservations(ours, theirs)
    for who in (ours, theirs):
        who.call("DELETE", "/workers/1")
    shares_its_reservations(theirs, ours)
    assert not ours.metric("commutator_select_replica_heard_total", outcome="bad")
