# SPDX-License-Identifier: Apache-2.0
"""Our programs with the unmodified ones of ai-dynamo 0.9.0 from PyPI, each in the other's place."""

import http.client
import json
import re

import pytest

from conftest import free_port, reference_python
from stack import CHAT, COMPLETIONS, MODEL, MODEL_PATH, ROUTED_LOG, Stack, decision_for, until, words


@pytest.fixture(scope="session")
def reference():
    return reference_python()


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path) as stack:
        # The reference names a model by the path that it is given.
        (tmp_path / MODEL).symlink_to(MODEL_PATH)
        stack.start_nats("-js")
        yield stack


def start_reference(stack, reference, module, *flags):
    return stack.start(f"reference-{module}", [reference, "-m", f"dynamo.{module}", "--store-kv", "file",
                                               "--request-plane", "tcp", *flags],
                       HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats", PYTHONUNBUFFERED="1")


def reference_mocker(stack, reference, *flags):
    return start_reference(stack, reference, "mocker", "--model-path", MODEL, "--block-size", "16",
                           "--speedup-ratio", "100", "--enable-local-indexer", *flags)


def test_our_frontend_serves_their_workers(stack, reference):
    workers = [reference_mocker(stack, reference) for _ in range(2)]
    stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    until("both are found", lambda: stack.workers() == 2)
    stack.ready(2)
    # A worker registers a moment before its engine is there; we try the other one then, which may be so, too.
    until("they answer", lambda: stack.request("POST", CHAT, stack.body("Hello", max_tokens=1)).status == 200)
    answer = stack.chat("Say something.", max_tokens=7, ignore_eos=True)
    assert answer.text and answer.usage["completion_tokens"] == 7
    answer = stack.chat("Say something.", max_tokens=7, ignore_eos=True, stream=True,
                        stream_options={"include_usage": True})
    assert answer.events[-1] == (None, "[DONE]") and answer.usage["completion_tokens"] == 7

    # Its KV events fill our index, and a repeated prompt finds its blocks.
    ids = [1000 + i for i in range(320)]
    ask = lambda: stack.request("POST", COMPLETIONS, stack.body(ids, COMPLETIONS))
    before = stack.metric("commutator_router_index_blocks", model=MODEL)
    home = decision_for(stack, ask()).selected["worker"]
    until("its events arrive", lambda: (stack.metric("commutator_router_index_blocks", model=MODEL) or 0) >= before + 20)
    again = decision_for(stack, ask()).selected
    assert again["worker"] == home and again["cached"] == 20

    # A frontend that starts now learns it by their local indexer.
    assert stack.front.stop() == 0
    stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    stack.ready(2)
    until("the dumps have arrived", lambda: (stack.metric("commutator_router_index_blocks", model=MODEL) or 0) >= 20)
    assert decision_for(stack, ask()).selected["cached"] == 20

    stream = stack.stream(words(200), max_tokens=5000, ignore_eos=True)
    next(stream.events)
    stream.close()
    until("its booking is released", lambda: not stack.loads())
    # One panic is its own: it registers before its engine is there, and we try the other worker then.
    panics = [why for worker in workers for why in re.findall(r"panicked at .*\n(.*)", worker.log())]
    assert set(panics) <= {"Not initialized"}


def test_their_frontend_drives_our_workers(stack, reference):
    port = free_port()
    # Its name for the model is the card's; the files are read where the card says.
    stack.mocker(workers=2, blocks=1024)
    front = start_reference(stack, reference, "frontend", "--http-host", "127.0.0.1", "--http-port", port,
                            "--event-plane", "nats", "--router-mode", "kv")

    def listed():
        try:
            return MODEL in ask("/v1/models")[1]
        except OSError:
            assert front.alive(), front.log()[-2000:]
            return False
    ask = lambda path, body=None: request(port, path, body)
    until("their frontend lists our model", listed)
    hello = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 7, "ignore_eos": True}
    # It lists a model a moment before it opens the route.
    until("it serves it", lambda: ask(CHAT, hello)[0] == 200)
    status, text = ask(CHAT, hello)
    assert status == 200 and json.loads(text)["usage"]["completion_tokens"] == 7, text
    status, text = ask(CHAT, {**hello, "stream": True})
    assert status == 200 and text.endswith("data: [DONE]\n\n") and text.count('"content":"') == 7, text[-500:]

    # Our KV events reach its index: the Formula lines of a repeated prompt show cached blocks.
    prompt = {"model": MODEL, "prompt": [1000 + i for i in range(320)], "max_tokens": 2}

    def cached():
        assert ask(COMPLETIONS, prompt)[0] == 200
        return "with 20 cached blocks" in front.log()
    until("its router has seen our events", cached)


def request(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None,
                       {"content-type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read().decode()


# --- prefill and decode workers, of both generations ---

@pytest.fixture(params=["0.9.0", "1.6.1"], scope="session")
def generation(request):
    """Starts programs of a release: generation(stack, module, *flags); generation.old for what only 0.9 needs."""
    python = reference_python(request.param)
    old = request.param.startswith("0.")
    store = "--store-kv" if old else "--discovery-backend"

    def start(stack, module, *flags):
        return stack.start(f"reference-{module}", [python, "-m", f"dynamo.{module}", store, "file",
                                                   "--request-plane", "tcp", *flags],
                           HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats", PYTHONUNBUFFERED="1")
    start.old = old
    return start


@pytest.mark.parametrize("bootstrap", [True, False], ids=["bootstrap", "synchronous"])
def test_our_frontend_serves_their_prefill_and_decode_workers(stack, generation, bootstrap):
    ports = ("--bootstrap-ports", free_port()) if bootstrap else ()
    model = ("--model-path", MODEL, "--block-size", "16", "--speedup-ratio", "100")
    indexer = ("--enable-local-indexer",) if generation.old else ()
    generation(stack, "mocker", *model, "--is-prefill-worker", *indexer, *ports)
    decode = generation(stack, "mocker", *model, "--is-decode-worker")
    stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    until("both are found", lambda: stack.workers() == 1 and stack.workers("prefill") == 1)
    stack.ready(1)
    ids = [1000 + i for i in range(320)]
    ask = lambda: stack.request("POST", COMPLETIONS, stack.body(ids, COMPLETIONS, max_tokens=7, ignore_eos=True))
    way = "bootstrap" if bootstrap else "synchronous"

    def handed_over():
        before = prefills(stack)
        answer = ask()
        return answer.status == 200 and answer.usage["completion_tokens"] == 7 and {
            **before, way: before.get(way, 0) + 1} == prefills(stack)
    # A worker registers a moment before its engine is there, and panics until then; one that prefills
    # is not listening yet, and the decode worker computes the prompt meanwhile.
    until("a prompt is handed over and nothing else happens to it", handed_over)
    # Asked again each time: a prefill that is sent in the background may still have met its panic.
    until("its prefill worker's events fill our index", lambda: ask().status == 200 and stack.metric(
        "commutator_router_index_blocks", model=MODEL, worker_type="prefill") >= 20)
    assert decode.alive()


@pytest.mark.parametrize("bootstrap", [True, False], ids=["bootstrap", "synchronous"])
def test_their_frontend_drives_our_prefill_and_decode_workers(stack, generation, bootstrap):
    ports = ("--bootstrap-ports", "0") if bootstrap else ()
    prefill = stack.mocker("--is-prefill-worker", *ports)
    decode = stack.mocker("--is-decode-worker")
    port = free_port()
    front = generation(stack, "frontend", "--http-host", "127.0.0.1", "--http-port", port, "--event-plane", "nats",
                       "--router-mode", "kv", "--enforce-disagg")
    prompt = {"model": MODEL, "prompt": [1000 + i for i in range(320)], "max_tokens": 7, "ignore_eos": True,
              "nvext": {"annotations": ["query_instance_id"], "extra_fields": ["worker_id"]}}

    def served():
        try:
            return request(port, COMPLETIONS, prompt)[0] == 200
        except OSError:
            assert front.alive(), front.log()[-2000:]
            return False
    until("their frontend serves it", served)
    status, text = request(port, COMPLETIONS, {**prompt, "stream": True})
    assert status == 200 and text.endswith("data: [DONE]\n\n"), text
    ids = json.loads(next(line for line in text.splitlines() if '"worker_id"' in line)[6:])["nvext"]["worker_id"]
    registered = lambda worker: int(re.search(r"worker registered worker_id=(\d+)", worker.log()).group(1))
    assert ids["prefill_worker_id"] == registered(prefill) and ids["decode_worker_id"] == registered(decode)
    if generation.old:  # our prefill worker's events reach its index
        until("its router has seen our events", lambda: request(port, COMPLETIONS, prompt)[0] == 200
              and "with 20 cached blocks" in front.log())


def prefills(stack):
    """Requests by the way their prompts were computed."""
    return {dict(labels)["path"]: value for (name, labels), value in stack.metrics().items()
            if name == "commutator_router_prefills_total"}
