# SPDX-License-Identifier: Apache-2.0
"""What plain OpenAI servers serve beside chats and completions: /v1/responses, /v1/messages and their other APIs, in their
own words; as chats where they do not serve them. And the key that they want to be shown."""

import json
import threading

import anthropic
import openai
import pytest

from stack import CHAT, MODEL, MODEL_PATH, RESPONSES, ROUTED, Stack, until, words
from test_stock_engine import CACHED, Engine, FakeEngine, routed, serve

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
APIS = [RESPONSES, MESSAGES]
FLAG = "--enable-anthropic-api"
NOT_FOUND = (404, {"detail": "Not Found"})


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield stack


def body(api, content="Hello", **more):
    if api == RESPONSES:
        return {"model": MODEL, "input": content, "max_output_tokens": 16, **more}
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 16, **more}


# --- answers of vLLM 0.32.0, shortened ---

def response(model, usage=None):
    return {"id": "resp_1", "object": "response", "model": model, "status": "completed", "error": None, "new_member": [1.0],
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}], "usage": usage}


def message(model, usage):
    return {"id": "chatcmpl-1", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}],
            "model": model, "stop_reason": "end_turn", "usage": usage}


USAGE = {RESPONSES: {"input_tokens": 28, "input_tokens_details": {"cached_tokens": 16}, "output_tokens": 4},
         MESSAGES: {"input_tokens": 12, "output_tokens": 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 16}}


def whole(api, model):
    return (response if api == RESPONSES else message)(model, USAGE[api])


def events(api, model):
    if api == RESPONSES:
        found = [{"type": "response.created", "response": response(model), "sequence_number": 0},
                 {"type": "response.output_text.delta", "delta": "h", "sequence_number": 1},
                 {"type": "response.output_text.delta", "delta": "i", "sequence_number": 2},
                 {"type": "response.completed", "response": whole(api, model), "sequence_number": 3}]
    else:
        found = [{"type": "message_start", "message": message(model, {"input_tokens": 12, "output_tokens": 0})},
                 {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "h"}, "index": 0},
                 {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "i"}, "index": 0},
                 {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE[api]},
                 {"type": "message_stop"}]
    return [(event["type"], json.dumps(event)) for event in found]


def stream_of(said, cut=False, after=lambda handler: None):
    """A function that answers with these events, then ends, or breaks off."""
    def write(handler):
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for name, data in said:
            part = f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n"
            handler.wfile.write(f"{len(part.encode()):x}\r\n{part}\r\n".encode())
        after(handler)
        if cut:
            handler.close_connection = True
        else:
            handler.wfile.write(b"0\r\n\r\n")
    return write


def requests_total(stack, **labels):
    return stack.metric("dynamo_frontend_requests_total", model=MODEL, **labels)


# --- in the engine's own words ---

@pytest.mark.parametrize("api", APIS)
def test_a_stream_is_the_engines_own(stack, api):
    """But for the model's name, also where it stands within an event; and what is counted of it."""
    with FakeEngine({api: stream_of(events(api, MODEL))}) as engine:
        engine.spec += ",model=alias"
        stack.frontend("--store-kv", "mem", "--engine-url", engine.spec, FLAG)
        until("the model is there", lambda: stack.models() == ["alias"])
        asked = body(api, model="alias", stream=True, new_member={"a": 1})
        answer = stack.request("POST", api, {**asked, "nvext": {"greed_sampling": True}}, {"authorization": "Bearer k"})
        assert answer.status == 200 and answer.headers["content-type"] == "text/event-stream"
        assert answer.events == events(api, "alias")
        [(path, headers, got)] = engine.requests()
        assert path == api and got == {**asked, "model": MODEL}
        headers = {key.lower(): value for key, value in headers.items()}
        assert headers["authorization"] == "Bearer k" and headers["x-request-id"] == answer.headers["x-request-id"]
        endpoint = "responses" if api == RESPONSES else "anthropic_messages"
        assert stack.metric("dynamo_frontend_requests_total", endpoint=endpoint, request_type="stream", status="success") == 1
        assert stack.metric("dynamo_frontend_output_tokens_total", model="alias") == 4
        [outcome] = [one["outcome"] for one in stack.get(f"/explain/{answer.headers['x-request-id']}").json["decisions"]]
        assert outcome["ended"] == "finished" and outcome["cached_tokens"] == 16 and outcome["output_tokens"] == 4


@pytest.mark.parametrize("api", APIS)
def test_a_whole_answer_is_the_engines_own(stack, api):
    with FakeEngine({api: (200, whole(api, MODEL))}) as engine:
        serve(stack, [engine], FLAG)
        answer = stack.request("POST", api, body(api), {"x-request-id": "mine"})
        assert answer.status == 200 and answer.json == whole(api, MODEL)
        assert stack.metric("dynamo_frontend_output_tokens_total", model=MODEL) == 4
        assert stack.get("/explain/mine").json["decisions"][-1]["outcome"]["cached_tokens"] == 16


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("refused", [
    (400, {"error": {"message": "seven is too many", "type": "BadRequestError", "param": "p", "code": 400}}),
    (404, {"type": "error", "error": {"type": "NotFoundError", "message": "seven"}}), (422, {"detail": [{"loc": ["body"]}]}),
    (401, {"error": "Unauthorized"}), (500, {"error": {"message": "seven"}})])
def test_refusals_are_the_engines_own(stack, api, refused):
    """To the byte; but words that may quote a prompt do not reach the log."""
    with FakeEngine({api: refused, CHAT: refused}) as engine:
        serve(stack, [engine], FLAG)
        asked = body(api, stream=True) | ({"previous_response_id": "r"} if api == RESPONSES else {"messages": [{"role": "new"}]})
        answer = stack.request("POST", api, asked)
        assert (answer.status, answer.json) == refused
        assert [path for path, *_ in engine.requests()] == [api]
        log = stack.front.log()
        assert "request failed" in log and "seven" not in log


@pytest.mark.parametrize("api, more", [
    (RESPONSES, {"input": [{"type": "new_kind", "x": [1]}]}), (RESPONSES, {"background": True}), (RESPONSES, {"tools": [{"type": "web_search"}]}),
    (MESSAGES, {"messages": [{"role": "new", "content": 7}]}), (MESSAGES, {"max_tokens": None})])
def test_what_only_the_engine_understands_goes_there(stack, api, more):
    with FakeEngine({api: (200, whole(api, MODEL))}) as engine:
        serve(stack, [engine], FLAG, "--router-mode", "kv")
        asked = body(api) | more
        assert stack.request("POST", api, asked).json == whole(api, MODEL)
        assert engine.requests()[0][2] == asked
        for bad in ({**asked, "model": 7}, {**asked, "stream": "x"}, [asked]):
            assert stack.request("POST", api, bad).status in (400, 501)
        assert stack.request("POST", api, {**asked, "model": "other"}).status in (400, 404, 501)
        assert len(engine.requests()) == 1


@pytest.mark.parametrize("api", APIS)
def test_errors_within_a_stream(stack, api):
    """Before the first token they have a status; behind it the engine's own event, or one of the API when it breaks off."""
    error = ("error", json.dumps({"type": "error", "error": {"type": "x", "message": "seven"}}))
    said = events(api, MODEL)
    with FakeEngine({api: stream_of([said[0], error])}) as engine:
        serve(stack, [engine], FLAG)
        answer = stack.request("POST", api, body(api, stream=True))
        assert answer.status == 500 and answer.json["error"]["message"] == "seven"
        engine.answers[api] = stream_of([*said[:2], error])
        answer = stack.request("POST", api, body(api, stream=True))
        assert answer.status == 200 and answer.events == [*said[:2], error]
        engine.answers[api] = stream_of(said[:2], cut=True)
        answer = stack.request("POST", api, body(api, stream=True))
        assert answer.events[:-1] == said[:2]
        name, data = answer.events[-1]
        data = json.loads(data)
        assert name == data["type"] == "error"
        if api == RESPONSES:
            assert data["sequence_number"] == 2 and "ended before" in data["message"]
        else:
            assert "ended before" in data["error"]["message"]
        assert requests_total(stack, status="error", request_type="stream") == 3


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [False, True])
def test_another_engine_takes_over(stack, api, stream):
    """From one that is busy, and one that breaks off before its first token."""
    good = stream_of(events(api, MODEL)) if stream else (200, whole(api, MODEL))
    with FakeEngine({api: (503, {"error": {"message": "no"}})}) as one, FakeEngine({api: good}) as other:
        serve(stack, [one, other], FLAG, "--router-mode", "round-robin")
        for _ in range(2):
            answer = stack.request("POST", api, body(api, stream=stream))
            assert answer.status == 200
            assert answer.events == events(api, MODEL) if stream else answer.json == whole(api, MODEL)
        assert len(other.requests()) == 2
        assert stack.metric("commutator_router_retries_total", reason="refused") >= 1
        one.answers[api] = stream_of(events(api, MODEL)[:1], cut=True)
        until("it was asked again", lambda: stack.request("POST", api, body(api, stream=stream)).status == 200 and
              (not stream or stack.metric("commutator_router_retries_total", reason="broken_early")))


@pytest.mark.parametrize("api", APIS)
def test_a_client_that_leaves_is_seen_by_the_engine(stack, api):
    gone = threading.Event()

    def wait(handler):
        handler.wfile.flush()
        assert handler.connection.recv(1) == b""  # until the other side closes
        gone.set()
    with FakeEngine({api: stream_of(events(api, MODEL)[:2], cut=True, after=wait)}) as engine:
        serve(stack, [engine], FLAG)
        connection = stack.connect()
        connection.request("POST", api, json.dumps(body(api, stream=True)), {"content-type": "application/json"})
        answer = connection.getresponse()
        assert answer.readline().startswith(b"event: ")
        answer.close()
        connection.close()
        until("the engine has seen it", gone.is_set)
        until("it is counted", lambda: stack.metric("dynamo_frontend_disconnected_clients") == 1)


# --- engines that do not serve them: as chats ---

@pytest.mark.parametrize("missing", [NOT_FOUND, (405, {"error": {"message": "no", "code": 405}}), (501, {})])
@pytest.mark.parametrize("api", APIS)
def test_an_engine_without_it_gets_chats(stack, api, missing):
    """Asked once whether it does."""
    piece = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    said = [(None, json.dumps({**piece, **more})) for more in (
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "h"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"content": "i"}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}})] + [(None, "[DONE]")]
    with FakeEngine({api: missing, CHAT: stream_of(said)}) as engine:
        serve(stack, [engine], FLAG)
        answer = stack.request("POST", api, body(api)).json
        text = answer["output"][0]["content"][0]["text"] if api == RESPONSES else answer["content"][0]["text"]
        assert text == "hi" and answer["usage"]["output_tokens"] == 2 and answer["usage"]["input_tokens"] == 9
        answer = stack.request("POST", api, body(api, stream=True))
        names = [name for name, _ in answer.events if name]
        assert names[0] in ("response.created", "message_start") and names[-1] in ("response.completed", "message_stop")
        told = [json.loads(data).get("delta") for name, data in answer.events if name and name.endswith("delta")]
        assert [one if isinstance(one, str) else one.get("text") for one in told if one][:2] == ["h", "i"]
        assert [path for path, *_ in engine.requests()] == [api, CHAT, CHAT]
        for _, _, got in engine.requests()[1:]:
            assert got["messages"] == [{"role": "user", "content": "Hello"}] and got["model"] == MODEL and got["stream"]
            assert "nvext" not in got and got["stream_options"]["include_usage"]
        assert requests_total(stack, status="success", request_type="unary") == 1


@pytest.mark.parametrize("api", APIS)
def test_a_chat_for_it_that_fails(stack, api):
    """Its words in the API's own shape; what cannot be made a chat has the engine's."""
    with FakeEngine({api: NOT_FOUND, CHAT: (400, {"error": {"message": "seven is too many", "code": 400}})}) as engine:
        serve(stack, [engine], FLAG)
        for stream in (False, True):
            answer = stack.request("POST", api, body(api, stream=stream))
            assert answer.status == 400 and answer.json["error"]["message"] == "seven is too many"
        unread = {"previous_response_id": "r"} if api == RESPONSES else {"messages": [{"role": "new"}]}
        answer = stack.request("POST", api, body(api) | unread)
        assert answer.status == 404 and f"does not serve {api}" in answer.json["error"]["message"]


def test_clients_of_both_kinds(stack):
    """On the mocker, which serves neither: prefixes are found, whatever API they come by."""
    engines = [Engine(stack) for _ in range(2)]
    serve(stack, engines, "--router-mode", "kv", FLAG)
    homes = {seed: stack.instances()[seed % 2] for seed in range(4)}
    for seed, home in homes.items():
        stack.chat(words(300, seed), {"x-worker-instance-id": str(home)})
        until("its blocks are known", lambda: (stack.metric("dynamo_component_kv_cache_events_applied", status="ok",
                                                            event_type="stored") or 0) >= seed + 1)
    with openai.OpenAI(base_url=stack.url + "/v1", api_key="unused", max_retries=0) as client, \
            anthropic.Anthropic(base_url=stack.url, api_key="unused", max_retries=0) as theirs:
        for seed, home in homes.items():
            answer = client.responses.create(model=MODEL, input=words(300, seed), max_output_tokens=16)
            assert answer.output_text and answer.usage.input_tokens > CACHED and routed(stack)[-1][1:] == (home, CACHED // 16)
            answer = theirs.messages.create(model=MODEL, max_tokens=7, messages=[{"role": "user", "content": words(300, seed)}])
            assert answer.usage.output_tokens == 7 and routed(stack)[-1][1:] == (home, CACHED // 16)
        with theirs.messages.stream(model=MODEL, max_tokens=7, messages=[{"role": "user", "content": words(300)}]) as stream:
            assert "".join(stream.text_stream) and stream.get_final_message().stop_reason == "max_tokens"
        said = list(client.responses.create(model=MODEL, input=words(300), max_output_tokens=16, stream=True))
        assert said[-1].type in ("response.completed", "response.incomplete") and said[-1].response.usage.output_tokens == 16


@pytest.mark.parametrize("api", APIS)
def test_a_prompt_that_an_engine_cuts(stack, api):
    """Nothing of the model is here: vLLM's /tokenize gets the chat that is made of the request."""
    with FakeEngine({api: (200, whole(api, MODEL)), "/tokenize": (200, {"tokens": [7] * 5})}) as engine:
        serve(stack, [engine], FLAG, "--router-mode", "kv")
        assert stack.request("POST", api, body(api)).status == 200
        asked = [got for path, _, got in engine.asked if path == "/tokenize"][-1]
        assert asked == {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
        assert ROUTED.findall(stack.front.log())[-1][5] == "5"


# --- counts and other APIs ---

def test_tokens_are_counted_by_the_engine(stack):
    with FakeEngine({COUNT: (200, {"input_tokens": 28, "context_management": {"original_input_tokens": 28}})}) as engine:
        serve(stack, [engine], FLAG)
        asked = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
        assert stack.request("POST", COUNT, asked).json == engine.answers[COUNT][1]
        assert [(path, got) for path, _, got in engine.requests()] == [(COUNT, asked)]
        engine.answers[COUNT] = NOT_FOUND
        assert stack.request("POST", COUNT, asked).json == {"input_tokens": len("user" + "Hello") // 3}
        engine.answers[COUNT] = (400, {"type": "error", "error": {"type": "x", "message": "no"}})
        answer = stack.request("POST", COUNT, asked)
        assert (answer.status, answer.json) == engine.answers[COUNT]


OTHERS = ["/tokenize", "/detokenize", "/v1/score", "/score", "/v1/rerank", "/v2/rerank", "/rerank", "/pooling", "/classify"]


@pytest.mark.parametrize("path", OTHERS)
def test_other_apis_pass(stack, path):
    with FakeEngine({path: (200, {"model": MODEL, "results": [{"x": 1.50}], "usage": {"prompt_tokens": 3}})}) as engine:
        engine.spec += ",model=alias"
        stack.frontend("--store-kv", "mem", "--engine-url", engine.spec, "--router-mode", "kv")
        until("the model is there", lambda: stack.models() == ["alias"])
        asked = {"model": "alias", "query": "q", "documents": ["a"], "stream": True}
        answer = stack.request("POST", path, asked)
        assert answer.status == 200 and answer.json == {**engine.answers[path][1], "model": "alias"}
        assert engine.asked[-1][0] == path and engine.asked[-1][2] == {**asked, "model": MODEL}
        engine.answers[path] = (400, {"error": {"message": "no", "code": 400}})
        answer = stack.request("POST", path, asked)
        assert (answer.status, answer.json) == engine.answers[path]
        engine.answers[path] = NOT_FOUND
        answer = stack.request("POST", path, asked)
        assert answer.status == 404 and f"does not serve {path}" in answer.json["error"]["message"]
        assert stack.request("POST", path, {"query": "q"}).status == 400
        assert stack.request("POST", path, {**asked, "model": "other"}).status == 404


def test_workers_of_dynamo_have_none_of_it(stack):
    stack.mocker()
    stack.frontend(FLAG)
    until("it is there", lambda: stack.models() == [MODEL])
    for path in OTHERS:
        assert stack.request("POST", path, {"model": MODEL, "prompt": "a"}).status == 404
    assert stack.request("POST", COUNT, {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}).json == {"input_tokens": 3}


# --- keys ---

@pytest.mark.parametrize("spec, env", [("", {"DYN_ENGINE_API_KEY": "sesame"}), ("", {"VLLM_API_KEY": "sesame"}),
                                       (",api-key-env=MINE", {"MINE": "sesame", "DYN_ENGINE_API_KEY": "other"})])
def test_an_engine_with_a_key(stack, spec, env):
    """Shown to find it, to have it cut prompts, and with requests, whatever the client sent; told nobody."""
    with FakeEngine({"/tokenize": (200, {"tokens": [7] * 5})}, key="sesame") as engine:
        engine.spec += spec
        serve(stack, [engine], "--router-mode", "kv", **env)
        for headers in ({}, {"authorization": "Bearer k"}):
            answer = stack.request("POST", CHAT, stack.body("Hello"), headers)
            assert answer.status == 200 and answer.text == "hi"
        assert ROUTED.findall(stack.front.log())[-1][5] == "5"
        assert "sesame" not in stack.front.log() + json.dumps(stack.get("/health").json)


def test_an_engine_whose_key_is_not_known(stack):
    with FakeEngine(key="sesame") as engine:
        stack.frontend("--store-kv", "mem", "--engine-url", engine.spec)
        stack.front.wait_log("engine wants an API key that it was not shown .*status=401")
        assert stack.models() == []
