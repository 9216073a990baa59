# SPDX-License-Identifier: Apache-2.0
"""Kinds of `vllm serve` behind one frontend: with adapters and a key, with data-parallel ranks, and one that embeds.

One of each serves all tests, as they take minutes to start; every test asks prompts of its own."""

import itertools
import json
import random

import pytest

from conftest import run
from real_vllm import BLOCK, Engine, environment, model_files, outcome, running, serve
from stack import CHAT, MODEL, Stack, until, words

seeds = itertools.count(random.randrange(10 ** 6))
KEY = "sesame"
EMBEDDINGS = "/v1/embeddings"
ADAPTER = """
import json, sys, torch
from safetensors.torch import save_file
folder, config = sys.argv[1], json.load(open(sys.argv[2]))
widths = {"q_proj": config["num_attention_heads"], "v_proj": config["num_key_value_heads"]}
tensors = {}
for layer in range(config["num_hidden_layers"]):
    for name, heads in widths.items():
        at = f"base_model.model.model.layers.{layer}.self_attn.{name}."
        tensors[at + "lora_A.weight"] = torch.randn(8, config["hidden_size"])
        tensors[at + "lora_B.weight"] = torch.randn(heads * config["head_dim"], 8)
save_file(tensors, folder + "/adapter_model.safetensors")
"""


def adapter(python, folder, model):
    """Of random weights."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"], "bias": "none", "task_type": "CAUSAL_LM"}))
    run(python, "-c", ADAPTER, folder, model / "config.json")
    return folder


@pytest.fixture(scope="session")
def kinds(tmp_path_factory):
    """(with adapters and a key, with two ranks and without a replay, of embeddings)"""
    folder = tmp_path_factory.mktemp("vllm")
    python, model = environment(), model_files(folder / "model")
    engines = [Engine(folder, model, python, "vllm-lora", "--enable-lora", "--max-lora-rank", 8, "--lora-modules",
                      f"sql={adapter(python, folder / 'sql', model)}", key=KEY),
               Engine(folder, model, python, "vllm-ranks", "--data-parallel-size", 2, ranks=2, replays=False),
               Engine(folder, model, python, "vllm-embeds", "--runner", "pooling", "--convert", "embed")]

    def wait(engine):
        if engine is engines[2]:
            engine.wait(EMBEDDINGS, {"model": MODEL, "input": "a"})
        else:
            engine.wait()
    with running(engines, wait):
        yield engines


@pytest.fixture
def stack(kinds, tmp_path):
    """All three, under names of their own."""
    with Stack(tmp_path, events=False) as stack:
        serve(stack, kinds, models=["base", "ranks", "embeds"], DYN_ENGINE_API_KEY=KEY)
        until("all are there", lambda: sorted(stack.models()) == ["base", "embeds", "ranks", "sql"])
        yield stack


def asked(stack, model, content, **more):
    return stack.chat(content, model=model, max_tokens=1, **more)


def known(stack, model, content, **more):
    """Asks until its blocks are known; how many tokens were predicted, and had, to be cached."""
    return until("its blocks are known", lambda: (lambda pair: pair if pair[0] else None)(outcome(stack, asked(stack, model, content, **more))))


def test_adapters_have_caches_of_their_own(stack):
    """By the engine's events: nothing is predicted that is another's, all that is its own."""
    content = words(200, next(seeds))
    for model in ("base", "sql"):
        assert outcome(stack, asked(stack, model, content)) == (0, 0)
        predicted, had = known(stack, model, content)
        assert predicted == had >= 5 * BLOCK
    assert outcome(stack, asked(stack, "sql", content, cache_salt="a")) == (0, 0)


def test_every_rank_is_known(stack, kinds):
    """Before its first request; each goes where its prefix is, and the engine has it there."""
    log = stack.front.log()
    assert f"model=ranks engine_model={MODEL}" in log and f"tcp://127.0.0.1:{kinds[1].events}" in log
    homes = {}
    for seed in (next(seeds) for _ in range(4)):
        answer = asked(stack, "ranks", words(200, seed))
        decision = stack.get(f"/explain/{answer.headers['x-request-id']}").json["decisions"][-1]
        assert len(decision["candidates"]) == 2
        homes[seed] = decision["chosen"]["dp_rank"]
    assert set(homes.values()) == {0, 1}
    for seed, home in homes.items():
        predicted, had = known(stack, "ranks", words(200, seed))
        assert predicted == had >= 5 * BLOCK
        answer = asked(stack, "ranks", words(200, seed))
        assert stack.get(f"/explain/{answer.headers['x-request-id']}").json["decisions"][-1]["chosen"]["dp_rank"] == home


def test_embeddings_are_the_engines_own(stack, kinds):
    for more in ({"input": ["a", "b c"]}, {"input": [65, 66]}, {"input": "a", "encoding_format": "base64"}):
        direct = kinds[2].ask(EMBEDDINGS, {"model": MODEL, **more})
        answer = stack.request("POST", EMBEDDINGS, {"model": "embeds", **more})
        assert answer.status == 200 and answer.json["data"] == direct["data"] and answer.json["usage"] == direct["usage"]
        assert answer.json["model"] == "embeds" and answer.json.keys() == direct.keys()
    answer = stack.request("POST", EMBEDDINGS, {"model": "embeds", "input": "a", "dimensions": 3})
    assert answer.status == 400 and "Matryoshka" in answer.json["error"]["message"]
    assert stack.request("POST", CHAT, stack.body("a", model="embeds")).status == 404
    assert stack.request("POST", EMBEDDINGS, {"model": "base", "input": "a"}).status == 404


@pytest.mark.parametrize("path, more", [
    ("/v1/score", {"text_1": "a", "text_2": ["b", "c"]}), ("/v1/rerank", {"query": "a", "documents": ["b", "c"]}),
    ("/rerank", {"query": "a", "documents": ["b"]}), ("/pooling", {"input": "a"}), ("/tokenize", {"prompt": "a"})])
def test_what_else_it_can(stack, kinds, path, more):
    direct = kinds[2].ask(path, {"model": MODEL, **more})
    answer = stack.request("POST", path, {"model": "embeds", **more}).json
    differs = {"id": None, "created": None, "model": None}
    assert {**answer, **differs} == {**direct, **differs}


def test_a_key_is_wanted(kinds, tmp_path):
    with Stack(tmp_path, events=False) as stack:
        serve(stack, kinds[:1], models=["base"])
        stack.front.wait_log("engine wants an API key that it was not shown")
        assert stack.models() == []
        assert KEY not in stack.front.log()


# --- last: it takes a minute ---

def test_an_engine_without_replay_starts_again(stack, kinds):
    """Where it was: what it had is forgotten, of every rank."""
    content = words(200, next(seeds))
    known(stack, "ranks", content)
    kinds[1].again()
    until("it is known to be lost", lambda: "ranks" not in stack.models())
    kinds[1].wait()
    until("it is back", lambda: "ranks" in stack.models())
    assert outcome(stack, asked(stack, "ranks", content)) == (0, 0)
    predicted, had = known(stack, "ranks", content)
    assert predicted == had >= 5 * BLOCK
