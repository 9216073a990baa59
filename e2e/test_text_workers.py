# SPDX-License-Identifier: Apache-2.0
"""Workers that take requests of the OpenAI API as they are (ModelInput.Text), made of the reference's own runtime: what
its frontend answers and ours, key for key, and what the worker is asked for."""

import contextlib
import http.client
import json

import pytest

from conftest import ROOT, free_port, reference_python
from stack import CHAT, COMPLETIONS, MODEL_PATH, SOON, Stack, until
from test_openai_interop import NEWEST, Front

EMBEDDINGS = "/v1/embeddings"
RELEASES = ["0.9.0", NEWEST]
PLANES = [("0.9.0", "tcp"), ("0.9.0", "nats"), (NEWEST, "tcp"), (NEWEST, "nats")]


class Rig:
    """A worker of one release, and frontends before it."""

    def __init__(self, folder, release, plane="tcp", models=()):
        self.stack, self.release, self.plane, self.models = Stack(folder, events=False), release, plane, models or ("say",)
        self.env = {"HF_HUB_OFFLINE": "1", "DYN_EVENT_PLANE": "nats", "PYTHONUNBUFFERED": "1", "DYN_STORE_KV": "file",
                    "DYN_DISCOVERY_BACKEND": "file", "DYN_REQUEST_PLANE": plane, "DYN_SELF_HOST_METADATA": "0"}

    def __enter__(self):
        self.stack.start_nats("-js")
        self.worker = self.start_worker()
        return self

    def __exit__(self, *why):
        print("".join(process.log()[-3000:] for process in self.stack.processes))
        for process in self.stack.processes:
            process.kill()

    def start_worker(self):
        worker = self.stack.start("worker", [reference_python(self.release), ROOT / "e2e/text_worker.py", MODEL_PATH,
                                             *self.models], **self.env)
        worker.wait_log("registered")
        return worker

    def theirs(self, *flags):
        port, store = free_port(), "--store-kv" if self.release == "0.9.0" else "--discovery-backend"
        self.stack.start("reference", [reference_python(self.release), "-m", "dynamo.frontend", store, "file",
                                       "--request-plane", self.plane, "--event-plane", "nats", "--http-host", "127.0.0.1",
                                       "--http-port", port, *flags], **self.env)
        front = self.ready(Front(port))
        for model in self.models:  # which it serves a moment before it has found a worker for each API
            for api, subject in self.first_of(model):
                until(f"it answers {api}", lambda: front.ask(api, {"model": name_of(model), **subject})[0] == 200)
        return front

    def first_of(self, model):
        if model.startswith("embed"):
            return [(EMBEDDINGS, {"input": "x"})]
        chat = [(CHAT, {"messages": [{"role": "user", "content": "x"}]})]
        return chat + [(COMPLETIONS, {"prompt": "x"})] * (self.release == NEWEST)

    def ours(self, *flags):
        self.stack.frontend(*flags)
        return self.ready(Front(self.stack.port))

    def ready(self, front):
        until("it serves the models", lambda: served(front) == sorted(map(name_of, self.models)))
        return front

    def asked(self):
        """What the worker was asked, request by request."""
        return self.worker.asked()


def name_of(model):
    """As it is registered: a model with a folder of its own is called as that."""
    return model.rsplit("/", 1)[-1]


def served(front):
    with contextlib.suppress(OSError):
        return sorted(model["id"] for model in json.loads(front.ask("/v1/models", None)[1])["data"])


@pytest.fixture
def rig_of(tmp_path):
    """A function from a release to its rig."""
    with contextlib.ExitStack() as rigs:
        yield lambda *words, **more: rigs.enter_context(Rig(tmp_path, *words, **more))


def body(api, items, **more):
    text = json.dumps(items)
    subject = {"messages": [{"role": "user", "content": text}]} if api == CHAT else {"prompt": text}
    return {"model": "say", **subject, **more}


def read(status, text):
    """Objects, and words of a stream that are none."""
    if text.startswith("{"):
        return status, json.loads(text)
    return status, [json.loads(line[6:]) if line.startswith("data: {") else line for line in text.splitlines()]


HEAD = {"id": "a", "created": 1, "model": "say"}
ROLE = {"role": "assistant"}
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
DETAILS = {**USAGE, "prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 1}}


def chunk(delta, finish=None, index=0, choice=(), **more):
    choices = [{"index": index, "delta": delta, "finish_reason": finish, **dict(choice)}]
    return {**HEAD, "object": "chat.completion.chunk", "choices": choices, **more}


def piece(text, finish=None, index=0, logprobs=None, **more):
    choices = [{"index": index, "text": text, "finish_reason": finish, "logprobs": logprobs}]
    return {**HEAD, "object": "text_completion", "choices": choices, **more}


def call(arguments, **more):
    name = {"name": more.pop("name")} if "name" in more else {}
    return {"index": 0, "type": "function", **more, "function": {**name, "arguments": arguments}}


ECHO = [{"echo": True}]
CHATS = [  # what the worker says, what is asked beside it
    (ECHO, {}), (ECHO, {"temperature": 0.5, "max_tokens": 7, "top_k": 3, "stop": ["x"], "user": "u", "seed": None}),
    (ECHO, {"nvext": {"extra_fields": ["worker_id", "timing"]}}), (ECHO, {"n": 2, "temperature": 1.0}),
    (ECHO, {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "logprobs": True}),
    ([chunk({**ROLE, "content": "he"}), chunk({"content": "llo"}), chunk({}, "stop")], {}),
    ([chunk({**ROLE, "content": "he"}), chunk({**ROLE, "content": "llo"}, "length"), {**chunk({}, usage=USAGE), "choices": []}], {}),
    ([chunk({**ROLE, "content": "hé \"\\"}, "stop", usage=DETAILS)], {}), ([chunk({**ROLE, "reasoning_content": "hm"}), chunk({"content": "x"}, "stop")], {}),
    ([chunk({**ROLE, "content": "a"}), chunk({**ROLE, "content": "b"}, index=1), chunk({}, "stop"), chunk({}, "length", 1)], {"n": 2, "temperature": 1.0}),
    ([chunk({**ROLE, "content": "a"}), chunk({"refusal": "no"}, "content_filter")], {}), ([chunk({**ROLE, "content": "a"})], {}),
    ([chunk({**ROLE, "content": "a"}, choice={"logprobs": {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]}}),
      chunk({"content": "b"}, "stop")], {}),
    ([chunk({**ROLE, "content": None}), chunk({"content": ""}, "stop", nvext={"worker_id": 5})], {}),
    ([chunk({**ROLE, "content": "a"}, foo=1, system_fingerprint="f", service_tier="default"), chunk({"content": "b"}, "stop")], {}),
    ([chunk({**ROLE, "content": "a"}, choice={"stop_reason": "x"}), chunk({"content": "b"}, "stop", model="other", id="b")], {}),
]
CALLS = [chunk({**ROLE, "tool_calls": [call('{"x"', id="c1", name="f")]}), chunk({"tool_calls": [call(":1}")]}, "tool_calls")]
COMPLETED = [
    (ECHO, {}), (ECHO, {"max_tokens": 7, "echo": True}), (ECHO, {"prompt": [1, 2]}), (ECHO, {"n": 2, "temperature": 1.0}),
    (ECHO, {"prompt": [json.dumps(ECHO)] * 2}), (ECHO, {"prompt": [[1], [2, 3]]}),
    ([piece("he"), piece("llo", "stop")], {}), ([piece("he", usage=DETAILS), piece("llo", "stop")], {}),
    ([piece("he", logprobs={"tokens": ["he"], "token_logprobs": [-0.5], "top_logprobs": [{"he": -0.5}], "text_offset": [0]}), piece("llo", "stop")], {}),
    ([piece("a"), piece("b", index=1), piece("c", "stop", 1), piece("", "length")], {"n": 2, "temperature": 1.0}),
]


@pytest.mark.parametrize("release,plane", PLANES)
def test_answers(rig_of, release, plane):
    """0.9.0 completes no texts for a model that chats, too, and loses refusals that are gathered."""
    rig = rig_of(release, plane)
    theirs, ours = rig.theirs(), rig.ours()
    cases = [(CHAT, *case) for case in CHATS] + [(COMPLETIONS, *case) for case in COMPLETED] * (release == NEWEST)
    differ = []
    for api, items, more in cases:
        for stream in (True, False):
            asked = body(api, items, **{**more, "stream": stream})
            want, got = (in_order(read(*front.ask(api, asked)), asked) for front in (theirs, ours))
            if release == "0.9.0" and not stream:
                got = got[0], got[1].replace('"refusal": "no", ', "")
            if want != got:
                differ.append((api, items, more, stream, want, got))
            n, payloads = prompts_of(asked), [json.dumps(payload, sort_keys=True) for payload in rig.asked()]
            if sorted(payloads[-n:]) != sorted(payloads[-2 * n:-n]):
                differ.append(("asked", *payloads[-2 * n:]))
    assert not differ, "\n".join("\n".join(map(str, case)) for case in differ)


def prompts_of(asked):
    prompt = asked.get("prompt")
    return len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1


def in_order(answer, asked):
    """Chunks of several prompts come as their workers are quick."""
    status, parts = answer
    if isinstance(parts, list) and isinstance(asked.get("prompt"), list):
        parts = sorted(parts, key=str)
    return status, json.dumps(parts)


@pytest.mark.parametrize("release", RELEASES)
def test_calls_of_tools(rig_of, release):
    """Pieces of calls are streamed as they are; gathered they are calls again, which the reference loses."""
    rig = rig_of(release)
    theirs, ours = rig.theirs(), rig.ours()
    want, got = (read(*front.ask(CHAT, body(CHAT, CALLS, stream=True))) for front in (theirs, ours))
    assert got == want
    choice = json.loads(ours.ask(CHAT, body(CHAT, CALLS))[1])["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"] == [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}]


def begun(front, items):
    """A stream whose first chunk is here."""
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
    connection.request("POST", CHAT, json.dumps(body(CHAT, items, stream=True)), {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200 and response.readline().startswith(b"data: {")
    return connection, response


def after_begin(rig, front, item):
    """What follows the first chunk when the worker goes on with this item."""
    flag = rig.stack.folder / "go"
    flag.unlink(missing_ok=True)
    _, response = begun(front, [chunk({**ROLE, "content": "he"}), {"until": str(flag)}, item])
    flag.touch()
    return response.read().decode()


@pytest.mark.parametrize("release", RELEASES)
def test_errors(rig_of, release):
    """The words are the worker's, which 1.6.1 keeps to itself; a stream that said nothing has a status."""
    rig = rig_of(release)
    theirs, ours = rig.theirs(), rig.ours()
    for items, words in (([{"raise": "boom"}], "boom"), ([{"foo": 1}], "missing field `id`")):
        (want, _), (got, text) = (front.ask(CHAT, body(CHAT, items)) for front in (theirs, ours))
        assert got == want and words in json.loads(text)["message"]
        status, text = ours.ask(CHAT, body(CHAT, items, stream=True))
        assert status == want and words in json.loads(text)["message"]
    want, got = (after_begin(rig, front, {"raise": "boom"}) for front in (theirs, ours))
    if release == NEWEST:
        got = got.replace("ValueError: boom", "Invalid request")
    else:
        lines = got.split("\n")
        lines.remove(next(line for line in lines if line.startswith("data: {\"error")))
        got = "\n".join(lines)
    assert read(200, got) == read(200, want)
    for asked, status in ((body(CHAT, ECHO, foo=1), 400), (body(CHAT, ECHO, temperature=5), 400), (body(CHAT, ECHO, model="nope"), 404)):
        (want, _), (got, _) = (front.ask(CHAT, asked) for front in (theirs, ours))
        assert want == got == status


@pytest.mark.parametrize("release", RELEASES)
def test_a_client_that_leaves(rig_of, release):
    rig = rig_of(release)
    connection, response = begun(rig.ours(), [chunk({**ROLE, "content": "he"}), {"wait": True}])
    response.close()
    connection.close()
    rig.worker.wait_log("stopped", SOON)
    until("no stream is left", lambda: rig.stack.metric("commutator_plane_streams") == 0)


@pytest.mark.parametrize("release", RELEASES)
def test_a_worker_that_is_lost(rig_of, release):
    """Before it said anything another one answers; later the stream says so. It has no tokens to move elsewhere."""
    rig = rig_of(release)
    ours = rig.ours("--migration-limit", "3")
    rig.start_worker()
    until("two workers", lambda: rig.stack.metric("commutator_router_workers", model="say") == 2)
    assert "Stream ended before generation completed" in after_begin(rig, ours, {"exit": True})
    rig.start_worker()
    until("two workers", lambda: rig.stack.metric("commutator_router_workers", model="say") == 2)
    # Whoever gets it leaves, the next one too: then there is nobody.
    status, text = ours.ask(CHAT, body(CHAT, [chunk(ROLE), {"exit": True}], stream=True))
    assert status == 503, text
    assert rig.stack.metric("commutator_router_retries_total", model="say") >= 2


@pytest.mark.parametrize("mode", ["kv", "round-robin", "random", "least-loaded"])
def test_modes(rig_of, mode):
    """In mode kv, where the reference fails, the least loaded worker is asked; what is counted is the same."""
    rig = rig_of("0.9.0")
    rig.stack.frontend("--router-mode", mode)
    ours = rig.ready(Front(rig.stack.port))
    for stream in (True, False):
        assert ours.ask(CHAT, body(CHAT, [chunk({**ROLE, "content": "he"}), chunk({"content": "llo"}, "stop", usage=USAGE)], stream=stream))[0] == 200
    count = lambda name, **labels: rig.stack.metric(f"dynamo_frontend_{name}", model="say", **labels)
    for kind in ("stream", "unary"):
        assert count("requests_total", endpoint="chat_completions", request_type=kind, status="success") == 1
    assert count("output_tokens_total") == 4 and count("inflight_requests") == count("queued_requests") == 0
    mode = {"kv": "least-loaded"}.get(mode, mode)
    assert rig.stack.decisions() == {mode: 2}
