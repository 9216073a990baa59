# SPDX-License-Identifier: Apache-2.0
"""dynamo-router select: choosing, reserving, accounts and errors, and the same answers as the reference's service."""

import collections
import concurrent.futures
import contextlib
import http.client
import json
import subprocess

import pytest

from conftest import free_port, program, reference_python
from stack import until
from test_index_service import BLOCK, REFERENCES, Service, engines, serve, stack, tokens  # noqa: F401: fixtures



@pytest.fixture
def service(stack):
    return serve(stack, "select")


def worker(number, engine, **more):
    return {"worker_id": number, "model_name": "m", "endpoint": f"http://w{number}:8000", "block_size": BLOCK,
            "kv_events_endpoints": {"0": engine.endpoint if engine else "tcp://127.0.0.1:1"}, **more}


def add(service, number, engine, **more):
    told = service.post("/workers", worker(number, engine, **more), 201)
    if engine:
        engine.wait_for_subscribers()
    return told


def ask(prompt, **more):
    return {"model_name": "m", "token_ids": prompt, **more}


def loads(service):
    """{worker: (prefill tokens, decode blocks, requests)}"""
    return {row["worker_id"]: (row["potential_prefill_tokens"], row["potential_decode_blocks"], row["active_requests"])
            for group in service.get("/loads") for row in group["loads"]}


def two_workers(service, engines):
    """The first holds three blocks, the second one of them."""
    for number, engine in enumerate(engines, 1):
        add(service, number, engine)
    engines[0].stored([101, 102, 103], tokens(3))
    engines[1].stored([201], tokens(1))
    until("both are indexed", lambda: [row["device_blocks"] for row in sorted(
        service.post("/overlap_scores", ask(tokens(3)))["workers"], key=lambda row: row["worker_id"])] == [3, 1])


# --- life of a selection ---

def test_a_selection_from_choice_to_release(service, engines):
    two_workers(service, engines)
    prompt = tokens(3) + [77]
    chosen = service.post("/select", ask(prompt))
    assert chosen == {"model_name": "m", "routing_group": "default", "worker_id": 1, "dp_rank": 0,
                      "endpoint": "http://w1:8000", "block_size": BLOCK, "effective_prefill_tokens": 1,
                      "overlap": {"longest_matched": 12, "gpu": 12, "dp": {"0": 12}, "cpu": 12, "disk": 12},
                      "potential_decode_blocks": 4}
    assert loads(service) == {1: (0, 0, 0), 2: (0, 0, 0)}  # chosen, not booked

    reserved = service.post("/select_and_reserve", ask(prompt, selection_id="r"))
    assert reserved["worker_id"] == 1 and reserved["isl_tokens"] == 13 and len(reserved["sequence_hashes"]) == 3
    assert loads(service) == {1: (1, 3, 1), 2: (0, 0, 0)}
    service.post("/select_and_reserve", ask(prompt, selection_id="r"), 409)
    assert service.post("/reservations/r/prefill_complete", None) == {"status": "ok"}
    assert loads(service)[1] == (0, 3, 1)
    service.post("/reservations/r/output_block", {})
    service.post("/reservations/r/output_block", {})
    assert loads(service)[1][1] == 5
    service.post("/reservations/r/output_block", {"decay_fraction": 0.5})  # blocks that nobody shares count half
    assert loads(service)[1][1] == 3
    service.post("/reservations/r/output_block", {"decay_fraction": 1.5}, 400)
    service.call("DELETE", "/reservations/r")
    service.call("DELETE", "/reservations/r", status=404)
    assert loads(service) == {1: (0, 0, 0), 2: (0, 0, 0)}


def test_a_selection_can_be_reserved_later_and_once(service, engines):
    two_workers(service, engines)
    service.post("/select", ask(tokens(3), selection_id="s"))
    service.post("/reservations", {"selection_id": "s"}, 404)  # of another model
    assert service.post("/reservations", {"selection_id": "s", "model_name": "m"}, 201) == {
        "selection_id": "s", "model_name": "m", "routing_group": "default", "worker_id": 1, "dp_rank": 0,
        "endpoint": "http://w1:8000"}
    service.post("/reservations", {"selection_id": "s", "model_name": "m"}, 404)
    assert loads(service)[1][2] == 1


def test_a_reservation_can_name_its_worker(service, engines):
    two_workers(service, engines)
    service.post("/reservations", ask(tokens(3), selection_id="a", worker_id=2), 201)
    assert loads(service)[2] == (0, 3, 1)
    service.post("/reservations", ask(tokens(3), selection_id="b", worker_id=2, effective_prefill_tokens=8), 201)
    assert loads(service)[2] == (8, 3, 2)
    service.post("/reservations", ask(tokens(3), selection_id="b", worker_id=2), 409)
    service.post("/reservations", ask(tokens(3), selection_id="c", worker_id=9), 404)
    service.post("/reservations", ask(tokens(3), selection_id="c", worker_id=2, dp_rank=1), 404)
    service.post("/reservations", ask(tokens(3), worker_id=2), 422)


def test_hashes_do_as_well_as_tokens(service, engines):
    two_workers(service, engines)
    told = service.post("/select_and_reserve", ask(tokens(3), selection_id="t"))
    body = {"model_name": "m", "selection_id": "h", "isl_tokens": 12, "sequence_hashes": told["sequence_hashes"],
            "block_hashes": [9143094415614847814, 12124091508212882195, 1088361764653601668]}
    again = service.post("/select_and_reserve", body)
    assert again["overlap"] == told["overlap"] and again["sequence_hashes"] == told["sequence_hashes"]
    assert loads(service)[1][1] == 3  # the same blocks
    for missing, why in (("block_hashes", "block_hashes is required"), ("isl_tokens", "isl_tokens is required"),
                         ("sequence_hashes", "sequence_hashes is required")):
        answer = service.post("/select", {key: value for key, value in body.items() if key != missing}, 400)
        assert why in answer["error"]
    service.post("/select", {**body, "sequence_hashes": [1]}, 400)
    service.post("/select", {**body, "isl_tokens": 5}, 400)


def test_constraints_of_one_request(service, engines):
    two_workers(service, engines)
    assert service.post("/select", ask(tokens(3), allowed_worker_ids=[2]))["worker_id"] == 2
    assert service.post("/select", ask(tokens(3), pinned_worker={"worker_id": 2, "dp_rank": 0}))["worker_id"] == 2
    service.post("/select", ask(tokens(3), pinned_worker={"worker_id": 2, "dp_rank": 5}), 503)
    service.post("/select", ask(tokens(3), allowed_worker_ids=[9]), 503)
    hot = collections.Counter(
        service.post("/select", ask(tokens(3), router_config_override={"router_temperature": 50}))["worker_id"]
        for _ in range(60))
    assert set(hot) == {1, 2}


def test_a_burst_spreads(service):
    """Select and reserve is one step: no two of them see the same free worker."""
    for number in range(1, 9):
        add(service, number, None)

    def reserve(i):
        return service.post("/select_and_reserve", ask(tokens(16, 1000 * (i + 1)), selection_id=f"r{i}"))["worker_id"]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        placed = collections.Counter(pool.map(reserve, range(160)))
    assert set(placed.values()) == {20}
    assert all(row == (20 * 64, 20 * 16, 20) for row in loads(service).values())
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: service.call("DELETE", f"/reservations/r{i}"), range(160)))
    assert all(row == (0, 0, 0) for row in loads(service).values())
    assert service.metric("commutator_select_reservations") == 0


def test_potential_loads_tell_what_would_be(service, engines):
    two_workers(service, engines)
    service.post("/select_and_reserve", ask(tokens(3) + [7], selection_id="r"))
    rows = {row.pop("worker_id"): row for row in service.post("/potential_loads", ask(tokens(3) + [7]))}
    assert rows == {1: {"dp_rank": 0, "potential_prefill_tokens": 2, "potential_decode_blocks": 3,
                        "active_requests": 1},
                    2: {"dp_rank": 0, "potential_prefill_tokens": 9, "potential_decode_blocks": 3,
                        "active_requests": 0}}


# --- workers ---

def test_workers_come_change_and_go(service, engines):
    assert service.get("/ready", 503) == {"ready": False, "schedulable_workers": 0, "workers": []}
    service.post("/select", ask([1]), 503)
    half = service.post("/workers", {"worker_id": 5, "model_name": "m"}, 201)
    assert half["lifecycle"] == "incomplete" and half["not_schedulable_reasons"] == [
        "endpoint is required", "block_size must be greater than 0", "kv_events endpoint is required for dp_rank 0"]
    service.get("/ready", 503)
    whole = service.call("PATCH", "/workers/5", {key: value for key, value in worker(5, engines[0]).items()
                                                 if key != "worker_id"})
    assert whole["lifecycle"] == "schedulable" and "not_schedulable_reasons" not in whole
    engines[0].wait_for_subscribers()
    assert service.get("/ready")["schedulable_workers"] == 1
    engines[0].stored([1], tokens(1))
    until("it is indexed", lambda: service.post("/select", ask(tokens(1)))["overlap"]["gpu"] == BLOCK)

    service.post("/select_and_reserve", ask(tokens(1), selection_id="r"))
    moved = service.call("PATCH", "/workers/5", {"endpoint": "http://elsewhere"})  # its cache and load stay
    assert moved["endpoint"] == "http://elsewhere"
    assert service.post("/select", ask(tokens(1)))["overlap"]["gpu"] == BLOCK and loads(service)[5][2] == 1
    other = service.post("/workers", worker(6, engines[1], block_size=8), 201)
    assert other["not_schedulable_reasons"] == [
        "reconciliation failed: block_size mismatch for model=m routing_group=default: existing=4 requested=8"]
    bad = service.post("/workers", worker(7, None, kv_events_endpoints={"0": "bogus"}), 201)
    assert "missing scheme" in bad["not_schedulable_reasons"][0]
    assert [row["worker_id"] for row in service.get("/workers")] == [5, 6, 7]

    gone = service.call("DELETE", "/workers/5")
    assert gone["lifecycle"] == "unschedulable"
    service.call("DELETE", "/workers/5", status=404)
    service.call("DELETE", "/reservations/r", status=404)  # went with its worker
    service.post("/select", ask(tokens(1)), 503)


def test_ranks_are_targets_of_their_own(service, engines):
    one, two = engines
    add(service, 1, None, data_parallel_start_rank=2, data_parallel_size=2,
        kv_events_endpoints={"2": one.endpoint, "3": two.endpoint})
    one.wait_for_subscribers()
    two.wait_for_subscribers()
    two.stored([1], tokens(1))
    until("rank 3 has it", lambda: service.post("/select", ask(tokens(1)))["dp_rank"] == 3)
    ranks = [service.post("/select_and_reserve", ask(tokens(9, 100 * i)))["dp_rank"] for i in range(1, 9)]
    assert collections.Counter(ranks) == {2: 4, 3: 4}


def test_a_new_service_learns_from_a_peer(stack, service, engines):
    two_workers(service, engines)
    other = serve(stack, "select", "--indexer-peers", f"http://127.0.0.1:{service.port}")
    for number, engine in enumerate(engines, 1):
        add(other, number, engine)
    until("what the peer knew", lambda: other.post("/select", ask(tokens(3)))["overlap"]["gpu"] == 12)


# --- bounds ---

def test_selections_wait_within_bounds(stack):
    service = serve(stack, "select", "--selection-cache-max-entries", 2, "--selection-cache-ttl-secs", 600)
    add(service, 1, None)
    for name in ("a", "b", "c"):
        service.post("/select", ask([1], selection_id=name))
    assert service.metric("commutator_select_pending_selections") == 2
    service.post("/reservations", {"selection_id": "a", "model_name": "m"}, 404)
    service.post("/reservations", {"selection_id": "c", "model_name": "m"}, 201)


def test_reservations_of_a_gateway_that_died_expire(stack):
    service = serve(stack, "select", DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS=1)
    add(service, 1, None)
    service.post("/select_and_reserve", ask(tokens(2), selection_id="r"))
    until("it is dropped", lambda: loads(service)[1] == (0, 0, 0))
    until("and gone", lambda: service.metric("commutator_select_reservations_expired_total") == 1)
    service.call("DELETE", "/reservations/r", status=404)


def test_bodies_have_a_bound(service):
    service.call("POST", "/select", json.dumps(ask([1] * 4_500_000)), 413)


def test_choices_are_remembered(stack):
    recorded = stack.folder / "recorded"
    service = serve(stack, "select", "--record-decisions", recorded)
    add(service, 1, None)
    add(service, 2, None)
    for name in ("a", "b"):
        service.post("/select_and_reserve", ask(tokens(3), selection_id=name))
    service.post("/reservations/a/prefill_complete", None)
    service.call("DELETE", "/reservations/a")
    service.post("/select", ask(tokens(3)))
    service.post("/potential_loads", ask(tokens(3)))  # a look is no choice
    stack.port = service.port
    records = [json.loads(line) for line in stack.get("/decisions").body.splitlines()]
    assert [(record["request_id"], record["outcome"]["ended"]) for record in records] == [
        ("a", "finished"), ("b", "running"), ("", "not-sent")]
    assert records[0]["outcome"]["ttft_ms"] is not None and records[0]["policy"] == "dynamo-1.x"
    told = service.get("/explain/b")
    assert told["decisions"][0]["chosen"] == records[1]["chosen"]
    service.get("/explain/c", 404)
    assert service.process.stop() == 0
    assert [json.loads(line)["request_id"] for line in recorded.read_text().splitlines()] == ["a", "", "b"]


def test_a_session_stays_with_its_worker(stack):
    service = serve(stack, "select", "--session-affinity-ttl-secs", "60")
    for number in range(1, 5):
        add(service, number, None)
    reserve = lambda **more: service.post("/select_and_reserve", ask(tokens(30), **more))["worker_id"]
    first = reserve(session_id="s")
    assert {reserve(session_id="s") for _ in range(8)} == {first}
    assert len({reserve() for _ in range(8)}) == 3  # the others, who have less to do
    service.call("DELETE", f"/workers/{first}")
    second = reserve(session_id="s")
    assert second != first and {reserve(session_id="s") for _ in range(4)} == {second}
    assert service.post("/select", ask(tokens(30), session_id="s"))["worker_id"] == second
    service.post("/select", ask(tokens(3), session_id="s" * 257), 400)
    # A selection binds when it is claimed.
    third = service.post("/select", ask(tokens(30), session_id="t", selection_id="p"))["worker_id"]
    for _ in range(8):
        reserve(pinned_worker={"worker_id": third, "dp_rank": 0})
    assert service.post("/select", ask(tokens(30), session_id="t"))["worker_id"] != third
    service.post("/reservations", {"selection_id": "p", "model_name": "m"}, 201)
    assert reserve(session_id="t") == third


def keyed(stack, name="key"):
    key = stack.folder / name
    key.write_bytes(name.encode().ljust(32, b"k"))
    return ["--router-tracking-hash", "keyed-xxh3-v1", "--router-tracking-key-id", "1", "--router-tracking-key-file", key]


def test_blocks_have_keyed_names(stack):
    """Those that 1.6.1 gives them with the same key."""
    services = [serve(stack, "select", *keyed(stack)), start_reference(stack, "1.6.1", *keyed(stack)),
                serve(stack, "select", *keyed(stack, "other")), serve(stack, "select")]
    for more in ({}, {"lora_name": "a"}, {"cache_salt": "c"}, {"lora_name": "a", "cache_salt": "c"},
                 {"routing_group": "g"}):
        names = []
        for who in services:
            who.post("/workers", worker(1, None, routing_group=more.get("routing_group", "default")), 201)
            names.append(who.post("/select_and_reserve", ask(tokens(3), **more))["sequence_hashes"])
            who.call("DELETE", "/workers/1")
        assert names[0] == names[1]
        assert len(set(map(tuple, names))) == 3, more


# --- against the reference ---

def start_reference(stack, version, *flags, module="select_service", **env):
    port = free_port()
    process = stack.start("reference", [reference_python(version), "-m", f"dynamo.{module}", "--port", port, *flags], **env)
    service = Service(stack, process, port)

    def answers():
        try:
            service.get("/health")
            return True
        except OSError:
            return False
    until("it answers", answers)
    return service


@pytest.fixture(params=REFERENCES)
def reference(stack, request):
    return start_reference(stack, request.param)


def steps(engines):
    """(method, path, body) of a whole life, errors among them. To delete what is gone already is 404 in 1.6.1, as
    here, but was 200 before: it is left out."""
    one, two = engines
    prompt = tokens(3) + [77]
    return [
        ("GET", "/ready", None), ("POST", "/select", ask(prompt)),
        ("POST", "/workers", {"worker_id": 9, "model_name": "m"}), ("POST", "/workers", {"model_name": "m"}),
        ("DELETE", "/workers/9", None),
        ("POST", "/workers", worker(1, one)), ("POST", "/workers", worker(2, two, total_kv_blocks=100)),
        "publish",
        ("POST", "/select", ask(prompt)), ("POST", "/select", ask(prompt, selection_id="s")),
        ("POST", "/select", {"model_name": "m"}), ("POST", "/select", {"model_name": "zz", "token_ids": [1]}),
        ("POST", "/select_and_reserve", ask(prompt, selection_id="r")),
        ("POST", "/select_and_reserve", ask(prompt, selection_id="r")),
        ("POST", "/select", {"model_name": "m", "block_hashes": [1, 2], "sequence_hashes": [1], "isl_tokens": 9}),
        ("POST", "/reservations", {"selection_id": "s"}),
        ("POST", "/reservations", {"selection_id": "s", "model_name": "m"}),
        ("POST", "/reservations", {"selection_id": "s", "model_name": "m"}),
        ("POST", "/reservations", ask(prompt, selection_id="e", worker_id=2)),
        ("POST", "/reservations", ask(prompt, selection_id="e", worker_id=2)),
        ("POST", "/reservations", ask(prompt, selection_id="f", worker_id=99)),
        ("POST", "/reservations", ask(prompt, selection_id="g", worker_id=2, effective_prefill_tokens=100)),
        ("POST", "/reservations", ask(prompt, selection_id="h", worker_id=2, effective_prefill_tokens=5)),
        ("POST", "/reservations", ask(tokens(3), selection_id="i", worker_id=1, effective_prefill_tokens=12)),
        ("POST", "/select", ask(prompt, pinned_worker={"worker_id": 2})),
        ("POST", "/select", ask(prompt, router_config_override={"overlap_score_weight": -1})),
        ("POST", "/select", ask(prompt, router_config_override={"router_temperature": -1})),
        ("GET", "/loads", None), ("POST", "/potential_loads", ask(prompt)), ("POST", "/overlap_scores", ask(prompt)),
        ("POST", "/select", ask(prompt, allowed_worker_ids=[2])),
        ("POST", "/reservations/r/prefill_complete", None), ("POST", "/reservations/x/prefill_complete", None),
        ("POST", "/reservations/r/output_block", {"decay_fraction": 2}), ("GET", "/loads", None),
        *(("POST", f"/reservations/{name}/output_block", body) for name in ("r", "x")
          for body in (None, "", "null", "{bad", "[]", {}, {"decay_fraction": "x"}, {"decay_fraction": -1}, {"decay_fraction": 0.5})),
        ("GET", "/loads", None), ("DELETE", "/reservations/r", None), ("GET", "/loads", None),
        *(("PATCH", f"/workers/{name}", body) for name in (2, 99)
          for body in ("null", "{bad", "[]", {"block_size": "x"}, {"worker_id": 5}, {"no": 1})),
        *(step for size in (0, None, BLOCK) for step in (("PATCH", "/workers/2", {"block_size": size}), ("GET", "/loads", None))),
        ("PATCH", "/workers/1", {"block_size": 8}), ("PATCH", "/workers/99", {}),
        ("PUT", "/select", {}), ("GET", "/nope", None), ("POST", "/select", "{bad"),
        ("DELETE", "/workers/2", None),
        # A group stays when its last worker goes, with its block size.
        ("PATCH", "/workers/1", {"model_name": "n", "routing_group": "z"}), ("GET", "/loads", None),
        ("DELETE", "/workers/1", None), ("GET", "/loads", None), ("GET", "/dump", None), ("POST", "/select", ask(prompt)),
        ("POST", "/workers", worker(3, one, block_size=8)), ("GET", "/loads", None),
        ("PATCH", "/workers/3", {"block_size": BLOCK, "model_name": "n"}), ("GET", "/loads", None),
        ("POST", "/workers", worker(4, two, model_name="q")), ("GET", "/loads", None), ("POST", "/potential_loads", ask(prompt)),
        ("DELETE", "/workers/3", None), ("GET", "/loads", None), ("POST", "/select", ask(prompt)),
        ("POST", "/overlap_scores", ask(prompt)),
        ("POST", "/workers", worker(5, None, model_name="bad", kv_events_endpoints={"0": "bogus"})), ("GET", "/loads", None),
    ]


# What is JSON by its content-type, and what is not.
CONTENT_TYPES = [None, "application/json", "application/json; charset=utf-8", "application/ld+json", "Application/JSON", "text/json",
                 "application/json;x", "application/x-www-form-urlencoded", ""]


DROPPED = ("router_credit_blocks",)  # of a release in between: 1.6.1 does not have it any more


def without_words(body):
    """Errors are compared by status; lists of workers without order."""
    if isinstance(body, dict) and set(body) == {"error"}:
        return "error"
    if isinstance(body, list):
        return sorted((without_words(item) for item in body),
                      key=lambda item: item.get("worker_id", 0) if isinstance(item, dict) else 0)
    if isinstance(body, dict):
        return {key: without_words(value) for key, value in body.items() if key not in DROPPED}
    return body


def covers(mine, theirs):
    """Equal, but for members that releases after this one have added."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        return all(key in mine and covers(mine[key], value) for key, value in theirs.items())
    if isinstance(theirs, list) and isinstance(mine, list):
        return len(mine) == len(theirs) and all(map(covers, mine, theirs))
    return mine == theirs


def test_slower_tiers_count_as_they_do_in_the_reference(service, reference, engines):
    """Host memory and disk behind the device's blocks: what is credited, chosen and booked."""
    prompt = tokens(10)
    for who in (service, reference):
        who.post("/workers", worker(1, engines[0]), 201)
        who.post("/workers", worker(2, engines[1]), 201)
    for engine in engines:
        for who in (service, reference):
            engine.wait_for_subscribers()
    one, two = engines
    one.stored([101, 102, 103], tokens(3))
    one.stored([104, 105], tokens(2, 3 * BLOCK), parent=103, medium="CPU")
    one.stored([106], tokens(1, 5 * BLOCK), parent=105, medium="DISK")
    one.stored([107, 108], tokens(2, 6 * BLOCK), parent=106, medium="EXTERNAL")
    two.stored([101, 102, 103, 104, 105], tokens(5), medium="CPU_PINNED")

    def asked(who):
        rows = who.post("/overlap_scores", ask(prompt))["workers"]
        return sorted(tuple(row[key] for key in ("worker_id", "device_blocks", "host_pinned_extension_blocks",
                                                 "disk_extension_blocks")) for row in rows)
    for who in (service, reference):
        until("indexed", lambda: asked(who) == [(1, 3, 2, 3), (2, 0, 5, 0)])
    for step in [("POST", "/potential_loads", ask(prompt)), ("POST", "/select", ask(prompt)),
                 ("POST", "/select_and_reserve", ask(prompt, selection_id="a")), ("GET", "/loads", None),
                 ("POST", "/select_and_reserve", ask(prompt, selection_id="b")), ("GET", "/loads", None),
                 ("POST", "/select_and_reserve", ask(prompt, selection_id="c")), ("GET", "/loads", None)]:
        answers = []
        for who in (service, reference):
            who.stack.port = who.port
            answer = who.stack.request(*step)
            answers.append([answer.status, without_words(json.loads(answer.body))])
        assert covers(*answers), json.dumps([step, *answers])


def typed(service, method, path, body, kind):
    """The status of the answer to a body of that content-type."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body, {} if kind is None else {"content-type": kind})
        return connection.getresponse().status


def test_bodies_say_that_they_are_json(service, reference, engines):
    for who in (service, reference):
        who.post("/workers", worker(1, engines[0]), 201)
    told = [[typed(who, "POST", "/select", json.dumps(ask(tokens(3))), kind) for kind in CONTENT_TYPES] for who in (service, reference)]
    assert told[0] == told[1] and set(told[0]) == {200, 415}
    for method, path, body in (("POST", "/workers", "{}"), ("PATCH", "/workers/1", "{}"), ("PATCH", "/workers/9", "{bad"),
                               ("POST", "/reservations", "{}"), ("POST", "/reservations/x/prefill_complete", "{}"),
                               ("POST", "/reservations/x/output_block", ""), ("POST", "/potential_loads", "{}"),
                               ("POST", "/replica_sync/register_peer", "{}"), ("DELETE", "/workers/9", "x"), ("GET", "/loads", None)):
        ours, theirs = [typed(who, method, path, body, None) for who in (service, reference)]
        assert ours == theirs, (method, path)

# --- media ---

def media(*blocks):
    """Of blocks in their order: None, or hashes."""
    return [None if block is None else {"mm_objects": [{"mm_hash": name, "offsets": [[0, 1]]} for name in block]} for block in blocks]


MEDIA = [
    {"block_mm_infos": media((7,), None, (8, 2**64 - 1))}, {"block_mm_infos": media((2**64 - 1, 8), (3,))}, {"block_mm_infos": []},
    {"block_mm_infos": media(None, None, None, (1,), (2,))}, {"block_mm_infos": media(())}, {"block_mm_infos": None},
    {"block_mm_infos": media((5, 5))}, {"is_eagle": True}, {"is_eagle": False}, {"is_eagle": True, "block_mm_infos": media((7,), (8,))},
    {"is_eagle": True, "token_ids": [1] * 12}, {"is_eagle": True, "token_ids": []}, {"lora_name": "a", "block_mm_infos": media((7,))},
    {"cache_salt": "a", "block_mm_infos": media((7,)), "is_eagle": True},
    {"mm_routing_info": {"routing_token_ids": [9] * 10}}, {"mm_routing_info": {"routing_token_ids": []}},
    {"mm_routing_info": {"routing_token_ids": [], "block_mm_infos": media((1,))}, "block_mm_infos": media((7,))},
    {"mm_routing_info": {"routing_token_ids": [9] * 10, "block_mm_infos": media((1,), (2,))}, "block_mm_infos": media((7,))},
    {"mm_routing_info": {"routing_token_ids": [9] * 10, "expanded_prompt_len": 3}, "token_ids": None}, {"mm_routing_info": None},
    {"mm_routing_info": {"routing_token_ids": [9] * 10}, "block_mm_infos": media((7,))},
    {"mm_routing_info": {}}, {"mm_routing_info": {"routing_token_ids": [-1]}}, {"mm_routing_info": []}, {"mm_routing_info": "x"},
    {"mm_routing_info": {"routing_token_ids": [9], "block_mm_infos": None}},
    {"block_mm_infos": {}}, {"block_mm_infos": [{}]}, {"block_mm_infos": [[]]}, {"block_mm_infos": [1]}, {"block_mm_infos": "x"},
    {"block_mm_infos": [{"mm_objects": None}]}, {"block_mm_infos": [{"mm_objects": [None]}]}, {"block_mm_infos": [{"mm_objects": [{"mm_hash": 1}]}]},
    {"block_mm_infos": [{"mm_objects": [{"offsets": []}]}]}, {"block_mm_infos": [{"mm_objects": [{"mm_hash": -1, "offsets": []}]}]},
    {"block_mm_infos": [{"mm_objects": [{"mm_hash": 2**64, "offsets": []}]}]}, {"block_mm_infos": [{"mm_objects": [], "more": 1}]},
    {"block_mm_infos": [{"mm_objects": [{"mm_hash": 1, "offsets": [], "more": 1}]}]},
    *({"block_mm_infos": [{"mm_objects": [{"mm_hash": 1, "offsets": offsets}]}]} for offsets in (
        None, [[]], [[1]], [[1, 2, 3]], [[1, 2], [3, 4]], [[2, 1]], [[1, -1]], [[1.5, 2]], [[None, 2]], [None], "x", [1, 2])),
    {"is_eagle": 1}, {"is_eagle": "x"}, {"is_eagle": None},
]


def test_blocks_with_media_have_names_of_their_own(stack):
    services = [serve(stack, "select"), start_reference(stack, "1.6.1")]
    for who in services:
        who.post("/workers", worker(1, None), 201)
    names = set()
    for more in MEDIA:
        told = []
        for who in services:
            who.stack.port = who.port
            answer = who.stack.request("POST", "/select_and_reserve", {**ask(tokens(3) + [7]), **more})
            body = json.loads(answer.body) if answer.status == 200 else {}
            told.append((answer.status, body.get("sequence_hashes"), body.get("isl_tokens")))
        assert told[0] == told[1], more
        names.add(tuple(told[0][1] or ()))
    assert len(names) > 12


def test_a_prompt_with_media_is_found_where_it_is(service, reference, engines):
    """As it was published: with media beside it, or in the place of them."""
    one, two = engines
    for who in (service, reference):
        for number, engine in enumerate(engines, 1):
            who.post("/workers", worker(number, engine), 201)
    for engine in engines:
        for _ in (service, reference):
            engine.wait_for_subscribers()
    one.salted([101, 102, 103], tokens(3), block_mm_infos=media(None, (7,), None))
    two.stored([201, 202], [9] * 2 * BLOCK)
    for more, want in (({"block_mm_infos": media(None, (7,))}, {1: 3, 2: 0}), ({"block_mm_infos": media(None, (8,))}, {1: 1, 2: 0}), ({}, {1: 1, 2: 0}),
                       ({"mm_routing_info": {"routing_token_ids": [9] * 3 * BLOCK}}, {1: 0, 2: 2})):
        for who in (service, reference):
            until("it is indexed", lambda: {row["worker_id"]: row["device_blocks"] for row in who.post(
                "/overlap_scores", ask(tokens(3), **more))["workers"]} == want)


# --- constraints of a request ---

def told_by(who, method, path, body=None, headers=None):
    """(status, answer) without the words of errors."""
    connection = http.client.HTTPConnection("127.0.0.1", who.port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, None if body is None else json.dumps(body),
                           {"content-type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, without_words(json.loads(answer.read()))


@pytest.mark.parametrize("more, chosen", [
    ({"routing_constraints": {"required_taints": ["b"]}}, 2), ({"routing_constraints": {"required_taints": ["a"]}}, 1),
    ({"routing_constraints": {"preferred_taints": {"b": 5.0}}}, 2), ({"affinity_target": {"worker_id": 2}}, 2),
    ({"affinity_target": {"worker_id": 9}, "allowed_worker_ids": [1]}, 1),
    ({"routing_constraints": {"required_taints": ["zz"]}}, 503), ({"routing_constraints": {"required_taints": "a"}}, 422),
    ({"routing_constraints": {"preferred_taints": {"b": "x"}}}, 422), ({"allowed_worker_ids": [99]}, 503),
    ({"routing_constraints": {"required_taints": ["a"]}, "pinned_worker": {"worker_id": 2, "dp_rank": 0}}, 503),
    ({"pinned_worker": {"worker_id": 2, "dp_rank": 0}, "allowed_worker_ids": [1]}, 400),
    ({"pinned_worker": {"worker_id": 77, "dp_rank": 0}}, 503), ({"pinned_worker": {"worker_id": 2, "dp_rank": 5}}, 503),
    ({"priority_jump": "x"}, 422), ({"strict_priority": -1}, 422),
    ({"router_config_override": {"prefill_load_scale": -1}}, 422), ({"router_config_override": {"track_prefill_tokens": "x"}}, 422)])
def test_where_a_request_may_go(service, reference, more, chosen):
    for who in (service, reference):
        who.post("/workers", worker(1, None, taints=["a", "zone=x"]), 201)
        who.post("/workers", worker(2, None, taints=["b"]), 201)
        status, body = told_by(who, "POST", "/select", ask(tokens(3), **more))
        assert (status if status != 200 else body["worker_id"]) == chosen, who
        assert len(who.post("/overlap_scores", ask(tokens(3), allowed_worker_ids=[2]))["workers"]) == 2
        assert len(who.post("/potential_loads", ask(tokens(3), allowed_worker_ids=[2]))) == 2


@pytest.mark.parametrize("override", [{"track_prefill_tokens": False}, {"assume_kv_reuse": False}, {"overlap_score_credit": 0.5}])
def test_settings_of_one_request(service, reference, override):
    """Whom two requests with the same prompt are booked for, and how."""
    told = []
    for who in (service, reference):
        who.post("/workers", worker(1, None), 201)
        for name in "ab":
            status, body = told_by(who, "POST", "/select_and_reserve", ask(tokens(3), selection_id=name, router_config_override=override))
            assert status == 200
            told.append((body["track_prefill_tokens"], body["potential_decode_blocks"], loads(who)))
    assert told[:2] == told[2:]


# --- a queue, by classes of a policy file or a threshold alone ---

CLASSES = """
default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: slow, policy_family: standard, cache_bucket: all, quantum: 1, prefill_busy_threshold: 10, request_queue_limit_per_worker: 3}
  - {name: urgent, quantum: 4}
"""


def capable(number, **more):
    return worker(number, None, max_num_batched_tokens=100, **more)


def waiting(who):
    """(requests, their tokens)"""
    group, = who.get("/loads")
    return group["pending_count"], group["pending_isl_tokens"]


def reserve(who, name, path="/select_and_reserve", headers=None, **more):
    return told_by(who, "POST", path, ask(tokens(3), selection_id=name, **more), headers)


def test_requests_wait_for_room_as_in_the_reference(stack):
    """The same steps at both: who waits, is refused, and goes in which order. Each step is over before the next begins."""
    steps_of = []
    for who in on_file(stack, CLASSES):
        said = steps_of.append(seen := []) or seen.append
        said(who.post("/workers", worker(1, None), 201)["lifecycle"])
        said(who.post("/workers", capable(1), 201)["lifecycle"])
        said(reserve(who, "first")[0])
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            waits = {}
            for name, more in (("plain", {}), ("jumps", {"priority_jump": 1e6}),
                               ("strict", {"strict_priority": 1, "pinned_worker": {"worker_id": 1, "dp_rank": 0}})):
                waits[name] = pool.submit(reserve, who, name, **more)
                until(f"{name} waits", lambda: waiting(who) == (len(waits), len(waits) * 12))
            said(reserve(who, "urgent", headers={"x-dynamo-meta-policy-class": "urgent"})[0])
            said(reserve(who, "more"))
            said(told_by(who, "POST", "/select", ask(tokens(3))))
            said(told_by(who, "POST", "/reservations", ask(tokens(3), selection_id="placed", worker_id=1))[0])
            for step in (("POST", "/reservations", ask(tokens(3), selection_id="plain", worker_id=1)), ("DELETE", "/reservations/plain"),
                         ("POST", "/reservations/plain/prefill_complete"), ("POST", "/potential_loads", ask(tokens(3)))):
                said(told_by(who, *step))
            for done in ("placed", "urgent"):
                said(told_by(who, "POST", f"/reservations/{done}/prefill_complete")[0])
            said(loads(who))
            for done, goes in (("first", "strict"), ("strict", "jumps")):
                told_by(who, "POST", f"/reservations/{done}/prefill_complete")
                said(waits.pop(goes).result(30)[0])
                said([waiting(who), loads(who)])
            told_by(who, "DELETE", "/workers/1")
            said(waits.pop("plain").result(30))
            said(who.get("/loads"))
    assert steps_of[0] == steps_of[1]
    assert steps_of[0][:3] == ["incomplete", "schedulable", 200]


def test_a_threshold_makes_requests_wait(stack):
    """Without a file; a choice that is not reserved waits as well, and who leaves waits no more."""
    env = {"DYN_ROUTER_QUEUE_THRESHOLD": "0.1"}
    for who in (serve(stack, "select", **env), start_reference(stack, "1.6.1", **env)):
        assert who.post("/workers", worker(1, None), 201)["lifecycle"] == "incomplete"
        who.post("/workers", capable(1), 201)
        assert reserve(who, "first")[0] == 200
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", who.port)) as leaves:
            leaves.request("POST", "/select", json.dumps(ask(tokens(3))), {"content-type": "application/json"})
            until("it waits", lambda: waiting(who) == (1, 12))
        if who.process.name == "select":
            until("it has left", lambda: waiting(who) == (0, 0))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(reserve, who, "second", "/select")
            until("it waits", lambda: waiting(who)[0] >= 1)
            who.call("DELETE", "/reservations/first")
            assert asked.result(30)[0] == 200


# --- a policy file, which both find by DYN_ROUTER_POLICY_CONFIG alone ---

def on_file(stack, text):
    """Our service and 1.6.1's on that file."""
    path = stack.folder / "policy.yaml"
    path.write_text(text)
    env = {"DYN_ROUTER_POLICY_CONFIG": path}
    return serve(stack, "select", **env), start_reference(stack, "1.6.1", **env)


def test_settings_of_a_file_are_heeded(stack, engines):
    """Without events workers need not publish any, and what was placed counts as cached."""
    both = on_file(stack, "router: {use_kv_events: false, router_ttl_secs: 1000}\n")
    def answers(*step):
        told = []
        for who in both:
            stack.port = who.port
            answer = stack.request(*step)
            told.append([answer.status, without_words(json.loads(answer.body))])
        assert covers(*told), [step, *told]
        return told[0][1]
    assert answers("POST", "/workers", worker(1, None))["lifecycle"] == "schedulable"
    answers("POST", "/select_and_reserve", ask(tokens(3), selection_id="a"))
    row, = answers("POST", "/overlap_scores", ask(tokens(3)))["workers"]
    assert row["device_blocks"] == 3
    answers("POST", "/reservations/a/prefill_complete", None)
    answers("POST", "/workers", worker(2, engines[0]))
    for prompt in (tokens(2), tokens(5), tokens(3)):
        assert answers("POST", "/select", ask(prompt))["worker_id"] == 1
    answers("PATCH", "/workers/2", {"kv_events_endpoint": None})
    answers("GET", "/ready", None)
    answers("GET", "/loads", None)


@pytest.mark.parametrize("parameters, chosen", [
    ("dynamo-default-cost-fn, parameters: {}", 1), ("dynamo-default-cost-fn, parameters: {decode_active_request_weight: 1000}", 2),
    ("dynamo-default-cost-fn, parameters: {overlap_score_credit: 0}", 2), ("dynamo-two-tier-cost-fn, parameters: {}", 1),
    ("dynamo-two-tier-cost-fn, parameters: {balance_abs_threshold: 0, balance_rel_threshold: 1.0}", 2)])
def test_who_chooses_is_said_in_a_file(stack, engines, parameters, chosen):
    """Worker 1 holds the prompt, and has a request more than the other."""
    both = on_file(stack, f"worker_selection:\n  aggregated: mine\n  instances:\n  - {{name: mine, type: {parameters}}}\n")
    told = []
    for number, engine in enumerate(engines, 1):
        for who in both:
            who.post("/workers", worker(number, engine), 201)
            engine.wait_for_subscribers()
    engines[0].stored([101, 102, 103], tokens(3))
    for who in both:
        until("indexed", lambda: max(row["device_blocks"] for row in who.post("/overlap_scores", ask(tokens(3)))["workers"]) == 3)
        who.post("/reservations", ask([9000, *tokens(1)], selection_id="r", worker_id=1), 201)
        who.post("/reservations/r/prefill_complete", {})
        told.append(who.post("/select", ask(tokens(3)))["worker_id"])
    assert told == [chosen] * 2


@pytest.mark.parametrize("text", ["router: {nosuch: 1}\n", "worker_selection: {aggregated: nosuch}\n", "policy_classes: {}\n", "[]\n",
                                  "router: {use_kv_events: 5}\n"])
def test_a_file_that_the_reference_refuses_is_refused(stack, text):
    path = stack.folder / "policy.yaml"
    path.write_text(text)
    for command in ([program("dynamo-router"), "select", "--port", "0"], [reference_python("1.6.1"), "-m", "dynamo.select_service", "--port",
                                                                          str(free_port())]):
        refused = subprocess.run(command, env={"DYN_ROUTER_POLICY_CONFIG": str(path)}, capture_output=True, timeout=60, check=False)
        assert refused.returncode not in (0, None), refused.stderr[-500:]


def test_the_reference_answers_the_same(service, reference, engines):
    for step in steps(engines):
        if step == "publish":
            for who in (service, reference):
                engines[0].wait_for_subscribers()
                engines[1].wait_for_subscribers()
            engines[0].stored([101, 102, 103], tokens(3))
            engines[1].stored([101], tokens(1))
            for who in (service, reference):
                until("indexed", lambda: [row["device_blocks"] for row in sorted(
                    who.post("/overlap_scores", ask(tokens(3)))["workers"],
                    key=lambda row: row["worker_id"])] == [3, 1])
            continue
        answers = []
        for who in (service, reference):
            who.stack.port = who.port
            answer = who.stack.request(*step)
            body = json.loads(answer.body) if answer.body[:1] in (b"{", b"[") else ""
            answers.append([answer.status, without_words(body)])
        assert covers(*answers), json.dumps([step, *answers])
