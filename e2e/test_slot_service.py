# SPDX-License-Identifier: Apache-2.0
"""dynamo-router slots: accounts of requests, and the same answers as the reference's slot tracker."""

import json

import pytest

from conftest import free_port, reference_python
from stack import Stack, until
from test_index_service import REFERENCES, Service, serve


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield stack
        for process in stack.processes:
            if process.name == "slots" and process.alive():
                assert process.stop() == 0
                assert "ERROR" not in process.log()
        stack.port = None


@pytest.fixture
def service(stack):
    return serve(stack, "slots")


def register(number=1, **more):
    return "POST", "/register", {"worker_id": number, "model_name": "m", "block_size": 4, "dp_start": 0, "dp_size": 2,
                                 **more}


def add(name, **more):
    return "POST", "/add", {"model_name": "m", "request_id": name, "worker_id": 1, "dp_rank": 0,
                            "sequence_hashes": [1, -2, 3], **more}


def named(path, name, **more):
    return "POST", path, {"model_name": "m", "request_id": name, **more}


LOADS = ("GET", "/loads", None)
# A whole life, errors among them, and the status of each step.
STEPS = [
    (*LOADS, 200), (*register(), 201), (*register(), 409), (*register(2, block_size=8), 409),
    (*register(3, dp_size=0), 400), ("POST", "/register", {"worker_id": 1}, 422),
    (*register(4, routing_group="g"), 201), ("GET", "/workers", None, 200),
    (*add("a"), 201), (*add("a"), 409), (*add("b", new_isl_tokens=5), 201), (*add("c", dp_rank=1), 201),
    (*add("d", worker_id=9), 404), (*add("d", dp_rank=5), 404), (*add("d", model_name="zz"), 404),
    ("POST", "/add", {"model_name": "m", "request_id": "a", "worker_id": 1, "dp_rank": 0}, 422),
    (*LOADS, 200), ("GET", "/loads?model_name=m&routing_group=g", None, 200),
    ("POST", "/potential_loads", {"model_name": "m", "sequence_hashes": [1, 9]}, 200),
    ("POST", "/potential_loads", {"model_name": "m"}, 422),
    (*named("/prefill_complete", "b"), 200), (*named("/prefill_complete", "zz"), 404),
    (*named("/prefill_complete", "b", model_name="zz"), 404), (*LOADS, 200),
    (*named("/free", "b"), 200), (*named("/free", "b"), 200), (*named("/free", "c", model_name="zz"), 404),
    (*LOADS, 200), ("POST", "/unregister", {"worker_id": 9, "model_name": "m"}, 404),
    ("POST", "/unregister", {"worker_id": 1, "model_name": "m"}, 200), (*named("/free", "a"), 404), (*LOADS, 200),
    ("GET", "/nope", None, 404), ("PUT", "/add", {}, 405), ("POST", "/add", "{bad", 400),
]


def test_a_whole_life(service):
    for method, path, body, status in STEPS:
        service.call(method, path, body, status)


def test_accounts(service):
    service.call(*register(dp_size=1), 201)
    service.call(*add("a", new_isl_tokens=9), 201)
    service.call(*add("b", sequence_hashes=[1, -2, 7], new_isl_tokens=4), 201)
    assert service.get("/loads") == [{"model_name": "m", "routing_group": "default", "worker_id": 1, "dp_rank": 0,
                                      "active_prefill_tokens": 13, "active_decode_blocks": 4}]
    assert service.post("/potential_loads", {"model_name": "m", "sequence_hashes": [1, 9], "new_isl_tokens": 2}) == [
        {"worker_id": 1, "dp_rank": 0, "potential_prefill_tokens": 15, "potential_decode_blocks": 5,
         "active_requests": 2}]
    service.call(*named("/prefill_complete", "a"))
    service.call(*named("/free", "b"))
    row = service.get("/loads")[0]
    assert (row["active_prefill_tokens"], row["active_decode_blocks"]) == (0, 3)


def test_requests_of_a_caller_that_died_expire(stack):
    service = serve(stack, "slots", DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS=1)
    service.call(*register(), 201)
    service.call(*add("a"), 201)
    until("it is dropped", lambda: service.metric("commutator_slots_requests_expired_total") == 1)
    assert service.metric("commutator_slots_requests") == 0


@pytest.mark.parametrize("version", REFERENCES)
def test_the_reference_answers_the_same(stack, service, version):
    python = reference_python(version)
    port = free_port()
    reference = Service(stack, stack.start("reference", [python, "-m", "dynamo.slot_tracker", "--port",
                                                         port]), port)

    def answers():
        try:
            return reference.get("/health") is not None
        except OSError:
            return False
    until("it answers", answers)
    for method, path, body, status in STEPS:
        mine, theirs = (aim(who).stack.request(method, path, body) for who in (service, reference))
        assert mine.status == theirs.status == status, (method, path, body, theirs.status, theirs.body)
        if status == 200 and theirs.body[:1] == b"[":
            mine, theirs = (sorted(json.loads(answer.body), key=place) for answer in (mine, theirs))
            for ours, other in zip(mine, theirs, strict=True):
                assert {key: ours[key] for key in other} == other, (path, body)


def place(row):
    return row.get("routing_group", ""), row["worker_id"], row.get("dp_rank", 0)


def aim(service):
    """Requests of the stack go there now."""
    service.stack.port = service.port
    return service
