# SPDX-License-Identifier: Apache-2.0
"""Prompts of models that ship no chat template, beside the frontend of 1.6.1, which writes them itself."""

import json

from test_prompts_interop import CHATS, NEWEST, TOOLS, Fronts, U, calls, says

# Which models those are: by model_type, by the served name where there is none.
TYPES = {"v32": "deepseek_v32", "v3_2": "DeepSeek_V3_2", "v4": "deepseek_v4", "v41": "deepseek_v41", "my-deepseek-V3.2": "", "DeepSeek.V4": "",
         "deepseek-v4_flash": "", "deepseekv4.1": ""}
# These have a template, as the type or the name says.
OTHERS = {"deepseek-v4": "llama", "deepseek-v32-exp": "deepseek_v32", "deepseek-v40": "", "a-deepseek-v4": ""}
ARGUMENTS = {"floats": '{"a":1e3,"b":1.50,"f":1e16,"g":0.000001,"h":-0.0,"k":1e22,"l":0.1e1,"e":-17}',
             "texts": '{"m":"\\u00e9\\u0001\\u007f\\u2028\\\\/<","":"a\\nb","n":{"x":[],"y":{}," ":[{},null,true]}}', "nothing": "{}"}


def result(of, words="r"):
    return says("tool", tool_call_id=of, content=words)


def two_calls():
    return says(content=None, tool_calls=[{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in "ab"])


MORE = {f"arguments: {name}": [U, says(content="", tool_calls=calls(text)), result("c1")] for name, text in ARGUMENTS.items()}
MORE |= {
    "results in another order": [U, two_calls(), result("b", "1"), result("a", "2")],
    "results around the user": [U, two_calls(), result("b", "1"), U, result("a", "2"), U],
    "results of nothing": [U, two_calls(), result("x", "1"), result("a", "2"), result("b", "3")],
    "a result alone": [result("a"), U],
    "one result of two": [U, two_calls(), result("a"), U],
    "calls and calls": [U, two_calls(), result("b"), result("a"), two_calls(), result("b"), result("a")],
    "thoughts between calls": [U, says(**two_calls() | {"reasoning_content": "R1"}), result("b"), result("a"),
                               says(**two_calls() | {"reasoning_content": ["R2", "", "R3"]}), result("b"), result("a")],
    "developers": [says("developer", content="d1"), U, says(content="c", reasoning_content="R"), says("developer", content="d2"), U],
    "a developer at the end": [U, says(content="c", reasoning_content="R"), says("developer", content=[{"type": "text", "text": "d"}])],
    "an answer alone": [says("system", content="s"), says(content="c", reasoning_content="R")],
    "an answer first": [says(content="c", reasoning_content="R"), U],
    "only a system": [says("system", content="s")],
    "system behind": [U, says("system", content="s"), says(content="c", reasoning_content="R"), says("system", content="s")],
    "the mark of an image": [says("user", content="<\uff5cdeepseek_image\uff5c>")],
}
SCHEMA = {"name": "n", "schema": {"type": "object", "properties": {"b": {"minimum": 0.5}}}}
OPTIONS = [
    *({"reasoning_effort": effort} for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max")),
    *({"chat_template_kwargs": {"reasoning_effort": effort}} for effort in ("none", "low", "max", "HIGH", None, 33, 0, 101, 1.0, "33", True)),
    *({"chat_template_kwargs": {key: value}} for key in ("thinking", "enable_thinking") for value in (True, False, "false", None)),
    *({"chat_template_kwargs": {"thinking_mode": value}} for value in ("chat", "thinking", "disabled")),
    {"chat_template_kwargs": {"thinking": False, "enable_thinking": True}}, {"chat_template_kwargs": {"enable_thinking": True, "thinking_mode": "chat"}},
    {"chat_template_kwargs": {"thinking": False}, "reasoning_effort": "max"}, {"chat_template_kwargs": {"reasoning_effort": "max"}, "reasoning_effort": "low"},
    {"messages": CHATS["thoughts"], "chat_template_kwargs": {"drop_thinking": False}}, {"messages": CHATS["thoughts"], "tools": TOOLS},
    {"messages": MORE["developers"], "chat_template_kwargs": {"drop_thinking": False}},
    {"messages": MORE["developers"], "chat_template_kwargs": {"thinking": False}},
    {"messages": CHATS["thoughts"], "chat_template_kwargs": {"drop_thinking": "false"}},
    *({"messages": messages, **more} for messages in ([U], MORE["developers"], CHATS["late system"], CHATS["system at the end"])
      for more in ({"response_format": {"type": "json_object"}}, {"response_format": {"type": "text"}}, {"tools": TOOLS},
                   {"response_format": {"type": "json_schema", "json_schema": SCHEMA | {"strict": True, "description": "d", "x": 1}}, "tools": TOOLS},
                   {"response_format": {"type": "json_schema", "json_schema": SCHEMA | {"strict": None}}, "tools": TOOLS, "tool_choice": "none"})),
]


def change_type(kind):
    def change(model):
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"model_type": kind}))
    return change


def test_native_prompts(tmp_path):
    models = TYPES | OTHERS
    with Fronts(tmp_path, NEWEST, {name: change_type(kind) for name, kind in models.items()}) as fronts:
        made, differ = fronts.compare(MORE, OPTIONS)
        assert not differ, "\n".join(f"{case}\n  theirs {theirs!r}\n  ours   {ours!r}" for case, (theirs, ours) in differ.items())
        assert made > 0.85 * len(models) * (len(CHATS) + 2 * len(MORE) + len(OPTIONS))
