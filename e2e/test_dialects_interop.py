# SPDX-License-Identifier: Apache-2.0
"""What is a request of /v1/responses and of /v1/messages: each member made another type, null, absurd or absent, before the
frontend of 1.6.1 and ours. Both take it or both refuse it, and of what both take prompts have as many tokens, but for what
DEVIATIONS says."""

import http.client
import json
import re

from stack import RESPONSES
from test_bodies_interop import ABSENT, FEW, MODEL, changed
from test_prompts_interop import NEWEST, Fronts, put_template

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
VALUES = [*FEW, -1, 2**64, ["x", "y"], {"x": 1}, [{}], 1e300]
# What prompts are made of, and so what their tokens count.
TEMPLATE = "{{ messages | tojson }}{{ tools | tojson if tools is defined }}{{ enable_thinking }}{{ add_generation_prompt }}"


def swept(what, base, paths, values=VALUES):
    """(name, body) of @base with the value at each path changed, and absent where there is one."""
    for path in paths:
        at = base
        for key in path[:-1]:
            at = at[key]
        there = isinstance(path[-1], int) or path[-1] in at
        for value in [*values, *([ABSENT] if there and not isinstance(path[-1], int) else [])]:
            yield f"{what}.{'.'.join(str(key) for key in path)}={value!r}", changed(base, path, value)


# --- /v1/responses ---------------------------------------------------------------------------------------------------------------

ASKED = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}]}
ITEMS = {
    "message": ASKED, "easy": {"role": "user", "content": "u"}, "system": {"role": "system", "content": "s"},
    "answer": {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": [{"type": "output_text", "text": "a", "annotations": []}]},
    "call": {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "i", "status": "completed"},
    "output": {"type": "function_call_output", "call_id": "c", "output": "r", "id": "i", "status": "completed"},
    "reasoning": {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "R"}], "content": [], "encrypted_content": "x", "status": "completed"},
    "reference": {"type": "item_reference", "id": "i"}}
PARTS = [{"type": kind, **more} for kind in ("input_text", "output_text", "text", "refusal", "input_image", "input_file", "input_audio", "summary_text", "x")
         for more in ({}, {"text": "t"}, {"text": None}, {"text": 5}, {"text": "t", "x": 1}, {"refusal": "no"}, {"text": "t", "annotations": []},
                      {"text": "t", "annotations": None}, {"image_url": "http://a/b.png", "detail": "auto"}, {"file_id": "f"})]
PARTS += [{"text": "a"}, "a", 5, None, {}]
KINDS = ["function", "web_search", "web_search_preview", "file_search", "computer_use_preview", "mcp", "code_interpreter", "image_generation", "local_shell",
         "custom", "x"]
TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}, "strict": False}
FORMAT = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True, "description": "d"}
CHOICES = ["auto", "none", "required", "f", {"type": "function"}, {"type": "function", "name": "f"}, {"type": "function", "name": "g"},
           {"type": "function", "name": 5}, {"type": "function", "function": {"name": "f"}}, {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
           {"type": "allowed_tools", "mode": "required", "tools": []}, {"type": "allowed_tools", "mode": "x", "tools": []}, {"type": "allowed_tools"},
           {"type": "web_search_preview"}, {"type": "file_search"}, {"type": "mcp", "server_label": "s"}, {"type": "custom", "name": "f"}, {"type": "x"}]
RESPONSE_KEYS = """model input instructions max_output_tokens temperature top_p stream tools tool_choice text reasoning user nvext top_logprobs""".split()


def responses():
    for name, item in ITEMS.items():
        base = {"input": [ASKED, item, ASKED]}
        paths = [["input", 1, key] for key in sorted({*item, "type", "id", "status", "phase", "x"})]
        paths += [["input", 1, "content", 0, key] for key in ("type", "text", "annotations") if isinstance(item.get("content"), list) and item["content"]]
        paths += [["input", 1, "summary", 0, key] for key in ("type", "text") if "summary" in item]
        yield from swept(name, base, paths)
        yield name, base
        for field in ("content", "output", "summary"):
            if field in item:
                yield from ((f"{name} {field} {part!r}", changed(base, ["input", 1, field], [part])) for part in PARTS)
    for role in ("user", "system", "developer", "assistant", "tool", "critic", "User", ""):
        for more in ({}, {"type": "message"}):
            yield f"role {role!r} {more}", {"input": [{"role": role, "content": "u", **more}]}
            yield f"role {role!r} {more} of parts", {"input": [{"role": role, "content": [{"type": "input_text", "text": "u"}], **more}]}
    for value in VALUES:
        yield f"items {value!r}", {"input": [value]}
    for kind in KINDS:
        yield f"tool {kind}", {"input": "u", "tools": [{"type": kind}]}
        yield f"tool {kind} with a name", {"input": "u", "tools": [{"type": kind, "name": "f", "server_label": "s", "vector_store_ids": []}]}
        yield f"item {kind}", {"input": [ASKED, {"type": kind + "_call", "id": "i", "status": "completed"}]}
    yield from swept("tool", {"input": "u", "tools": [TOOL]}, [["tools", 0, key] for key in (*TOOL, "x")], [*VALUES, "a b", "a" * 65])
    yield from swept("format", {"input": "u", "text": {"format": FORMAT}}, [["text", "format"], *(["text", "format", key] for key in (*FORMAT, "x"))],
                     [*VALUES, "text", "json_object"])
    yield from swept("text", {"input": "u", "text": {"verbosity": "low"}}, [["text", "verbosity"], ["text", "x"]])
    yield from swept("reasoning", {"input": "u", "reasoning": {"effort": "low"}}, [["reasoning", key] for key in ("effort", "summary", "x")],
                     [*VALUES, "none", "minimal", "low", "medium", "high", "xhigh", "max", "auto", "concise", "detailed"])
    for choice in CHOICES:
        yield f"choice {choice!r}", {"input": "u", "tools": [TOOL], "tool_choice": choice}
    yield from swept("body", {"input": "u", "model": MODEL}, [[key] for key in RESPONSE_KEYS], [*VALUES, 0, 2, -0.1])


# --- /v1/messages ----------------------------------------------------------------------------------------------------------------

USER = {"role": "user", "content": "u"}
BLOCKS = {
    "text": {"type": "text", "text": "t"}, "thinking": {"type": "thinking", "thinking": "h", "signature": "s"},
    "redacted": {"type": "redacted_thinking", "data": "d"}, "use": {"type": "tool_use", "id": "c", "name": "f", "input": {}},
    "server use": {"type": "server_tool_use", "id": "c", "name": "f", "input": {}}, "result": {"type": "tool_result", "tool_use_id": "c", "content": "r"},
    "image": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    "document": {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}},
    "search": {"type": "web_search_tool_result", "tool_use_id": "c", "content": []}, "x": {"type": "x"}}
CLIENT_TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}
MESSAGE_KEYS = """model messages max_tokens system temperature top_p top_k stop_sequences stream metadata tools tool_choice thinking service_tier container
    mcp_servers context_management output_config cache_control nvext user x""".split()
USES = ["auto", "any", "none", "tool", "x"]


def messages():
    for role in ("user", "assistant", "system"):
        for name, block in BLOCKS.items():
            base = {"messages": [USER, {"role": role, "content": [block]}, USER]}
            yield f"{role} {name}", base
            yield from swept(f"{role} {name}", base, [["messages", 1, "content", 0, key] for key in sorted({*block, "cache_control", "is_error", "citations", "x"})])
        yield from swept(role, {"messages": [USER, {"role": role, "content": "c"}, USER]}, [["messages", 1, key] for key in ("role", "content", "name", "x")])
        for value in VALUES:
            yield f"{role} blocks {value!r}", {"messages": [USER, {"role": role, "content": [value]}, USER]}
    result = {"messages": [USER, {"role": "user", "content": [BLOCKS["result"]]}]}
    for name, block in BLOCKS.items():
        yield f"result of {name}", changed(result, ["messages", 1, "content", 0, "content"], [block])
        yield f"system of {name}", {"messages": [USER], "system": [block]}
    yield from swept("result", changed(result, ["messages", 1, "content", 0, "content"], [BLOCKS["text"]]),
                     [["messages", 1, "content", 0, "content", 0, key] for key in ("type", "text", "x")])
    yield from swept("system", {"messages": [USER], "system": [BLOCKS["text"]]}, [["system", 0], *(["system", 0, key] for key in ("type", "text", "cache_control", "x"))])
    yield from swept("client tool", {"messages": [USER], "tools": [CLIENT_TOOL]},
                     [["tools", 0], *(["tools", 0, key] for key in (*CLIENT_TOOL, "type", "cache_control", "strict", "x"))],
                     [*VALUES, "a b", "a" * 65, "custom", "function", "web_search_20250305", "bash_20250124"])
    for kind in USES:
        for more in ({}, {"name": "f"}, {"name": "g"}, {"name": 5}, {"name": None}, {"disable_parallel_tool_use": True}, {"disable_parallel_tool_use": 5}, {"x": 1}):
            yield f"use {kind} {more}", {"messages": [USER], "tools": [CLIENT_TOOL], "tool_choice": {"type": kind, **more}}
    for kind in ("enabled", "disabled", "adaptive", "x"):
        for more in ({}, {"budget_tokens": 1024}, {"budget_tokens": None}, {"budget_tokens": "x"}, {"budget_tokens": -1}, {"budget_tokens": 5}, {"display": "omitted"}, {"x": 1}):
            yield f"thinking {kind} {more}", {"messages": [USER], "thinking": {"type": kind, **more}}
    shape = {"type": "json_schema", "schema": {"type": "object"}}
    yield from swept("output", {"messages": [USER], "output_config": {"effort": "low", "format": shape}},
                     [["output_config", "effort"], ["output_config", "format"], ["output_config", "x"],
                      *(["output_config", "format", key] for key in ("type", "schema", "name", "x"))], [*VALUES, "max", "text", "json_object"])
    yield from swept("body", {"messages": [USER], "model": MODEL, "max_tokens": 1}, [[key] for key in MESSAGE_KEYS], [*VALUES, 0, 2, -0.1])


# --- texts -----------------------------------------------------------------------------------------------------------------------


def raw():
    """(name, path and text) of bodies that no encoder makes."""
    for path, what, limit, subject, members in (
            (RESPONSES, "response", "max_output_tokens", '"input":"u"',
             ['"model":"m"', '"input":"u"', '"max_output_tokens":1', '"instructions":"i"', '"tools":[]', '"text":{}', '"reasoning":{}', '"metadata":{}', '"store":false',
              '"nvext":{}', '"nvext":{"annotations":[],"annotations":[]}', '"x":1', '"user":"u"', '"stream":false', '"temperature":1']),
            (MESSAGES, "message", "max_tokens", '"messages":[{"role":"user","content":"u"}]',
             ['"model":"m"', '"messages":[{"role":"user","content":"u"}]', '"max_tokens":1', '"system":"s"', '"tools":[]', '"thinking":{"type":"disabled"}',
              '"metadata":{}', '"nvext":{}', '"x":1', '"stream":false', '"temperature":1', '"top_k":1', '"stop_sequences":[]'])):
        head = '{"model":"m","%s":1,%s' % (limit, subject)
        for member in members:
            again = "" if member in head else "," + member
            yield f"raw {what} twice {member}", (path, head + again + "," + member + "}")
        for name, text in {"plain": head + "}", "escaped key": head.replace("model", "mod\\u0065l") + "}", "blanks": f" \n{head}}} ", "nothing": "", "null": "null",
                           "array": "[]", "cut": head, "behind": head + "} x", "control": head.replace('"u"', '"a\x01b"') + "}",
                           "not UTF-8": head.replace('"u"', '"\udcff"') + "}", "mark": "\ufeff" + head + "}", "comma": head + ",}",
                           "surrogate": head.replace('"u"', '"\\ud800"') + "}", "escapes": head.replace('"u"', '"\\/\\b\\u00e9"') + "}",
                           "1.0 tokens": head.replace(":1,", ":1.0,") + "}",
                           **{f"number {n}": f'{head},"temperature":{n}}}' for n in ("NaN", "1e400", "-0", "1.", "01", "1e0")}}.items():
            yield f"raw {what} {name}", (path, text)
    for name, message in {"role": '"role":"user","role":"user","content":"u"', "content": '"role":"user","content":"u","content":"u"', "unknown": '"role":"user","content":"u","x":1,"x":1',
                          "text": '"role":"user","content":[{"type":"text","text":"a","text":"b"}]', "type": '"role":"user","content":[{"type":"text","type":"text","text":"b"}]',
                          "escaped role": '"rol\\u0065":"user","content":"u"', "escaped text": '"role":"user","content":[{"type":"text","te\\u0078t":"b"}]'}.items():
        yield f"raw message in a message: {name}", (MESSAGES, '{"model":"m","max_tokens":1,"messages":[{%s}]}' % message)
        yield f"raw response in a message: {name}", (RESPONSES, '{"model":"m","max_output_tokens":1,"input":[{%s}]}' % message.replace('"type":"text"', '"type":"input_text"'))
    for name, tool in {"name": '"name":"f","name":"f","parameters":{},"strict":false', "unknown": '"name":"f","x":1,"x":1', "parameters": '"name":"f","parameters":{"a":1,"a":2}'}.items():
        yield f"raw response twice in a tool: {name}", (RESPONSES, '{"model":"m","max_output_tokens":1,"input":"u","tools":[{"type":"function",%s}]}' % tool)
        yield f"raw message twice in a tool: {name}", (MESSAGES, '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"u"}],"tools":[{%s}]}'
                                                       % tool.replace("parameters", "input_schema").replace('"x":1', '"input_schema":{},"x":1', 1))


# What differs on purpose, and why: pattern of the case's name, statuses (theirs, ours); of two answers, whose prompts differ.
PASSED_OVER = "a member that is not read is not judged"
TEXT = "a part with a text is one"
NO_JSON = "what is no JSON is no request"
MESSAGE = "an item without a type is a message, whatever else it has (there: one with an id is a reference, and so lost)"
DEVIATIONS = [
    (r"response \w+\.input\.1\.(id|status|phase|encrypted_content)=", (400, 200), PASSED_OVER),
    (r"response answer\.input\.1\.content\.0\.annotations=", (400, 200), PASSED_OVER),
    (r"response reasoning( |\.input\.1\.)summary(\.0\.type)?[ =]", (400, 200), TEXT),
    (r"response \w+ (content|output) \{'type': '(output_text|text|refusal)'", (400, 200), TEXT),
    (r"response (message|easy|system|answer)\.input\.1\.type=None", (400, 200), MESSAGE),
    (r"response (easy|system)\.input\.1\.id='x'|response answer\.input\.1\.type=(None|'absent')", (200, 200), MESSAGE),
    (r"response (call|output|reasoning|reference)\.input\.1\.type=(None|'absent')|response answer\.input\.1\.content=(None|'absent')", (200, 400), MESSAGE),
    (r"response call\.input\.1\.type=5", (200, 400), "the type of an item is a word"),
    (r"response item \w+$", (400, 200), "what servers of OpenAI's did is passed over, however it is told"),
    (r"response tool\.tools\.0\.strict=True", (400, 200), "whether a schema is a strict one is the engine's to judge"),
    (r"response (text\.text\.verbosity|reasoning\.reasoning\.summary|body\.top_logprobs)=", (400, 200), PASSED_OVER),
    (r"response choice \{'type': 'allowed_tools', 'mode': 'required', 'tools': \[\]\}", (400, 200), PASSED_OVER),
    (r"body\.nvext=\[", (200, 400), "an array for an object is a mistake"),
    (r"body\.nvext=\{'x'", (400, 200), "keys of nvext that are not known are taken, as in 0.9.0"),
    (r"message \w+ [\w ]+\.messages\.1\.content\.0\.(signature|data|id|name|tool_use_id)=", (400, 200), PASSED_OVER),
    (r"message result\.messages\.1\.content\.0\.content\.0\.(type|text)=", (200, 400), "what is no text and no image has no place in a result"),
    (r"message system\.system\.0=\['x'\]", (200, 400), "an array for an object is a mistake"),
    (r"message (system\.system\.0\.cache_control|client tool\.tools\.0\.(cache_control|strict)|body\.(service_tier|container|cache_control))=", (400, 200),
     PASSED_OVER),
    (r"message use (auto|any|none) \{'name': 'g'\}|message use \w+ \{'disable_parallel_tool_use': 5\}", (400, 200), PASSED_OVER),
    (r"message use none \{'name': 'f'\}", (200, 200), "none is none (there: the tool that is named)"),
    (r"message body\.stream=None", (400, 200), "null is as if it were not there"),
    (r"raw \w+ (control|not UTF-8|behind)$", (200, 400), NO_JSON),
]


def cases():
    """{name: (path, text)}"""
    made = [(f"response {name}", RESPONSES, {"model": MODEL, "max_output_tokens": 1, **body}) for name, body in responses()]
    made += [(f"message {name}", MESSAGES, {"model": MODEL, "max_tokens": 1, **body}) for name, body in messages()]
    for name, path, body in made:
        for key in ("model", "max_tokens"):
            if f" body.{key}={ABSENT!r}" in name:
                body.pop(key)
    return {**{name: (path, json.dumps(body)) for name, path, body in made}, **dict(raw())}


def asked(front, path, text):
    """The status, and of an answer the tokens of its prompt."""
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=30)
    connection.request("POST", path, text.encode("utf-8", "surrogateescape"), {"content-type": "application/json"})
    answer = connection.getresponse()
    said = answer.read()
    if answer.status != 200:
        return answer.status, None
    return answer.status, sum(int(re.findall(rb'"%s":(\d+)' % name, said)[-1]) for name in (b"input_tokens", b"cache_read_input_tokens") if b'"%s"' % name in said)


def why(name, statuses):
    return next((reason for pattern, pair, reason in DEVIATIONS if re.search(pattern, name) and pair == statuses), None)


def test_dialects(tmp_path):
    with Fronts(tmp_path, NEWEST, {MODEL: put_template(TEMPLATE)}, both=["--enable-anthropic-api"]) as fronts:
        answers = {name: tuple(asked(front, *case) for front in fronts.fronts) for name, case in cases().items()}
    differ = {name: (theirs, ours) for name, (theirs, ours) in answers.items() if theirs != ours}
    assert not {name: pair for name, pair in differ.items() if not why(name, (pair[0][0], pair[1][0]))}
    assert len(answers) > 6000 and sum(theirs[0] == 200 for theirs, _ in answers.values()) > 2000
    unused = [pattern for pattern, pair, _ in DEVIATIONS
              if not any(re.search(pattern, name) and pair == (theirs[0], ours[0]) for name, (theirs, ours) in differ.items())]
    assert not unused
