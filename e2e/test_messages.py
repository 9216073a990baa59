# SPDX-License-Identifier: Apache-2.0
"""Anthropic's /v1/messages beside 1.6.1's, in front of the same worker: bodies, events, errors, what the worker is asked
for and what is counted. And as the client of Anthropic's own package reads it."""

import http.client
import json
import re

import anthropic
import pytest

from fake_worker import BREAK_AFTER_TOKENS
from stack import MODEL, PATIENCE, until
from test_answer_shapes import CALL, COUNTED, asked_of, id_items, normal, text_items
from test_openai_interop import NEWEST, Rig

MESSAGES, COUNT, MODELS = "/v1/messages", "/v1/messages/count_tokens", "/v1/models"
USER = {"role": "user", "content": "x"}
TOOLS = [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {"x": {"type": "integer"}}}},
         {"name": "g", "input_schema": {"type": "object", "properties": {}}}]
HELLO = text_items("he", "llo", "")
PLAIN = id_items([300], [301, 302])
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def text(said):
    return {"type": "text", "text": said}


def use(name, **given):
    return {"type": "tool_use", "id": name, "name": "f", "input": given}


def result(name, **more):
    return {"type": "tool_result", "tool_use_id": name, **more}


def thought(said):
    return {"type": "thinking", "thinking": said, "signature": "s"}


def talk(*messages):
    """Of pairs of a role and what it says, or messages as they are."""
    return [m if isinstance(m, dict) else dict(zip(("role", "content"), m)) for m in messages]


ASSISTANT, SAYS = "assistant", "user"
ANSWERS = [  # what the worker says, and what is asked
    (HELLO, {}), (PLAIN, {}), (text_items("", ""), {}), (text_items("he", finish="content_filter"), {}),
    (PLAIN, {"stop_sequences": [" rei"]}), (text_items("a", stop_reason="END"), {}), (text_items("a", "", stop_reason=5), {}),
    (text_items("he", "", completion_usage={**COUNTED, "prompt_tokens_details": {"cached_tokens": 3}}), {}),
    (text_items("hi ", CALL, ""), {"tools": TOOLS}), (text_items("hi ", CALL, ""), {}), (text_items(CALL + CALL, "and", ""), {"tools": TOOLS}),
    (text_items("hi ", "<tool_call>", CALL[11:-12], "</tool_call>", "b", "c", ""), {"tools": TOOLS}),
    (text_items('<tool_call>{"name":"g","arguments":{}}</tool_call>', ""), {"tools": TOOLS}),
    (text_items("<think>hm</think>", "yes", ""), {}), (text_items("<think>hm</think>", "yes", ""), THINKS),
    (text_items("<think>hm</think>yes", ""), {"thinking": {"type": "disabled"}}), (text_items("<think>hm</think>", ""), {}),
    (text_items("<think>hm", "a", finish="length"), {}), (text_items("<think>hm</think>yes", ""), {}),
    (text_items("<think>", "h", "m", "</think>", "yes", CALL, ""), {"tools": TOOLS, **THINKS}),
    (text_items('{"x":1}', ""), {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "f"}}),
    (text_items('[{"name":"f","parameters":{"x":1}}]', ""), {"tools": TOOLS, "tool_choice": {"type": "any"}}),
]
REQUESTS = [
    {"system": "be"}, {"system": [text("be"), {**text("nice"), "cache_control": {"type": "ephemeral"}}]}, {"system": ""}, {"system": []},
    *({"system": said} for said in ("x-anthropic-billing-header: a;\nmore", "x-anthropic-billing-header: a;", " x-anthropic-billing-header: a;\n\n m",
                                    [text("x-anthropic-billing-header: a;"), text("nice")], [text("a"), text("x-anthropic-billing-header: a;"), text("b")])),
    {"temperature": 0.5, "top_p": 0.5, "top_k": 3, "stop_sequences": ["a", "b"], "metadata": {"user_id": "u"}, "service_tier": "auto"},
    {"stop_sequences": list("abcde")}, {"max_tokens": 7}, {"foo": 1, "container": "x", "cache_control": {"type": "ephemeral"}},
    {"output_config": {"effort": "low"}}, {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
    {"thinking": {"type": "disabled"}}, {"thinking": {"type": "adaptive"}}, {"tools": TOOLS}, {"tools": []}, {"tools": [{"name": "f", "input_schema": {}}]},
    *({"tools": TOOLS, "tool_choice": choice} for choice in (
        {"type": "auto", "disable_parallel_tool_use": True}, {"type": "any"}, {"type": "none"}, {"type": "tool", "name": "f"}, {"type": "tool"})),
    *({"messages": talk(*messages), "tools": TOOLS} for messages in (
        (USER, (ASSISTANT, "y"), USER), (USER, USER), (USER, (ASSISTANT, "He said:")), ((SAYS, [text("a"), text("b")]),), ((SAYS, ""),),
        (("system", "be"), USER), (USER, ("system", [text("be")]), USER),
        (USER, (ASSISTANT, [text("y"), text("z")]), USER), (USER, (ASSISTANT, [thought("hm"), text("y")]), USER),
        (USER, (ASSISTANT, [{"type": "redacted_thinking", "data": "a"}, text("y")]), USER),
        (USER, (ASSISTANT, [thought("a"), thought("b"), text("y")]), USER),
        (USER, (ASSISTANT, [text("t"), use("1", x=1, s="é")]), (SAYS, [result("1", content="r"), text("go")])),
        (USER, (ASSISTANT, [thought("hm"), use("1"), use("2")]),
         (SAYS, [result("1", content=[text("a"), text("b")], is_error=True), result("2")])),
        (USER, (ASSISTANT, [use("1")]), (SAYS, [text("a"), result("1", content="r"), text("b"), text("c")])),
        (USER, (ASSISTANT, [text("a"), use("1"), text("b")]), (SAYS, [result("1", content="r")])),
        (USER, (ASSISTANT, [thought("a"), use("1"), thought("b"), use("2")]), USER),
        *((USER, (ASSISTANT, said), USER) for said in (
            [use("1"), thought("a"), use("2")], [use("1"), thought("a")], [thought("a"), text("y"), use("1")], [thought(""), use("1")],
            [thought(""), use("1"), thought("b")], [thought("a"), thought("b"), use("1"), text("y")])),
        (USER, (ASSISTANT, [{"type": "server_tool_use", "id": "a", "name": "w", "input": {}}, text("y")]), USER),
        (USER, (ASSISTANT, [result("t", content="r")]), USER), ((SAYS, [thought("h"), use("t"), text("y")]),))),
]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
REFUSED = [  # and the status; True: in the same words
    ({"model": "nope"}, 404, False), ({"messages": []}, 400, True), ({"messages": None}, 400, False), ({"max_tokens": 0}, 400, True),
    ({"max_tokens": None}, 400, False), ({"temperature": 3}, 400, False), ({"top_k": -1}, 400, False), ({"stop_sequences": [""]}, 400, False),
    ({"system": 5}, 400, False), ({"system": [IMAGE]}, 400, False), ({"tools": TOOLS, "tool_choice": {"type": "foo"}}, 400, False),
    ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "zz"}}, 400, False), ({"tool_choice": {"type": "any"}}, 400, False),
    ({"tools": [{"name": "f"}]}, 400, True), ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, 400, True),
    *(({"messages": talk(*messages)}, 400, same) for messages, same in (
        ((("alien", "x"),), False), (((SAYS, []),), True), (((SAYS, None),), False), (((SAYS, [IMAGE]),), False), (((SAYS, [{"type": "foo"}]),), True),
        ((USER, (SAYS, [text("a"), {"type": "document", "source": {}}])), True), (((SAYS, [use("t")]),), True),
        ((USER, (ASSISTANT, [{**use("1"), "input": "s"}]), USER), False),
        ((USER, (ASSISTANT, [use("1")]), (SAYS, [result("1", content=[IMAGE])])), False))),
]


@pytest.fixture
def rig(tmp_path):
    with Rig(tmp_path) as rig:
        yield rig


def fronts(rig, *flags):
    """Theirs and ours."""
    flags = ["--enable-anthropic-api", *flags]
    return rig.reference(NEWEST, *flags), rig.ours(*flags)


def masked(said):
    return re.sub(r'"(msg_|toolu_)[0-9a-f]{32}"', r'"\1"', normal(said))


def answered(front, more, path=MESSAGES):
    status, said = front.ask(path, {"model": MODEL, "max_tokens": 50, "messages": [USER], **more})
    if status == 200 and more.get("stream"):
        return status, re.findall(r"^event: (.*)\ndata: (.*)$", masked(said), re.M), said[-16:]
    return status, masked(said)


def without_counts(answer):
    """Of tokens at each piece: where all of an answer had to be calls, ours come with its last token."""
    status, events, *end = answer
    return [status, [(name, re.sub(r',"usage":{[^}]*}}$', "}", data) if name == "content_block_delta" else data) for name, data in events], *end]


def counted(front):
    lines = re.findall(r'^dynamo_frontend_requests_total{(.*endpoint="anthropic_messages".*)} (.*)$', front.ask("/metrics", None)[1], re.M)
    return sorted((sorted(labels.split(",")), float(value)) for labels, value in lines)


@pytest.mark.parametrize("parsers", [True, False])
def test_answers(rig, parsers):
    rig.start(*(("hermes", "qwen3") if parsers else ()))
    theirs, ours = fronts(rig)
    differ = []
    for items, more in ANSWERS:
        rig.say = items
        for stream in (True, False):
            want, got = ((answered(front, {**more, "stream": stream}), asked_of(rig.worker)) for front in (theirs, ours))
            if stream and "tool_choice" in more:
                want, got = ((without_counts(answer), asked) for answer, asked in (want, got))
            if got != want:
                differ.append((items, more, stream, *want, *got))
    assert not differ, "\n".join("\n".join(map(str, case)) for case in differ)
    until("the same counts", lambda: counted(ours) == counted(theirs) != [])


@pytest.mark.parametrize("flags", [(), ("--no-strip-anthropic-preamble",)])
def test_requests(rig, flags):
    rig.start("hermes", "qwen3")
    theirs, ours = fronts(rig, *flags)
    rig.say = HELLO
    differ = []
    for more in REQUESTS:
        want, got = ((answered(front, more), asked_of(rig.worker), answered(front, more, COUNT)) for front in (theirs, ours))
        if got != want:
            differ.append((more, *want, *got))
    assert not differ, "\n".join("\n".join(map(str, case)) for case in differ)


def test_refused(rig):
    """The words of what is malformed are ours."""
    rig.start()
    theirs, ours = fronts(rig)
    rig.say = HELLO
    for more, status, same in REFUSED:
        (want_status, want), (got_status, got) = (answered(front, more) for front in (theirs, ours))
        assert (want_status, got_status) == (status, status), (more, want, got)
        want, got = json.loads(want), json.loads(got)
        assert got["type"] == want["type"] == "error" and got["error"]["type"] == want["error"]["type"]
        assert not same or got == want
    assert answered(ours, {"messages": []}, COUNT) == answered(theirs, {"messages": []}, COUNT)


def test_failures(rig):
    """The words are the worker's: 1.6.1 calls each an internal server error."""
    rig.start()
    theirs, ours = fronts(rig)
    rig.say = PLAIN[:2]
    rig.worker.error = {"event": "error", "comment": ["out of memory"]}
    want, got = ([answered(front, {"stream": stream}) for stream in (True, False)] for front in (theirs, ours))
    assert json.dumps(got) == re.sub("Internal server error|An internal error occurred during generation.", "out of memory", json.dumps(want))
    rig.worker.error, rig.worker.behaviour = None, BREAK_AFTER_TOKENS
    want, got = (answered(front, {}) for front in (theirs, ours))
    assert got[0] == want[0] and json.loads(got[1])["error"]["type"] == json.loads(want[1])["error"]["type"]


def test_models(rig):
    """As clients of this API list them, who say which version of it they know."""
    rig.start()
    theirs, ours = fronts(rig)

    def listed(front, path, headers):
        connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=PATIENCE)
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, re.sub(r'"created_at":"[-0-9T:]{19}Z"', '"created_at":""', normal(response.read().decode()))
    for path in (MODELS, f"{MODELS}/{MODEL}"):
        for headers in ({"anthropic-version": "2023-06-01"}, {"x-api-key": "k"}):
            assert listed(ours, path, headers) == listed(theirs, path, headers)


def test_off_unless_asked_for(rig):
    rig.start()
    assert rig.ours().ask(MESSAGES, {"model": MODEL, "max_tokens": 5, "messages": [USER]})[0] == 404


def test_anthropics_own_client(rig):
    rig.start("hermes", "qwen3")
    ours = rig.ours("--enable-anthropic-api")
    client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{ours.port}", api_key="none", max_retries=0)
    asked = {"model": MODEL, "max_tokens": 50, "messages": [USER]}
    rig.say = text_items("<think>hm</think>", "yes ", CALL, "")
    whole = client.messages.create(tools=TOOLS, **asked)
    assert [block.type for block in whole.content] == ["thinking", "tool_use", "text"] and whole.stop_reason == "tool_use"
    with client.messages.stream(tools=TOOLS, **asked) as stream:
        told = stream.get_final_message()
    # Of one block at a time, in the model's order, although the reference tells calls before texts in a body.
    assert [block.type for block in told.content] == ["thinking", "text", "tool_use"]
    assert told.content[2].input == whole.content[1].input == {"x": 1} and told.content[1].text == whole.content[2].text == "yes "
    assert told.usage.output_tokens == whole.usage.output_tokens == 4 and told.usage.input_tokens == whole.usage.input_tokens
    # Where thoughts begin again, 1.6.1 tells them in a block that has ended.
    rig.say = text_items("a", "<think>hm</think>", "b", "")
    with client.messages.stream(**asked) as stream:
        assert [(block.type, getattr(block, block.type)) for block in stream.get_final_message().content] == [
            ("text", "a"), ("thinking", "hm"), ("text", "b")]
    assert client.messages.count_tokens(model=MODEL, messages=[USER]).input_tokens == 1
    assert [model.id for model in client.models.list()] == [MODEL] and client.models.retrieve(MODEL).display_name == MODEL
    with pytest.raises(anthropic.NotFoundError, match="not found"):
        client.messages.create(**{**asked, "model": "nope"})
