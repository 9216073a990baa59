# SPDX-License-Identifier: Apache-2.0
"""`dynamo-router bridge`: KV events of an engine's own publisher reach routers of Dynamo over NATS.

The engine is a mocker that tells nobody of its cache but by ZeroMQ, as vLLM does; it is a worker of
Dynamo too, so that there is somebody to send requests to."""

import re

import pytest

from conftest import free_port, program, reference_python, run
from stack import COMPLETIONS, MODEL, MODEL_PATH, ROUTED_LOG, Stack, decision_for, parse_metrics, until
from test_interop import request as ask_port

PROMPT = list(range(1000, 1320))
BLOCKS = 20
CHANNELS = ("stream", "component", "endpoint")


@pytest.fixture
def stack(request, tmp_path):
    with Stack(tmp_path) as stack:
        (tmp_path / MODEL).symlink_to(MODEL_PATH)
        stack.start_nats("-js")
        stack.live, stack.replay = free_port(), free_port()
        stack.mocker("--zmq-kv-events-ports", stack.live, "--zmq-replay-ports", stack.replay,
                     *getattr(request, "param", ()), DYN_EVENT_PLANE="nats" if hasattr(request, "param") else "none")
        yield stack


def bridge(stack, channel, *flags, replay=True):
    """For the one worker that there is."""
    worker = until("the worker is registered", lambda: registered(stack))[0]
    more = ("--kv-replay", f"tcp://127.0.0.1:{stack.replay}") if replay else ()
    process = stack.start("bridge", [program("dynamo-router"), "bridge", "--kv-events", f"tcp://127.0.0.1:{stack.live}", *more,
                                     "--worker-id", worker, "--publish-as", channel, *flags],
                          DYN_SYSTEM_PORT="0", DYN_SYSTEM_HOST="127.0.0.1")
    process.port = int(process.wait_log(r"system_port\W+(\d+)").group(1))
    until("it is ready", lambda: health(process) == 200)
    return process


def registered(stack):
    found = re.findall(r"worker registered worker_id=(\d+)", "".join(p.log() for p in stack.processes if p.name == "mocker"))
    return [int(worker) for worker in found]


def health(process):
    return ask_port(process.port, "/health", None)[0]


def told(process, name):
    return parse_metrics(ask_port(process.port, "/metrics", None)[1]).get((name, ()), 0)


def ask(stack, prompt=PROMPT):
    return decision_for(stack, stack.request("POST", COMPLETIONS, stack.body(prompt, COMPLETIONS))).selected


def blocks(stack):
    return stack.metric("commutator_router_index_blocks", model=MODEL)


@pytest.mark.parametrize("channel", CHANNELS)
def test_our_router_hears_it(stack, channel):
    stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    stack.ready(1)
    process = bridge(stack, channel)
    assert ask(stack)["cached"] == 0
    until("its events arrive", lambda: blocks(stack) >= BLOCKS)
    assert ask(stack)["cached"] == BLOCKS
    assert told(process, "commutator_bridge_events_sent_total") >= 1
    assert told(process, "commutator_bridge_events_dropped_total") == 0
    assert process.stop() == 0


def test_what_was_there_before_is_told(stack):
    """The engine's replay, by a bridge that starts late."""
    stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    stack.ready(1)
    ask(stack)
    bridge(stack, "stream")
    until("what was cached is known", lambda: blocks(stack) >= BLOCKS)
    assert ask(stack)["cached"] == BLOCKS


def test_nats_goes_and_comes_back(stack):
    """What was lost meanwhile is read again; the stream keeps it for routers that are not back yet."""
    stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    stack.ready(1)
    process = bridge(stack, "stream")
    ask(stack)
    until("its events arrive", lambda: blocks(stack) >= BLOCKS)
    stack.nats.kill()
    until("it is not ready", lambda: health(process) == 503)
    other = list(range(2000, 2320))
    ask(stack, other)
    until("an event is lost", lambda: told(process, "commutator_bridge_events_dropped_total") >= 1)
    stack.start_nats("-js")
    until("both prompts are known", lambda: blocks(stack) >= 2 * BLOCKS)
    assert ask(stack)["cached"] == BLOCKS and ask(stack, other)["cached"] == BLOCKS


def source(stack):
    """The bridge as a source that stands in discovery, of an engine that cannot tell old events again."""
    return bridge(stack, "endpoint", "--store-kv", "file", replay=False)


def told_source(stack):
    """The same, which has told what the engine did; the router that heard it is gone."""
    stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    stack.ready(1)
    process = source(stack)
    ask(stack)
    until("the bridge has told it", lambda: told(process, "commutator_bridge_events_sent_total") >= 1)
    stack.front.stop()
    return process


def test_a_router_that_comes_late_asks_the_bridge(stack):
    process = told_source(stack)
    stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    stack.ready(1)
    until("what was cached is known", lambda: (blocks(stack) or 0) >= BLOCKS)
    assert ask(stack)["cached"] == BLOCKS
    assert told(process, "commutator_bridge_queries_total") >= 1


def test_a_router_that_missed_events_asks_the_bridge(stack):
    stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    stack.ready(1)
    process = source(stack)
    ask(stack)
    until("its events arrive", lambda: blocks(stack) >= BLOCKS)
    stack.nats.kill()
    until("it is not ready", lambda: health(process) == 503)
    other = list(range(2000, 2320))
    ask(stack, other)
    until("an event is lost", lambda: told(process, "commutator_bridge_events_dropped_total") >= 1)
    stack.start_nats("-js")
    until("both prompts are known", lambda: blocks(stack) >= 2 * BLOCKS)
    assert ask(stack)["cached"] == BLOCKS and ask(stack, other)["cached"] == BLOCKS


# A worker whose card says that it can be asked, but that tells and answers where 0.9.0 does not look.
elsewhere = pytest.mark.parametrize("stack", [("--publish-as", "endpoint")], indirect=True)


def warm(stack):
    """An engine that holds the prompt, and a bridge that has told of it when nobody listened."""
    stack.frontend("--router-mode", "round-robin")
    stack.ready(1)
    process = bridge(stack, "component", "--store-kv", "file", replay=False)
    assert stack.request("POST", COMPLETIONS, stack.body(PROMPT, COMPLETIONS)).status == 200
    until("the bridge has told it", lambda: told(process, "commutator_bridge_events_sent_total") >= 1)
    assert stack.front.stop() == 0
    return process


@elsewhere
def test_a_router_that_comes_late_asks_the_bridge_as_0_9_0_does(stack):
    process = warm(stack)
    for path in (*(stack.kv / "v1/event_sources").glob("*"), *(stack.kv / "v1/instances").glob("*worker_kv_query_source_*")):
        path.unlink()  # of the worker: the bridge alone is to answer
    stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    stack.ready(1)
    until("what was cached is known", lambda: (blocks(stack) or 0) >= BLOCKS)
    assert ask(stack)["cached"] == BLOCKS
    assert told(process, "commutator_bridge_queries_total") >= 1


@elsewhere
def test_their_router_of_0_9_0_that_comes_late_asks_the_bridge(stack):
    process = warm(stack)

    def asking():
        """0.9.0 asks a worker once, when it sees it, and not even then if it has not read the card yet."""
        front, asked = their_frontend(stack, "0.9.0")
        front.wait_log(r"recovered \d+ events")
        if "skipping recovery" not in front.log():
            return front, asked
        front.kill()
    front, asked = until("one that has read the card in time", asking)
    until("their frontend serves our worker", asked)
    until("their router knows what was cached", lambda: asked() and f"with {BLOCKS} cached blocks" in front.log())
    assert told(process, "commutator_bridge_queries_total") >= 1


@pytest.mark.parametrize("wrong,why", [
    (("--worker-id", "x"), "no number"), (("--endpoint", "a"), "namespace.component.endpoint"), ((), "--worker-id or POD_NAME")])
def test_what_is_wrong_is_named(wrong, why):
    done = run(program("dynamo-router"), "bridge", "--kv-events", "tcp://127.0.0.1:1", *wrong, check=False)
    assert done.returncode == 1 and why in done.stderr


def their_frontend(stack, release):
    """With it, what sends the prompt there and tells whether that was answered."""
    python, port = reference_python(release), free_port()
    store = "--store-kv" if release.startswith("0.") else "--discovery-backend"
    front = stack.start("reference-frontend", [
        python, "-m", "dynamo.frontend", store, "file", "--request-plane", "tcp", "--event-plane", "nats",
        "--http-host", "127.0.0.1", "--http-port", port, "--router-mode", "kv"],
        HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats", PYTHONUNBUFFERED="1")

    def answers():
        try:
            return ask_port(port, COMPLETIONS, {"model": MODEL, "prompt": PROMPT, "max_tokens": 2})[0] == 200
        except OSError:
            assert front.alive(), front.log()[-2000:]
            return False
    return front, answers


def test_their_router_that_comes_late_asks_the_bridge(stack):
    process = told_source(stack)
    their_frontend(stack, "1.6.1")
    until("their router asks", lambda: told(process, "commutator_bridge_queries_total") >= 1)


@pytest.mark.parametrize("release,channel", [("0.9.0", "stream"), ("1.6.1", "endpoint")])
def test_their_router_hears_it(stack, release, channel):
    front, asked = their_frontend(stack, release)
    process = bridge(stack, channel)
    until("their frontend serves our worker", asked)

    def cached(): # 1.x names no blocks: of 20 to compute and 20 active the former are spared
        assert asked()
        return f"with {BLOCKS} cached blocks" in front.log() or re.search(r"logit\S*=\S*20\.0", front.log())
    until("their router has seen the engine's events", cached)
    assert told(process, "commutator_bridge_events_sent_total") >= 1
