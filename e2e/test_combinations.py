# SPDX-License-Identifier: Apache-2.0
"""Every discovery x request plane x event plane of the released generations, with their unmodified programs.

In each combination four kinds of programs run side by side: their frontend and ours, and behind both of
them their mocker and two of ours, one for each frontend, alike to the seed. The same requests go to
both frontends. Behind their mocker, whose words are random, answers must be of the same shape: chunks,
keys, finish reasons, usage. Behind ours they must be the same to the letter.
"""

import contextlib
import http.client
import json
import re
import threading
from itertools import zip_longest

import pytest
import zmq

import file_store
from conftest import free_port, program, reference_python
from stack import CHAT, COMPLETIONS, MODEL, MODEL_PATH, Stack, sse, until
from test_discovery_etcd import EtcdStack
from test_discovery_kube import Graph

BLOCK = 16
PLANES = {"0.9.0": ["tcp", "nats", "http"], "1.6.1": ["tcp", "nats"]}
# Of 0.9.0 "jetstream" is what a worker without the local indexer does; later ones have no such mode.
EVENTS = {"0.9.0": ["nats", "zmq", "jetstream"], "1.6.1": ["nats", "zmq"]}
COMBINATIONS = [(version, discovery, plane, events) for version in PLANES for discovery in ("file", "etcd", "kubernetes")
                for plane in PLANES[version] for events in EVENTS[version]]
# With brokers publishers and subscribers know only these: who told what, only the events say.
COMBINATIONS += [(version, discovery, "tcp", events) for version in PLANES
                 for discovery, events in (("file", "broker"), ("etcd", "brokers"), ("file", "found"))]
IDS = [1000 + i for i in range(20 * BLOCK)]
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
HELLO = [{"role": "user", "content": "Hello there"}]
REQUESTS = [
    (CHAT, {"messages": HELLO, "max_tokens": 7, "ignore_eos": True}),
    (CHAT, {"messages": HELLO, "max_tokens": 7, "ignore_eos": True, **USAGE}),
    (CHAT, {"messages": HELLO, "max_tokens": 3, "ignore_eos": True, "stream": True}),
    (COMPLETIONS, {"prompt": IDS, "max_tokens": 5, "ignore_eos": True}),
    (COMPLETIONS, {"prompt": IDS, "max_tokens": 5, "ignore_eos": True, **USAGE}),
    (COMPLETIONS, {"prompt": "Once upon a time", "max_tokens": 1, "ignore_eos": True, "stream": True}),
]


@contextlib.contextmanager
def brokers(events):
    """Brokers of ZeroMQ as --event-plane zmq may have them: where they take events, and where they give them."""
    context, ends, threads = zmq.Context(), ([], []), []

    def pass_on(xsub, xpub):
        with xsub, xpub, contextlib.suppress(zmq.ContextTerminated):
            zmq.proxy(xsub, xpub)
    try:
        for _ in range({"broker": 1, "brokers": 2, "found": 1}.get(events, 0)):
            sockets = [context.socket(kind) for kind in (zmq.XSUB, zmq.XPUB)]
            for socket, urls in zip(sockets, ends):
                urls.append(f"tcp://127.0.0.1:{free_port()}")
                socket.linger = 0
                socket.bind(urls[-1])
            threads.append(threading.Thread(target=pass_on, args=sockets))
            threads[-1].start()
        yield ends
    finally:
        context.term()  # ends the proxies
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def leading_to(ends, stack, reference):
    """The environment that leads to the brokers; one that is to be found has a record in the store."""
    if reference.events != "found":
        yield {"DYN_ZMQ_BROKER_URL": f"xsub={';'.join(ends[0])} , xpub={';'.join(ends[1])}"} if ends[0] else {}
        return
    key = f"{'dynamo' if reference.old else 'namespace/dynamo/component'}/zmq_broker/{'' if reference.old else 'topic/'}broker/1"
    record = {"type": "EventChannel", "scope": {"kind": "component", "namespace": "dynamo", "component": "zmq_broker"},
              "namespace": "dynamo", "component": "zmq_broker", "topic": "broker", "instance_id": 1,
              "transport": {"kind": "ZmqBroker", "config": {"xsub_endpoints": ends[0], "xpub_endpoints": ends[1]}}}
    folder = stack.kv / "v1/event_channels"
    folder.mkdir(parents=True)
    path = folder / re.sub("[^A-Za-z0-9]", lambda c: f"%{ord(c.group()):02X}", key)
    path.write_text(json.dumps(record))
    living = file_store.Living(path)
    try:
        yield {"DYN_ZMQ_BROKER_ENABLED": "true"}
    finally:
        living.close()


class Pods(Graph):
    """A stack in which each program has the name of a pod, all of them ready."""

    def start(self, name, command, **env):
        if name == "nats":
            return super().start(name, command, **env)
        pod = f"{name}-{len(self.processes)}"
        self.slice(pod, **{pod: True})
        return super().start(name, command, **{**self.pod(pod), **env})


@pytest.fixture
def new_stack(tmp_path, request):
    """Makes a stack by the name of its discovery."""
    def new(discovery):
        if discovery == "kubernetes":
            return Pods(tmp_path, request.getfixturevalue("api"))
        return {"file": Stack, "etcd": EtcdStack}[discovery](tmp_path)
    return new


class Reference:
    """Programs of a release, on one combination of planes."""

    def __init__(self, stack, version, discovery, plane, events):
        self.stack, self.python, self.old = stack, reference_python(version), version.startswith("0.")
        self.discovery, self.plane, self.events = discovery, plane, events
        self.bus, self.env = {"jetstream": "nats", "broker": "zmq", "brokers": "zmq", "found": "zmq"}.get(events, events), {}

    def start(self, module, *flags):
        store = ["--store-kv" if self.old else "--discovery-backend", self.discovery]
        if self.old and self.discovery == "kubernetes":  # which DYN_DISCOVERY_BACKEND says there, and etcd is asked besides
            store[1] = "mem"
        return self.stack.start(f"reference-{module}", [self.python, "-m", f"dynamo.{module}", *store,
                                                        "--request-plane", self.plane, *flags],
                                HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1", DYN_EVENT_PLANE=self.bus,
                                DYN_HTTP_RPC_HOST="127.0.0.1", DYN_HTTP_RPC_PORT=free_port(),
                                DYN_LOG="info,dynamo_kv_router=debug", DYN_SDK_DISABLE_ANSI_LOGGING="1", **self.env)

    def mocker(self):
        indexer = ("--enable-local-indexer",) if self.old and self.events != "jetstream" else ()
        return self.start("mocker", "--model-path", MODEL, "--block-size", BLOCK, "--speedup-ratio", 50, *indexer)

    def frontend(self, *flags):
        port = free_port()
        return Front(self.start("frontend", "--http-host", "127.0.0.1", "--http-port", port,
                                *(flags or ("--router-mode", "kv"))), port)


def our_mocker(stack, name, reference):
    return stack.start(f"our-{name}", [
        program("dynamo-mocker"), "--model-path", MODEL_PATH, "--model-name", name, "--endpoint",
        f"dyn://dynamo.{name}.generate", "--block-size", BLOCK, "--num-gpu-blocks-override", 1024, "--speedup-ratio", 50,
        "--seed", 7, *(("--no-enable-local-indexer",) if reference.events == "jetstream" else ()),
        *(() if reference.old else ("--publish-as", "endpoint"))],
        DYN_REQUEST_PLANE=reference.plane, DYN_EVENT_PLANE=reference.bus, DYN_HTTP_RPC_PORT=0, **reference.env)


class Front:
    """One of the two frontends."""

    def __init__(self, process, port):
        self.process, self.port = process, port

    def ask(self, path, body):
        """(status, document), or (status, events) of a stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            return answer.status, text
        if not body.get("stream"):
            return 200, json.loads(text)
        return 200, [data if data == "[DONE]" else json.loads(data) for event, data in sse(text.splitlines(keepends=True))]

    def get(self, path):
        """The document there; {} while nobody answers."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        except OSError:
            assert self.process.alive(), self.process.log()[-2000:]
            return {}

    def models(self):
        return [model["id"] for model in self.get("/v1/models").get("data", [])]

    def serves(self, model):
        try:
            return self.ask(COMPLETIONS, {"model": model, "prompt": [7], "max_tokens": 1})[0] == 200
        except OSError:
            assert self.process.alive(), self.process.log()[-2000:]
            return False


def serve(front, *models):
    for model in models:
        until(f"{front.process.name} serves {model}", lambda: front.serves(model))


class Shape:
    """An answer, to the last key, without what differs from one request to the next; @words: with what the model said."""

    def __init__(self, words):
        self.words = words

    def of(self, value, key=None):
        if isinstance(value, dict):
            return {k: self.of(v, k) for k, v in sorted(value.items()) if k not in ("id", "created", "model")}
        if isinstance(value, (list, tuple)):
            return [self.of(v, key) for v in value]
        return "words" if not self.words and key in ("content", "text") and isinstance(value, str) else value


def cached(front, worker, blocks):
    """Whether the router of a reference frontend finds all of a prompt but the last token in the cache. One of 1.x
    names no blocks: of so many to compute and as many active the former are spared."""
    assert front.ask(COMPLETIONS, {"model": "ours-b", "prompt": IDS, "max_tokens": 1})[0] == 200
    log = front.process.log()
    return (f"Formula for worker_id={worker} dp_rank=0 with {blocks} cached blocks" in log
            or re.search(rf"Selected worker .*worker_id={worker}\b.* logit={blocks}(\.0)?\b", log))


def check_same(ours, our_model, theirs, their_model, shape):
    for path, body in REQUESTS:
        if our_model == their_model:  # what the worker has cached is not to differ between the two
            ours.ask(path, {**body, "model": our_model})
        mine, want = (shape.of(front.ask(path, {**body, "model": model}))
                      for front, model in ((ours, our_model), (theirs, their_model)))
        if mine != want:  # pytest's own comparison gets lost in these
            pytest.fail(f"{path} {str(body)[:200]}\n{first_difference(mine, want)}")


def first_difference(mine, want):
    lines = zip_longest(*(json.dumps(one, indent=1, sort_keys=True).splitlines() for one in (mine, want)))
    return next(f"line {n}: ours {a}, theirs {b}" for n, (a, b) in enumerate(lines) if a != b)


@pytest.mark.parametrize("version,discovery,plane,events", COMBINATIONS, ids=["-".join(c) for c in COMBINATIONS])
def test_combination(tmp_path, new_stack, version, discovery, plane, events):
    with contextlib.ExitStack() as ends:
        found = ends.enter_context(brokers(events))
        stack = ends.enter_context(new_stack(discovery))
        theirs = Reference(stack, version, discovery, plane, events)
        theirs.env = env = ends.enter_context(leading_to(found, stack, theirs))
        (tmp_path / MODEL).symlink_to(MODEL_PATH)  # the reference names a model by the path that it is given
        stack.start_nats("-js")
        their_worker = theirs.mocker()
        _, our_worker = (our_mocker(stack, name, theirs) for name in ("ours-a", "ours-b"))
        style = ["--answer-style", "dynamo-0.9"] if theirs.old else []  # cards of our mockers are those of 1.x
        stack.frontend("--router-mode", "kv", *style, DYN_EVENT_PLANE=theirs.bus, DYN_REQUEST_PLANE=plane, **env)
        ours = Front(stack.front, stack.port)
        serve(ours, MODEL, "ours-a")
        # Theirs last: that of 0.9.0 reads a file the moment that it appears, and a mocker of its may still be writing.
        reference = theirs.frontend()
        serve(reference, MODEL, "ours-b")
        assert their_worker.alive()

        # Their worker, behind both; and of ours one behind each, as the seed gives each the same words.
        check_same(ours, MODEL, reference, MODEL, Shape(words=False))
        check_same(ours, "ours-a", reference, "ours-b", Shape(words=True))

        # KV events: of their worker in our index, and of ours in theirs, also in that of a router that starts late
        # and has nothing but what our worker answers.
        until("their events fill our index", lambda: (stack.metric("commutator_router_index_blocks", model=MODEL) or 0) >= 20)
        worker = re.search(r"worker registered worker_id=(\d+)", our_worker.log()).group(1)
        until("our events fill their index", lambda: cached(reference, worker, 20))
        if not theirs.old:
            late = theirs.frontend()
            serve(late, "ours-b")
            until("it has asked for what was before", lambda: cached(late, worker, 20))
