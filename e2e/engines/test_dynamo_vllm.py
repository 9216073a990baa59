# SPDX-License-Identifier: Apache-2.0
"""ai-dynamo's own worker of vLLM (`python -m dynamo.vllm`), with the real vLLM that it wants, behind our frontend and
the reference's: two workers serve all tests."""

import itertools
import os
import pathlib
import random

import pytest

from conftest import free_port, reference_python
from real_vllm import BLOCK, ENV, FUNCTION, NAMED, SCHEMA, START, Program, blocks, environment, flags, model_files, plain, said, teach
from stack import CHAT, COMPLETIONS, MODEL, ROUTED_LOG, Stack, decision_for, until, words

seeds = itertools.count(random.randrange(10 ** 6))
PLANES = ("--discovery-backend", "file", "--event-plane", "zmq", "--request-plane", "tcp")


@pytest.fixture(scope="session")
def workers(tmp_path_factory):
    """(their processes, the folder by which they are found)"""
    folder = tmp_path_factory.mktemp("dynamo-vllm")
    python, model = environment(), model_files(folder / "model")
    kv = folder / "kv"
    kv.mkdir()
    env = {**os.environ, **ENV, "PYTHONPATH": str(pathlib.Path(python).parent.parent / "dynamo"), "DYN_FILE_KV": str(kv),
           "DYN_TCP_RPC_HOST": "127.0.0.1"}
    processes = [Program(f"dynamo-vllm-{i}", ["nice", "-n", "10", python, "-m", "dynamo.vllm", "--model", model, *PLANES,
                                              *flags(free_port())],
                         {**env, "DYN_SYSTEM_PORT": str(free_port())}, folder / f"worker-{i}.log", folder) for i in range(2)]
    try:
        for process in processes:
            process.wait_log("Registered endpoint 'dynamo.backend.get_perf_metrics'", START)
        yield processes, kv
    finally:
        for process in processes:
            process.kill()


@pytest.fixture
def stack(workers, tmp_path):
    with Stack(tmp_path, events=False) as stack:
        stack.kv = workers[1]
        stack.frontend("--router-mode", "kv", DYN_KV_EVENTS="true", DYN_EVENT_PLANE="zmq", DYN_LOG=ROUTED_LOG)
        stack.ready(2)
        for worker in stack.instances():  # the first answer of each takes a minute
            stack.chat("Hello", {"x-worker-instance-id": str(worker)}, timeout=START)
        yield stack


@pytest.fixture
def theirs(stack):
    """The reference's frontend, as a stack to ask."""
    port = free_port()
    stack.start("reference-frontend", [reference_python("1.6.1"), "-m", "dynamo.frontend", "--http-host", "127.0.0.1",
                                       "--http-port", port, "--router-mode", "kv", *PLANES], HF_HUB_OFFLINE="1")
    other = type("Asked", (Stack,), {"__init__": lambda self: None})()
    other.port = port

    def serves():  # it lists a model a moment before it opens the route
        try:
            return other.models() == [MODEL] and other.request("POST", CHAT, other.body("Hello", max_tokens=1)).status == 200
        except OSError:
            return False
    until("it serves the model", serves)
    return other


@pytest.mark.parametrize("api", [CHAT, COMPLETIONS])
def test_answers(stack, theirs, api):
    """As the reference's frontend gives them, key for key; text is random."""
    for more in ({}, {"stream": True, "stream_options": {"include_usage": True}}, {"stop": ["e"], "min_tokens": 0}):
        body = stack.body(words(50, next(seeds)), api, **{"max_tokens": 6, **more})
        answers = [one.request("POST", api, body) for one in (stack, theirs)]
        assert [answer.status for answer in answers] == [200, 200]
        ours, reference = [(answer.chunks if more.get("stream") else [answer.json])[-1] for answer in answers]
        assert ours.keys() >= reference.keys()
        assert answers[0].usage["prompt_tokens"] == answers[1].usage["prompt_tokens"]


TOOLS = {"tools": [{"type": "function", "function": FUNCTION}]}
GUIDED = {"required": {**TOOLS, "tool_choice": "required"}, "named": {**TOOLS, "tool_choice": NAMED}, "auto": TOOLS,
          "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
          "both": {**TOOLS, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
          "object": {"response_format": {"type": "json_object"}}, "json": {"guided_json": SCHEMA},
          "choice": {"guided_choice": ["yes", "no"]}, "regex": {"guided_regex": "[ab]{4}"}}


@pytest.mark.parametrize("more", GUIDED.values(), ids=GUIDED)
def test_tools_and_structured_outputs(stack, theirs, more):
    """With equal seeds the same answers as behind the reference's frontend; streams may tell tokens together. The workers
    name no parser of calls: with one calls are guided by tags (test_call_tags.py)."""
    body = stack.body("Hello", max_tokens=100, seed=5, **more)
    ours, reference = [one.request("POST", CHAT, body).json for one in (stack, theirs)]
    assert plain(ours) == plain(reference)
    [choice] = ours["choices"]
    if "tool_choice" in more and choice["finish_reason"] != "length":
        assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["f"]
    streams = [one.request("POST", CHAT, {**body, "stream": True}).chunks for one in (stack, theirs)]
    assert said(streams[0]) == said(streams[1]) and any(said(streams[0])[:2])


def test_the_next_turn_goes_where_the_prefix_is(stack):
    ids = stack.instances()
    homes = {next(seeds): ids[i % 2] for i in range(4)}
    for seed, home in homes.items():
        teach(stack, words(300, seed), home)
    for seed, home in reversed(homes.items()):
        turns = [{"role": "user", "content": words(300, seed)}]
        answer = stack.chat(messages=turns + [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "More."}])
        chosen = decision_for(stack, answer).selected
        assert chosen["worker"] == home
        assert chosen["cached"] * BLOCK == answer.usage["prompt_tokens_details"]["cached_tokens"] >= 200


def test_a_frontend_that_starts_later_is_told_all(stack):
    content, home = words(200, next(seeds)), stack.instances()[0]
    teach(stack, content, home)
    known = blocks(stack)
    stack.front.stop()
    stack.frontend("--router-mode", "kv", DYN_KV_EVENTS="true", DYN_EVENT_PLANE="zmq", DYN_LOG=ROUTED_LOG)
    stack.ready(2)
    until("the workers have told it", lambda: blocks(stack) >= known)
    assert decision_for(stack, stack.chat(content)).selected["worker"] == home


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("more, status", [
    ({"max_tokens": 4090}, 400),  # with the prompt more than the worker's budget
    ({"max_tokens": 4 << 40}, 400),
    ({"content": words(9000)}, 400),
    ({"max_tokens": 0}, 400),
    ({"logit_bias": {"999999": 3}, "max_tokens": 1}, 200),
    ({"max_tokens": 3}, 200)])
def test_what_is_refused(stack, theirs, more, status, stream):
    """The same as by the reference's frontend."""
    more = dict(more)
    body = stack.body(more.pop("content", "Hello"), stream=stream, **more)
    assert [one.request("POST", CHAT, body).status for one in (theirs, stack)] == [status, status]


def test_a_client_that_leaves_ends_the_request(workers, stack):
    stream = stack.stream(words(50, next(seeds)), max_tokens=3500, ignore_eos=True)
    next(stream.events)
    stream.close()
    until("it is known to have left", lambda: stack.metric("dynamo_frontend_disconnected_clients") == 1)
    until("its worker was told", lambda: any("request cancellation received" in one.log() for one in workers[0]))


# --- last: one is gone then ---

def test_a_worker_is_killed(workers, stack):
    stream = stack.stream(words(50, next(seeds)), max_tokens=3500, ignore_eos=True)
    next(stream.events)
    for worker in workers[0]:
        worker.kill()
    assert list(stream.events)[-1] == (None, "[DONE]")
    assert stack.request("POST", CHAT, stack.body("Hello")).status in (404, 500, 503)
