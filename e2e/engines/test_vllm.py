# SPDX-License-Identifier: Apache-2.0
"""The real `vllm serve` behind our frontend: what test_stock_engine.py shows with stand-ins.

Two engines serve all tests, as they take minutes to start; every test asks prompts of its own."""

import http.client
import itertools
import json
import random
import re

import pytest

from stack import CHAT, COMPLETIONS, MODEL, ROUTED_LOG, Stack, decision_for, until, words
from test_bridge import bridge, told
from real_vllm import BLOCK, Engine, blocks, environment, model_files, outcome, serve, teach

seeds = itertools.count(random.randrange(10 ** 6))


@pytest.fixture(scope="session")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm")
    python, model = environment(), model_files(folder / "model")
    engines = [Engine(folder, model, python, f"vllm-{i}") for i in range(2)]
    try:
        for engine in engines:
            engine.wait()
        yield engines
    finally:
        for engine in engines:
            engine.process.kill()


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield stack


def running(engine):
    return engine.metric("vllm:num_requests_running")


# --- found ---

def test_all_is_found_by_asking(both, stack):
    serve(stack, both)
    assert stack.get("/v1/models").json["data"][0]["context_window"] == 4096
    log = stack.front.log()
    for engine in both:
        line = re.search(rf"engine serves a model url={re.escape(engine.url)}.*", log).group()
        assert f"block_size={BLOCK} " in line and f"tcp://127.0.0.1:{engine.events}" in line
        assert f"tcp://127.0.0.1:{engine.replay}" in line
    assert stack.get("/health").json["notes"] == []


# --- answers ---

@pytest.mark.parametrize("api", [CHAT, COMPLETIONS])
def test_answers_are_the_engines_own(both, stack, api):
    """Key for key, but for the id, which is ours."""
    serve(stack, both[:1])
    body = stack.body(words(50, next(seeds)), api, max_tokens=6, ignore_eos=True)
    answer, direct = stack.request("POST", api, body).json, both[0].ask(api, body)
    assert answer.keys() == direct.keys() and answer["choices"][0].keys() == direct["choices"][0].keys()
    assert answer["usage"]["completion_tokens"] == 6 and answer["usage"]["prompt_tokens"] == direct["usage"]["prompt_tokens"]
    stream = stack.request("POST", api, {**body, "stream": True, "stream_options": {"include_usage": True}})
    assert stream.status == 200 and stream.events[-1] == (None, "[DONE]")
    assert stream.usage["completion_tokens"] == 6 and len(stream.chunks) >= 3  # it may tell tokens together
    assert {chunk["id"] for chunk in stream.chunks} == {stream.chunks[0]["id"]}


def test_errors_keep_their_words(both, stack):
    serve(stack, both)
    for more in ({"max_tokens": 99999}, {"max_tokens": 99999, "stream": True}):
        answer = stack.request("POST", CHAT, stack.body("Hello", **more))
        assert answer.status == 400 and "cannot be greater than max_model_len=4096" in answer.json["error"]["message"]
        assert answer.json["error"]["param"] == "max_tokens"
    assert stack.request("POST", "/v1/embeddings", {"model": MODEL, "input": "a"}).status == 404
    assert stack.workers() == 2


def test_a_client_that_leaves_ends_the_request(both, stack):
    serve(stack, both)
    stream = stack.stream(words(50, next(seeds)), max_tokens=3500, ignore_eos=True)
    next(stream.events)
    busy = until("one computes it", lambda: [engine for engine in both if running(engine)])
    stream.close()
    until("the engine has stopped", lambda: not running(busy[0]))
    assert busy[0].metric("vllm:generation_tokens_total") < 3500 * 1.5
    assert stack.metric("dynamo_frontend_disconnected_clients") == 1


# --- routing ---

def test_the_next_turn_goes_where_the_prefix_is(both, stack):
    serve(stack, both)
    ids = stack.instances()
    homes = {next(seeds): ids[i % 2] for i in range(4)}
    for seed, home in homes.items():
        teach(stack, words(300, seed), home)
    for seed, home in reversed(homes.items()):
        turns = [{"role": "user", "content": words(300, seed)}]
        answer = stack.chat(messages=turns + [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "More."}])
        decision = decision_for(stack, answer)
        cached = decision.selected["cached"]
        assert decision.selected["worker"] == home and cached >= 200 // BLOCK
        assert {row["worker"]: row["cached"] > 2 for row in decision.rows} == {worker: worker == home for worker in ids}
        predicted, had = outcome(stack, answer)
        assert predicted == had == cached * BLOCK == answer.usage["prompt_tokens_details"]["cached_tokens"]


def test_a_frontend_that_starts_later_is_told_all(both, stack):
    serve(stack, both)
    content, home = words(200, next(seeds)), stack.instances()[0]
    teach(stack, content, home)
    known = blocks(stack)
    stack.front.stop()
    serve(stack, both)
    until("the replay has come", lambda: blocks(stack) >= known)
    answer = stack.chat(content)
    assert decision_for(stack, answer).selected["worker"] == home
    predicted, had = outcome(stack, answer)
    assert predicted == had > 0


def test_salted_prompts_share_nothing(both, stack):
    """Neither with those without a salt, nor with those of another."""
    serve(stack, both[:1])
    content = words(200, next(seeds))
    for salt in ({"cache_salt": "one"}, {}, {"cache_salt": "other"}):
        fresh = stack.chat(content, **salt)
        assert outcome(stack, fresh) == (0, 0)
        until("its blocks are known", lambda: outcome(stack, stack.chat(content, **salt)) == (6 * BLOCK, 6 * BLOCK))


def test_load_of_others_counts(both, stack):
    serve(stack, both)
    body = stack.body(words(50, next(seeds)), max_tokens=3000, ignore_eos=True, stream=True)
    connection = http.client.HTTPConnection("127.0.0.1", both[1].port)
    connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json"})
    until("its load is known", lambda: stack.metric("commutator_engine_requests", state="running") == 1)
    until("its cache is known", lambda: (stack.metric("commutator_engine_kv_usage") or 0) > 0)
    connection.close()
    until("it is gone", lambda: stack.metric("commutator_engine_requests", state="running") == 0)


def test_evicted_blocks_are_forgotten(both, stack):
    """More prompts than one engine's cache holds."""
    serve(stack, both[:1])
    for _ in range(3):
        assert stack.chat(words(3800, next(seeds)), max_tokens=1).status == 200
    until("some were evicted", lambda: stack.metric("dynamo_component_kv_cache_events_applied", event_type="removed", status="ok"))
    assert blocks(stack) <= 256


# --- events for Dynamo's routers ---

def test_the_bridge_tells_of_it(both, tmp_path):
    """Its events, in the name of a worker of Dynamo."""
    with Stack(tmp_path) as stack:
        stack.start_nats("-js")
        stack.mocker(block_size=BLOCK, DYN_EVENT_PLANE="none")
        stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG)
        stack.ready(1)
        stack.live, stack.replay = both[0].events, both[0].replay
        process = bridge(stack, "stream", "--block-size", BLOCK)
        until("what it has is told", lambda: blocks(stack) > 0)
        content, before = words(200, next(seeds)), told(process, "commutator_bridge_events_sent_total")
        both[0].ask(CHAT, stack.body(content))
        until("it is told", lambda: told(process, "commutator_bridge_events_sent_total") > before)
        until("and heard", lambda: decision_for(stack, stack.chat(content)).selected["cached"] >= 4)
        assert told(process, "commutator_bridge_events_dropped_total") == 0
        assert process.stop() == 0


# --- loss: last, as it takes minutes ---

def test_an_engine_is_killed_and_comes_back(both, stack):
    serve(stack, both)
    for i in range(4):
        stack.chat(words(100, next(seeds)))
    stream = stack.stream(words(50, next(seeds)), max_tokens=3500, ignore_eos=True)
    next(stream.events)
    busy = until("one computes it", lambda: [engine for engine in both if running(engine)])[0]
    busy.process.kill()
    rest = list(stream.events)
    assert rest[-2][0] == "error" and rest[-1] == (None, "[DONE]")
    until("it is known to be lost", lambda: stack.workers() == 1)
    assert stack.chat(words(100, next(seeds))).status == 200
    busy.again()
    busy.wait()
    until("it is back", lambda: stack.workers() == 2)
    home = {worker["transport"]["openai"]: worker["instance_id"] for worker in stack.get("/health").json["instances"]}[busy.url]
    teach(stack, words(100, next(seeds)), home)
