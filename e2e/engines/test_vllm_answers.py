# SPDX-License-Identifier: Apache-2.0
"""What the real `vllm serve` answers, through our frontend and asked directly: tools, structured outputs, its other APIs.

Its weights are random: calls are made where the engine's grammar leaves it no choice, and equal seeds say the same."""

import itertools
import json
import random
import re

import pytest

from real_vllm import BLOCK, FUNCTION, NAMED, SCHEMA, Engine, environment, model_files, outcome, plain, running, said, serve, teach
from stack import CHAT, COMPLETIONS, MODEL, MODEL_PATH, RESPONSES, Stack, decision_for, until, words

seeds = itertools.count(random.randrange(10 ** 6))
MESSAGES, COUNT, FLAG = "/v1/messages", "/v1/messages/count_tokens", "--enable-anthropic-api"


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm")
    with running([Engine(folder, model_files(folder / "model"), environment(), "vllm", "--enable-auto-tool-choice",
                         "--tool-call-parser", "hermes")]) as engines:
        yield engines[0]


@pytest.fixture
def stack(engine, tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield serve(stack, [engine], FLAG)


def no_blanks():
    """A bias against tokens of white space, of which a grammar of JSON allows any number."""
    tokens = json.loads((MODEL_PATH / "tokenizer.json").read_text())["model"]["vocab"]
    return {str(i): -100 for token, i in tokens.items() if re.search("[ĠĊĉč]", token) and not re.search("[A-Za-z]", token)}


def keys(value, path=""):
    """Of each member, where it is and of what type: however many tokens are told together."""
    if isinstance(value, dict):
        return {(path, dict)}.union(*(keys(one, f"{path}.{key}") for key, one in value.items()))
    return {(path, list)}.union(*(keys(one, path + "[]") for one in value)) if isinstance(value, list) else {(path, type(value))}


def events_of(text):
    """[its data as JSON] of a stream of the engine's own."""
    return [json.loads(data) for data in re.findall("^data: (.*)$", text, re.M) if data != "[DONE]"]


# --- chats ---

GUIDED = [{"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required", "parallel_tool_calls": False},
          {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": NAMED},
          {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "auto"},
          {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
          {"structured_outputs": {"choice": ["yes", "no"]}}]


@pytest.mark.parametrize("more", GUIDED, ids=["required", "named", "auto", "schema", "choice"])
def test_tools_and_structured_outputs(engine, stack, more):
    """Whole and streamed, key for key and word for word."""
    asked = stack.body("Hello", max_tokens=100, seed=5, **({} if "structured_outputs" in more else {"logit_bias": no_blanks()}), **more)
    answer, direct = stack.request("POST", CHAT, asked), engine.ask(CHAT, asked)
    assert answer.status == 200 and plain(answer.json) == plain(direct)
    [choice] = direct["choices"]
    if more.get("tool_choice") in ("required", NAMED):
        [call] = choice["message"]["tool_calls"]
        assert call["function"]["name"] == "f" and json.loads(call["function"]["arguments"]).keys() == {"a", "b"}
    elif "response_format" in more:
        assert json.loads(choice["message"]["content"]).keys() == {"a", "b"}
    asked |= {"stream": True, "stream_options": {"include_usage": True}}
    chunks, direct = stack.request("POST", CHAT, asked).chunks, events_of(engine.raw(CHAT, asked)[1])
    assert said(chunks) == said(direct) and any(said(chunks)[:2])
    assert set().union(*map(keys, chunks)) == set().union(*map(keys, direct)) and plain(chunks[-1]) == plain(direct[-1])


# --- other APIs ---

def dialect(api, content, **more):
    if api == RESPONSES:
        return {"model": MODEL, "input": content, "max_output_tokens": 16, "temperature": 0, **more}
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 16, "temperature": 0, **more}


def pieces(events):
    """All text and arguments of a stream's deltas."""
    deltas = [event["delta"] for event in events if event["type"].endswith("delta")]
    return "".join(delta if isinstance(delta, str) else delta.get("text") or delta.get("partial_json") or "" for delta in deltas)


CALLED = {RESPONSES: {"tools": [{"type": "function", **FUNCTION}], "tool_choice": "required", "max_output_tokens": 100},
          MESSAGES: {"tools": [{"name": "f", "input_schema": SCHEMA, "strict": True}], "tool_choice": {"type": "tool", "name": "f"}, "max_tokens": 100}}
FORMED = {"text": {"format": {"type": "json_schema", "name": "n", "strict": True, "schema": SCHEMA}}, "max_output_tokens": 100}


@pytest.mark.parametrize("api, more", [(RESPONSES, {}), (MESSAGES, {}), (RESPONSES, CALLED[RESPONSES]), (MESSAGES, CALLED[MESSAGES]),
                                       (RESPONSES, FORMED)], ids=["responses", "messages", "responses-call", "messages-call", "responses-schema"])
def test_other_apis_are_the_engines_own(engine, stack, api, more):
    """Key for key, event for event."""
    asked = dialect(api, words(50, next(seeds)), **({"logit_bias": no_blanks()} if api == RESPONSES and more else {}), **more)
    answer = stack.request("POST", api, asked)
    assert answer.status == 200 and plain(answer.json) == plain(engine.ask(api, asked))
    asked["stream"] = True
    stream, text = stack.request("POST", api, asked), engine.raw(api, asked)[1]
    events, direct = [json.loads(data) for _, data in stream.events], events_of(text)
    assert [name for name, _ in stream.events] == [event["type"] for event in events]
    kinds = dict.fromkeys(event["type"] for event in direct)
    assert dict.fromkeys(event["type"] for event in events) == kinds and list(kinds)[-1] == events[-1]["type"]
    assert set().union(*map(keys, events)) == set().union(*map(keys, direct))
    assert pieces(events) == pieces(direct) != "" and plain(events[-1]) == plain(direct[-1])


@pytest.mark.parametrize("api", [RESPONSES, MESSAGES])
@pytest.mark.parametrize("more", [{"max_output_tokens": 99999, "max_tokens": 0}, {"input": [{"type": "x"}], "messages": [{"role": "x"}]},
                                  {"previous_response_id": "resp_x", "max_tokens": "x"}])
def test_refusals_are_the_engines_own(engine, stack, api, more):
    """To the byte."""
    asked = dialect(api, "Hello", **more)
    status, text = engine.raw(api, asked)
    answer = stack.request("POST", api, asked)
    assert status >= 400 and (answer.status, answer.body.decode()) == (status, text)


@pytest.mark.parametrize("api", [RESPONSES, MESSAGES])
def test_other_apis_find_prefixes(stack, api):
    """Those of chats, too; what is counted of them is what the engine counts."""
    content = words(200, next(seeds))
    [home] = stack.instances()
    teach(stack, content, home)
    predicted, had = outcome(stack, stack.request("POST", api, dialect(api, content)))
    assert predicted == had >= 5 * BLOCK


def test_tokens_are_counted_and_cut_by_the_engine(engine, stack):
    asked = {"model": MODEL, "messages": [{"role": "user", "content": words(50)}]}
    for path, body in ((COUNT, asked), ("/tokenize", asked), ("/tokenize", {"model": MODEL, "prompt": "a b"}),
                       ("/detokenize", {"model": MODEL, "tokens": [65]})):
        assert stack.request("POST", path, body).json == engine.ask(path, body)


# --- what is served from its cache ---

@pytest.mark.parametrize("more, blocks", [(0, 3), (1, 4)])
def test_a_prompt_of_whole_blocks_is_not_all_served(stack, more, blocks):
    """The last token is computed in any case; we hear of four blocks."""
    first = next(seeds) % 5000
    body = {"model": MODEL, "prompt": [first] + list(range(1000, 1000 + 4 * BLOCK - 1 + more)), "max_tokens": 1}

    def ask():
        answer = stack.request("POST", COMPLETIONS, body)
        return decision_for(stack, answer).selected["cached"], outcome(stack, answer)
    until("its blocks are known", lambda: ask()[0] == 4)
    assert ask() == (4, (blocks * BLOCK, blocks * BLOCK))
