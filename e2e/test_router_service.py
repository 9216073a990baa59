# SPDX-License-Identifier: Apache-2.0
"""dynamo-router: routing for other components, selection and index service, on loopback."""

import contextlib
import copy
import json
import re
import socket
import subprocess
import threading

import msgspec
import pytest

import fake_worker
import file_store
import plane_caller
from conftest import program, reference_python
from stack import MODEL, PATIENT, SOON, Stack, decisions_of, until

BLOCK = 16


class RouterStack(Stack):
    """Mockers behind a stand-alone router."""

    def route(self, *flags, **env):
        self.router = self.start("router", [program("dynamo-router"), "route", "--endpoint", "dynamo.backend.generate",
                                            "--block-size", BLOCK, *flags],
                                 **{"DYN_SYSTEM_PORT": 0, "DYN_SYSTEM_HOST": "127.0.0.1", **env})
        told = self.router.wait_log(r"serving\b.*?system_port=(\d+)")
        self.port = int(told.group(1))
        self.generate, self.best = (
            until(f"{endpoint} is registered",
                  lambda: plane_caller.address_of(self.kv, "dynamo", "router", endpoint))[0][1]
            for endpoint in ("generate", "best_worker_id"))

    def ready(self, workers):
        until(f"{workers} workers", lambda: self.metric("commutator_router_workers") == workers)

    def check_nothing_leaked(self):
        if self.router.alive():
            until("no stream is left", lambda: self.metric("dynamo_component_inflight_requests") in (0, None))
            assert self.router.stop() == 0
        if not self.front:
            self.port = None
        super().check_nothing_leaked()


@pytest.fixture
def stack(tmp_path):
    with RouterStack(tmp_path) as stack:
        stack.start_nats()
        stack.mocker(workers=3)
        stack.route()
        stack.ready(3)
        yield stack


@pytest.fixture
def eventless(tmp_path):
    with RouterStack(tmp_path, events=False) as stack:
        stack.mocker(workers=2)
        stack.route("--no-kv-events")
        stack.ready(2)
        yield stack


def prompt(seed, blocks=8):
    return [1000 + (seed * 7919 + i) % 20000 for i in range(blocks * BLOCK)]


def request(tokens, n=3, **more):
    return {"token_ids": tokens, "stop_conditions": {"max_tokens": n}, **more}


def workers_of(stack):
    return {worker for worker, _ in plane_caller.address_of(stack.kv, "dynamo", "backend", "generate")}


def routes(stack):
    """The worker of each decision so far."""
    return [decision.selected["worker"] for decision in decisions_of(stack.router.log()).values()]


# --- route ---

def test_streams_a_worker_s_answer_through(stack):
    answer = plane_caller.call(stack.generate, request(prompt(1), n=5))
    assert [len(item["token_ids"]) for item in answer] == [1] * 5 + [0]  # the end has an item of its own
    assert answer[-1]["finish_reason"] == "length"
    assert answer[-1]["completion_usage"]["prompt_tokens"] == 8 * BLOCK


def test_routes_to_the_worker_that_holds_the_prompt(stack):
    tokens = prompt(2)
    plane_caller.call(stack.generate, request(tokens))
    first = routes(stack)[-1]

    def cached():
        """What the index knows of the prompt, by asking for a worker without sending anything there."""
        plane_caller.call(stack.best, tokens)
        return max(row["cached"] for row in list(decisions_of(stack.router.log()).values())[-1].rows)
    until("the worker's events are indexed", lambda: cached() == 8)
    assert plane_caller.call(stack.best, tokens) == [first]
    for _ in range(5):
        answer = plane_caller.call(stack.generate, request(tokens))
        assert answer[-1]["completion_usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert set(routes(stack)[-5:]) == {first}


def test_best_worker_takes_both_forms_and_books_nothing(eventless):
    bare = plane_caller.call(eventless.best, prompt(3))
    assert bare[0] in workers_of(eventless)
    for _ in range(20):
        answer = plane_caller.call(eventless.best, {"token_ids": prompt(3)})
        assert answer[0] in workers_of(eventless)
    # Twenty selections of the same prompt without a booking: nothing was predicted for anyone either.
    assert all(row["cached"] == 0 and row["decode"] == 8.0
               for decision in decisions_of(eventless.router.log()).values() for row in decision.rows)


def test_without_events_it_predicts_from_where_it_routed(eventless):
    plane_caller.call(eventless.generate, request(prompt(4)))
    plane_caller.call(eventless.generate, request(prompt(4)))
    first, second = decisions_of(eventless.router.log()).values()
    assert first.selected["worker"] == second.selected["worker"] and second.selected["cached"] == 8


def test_starts_as_the_reference_s_graphs_start_it(tmp_path):
    """Flags and variables of a global-planner graph of 1.x; the workers' event channels are of no interest then."""
    with RouterStack(tmp_path) as stack:
        stack.start_nats()
        stack.mocker(workers=2)
        stack.route("--no-router-kv-events", "--router-kv-overlap-score-credit=0", DYN_NAMESPACE="dynamo")
        stack.ready(2)
        assert len(plane_caller.call(stack.generate, request(prompt(9)))) == 3 + 1


def test_a_pinned_request_goes_where_it_says(eventless):
    for worker in workers_of(eventless):
        plane_caller.call(eventless.generate, request(prompt(5), routing={"backend_instance_id": worker}))
        assert routes(eventless)[-1] == worker
    with pytest.raises(plane_caller.PlaneError, match="not there"):
        plane_caller.call(eventless.generate, request(prompt(5), routing={"backend_instance_id": 1}))


@pytest.mark.parametrize("body", [{}, [], "x", {"token_ids": []}, {"token_ids": ["a"]}, [1, 2, 3]])
def test_says_what_is_wrong_with_a_request(eventless, body):
    with pytest.raises(plane_caller.PlaneError):
        plane_caller.call(eventless.generate, body)


def test_what_it_does_not_know_reaches_the_worker(eventless):
    fake = fake_worker.FakeWorker(eventless.kv, fake_worker.ANSWER)
    try:
        eventless.ready(3)
        body = request(prompt(6), extra={"deep": [1, {"x": None}]}, multi_modal_data={"image": "…"},
                       routing={"backend_instance_id": fake.worker_id, "newer": True})
        answer = plane_caller.call(eventless.generate, body)
        assert [item["token_ids"] for item in answer] == [[300], [301], [302]]
        got = fake.bodies[-1]
        assert got["extra"] == body["extra"] and got["multi_modal_data"] == body["multi_modal_data"]
        assert got["routing"] == {**body["routing"], "dp_rank": 0}
        assert got["sampling_options"] == {} and got["model"] == "unknown"
    finally:
        fake.close()


TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1,b=2",
         "x-request-id": "mine", "x-dynamo-request-id": "7b1a7d4e-4a57-4a5e-9d2a-111111111111"}


@pytest.mark.parametrize("said, kept", [
    (TRACE, TRACE), ({}, {}), ({"x-other": "a", "x-request-id": "mine"}, {"x-request-id": "mine"}),
    ({**TRACE, "traceparent": "garbage"}, {name: TRACE[name] for name in ("x-request-id", "x-dynamo-request-id")}),
    ({**TRACE, "x-request-id": "a" * 2000}, {name: value for name, value in TRACE.items() if name != "x-request-id"}),
    ({**TRACE, "x-request-id": 5}, {})])
def test_a_worker_is_told_of_the_caller_s_trace(eventless, said, kept):
    """In 1.6.1 the trace ends at the router, and its worker begins another or has none."""
    fake = fake_worker.FakeWorker(eventless.kv, fake_worker.ANSWER)
    try:
        eventless.ready(3)
        plane_caller.call(eventless.generate, request(prompt(6), routing={"backend_instance_id": fake.worker_id}), said)
        assert {name: value for name, value in fake.headers[-1].items() if name in TRACE} == kept
    finally:
        fake.close()


@pytest.mark.parametrize("behaviour", [fake_worker.REFUSE_CONNECTION, fake_worker.ACK_ERROR, fake_worker.CLOSE_AT_HOME,
                                       fake_worker.BREAK_BEFORE_TOKEN])
def test_another_worker_takes_over_before_the_first_item(eventless, behaviour):
    fake = fake_worker.FakeWorker(eventless.kv, behaviour)
    try:
        eventless.ready(3)
        for seed in range(200):  # until one of them has met the bad one first
            assert len(plane_caller.call(eventless.generate, request(prompt(100 + seed)))) == 3 + 1
            if seed > 5 and eventless.metric("commutator_router_retries_total") > 0:
                break
        else:
            pytest.fail("the bad worker was never tried")
    finally:
        fake.close()


def told_by_theirs(stack, endpoint="get_overlap_scores", version="1.6.1", **env):
    """Where that release's own router tells of the same workers."""
    size = "--block-size" if version == "0.9.0" else "--router-block-size"
    theirs = stack.start("reference-router", [
        reference_python(version), "-m", "dynamo.router", "--endpoint", "dynamo.backend.generate", size, BLOCK],
        DYN_NAMESPACE="dynamo", DYN_DISCOVERY_BACKEND="file", DYN_STORE_KV="file", DYN_REQUEST_PLANE="tcp", DYN_EVENT_PLANE="nats",
        HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1", **env)
    found = lambda: plane_caller.address_of(stack.kv, "dynamo", "router", endpoint)
    ours = dict(found())
    until("their router is registered", lambda: theirs.alive() and set(dict(found())) - set(ours))
    return next(address for router, address in found() if router not in ours)


def test_tells_how_much_each_worker_holds_as_1_6_1_does(tmp_path):
    with RouterStack(tmp_path) as stack:
        stack.start_nats()
        stack.mocker("--publish-as", "endpoint", workers=2)
        stack.route()
        stack.ready(2)
        ours = plane_caller.address_of(stack.kv, "dynamo", "router", "get_overlap_scores")[0][1]
        tokens = prompt(6)
        plane_caller.call(stack.generate, request(tokens))
        theirs = told_by_theirs(stack)

        def scores(address, **more):
            told, = plane_caller.call(address, {"token_ids": tokens + prompt(7, blocks=2) + [5], **more})
            told["workers"].sort(key=lambda row: row["worker_id"])
            return told
        held = lambda told: sorted(row["device_blocks"] for row in told["workers"])
        for address in (ours, theirs):
            until("it knows what is cached", lambda: held(scores(address)) == [0, 8])
        assert scores(ours) == scores(theirs)
        other = [None, None, {"mm_objects": [{"mm_hash": 7, "offsets": [[0, 1]]}]}]
        for more in ({"token_ids": []}, {"lora_name": "a"}, {"cache_namespace": "a"}, {"include_shared": False}, {"router_config_override": None},
                     {"block_mm_infos": other}, {"block_mm_infos": None}, {"block_mm_infos": [None] * 10}):
            assert scores(ours, **more) == scores(theirs, **more), more
        assert held(scores(ours, block_mm_infos=other)) == [0, 2]
        # What is routed by need not be what is computed.
        holder = next(row["worker_id"] for row in scores(ours)["workers"] if row["device_blocks"] == 8)
        for seed in range(40, 43):
            plane_caller.call(stack.generate, request(prompt(seed), mm_routing_info={
                "routing_token_ids": tokens, "block_mm_infos": [], "expanded_prompt_len": len(tokens)}))
        assert routes(stack) == [holder] * 4 and len(workers_of(stack)) == 2


def own_words(address, tokens):
    """What the router says of itself in each item of an answer."""
    return [item.get("routing_data") for item in plane_caller.call(address, request(tokens, n=4))]


def test_says_who_answers_and_how_long_it_took_as_1_6_1_does(tmp_path):
    with RouterStack(tmp_path) as stack:
        stack.start_nats()
        stack.mocker("--publish-as", "endpoint", workers=1)
        stack.route()
        stack.ready(1)
        worker, = workers_of(stack)
        asked = told_by_theirs(stack)
        theirs = asked[:asked.rindex("/")] + "/generate"
        told = [until("it knows the worker", lambda: own_words(address, prompt(4))) for address in (stack.generate, theirs)]
        for first, *middle, last in told:
            assert first == {"worker_id": {"prefill_worker_id": worker, "prefill_dp_rank": 0, "decode_worker_id": worker,
                                           "decode_dp_rank": 0}}
            assert not any(middle)
            times = last["timing"]
            assert times["prefill_wait_time_ms"] + times["prefill_time_ms"] == pytest.approx(times["ttft_ms"])
            assert 0 < times["ttft_ms"] <= times["total_time_ms"]
        ours, theirs = (end["timing"] for *_, end in told)
        assert list(ours) == list(theirs) and all(isinstance(value, (int, float)) for value in ours.values())
        assert ours["request_received_ms"] <= theirs["request_received_ms"]


# --- a worker that is lost after its first item ---

@pytest.mark.parametrize("limit_of", ["flag", "card", "nobody"])
def test_a_worker_killed_in_the_middle(tmp_path, limit_of):
    """kill -9: with a limit the caller sees one whole stream; without one a broken stream, as from the reference's router."""
    with RouterStack(tmp_path, events=False) as stack:
        card = ("--migration-limit", 1) if limit_of == "card" else ()
        slow = stack.mocker(*card, speedup=0.02)  # a minute an answer
        stack.route("--no-kv-events", *(("--migration-limit", 1) if limit_of == "flag" else ()))
        stack.ready(1)
        start = lambda seed: plane_caller.start(stack.generate, request(prompt(seed), n=200))
        homes = [start(seed) for seed in range(3)]
        stack.mocker(*card)
        stack.ready(2)
        homes += [start(seed) for seed in range(3, 6)]
        streams = [plane_caller.items(home) for home in homes]
        heads = [next(stream) for stream in streams]
        slow.kill()
        ends = []
        for head, stream in zip(heads, streams):
            items = [head]
            try:
                items.extend(stream)
            except EOFError:
                items.append(None)
            ends.append(items)
        broken = sum(items[-1] is None for items in ends)
        for items in ends:
            if items[-1]:
                outputs = [item["data"] for item in items]
                assert sum(len(output["token_ids"]) for output in outputs) == 200
                usage = outputs[-1]["completion_usage"]
                assert (usage["prompt_tokens"], usage["completion_tokens"]) == (8 * BLOCK, 200)
                assert [output["finish_reason"] for output in outputs if output.get("finish_reason")] == ["length"]
        moved = stack.metric("commutator_router_migrations_total")
        lost = broken if limit_of == "nobody" else moved
        assert 3 <= lost and broken * moved == 0


@pytest.fixture
def tellers(tmp_path):
    """Two workers whose words depend on their place, behind a router that lets requests move twice."""
    with RouterStack(tmp_path, events=False) as stack:
        mocker = stack.mocker()
        stack.route("--no-kv-events", "--migration-limit", "2", "--migration-max-seq-len", "1000")
        stack.ready(1)
        fakes = [fake_worker.FakeWorker(stack.kv, fake_worker.STORY, worker_id) for worker_id in (0xaaa1, 0xaaa2)]
        try:
            stack.ready(3)
            mocker.stop()
            stack.ready(2)
            yield stack, fakes
        finally:
            for fake in fakes:
                fake.close()


@pytest.mark.parametrize("breaks", [[5], [5, 11], [24]])
def test_what_another_worker_is_asked_for(tellers, breaks):
    stack, fakes = tellers
    tokens = prompt(3)
    whole = plane_caller.call(stack.generate, request(tokens, n=24))
    places = [len(tokens) + said for said in breaks]
    for fake in fakes:
        fake.bodies.clear()
        fake.break_at = places
    answer = plane_caller.call(stack.generate, request(tokens, n=24))
    words = lambda items: [token for item in items for token in item["token_ids"]]
    assert words(answer) == words(whole) and answer[-1]["finish_reason"] == "length"
    asked = sorted((body for fake in fakes for body in fake.bodies), key=lambda body: len(body["token_ids"]))
    said = [0, *breaks] if breaks != [24] else [0]  # only its farewell was missing
    assert [body["token_ids"] for body in asked] == [tokens + words(whole)[:n] for n in said]
    assert [body["stop_conditions"]["max_tokens"] for body in asked] == [24 - n for n in said]
    if breaks != [24]:
        assert answer[-1]["completion_usage"] == whole[-1]["completion_usage"]
    assert stack.metric("commutator_router_migrations_total") == len(said) - 1


@pytest.mark.parametrize("breaks,size,more", [([5, 7, 9], 8, {}), ([5], 70, {}),
                                              ([5], 8, {"sampling_options": {"guided_decoding": {"json": {}}}})],
                         ids=["limit reached", "too long", "grammar"])
def test_what_does_not_move_breaks(tellers, breaks, size, more):
    """As if the worker had been the caller's own."""
    stack, fakes = tellers
    tokens = prompt(4, blocks=size)
    for fake in fakes:
        fake.break_at = [len(tokens) + said for said in breaks]
    if len(breaks) > 1:
        fakes[1].break_at = fakes[0].break_at
    with pytest.raises(EOFError):
        plane_caller.call(stack.generate, request(tokens, n=24, **more))
    assert stack.metric("commutator_router_migrations_total") == len(breaks) - 1


def test_an_error_keeps_its_type(tellers):
    """1.x tells by it whether a request may be sent elsewhere."""
    stack, fakes = tellers
    told = {"event": "error", "comment": ["no"], "error": {"error_type": {"Backend": "InvalidArgument"}, "message": "no"}}
    for fake in fakes:
        fake.behaviour = lambda body: iter(())
        fake.error = told
    home = plane_caller.start(stack.generate, request(prompt(5)))
    assert [item for item in plane_caller.items(home)] == [told]


def test_a_caller_that_leaves_ends_the_worker_s_stream(eventless):
    fake = fake_worker.FakeWorker(eventless.kv, fake_worker.FLOOD)
    try:
        eventless.ready(3)
        home = plane_caller.start(eventless.generate,
                                  request(prompt(7), routing={"backend_instance_id": fake.worker_id}))
        read = plane_caller.items(home)
        assert next(read)["data"]["token_ids"]
        home.shutdown(socket.SHUT_RDWR)
        read.close()
        until("the worker is told to stop", lambda: fake.told == ["kill"])
        until("nothing is under way", lambda: eventless.metric("dynamo_component_inflight_requests") == 0)
    finally:
        fake.close()


def at_router(stack, name):
    """A metric of the router, while a frontend is what the stack asks."""
    router = copy.copy(stack)
    router.port = int(re.search(r"serving\b.*?system_port=(\d+)", stack.router.log()).group(1))
    return router.metric(name)


@contextlib.contextmanager
def behind_a_frontend(stack, *flags):
    """The router's endpoint as a worker of the model "routed": a card of its own makes it one."""
    kv = stack.kv
    card_path = next((kv / "v1/mdc").glob("dynamo%2Fbackend%2Fgenerate%2F*"))
    card = json.loads(card_path.read_text())
    router_id, _ = plane_caller.address_of(kv, "dynamo", "router", "generate")[0]
    card.update(component="router", instance_id=router_id)
    card["card_json"].update(display_name="routed", slug="routed")
    path = kv / "v1/mdc" / f"dynamo%2Frouter%2Fgenerate%2F{router_id:x}"
    path.write_text(json.dumps(card))
    routed = file_store.Living(path)
    router_port = stack.port
    stack.frontend("--router-mode", "round-robin", *flags)
    try:
        until("both models are served", lambda: sorted(stack.models()) == [MODEL, "routed"])
        yield
        until("nothing is under way", lambda: not stack.loads())
        assert stack.front.stop() == 0
    finally:
        routed.close()
        stack.front, stack.port = None, router_port


def test_our_frontend_can_sit_in_front_of_it(eventless):
    with behind_a_frontend(eventless):
        answer = eventless.chat("through two routers", model="routed")
        assert answer.text and len(routes(eventless)) == 1


def test_the_frontend_in_front_of_it_migrates(tmp_path):
    """As in the reference, where the router only breaks off: it is asked again, and knows another worker."""
    with RouterStack(tmp_path, events=False) as stack:
        slow = stack.mocker(speedup=0.02)
        stack.route("--no-kv-events")
        stack.ready(1)
        with behind_a_frontend(stack, "--migration-limit", 1):
            streams = [stack.stream(f"{i}", model="routed", max_tokens=200, ignore_eos=True,
                                    stream_options={"include_usage": True}) for i in range(4)]
            heads = [next(stream.events) for stream in streams]
            stack.mocker()
            until("the router knows another worker", lambda: at_router(stack, "commutator_router_workers") == 2)
            slow.kill()
            for head, stream in zip(heads, streams):
                events = [head, *stream.events]
                assert not any(event for event, _ in events), events
                assert json.loads(events[-2][1])["usage"]["completion_tokens"] == 200
            assert stack.metric("dynamo_frontend_model_migration_total", model="routed", migration_type="ongoing_request") >= 1


def test_requests_wait_for_room(tmp_path):
    pending = "dynamo_component_router_queue_pending_requests"
    with RouterStack(tmp_path, events=False) as stack:
        worker = stack.mocker()
        stack.route("--no-kv-events", "--router-queue-threshold", "0", "--router-queue-limit", "1", **PATIENT)
        stack.ready(1)
        answers = {}

        def ask(seed):
            answers[seed] = plane_caller.call(stack.generate, request(prompt(seed, blocks=24), n=1))
        clients = [threading.Thread(target=ask, args=(seed,)) for seed in range(2)]
        with stack.paused(worker):
            clients[0].start()
            until("it is routed", lambda: len(routes(stack)) == 1)
            clients[1].start()
            until("the other waits", lambda: stack.metric(pending) == 1)
            with pytest.raises(Exception, match="queue is full"):
                ask(2)
        for client in clients:
            client.join()
        assert all(len(answers[seed][0]["token_ids"]) == 1 for seed in range(2)) and len(routes(stack)) == 2
        assert stack.metric(pending) == 0


@pytest.mark.parametrize("plane", ["nats", "zmq"])
def test_shares_what_it_places_with_a_frontend(tmp_path, plane):
    with RouterStack(tmp_path) as stack:
        if plane == "nats":
            stack.start_nats()
        events = {"DYN_EVENT_PLANE": plane, "DYN_KV_EVENTS": "true"}
        stack.mocker(workers=1, **events)
        stack.route("--router-replica-sync", **events)
        stack.ready(1)
        front = copy.copy(stack)
        front.__class__ = Stack
        front.frontend("--router-mode", "kv", "--router-replica-sync", **events)
        front.ready(1)
        until("they know of each other", lambda: front.metric("commutator_router_replica_routers") == 1
              and stack.metric("commutator_router_replica_routers") == 1)
        plane_caller.call(stack.generate, request(prompt(9)))
        until("the frontend has heard of its beginning and its end",
              lambda: front.metric("commutator_router_replica_heard_total", outcome="applied") == 3)
        front.chat("Hello")
        until("and the other way round",
              lambda: stack.metric("commutator_router_replica_heard_total", outcome="applied") == 3)


def told_blocks(folder, *flags):
    """What a router with replica sync calls the blocks of a prompt of eight."""
    folder.mkdir()
    with RouterStack(folder) as stack:
        stack.start_nats()
        stack.mocker(workers=1)
        stack.route("--router-replica-sync", *flags)
        stack.ready(1)
        with socket.create_connection(("127.0.0.1", stack.nats_port)) as link, link.makefile("rb") as lines:
            link.sendall(b'CONNECT {"verbose":false}\r\nSUB *.*.*.*.active_sequences_events 1\r\nPING\r\n')
            while lines.readline() != b"PONG\r\n":
                pass
            plane_caller.call(stack.generate, request(prompt(9)))
            while line := lines.readline():
                if line.startswith(b"MSG "):
                    event = msgspec.msgpack.decode(msgspec.msgpack.decode(lines.read(int(line.split()[-1])))["payload"])
                    if "AddRequest" in event["data"]:  # and not the router's word that it is there
                        return event["data"]["AddRequest"]["token_sequence"]
    raise AssertionError("NATS hung up")


def test_blocks_have_keyed_names(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    keyed = ["--router-tracking-hash", "keyed-xxh3-v1", "--router-tracking-key-id", "1",
             "--router-tracking-key-file", key]
    names = [told_blocks(tmp_path / str(i), *flags) for i, flags in enumerate(([], keyed, keyed))]
    assert [len(set(blocks)) for blocks in names] == [8] * 3
    assert names[1] == names[2] and not set(names[0]) & set(names[1])


def test_decisions_are_remembered_and_recorded(tmp_path):
    recorded = tmp_path / "recorded"
    with RouterStack(tmp_path, events=False) as stack:
        stack.mocker(workers=2)
        stack.route("--no-kv-events", "--record-decisions", recorded, "--router-shadow-policies", "least-loaded")
        stack.ready(2)
        for seed in range(5):
            plane_caller.call(stack.generate, request(prompt(seed)))
        plane_caller.call(stack.best, prompt(1))
        records = [json.loads(line) for line in stack.get("/decisions").body.splitlines()]
        assert [record["outcome"]["ended"] for record in records] == ["finished"] * 5 + ["not-sent"]
        assert all(record["outcome"]["output_tokens"] == 3 and record["outcome"]["ttft_ms"] > 0 for record in records[:5])
        assert [record["chosen"]["worker_id"] for record in records[:5]] == [row for row in routes(stack)][:5]
        assert {shadow["policy"] for record in records for shadow in record["shadows"]} == {"least-loaded"}
        told = stack.get("/explain/" + records[2]["request_id"]).json
        assert [decision["seq"] for decision in told["decisions"]] == [records[2]["seq"]]
        assert stack.get("/explain/none").status == 404
        assert stack.metric("commutator_router_policy_decisions_total", policy="dynamo") == 6
    done = subprocess.run([program("dynamo-bench"), "decisions", "--replay", recorded], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0 and re.search(r"bit for bit +6 ", done.stdout), done.stdout + done.stderr


def test_health_metrics_and_the_end(eventless):
    health = eventless.get("/health")
    assert health.status == 200 and health.json["status"] == "ready" and eventless.get("/live").status == 200
    plane_caller.call(eventless.generate, request(prompt(8)))
    assert eventless.metric("dynamo_component_requests_total", dynamo_component="router") == 1
    eventless.router.terminate()
    until("its records are gone", lambda: not plane_caller.address_of(eventless.kv, "dynamo", "router", "generate"))
    assert eventless.router.end(SOON) == 0


@pytest.mark.parametrize("flags, why", [
    ([], "--endpoint is needed"),
    (["--endpoint", "generate"], "namespace.component.endpoint"),
    (["--endpoint", "a.b.c", "--block-size", "0"], "block-size"),
    (["--endpoint", "a.b.c", "--http-port", "1"], "unknown option"),
    (["--endpoint", "a.b.c", "--router-approximate-cache-policy", "lru"], "goes without events"),
    (["--endpoint", "a.b.c", "--router-tracking-hash", "keyed-xxh3-v1"], "needs --router-tracking-key-file"),
])
def test_bad_options_are_named(tmp_path, flags, why):
    with Stack(tmp_path, events=False) as stack:
        process = stack.start("router", [program("dynamo-router"), "route", *flags])
        assert process.end() == 1 and why in process.log()
