# SPDX-License-Identifier: Apache-2.0
"""Chat templates against PyPI `jinja2`, set up as `transformers` does: prompts must be equal, and
what one of the two refuses, the other must.

TEMPLATES multiplies the numbers: 1 is 500 conversations a template and 2,500 random templates with
five sets of variables each, in a minute of CPU time; 9 is the full form, 50,000 random renderings that
succeed and as many that must fail.
"""

import collections
import datetime
import json
import os
import random
import re

import jinja2
import pytest
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from conftest import ROOT
from tokens import binding, grammar

SCALE = float(os.environ.get("TEMPLATES", "1"))
NOW = datetime.datetime(2026, 11, 21, 9, 8, 7)
TEMPLATES = [*sorted((ROOT / "e2e/tokens/templates").glob("*.jinja")), ROOT / "examples/model/chat_template.jinja"]
# What a template can do wrong in Python's eyes.
FAILURES = (jinja2.exceptions.TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError,
            RecursionError, SyntaxError)


@pytest.fixture(scope="session")
def lib():
    return binding.build()


class Generation(Extension):
    """{% generation %} as transformers has it: its body is called."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

    def _said(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=NOW.strftime)
    return env


def outcome(make):
    """What it makes, or why it does not."""
    try:
        return make()
    except FAILURES as why:
        return why


# --- conversations ---------------------------------------------------------------------------------

SAID = ["", "Hi!", "  spaced \n", "naïve 👨‍👩‍👧 שלום", "<think>\nhm\n</think>\n\nyes", "{{ not }} {% code %}", "a\n\nb",
        "'quotes' & \"more\" <tags>", "long " * 40, "[INST] x [/INST]", "</s>", "1"]


def tool(rng, name):
    parameters = {"type": "object", "required": ["x"], "properties": {
        "x": {"type": "integer", "description": "how many", "enum": [1, 2, 3]},
        "é": {"type": ["string", "null"], "default": None},
        "list": {"type": "array", "items": {"type": "string"}}}}
    function = {"name": name, "description": "It's <b>bold</b> & \"quoted\".", "parameters": parameters}
    if rng.random() < 0.2:
        function["parameters"] = {"type": "object", "properties": {}}
    if rng.random() < 0.2:
        function["return"] = {"type": "string"}
    return {"type": "function", "function": function}


def content(rng):
    text = rng.choice(SAID)
    if rng.random() < 0.75:
        return text
    parts = [{"type": "text", "text": text}]
    if rng.random() < 0.5:
        parts.insert(rng.randint(0, 1), {"type": rng.choice(["image", "image", "audio", "video"])})
    return parts


def answered_calls(rng):
    calls = [{"id": f"abcdefgh{i}", "type": "function", "function": {"name": rng.choice(["f0", "f1"]), "arguments": {
        "x": rng.randint(0, 9), "s": rng.choice(SAID), "l": [1, None, True, 2.5], "o": {"b": {}, "a": 1.0}}}}
        for i in range(rng.choice([1, 1, 2]))]
    message = {"role": "assistant", "content": rng.choice([None, "", rng.choice(SAID)]), "tool_calls": calls}
    if rng.random() < 0.3:
        message["reasoning_content"] = rng.choice(SAID)
    return [message] + [{"role": "tool", "name": call["function"]["name"], "tool_call_id": call["id"],
                         "content": rng.choice([rng.choice(SAID), '{"ok": true}'])} for call in calls]


def conversation(rng):
    """Messages that make sense to most templates; now and then one that does not."""
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": rng.choice(["system", "system", "developer"]), "content": content(rng)})
    for _ in range(rng.randint(0, 3)):
        messages.append({"role": "user", "content": content(rng)})
        if rng.random() < 0.35:
            messages += answered_calls(rng)
        messages.append({"role": "assistant", "content": rng.choice(SAID)})
        if rng.random() < 0.2:
            messages[-1][rng.choice(["reasoning_content", "thinking"])] = rng.choice(SAID)
    if rng.random() < 0.85:
        messages.append({"role": "user", "content": content(rng)})
    if rng.random() < 0.08:
        messages.append({"role": rng.choice(["user", "critic"]), "content": rng.choice(SAID)})
    context = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": rng.random() < 0.8}
    if rng.random() < 0.4:
        context["tools"] = [tool(rng, f"f{i}") for i in range(rng.randint(0, 3))]
    for name, chance, values in (
            ("enable_thinking", 0.4, [True, False]), ("builtin_tools", 0.2, [["search", "code_interpreter"]]),
            ("tools_in_user_message", 0.2, [True, False]), ("reasoning_effort", 0.2, ["low", "high"]),
            ("thinking", 0.2, [True, False]), ("date_string", 0.2, ["1 Jan 2026"]), ("add_vision_id", 0.1, [True]),
            ("documents", 0.15, [[{"title": "T", "text": "body\ntwo"}]]), ("model_identity", 0.1, ["You are a test."])):
        if rng.random() < chance:
            context[name] = rng.choice(values)
    return context


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.stem)
def test_template(lib, path):
    source = path.read_text()
    theirs, ours = environment().from_string(source), binding.Template(lib, source)
    rng, rendered = random.Random(path.stem), 0
    for _ in range(round(500 * SCALE)):
        context = conversation(rng)
        want, got = outcome(lambda: theirs.render(**context)), outcome(lambda: ours.render(context, NOW))
        if isinstance(want, str):
            assert got == want, context
            rendered += 1
            continue
        assert isinstance(got, ValueError), (context, want, got)
        assert re.match(r"chat template: line \d+: ", str(got))
        if type(want) is jinja2.exceptions.TemplateError:  # raised by the template itself
            assert str(want) in str(got)
    assert rendered > 100 * SCALE


# --- the language ----------------------------------------------------------------------------------


def test_random_templates(lib):
    env, seen = environment(), collections.Counter()
    for seed in range(round(2500 * SCALE)):
        rng = random.Random(seed)
        source = grammar.template(rng)
        theirs, ours = outcome(lambda: env.from_string(source)), outcome(lambda: binding.Template(lib, source))
        for _ in range(5):
            variables = json.loads(json.dumps(grammar.variables(rng)))
            want = theirs if isinstance(theirs, Exception) else outcome(lambda: theirs.render(**variables))
            got = ours if isinstance(ours, Exception) else outcome(lambda: ours.render(variables, NOW))
            if isinstance(want, str) and re.search(r" at 0x[0-9a-f]{6,}", want):
                seen["shows an address"] += 1  # what has no text of its own is an error to us
            elif isinstance(got, ValueError) and "out of range" in str(got):
                seen["integers of more than 64 bits"] += 1
            elif isinstance(want, str):
                assert got == want, (seed, source, variables)
                seen["equal"] += 1
            else:
                assert isinstance(got, ValueError), (seed, source, variables, want, got)
                seen["refused by both"] += 1
    print(dict(seen))
    assert seen["equal"] > seen["refused by both"] > 0
    assert seen["shows an address"] + seen["integers of more than 64 bits"] < 0.01 * sum(seen.values())


def snippets():
    folder = ROOT / "e2e/corpus/template"
    return [p for p in sorted(folder.iterdir()) if p.name.isdigit()]


@pytest.mark.parametrize("path", snippets(), ids=lambda p: p.name)
def test_snippet(lib, path):
    """Every filter, test and method that we have, in small."""
    source = path.read_text()
    context = json.loads((ROOT / "e2e/tokens/context.json").read_text())
    want = outcome(lambda: environment().from_string(source).render(**context))
    got = outcome(lambda: binding.Template(lib, source).render(context, NOW))
    assert got == want if isinstance(want, str) else isinstance(got, ValueError), (want, got)
