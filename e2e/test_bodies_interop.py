# SPDX-License-Identifier: Apache-2.0
"""What is a request: each member of bodies made another type, null, absurd or absent, and texts that are hardly JSON, before
the frontends of 0.9.0 and 1.6.1 and ours. Both take it or both refuse it, but for what DEVIATIONS says."""

import http.client
import json
import re

import pytest

from stack import CHAT, COMPLETIONS, RESPONSES
from test_prompts_interop import NEWEST, Fronts, put_template

ABSENT = "absent"
VALUES = [None, True, 5, -1, 1.5, "x", "", [], {}, ["x"], [5], [None], {"x": 1}, [{}], 1e300, 2**63, 2**64, -2**63 - 1]
FEW = [None, True, 5, 1.5, "x", [], {}, ["x"], [None], 2**63]
MODEL = "m"
U = {"role": "user", "content": "u"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}
MESSAGES = {
    "user": U, "system": {"role": "system", "content": "s"}, "developer": {"role": "developer", "content": "s"},
    "assistant": {"role": "assistant", "content": "c", "tool_calls": [CALL], "reasoning_content": "R"},
    "tool": {"role": "tool", "content": "t", "tool_call_id": "c"}, "function": {"role": "function", "name": "f", "content": "r"}}
MEMBERS = ("role", "content", "name", "tool_call_id", "tool_calls", "reasoning_content", "reasoning", "refusal", "audio", "function_call", "tools",
           "partial", "prefix")
PARTS = [{"type": kind, **({} if value == ABSENT else {kind: value})}
         for kind in ("text", "refusal", "image_url", "input_audio", "video_url", "audio_url", "file", "tool_result", "tool_use", "thinking", "x",
                      "input_text", "image")
         for value in (ABSENT, None, "x", 5, {}, {"url": "http://a/b.png"}, {"url": 5}, {"data": "aaaa", "format": "wav"}, {"file_id": "x"})]
PARTS += [{}, {"text": "a"}, {"type": 5, "text": "a"}, {"type": None}, "a", 5, None, {"type": "text", "text": "a", "x": 1}]
CHAT_KEYS = """model messages frequency_penalty presence_penalty repetition_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n
    stop stream stream_options temperature top_p top_k min_p tools tool_choice parallel_tool_calls user seed response_format modalities prediction audio
    metadata store service_tier reasoning_effort web_search_options prompt_cache_key function_call functions nvext chat_template_kwargs
    chat_template_args min_tokens ignore_eos include_stop_str_in_output skip_special_tokens guided_json guided_regex guided_choice guided_grammar
    stop_token_ids allowed_token_ids cache_salt thinking prompt_logprobs mm_processor_kwargs add_generation_prompt continue_final_message best_of echo
    priority verbosity safety_identifier documents truncate_prompt_tokens return_token_ids""".split()
PROMPT_KEYS = """model prompt suffix max_tokens temperature top_p n stream stream_options logprobs echo stop presence_penalty frequency_penalty best_of
    logit_bias user seed prompt_embeds min_tokens ignore_eos top_k min_p repetition_penalty nvext guided_json guided_regex guided_choice
    guided_grammar metadata stop_token_ids include_stop_str_in_output skip_special_tokens prompt_logprobs cache_salt allowed_token_ids""".split()
RESPONSE_KEYS = """model input instructions max_output_tokens temperature top_p stream tools tool_choice parallel_tool_calls text reasoning metadata
    store service_tier truncation user include previous_response_id background conversation max_tool_calls prompt prompt_cache_key safety_identifier
    top_logprobs nvext stream_options""".split()
CHOICES = ["auto", "none", "required", "f", {"type": "function"}, {"type": "function", "function": {}}, {"type": "function", "function": {"name": "f"}},
           {"type": "function", "function": {"name": "g"}}, {"type": "function", "function": {"name": ""}}, {"type": "x", "function": {"name": "f"}}]

PASSED_OVER = "a key that is not read is not judged"
AS_0_9 = "taken as in 0.9.0"
# What differs on purpose, and why: pattern of the case's name, statuses (theirs, ours).
AS_1 = "taken as in 1.6.1"
NO_JSON = "what is no JSON is no request"
EITHER = [
    (r"chat (audio|modalities|parallel_tool_calls|prediction|prompt_cache_key|service_tier|store|web_search_options)=", (400, 200), PASSED_OVER),
    (r"prompt suffix=", (400, 200), PASSED_OVER),
    (r"(chat|prompt) guided_choice=\[", (400, 200), "what is chosen from is the engine's to judge"),
    (r"(chat|prompt) stop=\[\]", (400, 200), AS_0_9),
    (r"nvext\.(use_raw_prompt|dp_rank|prefill_dp_rank)=|agent_hints\.speculative_prefill=", (400, 200), PASSED_OVER),
    (r"(prompt|chat|response) nvext=\[|agent_hints=\[|routing_constraints=\[", (200, 400), "an array for an object is a mistake"),
    (r"agent_hints\.latency_sensitivity=", (200, 400), "beyond its range"),
    (r"assistant\.audio=\['x'\]", (200, 400), "an array for an object is a mistake"),
    (r"prompt prompt_embeds=None", (200, 400), "the key itself is refused"),
    (r"function\.role=5", (200, 400), "a role is a word"),
    (r"tool_choice=\{'type': 'x'", (400, 200), AS_0_9),
    (r"response (background|conversation|include|instructions|metadata|parallel_tool_calls|prompt_cache_key|reasoning|safety_identifier|service_tier"
     r"|store|stream_options|text|top_logprobs|truncation)=", (400, 200), PASSED_OVER),
    (r"response (max_tool_calls|previous_response_id|prompt)=", (400, 501), "what is not here is said to be so, whatever it is"),
]
DEVIATIONS = {NEWEST: EITHER + [
    (r"chat tools=\[\]", (400, 200), AS_0_9),
    (r"nvext(\.agent_hints)?\.x=|(prompt|chat|response) nvext=\{'x'|agent_hints=\{'x'", (400, 200), AS_0_9 + ": keys of nvext that are not known"),
    (r"tool\.function\.strict=True", (400, 200), "whether a schema is a strict one is the engine's to judge"),
    (r"raw .* (control|not UTF-8)", (200, 400), NO_JSON),
], "0.9.0": EITHER + [
    (r"raw .* behind", (200, 400), NO_JSON),
    (r"developer part \{'(text': 'a'|type': 5)", (200, 400), "a part says what it is"),
    (r"tool_choice=\{'type': 'function', 'function': \{'name': '(g)?'", (200, 400), "as in 1.6.1: no such tool"),
    (r"stream_options\.(include_usage=None|continuous_usage_stats=(None|True)|x=)", (400, 200), AS_1),
    (r"(chat|prompt) (stop_token_ids|allowed_token_ids|cache_salt|thinking|prompt_logprobs|add_generation_prompt|continue_final_message)=", (400, 200), AS_1),
    (r"nvext\.(agent_hints|cache_salt|routing_constraints|dp_rank|prefill_dp_rank)[.=]", (200, 400), "what 0.9.0 does not know is read as in 1.6.1"),
    (r"logit_bias=\{'x'", (200, 400), "as in 1.6.1: no token's id"),
    (r"response (temperature|top_p)=", (500, 400), "out of range, which is the client's mistake"),
    (r"response (input|instructions|reasoning|store|stream|tools|user|include)=", (501, 200), AS_1), (r"response input=", (501, 400), AS_1),
    (r"response user=|raw response twice \"user\"", (400, 200), PASSED_OVER),
]}


def changed(base, path, value):
    body = json.loads(json.dumps(base))
    at = body
    for key in path[:-1]:
        at = at[key]
    if value == ABSENT:
        at.pop(path[-1], None)
    else:
        at[path[-1]] = value
    return body


def messages():
    """(name, body) of chats whose messages are odd."""
    for role, message in MESSAGES.items():
        base, at = {"messages": [U, message, U]}, 1
        for key in MEMBERS:
            for value in [*VALUES, *([ABSENT] if key in message else [])]:
                yield f"{role}.{key}={value!r}", changed(base, ["messages", at, key], value)
        for part in PARTS:
            yield f"{role} part {part!r}", changed(base, ["messages", at, "content"], [part])
    base = {"messages": [U, MESSAGES["assistant"], MESSAGES["tool"]]}
    for path in (["id"], ["type"], ["function"], ["function", "name"], ["function", "arguments"], ["index"]):
        for value in [*VALUES, ABSENT, "[]", "5", "null", "{", "{}x", " {} ", '{"a":1,"a":2}', '{"a":9007199254740993}', '{"a":1e400}']:
            yield f"call.{'.'.join(path)}={value!r}", changed(base, ["messages", 1, "tool_calls", 0, *path], value)


def tools():
    base = {"messages": [U], "tools": [TOOL]}
    for path in (["type"], ["function"], ["function", "name"], ["function", "description"], ["function", "parameters"], ["function", "strict"],
                 ["function", "parameters", "type"], ["function", "parameters", "properties"], ["x"]):
        for value in [*VALUES, ABSENT, "a b", "a" * 65, "é", "a.b", "a-b_1", "object"]:
            yield f"tool.{'.'.join(path)}={value!r}", changed(base, ["tools", 0, *path], value)
    for choice in [*VALUES, *CHOICES]:
        yield f"tool_choice={choice!r}", {**base, "tool_choice": choice}
    for key in ("type", "json_schema"):
        for value in VALUES:
            yield f"format.{key}={value!r}", {"messages": [U], "response_format": changed(FORMAT, [key], value)}
    for key in ("name", "schema", "strict", "description", "x"):
        for value in [*VALUES, ABSENT, "a b", "a" * 65]:
            yield f"schema.{key}={value!r}", {"messages": [U], "response_format": changed(FORMAT, ["json_schema", key], value)}


def options():
    for key in ("include_usage", "continuous_usage_stats", "x"):
        for value in FEW:
            yield f"stream_options.{key}={value!r}", {"messages": [U], "stream": True, "stream_options": {key: value}}
    for key in "greed_sampling use_raw_prompt annotations agent_hints x dp_rank prefill_dp_rank cache_salt routing_constraints".split():
        for value in FEW:
            yield f"nvext.{key}={value!r}", {"messages": [U], "nvext": {key: value}}
    for key in "priority osl latency_sensitivity strict_priority speculative_prefill x".split():
        for value in [*FEW, 1e300]:
            yield f"nvext.agent_hints.{key}={value!r}", {"messages": [U], "nvext": {"agent_hints": {key: value}}}


def raw():
    """(name, path and text) of bodies that no encoder makes."""
    for path, what, subject in ((CHAT, "chat", '"messages":[{"role":"user","content":"u"}]'), (COMPLETIONS, "prompt", '"prompt":"u"'),
                                (RESPONSES, "response", '"input":"u"')):
        head = '{"model":"m","%s":1,%s' % ("max_output_tokens" if path == RESPONSES else "max_tokens", subject)
        twice = [subject, '"model":"m"', '"temperature":1', '"top_p":null', '"stream":false', '"nvext":{}', '"user":"u"']
        twice += ['"top_k":1', '"ignore_eos":true'] * (path != RESPONSES) + ['"tools":null'] * (path == CHAT)
        for member in twice:
            again = "" if member in head else "," + member
            yield f"raw {what} twice {member}", (path, head + again + "," + member + "}")
        for member in ('"nvext":{"annotations":[],"annotations":[]}', *['"stream":true,"stream_options":{"include_usage":true,"include_usage":true}',
                       '"response_format":{"type":"text","type":"text"}'][:2 - (path == COMPLETIONS)] * (path != RESPONSES)):
            yield f"raw {what} twice in {member}", (path, head + "," + member + "}")
        for name, text in {
                "plain": head + "}", "escaped key": head.replace("model", "mod\\u0065l") + "}", "blanks": f" \r\n\t{head}}} \n", "nothing": "", "null": "null",
                "array": "[]", "text": '"x"', "cut": head, "behind": head + "} x", "behind, an object": head + "}{}", "no model": "{" + subject + "}",
                "control": head.replace('"u"', '"a\x01b"') + "}", "control, a new line": head.replace('"u"', '"a\nb"') + "}",
                "not UTF-8": head.replace('"u"', '"\udcff"') + "}", "mark": "\ufeff" + head + "}", "comma": head + ",}",
                "surrogate": head.replace('"u"', '"\\ud800"') + "}", "surrogates": head.replace('"u"', '"\\udc00\\ud800"') + "}",
                "escapes": head.replace('"u"', '"\\/\\b\\u00e9"') + "}", "no escape": head.replace('"u"', '"\\x"') + "}",
                **{f"number {number}": f'{head},"temperature":{number}}}' for number in ("NaN", "Infinity", "1e400", "-0", "1.", ".5", "01", "+1", "1e0", "0x1")},
                **{f"seed {number}": f'{head},"seed":{number}}}' for number in ("5.0", "1e0") if path != RESPONSES},
                **{f"deep {n}": f'{head},"metadata":{{"a":{"[" * n}{"]" * n}}}}}' for n in (100, 130) if path != RESPONSES}}.items():
            yield f"raw {what} {name}", (path, text)
    for name, message in {"role": '"role":"user","role":"user","content":"u"', "content": '"role":"user","content":"u","content":"u"',
                          "part": '"role":"user","content":[{"type":"text","text":"a","text":"b"}]'}.items():
        yield f"raw chat twice in a message: {name}", (CHAT, '{"model":"m","max_tokens":1,"messages":[{%s}]}' % message)
    yield "raw chat unknown twice", (CHAT, '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"u","x":1,"x":1}]}')


def cases():
    """{name: (path, body)}"""
    chats = [*messages(), *tools(), *options(), *((f"chat {key}={value!r}", changed({"messages": [U]}, [key], value))
                                                  for key in CHAT_KEYS for value in [*FEW, {"x": 1}, ABSENT])]
    found = {name: (CHAT, {"model": MODEL, "max_tokens": 1, **body}) for name, body in chats}
    for path, what, subject, keys in ((COMPLETIONS, "prompt", {"prompt": "p", "max_tokens": 1}, PROMPT_KEYS),
                                      (RESPONSES, "response", {"input": "p", "max_output_tokens": 1}, RESPONSE_KEYS)):
        for key in keys:
            for value in [*FEW, {"x": 1}]:
                found[f"{what} {key}={value!r}"] = path, {"model": MODEL, **subject, key: value}
    return found


def why(version, name, statuses):
    return next((reason for pattern, pair, reason in DEVIATIONS[version] if re.search(pattern, name) and pair == statuses), None)


def status(front, path, text):
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=30)
    connection.request("POST", path, text.encode("utf-8", "surrogateescape"), {"content-type": "application/json"})
    return connection.getresponse().status


@pytest.mark.parametrize("version,flags", [(NEWEST, ()), ("0.9.0", ("--chat-template-style", "dynamo-0.9", "--answer-style", "dynamo-0.9"))])
def test_bodies(tmp_path, version, flags):
    asked = {**{name: (path, json.dumps(body)) for name, (path, body) in cases().items()}, **dict(raw())}
    with Fronts(tmp_path, version, {MODEL: put_template("{{ messages | length }}")}, *flags) as fronts:
        statuses = {name: tuple(status(front, *case) for front in fronts.fronts) for name, case in asked.items()}
    differ = {name: pair for name, pair in statuses.items() if pair[0] != pair[1]}
    assert not {name: pair for name, pair in differ.items() if not why(version, name, pair)}
    assert len(statuses) > 2500 and sum(pair == (200, 200) for pair in statuses.values()) > 500
    unused = [pattern for pattern, pair, _ in DEVIATIONS[version] if not any(re.search(pattern, name) and pair == got for name, got in differ.items())]
    assert not unused
