# SPDX-License-Identifier: Apache-2.0
"""Chunks and bodies beside those of the frontend of the workers' generation, 0.9.0 or 1.6.1, in front of the same
worker: key for key and in the same order. Ids, times and the words of errors are ours."""

import http.client
import json
import re
import threading

import pytest

import file_store
from conftest import reference_python
from stack import CHAT, COMPLETIONS, MODEL, MODEL_PATH, PATIENCE, RESPONSES, until
from test_openai_interop import NEWEST, TOOL, TOOLS, Rig

RELEASES = ["0.9.0", NEWEST]


def text_items(*texts, finish="stop", **last):
    """Of a worker that decodes itself."""
    items = [{"token_ids": [300 + i], "text": text} for i, text in enumerate(texts)]
    items[-1].update(finish_reason=finish, **last)
    return items


def id_items(*ids, finish="length"):
    """Of a worker that leaves that to the frontend, and says at last why it ended."""
    return [{"token_ids": list(each)} for each in ids] + [{"token_ids": [], "finish_reason": finish}]


USAGE = {"stream_options": {"include_usage": True}}
ALWAYS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
COUNTED = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
PLAIN = id_items([300], [301, 302])
CALL = '<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>'
# What the worker says and what is asked, of either API.
EITHER = [
    (PLAIN, {}), (PLAIN, USAGE), (PLAIN, ALWAYS), (PLAIN, {"stop": ["zz"]}),
    (text_items("he", "", "llo"), {}), (text_items("he", "", "llo"), USAGE), (text_items("", "", "a", ""), {}),
    (text_items("", "", "a", ""), ALWAYS), (text_items("a b", finish="length"), {}),
    (id_items([300], [2], finish="stop"), {}), (id_items(finish="stop"), {}), (id_items([300], finish="content_filter"), {}),
    (id_items([300], finish="cancelled"), {}), (text_items("a", "b", stop_reason="END"), {}), (text_items("a", "", stop_reason=5), {}),
    *((text_items("he", "llo", completion_usage={**COUNTED, **details}), USAGE) for details in (
        {}, {"prompt_tokens_details": {"cached_tokens": 3}}, {"prompt_tokens_details": {"audio_tokens": None, "cached_tokens": 0}},
        {"completion_tokens_details": {"reasoning_tokens": 1}})),
    *((PLAIN, {"nvext": {"extra_fields": fields}}) for fields in (
        ["worker_id", "timing"], ["worker_id"], ["timing"], [], ["completion_token_ids"], ["prompt_token_ids"],
        ["completion_token_ids", "prompt_token_ids", "worker_id", "timing"])),
]
CHATS = [
    (text_items("hi ", "<tool_call>", CALL[11:-12], "</tool_call>", ""), {"tools": TOOLS}),
    (text_items("hi ", CALL, ""), {"tools": TOOLS}), (text_items("hi ", CALL), {}),
    (text_items("hi ", "so <tool_call>", CALL[11:] + "and"), {"tools": TOOLS}), (text_items("he", "", "llo"), {"tools": TOOLS}),
    (text_items("<think>", "hm", "</think>", "yes", ""), {}), (text_items("<think>a</think>b", "c"), {}),
    (text_items("<think>", "x</think>yes"), {}), (text_items("<think>a</think>", CALL, ""), {"tools": TOOLS}),
    (text_items('{"x":1}', ""), {"tools": TOOLS, "tool_choice": TOOL}),
    (text_items('[{"name":"f","parameters":{"x":1}}]', ""), {"tools": TOOLS, "tool_choice": "required"}),
]
IDS = {"nvext": {"extra_fields": ["completion_token_ids"]}}
TOLD_IDS = [  # by 1.6.1: items without text make chunks then, but for those that may become a call
    *((api, *case) for api in (CHAT, COMPLETIONS) for case in (
        (text_items("he", "", "llo"), IDS), (id_items([300], [301, 2], finish="stop"), IDS),
        (id_items([300], [301, 302], [303]), {"stop": [" rei"], **IDS}))),
    (CHAT, text_items("hi ", "<think>", "hm", "</think>", "yes", ""), IDS),
    (CHAT, text_items("hi ", "<tool_call>", CALL[11:-12], "</tool_call>", ""), {"tools": TOOLS, **IDS}),
]
TOLD = [{"token_ids": [300], "log_probs": [-0.5]}, {"token_ids": [301], "log_probs": [-0.25]}, {"token_ids": [], "finish_reason": "length"}]


def normal(text):
    """Without ids and times."""
    text = re.sub(r'"id":"(chatcmpl-|cmpl-|call-)[^"]*"', r'"id":"\1"', text)
    text = re.sub(r'"created":\d+', '"created":0', text)
    text = re.sub(r'"(created_at|completed_at)":\d+', r'"\1":0', text)
    text = re.sub(r'"(resp_|msg_|fc_)[0-9a-f]{32}"', r'"\1"', text)
    text = re.sub(r'"call_id":"[^"]*"', '"call_id":""', text)
    return re.sub(r'"timing":{[^}]*}', '"timing":{}', text).strip()


def ask(front, api, more):
    subject = {"messages": [{"role": "user", "content": "x"}]} if api == CHAT else {"prompt": "x"}
    status, text = front.ask(api, {"model": MODEL, "max_tokens": 50, **subject, **more})
    return status, normal(text)


def fronts(rig, release, *flags):
    """Theirs and ours."""
    style = ["--chat-template-style", "dynamo-0.9"] if release == "0.9.0" else []
    return rig.reference(release, *flags), rig.ours(*style, *flags)


def of_release(release):
    """Cards of our mocker are those of 1.x; 0.9.0 writes less."""
    def change(card):
        if release == "0.9.0":
            for key in ("worker_type", "needs"):
                del card[key]
            for name in ("model_info", "tokenizer", "prompt_formatter", "gen_config"):
                for file in (card.get(name) or {}).values():
                    file.pop("size", None)
    return change


@pytest.fixture
def rig(tmp_path):
    with Rig(tmp_path) as rig:
        yield rig


@pytest.mark.parametrize("parsers", [True, False])
@pytest.mark.parametrize("release", RELEASES)
def test_answers(rig, release, parsers):
    rig.start(*(("hermes", "qwen3") if parsers else ()), change=of_release(release))
    theirs, ours = fronts(rig, release)
    cases = [(api, *case) for api in (CHAT, COMPLETIONS) for case in EITHER] + [(CHAT, *case) for case in CHATS]
    if release == "0.9.0" and not parsers:  # its stream of an answer that had to be calls has no end then
        cases = [case for case in cases if "tool_choice" not in case[2]]
    # Log probabilities of a chat are lost in 0.9.0 where the worker told no alternatives.
    cases += [(COMPLETIONS, TOLD, {"logprobs": 1})] + [(CHAT, TOLD, {"logprobs": True})] * (release == NEWEST)
    cases += TOLD_IDS * (release == NEWEST)
    differ = []
    for api, items, more in cases:
        rig.say = items
        for stream in (True, False):
            asked = {**more, "stream": stream}
            if not stream:
                asked.pop("stream_options", None)
            want, got = (ask(front, api, asked) for front in (theirs, ours))
            if got != want:
                differ.append((api, items, asked, want, got))
    assert not differ, "\n".join("\n".join(map(str, case)) for case in differ)


DISPATCHED = [
    (text_items("hi ", CALL, ""), {"tools": TOOLS}), (text_items("hi ", CALL, CALL, "z"), {"tools": TOOLS}),
    (text_items("<think>h", "m", "</think>", "yes", ""), {}), (text_items("<think>hm</think>yes", ""), {}), (text_items("<think>h", "m", ""), {}),
    (text_items("<think>h", "</think>", "a", "<think>m</think>", "b", ""), {}), (text_items("<think>h", "m", "</think>", CALL, ""), {"tools": TOOLS}),
    (text_items('[{"name":"f","parameters":{"x":1}}]', ""), {"tools": TOOLS, "tool_choice": "required"}),
    (text_items('{"x":1}', ""), {"tools": TOOLS, "tool_choice": TOOL}),
]


def test_events_of_calls_and_thoughts(rig):
    """And the other name of thoughts."""
    rig.start("hermes", "qwen3")
    theirs, ours = fronts(rig, NEWEST, "--enable-streaming-tool-dispatch", "--enable-streaming-reasoning-dispatch", "--reasoning-field-name", "reasoning")
    differ = []
    for items, more in DISPATCHED:
        rig.say = items
        for stream in (True, False):
            want, got = (ask(front, CHAT, {**more, "stream": stream}) for front in (theirs, ours))
            if got != want:
                differ.append((items, more, want, got))
    assert not differ, "\n".join("\n".join(map(str, case)) for case in differ)


class Held:
    """Items that end only when the client has seen the first."""

    def __init__(self, items):
        self.items, self.seen = items, threading.Event()

    def __iter__(self):
        yield from self.items
        self.seen.wait(20)
        self.seen.clear()

    def ask(self, front):
        connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=PATIENCE)
        connection.request("POST", CHAT, json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x"}],
                                                     "stream": True}), {"content-type": "application/json"})
        response = connection.getresponse()
        first = response.readline()
        self.seen.set()
        return normal((first + response.read()).decode()).split("\n\n")


@pytest.mark.parametrize("release", RELEASES)
def test_errors_in_a_stream(rig, release):
    """The words are the worker's: 1.6.1 calls each an internal server error. 0.9.0 tells them in a comment alone."""
    rig.start(change=of_release(release))
    theirs, ours = fronts(rig, release)
    rig.say = held = Held(PLAIN[:2])
    rig.worker.error = {"event": "error", "comment": ["out of memory"]}
    want, got = held.ask(theirs), held.ask(ours)
    if release == NEWEST:
        want[-2] = want[-2].replace("Internal server error", "out of memory")
    else:
        got[-2], data = got[-2].split("\ndata: ")
        assert json.loads(data)["error"]["message"] == "out of memory"
    assert got == want


@pytest.mark.parametrize("release", RELEASES)
def test_over_their_mocker(rig, release):
    """Its words are random: they count as one."""
    (rig.stack.folder / MODEL).symlink_to(MODEL_PATH)
    store = "--store-kv" if release == "0.9.0" else "--discovery-backend"
    for _ in range(2):  # one may fail: it registers before its engine is there
        rig.stack.start("reference-mocker", [reference_python(release), "-m", "dynamo.mocker", store, "file",
                                             "--request-plane", "tcp", "--model-path", MODEL, "--block-size", "16",
                                             "--speedup-ratio", "100"],
                        HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats", PYTHONUNBUFFERED="1")
    # 0.9.0's frontend reads a card that is not written to its end, and then never again.
    until("both have written their cards", lambda: len(file_store.records(rig.stack.kv, "mdc", "*%2F*")) == 2)
    theirs, ours = fronts(rig, release)
    masked = lambda text: re.sub(r'"(content|text)":"(?:[^"\\]|\\.)+"', r'"\1":"x"', text)
    for api in (CHAT, COMPLETIONS):
        for more in ({"stream": True}, {"stream": True, **USAGE}, {"stream": False}):
            asked = {**more, "max_tokens": 4, "ignore_eos": True}

            def same():
                """Tokens that are parts of characters have no text of their own: such answers do not count."""
                (want_status, want), (status, got) = (ask(front, api, asked) for front in (theirs, ours))
                assert (want_status, status) == (200, 200)
                # The mocker counts cached tokens by what it was asked before.
                want, got = (re.sub(r'"cached_tokens":\d+', '"cached_tokens":0', masked(text)) for text in (want, got))
                return got == want or (print(want, got, sep="\n") and False)
            until(f"{api} {more}: the same", same)


HELLO = text_items("he", "llo", "")
FUNCTION = [{**TOOLS[0]["function"], "type": "function"}]
USER = {"role": "user", "content": "x"}
ASKED = [  # of /v1/responses: what the worker says and what is asked
    *((HELLO, {"input": "x", **more}) for more in (
        {}, {"instructions": "be"}, {"max_output_tokens": 7, "temperature": 0.5, "top_p": 0.5}, {"include": ["reasoning.encrypted_content"]},
        {"metadata": {"a": "b"}, "user": "u", "store": True, "parallel_tool_calls": False, "reasoning": {"effort": "low"}},
        {"text": {"format": {"type": "text"}}, "truncation": "auto", "top_logprobs": 2, "service_tier": "flex"}, {"conversation": "c"},
        {"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}}}, {"foo": 1},
        {"tools": [{"type": "function", "name": "f"}]},
        {"tools": FUNCTION, "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}},
        {"presence_penalty": 0.5, "frequency_penalty": 0.5}, {"previous_response_id": None, "background": False})),
    *((HELLO, {"input": items}) for items in (
        [USER], [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}],
        [USER, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
         {"type": "function_call_output", "call_id": "c1", "output": "r"}],
        [{"role": "developer", "content": "x"}, USER, {"role": "assistant", "content": "y"}, USER],
        [USER, {"type": "message", "id": "m", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": "y", "annotations": []}]}, USER],
        [USER, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
         {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
         {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "r"}]},
         {"type": "function_call_output", "call_id": "c2", "output": "r"}],
        [USER, {"type": "reasoning", "id": "r", "summary": []}, {"role": "assistant", "content": "y"}, USER],
        [USER, {"type": "reasoning", "id": "r", "summary": []}],
        [USER, {"type": "reasoning", "id": "r", "summary": []},
         {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
         {"type": "function_call_output", "call_id": "c1", "output": "r"}],
        [USER, {"role": "assistant", "content": "y"}, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
         {"type": "function_call_output", "call_id": "c1", "output": "r"}],
        [{"type": "item_reference", "id": "x"}, USER])),
    (text_items("<think>hm</think>", "yes", ""), {"input": "x"}), (text_items("", ""), {"input": "x"}),
    (text_items("he", "l", finish="length"), {"input": "x"}), (text_items("he", finish="content_filter"), {"input": "x"}),
    (text_items("hi ", CALL, ""), {"input": "x", "tools": FUNCTION}), (text_items(CALL, ""), {"input": "x", "tools": FUNCTION}),
    (text_items(CALL, "and", ""), {"input": "x", "tools": FUNCTION}), (text_items(CALL + CALL, ""), {"input": "x", "tools": FUNCTION}),
    (text_items('{"x":1}', ""), {"input": "x", "tools": FUNCTION, "tool_choice": {"type": "function", "name": "f"}}),
    (text_items("he", "llo", completion_usage={**COUNTED, "prompt_tokens_details": {"cached_tokens": 3}}), {"input": "x"}),
    (text_items("he", "llo", completion_usage={**COUNTED, "completion_tokens_details": {"reasoning_tokens": 1}}), {"input": "x"}),
    *((HELLO, {"input": "x", "nvext": {"extra_fields": fields}}) for fields in (["worker_id", "timing"], ["worker_id"], ["timing"], [])),
]
REFUSED = [  # and the status
    ({}, 400), ({"input": []}, 400), ({"input": 5}, 400), ({"input": "x", "model": "nope"}, 404), ({"input": [{**USER, "role": "alien"}]}, 400),
    ({"input": "x", "previous_response_id": "resp_1"}, 501), ({"input": "x", "background": True}, 501), ({"input": "x", "prompt": {"id": "p"}}, 501),
    ({"input": "x", "max_tool_calls": 3}, 501), ({"input": "x", "tools": [{"type": "web_search"}]}, 400), ({"input": "x", "temperature": 3}, 400),
    ({"input": "x", **IDS}, 501), ({"input": "x", "max_output_tokens": 0}, 400), ({"input": [{"type": "item_reference", "id": "x"}]}, 400),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]}]}, 400),
]


def responded(front, more):
    """Objects, whose members are in no order: that of 1.6.1 depends on what it was asked."""
    status, text = front.ask(RESPONSES, {"model": MODEL, **more})
    if status != 200 or not more["stream"]:
        return status, json.loads(normal(text))
    return status, [[name, json.loads(data)] for name, data in re.findall(r"^event: (.*)\ndata: (.*)$", normal(text), re.M)], text[-16:]


def asked_of(worker):
    """What 1.6.1 leaves to the engine, the room that there is, ours always says."""
    body = {key: worker.bodies[-1].get(key) for key in ("token_ids", "stop_conditions", "sampling_options", "output_options")}
    return re.sub(r'"max_tokens": 32\d\d\d|"\w+": null', "", json.dumps(body, sort_keys=True)).replace(", ", "")


def counted(front):
    lines = re.findall(r'^dynamo_frontend_requests_total{(.*endpoint="responses".*)} (.*)$', front.ask("/metrics", None)[1], re.M)
    return sorted((sorted(labels.split(",")), float(value)) for labels, value in lines)


@pytest.mark.parametrize("parsers", [True, False])
def test_responses(rig, parsers):
    """What a worker is asked for is the same too."""
    rig.start(*(("hermes", "qwen3") if parsers else ()))
    theirs, ours = fronts(rig, NEWEST)
    differ = []
    for items, more in ASKED:
        rig.say = items
        for stream in (True, False):
            want, got = ((responded(front, {**more, "stream": stream}), asked_of(rig.worker)) for front in (theirs, ours))
            if got != want:
                differ.append((items, more, stream, *want, *got))
    assert not differ, "\n".join("\n".join(map(str, case)) for case in differ)
    until("the same counts", lambda: counted(ours) == counted(theirs) != [])


def test_refused_responses(rig):
    """The words of what is malformed are ours."""
    rig.start()
    theirs, ours = fronts(rig, NEWEST)
    rig.say = HELLO
    for more, status in REFUSED:
        (want_status, want), (got_status, got) = (front.ask(RESPONSES, {"model": MODEL, **more}) for front in (theirs, ours))
        assert (want_status, got_status) == (status, status), (more, want, got)
        if status == 501:
            assert json.loads(got)["message"] == json.loads(want)["message"]


def test_ids_of_tokens_are_of_one_choice(rig):
    rig.start()
    asked = [(CHAT, {"n": 2, **IDS}), (COMPLETIONS, {"n": 2, **IDS}), (COMPLETIONS, {"prompt": ["a", "b"], **IDS})]
    (want, got) = ([ask(front, api, more) for api, more in asked] for front in fronts(rig, NEWEST))
    assert [status for status, _ in got] == [status for status, _ in want] == [400] * 3
    assert [json.loads(text)["message"] for _, text in got] == [json.loads(text)["message"] for _, text in want]


def test_ids_of_requests(rig):
    """A client's own goes back with every answer, and leads to the decision behind it, too."""
    def answered(front, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=PATIENCE)
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None,
                           {"content-type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, response.getheader("x-request-id"), response.read().decode()
    rig.start()
    theirs, ours = fronts(rig, NEWEST)
    chat = {"model": MODEL, "messages": [USER]}
    for path, body in ((CHAT, chat), (CHAT, {**chat, "stream": True}), (COMPLETIONS, {"model": MODEL, "prompt": ["a", "b"]}),
                       (CHAT, {**chat, "model": "nope"}), (CHAT, {}), ("/v1/models", None), ("/health", None), ("/nope", None)):
        want, got = (answered(front, path, body, **{"x-request-id": "mine/1"})[:2] for front in (theirs, ours))
        assert want == got == (want[0], "mine/1")
    found = json.loads(answered(ours, "/explain/mine/1")[2])
    assert found["request_id"] == found["decisions"][-1]["request_id"]
    _, told, text = answered(ours, CHAT, chat)
    assert json.loads(text)["id"] == f"chatcmpl-{told}" and json.loads(answered(ours, f"/explain/{told}")[2])["request_id"] == told


def test_heads(rig):
    """Of all kinds of answers: ours tell in addition their length, where they have one, and the id of a request that has none."""
    def head(front, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=PATIENCE)
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        told = {name.lower(): value for name, value in response.getheaders()}
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT", told.pop("date"))
        for name in ("content-length", "transfer-encoding", "x-request-id"):
            told.pop(name, None)
        return response.status, told
    rig.start()
    theirs, ours = fronts(rig, NEWEST)
    chat = {"model": MODEL, "messages": [USER]}
    for path, body in ((CHAT, chat), (CHAT, {**chat, "stream": True}), (COMPLETIONS, {"model": MODEL, "prompt": "a"}), (CHAT, {**chat, "model": "nope"}),
                       (RESPONSES, {"model": MODEL, "input": "x"}), (RESPONSES, {"model": MODEL, "input": "x", "stream": True}), ("/v1/models", None)):
        assert head(ours, path, body) == head(theirs, path, body)


def test_a_style_may_be_chosen(rig):
    """Of workers of 1.x, as clients of 0.9.0 know it."""
    rig.start()
    rig.says(["a", "b"])
    ours = rig.ours("--answer-style", "dynamo-0.9")
    chunks = ours.answer(stream=True)[1]
    assert [chunk["choices"][0]["delta"]["role"] for chunk in chunks] == ["assistant"] * 2
    assert chunks[0]["usage"] is None and json.loads(ask(ours, CHAT, {})[1])["choices"][0]["message"]["reasoning_content"] is None
