# SPDX-License-Identifier: Apache-2.0
"""The C interface of each generation in another program (`picker.py`), beside frontends of the same workers."""

import contextlib
import ctypes
import json
import os
import re
import subprocess
import sys

import pytest

from conftest import BIN, ROOT, free_port, unavailable
from stack import CHAT, COMPLETIONS, MODEL, MODEL_PATH, ROUTED_LOG, Stack, decision_for, parse_metrics, until, words
from test_bridge import their_frontend
from test_interop import request as ask_port

LIBRARIES = BIN.parent / "lib/llm_capi"
ENGINE = {"dynamo_llm_init", "dynamo_llm_shutdown", "dynamo_llm_load_publisher_create", "dynamo_kv_event_publish_stored",
          "dynamo_kv_event_publish_removed"}
ROUTER = {"create_routers", "destroy", "route_prefill_request", "route_decode_request", "add_request",
          "mark_prefill_complete", "free_request", "free_routing_result"}
PIPELINE = {"dynamo_create_worker_selection_pipeline", "dynamo_destroy_worker_selection_pipeline",
            "dynamo_query_worker_selection_and_annotate", "dynamo_free_worker_selection_result", "dynamo_router_add_request",
            "dynamo_router_mark_prefill_complete", "dynamo_router_free_request"}
FUNCTIONS = {"plain": ENGINE | ROUTER | PIPELINE, "ranks": ENGINE | ROUTER,
             "namespaces": ENGINE | ROUTER | {"add_request_with_cache_namespace"}}
PROMPT = list(range(1000, 1320))
BLOCKS = 20


def library(generation, kind="so"):
    path = LIBRARIES / generation / f"libdynamo_llm_capi.{kind}"
    if not path.exists():
        unavailable(f"no {path}; run: make capi")
    return path


class Picker:
    """picker.py as a process: picker.decode(request) and so on."""

    def __init__(self, stack, *kind, generation="ranks", **env):
        base = {"DYN_STORE_KV": "file", "DYN_FILE_KV": str(stack.kv), "PATH": "/usr/bin:/bin", "DYN_TCP_RPC_HOST": "127.0.0.1"}
        if stack.nats_port:
            base["NATS_SERVER"] = f"nats://127.0.0.1:{stack.nats_port}"
        self.log = open(stack.folder / "picker.log", "a+")
        self.popen = subprocess.Popen(
            [sys.executable, ROOT / "e2e/picker.py", library(generation), generation, *map(str, kind)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env={**base, **env})
        self.created = self.answer()["code"]

    def answer(self):
        line = self.popen.stdout.readline()
        assert line, f"the picker has died\n{self.text()[-3000:]}"
        return json.loads(line)

    def __getattr__(self, name):
        def ask(*arguments):
            self.popen.stdin.write(json.dumps([name, *arguments]) + "\n")
            self.popen.stdin.flush()
            return self.answer()
        return ask

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def end(self):
        self.popen.stdin.close()
        code = self.popen.wait(60)
        assert code == 0, f"exit {code}\n{self.text()[-3000:]}"


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path) as stack:
        yield stack


@contextlib.contextmanager
def calling(stack, *kind, **more):
    picker = Picker(stack, *kind, **more)
    try:
        yield picker
        picker.end()
    finally:
        picker.popen.kill()
        picker.popen.wait()


def picker_of(stack, enforce=False, **more):
    return calling(stack, "router", "dynamo", "backend", int(enforce), **more)


def pipeline_of(stack, generation="plain", options=None, **more):
    return calling(stack, "pipeline", "dynamo", "backend", MODEL, json.dumps(options or {}), generation=generation, **more)


def chat(content):
    return {"model": MODEL, "messages": [{"role": "user", "content": content}]}


def told(stack, content):
    """Whom the frontend would choose, and the prompt as it cuts it."""
    answer = stack.chat(content, nvext={"annotations": ["query_instance_id:"]})
    return answer.json["nvext"]


@pytest.mark.parametrize("generation", FUNCTIONS)
def test_only_the_interface_is_exported(generation):
    path = library(generation)
    listed = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in listed.splitlines()} == FUNCTIONS[generation]
    dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    assert re.search(r"SONAME.*\[libdynamo_llm_capi\.so\]", dynamic)


def test_the_image_has_them(tmp_path):
    library("ranks")
    root = tmp_path / "rootfs"
    subprocess.run([ROOT / "image/build-rootfs", BIN, root], check=True)
    for generation, functions in FUNCTIONS.items():
        loaded = ctypes.CDLL(root / "usr/lib/dynamo/llm_capi" / generation / "libdynamo_llm_capi.so", mode=os.RTLD_LOCAL)
        assert all(hasattr(loaded, name) for name in functions)


CALLER = r"""
#include <stdio.h>
#include "router/epp/llm_capi.h"

int main(void)
{
    const char *request = "{\"model\":\"example\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}";
    RouterHandles *router = NULL;
    CRoutingResult result;
    query_router_result_t r = create_routers("dynamo", "backend", false, &router);

    if (r == QUERY_ROUTER_OK)
        r = route_decode_request(router, request, NULL, false, &result);
    printf("%u %llu %zu\n", r, r ? 0 : (unsigned long long)result.decode_worker_id, r ? 0 : result.token_count);
    if (r == QUERY_ROUTER_OK)
        free_routing_result(&result);
    destroy(router);
    return 0;
}
"""


@pytest.mark.parametrize("generation", FUNCTIONS)
def test_a_program_that_links_it_needs_no_library_of_ours(stack, tmp_path, generation):
    """Of the static one a program sees the same names, and what else it has to link is named beside it."""
    static = library(generation, "a")
    listed = subprocess.run(["nm", "-g", "--defined-only", static], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in listed.splitlines() if " " in line} == FUNCTIONS[generation]
    (tmp_path / "caller.c").write_text(CALLER)
    subprocess.run(["gcc", f"-DLLM_CAPI_GENERATION=LLM_CAPI_{generation.upper()}", "-I", ROOT, "caller.c", static,
                    *static.with_suffix(".libs").read_text().split(), "-o", "caller"], cwd=tmp_path, check=True)
    stack.up("--router-mode", "kv", workers=1)
    called = stack.start("caller", [tmp_path / "caller"], DYN_DISCOVERY_BACKEND="file")
    assert called.end() == 0
    code, worker, tokens = called.log().splitlines()[-1].split()
    assert code == "0" and int(worker) in stack.instances() and int(tokens) > 0


@pytest.mark.parametrize("generation", FUNCTIONS)
def test_chooses_as_a_frontend(stack, generation):
    stack.up("--router-mode", "kv", workers=3)
    with picker_of(stack, generation=generation) as picker:
        assert picker.created == 0
        ids = set(stack.instances())
        prompt = words(600)
        first = picker.decode(chat(prompt))
        assert first["decode"] in ids and first["prefill"] == 0 and not first["disagg"]
        assert first["tokens"] == told(stack, prompt)["token_ids"]
        stack.chat(prompt)
        # Now one of them has it, and both routers hear that by and by: all of their choices are that one.
        warm = until("the frontend knows", lambda: the_one([told(stack, prompt)["worker_id"]["decode_worker_id"]
                                                            for _ in range(8)]))
        assert until("the picker knows", lambda: the_one([picker.decode(chat(prompt))["decode"]
                                                          for _ in range(8)])) == warm
        assert picker.decode(chat(prompt), False, [{"podName": "no-such-pod"}]) == {"code": 4}
        assert picker.prefill(chat(prompt)) == {"code": 4}


def the_one(choices):
    return choices[0] if len(set(choices)) == 1 else None


def test_what_is_told_counts(stack):
    stack.events = False
    stack.up("--router-mode", "kv", workers=2)
    ids = stack.instances()
    with picker_of(stack, DYN_KV_EVENTS="false") as picker:
        until("both workers are known", lambda: {picker.decode(chat("x"))["decode"] for _ in range(8)} == set(ids))
        placed = {worker: 0 for worker in ids}
        for i in range(16):
            choice = picker.decode(chat(words(200, seed=i + 10)))
            placed[choice["decode"]] += 1
            assert picker.add(f"r{i}", choice["tokens"], choice["decode"]) == {"code": 0}
        assert list(placed.values()) == [8, 8]
        for i in range(16):
            assert picker.prefilled(f"r{i}") == {"code": 0}
            assert picker.free(f"r{i}") == {"code": 0}
        # Nothing is left: what is told of one worker sends the next request to the other.
        for worker in ids:
            long = picker.decode(chat(words(400, seed=99)))["tokens"]
            assert picker.add("again", long, worker) == {"code": 0}
            assert {picker.decode(chat("x"))["decode"] for _ in range(8)} == set(ids) - {worker}
            assert picker.free("again") == {"code": 0}


def test_prefill_and_decode(stack):
    stack.start_nats()
    prefill = stack.mocker("--is-prefill-worker")
    decode = stack.mocker("--is-decode-worker")
    with picker_of(stack, enforce=True) as picker:
        assert picker.created == 0
        found = picker.prefill(chat("Hello"))
        assert found["disagg"] and found["decode"] == 0
        assert f"worker_id={found['prefill']}" in prefill.wait_log(r"worker registered.*").group()
        found = picker.decode(chat("Hello"), True)
        assert found["disagg"] and found["prefill"] == 0
        assert f"worker_id={found['decode']}" in decode.wait_log(r"worker registered.*").group()
        assert picker.decode(chat("Hello")) == {"code": 5}


def test_wrong_options_and_requests(stack):
    stack.events = False
    stack.up(workers=1)
    with picker_of(stack, DYN_ROUTER_TEMPERATURE="warm") as picker:
        assert picker.created == 3
    with picker_of(stack, DYN_KV_EVENTS="false") as picker:
        assert picker.decode({"model": MODEL, "prompt": "x"}) == {"code": 2}
        assert picker.decode(chat("secret words"))["code"] == 0
        assert "secret" not in picker.text()


def test_a_cache_namespace_is_told_and_counted(stack):
    """Blocks of a tenant are booked as its own: another's request shares none of them."""
    stack.events = False
    stack.up("--router-mode", "kv", workers=2)
    ids = stack.instances()
    with picker_of(stack, generation="namespaces", DYN_KV_EVENTS="false") as picker:
        until("both workers are known", lambda: {picker.decode(chat("x"))["decode"] for _ in range(8)} == set(ids))
        prompt = {**chat(words(200)), "cache_salt": "tenant-7"}
        first = picker.decode(prompt)
        assert first["namespace"] == "tenant-7" and picker.decode(chat("x"))["namespace"] == ""
        assert picker.add("r", first["tokens"], first["decode"], 0, first["namespace"]) == {"code": 0}
        assert picker.free("r") == {"code": 0}
        assert {picker.decode(prompt)["decode"] for _ in range(16)} == {first["decode"]}
        until("another tenant may go to either", lambda: {
            picker.decode({**prompt, "cache_salt": "tenant-8"})["decode"] for _ in range(16)} == set(ids))


def test_metrics_of_an_embedded_router(stack):
    stack.events = False
    stack.up("--router-mode", "kv", workers=1)
    port = free_port()
    with picker_of(stack, DYN_KV_EVENTS="false", DYN_SYSTEM_PORT=str(port), DYN_SYSTEM_HOST="127.0.0.1") as picker:
        worker = stack.instances()[0]
        assert picker.add("r", PROMPT, worker) == {"code": 0}
        status, text = ask_port(port, "/metrics", None)
        numbers = parse_metrics(text)
        assert status == 200 and numbers[("commutator_epp_bookings", ())] == 1
        assert any(name == "commutator_router_workers" and number == 1 for (name, _), number in numbers.items())
        assert ask_port(port, "/health", None)[0] == 200


# --- 0.9.0's pipeline ---

def sent(stack, request, **more):
    answer = stack.request("POST", CHAT, {**request, "max_tokens": 2, **more})
    assert answer.status == 200, answer.body
    return answer


def test_an_annotated_request_goes_where_it_says(stack):
    """And its prompt is not cut again: it stays as long when the messages are others."""
    stack.start_nats("-js")
    stack.mocker(workers=3)
    stack.frontend("--router-mode", "kv")
    stack.ready(3)
    with pipeline_of(stack) as pipeline:
        assert pipeline.created == 0
        request = {**chat(words(100)), "nvext": {"extra_fields": ["worker_id"]}}
        until("all workers are known", lambda: {pipeline.query(request)["decode"] for _ in range(16)} == set(stack.instances()))
        for _ in range(6):
            told = pipeline.query(request)
            assert told["prefill"] == told["decode"]
            assert told["request"]["nvext"] == {"extra_fields": ["worker_id"], "enable_local_updates": False,
                                                "backend_instance_id": told["decode"], "token_data": told["tokens"]}
            assert {**told["request"], "nvext": request["nvext"]} == request
            answer = sent(stack, told["request"], messages=chat("other")["messages"]).json
            assert answer["nvext"]["worker_id"]["decode_worker_id"] == told["decode"]
            assert answer["usage"]["prompt_tokens"] == len(told["tokens"])
            assert pipeline.add("r", told["tokens"], told["decode"]) == {"code": 0}
            assert pipeline.prefilled("r") == {"code": 0} and pipeline.free("r") == {"code": 0}
        assert pipeline.query({"model": MODEL, "prompt": "x"}) == {"code": 1}


def test_an_annotated_request_goes_there_by_their_frontend(stack):
    stack.start_nats("-js")
    workers = {}
    for _ in range(3):
        port = free_port()
        mocker = stack.mocker(DYN_SYSTEM_PORT=port, DYN_SYSTEM_HOST="127.0.0.1")
        workers[int(mocker.wait_log(r"worker registered worker_id=(\d+)").group(1))] = port
    front, asked = their_frontend(stack, "0.9.0")
    port = int(front.popen.args[front.popen.args.index("--http-port") + 1])
    until("it serves", asked)
    with pipeline_of(stack) as pipeline:
        request = {**chat(words(100)), "max_tokens": 2}
        until("all workers are known", lambda: {pipeline.query(request)["decode"] for _ in range(16)} == set(workers))
        until("it serves them", lambda: ask_port(port, CHAT, pipeline.query(request)["request"])[0] == 200)
        for _ in range(6):
            told = pipeline.query(request)
            before = {worker: requests(at) for worker, at in workers.items()}
            there = before.pop(told["decode"])
            status, text = ask_port(port, CHAT, {**told["request"], **chat("other")})
            assert status == 200, text
            assert json.loads(text)["usage"]["prompt_tokens"] == len(told["tokens"])
            until("it is counted", lambda: requests(workers[told["decode"]]) == there + 1)
            assert {worker: requests(workers[worker]) for worker in before} == before


def requests(port):
    numbers = parse_metrics(ask_port(port, "/metrics", None)[1])
    return sum(number for (name, labels), number in numbers.items()
               if name == "dynamo_component_requests_total" and ("dynamo_endpoint", "generate") in labels)


def test_a_pipeline_tells_of_prefill_workers(stack):
    stack.start_nats("-js")
    prefill = stack.mocker("--is-prefill-worker")
    decode = stack.mocker("--is-decode-worker")
    with pipeline_of(stack, options={"enforce": True}) as pipeline:
        assert pipeline.created == 0
        told = pipeline.query(chat("Hello"))
        assert f"worker_id={told['prefill']}" in prefill.wait_log(r"worker registered.*").group()
        assert f"worker_id={told['decode']}" in decode.wait_log(r"worker registered.*").group()
        nvext = told["request"]["nvext"]
        assert (nvext["prefill_worker_id"], nvext["decode_worker_id"]) == (told["prefill"], told["decode"])
        assert "backend_instance_id" not in nvext and nvext["token_data"] == told["tokens"]


# --- the engine's half ---

@pytest.fixture
def engine_stack(stack):
    """A worker that tells nobody of its cache."""
    (stack.folder / MODEL).symlink_to(MODEL_PATH)
    stack.start_nats("-js")
    stack.worker = stack.mocker(DYN_EVENT_PLANE="none")
    return stack


def engine_of(stack, generation, **env):
    worker = stack.worker.wait_log(r"worker registered worker_id=(\d+)").group(1)
    return calling(stack, "engine", "dynamo", "backend", 16, generation=generation, COMMUTATOR_WORKER_ID=worker, **env)


def cached(stack):
    answer = stack.request("POST", COMPLETIONS, stack.body(PROMPT, COMPLETIONS))
    return decision_for(stack, answer).selected["cached"]


HASHES = [2**63 + i for i in range(BLOCKS)]


def tell(engine):
    half = BLOCKS // 2
    assert engine.stored(1, PROMPT[:half * 16], HASHES[:half]) == {"code": 0}
    assert engine.stored(2, PROMPT[half * 16:], HASHES[half:], HASHES[half - 1]) == {"code": 0}


@pytest.mark.parametrize("plane", ["nats", "zmq"])
@pytest.mark.parametrize("generation", FUNCTIONS)
def test_our_router_hears_the_engine(engine_stack, generation, plane):
    stack = engine_stack
    stack.frontend("--router-mode", "kv", DYN_LOG=ROUTED_LOG, DYN_EVENT_PLANE=plane)
    stack.ready(1)
    with engine_of(stack, generation, DYN_EVENT_PLANE=plane) as engine:
        assert engine.created == 0
        assert cached(stack) == 0
        if plane == "zmq":  # what is said before somebody hears is lost there: the engine says it again
            until("it is heard", lambda: tell(engine) or cached(stack) == BLOCKS)
        else:
            tell(engine)
            until("its blocks are known", lambda: cached(stack) == BLOCKS)
        assert engine.removed(3, HASHES[BLOCKS // 2:]) == {"code": 0}
        until("some are gone", lambda: cached(stack) == BLOCKS // 2)


@pytest.mark.parametrize("release,generation", [("0.9.0", "plain"), ("1.6.1", "namespaces")])
def test_their_router_hears_the_engine(engine_stack, release, generation):
    stack = engine_stack
    front, asked = their_frontend(stack, release)
    with engine_of(stack, generation) as engine:
        until("their frontend serves our worker", asked)
        tell(engine)

        def known():  # 1.x names no blocks: of 20 to compute and 20 active the former are spared
            assert asked()
            return f"with {BLOCKS} cached blocks" in front.log() or re.search(r"logit\S*=\S*20\.0", front.log())
        until("their router has seen the engine's events", known)
