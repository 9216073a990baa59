# SPDX-License-Identifier: Apache-2.0
"""dynamo-router index: answers, recovery and errors, and the same answers as the reference's indexer."""

import json
import re
import random

import pytest

from conftest import free_port, program, reference_python, run
from engine_publisher import Engine
from stack import Stack, parse_metrics, until

BLOCK = 4
REFERENCES = ("1.6.1",)


class Service:
    """One HTTP service of ours or of the reference."""

    def __init__(self, stack, process, port):
        self.stack, self.process, self.port = stack, process, port

    def call(self, method, path, body=None, status=200):
        """The answer's JSON; a body that is no text is sent as JSON."""
        self.stack.port = self.port
        answer = self.stack.request(method, path, body)
        assert answer.status == status, (method, path, body, answer.status, answer.body)
        return json.loads(answer.body) if answer.body[:1] in (b"{", b"[") else answer.body.decode()

    def get(self, path, status=200):
        return self.call("GET", path, status=status)

    def post(self, path, body, status=200):
        return self.call("POST", path, body, status)

    def metric(self, name, **labels):
        want = set(labels.items())
        return sum(value for (series, have), value in parse_metrics(self.get("/metrics")).items()
                   if series == name and want <= set(have))

    def register(self, worker, engine, model="m", **more):
        body = {"instance_id": worker, "endpoint": engine.endpoint, "model_name": model, "block_size": BLOCK, **more}
        if engine.replay_endpoint:
            body["replay_endpoint"] = engine.replay_endpoint
        assert self.post("/register", body, 201) == {"status": "ok"}
        engine.wait_for_subscribers()

    def scores(self, tokens, model="m", **more):
        return self.post("/query", {"token_ids": tokens, "model_name": model, **more})["scores"]


def serve(stack, command, *flags, **env):
    process = stack.start(command, [program("dynamo-router"), command, "--host", "127.0.0.1", "--port", 0, *flags],
                          **env)
    return Service(stack, process, int(process.wait_log(r"serving\b.*?\bport=(\d+)").group(1)))


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield stack
        for process in stack.processes:
            if process.name in ("index", "select") and process.alive():
                assert process.stop() == 0
                assert "ERROR" not in process.log()
        stack.port = None


@pytest.fixture
def service(stack):
    return serve(stack, "index")


@pytest.fixture
def engines():
    with Engine() as one, Engine() as two:
        yield one, two


def tokens(blocks, start=0):
    return list(range(start, start + blocks * BLOCK))


def test_tells_who_holds_how_much(service, engines):
    one, two = engines
    service.register(1, one)
    service.register(2, two)
    one.stored([101, 102, 103], tokens(3))
    two.stored([-5], tokens(1))  # engines call blocks what they like
    until("both are indexed", lambda: service.scores(tokens(4)) == {"1": {"0": 12}, "2": {"0": 4}})
    answer = service.post("/query", {"token_ids": tokens(2) + [99], "model_name": "m"})
    assert answer == {"scores": {"1": {"0": 8}, "2": {"0": 4}}, "frequencies": [], "instances": {
        "1": {"longest_matched": 8, "gpu": 8, "dp": {"0": 8}, "cpu": 8, "disk": 8},
        "2": {"longest_matched": 4, "gpu": 4, "dp": {"0": 4}, "cpu": 4, "disk": 4}}}
    assert service.scores(tokens(4), lora_name="a") == {} and service.scores(tokens(4), cache_salt="a") == {}

    one.removed([103])
    until("the block is gone", lambda: service.scores(tokens(4))["1"] == {"0": 8})
    one.cleared()
    until("all are gone", lambda: service.scores(tokens(4)) == {"2": {"0": 4}})
    assert service.metric("dynamo_kvrouter_kv_cache_events_applied", event_type="stored", status="ok") == 2


def test_local_hashes_do_as_well_as_tokens(service, engines):
    service.register(1, engines[0])
    engines[0].stored([7], tokens(1))
    until("it is indexed", lambda: service.scores(tokens(1)))
    # XXH3 of tokens 0..3 with seed 1337 (router.md 1.9), unsigned and as signed languages print it.
    for block in (9143094415614847814, 9143094415614847814 - 2**64 if 9143094415614847814 >= 2**63 else
                  9143094415614847814):
        answer = service.post("/query_by_hash", {"block_hashes": [block], "model_name": "m"})
        assert answer["scores"] == {"1": {"0": 4}}
    service.post("/query_by_hash", {"block_hashes": [1], "model_name": "m", "cache_salt": "x"}, 400)


def test_ranks_models_and_groups_are_apart(service, engines):
    one, two = engines
    service.register(1, one, routing_group="a")
    service.register(1, two, routing_group="b", dp_rank=2)
    one.stored([1], tokens(1))
    two.stored([1, 2], tokens(2))
    two.stored([9], tokens(1, 400), rank=5)  # what a batch says of its rank wins
    until("group b", lambda: service.scores(tokens(2), routing_group="b") == {"1": {"2": 8}})
    until("group a", lambda: service.scores(tokens(2), routing_group="a") == {"1": {"0": 4}})
    until("the other rank of it", lambda: service.scores(tokens(1, 400), routing_group="b") == {"1": {"5": 4}})
    service.post("/query", {"token_ids": tokens(1), "model_name": "m"}, 404)
    workers = service.get("/workers?model_name=m&routing_group=b")
    assert [(w["instance_id"], w["endpoints"]) for w in workers] == [(1, {"2": two.endpoint})]
    assert workers[0]["listeners"]["2"]["status"] == "active" and workers[0]["block_size"] == BLOCK
    assert len(service.get("/workers")) == 2 and service.get("/workers?model_name=x") == []

    service.post("/unregister", {"instance_id": 1, "model_name": "m", "routing_group": "b", "dp_rank": 7}, 404)
    service.post("/unregister", {"instance_id": 1, "model_name": "m", "routing_group": "b", "dp_rank": 2})
    service.post("/query", {"token_ids": tokens(1), "model_name": "m", "routing_group": "b"}, 404)
    assert service.scores(tokens(1), routing_group="a") == {"1": {"0": 4}}


@pytest.mark.parametrize("old", [False, True])
def test_what_was_missed_is_replayed(service, old):
    with Engine(replay=True, old=old) as engine:
        engine.stored([1], tokens(1))  # before anybody listened
        service.register(1, engine)
        until("what was before", lambda: service.scores(tokens(9)) == {"1": {"0": 4}})
        engine.stored([2], tokens(1, 4), parent=1, lost=True)
        engine.stored([3], tokens(1, 8), parent=2, lost=True)
        engine.stored([4], tokens(1, 12), parent=3)
        until("the gap is filled, in order", lambda: service.scores(tokens(9)) == {"1": {"0": 16}})
        assert len(engine.replays) == 2  # at the start, and for the gap
    assert service.metric("dynamo_kvrouter_kv_cache_events_applied", status="parent_block_not_found") == 0


def test_a_gap_without_replay_is_told_and_survived(service, engines):
    service.register(1, engines[0])
    engines[0].stored([1], tokens(1))
    engines[0].stored([2], tokens(1, 4), parent=1, lost=True)
    engines[0].stored([3], tokens(1, 8), parent=2)
    service.process.wait_log("events are missing")
    until("the orphan is counted", lambda: service.metric("dynamo_kvrouter_kv_cache_events_applied",
                                                          status="parent_block_not_found") == 1)
    assert service.scores(tokens(3)) == {"1": {"0": 4}}


def test_an_engine_that_restarts_holds_nothing(service):
    where = f"tcp://127.0.0.1:{free_port()}"  # nothing else is to take it between the two
    with Engine(endpoint=where) as engine:
        service.register(1, engine)
        engine.stored([1, 2], tokens(2))
        engine.stored([3], tokens(1, 100))
        until("both", lambda: service.scores(tokens(2)) and service.scores(tokens(1, 100)))
    with Engine(endpoint=where) as engine:
        engine.wait_for_subscribers()
        engine.stored([9], tokens(1, 200))
        until("the new block", lambda: service.scores(tokens(1, 200)) == {"1": {"0": 4}})
        assert service.scores(tokens(2)) == {} and service.scores(tokens(1, 100)) == {}


def test_a_new_service_learns_from_a_peer(stack, service, engines):
    service.register(1, engines[0])
    engines[0].stored([1, 2], tokens(2))
    engines[0].stored([3], tokens(1, 40), parent=1, rank=3)
    engines[0].stored([4], tokens(1, 40), parent=2)
    until("all of it is indexed", lambda: service.scores(tokens(2) + tokens(1, 40)) == {"1": {"0": 12}})
    dead = free_port()  # where nobody listens
    other = serve(stack, "index", "--peers", f"http://127.0.0.1:{dead},http://127.0.0.1:{service.port}/")
    assert other.get("/peers") == [f"http://127.0.0.1:{dead}", f"http://127.0.0.1:{service.port}"]
    until("the dump is applied", lambda: other.get("/dump") != {})
    assert other.scores(tokens(2)) == {"1": {"0": 8}} == service.scores(tokens(2))
    assert other.scores(tokens(2) + tokens(1, 40)) == {"1": {"0": 12}}
    assert json.dumps(other.get("/dump")) == json.dumps(service.get("/dump"))
    other.post("/register_peer", {"url": "http://127.0.0.1:1"}, 201)
    other.post("/register_peer", {"url": "ftp://x"}, 400)
    other.post("/deregister_peer", {"url": "http://127.0.0.1:1"})
    other.post("/deregister_peer", {"url": "http://127.0.0.1:1"}, 404)


def test_workers_from_the_command_line(stack, engines):
    one, two = engines
    service = serve(stack, "index", "--block-size", BLOCK, "--workers", f"1={one.endpoint},2:3={two.endpoint}")
    one.wait_for_subscribers()
    two.wait_for_subscribers()
    two.stored([1], tokens(1))
    until("it is indexed", lambda: service.scores(tokens(1), model="default") == {"2": {"3": 4}})
    assert service.metric("dynamo_kvindexer_workers") == 2 and service.metric("dynamo_kvindexer_models") == 1
    assert service.metric("dynamo_kvindexer_listeners", status="active") == 2


@pytest.mark.parametrize("flags, why", [
    (["--workers", "1=tcp://127.0.0.1:1"], "needs --block-size"),
    (["--block-size", "4", "--workers", "x=tcp://127.0.0.1:1"], "'x=tcp://127.0.0.1:1' is not"),
    (["--block-size", "4", "--workers", "1=nonsense"], "missing scheme"),
    (["--peers", "nonsense"], "no http:// URL"),
])
def test_bad_options_are_named(stack, flags, why):
    process = stack.start("bad", [program("dynamo-router"), "index", "--port", 0, *flags])
    assert process.end() == 1 and why in process.log()


REGISTER = {"instance_id": 7, "endpoint": "tcp://127.0.0.1:1", "model_name": "m", "block_size": BLOCK}
# (method, path, body, status): what the reference answers, in this order.
ERRORS = [
    ("POST", "/query", {"token_ids": [1], "model_name": "m"}, 404),
    ("POST", "/query", {"token_ids": "x"}, 422),
    ("POST", "/query", "{bad", 400),
    ("POST", "/register", REGISTER, 201),
    ("POST", "/register", REGISTER, 409),
    ("POST", "/register", {**REGISTER, "instance_id": 8, "block_size": 8}, 409),
    ("POST", "/register", {**REGISTER, "instance_id": 8, "endpoint": "bad"}, 400),
    ("POST", "/register", {"instance_id": 9, "endpoint": "tcp://127.0.0.1:1", "model_name": "m"}, 422),
    ("POST", "/register", {**REGISTER, "additional_salt": 5}, 422),
    ("POST", "/query", {"token_ids": [], "model_name": "m"}, 200),
    ("POST", "/query", {"token_ids": [1, 2, 3, 4], "model_name": "m"}, 200),
    ("POST", "/query_by_hash", {"block_hashes": [-1], "model_name": "m"}, 200),
    ("POST", "/query_by_hash", {"block_hashes": [1], "model_name": "m", "cache_salt": "a"}, 400),
    ("POST", "/unregister", {"instance_id": 99, "model_name": "m"}, 404),
    ("POST", "/unregister", {"instance_id": 7, "model_name": "m"}, 200),
    ("POST", "/unregister", {"instance_id": 7, "model_name": "m"}, 404),
    ("POST", "/register_peer", {"peer": "http://127.0.0.1:1"}, 422),
    ("POST", "/register_peer", {"url": "http://127.0.0.1:1"}, 201),
    ("POST", "/deregister_peer", {"url": "http://127.0.0.1:1"}, 200),
    ("POST", "/deregister_peer", {"url": "http://127.0.0.1:1"}, 404),
    ("POST", "/reopen_logs", None, 200),
    ("GET", "/health", None, 200),
    ("GET", "/nope", None, 404),
    ("PUT", "/query", {}, 405),
]


def test_statuses(service):
    for method, path, body, status in ERRORS:
        service.call(method, path, body, status)
    service.call("POST", "/query", json.dumps({"token_ids": [1] * 3_000_000, "model_name": "m"}), 413)
    assert service.metric("dynamo_kvindexer_errors_total", endpoint="/register", status_class="4xx") == 5
    assert service.metric("dynamo_kvindexer_requests_total", endpoint="/query", method="POST") == 5


# --- against the reference ---

@pytest.fixture
def start_reference(stack):
    def start(version, **env):
        python = reference_python(version)
        port = free_port()
        process = stack.start("reference", [python, "-m", "dynamo.indexer", "--port", port], **env)
        process.wait_log("HTTP server listening")
        return Service(stack, process, port)
    return start


@pytest.fixture(params=REFERENCES)
def reference(start_reference, request):
    return start_reference(request.param)


def test_the_reference_answers_with_the_same_statuses(reference):
    for method, path, body, status in ERRORS:
        reference.stack.port = reference.port
        answer = reference.stack.request(method, path, body)
        assert answer.status == status, (method, path, body, answer.status, answer.body)


def ask(who, what, status, **body):
    answer = who.call("POST", f"/test/{what}_listener", body, status)
    return answer if status == 200 else answer["error"]


def test_listeners_pause(stack, start_reference):
    """What an engine says in a pause is not heard, and had afterwards where it can be asked for."""
    both = serve(stack, "index", DYN_KV_INDEXER_TEST_ENDPOINTS="1"), start_reference("1.6.1", DYN_KV_INDEXER_TEST_ENDPOINTS="1")
    told = [], []
    with Engine(replay=True) as one, Engine() as two:
        for worker, engine in enumerate((one, two)):
            for who in both:
                who.register(worker, engine)
            engine.stored([1], tokens(1))
        for who, said in zip(both, told):
            until("both are indexed", lambda: who.scores(tokens(9)) == {"0": {"0": 4}, "1": {"0": 4}})
            said += [ask(who, "pause", 200, instance_id=0), ask(who, "pause", 200, instance_id=1, dp_rank=0),
                     ask(who, "pause", 409, instance_id=1, model_name="another"), ask(who, "pause", 404, instance_id=9),
                     ask(who, "resume", 404, instance_id=1, dp_rank=3), who.metric("dynamo_kvindexer_listeners", status="paused"),
                     sorted((w["instance_id"], w["status"], w["listeners"]["0"]["status"]) for w in who.get("/workers"))]
            who.post("/test/resume_listener", {}, 422)
        for engine in (one, two):
            engine.wait_until_alone()
            engine.stored([2], tokens(1, 4), parent=1)
        for who, said in zip(both, told):
            for worker in (0, 1):
                ask(who, "resume", 200, instance_id=worker)
            until("they are active", lambda: {w["status"] for w in who.get("/workers")} == {"active"})
            said.append(ask(who, "resume", 409, instance_id=1))
        for engine in (one, two):
            engine.wait_for_subscribers(2)
            engine.stored([3], tokens(1, 8), parent=2)
            engine.stored([9], tokens(1, 900))
        for who, said in zip(both, told):
            until("what came last", lambda: len(who.scores(tokens(1, 900))) == 2)
            said.append(who.scores(tokens(9))["0"])
    assert told[0] == told[1] and told[0][-1] == {"0": 12}
    assert both[0].scores(tokens(9))["1"] == {"0": 4}


def test_listeners_pause_for_tests_alone(service):
    service.call("POST", "/test/pause_listener", {"instance_id": 1}, 404)


def test_the_reference_scores_the_same(service, reference):
    """Three engines with shared prefixes, hashes of content as real engines have them, random events."""
    rng = random.Random(20)
    with Engine() as one, Engine() as two, Engine() as three:
        engines = (one, two, three)
        for worker, engine in enumerate(engines):
            for who in (service, reference):
                who.register(worker, engine)
        prompts = [tokens(4, 1000 * rng.randrange(4)) + tokens(8, 10_000 * n) for n in range(12)]
        held = [set() for _ in engines]
        for _ in range(300):
            n, prompt = rng.randrange(3), rng.choice(prompts)
            names = [hash(tuple(prompt[:end])) for end in range(BLOCK, len(prompt) + 1, BLOCK)]
            have = next((i for i, name in enumerate(names) if name not in held[n]), len(names))
            if rng.random() < 0.7 and have < len(names):
                upto = rng.randrange(have + 1, len(names) + 1)
                engines[n].stored(names[have:upto], prompt[have * BLOCK:upto * BLOCK],
                                  parent=names[have - 1] if have else None)
                held[n] |= set(names[have:upto])
            elif have > 4:  # from the end, as engines evict; the shared start stays
                engines[n].removed([names[have - 1]])
                held[n].remove(names[have - 1])
        marker = tokens(1, 900_000)
        for engine in engines:
            engine.stored([424242], marker)
        for who in (service, reference):
            until("all events are applied", lambda: len(who.scores(marker)) == 3)
        for prompt in prompts:
            mine, theirs = (who.post("/query", {"token_ids": prompt, "model_name": "m"}) for who in
                            (service, reference))
            assert mine["instances"] == theirs["instances"], prompt[:8]
            assert mine["scores"] == theirs["scores"]
        # Its dump is read by ours: the peers of a mixed fleet.
        other = Service(service.stack, *_peer_of(service.stack, reference))
        until("its dump is applied", lambda: other.get("/dump") != {})
        for prompt in prompts:
            assert other.scores(prompt) == service.scores(prompt)


LOWER_TIERS = ("CPU", "CPU", "CPU", "DISK", "DISK", "EXTERNAL")
SHARED = 3


# What of an event says a salt: SGLang 0.5.23, vLLM under ai-dynamo, vLLM 0.32; and whether it is taken for one.
SALTS = [({"cache_salt": "a"}, True), ({"extra_keys": [["dynamo-cache-salt:a"], None]}, True), ({"extra_keys": [["a"], None]}, False)]


def tell_kinds(engine, both, kinds, blocks=2):
    """Both hear of the engine, and of the first two blocks of a prompt of each kind."""
    for who in both:
        who.register(1, engine)
    for number, (how, _) in enumerate(kinds):
        engine.salted([10 * number + 1, 10 * number + 2], tokens(blocks, 1000 * number)[:2 * BLOCK], **how)


def all_is_applied(engine, both):
    engine.stored([99], tokens(1, 9000))
    for who in both:
        until("all is applied", lambda: who.scores(tokens(1, 9000)))


def expect_salted(who, blocks):
    for number, (_, salted) in enumerate(SALTS):
        plain, with_salt = (who.scores(tokens(blocks, 1000 * number), **salt) for salt in ({}, {"cache_salt": "a"}))
        assert (with_salt if salted else plain) == {"1": {"0": blocks * BLOCK}} and not (plain if salted else with_salt)


def test_salts_of_events(service, reference):
    """Blocks of salted prompts are found with that salt alone, as by the reference."""
    with Engine() as engine:
        tell_kinds(engine, (service, reference), SALTS)
        all_is_applied(engine, (service, reference))
        for who in (service, reference):
            expect_salted(who, 2)


def test_salts_are_inherited(service, reference):
    """By blocks that are told later, as by the reference: vLLM names a prompt's salt with its first block alone."""
    with Engine() as engine:
        tell_kinds(engine, (service, reference), SALTS, blocks=6)
        for number in range(len(SALTS)):
            first, prompt = 10 * number + 1, tokens(6, 1000 * number)
            for at in (2, 4):
                engine.stored([first + at, first + at + 1], prompt[at * BLOCK:(at + 2) * BLOCK], parent=first + at - 1)
        all_is_applied(engine, (service, reference))
        for who in (service, reference):
            expect_salted(who, 6)


INFOS = [None, {"mm_objects": [{"mm_hash": 255, "offsets": [[1, 3]]}]}]
OTHER, NAME = "00000000000000ff" + "ab" * 24, "00000000000000ff" + "0" * 48
# What of an event names images in its two blocks: ai-dynamo's own publishers by infos, vLLM by keys, of which 1.6.1's indexer
# takes those for images that have the form of ai-dynamo's names; and the images that it has then.
MEDIA = [({"block_mm_infos": INFOS}, INFOS), ({"extra_keys": [[NAME], None], "block_mm_infos": INFOS}, INFOS),
         *(({"extra_keys": [None, [*key]], **more}, want) for key, more, want in (
             ([[OTHER, 1]], {}, None), ([OTHER], {}, None), ([NAME + "0"], {}, None), ([NAME[:-1]], {}, None), ([NAME[:16]], {}, None),
             ([NAME], {}, INFOS), ([[NAME, 1]], {}, INFOS), ([[NAME, -1]], {}, INFOS), ([NAME.upper()], {}, INFOS), ([OTHER, NAME], {}, INFOS),
             ([NAME], {"block_mm_infos": None}, INFOS), ([NAME], {"block_mm_infos": []}, None), ([[NAME, 1]], {"block_mm_infos": [None, None]}, None))),
         ({"extra_keys": [[NAME], None]}, INFOS[::-1]), ({"extra_keys": [["salt", [NAME, 1]], [[NAME, 2]]]}, [INFOS[1]] * 2)]


def hashes_by_reference(version, asked):
    """What its wheel calls the blocks of prompts with media."""
    name = "compute_block_hash_for_seq" + ("_py" if version.startswith("0.") else "")
    code = f"import json,sys;from dynamo.llm import {name} as f;a=json.load(sys.stdin);print(json.dumps([f(i,{BLOCK},m) for i,m in a]))"
    return json.loads(run(reference_python(version), "-c", code, input=json.dumps(asked)).stdout.splitlines()[-1])


def as_i64(hashes):
    """As /query_by_hash of 1.6.1 wants them."""
    return [h - 2**64 if h >= 2**63 else h for h in hashes]


def test_images_of_events(service, reference):
    """Blocks with equal tokens of different images are different ones, by the names that the wheels give them."""
    with Engine() as engine:
        tell_kinds(engine, (service, reference), MEDIA)
        all_is_applied(engine, (service, reference))
        asked = [[tokens(2, 1000 * number), want] for number, (_, want) in enumerate(MEDIA)]
        names = hashes_by_reference("1.6.1", asked)
        assert names == hashes_by_reference("0.9.0", asked)
        for (ids, want), hashes in zip(asked, names):
            signed = as_i64(hashes)
            plain = 2 if not want else 1 if not want[0] else 0  # blocks that have no image before them
            for who in (service, reference):
                by_hash = who.post("/query_by_hash", {"block_hashes": signed, "model_name": "m"})["scores"]
                assert by_hash == {"1": {"0": 2 * BLOCK}}, want
                assert who.scores(ids) == ({"1": {"0": plain * BLOCK}} if plain else {})


GROUP = (0, "full_attention", None)
# Behind the keys of an event that is an array: vLLM's group, ai-dynamo's infos before it; what the event's images then are, and
# whether it is of blocks that are looked up.
TAILS = [((), INFOS, True), ((None,), INFOS, True), (GROUP, INFOS, True), ((None, *GROUP), INFOS, True), (([None, None], *GROUP), None, True),
         ((INFOS[::-1], *GROUP), INFOS[::-1], True), ((1, "sliding_window", 128), None, False), ((None, 1, "sliding_window", 128), None, False)]


def test_arrays_of_events(service, reference):
    """As vLLM writes them, and as ai-dynamo does."""
    asked = [[tokens(2, 1000 * number), want] for number, (_, want, _) in enumerate(TAILS)]
    with Engine() as engine:
        for who in (service, reference):
            who.register(1, engine)
        for number, (tail, _, _) in enumerate(TAILS):
            engine.publish(["BlockStored", [10 * number + 1, 10 * number + 2], None, asked[number][0], BLOCK, None, "GPU", None,
                            [None, [[NAME, 1]]], *tail])
        all_is_applied(engine, (service, reference))
        for (tail, _, held), hashes in zip(TAILS, hashes_by_reference("1.6.1", asked)):
            signed = as_i64(hashes)
            for who in (service, reference):
                by_hash = who.post("/query_by_hash", {"block_hashes": signed, "model_name": "m"})["scores"]
                assert by_hash == ({"1": {"0": 2 * BLOCK}} if held else {}), tail


def test_the_reference_finds_the_same_on_slower_tiers(service, reference):
    """Blocks come to and leave slower tiers in any order, parents unknown included, and the device as engines do it;
    after each few events all prompts are asked. Now and then a rank is cleared."""
    rng = random.Random(7)
    prompts = [tokens(SHARED, 1000) + tokens(5, 10_000 * (n + 1)) for n in range(4)]
    chains = [[hash(tuple(prompt[:end])) for end in range(BLOCK, len(prompt) + 1, BLOCK)] for prompt in prompts]
    markers = iter(range(1_000_000, 9_000_000, 2 * BLOCK))

    def settled(engines, ranks):
        """Tiers may be served one beside the other: each has a marker, behind one on the device."""
        marked = []
        for medium in sorted(set(LOWER_TIERS)):
            for rank in ranks:
                marker = tokens(2, next(markers))
                for engine in engines:
                    engine.stored([marker[0]], marker[:BLOCK], rank=rank)
                    engine.stored([marker[BLOCK]], marker[BLOCK:], parent=marker[0], medium=medium, rank=rank)
                marked.append(marker)
        matched = lambda who, marker: [found["longest_matched"] for found in who.post(
            "/query", {"token_ids": marker, "model_name": "m"})["instances"].values()]
        for who in (service, reference):
            for marker in marked:
                until("all events are applied", lambda: matched(who, marker) == [2 * BLOCK] * len(engines))

    with Engine() as one, Engine() as two:
        engines = (one, two)
        for worker, engine in enumerate(engines):
            for who in (service, reference):
                who.register(worker, engine)
        lower, held = 0, {}  # held: (engine, rank) -> blocks on its device

        def step():
            n, rank, chain = rng.randrange(2), rng.randrange(2), rng.randrange(4)
            names, prompt, device = chains[chain], prompts[chain], held.setdefault((n, rank), set())
            have = next((i for i, name in enumerate(names) if name not in device), len(names))
            stores, medium = rng.random() < 0.7, rng.choice(LOWER_TIERS)
            first = rng.choice((0, 0, have, rng.randrange(len(names)))) % len(names)
            if rng.random() < 0.3:  # on the device a chain grows and shrinks at its end, and the shared start stays
                medium, first = "GPU", have if stores else max(have - 1, 0)
                if first == len(names) or not stores and first < SHARED:
                    return
            last = rng.randrange(first, len(names)) + 1
            if rng.random() < 0.01:
                engines[n].cleared(rank=rank)
                device.clear()
            elif stores:
                engines[n].stored(names[first:last], prompt[first * BLOCK:last * BLOCK],
                                  parent=names[first - 1] if first else None, medium=medium, rank=rank)
                device.update(names[first:last] if medium == "GPU" else ())
            else:
                gone = names[first:first + 1] if medium == "GPU" else names[first:last]
                engines[n].removed(gone, medium=medium, rank=rank)
                device.difference_update(gone if medium == "GPU" else ())

        for _ in range(40):
            for _ in range(12):
                step()
            settled(engines, (0, 1))
            for prompt in prompts:
                mine, theirs = (who.post("/query", {"token_ids": prompt, "model_name": "m"}) for who in
                                (service, reference))
                assert mine == theirs, prompt[:8]
                lower += any(found["disk"] > found["gpu"] for found in mine["instances"].values())
        assert lower > 80
        # Its dump is read by ours, ours by ours: slower tiers as well.
        for peer in (reference, service):
            other = Service(service.stack, *_peer_of(service.stack, peer))
            until("the dump is applied", lambda: other.get("/dump") != {})
            for prompt in prompts:
                assert other.post("/query", {"token_ids": prompt, "model_name": "m"}) == service.post(
                    "/query", {"token_ids": prompt, "model_name": "m"})


def _peer_of(stack, reference):
    started = serve(stack, "index", "--peers", f"http://127.0.0.1:{reference.port}")
    return started.process, started.port


# --- the access log ---

def lines(path):
    """Those that are whole: the last one may be being written, and the file may not be there yet."""
    return [json.loads(line) for line in (path.read_text() if path.exists() else "").splitlines(keepends=True) if line.endswith("\n")]


def test_the_access_log_is_that_of_the_reference(stack, engines):
    logs = {name: stack.folder / name for name in ("ours", "theirs")}
    flags = lambda name: ["--trace-id-header", "X-My-Trace", "--access-log", logs[name]]
    port = free_port()
    theirs = stack.start("reference", [reference_python("1.6.1"), "-m", "dynamo.indexer", "--port", port,
                                       *flags("theirs")])
    theirs.wait_log("HTTP server listening")
    services = {"ours": serve(stack, "index", *flags("ours")), "theirs": Service(stack, theirs, port)}
    steps = [("POST", "/query?x=1", {"token_ids": [1], "model_name": "m"}, {"X-My-Trace": "abc"}),
             ("POST", "/register", {"instance_id": 1, "endpoint": engines[0].endpoint, "model_name": "m",
                                    "block_size": BLOCK}, {}),
             ("POST", "/query", {"token_ids": [1], "model_name": "m"}, {}), ("POST", "/query", "{bad", {}),
             ("PUT", "/query", {}, {}), ("GET", "/workers", None, {}), ("GET", "/nope", None, {}),
             ("GET", "/metrics", None, {}), ("POST", "/query_by_hash", {"block_hashes": [1], "model_name": "m"}, {}),
             ("POST", "/unregister", {"instance_id": 9, "model_name": "m"}, {})]
    rows = {}
    for name, service in services.items():
        for step in steps:
            stack.port = service.port
            stack.request(*step)
        until("all is written", lambda: [row["path"] for row in lines(logs[name])][-1:] == ["/unregister"])
        rows[name] = [{key: value for key, value in row.items() if key not in ("ts", "duration_ms")}
                      for row in lines(logs[name]) if row["path"] != "/health"]
        assert all(row["duration_ms"] > 0 and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z", row["ts"])
                   for row in lines(logs[name]))
    assert rows["ours"] == rows["theirs"] and len(rows["ours"]) == 8
    for name, service in services.items():
        logs[name].rename(stack.folder / "old")
        assert service.post("/reopen_logs", None) == {"status": "ok"}
        service.get("/workers")
        until("it is written anew", lambda: [row["path"] for row in lines(logs[name])][-1:] == ["/workers"])
        logs[name].unlink()
        logs[name].mkdir()
        service.post("/reopen_logs", None, 500)
    assert services["ours"].metric("commutator_index_access_log_lost_total") == 0
