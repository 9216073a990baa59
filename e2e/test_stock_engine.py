# SPDX-License-Identifier: Apache-2.0
"""Plain OpenAI servers as workers: no Dynamo runtime, no NATS, no discovery.

The engines are our mocker as `vllm serve` would be, or a few lines of Python where an engine must lack
something."""

import contextlib
import fcntl
import http.server
import json
import shutil
import socket
import struct
import threading
import urllib.request

import openai
import pytest

from conftest import free_port, program, unavailable
from stack import CHAT, COMPLETIONS, MODEL, MODEL_PATH, ROUTED, ROUTED_LOG, Stack, parse_metrics, request_id, until, words
from test_discovery_kube import Graph


CACHED = 224  # tokens of the whole blocks of words(300), as a chat


class Engine:
    """A mocker that serves the OpenAI API, and what a user writes to have it served."""

    def __init__(self, stack, *flags, events=True, speedup=50, model_path=MODEL_PATH, port=None,
                 host="127.0.0.1", block_size=16, **options):
        self.port, self.events, self.replay = port or free_port(), free_port(), free_port()
        ports = ("--zmq-kv-events-ports", self.events, "--zmq-replay-ports", self.replay) if events else ()
        self.process = stack.start("mocker", [
            program("dynamo-mocker"), "--model-path", model_path, "--model-name", MODEL, "--block-size", block_size,
            "--num-gpu-blocks-override", 1024, "--speedup-ratio", speedup, "--openai-port", self.port, *ports, *flags],
            DYN_SYSTEM_HOST=host)
        self.process.wait_log("engine serves the OpenAI API")
        self.url = f"http://{host}:{self.port}"
        if events:
            options |= {"kv_events": f"tcp://127.0.0.1:{self.events}", "kv_replay": f"tcp://127.0.0.1:{self.replay}"}
        self.spec = ",".join([self.url, *(f"{key.replace('_', '-')}={value}" for key, value in options.items())])

    def ask(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def metric(self, name, **labels):
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as answer:
            series = parse_metrics(answer.read().decode())
        return sum(value for (found, have), value in series.items() if found == name and set(labels.items()) <= set(have))


def serve(stack, engines, *flags, ready=None, **env):
    named = [word for engine in engines for word in ("--engine-url", engine.spec)]
    stack.frontend("--store-kv", "mem", *named, *flags, **{"DYN_KV_EVENTS": "true", "DYN_LOG": ROUTED_LOG, **env})
    stack.ready(len(engines) if ready is None else ready)
    return stack


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield stack


def two(stack, *flags, speedup=50, **options):
    engines = [Engine(stack, speedup=speedup, **options) for _ in range(2)]
    serve(stack, engines, "--router-mode", "kv", *flags)
    return engines


def routed(stack):
    """(request id, worker id, cached blocks) of each decision."""
    return [(found[1], int(found[3]), int(found[4])) for found in ROUTED.findall(stack.front.log())]


def plain(chunks):
    """Chunks without what differs between two requests."""
    return [{key: value for key, value in chunk.items() if key not in ("id", "created")} for chunk in chunks]


def chunks_of(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


# --- what the client gets ---

@pytest.mark.parametrize("api", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("options", [None, {"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}])
def test_a_stream_is_the_engines_own(stack, api, options):
    direct, behind = Engine(stack, "--seed", 5), Engine(stack, "--seed", 5)
    serve(stack, [behind])
    body = stack.body(words(80), api, stream=True, max_tokens=20, ignore_eos=True)
    if options:
        body["stream_options"] = options
    want = direct.ask(api, body)
    answer = stack.request("POST", api, body)
    assert answer.status == 200 and answer.headers["content-type"] == "text/event-stream"
    assert plain(answer.chunks) == plain(chunks_of(want))
    assert answer.body.decode().endswith("data: [DONE]\n\n")
    assert len(answer.chunks) > 20
    assert answer.chunks[0]["id"].endswith(answer.headers["x-request-id"])


FINGERPRINT = "vllm-0.32.0-tp1-1a2b3c4d"


def fingerprinted(handler):
    """Streams as vLLM does: its fingerprint is in the chunk of usage, or else in those that end a choice."""
    body = json.loads(handler.asked)
    usage, n = (body.get("stream_options") or {}).get("include_usage"), body.get("n", 1)
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    choice = lambda index, end: {"index": index, "delta": {"content": "a"}, "finish_reason": end}
    told = [head | {"choices": [choice(index, None)]} for index in range(n)]
    told += [head | {"choices": [choice(index, "length")]} | ({} if usage else {"system_fingerprint": FINGERPRINT}) for index in range(n)]
    if usage:
        told.append(head | {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2 * n}, "system_fingerprint": FINGERPRINT})
    lines = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in told] + [b"data: [DONE]\n\n"]
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("content-length", str(sum(map(len, lines))))
    handler.end_headers()
    for line in lines:
        handler.wfile.write(line)


@pytest.mark.parametrize("options", [None, {"include_usage": False}, {"include_usage": True}])
def test_the_fingerprint_is_where_the_engine_has_it(stack, options):
    with FakeEngine({CHAT: fingerprinted}) as fake:
        serve(stack, [fake])
        body = stack.body("Hello", CHAT, stream=True) | ({"stream_options": options} if options else {})
        behind = plain(stack.request("POST", CHAT, body).chunks)
        with urllib.request.urlopen(urllib.request.Request(fake.spec.partition(",")[0] + CHAT, json.dumps(body).encode())) as answer:
            assert behind == plain(chunks_of(answer.read().decode()))
        assert [chunk.get("system_fingerprint") for chunk in behind][-1] == FINGERPRINT
        several = stack.request("POST", CHAT, body | {"n": 2}).chunks
        assert [chunk["system_fingerprint"] for chunk in several if "system_fingerprint" in chunk] == [FINGERPRINT]
        assert several[-1]["system_fingerprint"] == FINGERPRINT


@pytest.mark.parametrize("tail", [[], ["data: [DONE]\n\n"]])
def test_engines_that_tell_no_usage_end_their_streams(stack, tail):
    """What ends a choice comes although nothing follows it."""
    def answer(handler):
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": MODEL,
                 "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}
        text = "".join([f"data: {json.dumps(chunk)}\n\n", *tail]).encode()
        handler.send_response(200)
        handler.send_header("content-length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)
    with FakeEngine({CHAT: answer}) as fake:
        serve(stack, [fake])
        told = stack.request("POST", CHAT, stack.body("Hello", CHAT, stream=True))
        assert [chunk["choices"][0]["finish_reason"] for chunk in told.chunks] == ["stop"]
        assert told.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("api", [CHAT, COMPLETIONS])
def test_a_whole_answer_is_the_engines_own(stack, api):
    direct, behind = Engine(stack, "--seed", 5), Engine(stack, "--seed", 5)
    serve(stack, [behind])
    body = stack.body(words(80), api, max_tokens=20, stop=["zzz"])
    answer = stack.request("POST", api, body)
    assert answer.status == 200
    assert plain([answer.json]) == plain([json.loads(direct.ask(api, body))])


def test_the_openai_client(stack):
    two(stack)
    with openai.OpenAI(base_url=stack.url + "/v1", api_key="unused", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        ask = {"model": MODEL, "messages": [{"role": "user", "content": "Say something."}], "max_tokens": 12}
        answer = client.chat.completions.create(**ask)
        assert answer.choices[0].message.content and answer.usage.completion_tokens == 12
        parts = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
        assert "".join(part.choices[0].delta.content or "" for part in parts[:-1])
        assert parts[-1].usage.completion_tokens == 12
        assert client.completions.create(model=MODEL, prompt="Once", max_tokens=5).choices[0].text
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(**{**ask, "model": "other"})


def test_another_name(stack):
    """The client sees the name it knows, the engine the one it goes by."""
    serve_alias = Engine(stack, model="alias")
    stack.frontend("--store-kv", "mem", "--engine-url", serve_alias.spec)
    until("the model is there", lambda: stack.models() == ["alias"])
    for stream in (False, True):
        answer = stack.chat(model="alias", stream=stream)
        told = answer.chunks if stream else [answer.json]
        assert {chunk["model"] for chunk in told} == {"alias"}


def test_refusals_keep_their_words(stack):
    """The engine's status and words, in the shape of ours."""
    engine = FakeEngine({"/v1/completions": (400, {"error": {"message": "seven is too many", "code": 400}})})
    with engine:
        serve(stack, [engine])
        answer = stack.request("POST", COMPLETIONS, stack.body("a", COMPLETIONS))
        assert answer.status == 400 and answer.json["error"]["message"] == "seven is too many"
        assert answer.json["message"] == "seven is too many"


# --- routing ---

def test_a_prompt_goes_where_its_cache_is(stack):
    engines = two(stack)
    where = {}
    ids = stack.instances()
    for seed in range(6): # pinned, as the prompts begin with the same block
        stack.chat(words(300, seed), {"x-worker-instance-id": str(ids[seed % 2])})
        until("its blocks are known", lambda: (stack.metric("dynamo_component_kv_cache_events_applied", status="ok",
                                                            event_type="stored") or 0) >= seed + 1)
        where[seed] = routed(stack)[-1][1]
    assert where == {seed: ids[seed % 2] for seed in range(6)}
    for seed in reversed(range(6)):
        answer = stack.chat(words(300, seed))
        assert answer.usage["prompt_tokens_details"]["cached_tokens"] >= CACHED
        request, worker, cached = routed(stack)[-1]
        assert request == answer.headers["x-request-id"] and worker == where[seed] and cached >= CACHED // 16
    assert sum(engine.metric("vllm:prefix_cache_hits_total") for engine in engines) >= 6 * CACHED
    record = stack.get(f"/explain/{answer.headers['x-request-id']}").json["decisions"][-1]
    outcome = record["outcome"]
    assert outcome["ended"] == "finished" and outcome["output_tokens"] == 4
    assert outcome["cached_tokens"] == record["predicted_cached_tokens"] == CACHED


@pytest.mark.parametrize("lacks", [0, 1])
def test_a_prompt_of_whole_blocks_is_not_all_served(stack, lacks):
    """Its last block is computed in any case, as by vLLM, and one more by engines that draft tokens: not what was
    predicted is wrong then, and the engine's events are believed."""
    engine, prompt = Engine(stack), {"prompt": list(range(1000, 1064)), "max_tokens": 1}

    def drafts(handler):
        answer = json.loads(engine.ask(COMPLETIONS, fake.asked[-1][2]))
        details = answer["usage"]["prompt_tokens_details"]
        details["cached_tokens"] = max(0, details["cached_tokens"] - 16 * lacks)
        handler.answer(200, answer)
    with FakeEngine({COMPLETIONS: drafts}, behind=engine) as fake:
        fake.spec += "".join(engine.spec.partition(",")[1:])
        serve(stack, [fake], "--router-mode", "kv")

        def ask():
            answer = stack.request("POST", COMPLETIONS, {"model": MODEL, **prompt})
            return stack.get(f"/explain/{answer.headers['x-request-id']}").json["decisions"][-1]
        until("its blocks are known", lambda: ask()["candidates"][0]["overlap_blocks"] == 4)
        for _ in range(8):
            record = ask()
            assert (record["candidates"][0]["overlap_blocks"], record["predicted_cached_tokens"]) == (4, 3 * 16)
            assert record["outcome"]["cached_tokens"] == (3 - lacks) * 16
        assert record["candidates"][0]["confidence"] == 1


def test_what_was_cached_before_we_came_is_known(stack):
    """The replay socket tells a frontend that starts later."""
    engine = Engine(stack)
    other = Engine(stack)
    engine.ask(CHAT, stack.body(words(300)))
    serve(stack, [engine, other], "--router-mode", "kv")
    until("the replay has come", lambda: (stack.metric("dynamo_component_kv_cache_events_applied", status="ok",
                                                      event_type="stored") or 0) >= 1)
    assert stack.chat(words(300)).usage["prompt_tokens_details"]["cached_tokens"] >= CACHED


def test_without_events_caches_are_predicted(stack):
    engines = two(stack, events=False, kv_events="none")
    said = stack.front.log()
    assert said.count("none, caches are predicted") == 2
    def again():
        return stack.chat(words(300)).usage["prompt_tokens_details"]["cached_tokens"] >= CACHED and routed(stack)[-1][2] >= CACHED // 16
    until("a prediction finds the blocks", again)
    assert len(engines) == 2


def test_events_tell_the_block_size(stack):
    """An engine that does not say it: 16 is assumed until the first event shows another."""
    engine = Engine(stack, block_size=32)
    with FakeEngine(behind=engine) as fake:
        fake.spec += f",kv-events=tcp://127.0.0.1:{engine.events},kv-replay=tcp://127.0.0.1:{engine.replay}"
        fake.spec += f",model-path={MODEL_PATH}"
        serve(stack, [fake], "--router-mode", "kv")
        stack.chat(words(300))
        stack.front.wait_log("engine's events show its block size .*block_size=32")
        until("the prompt is known, by the replay", lambda: stack.models() and stack.metric(
            "commutator_router_index_blocks", model=MODEL) == CACHED // 32)
        assert stack.chat(words(300)).usage["prompt_tokens_details"]["cached_tokens"] >= CACHED
        assert routed(stack)[-1][2] == CACHED // 32


def test_an_engine_tokenizes(stack, tmp_path):
    """Nothing of the model is here: vLLM's /tokenize cuts the prompts."""
    model = tmp_path / "model"
    shutil.copytree(MODEL_PATH, model)
    engines = [Engine(stack, model_path=model) for _ in range(2)]
    shutil.rmtree(model)
    serve(stack, engines, "--router-mode", "kv")
    assert "an engine tokenizes prompts" in json.dumps(stack.get("/health").json["notes"])
    stack.chat(words(300))
    until("its blocks are known", lambda: (stack.metric("dynamo_component_kv_cache_events_applied", status="ok",
                                                        event_type="stored") or 0) >= 1)
    assert stack.chat(words(300)).usage["prompt_tokens_details"]["cached_tokens"] >= CACHED
    assert routed(stack)[-1][2] >= CACHED // 16
    assert stack.decisions() == {"kv": 2}


@pytest.mark.parametrize("head", [[], [1], [2, 1]])
def test_engines_begin_sequences(stack, head):
    """What an engine puts before prompts of completions is put before them here, too: blocks are cut there."""
    engine = Engine(stack)
    ids = lambda text: json.loads(engine.ask("/tokenize", {"prompt": text}))["tokens"]
    with FakeEngine({"/tokenize": (200, {"tokens": head + ids("a")})}) as fake:
        fake.spec += f",model-path={MODEL_PATH}"
        serve(stack, [fake], "--router-mode", "kv")
        stack.request("POST", COMPLETIONS, stack.body(words(100), COMPLETIONS))
        assert ROUTED.findall(stack.front.log())[-1][5] == str(len(head) + len(ids(words(100))))
        stack.chat("Hello")
        chat = json.loads(engine.ask("/tokenize", {"messages": [{"role": "user", "content": "Hello"}]}))["tokens"]
        assert ROUTED.findall(stack.front.log())[-1][5] == str(len(chat))


# --- engines that fail ---

@pytest.mark.parametrize("stream", [False, True])
def test_another_engine_takes_over(stack, stream):
    """One dies before its first token, for which it would take minutes: the other, which comes meanwhile, answers."""
    port, done = free_port(), []
    slow = Engine(stack, speedup=0.0002, events=False, kv_events="none")
    stack.frontend("--store-kv", "mem", "--engine-url", slow.spec, "--engine-url", f"http://127.0.0.1:{port},kv-events=none",
                   "--router-mode", "kv", DYN_LOG=ROUTED_LOG)
    stack.ready(1)
    thread = threading.Thread(target=lambda: done.append(stack.chat(words(200), max_tokens=1, stream=stream)))
    thread.start()
    until("it computes the prompt", lambda: slow.metric("vllm:num_requests_running"))
    Engine(stack, port=port, events=False)
    until("the other one is there", lambda: stack.workers() == 2)
    slow.process.kill()
    thread.join()
    assert done and done[0].status == 200 and done[0].text
    assert stack.metric("commutator_router_retries_total", model=MODEL) == 1
    assert stack.metric("dynamo_frontend_model_migration_total", model=MODEL, migration_type="new_request") == 1
    until("it is known to be lost", lambda: stack.metric("commutator_engines", state="down") == 1)
    assert stack.workers() == 1


def test_an_engine_that_dies_in_a_stream(stack):
    """The client is told."""
    engines = [Engine(stack, speedup=1)]
    serve(stack, engines)
    stream = stack.stream(max_tokens=10000, ignore_eos=True)
    for _ in range(3):
        next(stream.events)
    engines[0].process.kill()
    rest = list(stream.events)
    assert rest[-2][0] == "error" and "ended before generation completed" in rest[-2][1]
    assert rest[-1] == (None, "[DONE]")


def test_an_engine_comes_back(stack):
    engine, other = two(stack)
    stack.chat(words(300))
    engine.process.kill()
    until("it is known to be lost", lambda: stack.workers() == 1)
    again = Engine(stack, port=engine.port, events=False)
    until("it is back", lambda: stack.workers() == 2)
    assert stack.metric("commutator_engines", state="up") == 2 and again.url == engine.url and other
    stack.chat(words(300))


def test_nobody_is_there(stack):
    """The frontend starts, and says that it has no model yet."""
    stack.frontend("--store-kv", "mem", "--engine-url", f"http://127.0.0.1:{free_port()}")
    assert stack.models() == []
    assert stack.metric("commutator_engines", state="down") == 1


def test_a_client_that_leaves_is_seen_by_the_engine(stack):
    engines = [Engine(stack, speedup=1)]
    serve(stack, engines)
    stream = stack.stream(max_tokens=10000, ignore_eos=True)
    next(stream.events)
    until("it runs", lambda: engines[0].metric("vllm:num_requests_running") == 1)
    stream.close()
    until("the engine has aborted it", lambda: engines[0].metric("vllm:num_requests_running") == 0)
    assert not any(engines[0].metric("vllm:request_success_total", finished_reason=reason) for reason in ("abort", "stop", "length"))
    assert stack.metric("dynamo_frontend_disconnected_clients") == 1


# --- what is measured ---

def test_metrics(stack):
    two(stack)
    stack.chat(words(100), max_tokens=10, stream=True)
    stack.chat(words(100), max_tokens=10)
    assert stack.metric("dynamo_frontend_requests_total", status="success") == 2
    assert stack.metric("dynamo_frontend_output_tokens_total", model=MODEL) == 20
    assert stack.metric("dynamo_frontend_time_to_first_token_seconds_count", model=MODEL) == 2
    assert stack.metric("dynamo_frontend_inter_token_latency_seconds_count", model=MODEL) == 9
    assert stack.metric("dynamo_frontend_input_sequence_tokens_count", model=MODEL) == 2
    assert stack.metric("commutator_engines", state="up") == 2


def test_the_load_that_an_engine_reports(stack):
    """Requests of others count, too."""
    engine = Engine(stack, speedup=1)
    serve(stack, [engine])
    def others():
        with contextlib.suppress(OSError):
            engine.ask(CHAT, stack.body(words(600), max_tokens=15000, ignore_eos=True))
    thread = threading.Thread(target=others)
    thread.start()
    until("its load is known", lambda: stack.metric("commutator_engine_requests", state="running") == 1)
    until("its cache is known", lambda: (stack.metric("commutator_engine_kv_usage") or 0) > 0.03)
    until("the scheduler knows", lambda: (stack.metric("dynamo_frontend_worker_active_decode_blocks") or 0) >= 30)
    engine.process.kill()
    thread.join()
    until("its load is forgotten", lambda: not stack.metric("dynamo_frontend_worker_active_decode_blocks"))


# --- engines that lack something ---

class FakeEngine:
    """Any OpenAI server: models and completions; other answers as given (a status and a body, or a function that
    writes it), or those of an engine behind it."""

    def __init__(self, answers=None, behind=None, key=None):
        self.answers, self.asked, self.behind, self.key = answers or {}, [], behind, key
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.spec = f"http://127.0.0.1:{self.server.server_port}" + ("" if behind else ",kv-events=none")

    def handler(fake):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, value):
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def is_barred(self):
                barred = fake.key and self.headers["authorization"] != f"Bearer {fake.key}"
                if barred:
                    self.answer(401, {"error": "Unauthorized"})
                return barred

            def do_GET(self):
                if self.is_barred():
                    return
                if self.path == "/v1/models":
                    self.answer(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
                else:
                    self.answer(404, {"detail": "Not Found"})

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.is_barred():
                    return
                self.asked = body
                fake.asked.append((self.path, dict(self.headers), json.loads(body)))
                if callable(fake.answers.get(self.path)):
                    fake.answers[self.path](self)
                elif self.path in fake.answers:
                    self.answer(*fake.answers[self.path])
                elif fake.behind:
                    self.answer(200, json.loads(fake.behind.ask(self.path, json.loads(body))))
                elif self.path == "/tokenize":
                    self.answer(404, {"detail": "Not Found"})
                else:
                    self.answer(200, {"id": "x", "choices": [{"index": 0, "text": "hi", "finish_reason": "stop",
                                                              "message": {"role": "assistant", "content": "hi"}}],
                                      "model": MODEL, "usage": {"prompt_tokens": 9, "completion_tokens": 1}})
        return Handler

    def requests(self):
        return [asked for asked in self.asked if asked[0] != "/tokenize"]

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_any_openai_server(stack):
    """No tokenizer, no events, no metrics: by load, and it is said."""
    with FakeEngine() as one, FakeEngine() as two_:
        serve(stack, [one, two_], "--router-mode", "kv")
        until("it is said", lambda: "routed by load" in json.dumps(stack.get("/health").json["notes"]))
        for api in (CHAT, COMPLETIONS):
            answer = stack.request("POST", api, stack.body(words(100), api, nvext={"greed_sampling": True}),
                                   {"authorization": "Bearer k"})
            assert answer.status == 200 and answer.text == "hi"
        assert stack.decisions() == {"least-loaded": 2}
        asked = one.requests() + two_.requests()
        assert {path for path, *_ in asked} == {CHAT, COMPLETIONS}
        for _, headers, body in asked:
            assert "nvext" not in body and body["model"] == MODEL
            assert {key.lower(): value for key, value in headers.items()}["authorization"] == "Bearer k"


@pytest.mark.parametrize("api", [CHAT, COMPLETIONS])
def test_what_only_the_engine_knows_is_for_it_to_judge(stack, api):
    """As vLLM's own parameters; what we know is judged by us, as before."""
    with FakeEngine() as engine:
        serve(stack, [engine])
        asked = stack.body("Hello", api, structured_outputs={"choice": ["yes", "no"]}, bad_words=["maybe"], new_member=[1.5, None])
        assert stack.request("POST", api, asked).text == "hi"
        assert [body for _, _, body in engine.requests()] == [asked]
        answer = stack.request("POST", api, {**asked, "temperature": 9})
        assert answer.status == 400 and "temperature" in answer.json["error"]["message"] and len(engine.requests()) == 1


def test_embeddings(stack):
    """Of an engine that has them, under its own words, and of one that says it has none."""
    whole = {"object": "list", "model": MODEL, "usage": {"prompt_tokens": 2, "total_tokens": 2},
             "data": [{"object": "embedding", "index": i, "embedding": [0.125, -1]} for i in range(2)]}
    with FakeEngine({"/v1/embeddings": (200, whole)}) as engine:
        serve(stack, [engine], "--router-mode", "kv")
        asked = {"model": MODEL, "input": ["a", "b"], "encoding_format": "float", "dimensions": 2}
        answer = stack.request("POST", "/v1/embeddings", {**asked, "nvext": {"annotations": []}})
        assert answer.status == 200 and answer.json == whole
        assert [(path, body) for path, _, body in engine.requests()] == [("/v1/embeddings", asked)]
        assert stack.metric("dynamo_frontend_requests_total", endpoint="embeddings", status="success") == 1
        assert stack.metric("dynamo_frontend_input_sequence_tokens_count") == 1
        assert not stack.metric("dynamo_frontend_output_tokens_total")
        engine.answers["/v1/embeddings"] = (400, {"error": {"message": "no embeddings here", "code": 400}})
        answer = stack.request("POST", "/v1/embeddings", asked)
        assert answer.status == 400 and "no embeddings here" in answer.json["error"]["message"]


def test_a_busy_engine_is_left_for_another(stack):
    busy = (503, {"error": {"message": "no"}})
    with FakeEngine({CHAT: busy}) as one, FakeEngine() as other:
        serve(stack, [one, other], "--router-mode", "round-robin")
        for _ in range(3):
            assert stack.chat().text == "hi"
        assert len(other.requests()) == 3
        assert stack.metric("commutator_router_retries_total", reason="refused") >= 1


# --- Kubernetes ---

def own_address():
    """An address of this machine that an EndpointSlice may hold: not the loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                packed = fcntl.ioctl(s, 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
                if packed[20] != 127:
                    return socket.inet_ntoa(packed[20:24])
    return unavailable("no address but the loopback's")


def slice_of(graph, engine, address, pod, ready):
    """What the endpoint controller makes of the operator's Service."""
    graph.apply({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                 "metadata": {"name": pod, "namespace": graph.ns, "labels": {
                     "commutator.dev/engine": "vllm", "commutator.dev/engine-kv-events-port": str(engine.events),
                     "commutator.dev/engine-kv-replay-port": str(engine.replay)}},
                 "ports": [{"name": "http", "port": engine.port, "protocol": "TCP"}],
                 "endpoints": [{"addresses": [address], "conditions": {"ready": ready},
                                "targetRef": {"kind": "Pod", "name": pod}}]})


def test_ready_pods_are_found(tmp_path, api):
    """By the EndpointSlices of Services that the operator labels; no record is written by such a pod."""
    address = own_address()
    with Graph(tmp_path, api) as graph:
        engines = {pod: Engine(graph, host=address) for pod in ("worker-0", "worker-1")}
        graph.frontend("--router-mode", "kv", **graph.pod("frontend-0"), DYN_LOG=ROUTED_LOG)
        for pod, engine in engines.items():
            slice_of(graph, engine, address, pod, pod == "worker-0")
        graph.ready(1)
        assert graph.instances() == [0x43710F49C0CFF]  # named by its pod, as a worker of Dynamo
        graph.chat(words(300))
        until("its blocks are known", lambda: (graph.metric("dynamo_component_kv_cache_events_applied", status="ok",
                                                            event_type="stored") or 0) >= 1)
        slice_of(graph, engines["worker-1"], address, "worker-1", True)
        graph.ready(2)
        assert graph.chat(words(300)).usage["prompt_tokens_details"]["cached_tokens"] >= CACHED
        assert routed(graph)[-1][1:] == (0x43710F49C0CFF, CACHED // 16)
        slice_of(graph, engines["worker-0"], address, "worker-0", False)
        graph.ready(1)
        assert graph.chat(words(300)).status == 200
        assert routed(graph)[-1][1] != 0x43710F49C0CFF
        graph.api.kubectl("-n", graph.ns, "delete", "endpointslice", "worker-1")
        until("the model is gone", lambda: graph.models() == [])
    api.kubectl("delete", "namespace", graph.ns, "--wait=false")


# --- beside others ---

def test_beside_workers_of_dynamo(stack, tmp_path):
    """One frontend, two models: one by the file store, one by URL."""
    stack.mocker()
    engine = Engine(stack, model="other")
    stack.frontend("--engine-url", engine.spec)
    until("both are there", lambda: sorted(stack.models()) == [MODEL, "other"])
    assert stack.chat().status == 200
    assert stack.chat(model="other").status == 200
    kinds = {kind for instance in stack.get("/health").json["instances"] for kind in instance["transport"]}
    assert kinds == {"tcp", "openai"}
    assert request_id(stack.chat())
