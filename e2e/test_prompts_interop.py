# SPDX-License-Identifier: Apache-2.0
"""Prompts beside the reference's own frontends: the same text for the same chat, by templates that differ in what they
ask of messages. One mocker a template, and all fronts before them."""

import http.client
import json
import shutil

import pytest

import stack
from conftest import free_port, program, reference_python
from stack import CHAT, Stack, until
from test_openai_interop import Front, events

NEWEST = "1.6.1"
SHOWN = "{{ m.content if m.content is string or not m.content else m.content | tojson }}"
CALLS = "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}"
# What templates ask of messages, and templates that ask it. Those of 1.6.1 look for some of the words.
TEMPLATES = {
    "plain": "{% for m in messages %}<{{ m.role }}>" + SHOWN + CALLS + "{% endfor %}{% if add_generation_prompt %}<a>{% endif %}",
    "dump": "{{ messages | tojson }}{{ tools | tojson if tools is defined }}{{ add_generation_prompt }}",
    "dumpthoughts": "{# reasoning_content #}{{ messages | tojson }}",
    "onesystem": "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}"
                 "<{{ m.role }}>" + SHOWN + "{% endfor %}",
    "systemlate": "{% for m in messages %}{% if m.role == 'system' and loop.index > 3 %}{{ raise_exception('no') }}{% endif %}"
                  "<{{ m.role }}>" + SHOWN + "{% endfor %}",
    "nosystem": "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}<{{ m.role }}>" + SHOWN + "{% endfor %}",
    "alternate": "{% set ns = namespace(p='') %}{% for m in messages %}{% if m.role == 'user' and ns.p == 'user' %}"
                 "{{ raise_exception('no') }}{% endif %}{% set ns.p = m.role %}<{{ m.role }}>" + SHOWN + "{% endfor %}",
    "strict": "{% set ns = namespace(p='') %}{% for m in messages %}{% if m.role == ns.p or m.role == 'system' and not loop.first %}"
              "{{ raise_exception('no') }}{% endif %}{% set ns.p = m.role %}<{{ m.role }}>" + SHOWN + "{% endfor %}",
    "withtools": "{% for m in messages %}{% if tools and m.role == 'system' and not loop.first %}{{ raise_exception('no') }}"
                 "{% endif %}<{{ m.role }}>" + SHOWN + "{% endfor %}{{ tools | tojson }}",
    "textthoughts": "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content is string %}[{{ m.reasoning_content }}]{% endif %}"
                    + SHOWN + CALLS + "{% endfor %}",
    "thoughts": "{% for m in messages %}<{{ m.role }}>{% for r in m.reasoning_content or [] %}[{{ r }}]{% endfor %}" + SHOWN + "{% endfor %}",
    "textarguments": "{% for m in messages %}<{{ m.role }}>" + SHOWN + "{% for c in m.tool_calls or [] %}{% if c.function.arguments "
                     "is string %}{{ c.function.arguments }}{% else %}{{ c.function.arguments | tojson }}{% endif %}{% endfor %}{% endfor %}",
    "refusestext": "{% for m in messages %}<{{ m.role }}>" + SHOWN + "{% for c in m.tool_calls or [] %}{% if c.function.arguments "
                   "is string %}{{ raise_exception('no') }}{% endif %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}",
    "phi": "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}<|assistant|>",
    "llava": "{% for m in messages %}{{ 'USER: ' + m.content }}{% endfor %}ASSISTANT:",
    "passing": "{% for m in messages %}" + SHOWN + "{% endfor %}",
    "parts": "{% for m in messages %}<{{ m.role }}>{% for p in m.content or [] %}{{ p.type }}:{{ p.text }};{% endfor %}{% endfor %}",
    "values": "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token is defined }}|{{ documents is defined }}|{{ tools is none }}|"
              "{{ custom }}|{{ enable_thinking }}|{{ messages | length }}|{{ add_generation_prompt }}",
    "numbers": "{% for n in numbers %}{{ n }} {{ n | tojson }} {{ n | string }} {{ {'a': [n]} | tojson(indent=2) }};{% endfor %}",
    "fromjson": "{{ '[1, 2]' | fromjson | length }}{{ ('{\"a\": [1.5, null]}' | from_json).a[0] }}{{ 5 | fromjson }}{{ '1' | fromjson + 1 }}"
                "{% for c in messages[1].tool_calls or [] %}{% for k in c.function.arguments | tojson | fromjson %}{{ k }};{% endfor %}{% endfor %}",
    "lengths": "{{ none | length }}{{ nothing_at_all | length }}{{ 5 | length }}{{ tools | length }}{{ 'ab' | length }}",
    "nocount": "{{ none | count }}",
    "nothing": "{{ messages[0].nothing | tojson }}|{{ nothing_at_all | tojson }}|{{ [messages[0].nothing] | tojson }}|{{ {'a': nothing_at_all} | tojson }}",
}
NUMBERS = [0.1, 1.0, -0.0, 1e15, 1e16, 1e17, 1.5e16, 123456789012345680.0, 1e22, 1e-4, 1e-5, 1e-6, 1e-7, 1.25e-7, 5e-324, 1.7976931348623157e308, -2.5e-10, 9007199254740993,
           12345.678, 0.30000000000000004, 1e300]

U = {"role": "user", "content": "u"}
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image_url", "image_url": {"url": PIXEL}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "aaaa", "format": "wav"}}


def says(role="assistant", **more):
    return {"role": role, **more}


def text(words):
    return {"type": "text", "text": words}


def calls(arguments='{"z": 1,  "a": [1.0, null]}'):
    return [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}]


ANSWERED = [says("tool", tool_call_id="c1", content="t"), U]
CHATS = {name: [U, says(**answer), *after] for name, answer, *after in (
    ("thoughts", {"content": "c", "reasoning_content": "R"}, U),
    ("thoughts with blanks", {"content": "c", "reasoning_content": " \nR "}, U),
    ("blank thoughts", {"content": "c", "reasoning_content": " "}, U),
    ("empty thoughts", {"content": "c", "reasoning_content": ""}, U),
    ("null thoughts", {"content": "c", "reasoning_content": None}, U),
    ("thoughts alone", {"reasoning_content": "R"}, U),
    ("thoughts and null", {"content": None, "reasoning_content": "R"}, U),
    ("thoughts and nothing", {"content": "", "reasoning_content": "R"}, U),
    ("several thoughts", {"content": "c", "reasoning_content": ["R1", "", "R2"]}, U),
    ("no thoughts", {"content": "c", "reasoning_content": []}, U),
    ("only empty thoughts", {"content": "c", "reasoning_content": ["", ""]}, U),
    ("thoughts and a call", {"content": None, "reasoning_content": "R", "tool_calls": calls()}, *ANSWERED),
    ("thoughts around a call", {"content": "c", "reasoning_content": ["R1", "R2"], "tool_calls": calls()}, *ANSWERED),
    ("thoughts of parts", {"content": [text("a"), text("b")], "reasoning_content": "R"}, U),
    ("thoughts of no parts", {"content": [], "reasoning_content": "R"}, U),
    ("thoughts at the end", {"content": "c", "reasoning_content": "R"}),
    ("thoughts twice", {"content": "<think>R</think>c", "reasoning_content": "R"}, U),
    ("reasoning", {"content": "c", "reasoning": "R"}, U),
    ("thinking", {"content": "c", "thinking": "R"}, U),
    ("all keys", {"function_call": {"arguments": "{}", "name": "f"}, "tool_calls": calls(), "audio": {"id": "x"}, "refusal": "no",
                  "reasoning_content": "R", "name": "n", "content": "c"}, U),
    ("all keys but content", {"function_call": {"arguments": "{}", "name": "f"}, "tool_calls": calls(), "audio": {"id": "x"},
                              "reasoning_content": "R", "refusal": "no", "name": "n"}, U),
    ("nulls", {"content": "c", "refusal": None, "name": None, "tool_calls": None, "function_call": None}, U),
    ("a refusal", {"content": [{"type": "refusal", "refusal": "no"}, text("a")]}, U),
    ("no calls", {"content": "c", "tool_calls": []}, U),
    ("empty arguments", {"content": "", "tool_calls": calls("")}, U),
    ("arguments in an order", {"content": "", "tool_calls": calls('{"b":1,"a":{"d":"\\u00e9","c":1e3}}')}, U),
    ("a call with more", {"content": "", "tool_calls": [{"function": {"x": 1, "arguments": "{}", "name": "f"}, "index": 0,
                                                         "type": "function", "id": "c1"}]}, U),
    ("an old call", {"content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}},
     says("function", name="f", content="r"), says("function", name="f", content=None)),
    ("an answer in parts", {"content": None, "tool_calls": calls()}, says("tool", content=[text("a"), text("b")], tool_call_id="c1", name="f")),
)}
CHATS |= {
    "thoughts of others": [says("system", content="s", reasoning_content="R"), says("user", content="u", reasoning_content="R")],
    "late system": [says("system", content="s"), U, says("system", content="s2")],
    "systems": [says("system", content="s", name="n"), says("system", content="s1"), says("system", content=""), U, says("system", content="s2"), U],
    "systems of parts": [says("system", content=[text("s")]), says("system", content="s1"), says("system", content=[text("s2"), text("s3")]), U],
    "system before parts": [says("system", content="s"), says("system", content=[text("s2")]), U],
    "system at the end": [U, says(content="c"), says("system", content="s")],
    "users": [U, says("user", content=""), says("user", content="b", name="n"), says(content="c"), U, U],
    "users of parts": [says("user", content=[text("p"), text("q")]), says("user", content="r"), says("user", content=[text("s")])],
    "users and an image": [U, U, says("user", content=[text("p"), IMAGE]), U],
    "systems and users": [says("system", content="s"), U, says("system", content="s2"), U, says(content="c"), says("system", content="s3")],
    "developer": [says("developer", content="d", name="n"), U],
    "names": [says("system", content="d", name="x"), says("user", content="u", name="bob"), says(content="c", name="al"), U],
    "no parts": [says("user", content=[])],
    "an image": [says("user", content=[text("a"), IMAGE, text("b"), IMAGE])],
    "images first": [says("user", content=[IMAGE, {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}, text("b")])],
    "a sound": [says("user", content=[text("a"), AUDIO])],
    "keys of parts": [says("user", content=[{"text": "a", "type": "text", "cache_control": {"type": "ephemeral"}}, IMAGE])],
    "unknown keys": [says("user", content="u", foo=1, bar={"b": 1}), says(content="c", foo=1), U],
    "another order": [{"content": "u", "role": "user"}, {"tool_calls": calls(), "content": "c", "role": "assistant"}, *ANSWERED],
    "signs": [says("user", content="<b>'&\" é \u2028 \x7f \\ / \t")],
}
TOOLS = [{"type": "function", "bar": 1, "function": {"parameters": {"properties": {"b": {"type": "x"}, "a": {}}, "z": 1}, "name": "f",
                                                     "description": None, "strict": None, "foo": 1}},
         {"type": "function", "function": {"name": "g", "strict": True, "description": "d"}}, {"type": "function", "function": {"name": "h"}}]
OPTIONS = [{"tools": TOOLS}, *({"tools": TOOLS, "tool_choice": choice} for choice in ("none", "auto", "required")),
           {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}, {"tools": None},
           {"chat_template_kwargs": {"tools": "x", "messages": [1], "add_generation_prompt": False, "bos_token": "B", "eos_token": "E",
                                     "pad_token": "P", "custom": "C", "enable_thinking": False}},
           {"chat_template_args": {"documents": [1], "unk_token": "U"}}, {"chat_template_args": {"numbers": NUMBERS}},
           *({"chat_template_args": {"custom": number}, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"maximum": number}}}]}
             for number in (2**63 - 1, 2**63, 2**64 - 1, -2**63))]


def put_template(source):
    return lambda model: (model / "chat_template.jinja").write_text(source)


class Fronts:
    """A reference and ours, before the same mockers: one for each model, whose folder is changed first. @both: flags of either."""

    def __init__(self, folder, version, models, *flags, both=()):
        self.stack, self.version, self.models, self.flags, self.both = Stack(folder, events=False), version, models, flags, both

    def __enter__(self):
        self.stack.start_nats("-js")
        for i, (name, change) in enumerate(self.models.items()):
            model = self.stack.folder / f"model-{name}"
            shutil.copytree(stack.MODEL_PATH, model)
            change(model)
            mocker = self.stack.start("mocker", [
                program("dynamo-mocker"), "--model-path", model, "--model-name", name, "--endpoint", f"dyn://dynamo.model{i}.generate",
                "--block-size", 16, "--speedup-ratio", 0])
            mocker.wait_log("worker registered")
        port = free_port()
        store = "--store-kv" if self.version.startswith("0.") else "--discovery-backend"
        self.stack.start("reference", [reference_python(self.version), "-m", "dynamo.frontend", store, "file", "--request-plane", "tcp",
                                       "--event-plane", "nats", "--http-host", "127.0.0.1", "--http-port", port, *self.both],
                         HF_HUB_OFFLINE="1", DYN_EVENT_PLANE="nats", PYTHONUNBUFFERED="1")
        self.stack.frontend(*self.flags, *self.both)
        self.fronts = [Front(port), Front(self.stack.port)]
        until("both serve all models", lambda: all(self.serves(front) for front in self.fronts))
        return self

    def __exit__(self, *why):
        for process in self.stack.processes:
            process.kill()

    def serves(self, front):
        try:
            status, answer = front.ask("/v1/models", None)
        except (OSError, http.client.HTTPException):
            return False
        return status == 200 and len(json.loads(answer)["data"]) == len(self.models)

    def prompts(self, model, **more):
        """Of both; None where one refuses the chat."""
        body = {"model": model, "max_tokens": 1, "stream": True, "nvext": {"annotations": ["formatted_prompt"]}, **more}
        answers = [front.ask(CHAT, body) for front in self.fronts]
        return [events(answer)[0]["formatted_prompt"] if status == 200 else None for status, answer in answers]

    def compare(self, more=None, options=()):
        """How many prompts were made, and what differs; what the reference alone cannot render is ours."""
        chats = [(name, {"messages": messages}) for name, messages in CHATS.items()]
        for name, messages in (more or {}).items():
            chats += [(name, {"messages": messages}), (f"{name} and tools", {"messages": messages, "tools": TOOLS})]
        chats += [(str(more), {"messages": CHATS["late system"], **more}) for more in [*OPTIONS, *options]]
        pairs = {(model, name): self.prompts(model, **body) for model in self.models for name, body in chats}
        return len([pair for pair in pairs.values() if pair[0] is not None]), {
            case: pair for case, pair in pairs.items() if pair[0] != pair[1] and pair[0] is not None}


# --- Gemma 4, whose template is made to show thoughts where they belong --------------------------------

GEMMA = """\
{%- set ns_turn = namespace(last_user_idx=-1) -%}
{%- for m in messages if m['role'] == 'user' -%}{%- set ns_turn.last_user_idx = loop.index0 -%}{%- endfor -%}
{%- for message in messages -%}
    {{- '<|turn>' + message['role'] + '\\n' }}
    {%- if message.get('reasoning') and loop.index0 > ns_turn.last_user_idx and message.get('tool_calls') -%}
        {{- '<|channel>thought\\n' + message['reasoning'] + '\\n<channel|>'}}
    {%- endif -%}
            {%- if message['tool_calls'] -%}
                {%- for tool_call in message['tool_calls'] -%}
                    {%- set function = tool_call['function'] -%}
                    {{- '<|tool_call>call:' + function['name'] + '{' -}}
                    {{- function['arguments'] | tojson -}}
                    {{- '}<tool_call|>' -}}
                {%- endfor -%}
            {%- endif -%}
    {{- message['content'] if message['content'] is string else message['content'] | tojson -}}<turn|>
{% endfor %}
{%- if add_generation_prompt %}<|turn>model
{% endif %}"""
# The last three are not made so: of each, one of the words is another.
GEMMAS = {"gemma": GEMMA, "twice": GEMMA + GEMMA, "another_loop": GEMMA.replace("{%- set function", "{%-  set function"),
          "reads_them": GEMMA + "{# reasoning_content #}", "another_mark": GEMMA.replace("<|tool_call>call:", "<|tool_call> call:")}


def gemma_chats():
    """An answer with so many calls and thoughts, at the end or before a question."""
    made = {}
    for n in range(3):
        called = [{"id": f"c{i}", "type": "function", "function": {"name": f"f{i}", "arguments": "{}"}} for i in range(n)]
        for thoughts in ("R", "", None, [], ["R"], ["R1", "R2"], ["R1", "R2", "R3"], ["", "R2", ""], ["", "", "R3"], ["a", "b", "c", "d"]):
            answer = says(content="c", reasoning_content=thoughts, **{"tool_calls": called} if n else {})
            made[f"{n} calls, {thoughts}"] = [U, answer, *(says("tool", tool_call_id=f"c{i}", content="r") for i in range(n))]
            made[f"{n} calls, {thoughts}, asked"] = [*made[f"{n} calls, {thoughts}"], U]
    return made


def test_gemma_4(tmp_path):
    with Fronts(tmp_path, NEWEST, {name: put_template(source) for name, source in GEMMAS.items()}) as fronts:
        chats = gemma_chats()
        made, differ = fronts.compare(chats)
        assert not differ
        assert made > 0.9 * len(GEMMAS) * (len(CHATS) + 2 * len(chats))
        shown = [fronts.prompts(model, messages=chats["1 calls, ['R1', 'R2']"])[1] for model in GEMMAS]
        assert ["<|channel>thought\nR2" in prompt for prompt in shown] == [True, True, False, False, False]


# --- in general --------------------------------------------------------------------------------------

# The engine's own way of numbers, where 1.6.1 is neither it nor Python.
OLD_TEMPLATES = {"engine": "{% for n in numbers %}{{ [n] }} {{ n ~ '' }};{% endfor %}"}


@pytest.mark.parametrize("version,flags", [
    (NEWEST, ()), ("0.9.0", ("--chat-template-style", "dynamo-0.9", "--answer-style", "dynamo-0.9"))])
def test_prompts(tmp_path, version, flags):
    templates = TEMPLATES if version == NEWEST else TEMPLATES | OLD_TEMPLATES
    with Fronts(tmp_path, version, {name: put_template(source) for name, source in templates.items()}, *flags) as fronts:
        made, differ = fronts.compare()
        assert not differ
        assert made > 0.75 * len(templates) * (len(CHATS) + len(OPTIONS))
