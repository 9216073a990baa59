# SPDX-License-Identifier: Apache-2.0
"""/v1/responses and /v1/messages on models whose workers take chats as they are (ModelInput.Text), beside 1.6.1's
frontend: what the worker is asked, and answers event by event, streamed and whole."""

import json
import re

import pytest

from stack import RESPONSES
from test_openai_interop import NEWEST
from test_text_workers import CALLS, DETAILS, ECHO, ROLE, USAGE, call, chunk, rig_of  # noqa: F401

MESSAGES = "/v1/messages"
FLAG = "--enable-anthropic-api"
E = json.dumps(ECHO)
USER = {"role": "user", "content": E}
SCHEMA = {"type": "object", "properties": {}}
TOOLS = {RESPONSES: [{"type": "function", "name": "f", "parameters": SCHEMA}], MESSAGES: [{"name": "f", "input_schema": SCHEMA}]}


def parts(kind, *texts):
    return [{"type": kind, "text": text} for text in texts]


RESULT = {"type": "tool_result", "tool_use_id": "c", "content": parts("text", "o", "p")}
ASKED = [  # what is asked, whose chat the worker tells
    (RESPONSES, more) for more in (
        {"input": E}, {"input": [{"role": "user", "content": parts("input_text", "a", "b")}, USER]},
        {"input": [{"role": "user", "content": parts("input_text", "q")}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                   {"type": "function_call_output", "call_id": "c", "output": parts("input_text", "o", "p")}, USER]},
        {"input": E, "instructions": "be", "temperature": 0.5, "top_p": 0.5, "max_output_tokens": 7, "user": "u", "nvext": {"extra_fields": ["timing"]}},
        {"input": E, "reasoning": {"effort": "none"}}, {"input": E, "reasoning": {"effort": "minimal"}},
        {"input": E, "service_tier": "flex", "parallel_tool_calls": False, "safety_identifier": "s", "prompt_cache_key": "k", "truncation": "auto",
         "top_logprobs": 2, "text": {"format": {"type": "text"}}},
        {"input": E, "text": {"format": {"type": "json_object"}}, "store": False, "metadata": {}},
        {"input": E, "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}, "store": True, "metadata": {"a": "b"}},
        *({"input": E, "tools": TOOLS[RESPONSES], "tool_choice": choice} for choice in ("none", "required", {"type": "function", "name": "f"})))
] + [
    (MESSAGES, more) for more in (
        {"messages": [USER]}, {"messages": [{"role": "user", "content": parts("text", "a", "b")}, USER]},
        {"messages": [USER], "system": parts("text", "a", "b"), "temperature": 0.5, "top_p": 0.5, "top_k": 3, "stop_sequences": ["x"]},
        {"messages": [USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, *parts("text", "w", "v")]}, USER]},
        {"messages": [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
                      {"role": "user", "content": [RESULT]}, USER]},
        *({"messages": [USER], "thinking": thinking} for thinking in ({"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"})),
        {"messages": [USER], "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, {"messages": [USER], "stop_sequences": []},
        {"messages": [USER], "nvext": {"greed_sampling": True, "extra_fields": ["worker_id"]}},
        *({"messages": [USER], "tools": TOOLS[MESSAGES], "tool_choice": choice} for choice in (
            {"type": "auto"}, {"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "f"})))
]
T, C = [{"type": "thinking", "thinking": word, "signature": "s"} for word in ("t", "u", "")], {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
ASKED += [(MESSAGES, {"messages": [USER, {"role": "assistant", "content": said}, *[{"role": "user", "content": [RESULT]}] * (C in said), USER]}) for said in (
    [C, T[0]], [T[0], C], [T[0], C, C], [C, T[0], C], [T[0], T[1], C], [T[0], C, T[1]], [T[0], *parts("text", "w"), C], [T[2], C], [C, T[2], C, T[1]], [T[0], T[1]])]
SAID = [  # what the worker says
    [chunk({**ROLE, "content": "he"}), chunk({"content": "llo"}), chunk({}, "stop")],
    [chunk({**ROLE, "content": "he"}), chunk({**ROLE, "content": "llo"}, "length"), {**chunk({}, usage=DETAILS), "choices": []}],
    [chunk({**ROLE, "content": "h\u00e9 \"\\"}, usage=USAGE), chunk({"content": "\n"}, "stop", usage=DETAILS)],
    [chunk({**ROLE, "reasoning_content": "hm"}), chunk({"content": "x"}, "stop", usage=DETAILS)],
    [chunk({**ROLE, "reasoning_content": "hm", "content": "x"}), chunk({"content": "y"}, "stop")],
    [chunk({**ROLE, "content": "a"}), chunk({"refusal": "no"}, "content_filter")],
    [chunk({**ROLE, "content": None}), chunk({"content": ""}, "stop")], [chunk({}, "stop")],
    [chunk({**ROLE, "content": "a"}), chunk({}, "stop", nvext={"stop_reason": "x"})], [chunk({**ROLE, "content": "a"}, "stop", choice={"stop_reason": "x"})],
]
ENDLESS = [chunk({**ROLE, "content": "a"})]
CALLED = [
    CALLS, [chunk({**ROLE, "content": "hm"}), chunk({"tool_calls": [call('{"x":1}', id="c1", name="f")]}), chunk({}, "tool_calls", usage=USAGE)],
    [*CALLS[:-1], chunk({"tool_calls": [call(":1}")]}), chunk({"tool_calls": [{**call("{", id="c2", name="g"), "index": 1}]}),
     chunk({"tool_calls": [{**call("}"), "index": 1}]}, "tool_calls", usage=USAGE)],
]


def asking(api, more):
    return {"model": "say", **({"max_tokens": 9} if api == MESSAGES else {}), **more}


def saying(api, items):
    text = json.dumps(items)
    return {"input": text} if api == RESPONSES else {"messages": [{"role": "user", "content": text}]}


def plain(value):
    """Without ids and times."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key not in ("created_at", "completed_at")}
    if isinstance(value, list):
        return list(map(plain, value))
    return re.sub(r"^(msg|resp|fc|toolu)_[0-9a-f]{32}$", r"\1", value) if isinstance(value, str) else value


def read(status, text):
    """A body, or the events of a stream."""
    if text.startswith("{"):
        return status, plain(json.loads(text))
    return status, [plain(json.loads(line[6:])) if line.startswith("data: {") else line for line in text.splitlines() if line]


def joined(answer):
    """Pieces of a call as one, and nothing that counts them."""
    status, events = answer
    told = []
    for event in events:
        if not isinstance(event, dict):
            if event.startswith("event: "):
                continue
            told.append(event)
            continue
        event = {key: value for key, value in event.items() if key not in ("sequence_number", "usage")}
        last = told[-1] if told else {}
        if event["type"] == "response.function_call_arguments.delta" == last.get("type"):
            last["delta"] += event["delta"]
        elif event["type"] == last.get("type") == "content_block_delta":
            last["delta"]["partial_json"] += event["delta"]["partial_json"]
        else:
            told.append(event)
    return status, told


@pytest.fixture
def three(rig_of):  # noqa: F811
    rig = rig_of(NEWEST)
    return rig, rig.theirs(FLAG), rig.ours(FLAG)


def test_what_is_asked(three):
    """The chat that each is made, member for member."""
    rig, *fronts = three
    differ = []
    for api, more in ASKED:
        for stream in (True, False):
            answers = [read(*front.ask(api, asking(api, {**more, "stream": stream}))) for front in fronts]
            theirs, ours = rig.asked()[-2:]
            if theirs != ours or [status for status, _ in answers] != [200, 200]:
                differ.append((api, more, stream, theirs, ours))
    assert not differ, "\n".join("\n".join(map(str, case)) for case in differ)


@pytest.mark.parametrize("api", [RESPONSES, MESSAGES])
def test_answers(three, api):
    _, *fronts = three
    differ = []
    for items in SAID:
        for stream in (True, False):
            want, got = (read(*front.ask(api, asking(api, {**saying(api, items), "stream": stream}))) for front in fronts)
            if want != got:
                differ.append((items, stream, want, got))
    assert not differ, "\n".join("\n".join(map(str, case)) for case in differ)


@pytest.mark.parametrize("api", [RESPONSES, MESSAGES])
def test_calls_of_tools(three, api):
    """Ours are told once they are whole; those of an answer that is not streamed, which 1.6.1 loses, too."""
    _, theirs, ours = three
    differ = []
    for items in CALLED:
        asked = asking(api, saying(api, items))
        want, got = (joined(read(*front.ask(api, {**asked, "stream": True}))) for front in (theirs, ours))
        if want != got:
            differ.append((items, want, got))
        status, whole = read(*ours.ask(api, asked))
        blocks = whole["output"] if api == RESPONSES else whole["content"]
        arguments = [block.get("arguments") or json.dumps(block["input"], separators=(",", ":")) for block in blocks if "arguments" in block or "input" in block]
        names = [block["name"] for block in blocks if "name" in block]
        assert status == 200 and arguments == ['{"x":1}', "{}"][:len(arguments)] and names == ["f", "g"][:1 + (items is CALLED[2])]
    assert not differ, "\n".join("\n".join(map(str, case)) for case in differ)


def test_no_finish_reason(three):
    """An answer that just ends has stopped; of messages 1.6.1 says null."""
    _, theirs, ours = three
    for stream in (True, False):
        want, got = (front.ask(RESPONSES, asking(RESPONSES, {**saying(RESPONSES, ENDLESS), "stream": stream})) for front in (theirs, ours))
        assert read(*got) == read(*want)
        want, got = (front.ask(MESSAGES, asking(MESSAGES, {**saying(MESSAGES, ENDLESS), "stream": stream}))[1] for front in (theirs, ours))
        assert '"stop_reason":"end_turn"' in got and want.count('"stop_reason":null') == got.count('"stop_reason":null') + 1


@pytest.mark.parametrize("api", [RESPONSES, MESSAGES])
def test_errors(three, api):
    """The words are the worker's, and before the first of an answer they have a status."""
    _, theirs, ours = three
    for items, words in (([{"raise": "boom"}], "boom"), ([{"foo": 1}], "missing field `id`"),
                         ([chunk({**ROLE, "content": "a"}), {"raise": "boom"}], "boom")):
        asked = asking(api, saying(api, items))
        want, (got, text) = theirs.ask(api, asked)[0], ours.ask(api, asked)
        assert got == want and words in text
        status, text = ours.ask(api, {**asked, "stream": True})
        assert status == (want if len(items) == 1 else 200) and words in text
    want, got = (read(*front.ask(api, {**asked, "stream": True}))[1] for front in (theirs, ours))
    assert [event for event in got if isinstance(event, str)] == [event for event in want if isinstance(event, str)]
    for more, status in (({"model": "nope"}, 404), ({"temperature": 5}, 400)):
        assert [front.ask(api, {**asked, **more})[0] for front in (theirs, ours)] == [status] * 2


@pytest.mark.parametrize("api", [RESPONSES, MESSAGES])
def test_workers_of_0_9(rig_of, api):  # noqa: F811
    """Whose own frontend serves neither: they are chats like others."""
    ours = rig_of("0.9.0").ours(FLAG)
    for items in SAID[:2]:
        status, text = ours.ask(api, asking(api, saying(api, items)))
        assert status == 200 and "hello" in text
        status, text = ours.ask(api, asking(api, {**saying(api, items), "stream": True}))
        assert status == 200 and '"llo"' in text and text.endswith("data: [DONE]\n\n")
