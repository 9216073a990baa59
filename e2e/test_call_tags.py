# SPDX-License-Identifier: Apache-2.0
"""Calls of tools guided by structural tags, beside 1.6.1: what workers are sent whose cards ask for tags, every parser of
calls and every way to ask, key for key, and how the answers to it are read."""

import contextlib
import itertools
import json

import pytest

from fake_worker import FakeWorker
from stack import until
from test_openai_interop import NEWEST, Rig, pieces_of, said
from test_parser_sweep import TEXTS


def tool(name, parameters=None, **more):
    return {"type": "function", "function": {"name": name, **({"parameters": parameters} if parameters else {}), **more}}


def named(name):
    return {"type": "function", "function": {"name": name}}


F = tool("f", {"type": "object", "properties": {"x": {"type": "integer"}, "s": {"type": "string"}}, "required": ["x"]}, description="d")
G = tool("g")
STRICT = tool("h", {"type": "object", "properties": {"y": {"type": "string"}}, "required": ["y"], "additionalProperties": False}, strict=True)
LOOSE = tool("k", {"type": "object", "properties": {"z": {"type": "string"}}}, strict=False)
EMPTY = tool("e", {"type": "object", "properties": {}})
CLOSED = tool("c", {"type": "object", "properties": {}, "additionalProperties": False})
ALL = [F, G, STRICT, LOOSE, EMPTY, CLOSED]
ONE = {"parallel_tool_calls": False}
REQUIRED = {"tool_choice": "required"}
FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}}
WISHES = {
    "auto": {"tools": [F]}, "auto of one": {"tools": [F], **ONE}, "auto, strict": {"tools": [F, G, STRICT]}, "strict alone": {"tools": [STRICT]},
    "none": {"tools": [F], "tool_choice": "none"}, "no tools": {}, "required": {"tools": ALL, **REQUIRED},
    "required, one": {"tools": [F], **REQUIRED, **ONE}, "required, many": {"tools": [F], **REQUIRED, "parallel_tool_calls": True},
    "no parameters": {"tools": [G], **REQUIRED}, "loose": {"tools": [LOOSE], **REQUIRED},
    "named, one": {"tools": ALL, "tool_choice": named("f"), **ONE}, **{f"named {name}": {"tools": ALL, "tool_choice": named(name)} for name in "fghkec"},
    "object": {"tools": [F], "response_format": {"type": "json_object"}}, "schema": {"tools": [F, G, STRICT], **FORMAT},
    "schema, required": {"tools": [F], **REQUIRED, **FORMAT}, "text, required": {"tools": [F], **REQUIRED, "response_format": {"type": "text"}},
    "JSON": {"tools": [F], "guided_json": {"type": "object"}}, "pattern": {"tools": [STRICT], "guided_regex": "a"},
    "white space": {"tools": [F], **REQUIRED, "guided_whitespace_pattern": "a"}}

TAG = {"scope": "always", "schema": "auto", "allow_tool_calls_with_structured_output": False, "reasoning_boundary": "auto",
       "tool_arguments_any_order": False}
OLD = {"structural_tag_mode": "on", "structural_tag_scope": "always", "structural_tag_schema": "auto"}
TAGGED = ["hermes", "qwen25", "qwen3_coder", "nemotron_nano", "deepseek_v3_2", "deepseek_v4", "deepseek-v4", "deepseekv4", "glm47", "kimi_k2",
          "inkling"]
# JSON guidance that we make otherwise: it has maxItems of 1; a pattern for an object that has no members.
UNLIKE = {"required, one", "named c"}
LACKING = {"kimi_k3", "kimi-k3"}  # whose tags we do not make (router/openai/README.md)
CARDS = {name: {"tool_call_parser": name, "structural_tag": TAG, **OLD} for name in sorted(TEXTS) if name not in LACKING} | {
    "as-of-old": {"tool_call_parser": "hermes", **OLD}, "mode-alone": {"tool_call_parser": "hermes", "structural_tag_mode": "on"},
    "null": {"tool_call_parser": "hermes", "structural_tag": None, **OLD}, "nothing-said": {"tool_call_parser": "hermes", "structural_tag": {}},
    "where-needed": {"tool_call_parser": "hermes", **OLD, "structural_tag": {**TAG, "scope": "auto"}, "structural_tag_scope": "auto"},
    "all-strict": {"tool_call_parser": "hermes", **OLD, "structural_tag": {**TAG, "schema": "strict"}, "structural_tag_schema": "strict"},
    "off": {"tool_call_parser": "hermes", "structural_tag_mode": "off"}, "absent": {"tool_call_parser": "hermes"},
    "kimi-off": {"tool_call_parser": "kimi_k2", "structural_tag_mode": "off"}, "kimi-absent": {"tool_call_parser": "kimi_k2"},
    "no-parser": {"structural_tag": TAG, **OLD}, "thoughts": {"tool_call_parser": "hermes", "reasoning_parser": "qwen3", "structural_tag": TAG, **OLD}}


class Cards:
    """A worker of each card, under a model of its own, behind both frontends. They say what `say` holds."""

    def __init__(self, rig, cards):
        mocker, kv = rig.stack.mocker(), rig.stack.kv
        mocker.wait_log("worker registered")
        self.say = [{"token_ids": [300], "text": "x", "finish_reason": "stop"}]
        self.workers = {name: FakeWorker(kv, lambda body: self.say, worker_id=0x1000 + i, component=f"backend{i}", change_card=self.change(name, runtime))
                        for i, (name, runtime) in enumerate(cards.items())}
        self.theirs, self.ours = rig.reference(NEWEST), rig.ours()
        for front in (self.theirs, self.ours):
            until("all models are there", lambda front=front: self.workers.keys() <= {
                model["id"] for model in json.loads(front.ask("/v1/models", None)[1])["data"]})

    @staticmethod
    def change(name, runtime):
        def change(card):
            card["runtime_config"].update(runtime)
            card["display_name"] = card["slug"] = name
        return change

    def sent(self, front, name, wish):
        """guided_decoding of the request that its worker got."""
        worker = self.workers[name]
        before = len(worker.bodies)
        front.answer(**{**wish, "model": name})
        (body,) = worker.bodies[before:]
        return body["sampling_options"].get("guided_decoding")

    def says(self, pieces):
        self.say = [{"token_ids": [300 + i], "text": piece} for i, piece in enumerate(pieces)]
        self.say[-1]["finish_reason"] = "stop"


@pytest.fixture
def behind(tmp_path):
    with Rig(tmp_path) as rig, contextlib.ExitStack() as stack:
        def start(cards):
            made = Cards(rig, cards)
            for worker in made.workers.values():
                stack.callback(worker.close)
            return made
        yield start


def test_what_workers_are_sent(behind):
    cards, tags, wrong = behind(CARDS), set(), []
    for name, (wish, more) in itertools.product(CARDS, WISHES.items()):
        want, got = (cards.sent(front, name, more) for front in (cards.theirs, cards.ours))
        if got != want and not (wish in UNLIKE and "structural_tag" not in want):
            wrong.append((name, wish, got, want))
        if want and "structural_tag" in want:
            tags.add(name)
    assert not wrong
    assert tags == {*TAGGED, *(CARDS.keys() - TEXTS.keys() - {"off", "absent", "no-parser"})}


BOTH = {"tools": [F, tool("g", F["function"]["parameters"])]}
FORCED = {"required": {**BOTH, **REQUIRED}, "named": {**BOTH, "tool_choice": named("f")}}


def test_answers(behind):
    """A call that is demanded is read by the model's parser; of a named one only those of its tool."""
    cards, wrong, calls = behind({name: CARDS[name] for name in TAGGED}), [], 0
    for name, more in itertools.product(TAGGED, FORCED.values()):
        texts = [*TEXTS[name], '[{"name":"f","parameters":{"x":1}}]', '{"x":1}', "words",
                 TEXTS[name][0].replace('"f"', '"g"').replace("=f>", "=g>").replace(".f:", ".g:").replace("call>f", "call>g")]
        for text, size, stream in itertools.product(texts, (5, 1000), (False, True)):
            cards.says([*pieces_of(text, size), ""])
            want, got = (said(front.answer(**more, model=name, stream=stream)) for front in (cards.theirs, cards.ours))
            calls += len(want[2])
            if got != want:
                wrong.append((name, text, size, stream, got, want))
    assert not wrong and calls
