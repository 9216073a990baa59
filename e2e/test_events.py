# SPDX-License-Identifier: Apache-2.0
"""KV events over every transport: ZeroMQ, direct and by a broker, and JetStream; between our own programs and with
the unmodified ones of ai-dynamo 0.9.0 and a newer 1.x."""

import re
import socket
import time

import msgspec
import pytest

import fake_worker
import file_store
from conftest import free_port, program, reference_python
from fake_worker import FakeWorker
from stack import COMPLETIONS, MODEL, MODEL_PATH, ROUTED_LOG, Stack, decision_for, until
from test_interop import request

BLOCKS = 20


@pytest.fixture(scope="session")
def reference():
    return reference_python("0.9.0")


@pytest.fixture(scope="session")
def newer():
    return reference_python("1.6.1")


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        (tmp_path / MODEL).symlink_to(MODEL_PATH)
        yield stack


def learns(stack):
    """A prompt's blocks reach the index, and the same prompt finds them. What was stored before we were connected is
    not told again by workers whose recovery we do not speak, so prompts go on until one is heard."""
    ask = lambda prompt: decision_for(stack, stack.request("POST", COMPLETIONS, stack.body(prompt, COMPLETIONS))).selected
    prompts = iter(range(1000, 100000, 320))
    # A worker of theirs registers a moment before its engine is there.
    until("it answers", lambda: stack.request("POST", COMPLETIONS, stack.body([5], COMPLETIONS)).status == 200)

    def heard():
        first = next(prompts)
        prompt = list(range(first, first + 320))
        ask(prompt)
        ask([5])  # its events are behind those of the prompt
        return ask(prompt)["cached"] == BLOCKS
    until("events of a prompt arrive, and are found", heard)


def theirs(stack, python, *flags, **env):
    """A mocker of the reference, of either generation."""
    return stack.start("reference-mocker", [python, "-m", "dynamo.mocker", "--model-path", MODEL, "--block-size", "16",
                                            "--speedup-ratio", "100", "--request-plane", "tcp", *flags],
                       HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1", **env)


def kv_frontend(stack, *flags, **env):
    return stack.frontend("--router-mode", "kv", *flags, DYN_LOG=ROUTED_LOG, DYN_KV_EVENTS="true", **env)


class Nats:
    """Publishes as the worker of that id would."""

    def __init__(self, port, worker):
        self.worker, self.sequence, self.socket = worker, 0, socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(b'CONNECT {"verbose":false,"user":"user","pass":"user"}\r\n')

    def stored(self, event_id, blocks):
        event = {"worker_id": self.worker, "event": {"event_id": event_id, "dp_rank": 0, "data": {"stored": {
            "parent_hash": None, "blocks": [{"block_hash": block, "tokens_hash": block} for block in blocks]}}}}
        body = msgspec.msgpack.encode({"publisher_id": self.worker, "sequence": self.sequence, "topic": "kv-events",
                                       "published_at": int(time.time() * 1000),
                                       "payload": msgspec.msgpack.encode(event)})
        self.sequence += 1
        self.socket.sendall(b"PUB namespace.dynamo.component.backend.kv-events %d\r\n%s\r\n" % (len(body), body))


def test_a_worker_that_never_says_what_was_missed(stack):
    """Its events wait for an answer that does not come, up to a bound; others are served meanwhile."""
    stack.start_nats()
    stack.mocker(workers=1)
    kv_frontend(stack, COMMUTATOR_CALL_HOME_TIMEOUT="3")
    stack.ready(1)
    fake = FakeWorker(stack.kv, fake_worker.ANSWER, silent_queries=True)
    until("both are known", lambda: stack.workers() == 2)
    until("it is asked", lambda: fake.queries >= 1)
    publisher, held = Nats(stack.nats_port, fake.worker_id), lambda: stack.metric("commutator_router_kv_events_held_bytes")
    for event_id in range(100):
        publisher.stored(event_id, range(4000 * event_id, 4000 * (event_id + 1)))
    until("it was too much", lambda: (stack.metric("commutator_router_kv_event_problems_total", problem="overflow") or 0) >= 2)
    assert held() <= 1 << 20
    until("the question has failed", lambda: (stack.metric("commutator_router_kv_recoveries_total", outcome="failed") or 0) >= 1)
    for _ in range(4):
        assert stack.request("POST", COMPLETIONS, stack.body([5] * 32, COMPLETIONS)).status == 200
    fake.close()
    until("it is gone", lambda: stack.workers() == 1)
    until("nothing waits", lambda: held() == 0)


def test_zmq_between_our_own(stack):
    stack.mocker(workers=2, DYN_EVENT_PLANE="zmq")
    kv_frontend(stack, DYN_EVENT_PLANE="zmq")
    stack.ready(2)
    learns(stack)


def test_zmq_of_their_0_9_workers(stack, reference):
    stack.start_nats("-js")  # it does not start without
    theirs(stack, reference, "--enable-local-indexer", "--store-kv", "file", DYN_EVENT_PLANE="zmq")
    kv_frontend(stack, DYN_EVENT_PLANE="zmq")
    until("it is found", lambda: stack.workers() == 1)
    stack.ready(1)
    learns(stack)


def test_zmq_of_their_newer_workers(stack, newer):
    theirs(stack, newer, DYN_DISCOVERY_BACKEND="file")
    kv_frontend(stack, DYN_EVENT_PLANE="zmq")
    until("it is found", lambda: stack.workers() == 1)
    stack.ready(1)
    learns(stack)


@pytest.mark.parametrize("generation", ["reference", "newer"])
def test_late_frontend_learns_from_their_workers(stack, request, generation):
    """A frontend that starts now asks the workers of either generation for what they hold."""
    python = request.getfixturevalue(generation)
    if generation == "reference":
        stack.start_nats("-js")
        theirs(stack, python, "--enable-local-indexer", "--store-kv", "file", DYN_EVENT_PLANE="zmq")
    else:
        theirs(stack, python, DYN_DISCOVERY_BACKEND="file")
    kv_frontend(stack, DYN_EVENT_PLANE="zmq")
    until("it is found", lambda: stack.workers() == 1)
    stack.ready(1)
    learns(stack)
    held = stack.metric("commutator_router_index_blocks", model=MODEL)
    assert stack.front.stop() == 0
    kv_frontend(stack, DYN_EVENT_PLANE="zmq")
    until("it tells what it holds", lambda: (stack.metric("commutator_router_index_blocks", model=MODEL) or 0) >= held)
    recovered = lambda **labels: stack.metric("commutator_router_kv_recoveries_total", **labels)
    assert recovered(outcome="dump") >= 1 and recovered(outcome="failed") == recovered(outcome="unsupported") == 0


def test_each_rank_is_asked_where_its_source_says(stack, newer):
    """1.6.1's workers write beside every source of events who answers for it; one question a rank is enough then."""
    theirs(stack, newer, "--data-parallel-size", "4", DYN_DISCOVERY_BACKEND="file")
    sources = lambda: file_store.records(stack.kv, "event_sources")
    until("all ranks are told of", lambda: len(sources()) == 4)
    assert {source["metadata"]["worker"]["dp_rank"] for source in sources()} == set(range(4))
    for source in sources():
        assert source["metadata"]["recovery_target"]["endpoint"] == f"worker_kv_query_source_{source['publisher_id']:x}"
    kv_frontend(stack, DYN_EVENT_PLANE="zmq")
    stack.ready(1)
    learns(stack)
    place = lambda prompt: decision_for(stack, stack.request("POST", COMPLETIONS, stack.body(prompt, COMPLETIONS))).selected
    placed = []
    while {rank for _, rank in placed} != set(range(4)):
        prompt = [10 + len(placed)] * 20 * 16
        placed.append((prompt, place(prompt)["rank"]))
    assert stack.front.stop() == 0
    kv_frontend(stack, DYN_EVENT_PLANE="zmq")
    stack.ready(1)
    held = lambda prompt, rank: (found := place(prompt))["cached"] == BLOCKS and found["rank"] == rank
    until("it knows what each rank holds", lambda: all(held(*where) for where in placed))
    recovered = lambda outcome: stack.metric("commutator_router_kv_recoveries_total", outcome=outcome)
    assert recovered("dump") == 4 and recovered("failed") == recovered("unsupported") == 0


JETSTREAM = "Not all workers have local_indexer enabled, using JetStream subscription"


def with_jetstream(stack):
    stack.start_nats("-js")


def test_jetstream_between_our_own(stack):
    with_jetstream(stack)
    stack.mocker("--no-enable-local-indexer", workers=2)
    kv_frontend(stack)
    stack.ready(2)
    learns(stack)
    assert JETSTREAM in stack.front.log() and "worker(s), starting KV event subscriber" in stack.front.log()
    held = stack.metric("commutator_router_index_blocks", model=MODEL)
    # A router that starts now hears all that the stream holds.
    assert stack.front.stop() == 0
    kv_frontend(stack)
    stack.ready(2)
    until("the stream was read", lambda: (stack.metric("commutator_router_index_blocks", model=MODEL) or 0) >= held)


def test_jetstream_beside_zmq(stack):
    with_jetstream(stack)
    stack.mocker("--no-enable-local-indexer", DYN_EVENT_PLANE="zmq")
    stack.mocker(DYN_EVENT_PLANE="zmq")
    kv_frontend(stack, DYN_EVENT_PLANE="zmq")
    stack.ready(2)
    learns(stack)
    assert JETSTREAM in stack.front.log()


def test_jetstream_of_their_0_9_workers(stack, reference):
    with_jetstream(stack)
    theirs(stack, reference, "--store-kv", "file", DYN_EVENT_PLANE="nats")
    kv_frontend(stack)
    until("it is found", lambda: stack.workers() == 1)
    stack.ready(1)
    learns(stack)
    assert JETSTREAM in stack.front.log()


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_an_engine_is_heard_directly(stack, request, whose):
    """A mocker's publisher of vLLM's own wire, and its replay, without a worker's runtime between."""
    live, replay = free_port(), free_port()
    flags = ["--zmq-kv-events-ports", live, "--zmq-replay-ports", replay]
    if whose == "ours":
        stack.mocker(*flags)
    else:
        theirs(stack, request.getfixturevalue("newer"), *flags, DYN_DISCOVERY_BACKEND="file")
    stack.frontend("--router-mode", "round-robin", DYN_KV_EVENTS="false")
    until("it is found", lambda: stack.workers() == 1)
    stack.ready(1)
    served = stack.port
    index = stack.start("index", [program("dynamo-router"), "index", "--host", "127.0.0.1", "--port", 0])
    port = int(index.wait_log(r"serving\b.*?\bport=(\d+)").group(1))

    def ask(path, body, to=port):
        stack.port = to
        try:
            return stack.request("POST", path, body).json
        finally:
            stack.port = served
    prompts = [list(range(first, first + 80)) for first in (1000, 2000)]
    held = lambda prompt: ask("/query", {"token_ids": prompt, "model_name": "m"}).get("scores")
    # Before anybody listens: by replay only. A worker of theirs registers a moment before its engine is there.
    until("it answers", lambda: "choices" in ask(COMPLETIONS, stack.body(prompts[0], COMPLETIONS), served))
    ask("/register", {"instance_id": 1, "endpoint": f"tcp://127.0.0.1:{live}", "block_size": 16, "model_name": "m",
                      "replay_endpoint": f"tcp://127.0.0.1:{replay}"})
    until("the replay is there", lambda: held(prompts[0]) == {"1": {"0": 80}})
    ask(COMPLETIONS, stack.body(prompts[1], COMPLETIONS), served)
    until("a live batch is there", lambda: held(prompts[1]) == {"1": {"0": 80}})
    assert index.stop() == 0


def test_snapshots_are_shared_with_their_0_9_router(stack, reference):
    """Ours replaces the stream by a snapshot, theirs starts from it; and the other way round."""
    with_jetstream(stack)
    stack.mocker("--no-enable-local-indexer")
    kv_frontend(stack, "--router-snapshot-threshold", "2")
    stack.ready(1)
    ask = lambda prompt: decision_for(stack, stack.request("POST", COMPLETIONS, stack.body(prompt, COMPLETIONS)))
    prompts = [list(range(first, first + 320)) for first in range(1000, 9000, 1000)]
    for prompt in prompts:
        ask(prompt)
    stack.front.wait_log("performing purge and snapshot")
    stack.front.wait_log("Successfully performed purge and snapshot")
    assert stack.front.stop() == 0

    port = free_port()
    stack.start("reference-frontend", [reference, "-m", "dynamo.frontend", "--store-kv", "file", "--request-plane", "tcp",
                                       "--http-host", "127.0.0.1", "--http-port", port, "--router-mode", "kv",
                                       "--router-snapshot-threshold", "2"],
                HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats", PYTHONUNBUFFERED="1", DYN_LOG="info,dynamo_llm::kv_router=debug")
    theirs = stack.processes[-1]
    stack.port = port

    def serves():
        try:
            return stack.request("POST", COMPLETIONS, stack.body([7], COMPLETIONS)).status == 200
        except OSError:
            return False
    until("their frontend serves", serves)

    def knows():  # the worker holds the prompt and tells nothing of it again: only the snapshot can
        stack.request("POST", COMPLETIONS, stack.body(prompts[0], COMPLETIONS))
        return "with 20 cached blocks" in theirs.log()
    until("it has read our snapshot, which it does beside its serving", knows)
    for first in (20000, 21000, 22000, 23000):
        stack.request("POST", COMPLETIONS, stack.body(list(range(first, first + 320)), COMPLETIONS))
    theirs.wait_log("Successfully uploaded snapshot")
    theirs.kill()

    kv_frontend(stack)
    stack.ready(1)
    until("their snapshot and the rest of the stream are here",
          lambda: ask(list(range(20000, 20320))).selected["cached"] == 20)
    assert ask(prompts[1]).selected["cached"] == 20


def test_planes_that_do_not_match_are_told(stack):
    with_jetstream(stack)
    stack.mocker(DYN_EVENT_PLANE="zmq")
    kv_frontend(stack, DYN_EVENT_PLANE="nats")
    stack.ready(1)
    stack.front.wait_log("another event plane than this router hears.*ours=nats its=zmq")


def test_routers_hear_each_other_over_zmq(stack):
    """Each finds the other's publishers by their records: a request of one counts in both."""
    stack.mocker("--startup-time", "0", speedup=1, DYN_EVENT_PLANE="zmq")
    first = kv_frontend(stack, "--router-replica-sync", DYN_EVENT_PLANE="zmq")
    stack.ready(1)
    one = stack.port
    second = kv_frontend(stack, "--router-replica-sync", DYN_EVENT_PLANE="zmq")
    stack.ready(1)
    other = stack.port
    records = lambda: [path for path in (stack.kv / "v1/event_channels").iterdir() if "active" in path.name]
    until("both have told of themselves", lambda: len(records()) >= 2)

    def heard():
        stack.port = one
        stream = stack.stream(list_of_words(), max_tokens=3000, ignore_eos=True)
        next(stream.events)
        stack.port = other
        try:
            until("the other counts it", lambda: stack.metric("dynamo_frontend_worker_active_decode_blocks"), 2)
            return True
        except pytest.fail.Exception:
            return False
        finally:
            stream.close()
    until("a request of one counts in the other", heard)
    until("and is released there", lambda: not stack.metric("dynamo_frontend_worker_active_decode_blocks"))
    assert second.stop() == 0 and first.stop() == 0
    assert not records()


def list_of_words():
    return " ".join(str(i) for i in range(60))


@pytest.mark.parametrize("plane", ["nats", "zmq"])
def test_our_router_hears_our_workers_as_those_of_1_x(stack, plane):
    """Two ranks: each is a publisher of its own, and answers a router that starts late."""
    if plane == "nats":
        stack.start_nats()
    stack.mocker("--publish-as", "endpoint", "--data-parallel-size", 2, DYN_EVENT_PLANE=plane)
    kv_frontend(stack, DYN_EVENT_PLANE=plane)
    stack.ready(1)
    learns(stack)
    learns(stack)
    held = stack.metric("commutator_router_index_blocks", model=MODEL)
    assert stack.front.stop() == 0
    kv_frontend(stack, DYN_EVENT_PLANE=plane)
    until("what they hold is told", lambda: (stack.metric("commutator_router_index_blocks", model=MODEL) or 0) >= held)
    recovered = lambda **labels: stack.metric("commutator_router_kv_recoveries_total", **labels)
    assert recovered(outcome="dump") >= 2 and recovered(outcome="failed") == recovered(outcome="unsupported") == 0


class Newer:
    """A frontend of 1.x before workers of ours that tell their events as its own do."""

    def __init__(self, stack, python, plane, discovery="file", **env):
        self.port = free_port()
        self.process = stack.start("reference-frontend", [
            python, "-m", "dynamo.frontend", "--discovery-backend", discovery, "--request-plane", "tcp",
            "--http-host", "127.0.0.1", "--http-port", self.port, "--router-mode", "kv"],
            HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1", DYN_EVENT_PLANE=plane, DYN_SDK_DISABLE_ANSI_LOGGING="1", **env)

    def ask(self, prompt):
        """Whether it answers."""
        try:
            return request(self.port, COMPLETIONS, {"model": MODEL, "prompt": prompt, "max_tokens": 2})[0] == 200
        except OSError:
            assert self.process.alive(), self.process.log()[-2000:]
            return False

    def knows(self, prompt):
        """Names no blocks: of 20 to compute and 20 active the former are spared."""
        before = len(self.process.log())
        assert self.ask(prompt)
        return re.search(r"Selected worker .* logit=20\.0", self.process.log()[before:])


@pytest.mark.parametrize("ranks", [1, 2])  # of one rank, which tells a prompt but once, nothing is known without
def test_a_newer_router_asks_our_worker_for_what_it_missed(stack, newer, ranks):
    stack.start_nats()
    stack.mocker("--publish-as", "endpoint", "--data-parallel-size", ranks)
    front, prompts = Newer(stack, newer, "nats"), ([token] * 20 * 16 for token in range(10, 5000))
    until("it serves our worker", lambda: front.ask([5]))
    heard = next(prompts)
    until("it hears events", lambda: front.knows(heard))
    stack.nats.kill()
    missed = [next(prompts) for _ in range(6)]
    for prompt in missed:
        assert front.ask(prompt)
        assert not front.knows(prompt)
    stack.start_nats()
    until("another event shows the gap, and it asks", lambda: front.ask(next(prompts)) and all(map(front.knows, missed)))
    until("what it heard before is known still", lambda: front.knows(heard))
