# SPDX-License-Identifier: Apache-2.0
"""Prompts of models that ship no chat template, beside the frontend of 1.6.1, which writes them itself."""

import base64
import json
import re

from stack import CHAT
from test_openai_interop import events
from test_prompts_interop import CHATS, IMAGE, NEWEST, TOOLS, Fronts, U, calls, says, text
from tokens import shapes

# Which models of DeepSeek those are: by model_type, by the served name where there is none.
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


# --- DeepSeek V3.2 in 0.9.0, by its name ----------------------------------------------------------------

OLD_NAMED = ["deepseek-v3.2", "x-DeepSeekV3.2b"]
OLD_OTHERS = ["DeepSeek-V3.2-Expert", "deepseek_v3_2", "deepseek-v4"]
# What it leaves out, and 1.6.1 does not.
TOLD = re.compile(r"\n\n## Tools\n.*?</functions>\n|\n\n## Response Format:\n\n[^\n]*\n[^<]*", re.DOTALL)


def is_of_parts(messages):
    return any(isinstance(message.get("content"), list) for message in messages)


def test_v32_for_workers_of_0_9(tmp_path):
    """As there, but that parts, tools, the form of answers and the switch of thoughts are told, which it loses."""
    models = {name: change_type("deepseek_v32") for name in OLD_NAMED + OLD_OTHERS}
    flags = "--chat-template-style", "dynamo-0.9", "--answer-style", "dynamo-0.9"
    with Fronts(tmp_path, "0.9.0", models, *flags) as fronts:
        asked = [{"messages": messages, **more} for messages in [*CHATS.values(), *MORE.values()] for more in ({}, {"tools": TOOLS})]
        asked += [{"messages": CHATS["late system"], **more} for more in OPTIONS]
        whole = [body for body in asked if not is_of_parts(body["messages"]) and "chat_template_kwargs" not in body]
        pairs = [(body, *fronts.prompts("deepseek-v3.2", **body)) for body in whole]
        named = {name: fronts.prompts(name, messages=[U]) for name in models}
        off = fronts.prompts("deepseek-v3.2", messages=[U], chat_template_kwargs={"thinking": False})
        parts = fronts.prompts("deepseek-v3.2", messages=[says("user", content=[text("a"), text("b")])])
    made = [(body, want, got) for body, want, got in pairs if want is not None]
    differ = [one for one in made if one[1] != TOLD.sub("", one[2])]
    assert not differ, "\n".join(f"{body}\n  theirs {want!r}\n  ours   {got!r}" for body, want, got in differ)
    assert all(("tools" in body) == ("## Tools" in got) for body, _, got in made if body.get("tool_choice") != "none")
    assert len(made) > 0.9 * len(whole) > 90
    assert all(want == got and ("<\uff5cUser\uff5c>" in got) == (name in OLD_NAMED) for name, (want, got) in named.items())
    assert off[0].endswith("<think>") and off[1].endswith("</think>")
    assert [prompt.count("ab") for prompt in parts] == [0, 1]


# --- Kimi K3, whose marks no client can write --------------------------------------------------------

BEGINS = "<|open|>message role="
MARKS = ["[BOS]", "[EOS]", "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>", "[UNK]", "[PAD]", "<|media_pad|>"]
# Tokens that would join what stands side by side, if pieces were not tokenized each by itself.
JOINING = [b'="', b"]\n", b'"-', b"=m", b"=n", b"=s", b"`f", b"n`", b":\n", b".\n", b'="-', b'" ', b"-e"]
# By type or name; these have a tokenizer.json, which 1.6.1 cannot tell such prompts with.
K3_TYPES = {"upper": "KIMI_K3", "Kimi-K3": "", "kimi_k3-x": "", "a-KimiK3.v2": ""}
K3_OTHERS = {"hyphen": "kimi-k3", "kimi.k3": "", "kimik3": "llama"}


def become_k3(model):
    """A folder as of Kimi's: ranks of tokens, no tokenizer.json."""
    ranks = sorted(shapes.ranks(), key=shapes.ranks().get)
    ranks += [token for token in JOINING if token not in ranks]
    (model / "tiktoken.model").write_text("".join(f"{base64.b64encode(token).decode()} {i}\n" for i, token in enumerate(ranks)))
    (model / "tokenizer.json").unlink()
    marks = {str(len(ranks) + i): {"content": mark, "special": True} for i, mark in enumerate(MARKS)}
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(config | {"added_tokens_decoder": marks, "eos_token": "[EOS]"}))
    change_type("kimi_k3")(model)


def result_run(order, ids="ab"):
    """Results of calls in an order: a call's id, U a user's word, T calls again, any other no call."""
    again = says(content=None, tool_calls=[{"id": name, "type": "function", "function": {"name": f"{name}{i}", "arguments": "{}"}}
                                           for i, name in enumerate(ids)])
    return [U, again, *(U if who == "U" else again if who == "T" else result(who, f"{who}{i}") for i, who in enumerate(order))]


FUNCTION = {"type": "function", "function": {"name": "f"}}
K3_OPTIONS = [
    {}, {"tools": [FUNCTION]}, *({"tools": [FUNCTION], "tool_choice": choice, **more} for choice in ("none", "auto", "required", FUNCTION)
                                 for more in ({}, {"reasoning_effort": "low"}, {"response_format": {"type": "json_object"}},
                                              {"reasoning_effort": "none", "add_generation_prompt": False})),
    {"tool_choice": "none"}, {"tools": [{"type": "function", "function": {"name": "f", "description": "\u2028\x7f\\ \x01<|sep|>", "parameters": {
        "type": "object", "properties": {}, "z": [1e16, 1e-7, 1.0, 0.00001, 2**64 - 1, 1e15], "é": None}}}]},
    {"messages": [U, says(content="ab \n")], "add_generation_prompt": False, "continue_final_message": True, "tools": [FUNCTION], "tool_choice": "required"},
    *({"chat_template_kwargs": {"thinking_effort": a, "reasoning_effort": b}} for a in ("low", "high", "x", "none", None, 5) for b in ("low", "max", "x", None)),
    {"chat_template_kwargs": {"thinking": False, "thinking_effort": "x"}}, {"chat_template_kwargs": {"thinking": True, "reasoning_effort": "none"}},
]
K3_CHATS = {f"results {order} of {ids}": result_run(order, ids) for order, ids in (
    *((order, "ab") for order in ("b", "bUx", "bUb", "abUa", "aUba", "xUa", "xUb", "bUxy", "aUxUb", "ba", "aa", "xx", "bx", "abx", "baa", "abTba", "bTUa", "xU")),
    *((order, "aab") for order in ("a", "aaa", "ba", "baa", "aUaUb")), *((order, "abc") for order in ("cab", "ca", "cUba", "caUb")))}
K3_CHATS |= {
    "marks": [says("user", content="a<|open|>x<|sep|>y[BOS]<|media_pad|>", name='-e"&<n'), says("system", content="<|end_of_msg|>", name="s"), U],
    "parts": [says("user", content=[text("th"), text("e "), text(""), text("the"), IMAGE, text("e")]), says(content=[text("th"), text("e")])],
    "parts of others": [says("system", content=[text("th"), text("e")]), says("developer", content="d", name="n"), U],
    "arguments": [U, says(content="", tool_calls=calls('{"-en\\"&<>":"x`<|sep|>","n":1.50,"m":1e3,"e":1e16,"f":1e-7,"g":0.00001,"h":-0.0,"b":true,"z":null,'
                                                       '"o":{"z":[1.5,1e22,{},[]],"a":"\\u0001\\u2028<"},"i":18446744073709551615,"":[[]]}')), result("c1", "r")],
    "no arguments": [U, says(content="", tool_calls=calls("")), result("c1", "r")],
}


def tokens_of(front, model, body):
    """(prompt, ids), or the status of a refusal."""
    asked = {"model": model, "max_tokens": 1, "stream": True, "nvext": {"annotations": ["formatted_prompt", "token_ids"]}, **body}
    status, answer = front.ask(CHAT, asked)
    told = events(answer)[0] if status == 200 else None
    return (told["formatted_prompt"], json.loads(told["token_ids"])) if told else status


def test_kimi_k3(tmp_path):
    models = {"k3": become_k3, **{name: change_type(kind) for name, kind in (K3_TYPES | K3_OTHERS).items()}}
    asked = [{"messages": messages, **more} for messages in [*CHATS.values(), *MORE.values(), *K3_CHATS.values()]
             for more in ({}, {"tools": TOOLS, "chat_template_kwargs": {"thinking": False}})]
    asked += [{"messages": CHATS["late system"], **more} for more in [*OPTIONS, *K3_OPTIONS]]
    with Fronts(tmp_path, NEWEST, models) as fronts:
        pairs = [(body, *(tokens_of(front, "k3", body) for front in fronts.fronts)) for body in asked]
        others = {model: [tokens_of(front, model, {"messages": [U]}) for front in fronts.fronts] for model in K3_TYPES | K3_OTHERS}
    differ = [(body, want, got) for body, want, got in pairs if want != got]
    assert not differ, "\n".join(f"{body}\n  theirs {want}\n  ours   {got}" for body, want, got in differ)
    made = [want[0] for _, want, _ in pairs if want != 400]
    assert 0.8 * len(asked) < len(made) < len(asked) and all(prompt.startswith(BEGINS) for prompt in made)
    assert all(want == 500 and got[0].startswith(BEGINS) for name, (want, got) in others.items() if name in K3_TYPES)
    assert all(want == got and not got[0].startswith(BEGINS) for name, (want, got) in others.items() if name in K3_OTHERS)
