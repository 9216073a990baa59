# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of dynamo-frontend, in front of one mocker: answers, errors, connections, format."""

import json
import os
import re
import socket
import time

import pytest

from stack import CHAT, COMPLETIONS, MODEL, PATIENCE, SOON, Stack, sse, until

CONTEXT = 32768


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    with Stack(tmp_path_factory.mktemp("frontend")) as stack:
        yield stack.up("--router-mode", "kv", blocks=4096)


def error_of(answer, status, says=""):
    """Checks OpenAI's error shape and returns the error."""
    assert answer.status == status, (answer.status, answer.body[:300])
    assert answer.headers["content-type"] == "application/json"
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    assert re.search(says, error["message"], re.IGNORECASE), error["message"]
    return error


# --- answers ---

def test_unary_chat(stack):
    answer = stack.chat("Say something.", max_tokens=8, ignore_eos=True)
    body = answer.json
    choice = body["choices"][0]
    assert body["object"] == "chat.completion" and body["model"] == MODEL and body["id"].startswith("chatcmpl-")
    assert choice["message"]["role"] == "assistant" and choice["message"]["content"].strip()
    assert choice["finish_reason"] == "length" and choice["index"] == 0
    usage = body["usage"]
    assert usage["completion_tokens"] == 8
    assert usage["total_tokens"] == usage["prompt_tokens"] + 8


def test_streamed_chat(stack):
    answer = stack.chat("Say something.", max_tokens=8, ignore_eos=True, stream=True,
                        stream_options={"include_usage": True})
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.events[-1] == (None, "[DONE]")
    assert len({chunk["id"] for chunk in answer.chunks}) == 1
    assert answer.text.strip()
    finishes = [c["finish_reason"] for chunk in answer.chunks for c in chunk["choices"] if c["finish_reason"]]
    assert finishes == ["length"]
    assert answer.chunks[-1]["choices"] == [] and answer.usage["completion_tokens"] == 8


def test_stream_says_what_the_unary_answer_says(stack):
    """The mocker draws from a seed of the request's own, so that only the length can be compared."""
    for api in (CHAT, COMPLETIONS):
        counted = [stack.request("POST", api, stack.body("One two three", api, max_tokens=5, ignore_eos=True, **more))
                   for more in ({}, {"stream": True, "stream_options": {"include_usage": True}})]
        assert [(a.usage["prompt_tokens"], a.usage["completion_tokens"]) for a in counted] == \
            [(counted[0].usage["prompt_tokens"], 5)] * 2
        assert all(a.text for a in counted)


@pytest.mark.parametrize("prompt", ["Once upon a time", list(range(300, 350)), ["Once upon a time"], [[300, 301]]])
def test_prompts(stack, prompt):
    answer = stack.request("POST", COMPLETIONS, stack.body(prompt, COMPLETIONS))
    assert answer.status == 200, answer.body
    body = answer.json
    assert body["object"] == "text_completion" and body["id"].startswith("cmpl-")
    ids = prompt[0] if isinstance(prompt[0], list) else prompt
    if isinstance(ids[0], int):
        assert body["usage"]["prompt_tokens"] == len(ids)
    assert body["choices"][0]["text"]


def test_cached_tokens(stack):
    prompt = [1000 + i for i in range(160)]
    first, second = (stack.request("POST", COMPLETIONS, stack.body(prompt, COMPLETIONS)).usage for _ in range(2))
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] >= 128


def test_stop_string_and_max_tokens(stack):
    # Every text of the mocker holds a space sooner or later.
    answer = stack.chat(stop=[" "], max_tokens=50, ignore_eos=False)
    assert answer.json["choices"][0]["finish_reason"] == "stop" and " " not in answer.text
    assert answer.usage["completion_tokens"] < 50
    assert stack.chat(max_tokens=100, max_completion_tokens=3).usage["completion_tokens"] == 3


def test_min_tokens_and_ignore_eos(stack):
    late = stack.chat(stop=[" "], max_tokens=50, min_tokens=12, ignore_eos=False)
    assert late.json["choices"][0]["finish_reason"] == "stop" and 12 <= late.usage["completion_tokens"] < 50
    never = stack.chat(stop=[" "], max_tokens=20, ignore_eos=True)
    assert never.json["choices"][0]["finish_reason"] == "length" and never.usage["completion_tokens"] == 20
    assert " " in never.text


def test_null_members_count_as_absent(stack):
    stack.chat(temperature=None, stop=None, stream=None, nvext=None, tools=None, n=None)


def test_models(stack):
    body = stack.get("/v1/models").json
    assert body["object"] == "list"
    assert [(m["id"], m["object"], m["owned_by"]) for m in body["data"]] == [(MODEL, "model", "nvidia")]


def test_health(stack):
    body = stack.get("/health").json
    assert body["status"] == "healthy" and body["notes"] == []
    assert body["endpoints"] == ["dyn://dynamo.backend.generate"]
    assert re.fullmatch(r"127\.0\.0\.1:\d+/[0-9a-f]+/generate", body["instances"][0]["transport"]["tcp"])
    live = stack.get("/live")
    assert live.status == 200 and live.json["status"] == "live"


def test_metrics(stack):
    before = stack.metric("dynamo_frontend_requests_total", model=MODEL, endpoint="chat_completions",
                          request_type="unary", status="success") or 0
    stack.chat()
    assert stack.metric("dynamo_frontend_requests_total", model=MODEL, endpoint="chat_completions",
                        request_type="unary", status="success") == before + 1
    for name in ("time_to_first_token_seconds_count", "inter_token_latency_seconds_count", "output_tokens_total",
                 "input_sequence_tokens_sum", "request_duration_seconds_count"):
        assert stack.metric(f"dynamo_frontend_{name}", model=MODEL) > 0, name
    assert stack.metric("dynamo_frontend_model_context_length", model=MODEL) == CONTEXT
    assert stack.metric("dynamo_frontend_model_kv_cache_block_size", model=MODEL) == 16


def test_turns_are_tokenized_once(stack):
    """What a conversation begins with is known from its last prompt, and counts for the same tokens."""
    def count(kind):
        return stack.metric(f"dynamo_frontend_tokenizer_cache_{kind}_total") or 0

    talk = [{"role": "user", "content": "Tell me all that you know of tokenizers. " * 20}]
    before = {kind: count(kind) for kind in ("hits", "misses", "cached_tokens", "uncached_tokens")}
    first = stack.chat(messages=talk, max_tokens=2).usage["prompt_tokens"]
    assert (count("hits"), count("misses")) == (before["hits"], before["misses"] + 1)
    talk += [{"role": "assistant", "content": "Much."}, {"role": "user", "content": "Go on."}]
    second = stack.chat(messages=talk, max_tokens=2).usage["prompt_tokens"]
    assert (count("hits"), count("misses")) == (before["hits"] + 1, before["misses"] + 1)
    cached, fresh = (count(kind) - before[kind] for kind in ("cached_tokens", "uncached_tokens"))
    assert cached + fresh == first + second and first - 20 < cached < first
    assert stack.metric("commutator_tokenizer_cache_reused_bytes_total") > 500
    assert stack.metric("commutator_tokenizer_cache_bytes") > 500


def test_busy_threshold(stack):
    post = lambda **body: stack.request("POST", "/busy_threshold", body)
    assert stack.get("/busy_threshold").json == {"thresholds": []}
    assert post(model=MODEL).json["active_decode_blocks_threshold"] is None
    error_of(post(model="nope"), 404)
    error_of(post(model=MODEL, active_decode_blocks_threshold=1.5), 400)
    error_of(stack.request("POST", "/busy_threshold", "{"), 422)
    error_of(post(active_decode_blocks_threshold=0.5), 422, "model")
    error_of(post(model=MODEL, active_decode_blocks_threshold="x"), 422)
    set_to = post(model=MODEL, active_decode_blocks_threshold=1.0, active_prefill_tokens_threshold=1000000)
    assert set_to.json == {"model": MODEL, "active_decode_blocks_threshold": 1.0,
                           "active_prefill_tokens_threshold": 1000000}
    assert stack.get("/busy_threshold").json["thresholds"] == [set_to.json]
    stack.chat()


# --- errors ---

MALFORMED = ["", "{", '{"model":', "nonsense", '{"model":"example",}', '{"a":1}{"b":2}', '{"a":"\\ud800"}x', "[" * 5000,
             '{"model":"exa\x01mple"}']


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_json(stack, text):
    error_of(stack.request("POST", CHAT, text), 400, "JSON")


@pytest.mark.parametrize("api", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("body", ["[]", '"text"', "17", "null"])
def test_body_that_is_no_object(stack, api, body):
    error_of(stack.request("POST", api, body), 400, "object")


ABSURD = [("max_tokens", -1), ("max_tokens", 1.5), ("max_tokens", "4"), ("max_tokens", 2**40), ("max_tokens", [1]),
          ("max_completion_tokens", 0), ("max_completion_tokens", -7), ("min_tokens", -1), ("temperature", -0.1),
          ("temperature", 2.1), ("temperature", 1e308), ("temperature", "hot"), ("top_p", -1), ("top_p", 0), ("top_p", 1.01),
          ("min_p", 7), ("top_k", -2), ("presence_penalty", 3), ("frequency_penalty", -3),
          ("repetition_penalty", 0), ("repetition_penalty", -1), ("n", 0), ("n", -1), ("n", 129),
          ("logit_bias", {"1": 101}), ("logit_bias", []), ("stop", [""]), ("stop", ["a"] * 129), ("stop", 7),
          ("stream", "yes"), ("stream", 1), ("stream_options", 1), ("stream_options", {"include_usage": True}),
          ("user", ""), ("seed", 1.5), ("seed", "x"), ("top_logprobs", 21), ("logprobs", 7), ("tools", {}),
          ("tools", [{}] * 129), ("ignore_eos", "x"), ("nvext", 7), ("nvext", {"backend_instance_id": -1}),
          ("nvext", {"backend_instance_id": "x"}), ("nvext", {"annotations": 4}), ("model", 7), ("model", ""),
          ("messages", "hi"), ("messages", []), ("messages", {}), ("messages", [7]), ("messages", [{}]),
          ("messages", [{"role": "user", "content": 7}]), ("messages", [{"role": "user", "content": {"a": 1}}]),
          ("messages", [{"role": 7, "content": "x"}]), ("chat_template_args", 7)]


@pytest.mark.parametrize("key,value", ABSURD, ids=[f"{key}={json.dumps(value)[:30]}" for key, value in ABSURD])
def test_absurd_parameter(stack, key, value):
    error = error_of(stack.request("POST", CHAT, stack.body("x", **{key: value})), 400)
    where = error["param"] or error["message"]
    assert key in where or key == "nvext" and any(member in where for member in value)


@pytest.mark.parametrize("prompt", ["", [], [[]], [-1], [2**32], [1.5], ["a", ""], [1, "a"], {}, 7, [None], None])
def test_absurd_prompt(stack, prompt):
    error_of(stack.request("POST", COMPLETIONS, stack.body(prompt, COMPLETIONS)), 400)


def test_prompt_id_outside_of_the_vocabulary(stack):
    answer = stack.request("POST", COMPLETIONS, stack.body([4294967295], COMPLETIONS))
    assert answer.status == 200 or error_of(answer, 400)


def test_unsupported_parameter(stack):
    error = error_of(stack.request("POST", CHAT, stack.body("x", frobnicate=1, wobble=2)), 400, "frobnicate.*wobble")
    assert error["type"] == "invalid_request_error"
    error_of(stack.request("POST", COMPLETIONS, stack.body("x", COMPLETIONS, messages=[])), 400, "messages")


def test_unknown_model(stack):
    for api in (CHAT, COMPLETIONS):
        error = error_of(stack.request("POST", api, stack.body("x", api, model="gpt-17")), 404, "not found")
        assert error["type"] == "not_found_error" and error["code"] == 404


def test_prompt_longer_than_the_context(stack):
    error_of(stack.request("POST", COMPLETIONS, stack.body([7] * CONTEXT, COMPLETIONS)), 400, str(CONTEXT))
    error_of(stack.request("POST", CHAT, stack.body("word " * 40000)), 400, str(CONTEXT))


def test_body_too_large(stack):
    with socket.create_connection(("127.0.0.1", stack.port), timeout=PATIENCE) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                           b"content-length: 60000000\r\n\r\n" + b"x" * 1000)
        head, body = read_answer(connection)
    assert head.startswith(b"HTTP/1.1 413 ")
    assert json.loads(body)["error"]["code"] == 413
    assert stack.request("POST", "/busy_threshold", "x" * 100000).status == 413


def test_head_too_large(stack):
    with socket.create_connection(("127.0.0.1", stack.port), timeout=PATIENCE) as connection:
        connection.sendall(b"GET /live HTTP/1.1\r\nhost: x\r\nx-big: " + b"y" * (70 << 10) + b"\r\n\r\n")
        head, body = read_answer(connection)
    assert head.startswith(b"HTTP/1.1 431 ") and json.loads(body)["error"]["code"] == 431


def test_wrong_method_and_path(stack):
    error_of(stack.request("GET", CHAT), 405)
    error_of(stack.request("DELETE", "/v1/models"), 405)
    error_of(stack.request("GET", "/v1/nothing"), 404)
    error_of(stack.request("POST", "/v1/chat", "{}"), 404)


@pytest.mark.parametrize("text", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                                  b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5x\r\n\r\n",
                                  b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n"])
def test_bytes_that_are_no_http(stack, text):
    with socket.create_connection(("127.0.0.1", stack.port), timeout=PATIENCE) as connection:
        connection.sendall(text + b"\r\n\r\n")
        received = b""
        while part := connection.recv(65536):
            received += part
    assert re.match(rb"HTTP/1.1 (400|404|505) |$", received), received[:200]
    assert stack.get("/live").status == 200


def test_prompts_and_answers_stay_out_of_the_log(stack):
    secret = "zanzibarquartz"
    text = stack.chat(secret, max_tokens=20, ignore_eos=True).text
    stack.request("POST", CHAT, stack.body(secret, frobnicate=1))
    stack.request("POST", CHAT, '{"model":"example","messages":[{"role":"user","content":"' + secret)
    assert secret not in stack.front.log() and text.strip() not in stack.front.log()


# --- connections ---

def read_answer(connection):
    """Head and body of one answer with content-length."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        assert part, received
        received += part
    head, body = received.split(b"\r\n\r\n", 1)
    length = int(re.search(rb"content-length: (\d+)", head.lower()).group(1))
    while len(body) < length:
        body += connection.recv(65536)
    assert len(body) == length
    return head, body


def raw_request(path, body, **headers):
    text = json.dumps(body).encode()
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return (f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{lines}"
            f"content-length: {len(text)}\r\n\r\n").encode() + text


def test_keep_alive(stack):
    connection = stack.connect()
    connection.connect()
    port = connection.sock.getsockname()[1]
    for stream in (False, True, False, True):
        connection.request("POST", CHAT, json.dumps(stack.body("x", stream=stream)),
                           {"content-type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200 and response.read()
        assert connection.sock.getsockname()[1] == port
    connection.close()


def test_pipelined_requests(stack):
    """Answers come in the order of the requests, whatever kind they are."""
    request = raw_request(CHAT, stack.body("x"))
    with socket.create_connection(("127.0.0.1", stack.port), timeout=PATIENCE) as connection:
        connection.sendall(request + b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n" +
                           raw_request(CHAT, stack.body("x", frobnicate=1)) +
                           request + b"GET /live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        received = b""
        while part := connection.recv(65536):
            received += part
    assert re.findall(rb"HTTP/1.1 (\d+) ", received) == [b"200", b"200", b"400", b"200", b"200"]
    kinds = re.findall(rb"chat\.completion|Service is live|Unsupported", received)
    assert kinds[:3] == [b"chat.completion", b"Service is live", b"Unsupported"] and kinds[-1] == b"Service is live"


def test_requests_sent_byte_by_byte(stack):
    with socket.create_connection(("127.0.0.1", stack.port), timeout=PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in raw_request(CHAT, stack.body("x")):
            connection.send(bytes([byte]))
        head, body = read_answer(connection)
    assert head.startswith(b"HTTP/1.1 200 ") and json.loads(body)["choices"]


def test_head_leaves_with_the_first_chunk(stack):
    """The reference sends the head alone and then waits 40 ms for its acknowledgement."""
    with socket.create_connection(("127.0.0.1", stack.port), timeout=PATIENCE) as connection:
        for _ in range(5):
            connection.sendall(raw_request(CHAT, stack.body("x", stream=True, max_tokens=40, ignore_eos=True)))
            first = connection.recv(1 << 20)
            assert first.startswith(b"HTTP/1.1 200 ") and b"data: {" in first, first
            rest = first
            while not rest.endswith(b"0\r\n\r\n"):
                rest += connection.recv(1 << 20)


def test_long_prompt(stack):
    """Long enough to be tokenized on a pool thread, which clients may leave in the midst of."""
    assert stack.chat("so many words " * 6000).usage["prompt_tokens"] > 15000
    for seed in range(10):
        with socket.create_connection(("127.0.0.1", stack.port), timeout=PATIENCE) as connection:
            connection.sendall(raw_request(CHAT, stack.body(f"{seed} many words " * 6000)))
    until("nothing is left of them", lambda: not stack.loads())
    stack.chat()


def test_slow_reader_holds_up_nobody(stack):
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", stack.port))
        slow.sendall(raw_request(CHAT, stack.body("x", stream=True, max_tokens=3000, ignore_eos=True)))
        assert slow.recv(100)
        stack.chat(max_tokens=20)
        received = b""
        slow.settimeout(PATIENCE)
        while not received.endswith(b"0\r\n\r\n"):
            received += slow.recv(65536)
        assert received.count(b"data: {") > 2900 and b"data: [DONE]" in received


# --- format ---

def shape(value, path=""):
    """Keys of a JSON value in their order, with types in place of what differs between two runs."""
    if isinstance(value, dict):
        return {key: shape(member, key) for key, member in value.items()}
    if isinstance(value, list):
        return [shape(member, path) for member in value]
    if path in ("id", "created", "model", "content", "text", "prompt_tokens", "total_tokens", "cached_tokens"):
        return type(value).__name__
    return value


def ordered(value):
    return json.dumps(shape(value))


def test_nvext_tells_worker_and_timing(stack, shared):
    """As the reference's capture 05: the worker on every chunk, the timing on the last."""
    begun = time.monotonic()
    answer = stack.chat(stream=True, max_tokens=3, ignore_eos=True, nvext={"extra_fields": ["worker_id", "timing"]})
    took_ms = (time.monotonic() - begun) * 1000
    captured = (shared / "data/wire/1.x/file-nats-kv/http/05-chat-nvext.response.txt").read_text()
    theirs = [json.loads(data) for event, data in sse(captured.replace("\r\n", "\n").partition("\n\n")[2]
                                                      .splitlines(keepends=True)) if not event and data != "[DONE]"]
    keys = lambda chunks: [(list(chunk["nvext"]), list(chunk["nvext"]["worker_id"])) for chunk in chunks]
    assert keys(answer.chunks) == keys(theirs)
    worker = stack.instances()[0]
    assert {tuple(chunk["nvext"]["worker_id"].values()) for chunk in answer.chunks} == {(worker, 0, worker, 0)}
    timing = answer.chunks[-1]["nvext"]["timing"]
    assert 0 < timing["ttft_ms"] <= timing["total_time_ms"] < took_ms and 0 <= timing["kv_hit_rate"] <= 1
    assert not any("nvext" in chunk for chunk in stack.chat(stream=True).chunks)


CAPTURES = ["01-chat-stream", "02-chat-stream-same-prompt-again", "03-chat-unary", "04-completions-token-ids",
            "07-unknown-model"]


@pytest.mark.parametrize("name", CAPTURES)
def test_same_format_as_the_reference(stack, shared, name):
    folder = shared / "data/wire/1.x/file-nats-kv/http"
    body = json.loads((folder / f"{name}.request.json").read_text())
    head, _, captured = (folder / f"{name}.response.txt").read_text().replace("\r\n", "\n").partition("\n\n")
    if body["model"] != "nope":
        body.update(model=MODEL, ignore_eos=True)
    ours = stack.request("POST", COMPLETIONS if "prompt" in body else CHAT, body)
    assert head.startswith(f"HTTP/1.1 {ours.status} ")
    for header in ("content-type", "cache-control"):
        said = re.search(rf"^{header}: (.*)$", head, re.MULTILINE)
        assert (said and said.group(1)) == ours.headers.get(header)
    if not body.get("stream"):
        theirs, mine = json.loads(captured), ours.json
        mine.pop("error", None)  # OpenAI's shape beside the reference's flat one
        assert ordered(mine) == ordered(theirs)
        return
    theirs = [json.loads(data) if data != "[DONE]" else data for _, data in sse(captured.splitlines(keepends=True))]
    mine = [json.loads(data) if data != "[DONE]" else data for _, data in ours.events]
    assert [ordered(chunk) for chunk in mine] == [ordered(chunk) for chunk in theirs]


# --- start and stop ---

def test_running_streams_end_before_the_frontend_stops(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        stack.up(speedup=5)
        stream = stack.stream(max_tokens=60, ignore_eos=True, stream_options={"include_usage": True})
        next(stream.events)
        stack.front.terminate()
        stack.front.wait_log("draining")
        events = list(stream.events)
        assert events[-1] == (None, "[DONE]")
        assert json.loads(events[-2][1])["usage"]["completion_tokens"] == 60
        assert stack.front.end(SOON) == 0


def test_models_before_and_after_workers(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        stack.frontend()
        assert stack.models() == []
        error_of(stack.request("POST", CHAT, stack.body("x")), 404)
        mocker = stack.mocker()
        stack.ready(1)
        stack.chat()
        assert mocker.stop() == 0
        until("the model is gone", lambda: stack.models() == [])
        error_of(stack.request("POST", CHAT, stack.body("x")), 404)


@pytest.mark.parametrize("flags", [["--router-mode", "clever"], ["--http-port", "99999"], ["--frobnicate"],
                                   ["--router-temperature", "-1"], ["--kv-overlap-score-weight", "x"]])
def test_refused_at_start(tmp_path, flags):
    from conftest import program, run
    done = run(program("dynamo-frontend"), *flags, check=False)
    assert done.returncode not in (0, -6, -11) and flags[0].lstrip("-") in done.stderr + done.stdout


@pytest.mark.parametrize("model", ["ais", "aic"])
@pytest.mark.parametrize("command", [["dynamo-frontend"], ["dynamo-router", "select"], ["dynamo-router", "route", "--endpoint", "a.b.c"]])
def test_prompts_are_not_predicted_by_a_simulator(command, model):
    """Said in words, by flag and variable; \"none\" is the default of the reference."""
    from conftest import program, run
    for flags, env in ((["--router-prefill-load-model", model], {}), ([], {"DYN_ROUTER_PREFILL_LOAD_MODEL": model})):
        done = run(program(command[0]), *command[1:], *flags, check=False, env={**os.environ, **env})
        assert done.returncode not in (0, -6, -11) and "only none is here" in done.stderr + done.stdout
    helped = run(program(command[0]), *command[1:2], "--router-prefill-load-model", "none", "--help")
    assert "router-prefill-load-model" in helped.stdout
