# SPDX-License-Identifier: Apache-2.0
"""The router's C interface in another program (`picker.py`), beside a frontend of the same workers."""

import contextlib
import json
import re
import subprocess
import sys

import pytest

from conftest import BIN, ROOT, unavailable
from stack import MODEL, Stack, until, words

LIBRARY = BIN.parent / "lib/libdynamo_llm_capi.so"
FUNCTIONS = {"create_routers", "destroy", "route_prefill_request", "route_decode_request", "add_request",
             "mark_prefill_complete", "free_request", "free_routing_result"}


class Picker:
    """picker.py as a process: picker.decode(request) and so on."""

    def __init__(self, stack, namespace="dynamo", enforce=False, **env):
        if not LIBRARY.exists():
            unavailable(f"no {LIBRARY}; run: make capi")
        base = {"DYN_STORE_KV": "file", "DYN_FILE_KV": str(stack.kv), "PATH": "/usr/bin:/bin"}
        if stack.nats_port:
            base["NATS_SERVER"] = f"nats://127.0.0.1:{stack.nats_port}"
        self.log = open(stack.folder / "picker.log", "a+")
        self.popen = subprocess.Popen(
            [sys.executable, ROOT / "e2e/picker.py", LIBRARY, namespace, "backend", "1" if enforce else "0"], text=True,
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
def picker_of(stack, **more):
    picker = Picker(stack, **more)
    try:
        yield picker
        picker.end()
    finally:
        picker.popen.kill()
        picker.popen.wait()


def chat(content):
    return {"model": MODEL, "messages": [{"role": "user", "content": content}]}


def told(stack, content):
    """Whom the frontend would choose, and the prompt as it cuts it."""
    answer = stack.chat(content, nvext={"annotations": ["query_instance_id:"]})
    return answer.json["nvext"]


def test_only_the_interface_is_exported():
    if not LIBRARY.exists():
        unavailable(f"no {LIBRARY}; run: make capi")
    listed = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in listed.splitlines()} == FUNCTIONS
    dynamic = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
    assert re.search(r"SONAME.*\[libdynamo_llm_capi\.so\]", dynamic)


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


def test_a_program_that_links_it_needs_no_library_of_ours(stack, tmp_path):
    """Of the static one a program sees the same names, and what else it has to link is named beside it."""
    static = LIBRARY.with_suffix(".a")
    if not static.exists():
        unavailable(f"no {static}; run: make capi")
    listed = subprocess.run(["nm", "-g", "--defined-only", static], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in listed.splitlines() if " " in line} == FUNCTIONS
    (tmp_path / "caller.c").write_text(CALLER)
    subprocess.run(["gcc", "-I", ROOT, "caller.c", static, *static.with_suffix(".libs").read_text().split(), "-o", "caller"],
                   cwd=tmp_path, check=True)
    stack.up("--router-mode", "kv", workers=1)
    called = stack.start("caller", [tmp_path / "caller"], DYN_DISCOVERY_BACKEND="file")
    assert called.end() == 0
    code, worker, tokens = called.log().splitlines()[-1].split()
    assert code == "0" and int(worker) in stack.instances() and int(tokens) > 0


def test_chooses_as_a_frontend(stack):
    stack.up("--router-mode", "kv", workers=3)
    with picker_of(stack) as picker:
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
